//! MQTT: lines come on one topic per rule, answers go out on another.
//!
//! A message may be delivered twice (at least once is what MQTT promises), so every
//! line must say which step it is; one that came before is passed over. A message is
//! acknowledged once what came of it is on the disk. The broker delivers the others again, but
//! only to a client that connects again. So a server that cannot store what comes hangs up, and
//! connects again when it can.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use rumqttc::{
    AsyncClient, Event, EventLoop, MqttOptions, Packet, Publish, QoS, TlsConfiguration, Transport,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;

use crate::error::Error;
use crate::lines::Lines;
use crate::served_rule::{Answers, ServedRule};
use crate::served_rules::ServedRules;
use crate::server_log::{ServerLog, random_id};

/// A broker to connect to.
#[derive(Clone)]
pub struct Mqtt {
    host: String,
    port: u16,
    tls: bool,
    /// Whose certificates are trusted; those that browsers trust where there are none.
    authorities: Vec<CertificateDer<'static>>,
    /// User and password, where the broker wants them.
    pub login: Option<(String, String)>,
}

impl std::fmt::Debug for Mqtt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The password is nobody's business.
        f.debug_struct("Mqtt")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

const ADDRESS: &str = "give an address such as mqtt://broker:1883 or mqtts://broker:8883";

impl std::str::FromStr for Mqtt {
    type Err = String;

    /// Reads an address such as `mqtt://broker:1883`, or `mqtts://broker:8883` with TLS.
    fn from_str(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            Some(("mqtt", rest)) => (false, rest),
            Some(("mqtts", rest)) => (true, rest),
            Some(_) => return Err(ADDRESS.into()),
            None => (false, text),
        };
        let usual = if tls { "8883" } else { "1883" };
        let (host, port) = rest.rsplit_once(':').unwrap_or((rest, usual));
        let port = port
            .parse()
            .map_err(|_| "the port is not a number up to 65535")?;
        if host.is_empty() || host.contains(['/', '@']) {
            return Err(ADDRESS.into());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            tls,
            authorities: Vec::new(),
            login: None,
        })
    }
}

impl Mqtt {
    /// Trusts brokers whose certificate comes from one of the authorities in a file,
    /// and no others.
    pub fn trust(&mut self, path: &Path) -> Result<(), Error> {
        if !self.tls {
            let problem = "certificates are of use with TLS only; give an address with mqtts://";
            return Err(Error::file(path, problem));
        }
        let failed = |e: &dyn std::fmt::Display| Error::file(path, e);
        let found = CertificateDer::pem_file_iter(path).map_err(|e| failed(&e))?;
        self.authorities = found.collect::<Result<_, _>>().map_err(|e| failed(&e))?;
        match self.authorities.is_empty() {
            true => Err(failed(&"there is no certificate in it; give a file of PEM")),
            false => Ok(()),
        }
    }

    /// How the broker is reached.
    fn transport(&self) -> Result<Transport, rustls::Error> {
        if !self.tls {
            return Ok(Transport::Tcp);
        }
        let mut roots = RootCertStore::empty();
        if self.authorities.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        for authority in &self.authorities {
            roots.add(authority.clone())?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Transport::Tls(TlsConfiguration::Rustls(Arc::new(config))))
    }
}

/// How many messages may wait to be acknowledged.
const WAITING: usize = 10_000;

/// The task that speaks with the broker, as people read of it.
pub(crate) const TASK: &str = "the task that speaks with the MQTT broker";

/// The file with the name by which the broker knows this server.
const ID_FILE: &str = "_mqtt-id";

/// The name by which the broker knows the server of these stores, the same after a restart. It is
/// random, because the stores of two servers may be at the same path, each in its own container.
pub(crate) fn client_id(stores: &[PathBuf]) -> Result<String, Error> {
    let files: Vec<PathBuf> = stores.iter().map(|folder| folder.join(ID_FILE)).collect();
    for path in &files {
        match std::fs::read_to_string(path) {
            Ok(id) if is_client_id(&id) => return Ok(id),
            Ok(_) => return Err(Error::file(path, "it is no client id; remove it")),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::file(path, e)),
        }
    }
    let id = format!("haltwise-{}", random_id());
    if let Some(path) = files.first() {
        haltwise_io::write_whole(path, |out| out.write_all(id.as_bytes()))?;
    }
    Ok(id)
}

fn is_client_id(text: &str) -> bool {
    let digits = text.strip_prefix("haltwise-");
    digits.is_some_and(|d| d.len() == 16 && d.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// How long messages may wait for room in the queue: the broker is not read meanwhile.
const QUEUING: Duration = Duration::from_secs(5);

/// How long to wait before the next attempt to connect.
const PAUSE: Duration = Duration::from_millis(500);

/// What came of a message, and the message to acknowledge.
struct Done {
    served: Arc<ServedRule>,
    publish: Publish,
    answers: Answers,
}

impl Mqtt {
    /// The task that takes messages until the server ends. A broker that is gone is tried again.
    pub(crate) fn task(
        self,
        id: String,
        rules: &ServedRules,
        log: ServerLog,
    ) -> Result<impl Fn() -> BoxFuture<'static, ()> + Send + use<>, Error> {
        let most = rules.max_line.max(1 << 20);
        let mut options = MqttOptions::new(id, &self.host, self.port);
        options
            .set_keep_alive(Duration::from_secs(30))
            // The broker keeps what comes while the server is away.
            .set_clean_session(false)
            .set_manual_acks(true)
            .set_max_packet_size(most, most);
        let transport = self
            .transport()
            .map_err(|e| Error::new(format!("the broker's certificates cannot be checked: {e}")))?;
        options.set_transport(transport);
        if let Some((user, password)) = self.login {
            options.set_credentials(user, password);
        }
        let broker = format!("{}:{}", self.host, self.port);
        let rules = rules.clone();
        Ok(move || {
            let (options, rules) = (options.clone(), rules.clone());
            run(options, rules, broker.clone(), log.clone()).boxed()
        })
    }
}

async fn run(options: MqttOptions, rules: ServedRules, broker: String, log: ServerLog) {
    loop {
        let (client, events) = AsyncClient::new(options.clone(), WAITING);
        let (queue, waiting) = mpsc::channel(WAITING);
        // Neither is of use without the other.
        let error = tokio::select! {
            error = listen(client.clone(), events, &rules, &broker, &log, queue) => error,
            error = answer(client, waiting) => error,
        };
        log.warn(&format!(
            "hung up on the broker {broker} until messages can be stored: {error}"
        ));
        tokio::time::sleep(PAUSE).await;
        while rules.all.iter().any(|served| served.ready().is_err()) {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn listen(
    client: AsyncClient,
    mut events: EventLoop,
    rules: &ServedRules,
    broker: &str,
    log: &ServerLog,
    queue: mpsc::Sender<Done>,
) -> Error {
    let mut connected = true;
    loop {
        let event = events.poll().await;
        rules.dead.works(TASK);
        match event {
            Ok(Event::Incoming(Packet::ConnAck(_))) => {
                log.info(&format!("connected to the broker {broker}"));
                connected = true;
                for served in rules.all.iter() {
                    for topic in ["in", "labels"] {
                        let topic = format!("haltwise/{}/{topic}", served.name);
                        // Its channel has room: few rules, many messages.
                        let _ = client.try_subscribe(topic, QoS::AtLeastOnce);
                    }
                }
            }
            Ok(Event::Incoming(Packet::Publish(mut publish))) => {
                let mut parts = publish.topic.split('/').skip(1);
                let (name, kind) = (parts.next(), parts.next());
                let Some(served) = rules.all.iter().find(|b| Some(&*b.name) == name) else {
                    // The broker remembers the topics of rules that were served once. It sends
                    // only so many messages before it waits for one to be acknowledged.
                    let topic = &publish.topic;
                    log.warn(&format!(
                        "no rule is served at {topic}: a message is dropped"
                    ));
                    let _ = client.try_unsubscribe(topic);
                    let _ = client.try_ack(&publish);
                    continue;
                };
                let answers = match take(served, kind, &publish.payload, rules.max_line) {
                    Ok(answers) => answers,
                    Err(error) => return error,
                };
                // It takes memory, and is not needed to acknowledge the message.
                publish.payload.clear();
                let done = Done {
                    served: Arc::clone(served),
                    publish,
                    answers,
                };
                // Not for long: what is acknowledged is written here.
                if queue.send_timeout(done, QUEUING).await.is_err() {
                    return Error::new("too many messages wait for the disk");
                }
            }
            Ok(_) => {}
            Err(error) => {
                if connected {
                    log.warn(&format!(
                        "the broker {broker} is gone ({error}); trying again"
                    ));
                }
                connected = false;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Takes the lines of a message.
fn take(
    served: &ServedRule,
    kind: Option<&str>,
    payload: &[u8],
    max_line: usize,
) -> Result<Answers, Error> {
    let mut all = Answers {
        text: String::new(),
        after: 0,
    };
    if kind == Some("labels") {
        for line in payload
            .split(|&b| b == b'\n')
            .filter(|l| !l.trim_ascii().is_empty())
        {
            let (labelled, answers) = served.label(line)?;
            all.after = all.after.max(answers.after);
            if let Err(fault) = labelled {
                all.text += &(fault.json(None) + "\n");
            }
        }
        return Ok(all);
    }
    let mut lines = Lines::new(max_line);
    let mut said = Vec::new();
    said.extend(lines.push(payload, |l, n| served.take_numbered(l, n)));
    said.extend(lines.finish(|l, n| served.take_numbered(l, n)));
    for answers in said {
        let answers = answers?;
        all.text += &answers.text;
        all.after = all.after.max(answers.after);
    }
    Ok(all)
}

/// Answers and acknowledges messages, each once it is on the disk. Returns why that goes no
/// further.
async fn answer(client: AsyncClient, mut waiting: mpsc::Receiver<Done>) -> Error {
    while let Some(Done {
        served,
        publish,
        answers,
    }) = waiting.recv().await
    {
        if let Err(error) = served.durable(answers.after).await {
            return error;
        }
        let mut sent = Ok(());
        if !answers.text.is_empty() {
            let topic = format!("haltwise/{}/out", served.name);
            sent = client
                .publish(topic, QoS::AtLeastOnce, false, answers.text)
                .await;
        }
        if sent.is_ok() {
            sent = client.ack(&publish).await;
        }
        if let Err(error) = sent {
            return Error::new(format!("it is gone: {error}"));
        }
    }
    Error::new("it is gone")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_has_a_name_of_its_own_that_it_keeps() {
        let folder = tempfile::tempdir().unwrap();
        let store = |name: &str| {
            let store = folder.path().join(name);
            std::fs::create_dir_all(&store).unwrap();
            store
        };
        let (a, b) = (store("a/rule"), store("b/rule"));
        let id = client_id(std::slice::from_ref(&a)).unwrap();
        assert!(is_client_id(&id), "{id}");
        assert_ne!(client_id(&[b]).unwrap(), id);
        assert_eq!(client_id(std::slice::from_ref(&a)).unwrap(), id);
        // Nor does it change with the rules that are served beside.
        assert_eq!(client_id(&[store("a/new"), a.clone()]).unwrap(), id);
        std::fs::write(a.join(ID_FILE), "haltwise-").unwrap();
        let message = client_id(&[a]).unwrap_err().to_string();
        assert!(message.contains("remove it"), "{message}");
    }

    #[test]
    fn a_broker_has_an_address() {
        let parsed = |text: &str| text.parse::<Mqtt>().map(|m| (m.host, m.port, m.tls));
        assert_eq!(parsed("mqtt://a:77"), Ok(("a".into(), 77, false)));
        assert_eq!(parsed("localhost"), Ok(("localhost".into(), 1883, false)));
        assert_eq!(parsed("mqtts://a"), Ok(("a".into(), 8883, true)));
        for bad in ["https://a", "mqtt://", "a:99999", "mqtt://u@b"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
    }
}
