//! `haltwise proxy`: a server before a language model that asks it as often as a
//! rule wants.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use haltwise_proxy::{Options, Proxy, Totals, label_form};
use haltwise_serve::Boards;
use tokio::net::TcpListener;

use crate::reader::seconds;
use crate::serve::{WatchArgs, served, told_to_stop};
use crate::show::{self, count, number};

/// Stand before a language model's server, and ask it as often as a rule wants
///
/// Clients of OpenAI's API change their base URL and nothing else: each request for a chat
/// completion becomes as many samples as the rule asks for, and the reply is a completion that
/// gave the answer of the majority, with the usage of all, and beside it
///
///   "haltwise": {"votes": 3, "of": 13, "agreement": 1.0, "saved_tokens": 2310, …}
///
/// Requests that streamed get that completion as a stream. Those for another model, with tools or
/// for several choices, and everything else under /v1, are passed through as they are.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(after_help = "\
Example:
  haltwise proxy --rule rule.json --server http://localhost:8000 --listen 127.0.0.1:8088

The rule is made by `calibrate` from traces of `vote`. Votes are sampled as it was calibrated, at
its temperature, whatever a request says. It promises for prompts like those of its traces:
\"promised\" is false where a request has another form (several messages, other fields).

With --store, a share of the requests is audited: answered when the rule halts, and voted on to the
end in the background. Their replies have an \"audit\" in \"haltwise\": the id for its label, where the
rule is about right answers:

  curl -d '{\"id\": \"6b1f…\", \"label\": \"391\"}' http://127.0.0.1:8088/rule/labels

When the audits say that the promise does not hold any more, an alarm is raised, and all votes are
cast until the proxy is started with another rule. http://127.0.0.1:8088/ shows how it goes,
/metrics is for Prometheus, as with `haltwise serve`.

Keys are passed on in the headers they came in; they are neither logged nor stored.")]
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

    /// Seconds that one request may take, all its votes and waits included
    #[arg(long, value_name = "SECONDS", default_value_t = 600.0, value_parser = seconds)]
    timeout: f64,

    /// How often to try again for a vote when the server is busy or gone
    #[arg(long, value_name = "N", default_value_t = 6)]
    retries: u32,

    /// Requests to the server at the same time; more of them wait
    #[arg(long, value_name = "N", default_value = "256")]
    concurrency: NonZeroUsize,

    /// Audit a share of the requests and watch the promise; the folder for that
    #[arg(long, value_name = "FOLDER")]
    store: Option<PathBuf>,

    #[command(flatten)]
    watch: WatchArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut served = served(&args.rule)?;
    if served.name == "v1" {
        bail!("what is at /v1 is passed on; rename the rule's file, which is served at its name");
    }
    let rule = &served.rule;
    let file = show::file(&args.rule).to_string();
    if rule
        .classifier()
        .and_then(|r| r.get("endpoint"))
        .is_some_and(|e| e != "chat")
    {
        show::warn(format_args!(
            "{file}: the rule was calibrated with plain completions, and chat completions come \
             another way: nothing is promised"
        ));
    }
    let options = Options {
        timeout: Duration::from_secs_f64(args.timeout),
        retries: args.retries,
        concurrency: args.concurrency.get(),
        ..Options::new(&args.server)
    };
    let runtime = tokio::runtime::Runtime::new()?;
    let totals = runtime.block_on(async {
        let listener = TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}", args.listen))?;
        let stop = told_to_stop().context("cannot listen for signals")?;
        let mut kept = None;
        let proxy = match &args.store {
            None => Proxy::new(served.rule, &options),
            Some(store) => {
                let form = label_form(&served.rule).with_context(|| file.clone())?;
                served.label = Some(form);
                let watching = args.watch.watching(vec![served], store, args.listen)?;
                let (boards, keeping) = Boards::start(watching)?;
                kept = Some((boards.clone(), keeping));
                Proxy::watched(boards, &options)
            }
        };
        let proxy = Arc::new(proxy.with_context(|| file)?);
        let address = listener.local_addr()?;
        if kept.is_some() {
            show::note(format_args!("How it goes: http://{address}/"));
        }
        show::note(format_args!("Listening on http://{address}"));
        Arc::clone(&proxy).serve(listener, stop).await?;
        if let Some((boards, keeping)) = kept {
            boards.close(&keeping)?;
        }
        Ok::<_, anyhow::Error>(proxy.totals())
    })?;
    show::note(describe(totals));
    Ok(ExitCode::SUCCESS)
}

fn describe(totals: Totals) -> String {
    let mut text = format!(
        "{} voted on by {} of {} votes; {} generated, about {} saved",
        count(totals.requests, "request", "requests"),
        number(totals.votes),
        number(totals.of),
        count(totals.tokens, "token", "tokens"),
        number(totals.saved_tokens),
    );
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
