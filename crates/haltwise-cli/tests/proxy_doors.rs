//! How `haltwise proxy` begins and ends, and who can read what it says.
#![cfg(unix)]
#![cfg(feature = "proxy")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

use common::server::{Response, Server};
use common::serving::until;
use common::signal;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a rule of three votes that halts at the first.
fn folder() -> TempDir {
    let rule: haltwise::Rule = serde_json::from_value(json!({
        "method": "screen-only", "promise": null, "alpha": 0.1, "delta": 0.01,
        "score": "confidence", "t_max": 3, "thresholds": [0.0, null, null],
        "expected": null, "screened_on": null, "certified_on": null, "split": null, "trail": [],
        "classifier": {"model": "m", "endpoint": "chat", "samples": "3", "answer": "boxed"},
    }))
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let json = haltwise_io::rule_json(&rule).unwrap();
    std::fs::write(folder.path().join("rule.json"), json).unwrap();
    folder
}

fn model() -> Server {
    Server::start("vllm", |_, _| {
        Response::ok(json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "\\boxed{34}"}}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }))
    })
}

/// A proxy that ends with the test.
struct Proxy {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Proxy {
    fn start(folder: &Path, model: &Server, words: &str) -> Self {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("haltwise"))
            .args(["proxy", "--rule", "rule.json", "--server", &model.url])
            // The rule promises nothing.
            .args(["--unpromised", "vote"])
            .args(words.split_whitespace())
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    /// The next line with these words.
    fn line(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "no {words:?}");
        }
        line
    }

    fn address(&mut self) -> String {
        let line = self.line("Listening on ");
        line.rsplit("//").next().unwrap().trim().to_owned()
    }
}

fn curl(folder: &Path, arguments: &[&str]) -> std::io::Result<std::process::Output> {
    let mut curl = Command::new("curl");
    curl.current_dir(folder).args(["-sS", "--max-time", "60"]);
    curl.args(arguments).output()
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn a_proxy_waits_for_the_one_that_has_its_store_and_its_address() {
    let (folder, model, port) = (folder(), model(), free_port());
    let words = format!("--store store --listen 127.0.0.1:{port}");
    let mut first = Proxy::start(folder.path(), &model, &words);
    assert_eq!(first.address(), format!("127.0.0.1:{port}"));
    let mut second = Proxy::start(folder.path(), &model, &words);
    second.line("waiting until it ends");
    // One that waits ends at once if it is told to.
    let mut third = Proxy::start(folder.path(), &model, &words);
    third.line("waiting until it ends");
    signal(&third.child, "-TERM");
    let mut ended = None;
    until("it goes on waiting", || {
        ended = third.child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success());
    signal(&first.child, "-TERM");
    assert_eq!(second.address(), format!("127.0.0.1:{port}"));
    assert!(first.child.wait().unwrap().success());
    let url = format!("http://127.0.0.1:{port}/ready");
    let said = curl(folder.path(), &[&url]).unwrap();
    assert_eq!(said.stdout, b"ready\n", "{said:?}");
}

#[test]
fn a_proxy_that_cannot_have_its_address_leaves_the_store_to_the_next_one() {
    let (folder, model) = (folder(), model());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let words = format!("--store store --listen {}", taken.local_addr().unwrap());
    let mut refused = Proxy::start(folder.path(), &model, &words);
    refused.line("cannot listen on");
    assert_eq!(refused.child.wait().unwrap().code(), Some(1));
    let words = "--store store --listen 127.0.0.1:0 --wait-for-store 0";
    Proxy::start(folder.path(), &model, words).address();
}

#[test]
fn a_proxy_with_a_certificate_is_asked_over_tls_alone() {
    let (folder, model) = (folder(), model());
    let folder = folder.path();
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
                 -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
                 -keyout key.pem -out cert.pem";
    let mut openssl = Command::new("openssl");
    openssl.current_dir(folder).args(words.split_whitespace());
    let made = openssl.output().is_ok_and(|made| made.status.success());
    if !made || curl(folder, &["--version"]).is_err() {
        let is_needed = std::env::var_os("HALTWISE_REQUIRE_CURL").is_some();
        assert!(!is_needed, "curl or openssl is not installed");
        let _ = writeln!(std::io::stderr(), "SKIPPED TLS: no curl or no openssl");
        return;
    }
    let words = "--listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem";
    let mut proxy = Proxy::start(folder, &model, words);
    let address = proxy.address();
    let question = json!({"model": "m", "messages": [{"role": "user", "content": "How many?"}]});
    let asked = |scheme: &str, more: &[&str]| {
        let url = format!("{scheme}://{address}/v1/chat/completions");
        let (question, json) = (question.to_string(), "Content-Type: application/json");
        let words = ["-H", json, "-d", &question, &url];
        curl(folder, &[more, &words].concat()).unwrap()
    };
    let said = asked("https", &["--cacert", "cert.pem"]);
    let reply: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(reply["haltwise"]["votes"], 1, "{said:?}");
    assert!(!asked("https", &[]).status.success());
    assert!(!asked("http", &[]).status.success());
}
