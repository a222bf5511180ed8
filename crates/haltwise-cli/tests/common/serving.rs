//! `haltwise serve`, started for a test, and asked by plain HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::{haltwise, json_lines, ran, signal, write_traces};

/// A server that ends with the test.
pub struct Server {
    pub child: Child,
    pub address: String,
    pub token: Option<&'static str>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub fn lines(&self) -> Vec<Value> {
        json_lines(&self.body)
    }
}

impl Server {
    pub fn start(folder: &Path, words: &str) -> Self {
        Self::start_with(folder, words, None)
    }

    pub fn start_with(folder: &Path, words: &str, token: Option<&'static str>) -> Self {
        Self::start_after("", folder, words, token)
    }

    /// Starts it after some words of the shell, such as limits.
    pub fn start_after(
        shell: &str,
        folder: &Path,
        words: &str,
        token: Option<&'static str>,
    ) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell} exec \"$0\" \"$@\"")]);
        command.arg(assert_cmd::cargo::cargo_bin("haltwise"));
        command.current_dir(folder).env("NO_COLOR", "1");
        command.env_remove("HALTWISE_TOKEN");
        if let Some(token) = token {
            command.env("HALTWISE_TOKEN", token);
        }
        command.arg("serve");
        if !words.contains("--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let mut child = command
            .args(words.split_whitespace())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let (mut text, mut line) = (String::new(), String::new());
        let address = loop {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "{text}");
            text += &line;
            let url = line.strip_prefix("How it goes: ");
            if let Some((_, rest)) = url.and_then(|url| url.split_once("://")) {
                break rest.trim().trim_end_matches('/').to_owned();
            }
        };
        // Later output must not block the server.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self {
            child,
            address,
            token,
        }
    }

    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    pub fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let token = self.token.map(|t| format!("Authorization: Bearer {t}\r\n"));
        self.ask_with(method, path, &token.unwrap_or_default(), body)
            .expect("an answer")
    }

    pub fn ask_with(&self, method: &str, path: &str, headers: &str, body: &str) -> Option<Answer> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let length = body.len();
        let host = match headers.starts_with("Host:") {
            true => String::new(),
            false => format!("Host: {}\r\n", self.address),
        };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\n{host}{headers}Connection: close\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let chunked = head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked");
        let body = if chunked {
            unchunked(body)?
        } else {
            body.to_owned()
        };
        Some(Answer { status, body })
    }

    pub fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    pub fn post(&self, path: &str, body: &str) -> Answer {
        self.ask("POST", path, body)
    }

    pub fn status(&self) -> Value {
        self.get("/rule/status").json()
    }

    /// How much memory it has now, in KiB.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("Linux tells of a process's memory");
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        kib.expect("a number")
    }

    /// Changes a limit of the server while it runs.
    pub fn limit(&self, what: &str) {
        let id = self.child.id().to_string();
        let set = Command::new("prlimit").args([what, "--pid", &id]).status();
        assert!(set.unwrap().success());
    }

    /// Leaves no room for any file, also not for a new log that is shorter, so that the server
    /// does not heal until there is room again.
    pub fn fill_disk(&self) {
        self.limit("--fsize=0:");
        until("the store cannot be written", || {
            // It notices when it next writes.
            self.post("/rule/streams", &stream("full", 0, 1));
            self.get("/ready").status == 503
        });
    }

    /// Asks the server to end, and waits until it has.
    pub fn stop(mut self) {
        signal(&self.child, "-TERM");
        let code = self.child.wait().unwrap().code();
        assert_eq!(code, Some(0));
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn unchunked(mut body: &str) -> Option<String> {
    let mut text = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(text);
        }
        text += rest.get(..size)?;
        body = rest.get(size + 2..)?;
    }
}

/// A folder with a rule that halts from step 2 on.
pub fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_traces(&folder.path().join("traces.npz"), 4000, 1);
    done(
        folder.path(),
        "calibrate traces.npz --method conditional -o rule.json",
    );
    folder
}

pub fn done(folder: &Path, words: &str) -> String {
    let ran = ran(haltwise()
        .current_dir(folder)
        .args(words.split_whitespace()));
    assert_eq!(ran.code, 0, "{words}: {}", ran.stderr);
    ran.stdout
}

/// A stream of five steps that halts at step 2, with these predictions there and
/// at the end.
pub fn stream(id: &str, early: u32, full: u32) -> String {
    let mut lines = String::new();
    for (t, class) in [(1, early), (2, early), (3, early), (4, full), (5, full)] {
        let score = if t == 1 { 0.1 } else { 1.0 };
        lines +=
            &format!("{{\"id\":\"{id}\",\"t\":{t},\"score\":{score},\"prediction\":{class}}}\n");
    }
    lines
}

/// Streams and labels from several clients until the server is gone: how many
/// streams were audited, and the ids that were labelled, as far as it said so.
pub fn load(address: &str, client: &str) -> (u64, Vec<String>) {
    load_while(address, client, || true)
}

/// The same for as long as it is to go on: another server may take the place of one that is gone.
pub fn load_while(address: &str, client: &str, goes_on: impl Fn() -> bool) -> (u64, Vec<String>) {
    // A handle on the address alone: the server is killed meanwhile.
    let server = std::mem::ManuallyDrop::new(Server {
        child: Command::new("true").spawn().unwrap(),
        address: address.to_owned(),
        token: None,
    });
    let mut labelled = Vec::new();
    for audited in 0.. {
        if !goes_on() {
            return (audited, labelled);
        }
        let id = format!("{client}-{audited}");
        let lines = stream(&id, 0, 1);
        let sent = server.ask_with("POST", "/rule/streams", "", &lines);
        if !sent.is_some_and(|a| a.body.contains("\"audited\":true")) {
            return (audited, labelled);
        }
        let label = format!("{{\"id\":\"{id}\",\"label\":1}}");
        match server.ask_with("POST", "/rule/labels", "", &label) {
            Some(answer) if answer.status == 200 => labelled.push(id),
            _ => return (audited + 1, labelled),
        }
    }
    unreachable!("the server is killed before")
}

/// How long anything that is waited for may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
