//! `haltwise proxy`: a server before a language model that asks it as often as a
//! rule wants.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use haltwise_io::read_rule;
use haltwise_proxy::{Options, Proxy, Totals};
use tokio::net::TcpListener;

use crate::reader::seconds;
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
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let rule = read_rule(&args.rule)?;
    let file = show::file(&args.rule).to_string();
    if rule.promise().is_none() {
        show::warn(format_args!(
            "{file}: the rule was screened, not certified: nothing is promised"
        ));
    }
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
    let proxy = Proxy::new(rule, &options).with_context(|| file)?;
    let proxy = Arc::new(proxy);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}", args.listen))?;
        show::note(format_args!(
            "Listening on http://{}",
            listener.local_addr()?
        ));
        Ok::<_, anyhow::Error>(Arc::clone(&proxy).serve(listener, told_to_stop()).await?)
    })?;
    show::note(describe(proxy.totals()));
    Ok(ExitCode::SUCCESS)
}

/// Waits for Ctrl-C, or for SIGTERM, which schedulers and containers send.
async fn told_to_stop() {
    let interrupted = tokio::signal::ctrl_c();
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminated) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = interrupted => {}
                _ = terminated.recv() => {}
            }
            return;
        }
    }
    // Where signals cannot be waited for, it serves until it is killed.
    if interrupted.await.is_err() {
        std::future::pending::<()>().await;
    }
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
    if totals.failed > 0 {
        text += &format!("; {} failed", number(totals.failed));
    }
    text
}
