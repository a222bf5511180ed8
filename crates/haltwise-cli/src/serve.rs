//! `haltwise serve`: halt live streams, audit some, watch the promise.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use haltwise::monitor::Watch;
use haltwise::plan::Delta;
use haltwise_io::read_rule_text;
use haltwise_report::words;
use haltwise_serve::{
    Mqtt, OnAlarm, Options, Retention, Role, RuleToServe, ServerLog, Settings, Tokens, WatchOptions,
};
use rand::RngExt as _;
use tokio::sync::mpsc;

use crate::doors::{DoorArgs, secret, stopped};
use crate::reload::{RuleFile, on_hangup};
use crate::show;

/// How many files a rule may need at the same time: its lock, its log and the next one, and a
/// file of traces.
const FILES_PER_RULE: usize = 4;

/// Serve rules to live streams, audit a share of them, and watch the promise
///
/// Each rule is served at the name of its file: rule.json at /rule. Lines are those of
/// `haltwise decide`:
///
///   curl -X POST -T - http://127.0.0.1:7070/rule/streams < scores.jsonl
///
/// The server audits a share of the streams: the answer at their halt carries
/// "audit": true, and the client goes on sending until the end. When the audits show that
/// the promise no longer holds, the server raises an alarm. It then reads all streams to
/// their end until there is another rule.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  haltwise serve rule.json --store audits
  haltwise serve a.json b.json --store audits --audit 0.1 --listen 0.0.0.0:7070
  haltwise calibrate audits/rule -o new.json   # labelled audits, since the alarm if there was one
  curl -T new.json http://127.0.0.1:7070/rule/rule   # swap it in; no stream is dropped

http://127.0.0.1:7070/ shows the status, /metrics is for Prometheus, and /openapi.json lists
all paths. To be reached from other machines, the server needs a token in the environment
variable HALTWISE_TOKEN (see --token-env). Clients send it as Authorization: Bearer TOKEN.
This token allows everything. A token in HALTWISE_TOKEN_OBSERVE allows only observations, one
in HALTWISE_TOKEN_LABEL only labels, and one in HALTWISE_TOKEN_READ only reading status.

With --mqtt mqtt://broker:1883, the server takes lines from the topic haltwise/RULE/in and
labels from haltwise/RULE/labels, and sends answers to haltwise/RULE/out. A broker may deliver
a message twice, so its lines must have \"t\". With TLS, use mqtts://broker:8883. If
HALTWISE_MQTT_USER and HALTWISE_MQTT_PASSWORD are set, the server logs in with them.

SIGHUP reads the rule files again, and swaps in those that have changed.

The server stores every answer before sending it. After a kill, open streams must begin again
with \"t\": 1. After Ctrl-C or SIGTERM they go on.")]
pub(crate) struct Args {
    /// Rule files
    #[arg(required = true, value_name = "RULE")]
    rules: Vec<PathBuf>,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    listen: SocketAddr,

    /// The folder for audits, labels and decisions, with one folder per rule in it
    #[arg(long, value_name = "FOLDER")]
    store: PathBuf,

    #[command(flatten)]
    doors: DoorArgs,

    #[command(flatten)]
    watch: WatchArgs,

    /// Take lines from an MQTT broker, and give it the answers
    #[arg(long, value_name = "ADDRESS")]
    mqtt: Option<Mqtt>,

    /// Certificates (PEM) of the authorities to trust with mqtts://, in place of the usual ones
    #[arg(long, value_name = "FILE", requires = "mqtt")]
    mqtt_ca: Option<PathBuf>,

    /// The largest number of open streams per rule
    #[arg(
        long,
        value_name = "N",
        default_value = "1000000",
        help_heading = "Limits"
    )]
    max_streams: NonZeroUsize,

    /// The largest number of bytes in a line
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "1048576",
        help_heading = "Limits"
    )]
    max_line: NonZeroUsize,

    /// Seconds after which a silent stream is closed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "3600",
        help_heading = "Limits"
    )]
    idle: NonZeroU32,
}

/// How streams are audited and watched.
#[derive(clap::Args)]
pub(crate) struct WatchArgs {
    /// Audit this share of the streams (of the requests, with `proxy`)
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.05,
        value_parser = share,
        requires = "store"
    )]
    audit: f64,

    /// The probability that a false alarm is ever raised, over all rules in turn
    #[arg(
        long,
        value_name = "PROBABILITY",
        default_value_t = 0.01,
        requires = "store"
    )]
    delta: f64,

    /// The number of servers that share the rule's streams, each with its own store. Each server
    /// tests at delta/(N + 1), and so does the sum of all stores. A store that exists takes a
    /// smaller share from then on, and never a larger one before its next rule
    #[arg(long, value_name = "N", default_value = "1", requires = "store")]
    servers: std::num::NonZeroU32,

    /// What to do when an alarm is raised
    #[arg(
        long,
        value_enum,
        value_name = "WHAT",
        default_value = "read-on",
        requires = "store"
    )]
    on_alarm: OnAlarmArg,

    /// Seconds between trace files of audits
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "600",
        help_heading = "Limits",
        requires = "store"
    )]
    rotate: NonZeroU32,

    /// Days after which audits are removed from the store [default: never]
    #[arg(long, value_name = "DAYS", help_heading = "Limits", requires = "store")]
    keep_days: Option<NonZeroU32>,

    /// Bytes of trace files to keep per rule; the oldest are removed [default: all]
    #[arg(
        long,
        value_name = "BYTES",
        help_heading = "Limits",
        requires = "store"
    )]
    keep_bytes: Option<NonZeroU64>,

    /// Replace a different rule that the store already has. Without this, the server refuses
    #[arg(long, requires = "store")]
    replace: bool,

    /// Seconds to wait until another server releases the store, as in a rolling restart
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = haltwise_serve::WAIT_FOR_STORE.as_secs() as u32,
        help_heading = "Limits",
        requires = "store"
    )]
    wait_for_store: u32,

    /// Variable with the administrator's token. Add _OBSERVE, _LABEL or _READ for limited roles
    #[arg(long, value_name = "VARIABLE", default_value = "HALTWISE_TOKEN")]
    token_env: String,
}

impl WatchArgs {
    /// How long to wait for another server that has the store.
    pub(crate) fn wait_for_store(&self) -> Duration {
        Duration::from_secs(self.wait_for_store.into())
    }

    /// The tokens of the environment.
    fn tokens(&self) -> anyhow::Result<Tokens> {
        let variable = |role: Role| match role {
            Role::Administer => self.token_env.clone(),
            Role::Observe | Role::Label | Role::Read => {
                format!("{}_{}", self.token_env, role.name().to_ascii_uppercase())
            }
        };
        let mut tokens = Vec::new();
        for role in Role::ALL {
            tokens.extend(secret(&variable(role))?.map(|token| (role, token)));
        }
        Ok(Tokens::new(tokens))
    }

    /// The options of auditing and watching. Refuses an address that other machines
    /// can reach if there is no token.
    pub(crate) fn watching(
        &self,
        rules: Vec<RuleToServe>,
        store: Option<&Path>,
        listen: SocketAddr,
        log: ServerLog,
    ) -> anyhow::Result<WatchOptions> {
        let delta = match Delta::try_from(self.delta) {
            Ok(delta) => delta,
            Err(error) => crate::usage_error(&format!("--delta: {error}")),
        };
        let tokens = self.tokens()?;
        if tokens.is_empty() && !listen.ip().is_loopback() {
            bail!(
                "{listen} can be reached from other machines, so clients must show a token: put \
                 one into the environment variable {}, or listen on 127.0.0.1",
                self.token_env
            );
        }
        Ok(WatchOptions {
            rules,
            store: store.map(Path::to_path_buf),
            tokens,
            settings: Settings {
                // Nobody could calibrate on audits that are stored nowhere.
                audit: store.map_or(0.0, |_| self.audit),
                delta,
                servers: self.servers.get(),
                on_alarm: match self.on_alarm {
                    OnAlarmArg::ReadOn => OnAlarm::ReadOn,
                    OnAlarmArg::Keep => OnAlarm::Keep,
                },
                ..Settings::default()
            },
            rotate: Duration::from_secs(self.rotate.get().into()),
            retention: Retention {
                days: self.keep_days.map(NonZeroU32::get),
                bytes: self.keep_bytes.map(NonZeroU64::get),
            },
            replace: self.replace,
            seed: rand::rng().random(),
            log,
            renewals: None,
        })
    }
}

/// A rule, served at the name of its file.
pub(crate) fn served(path: &Path, log: &ServerLog) -> anyhow::Result<RuleToServe> {
    let (rule, text) = read_rule_text(path)?;
    if Watch::of(&rule, Delta::default()).is_none() {
        log.warn(&format!(
            "{}: nothing is watched, and no alarm will come: {}",
            show::file(path),
            words::NOT_WATCHED
        ));
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let name = stem.into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || !name.chars().all(plain) || name.starts_with(['_', '.']) {
        bail!(
            "{}: a rule is served at the name of its file; use letters, digits, '-', '_' and \
             '.', and begin with a letter or a digit",
            show::file(path)
        );
    }
    Ok(RuleToServe::new(&name, rule, text))
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum OnAlarmArg {
    /// Read all streams to their end until there is another rule
    ReadOn,
    /// Go on with the rule, and only warn
    Keep,
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("give a share of all streams, from 0 to 1".into()),
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let doors = args.doors;
    let log = doors.log();
    let mut rules: Vec<RuleToServe> = Vec::new();
    for path in &args.rules {
        let served = served(path, &log)?;
        if rules.iter().any(|other| other.name == served.name) {
            bail!(
                "two rules are named {}; rename one of the files",
                served.name
            );
        }
        rules.push(served);
    }
    let variable = |name: &str| std::env::var(name).ok();
    let mut mqtt = args.mqtt;
    if let Some(mqtt) = &mut mqtt {
        let user = variable("HALTWISE_MQTT_USER");
        mqtt.login = user.zip(variable("HALTWISE_MQTT_PASSWORD"));
        if let Some(path) = &args.mqtt_ca {
            mqtt.trust(path)?;
        }
    }
    let names: Vec<String> = rules.iter().map(|rule| rule.name.clone()).collect();
    let file = |(path, rule): (PathBuf, &RuleToServe)| RuleFile {
        path,
        json: rule.json.clone(),
    };
    let files: Vec<RuleFile> = args.rules.into_iter().zip(&rules).map(file).collect();
    let store = Some(args.store.as_path());
    let mut watching = args
        .watch
        .watching(rules, store, args.listen, log.clone())?;
    watching.settings.limits.open = args.max_streams;
    watching.settings.idle = args.idle.get();
    let (renewals, renewed) = mpsc::channel(1);
    watching.renewals = Some(renewed);
    let options = Options {
        watching,
        listen: args.listen,
        max_line: args.max_line.get(),
        connections: doors.limits(FILES_PER_RULE * names.len(), &log),
        tls: doors.tls()?,
        wait_for_store: args.watch.wait_for_store(),
        allow_hosts: doors.allow_host.clone(),
        mqtt,
    };
    let started = |address: SocketAddr| {
        let url = doors.url(address);
        for name in &names {
            log.info(&format!("Serving {name} at {url}/{name}/streams"));
        }
        log.info(&format!("How it goes: {url}/"));
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(async {
        let stop = stopped(doors.drain(), log.clone()).context("cannot listen for signals")?;
        on_hangup(files, renewals, log.clone()).context("cannot listen for signals")?;
        haltwise_serve::serve(options, started, stop).await?;
        anyhow::Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
