//! A proxy in this process, its clients and its server.
#![allow(dead_code, unreachable_pub)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_TYPE;
use haltwise::{Inputs, Method, Outputs, Plan, Rule, Sequence};
use haltwise_io::rule_json;
use haltwise_proxy::{Options, Proxy, ProxyError, for_answers};
use haltwise_serve::{RuleToServe, ServedRules, WatchOptions};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

pub const CHAT: &str = "/v1/chat/completions";

/// A rule of three votes that halts at the first.
pub fn rule() -> Rule {
    let rule = json!({
        "method": "screen-only", "promise": null, "alpha": 0.1, "delta": 0.01,
        "score": "confidence", "t_max": 3, "thresholds": [0.0, null, null],
        "expected": null, "screened_on": null, "certified_on": null, "split": null, "trail": [],
        "classifier": {"model": "m", "endpoint": "chat", "samples": "3", "answer": "boxed",
            "messages": "user", "most_messages": "1"},
    });
    serde_json::from_value(rule).unwrap()
}

/// A certified rule of three votes that halts at vote `at`, 1 or 2, where all votes agree.
pub fn certified(at: u32, delta: f64) -> Rule {
    let mut outputs = Outputs::new();
    for id in 0..2000_u32 {
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(1),
            // Sequences that halt earlier lose a right answer.
            predictions: Some(if at == 1 { &[1, 1, 1] } else { &[0, 1, 1] }),
            scores: Some(&[0.95, 0.99, 1.0]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let ask = haltwise::Ask {
        method: Some(Method::Marginal),
        delta: Some(delta),
        ..haltwise::Ask::default()
    };
    let made = Plan::new(ask).unwrap().calibrate(Inputs::one(&outputs));
    let mut json = serde_json::to_value(made.unwrap().rule).unwrap();
    json["classifier"] = serde_json::to_value(rule()).unwrap()["classifier"].take();
    serde_json::from_value(json).unwrap()
}

pub fn completion(tokens: Value) -> String {
    json!({
        "id": "c", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop",
            "message": {"role": "assistant", "content": "\\boxed{34}"}}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": tokens, "total_tokens": tokens},
    })
    .to_string()
}

/// What a server was asked: paths and headers.
pub type Asked = Arc<Mutex<Vec<(String, HeaderMap)>>>;

/// The address of a server with these routes.
pub async fn served(routes: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

/// A model's server that gives this answer to everything.
pub async fn model(reply: String) -> (String, Asked) {
    let asked = Asked::default();
    let log = Arc::clone(&asked);
    let answer = move |request: Request| async move {
        let (head, body) = request.into_parts();
        log.lock()
            .unwrap()
            .push((head.uri.to_string(), head.headers));
        drop(axum::body::to_bytes(body, usize::MAX).await);
        ([(CONTENT_TYPE, "application/json")], reply)
    };
    (served(Router::new().fallback(answer)).await, asked)
}

/// One that gives this answer when it is told to.
pub async fn waiting_model(reply: String, told: Arc<Notify>) -> String {
    let answer = async move || {
        told.notified().await;
        reply
    };
    served(Router::new().fallback(answer)).await
}

/// A proxy in front of a rule that promises nothing, and that nothing is stored of.
pub async fn unstored(options: &Options) -> Result<Proxy, ProxyError> {
    let options = &Options {
        votes_without_promise: true,
        ..options.clone()
    };
    let served = RuleToServe::new("rule", rule(), rule_json(&rule()).unwrap());
    let watching = WatchOptions::new(vec![for_answers(served).unwrap()]);
    let (rules, _) = ServedRules::start(watching, Duration::ZERO).await.unwrap();
    Proxy::new(rules, options)
}

pub async fn proxy(options: &Options) -> String {
    begin(unstored(options).await.unwrap()).await
}

/// Lets a proxy serve, and returns its address.
pub async fn begin(proxy: Proxy) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(Arc::new(proxy).serve(listener, std::future::pending()));
    address
}

pub fn question() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "How many?"}]})
}

/// Sends the start of a request: its head, and this much of its body.
pub async fn send(address: &str, path: &str, more: &str, length: usize, body: &[u8]) -> TcpStream {
    request(address, "POST", path, more, length, body).await
}

/// The same with another method.
pub async fn request(
    address: &str,
    method: &str,
    path: &str,
    more: &str,
    length: usize,
    body: &[u8],
) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A client that is refused early may find the connection closed.
    let _ = stream.write_all(body).await;
    stream
}

/// The status and the text of an answer, up to its end or a short silence.
pub async fn answer(stream: &mut TcpStream) -> (u16, String) {
    let mut text = Vec::new();
    let mut part = [0; 4096];
    let mut patience = Duration::from_secs(10);
    while let Ok(Ok(n)) = timeout(patience, stream.read(&mut part)).await {
        if n == 0 {
            break;
        }
        text.extend_from_slice(&part[..n]);
        patience = Duration::from_millis(300);
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1).and_then(|s| s.parse().ok());
    (status.unwrap_or(0), text)
}

pub async fn ask(address: &str, path: &str, more: &str) -> (u16, String) {
    let body = question().to_string();
    let mut stream = send(address, path, more, body.len(), body.as_bytes()).await;
    answer(&mut stream).await
}
