//! What the proxy adds to a request of one vote and to the first token of a thought, and how it fares
//! with 200 at once.
//!
//! The model's server, the proxy and the client are in one process and share its cores.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::Request;
use axum::routing::post;
use axum::serve::ListenerExt;
use haltwise::{Inputs, Method, Outputs, Plan, Rule, Sequence};
use haltwise_proxy::{Options, Proxy};
use haltwise_serve::{RuleToServe, ServedRules, WatchOptions};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const REPLY: &str = r#"{"id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant",
    "content": "First, there are seventeen of them, and then again as many. So \\boxed{34}."}}],
    "usage": {"prompt_tokens": 60, "completion_tokens": 30, "total_tokens": 90}}"#;

/// A thought that is over with its first word.
const THOUGHT: &str = r#"data: {"choices": [{"text": "Seventeen", "finish_reason": "stop"}]}

data: [DONE]

"#;

/// How thoughts are probed.
static THINKER: LazyLock<Value> = LazyLock::new(|| {
    json!({"model": "m", "endpoint": "chat", "answer": "boxed", "messages": "user",
            "most_messages": "1", "server": "llama.cpp b1", "every": "256",
            "think_open": "<think>", "think_close": "</think>", "begin": "\\boxed{",
            "probe_tokens": "12"})
});

/// How votes are cast.
static CLASSIFIER: LazyLock<Value> = LazyLock::new(|| {
    json!({"model": "m", "endpoint": "chat", "samples": "3", "answer": "boxed",
            "messages": "user", "most_messages": "1"})
});

/// A rule of three votes that halts at the first, or never before the last.
fn rule(first: Option<f32>) -> Rule {
    let rule = json!({
        "method": "screen-only", "promise": null, "alpha": 0.1, "delta": 0.01,
        "score": "confidence", "t_max": 3, "thresholds": [first, null, null],
        "expected": null, "screened_on": null, "certified_on": null, "split": null, "trail": [],
        "classifier": *CLASSIFIER,
    });
    serde_json::from_value(rule).unwrap()
}

/// A certified rule that halts at the first vote.
fn certified() -> Rule {
    let mut outputs = Outputs::new();
    for id in 0..2000_u32 {
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(1),
            predictions: Some(&[1, 1, 1]),
            scores: Some(&[0.5, 0.9, 1.0]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let ask = haltwise::Ask {
        method: Some(Method::Marginal),
        ..haltwise::Ask::default()
    };
    let made = Plan::new(ask).unwrap().calibrate(Inputs::one(&outputs));
    let mut json = serde_json::to_value(made.unwrap().rule).unwrap();
    json["classifier"] = CLASSIFIER.clone();
    serde_json::from_value(json).unwrap()
}

/// A server that answers after a while, and the most requests it had at a time.
async fn model(delay: Duration) -> (String, Arc<AtomicUsize>) {
    let most = Arc::new(AtomicUsize::new(0));
    let (now, seen) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&most));
    let answer = move |_: Bytes| {
        let (now, seen) = (Arc::clone(&now), Arc::clone(&seen));
        async move {
            seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            REPLY
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let routes = Router::new()
        .route("/v1/chat/completions", post(answer))
        .route(
            "/apply-template",
            post(async || r#"{"prompt": "user: How many?"}"#),
        )
        .route("/v1/completions", post(async || THOUGHT));
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (url, most)
}

async fn proxy(server: &str, rule: Rule) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let options = Options {
        concurrency: 1000,
        votes_without_promise: true,
        ..Options::new(server)
    };
    let json = haltwise_io::rule_json(&rule).unwrap();
    let watching = WatchOptions::new(vec![RuleToServe::new("rule", rule, json)]);
    let (rules, _) = ServedRules::start(watching, Duration::ZERO).await.unwrap();
    let proxy = Arc::new(Proxy::new(rules, &options).unwrap());
    tokio::spawn(proxy.serve(listener, std::future::pending()));
    url
}

/// The same where requests are audited and watched.
async fn watched(server: &str, store: &std::path::Path) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let rule = certified();
    let json = haltwise_io::rule_json(&rule).unwrap();
    let watching = WatchOptions {
        store: Some(store.to_path_buf()),
        settings: haltwise_serve::Settings::default(),
        ..WatchOptions::new(vec![RuleToServe::new("rule", rule, json)])
    };
    let (rules, _) = ServedRules::start(watching, Duration::ZERO).await.unwrap();
    let proxy = Arc::new(Proxy::new(rules, &Options::new(server)).unwrap());
    tokio::spawn(proxy.serve(listener, std::future::pending()));
    url
}

type Http = Client<HttpConnector, Body>;

async fn ask(client: &Http, url: &str) -> usize {
    let body = r#"{"model": "m", "messages": [{"role": "user", "content": "How many?"}]}"#;
    let request = Request::post(format!("{url}/v1/chat/completions")).body(Body::from(body));
    let response = client.request(request.unwrap()).await.unwrap();
    assert!(response.status().is_success());
    let body = response.into_body().collect().await.unwrap();
    body.to_bytes().len()
}

/// What this many requests took at each address, in milliseconds, rising. They take
/// turns, so that whatever else the machine does slows all alike.
async fn in_turns(client: &Http, urls: &[&str], n: usize) -> Vec<Vec<f64>> {
    let mut times = vec![Vec::with_capacity(n); urls.len()];
    for round in 0..n + 100 {
        for (url, times) in urls.iter().zip(&mut times) {
            let begin = Instant::now();
            ask(client, url).await;
            // The first are for warming up.
            if round >= 100 {
                times.push(1e3 * begin.elapsed().as_secs_f64());
            }
        }
    }
    for times in &mut times {
        times.sort_unstable_by(f64::total_cmp);
    }
    times
}

/// The time until the first token of a thought, in milliseconds.
async fn first_token(client: &Http, url: &str, path: &str) -> f64 {
    let body = r#"{"model": "m", "stream": true, "messages": [{"role": "user", "content": "?"}]}"#;
    let begin = Instant::now();
    let request = Request::post(format!("{url}{path}")).body(Body::from(body));
    let response = client.request(request.unwrap()).await.unwrap();
    let mut body = response.into_body();
    let mut seen = String::new();
    while !seen.contains("Seventeen") && !seen.contains("prompt") {
        let frame = body.frame().await.unwrap().unwrap();
        seen += std::str::from_utf8(frame.data_ref().unwrap()).unwrap();
    }
    1e3 * begin.elapsed().as_secs_f64()
}

/// The first token of a thought: what the server itself takes for it, the chat written out among that,
/// and what it takes through the proxy. They take turns.
async fn first_tokens(client: &Http, direct: &str, through: &str, n: usize) {
    let (mut alone, mut proxied) = (Vec::new(), Vec::new());
    for round in 0..n + 100 {
        let written = first_token(client, direct, "/apply-template").await;
        let first = first_token(client, direct, "/v1/completions").await;
        let through = first_token(client, through, "/v1/chat/completions").await;
        if round >= 100 {
            alone.push(written + first);
            proxied.push(through);
        }
    }
    for (name, mut times) in [("the server", alone), ("the proxy", proxied)] {
        times.sort_unstable_by(f64::total_cmp);
        println!(
            "the first token of a thought, {name}: median {:.3} ms, 99% within {:.3} ms",
            times[n / 2],
            times[n * 99 / 100]
        );
    }
}

async fn at_once(client: &Http, url: &str, n: usize) -> Duration {
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..n {
        let (client, url) = (client.clone(), url.to_owned());
        tasks.spawn(async move { ask(&client, &url).await });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    begin.elapsed()
}

#[tokio::main]
async fn main() {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client: Http = Client::builder(TokioExecutor::new()).build(connector);
    let milliseconds = |d: Duration| 1e3 * d.as_secs_f64();

    let (direct, _) = model(Duration::ZERO).await;
    let through = proxy(&direct, rule(Some(0.0))).await;
    let store = tempfile::tempdir().unwrap();
    let watched = watched(&direct, store.path()).await;
    let (n, urls) = (3000, [direct.as_str(), &through, &watched]);
    let times = in_turns(&client, &urls, n).await;
    let names = [
        "the server",
        "the proxy, one vote",
        "with a store, audits 5%",
    ];
    for (name, times_of) in names.into_iter().zip(&times) {
        let (median, p99) = (times_of[n / 2], times_of[n * 99 / 100]);
        let (ratio, more) = (median / times[0][n / 2], median - times[0][n / 2]);
        let late = p99 - times[0][n * 99 / 100];
        println!(
            "{name}: median {median:.3} ms ({ratio:.1} times, {more:+.3} ms), 99% within \
             {p99:.3} ms ({late:+.3} ms)"
        );
    }

    let mut thinking = serde_json::to_value(rule(Some(0.0))).unwrap();
    thinking["classifier"] = THINKER.clone();
    let thinking = proxy(&direct, serde_json::from_value(thinking).unwrap()).await;
    first_tokens(&client, &direct, &thinking, n).await;

    let (slow, most) = model(Duration::from_millis(200)).await;
    for (votes, rule) in [("one vote", rule(Some(0.0))), ("three votes", rule(None))] {
        let through = proxy(&slow, rule).await;
        at_once(&client, &through, 200).await;
        most.store(0, Ordering::SeqCst);
        let took = milliseconds(at_once(&client, &through, 200).await);
        let most = most.load(Ordering::SeqCst);
        println!(
            "200 requests at once, {votes} of 200 ms each: {took:.0} ms, {most} votes at a time"
        );
    }
}
