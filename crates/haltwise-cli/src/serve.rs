//! `haltwise serve`: halt live streams, audit some, watch the promise.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use haltwise::plan::Delta;
use haltwise_io::read_rule;
use haltwise_serve::{Mqtt, OnAlarm, Options, Served, Settings, Watching};
use rand::RngExt as _;

use crate::show;

/// Serve rules to live streams, audit a share of them, and watch the promise
///
/// Each rule is served at the name of its file: rule.json at /rule. Lines are those of
/// `haltwise decide`:
///
///   curl -X POST -T - http://127.0.0.1:7070/rule/streams < scores.jsonl
///
/// A share of the streams is audited: at their halt the answer carries "audit": true, and
/// the client goes on sending until the end. When the audits say that the promise does
/// not hold any more, an alarm is raised, and streams are read to their end until there
/// is another rule.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Examples:
  haltwise serve rule.json --store audits
  haltwise serve a.json b.json --store audits --audit 0.1 --listen 0.0.0.0:7070
  haltwise calibrate audits/rule -o new.json   # labelled audits, since the alarm if there was one
  curl -T new.json http://127.0.0.1:7070/rule/rule   # swap it in; no stream is dropped

http://127.0.0.1:7070/ shows how it goes; /openapi.json says what can be asked for; /metrics
is for Prometheus. To be reached from other machines, a token is needed: put it into the
environment variable HALTWISE_TOKEN (see --token-env); clients send it as
Authorization: Bearer TOKEN.

With --mqtt mqtt://broker:1883, lines are taken from the topic haltwise/RULE/in, labels from
haltwise/RULE/labels, and answers go to haltwise/RULE/out. A message may be delivered twice, so
its lines must have \"t\". With TLS it is mqtts://broker:8883. HALTWISE_MQTT_USER and HALTWISE_MQTT_PASSWORD are used where set.

What was answered is on the disk. After a kill, streams that were open must begin again, with
\"t\": 1; after Ctrl-C or SIGTERM they go on.")]
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
    watch: WatchArgs,

    /// Take lines from an MQTT broker, and give it the answers
    #[arg(long, value_name = "ADDRESS")]
    mqtt: Option<Mqtt>,

    /// Certificates (PEM) of the authorities to trust with mqtts://, in place of the usual ones
    #[arg(long, value_name = "FILE", requires = "mqtt")]
    mqtt_ca: Option<PathBuf>,

    /// Open streams at the most, per rule
    #[arg(
        long,
        value_name = "N",
        default_value = "1000000",
        help_heading = "Limits"
    )]
    max_streams: NonZeroUsize,

    /// Bytes of a line at the most
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "1048576",
        help_heading = "Limits"
    )]
    max_line: NonZeroUsize,

    /// Seconds after which a stream that says nothing is closed
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "3600",
        help_heading = "Limits"
    )]
    idle: std::num::NonZeroU32,
}

/// How what is served is audited and watched.
#[derive(clap::Args)]
pub(crate) struct WatchArgs {
    /// The share of streams (of requests, with `proxy`) that are audited
    #[arg(
        long,
        value_name = "SHARE",
        default_value_t = 0.05,
        value_parser = share,
        requires = "store"
    )]
    audit: f64,

    /// The probability that a false alarm is ever raised, over all rules that follow each other
    #[arg(
        long,
        value_name = "PROBABILITY",
        default_value_t = 0.01,
        requires = "store"
    )]
    delta: f64,

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
    rotate: std::num::NonZeroU32,

    /// The environment variable that holds the token
    #[arg(
        long,
        value_name = "VARIABLE",
        default_value = "HALTWISE_TOKEN",
        requires = "store"
    )]
    token_env: String,
}

impl WatchArgs {
    /// What is to be watched, at an address where whoever can be reached from
    /// elsewhere wants a token.
    pub(crate) fn watching(
        &self,
        rules: Vec<Served>,
        store: &Path,
        listen: SocketAddr,
    ) -> anyhow::Result<Watching> {
        let delta = match Delta::try_from(self.delta) {
            Ok(delta) => delta,
            Err(error) => crate::usage_error(&format!("--delta: {error}")),
        };
        let token = std::env::var(&self.token_env)
            .ok()
            .filter(|t| !t.is_empty());
        if token.is_none() && !listen.ip().is_loopback() {
            bail!(
                "{listen} can be reached from other machines, so clients must show a token: put \
                 one into the environment variable {}, or listen on 127.0.0.1",
                self.token_env
            );
        }
        Ok(Watching {
            rules,
            store: store.to_path_buf(),
            token,
            settings: Settings {
                audit: self.audit,
                delta,
                on_alarm: match self.on_alarm {
                    OnAlarmArg::ReadOn => OnAlarm::ReadOn,
                    OnAlarmArg::Keep => OnAlarm::Keep,
                },
                ..Settings::default()
            },
            rotate: Duration::from_secs(self.rotate.get().into()),
            seed: rand::rng().random(),
            notice: Arc::new(|what: &str| show::note(what)),
        })
    }
}

/// A rule, served at the name of its file.
pub(crate) fn served(path: &Path) -> anyhow::Result<Served> {
    let rule = read_rule(path)?;
    if rule.promise().is_none() {
        show::warn(format_args!(
            "{}: the rule was screened, not certified: it promises nothing, and nothing is \
             watched",
            show::file(path)
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
    Ok(Served {
        name,
        rule,
        json: show::read_text(path)?,
        label: None,
    })
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
    let mut rules: Vec<Served> = Vec::new();
    for path in &args.rules {
        let served = served(path)?;
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
    let mut watching = args.watch.watching(rules, &args.store, args.listen)?;
    watching.settings.limits.open = args.max_streams;
    watching.settings.idle = args.idle.get();
    let options = Options {
        watching,
        listen: args.listen,
        max_line: args.max_line.get(),
        mqtt,
    };
    let started = |address: SocketAddr| {
        for name in &names {
            show::note(format_args!(
                "Serving {name} at http://{address}/{name}/streams"
            ));
        }
        show::note(format_args!("How it goes: http://{address}/"));
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start threads")?;
    runtime.block_on(async {
        let stop = told_to_stop().context("cannot listen for signals")?;
        haltwise_serve::serve(options, started, stop).await?;
        anyhow::Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Listens for Ctrl-C and SIGTERM from now on; done when one of them came.
#[cfg(unix)]
pub(crate) fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Listens for Ctrl-C.
#[cfg(not(unix))]
pub(crate) fn told_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    Ok(async { drop(tokio::signal::ctrl_c().await) })
}
