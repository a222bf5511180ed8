//! `haltwise proxy`: a server before a language model that samples as many votes as
//! a rule needs, or ends the model's thoughts by a rule.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use haltwise_proxy::{Key, Options, Proxy, Totals, for_answers};
use haltwise_serve::ServedRules;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::doors::{DoorArgs, secret, stopped};
use crate::reader::seconds;
use crate::reload::{RuleFile, on_hangup};
use crate::serve::{WatchArgs, served};
use crate::show::{self, count, number};

/// How many files a proxy may need besides its connections: those of its rule's store, and the
/// rule's own.
const OTHER_FILES: usize = 8;

/// How many connections to the server there may be for each of `--concurrency`: to vote, to pass a
/// request through, and idle.
const TO_SERVER: usize = 3;

/// Stand before a language model's server, and sample or think as much as a rule needs
///
/// Clients of OpenAI's API change only their base URL. For each request for a chat completion,
/// the proxy samples as many votes as the rule asks for. The reply is a completion with the
/// majority's answer and the usage of all votes. It also has
///
///   "haltwise": {"votes": 3, "of": 13, "agreement": 1.0, "saved_tokens": 2310, …}
///
/// Requests with "stream" get that completion as a stream.
///
/// With a rule for thoughts, the proxy streams the thought through as it comes, probes it after each
/// step, and ends it when the rule says so. The answer follows, and
///
///   "haltwise": {"thought_tokens": 1024, "probe_tokens": 33, "reason": "threshold", …}
///
/// The proxy passes on unchanged all
/// requests for another model, with tools or for several choices, and everything else under /v1.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Example:
  haltwise proxy --rule rule.json --server http://localhost:8000 --listen 127.0.0.1:8088

`calibrate` makes the rule from traces of `vote` or `think`. The proxy samples at the rule's
temperature, whatever a request says. The promise covers prompts like those of the traces. The proxy
passes a request with other messages, other words around the question or other fields on as it is,
without votes or probes: \"promised\" is false, and \"reason\" says what differs. `vote --requests` and
`think --requests` calibrate for what clients send. A client that sends \"x-haltwise: off\" gets no votes
or probes.

With --store, the proxy audits a share of the requests: it answers when the rule halts, and
votes on in the background. Their replies have an \"audit\" in \"haltwise\". If the rule is about
right answers, send the label with this id:

  curl -d '{\"id\": \"6b1f…\", \"label\": \"391\"}' http://127.0.0.1:8088/rule/labels

When the audits show that the promise no longer holds, the proxy raises an alarm and casts all
votes until there is another rule. A new rule needs no restart:

  curl -T new.json http://127.0.0.1:8088/rule/rule   # or: kill -HUP, to read the file again

http://127.0.0.1:8088/ shows the status, /metrics is for Prometheus, and /openapi.json lists all
paths, as with `haltwise serve`.

To be reached from other machines, the proxy needs a token in HALTWISE_TOKEN (see --token-env)
and, for /v1, keys in the environment variable HALTWISE_PROXY_KEYS (see --keys-env). Clients
send a key as Authorization: Bearer KEY. The model's server gets the key in HALTWISE_SERVER_KEY
instead (see --server-key-env). Without keys of its own, the proxy passes on the keys of its
clients. It neither logs nor stores keys.")]
pub(crate) struct Args {
    /// The rule to stop by
    #[arg(long, value_name = "RULE")]
    rule: PathBuf,

    /// The address of an OpenAI-compatible server
    #[arg(long, value_name = "URL")]
    server: String,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8088")]
    listen: SocketAddr,

    /// Seconds that one request may take, with all its votes and waits
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds)]
    timeout: f64,

    /// How often to try again for a vote when the server is busy or gone
    #[arg(long, value_name = "N", default_value_t = 6)]
    retries: u32,

    /// The largest number of requests to the server at a time; others wait
    #[arg(long, value_name = "N", default_value = "256")]
    concurrency: NonZeroUsize,

    /// Seconds that the body of a request may take to arrive, or pause if it is passed through
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, value_parser = seconds, help_heading = "Limits")]
    body_timeout: f64,

    /// The largest number of bytes in memory for the bodies of all requests
    #[arg(
        long,
        value_name = "BYTES",
        default_value = "268435456",
        help_heading = "Limits"
    )]
    max_bodies: NonZeroUsize,

    /// Variable with the keys of /v1, separated by commas
    #[arg(long, value_name = "VARIABLE", default_value = "HALTWISE_PROXY_KEYS")]
    keys_env: String,

    /// Variable with the key for the model's server, which replaces clients' keys
    #[arg(long, value_name = "VARIABLE", default_value = "HALTWISE_SERVER_KEY")]
    server_key_env: String,

    /// What to do with requests that the rule promises nothing about
    #[arg(long, value_enum, value_name = "WHAT", default_value = "pass")]
    unpromised: Unpromised,

    /// Another name under which the server knows the rule's model; may be repeated
    #[arg(long = "alias", value_name = "NAME")]
    aliases: Vec<String>,

    /// Audit a share of the requests into this folder, and watch the promise
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,

    #[command(flatten)]
    doors: DoorArgs,

    #[command(flatten)]
    watch: WatchArgs,
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Unpromised {
    /// Pass them on as they are, without votes
    Pass,
    /// Vote on them, or end their thoughts, all the same
    Vote,
}

impl Args {
    /// The keys that clients must show one of.
    fn keys(&self) -> anyhow::Result<Vec<Key>> {
        let Some(text) = secret(&self.keys_env)? else {
            return Ok(Vec::new());
        };
        let keys = text.split(',').map(str::trim).filter(|key| !key.is_empty());
        let keys: Vec<Key> = keys.map(Key::new).collect();
        if keys.is_empty() {
            bail!(
                "{} has no key in it; put one into it, or unset it",
                self.keys_env
            );
        }
        Ok(keys)
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let doors = &args.doors;
    let log = doors.log();
    let served = served(&args.rule, &log)?;
    if served.name == "v1" {
        bail!(
            "a rule named v1 would be served at /v1, which the proxy passes on; rename the rule's \
             file"
        );
    }
    let rule = &served.rule;
    let file = show::file(&args.rule).to_string();
    if rule
        .classifier()
        .and_then(|r| r.get("endpoint"))
        .is_some_and(|e| e != "chat")
    {
        log.warn(&format!(
            "{file}: the rule was calibrated with plain completions, and chat completions come \
             another way: nothing is promised"
        ));
    }
    if rule.promise().is_none() && args.unpromised == Unpromised::Pass {
        log.warn(&format!(
            "{file}: the rule promises nothing, so that no request is voted on; calibrate one that \
             does, or give --unpromised vote"
        ));
    }
    let keys = args.keys()?;
    if keys.is_empty() && !args.listen.ip().is_loopback() {
        bail!(
            "{} can be reached from other machines, so clients must show a key: put one or several \
             into the environment variable {}, separated by commas, or listen on 127.0.0.1",
            args.listen,
            args.keys_env
        );
    }
    let server_key = secret(&args.server_key_env)?.map(Key::new);
    if keys.is_empty() && server_key.is_some() {
        bail!(
            "anyone on this machine could use the key in {}: put keys for clients into the \
             environment variable {}",
            args.server_key_env,
            args.keys_env
        );
    }
    let options = Options {
        keys,
        server_key,
        body_timeout: Duration::from_secs_f64(args.body_timeout),
        body_bytes: args.max_bodies.get(),
        timeout: Duration::from_secs_f64(args.timeout),
        retries: args.retries,
        concurrency: args.concurrency.get(),
        votes_without_promise: args.unpromised == Unpromised::Vote,
        aliases: args.aliases.clone(),
        connections: doors.limits(
            args.concurrency
                .get()
                .saturating_mul(TO_SERVER)
                .saturating_add(OTHER_FILES),
            &log,
        ),
        tls: doors.tls()?,
        ..Options::new(&args.server)
    };
    let rule_file = RuleFile {
        path: args.rule.clone(),
        json: served.json.clone(),
    };
    let served = for_answers(served).with_context(|| file.clone())?;
    let store = args.store.as_deref();
    let mut watching = args
        .watch
        .watching(vec![served], store, args.listen, log.clone())?;
    let (renewals, renewed) = mpsc::channel(1);
    watching.renewals = Some(renewed);
    let runtime = tokio::runtime::Runtime::new()?;
    let totals = runtime.block_on(async {
        let stop = stopped(doors.drain(), log.clone()).context("cannot listen for signals")?;
        let mut stop = std::pin::pin!(stop);
        on_hangup(vec![rule_file], renewals, log.clone()).context("cannot listen for signals")?;
        let (rules, keeping) = tokio::select! {
            started = ServedRules::start(watching, args.watch.wait_for_store()) => started?,
            () = &mut stop => return Ok(None),
        };
        let rules = rules.allow_hosts(doors.allow_host.clone());
        // Not before: the proxy that ends has the address for as long as it has the store.
        let ready = async {
            let proxy = Proxy::new(rules.clone(), &options).with_context(|| file)?;
            let listener = TcpListener::bind(args.listen)
                .await
                .with_context(|| format!("cannot listen on {}", args.listen))?;
            let address = listener.local_addr()?;
            anyhow::Ok((Arc::new(proxy), listener, address))
        };
        let (proxy, listener, address) = match ready.await {
            Ok(ready) => ready,
            Err(error) => {
                // Audits under way were read from the store, and are for the next server.
                rules.close(&keeping)?;
                return Err(error);
            }
        };
        let url = doors.url(address);
        log.info(&format!("How it goes: {url}/"));
        log.info(&format!("Listening on {url}"));
        if !Arc::clone(&proxy).serve(listener, stop).await? {
            log.warn(&format!(
                "requests or audits that were still under way after {} s were cut off",
                doors.drain().as_secs_f64()
            ));
        }
        rules.close(&keeping)?;
        anyhow::Ok(Some(proxy.totals()))
    })?;
    if let Some(totals) = totals {
        log.info(&describe(totals));
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(totals: Totals) -> String {
    let requests = count(totals.requests, "request", "requests");
    let tokens = |n| count(n, "token", "tokens");
    let mut text = if totals.thought_tokens > 0 {
        format!(
            "{requests} thought about; {} of thought, {} of probes; {} generated",
            tokens(totals.thought_tokens),
            number(totals.probe_tokens),
            tokens(totals.tokens),
        )
    } else {
        format!(
            "{requests} voted on by {} of {} votes; {} generated, about {} saved",
            number(totals.votes),
            number(totals.of),
            tokens(totals.tokens),
            number(totals.saved_tokens),
        )
    };
    if totals.audits > 0 {
        text += &format!(
            "; {} took {} more",
            count(totals.audits, "audit", "audits"),
            number(totals.audit_tokens)
        );
    }
    if totals.failed > 0 {
        text += &format!("; {} failed", number(totals.failed));
    }
    text
}
