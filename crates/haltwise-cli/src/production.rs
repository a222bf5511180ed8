//! `haltwise demo --production`: pen strokes as live streams, a drift, the alarm.

use std::fmt::Write as _;
use std::io::{IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use haltwise_io::read_rule;
use haltwise_io::series::SeriesSet;
use haltwise_lstm::{Device, Model, Series};
use haltwise_serve::{ConnectionLimits, Options, Served, Settings, Watching};
use serde_json::Value;

use crate::show::{self, CAREFUL, GOOD, HEADING, number, percent, styled};

/// How many strokes come before the drift, and at the most after it.
const BEFORE: usize = 500;
const AFTER: usize = 2000;

/// How many points of a stroke are another's once the writers have changed.
const FOREIGN: usize = 2;

/// Strokes that are sent at a time, and the pause between, so that the page can be
/// watched.
const AT_A_TIME: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

/// Serves a rule, replays strokes that it has not seen, has the writers change, and
/// waits for the alarm. Returns what the server then says.
pub(crate) fn replay(
    model: &Model,
    strokes: &SeriesSet,
    rule: &Path,
    folder: &Path,
    quiet: bool,
) -> anyhow::Result<Value> {
    let say = |text: String| if quiet { Ok(()) } else { show::print(&text) };
    let store = folder.join("audits");
    if store.exists() {
        std::fs::remove_dir_all(&store)
            .with_context(|| format!("{}: cannot remove it", show::file(&store)))?;
    }
    let server = Server::start(rule, &store)?;
    say(format!(
        "{}\nOne stroke in five is audited. How it goes: http://{}/\n",
        styled(HEADING, "In production"),
        server.address
    ))?;
    let watched = !quiet && std::io::stdout().is_terminal();
    if watched {
        open(&format!("http://{}/", server.address));
    }
    let good = Strokes::new(model, strokes, |_| None)?;
    // Writers now begin with the first points of the next stroke: an answer that is
    // given early is often wrong, while the rest still tells the digit.
    let drifted = Strokes::new(model, strokes, |i| Some(i + 1))?;
    let mut sent = 0;
    let mut send = |strokes: &Strokes, n: usize| -> anyhow::Result<Value> {
        let (mut lines, mut labels) = (String::new(), String::new());
        for _ in 0..n {
            strokes.write(sent, &mut lines, &mut labels);
            sent += 1;
        }
        server.ask("POST", "streams", &lines)?;
        server.ask("POST", "labels", &labels)?;
        if watched {
            std::thread::sleep(PAUSE);
        }
        Ok(serde_json::from_str(&server.ask("GET", "status", "")?)?)
    };
    let mut status = Value::Null;
    for _ in 0..BEFORE / AT_A_TIME {
        status = send(&good, AT_A_TIME)?;
    }
    say(format!(
        "{} strokes later, {} of them audited: {}\n",
        number(BEFORE as u64),
        status["audits"],
        if status["alarm"] == true {
            styled(CAREFUL, "an alarm, by chance")
        } else {
            styled(GOOD, "no alarm")
        }
    ))?;
    say("Now the writers change: each begins like another one.\n".into())?;
    let mut after = 0;
    while status["alarm"] != true && after < AFTER {
        status = send(&drifted, AT_A_TIME)?;
        after += AT_A_TIME;
    }
    if status["alarm"] != true {
        bail!("no alarm after {AFTER} strokes: this should not happen");
    }
    let gap = status["gap"].as_f64().unwrap_or(0.0);
    say(format!(
        "{} after {} strokes: {} of those halted by step {} since audit {} lost a right answer.\n\
         From now on strokes are read to their end. Go on with docs/production.md, or:\n\
         \x20 haltwise monitor {} {}\n",
        styled(CAREFUL, "Alarm"),
        number(after as u64),
        percent(gap),
        status["worst_step"],
        status["since"],
        show::in_shell(rule),
        show::in_shell(&store),
    ))?;
    if watched {
        say("The page stays open until you press Enter.\n".into())?;
        std::io::stdin().read_line(&mut String::new())?;
    }
    server.stop()?;
    Ok(status)
}

/// What the classifier says about strokes, as lines.
struct Strokes {
    /// The lines of each, without their ids.
    lines: Vec<Vec<String>>,
    labels: Vec<u32>,
}

impl Strokes {
    /// Has the model read strokes, of which some begin like another.
    fn new(
        model: &Model,
        set: &SeriesSet,
        other: impl Fn(usize) -> Option<usize>,
    ) -> anyhow::Result<Self> {
        let mut values = Vec::with_capacity(set.values().len());
        for i in 0..set.len() {
            let own = set.sequence(i);
            let first = FOREIGN * set.features();
            let begins = other(i).map_or(own, |j| set.sequence(j % set.len()));
            values.extend_from_slice(&begins[..first]);
            values.extend_from_slice(&own[first..]);
        }
        let series = Series::new(&values, set.t_max(), set.features())?;
        let mut lines = Vec::new();
        for scores in model.score_on(series, Device::Cpu)? {
            let scores = scores?;
            let safety = haltwise_paper::classifier::safety(&scores);
            for (i, &length) in scores.lengths.iter().enumerate() {
                let step = |t: usize| {
                    let at = i * scores.steps + t;
                    let probs = at * scores.classes..(at + 1) * scores.classes;
                    let probs = serde_json::to_string(&scores.probabilities[probs])?;
                    anyhow::Ok(format!(
                        "\"t\":{},\"score\":{},\"prediction\":{},\"probs\":{probs}",
                        t + 1,
                        safety[at],
                        scores.predictions[at]
                    ))
                };
                lines.push((0..length).map(step).collect::<anyhow::Result<_>>()?);
            }
        }
        let labels = set.labels().to_vec();
        Ok(Self { lines, labels })
    }

    /// Writes the n-th stroke, one after the other and then from the first again.
    fn write(&self, n: usize, lines: &mut String, labels: &mut String) {
        let i = n % self.lines.len();
        for line in &self.lines[i] {
            let _ = writeln!(lines, "{{\"id\":\"stroke-{n}\",{line}}}");
        }
        let label = self.labels[i];
        let _ = writeln!(labels, "{{\"id\":\"stroke-{n}\",\"label\":{label}}}");
    }
}

/// A server in this process.
struct Server {
    address: SocketAddr,
    name: String,
    runtime: tokio::runtime::Runtime,
    serving: tokio::task::JoinHandle<Result<(), haltwise_serve::Error>>,
    stop: tokio::sync::oneshot::Sender<()>,
}

impl Server {
    fn start(path: &Path, store: &Path) -> anyhow::Result<Self> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let name = name.into_owned();
        let served = Served::new(&name, read_rule(path)?, show::read_text(path)?);
        let watching = Watching {
            store: Some(store.to_path_buf()),
            settings: Settings {
                audit: 0.2,
                ..Settings::default()
            },
            ..Watching::new(vec![served])
        };
        let options = Options {
            watching,
            listen: ([127, 0, 0, 1], 0).into(),
            max_line: 1 << 20,
            connections: ConnectionLimits::default(),
            tls: None,
            wait_for_store: haltwise_serve::WAIT_FOR_STORE,
            allow_hosts: Vec::new(),
            mqtt: None,
        };
        let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
        let (started, address) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let serving = runtime.spawn(haltwise_serve::serve(
            options,
            move |address| {
                let _ = started.send(address);
            },
            async { drop(stopped.await) },
        ));
        let Ok(address) = address.recv() else {
            runtime.block_on(serving)??;
            bail!("the server did not start");
        };
        Ok(Self {
            address,
            name,
            runtime,
            serving,
            stop,
        })
    }

    /// Asks the server something, and returns the body of its answer.
    fn ask(&self, method: &str, what: &str, body: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(self.address)?;
        write!(
            stream,
            "{method} /{}/{what} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}",
            self.name,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
            _ => bail!("the server answered: {answer}"),
        }
    }

    fn stop(self) -> anyhow::Result<()> {
        // It may have ended by itself, and then says why.
        let _ = self.stop.send(());
        self.runtime.block_on(self.serving)??;
        Ok(())
    }
}

/// Opens a page in the browser, if there is one.
fn open(address: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    // Its address was printed too.
    let _ = Command::new(program)
        .arg(address)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
}
