//! `haltwise serve` under load from this process: observations per second through
//! a few connections and WebSockets, requests with one observation each, the memory of a
//! million open streams, the time from the line that halts a stream to its answer on the disk,
//! and the time to start again over a long log.

#![allow(clippy::expect_used, clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::write_rule;

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, words: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_haltwise"))
            .current_dir(folder)
            .args("serve rule.json --store store --listen 127.0.0.1:0".split(' '))
            .args(words.split_whitespace())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary");
        let mut said = BufReader::new(child.stderr.take().expect("piped")).lines();
        let address = loop {
            let line = said.next().expect("it starts").expect("text");
            if let Some(rest) = line.strip_prefix("How it goes: http://") {
                break rest.trim_end_matches('/').to_owned();
            }
        };
        Self { child, address }
    }

    /// A request whose body goes on.
    fn open(&self) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("open");
        stream.set_nodelay(true).expect("a socket");
        let head = "POST /rule/streams HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("open");
        stream
    }

    /// A number of its status.
    fn total(&self, name: &str) -> u64 {
        let mut stream = TcpStream::connect(&self.address).expect("open");
        let ask = "GET /rule/status HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(ask.as_bytes()).expect("open");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("text");
        let body = text.split_once("\r\n\r\n").expect("a body").1;
        let status: serde_json::Value = serde_json::from_str(body).expect("json");
        status["totals"][name].as_u64().expect("a number")
    }

    /// Its memory in MiB, where the system tells.
    fn memory(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let text = status.unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmRSS"));
        let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        kib.unwrap_or(f64::NAN) / 1024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A piece of a body.
fn piece(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

/// Reads answers and lets them go.
fn drain(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
}

/// Streams of ten steps, of which the last halts; the ids are used again and again.
fn throughput(folder: &Path, audit: f64) -> f64 {
    let server = Server::start(folder, &format!("--audit {audit}"));
    let (connections, rounds) = (4, 50);
    let mut pieces = Vec::new();
    for c in 0..connections {
        let mut text = String::new();
        for s in 0..2000 {
            for t in 1..=10 {
                let (score, end) = if t == 10 {
                    (0.95, ",\"end\":true")
                } else {
                    (0.1, "")
                };
                text += &format!(
                    "{{\"id\":\"stream-{c}-{s}\",\"score\":{score},\"prediction\":1{end}}}\n"
                );
            }
        }
        pieces.push(piece(&text));
    }
    let sent = (connections * rounds * 20_000) as u64;
    let start = Instant::now();
    std::thread::scope(|scope| {
        for piece in &pieces {
            let mut stream = server.open();
            let back = stream.try_clone().expect("a socket");
            scope.spawn(move || drain(back));
            scope.spawn(move || {
                for _ in 0..rounds {
                    stream.write_all(piece).expect("open");
                }
                stream.write_all(b"0\r\n\r\n").expect("open");
                // The server ends the answer, and so the draining.
                let _ = stream.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    while server.total("observations") < sent {
        std::thread::sleep(Duration::from_millis(1));
    }
    sent as f64 / start.elapsed().as_secs_f64()
}

/// How many connections ask for one observation at a time, and for how long.
const OBSERVERS: usize = 64;
const OBSERVING: Duration = Duration::from_secs(5);

/// Requests a second with one observation each, which halts its stream: the answer is on the disk.
fn observe(folder: &Path, audit: f64) -> f64 {
    let server = Server::start(folder, &format!("--audit {audit}"));
    let start = Instant::now();
    let answered: usize = std::thread::scope(|scope| {
        let observers: Vec<_> = (0..OBSERVERS)
            .map(|c| {
                let address = &server.address;
                scope.spawn(move || observed(address, c, start))
            })
            .collect();
        let answered = observers.into_iter().map(|o| o.join().expect("it goes on"));
        answered.sum()
    });
    answered as f64 / start.elapsed().as_secs_f64()
}

/// One connection of [`observe`]: how many answers it had.
fn observed(address: &str, connection: usize, start: Instant) -> usize {
    let mut stream = TcpStream::connect(address).expect("open");
    stream.set_nodelay(true).expect("a socket");
    let mut answers = BufReader::new(stream.try_clone().expect("a socket"));
    let mut number = 0;
    while start.elapsed() < OBSERVING {
        let line = format!(
            "{{\"id\":\"{connection}-{number}\",\"score\":0.95,\"prediction\":1,\"end\":true}}"
        );
        let length = line.len();
        let head = format!("POST /rule/observe HTTP/1.1\r\nHost: x\r\nContent-Length: {length}");
        write!(stream, "{head}\r\n\r\n{line}").expect("open");
        let (mut head, mut length) = (String::new(), 0);
        while head != "\r\n" {
            head.clear();
            answers.read_line(&mut head).expect("open");
            let value = head.strip_prefix("content-length: ");
            length = value.map_or(length, |value| value.trim().parse().expect("a number"));
        }
        let mut body = vec![0; length];
        answers.read_exact(&mut body).expect("open");
        assert!(
            body.starts_with(b"{\"answers\""),
            "{}",
            String::from_utf8_lossy(&body)
        );
        number += 1;
    }
    number
}

/// Observations a second through four WebSockets, in messages of a thousand streams of ten steps.
fn websocket(folder: &Path) -> f64 {
    let server = Server::start(folder, "--audit 0");
    let (connections, rounds) = (4, 100);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for c in 0..connections {
            let address = &server.address;
            scope.spawn(move || {
                let url = format!("ws://{address}/rule/ws");
                let (mut socket, _) = tungstenite::connect(url).expect("open");
                for round in 0..rounds {
                    let mut text = String::new();
                    for s in 0..1000 {
                        for t in 1..=10 {
                            let (score, end) = match t {
                                10 => (0.95, ",\"end\":true"),
                                _ => (0.1, ""),
                            };
                            text += &format!(
                                "{{\"id\":\"{c}-{round}-{s}\",\"score\":{score},\"prediction\":1{end}}}\n"
                            );
                        }
                    }
                    socket.send(text.into()).expect("open");
                    let mut answered = 0;
                    while answered < 1000 {
                        let said = socket.read().expect("open").into_text().expect("text");
                        answered += said.lines().count();
                    }
                }
            });
        }
    });
    (connections * rounds * 10_000) as f64 / start.elapsed().as_secs_f64()
}

/// The memory that a million open streams take.
fn million(folder: &Path) -> f64 {
    let server = Server::start(folder, "--audit 0.05 --max-streams 2000000");
    let mut stream = server.open();
    for block in 0..1000 {
        let text: String = (0..1000)
            .map(|i| {
                format!(
                    "{{\"id\":\"stream-{}\",\"score\":0.1,\"prediction\":1}}\n",
                    block * 1000 + i
                )
            })
            .collect();
        stream.write_all(&piece(&text)).expect("open");
    }
    while server.total("observations") < 1_000_000 {
        std::thread::sleep(Duration::from_millis(10));
    }
    server.memory()
}

/// From the line that halts a stream to its answer, in milliseconds: the median and
/// the 99th of a hundred, while another connection sends `rate` observations a
/// second.
fn latency(folder: &Path, rate: usize, seconds: u64) -> (f64, f64) {
    let server = Server::start(folder, "--audit 0.05");
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut times: Vec<f64> = Vec::new();
    std::thread::scope(|scope| {
        let mut load = server.open();
        let back = load.try_clone().expect("a socket");
        scope.spawn(move || drain(back));
        scope.spawn(move || {
            // A hundredth of a second at a time.
            let mut next = Instant::now();
            let mut number = 0;
            while Instant::now() < until {
                let mut text = String::new();
                for _ in 0..rate / 1000 {
                    for t in 1..=10 {
                        let (score, end) = if t == 10 {
                            (0.95, ",\"end\":true")
                        } else {
                            (0.1, "")
                        };
                        text += &format!(
                            "{{\"id\":\"load-{number}\",\"score\":{score},\"prediction\":1{end}}}\n"
                        );
                    }
                    number += 1;
                }
                load.write_all(&piece(&text)).expect("open");
                next += Duration::from_millis(10);
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            let _ = load.shutdown(std::net::Shutdown::Both);
        });
        let mut probe = server.open();
        let mut answers = BufReader::new(probe.try_clone().expect("a socket"));
        let mut number = 0;
        while Instant::now() < until {
            let text = format!("{{\"id\":\"probe-{number}\",\"score\":0.95,\"end\":true}}\n");
            let start = Instant::now();
            probe.write_all(&piece(&text)).expect("open");
            let mut line = String::new();
            while !line.starts_with("{\"id\":\"probe") {
                line.clear();
                answers.read_line(&mut line).expect("open");
            }
            times.push(1000.0 * start.elapsed().as_secs_f64());
            number += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = probe.shutdown(std::net::Shutdown::Both);
    });
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[times.len() * 99 / 100])
}

/// Sends streams until ten million records were written, then kills the server and
/// starts it again: the seconds that takes.
fn restart(folder: &Path) -> f64 {
    let server = Server::start(folder, "--audit 0.05");
    let mut stream = server.open();
    let back = stream.try_clone().expect("a socket");
    std::thread::scope(|scope| {
        scope.spawn(move || drain(back));
        for block in 0..10_000 {
            let text: String = (0..1000)
                .map(|i| {
                    format!(
                        "{{\"id\":{},\"score\":0.95,\"prediction\":1,\"end\":true}}\n",
                        block * 1000 + i
                    )
                })
                .collect();
            stream.write_all(&piece(&text)).expect("open");
        }
        while server.total("streams") < 10_000_000 {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = stream.shutdown(std::net::Shutdown::Both);
    });
    drop(server);
    let start = Instant::now();
    drop(Server::start(folder, "--audit 0.05"));
    start.elapsed().as_secs_f64()
}

fn main() {
    let fresh = || {
        let folder = tempfile::tempdir().expect("a folder");
        write_rule(&folder.path().join("rule.json"));
        folder
    };
    for audit in [0.0, 0.05] {
        let rate = (0..3)
            .map(|_| throughput(fresh().path(), audit))
            .fold(0.0, f64::max);
        let million = rate / 1e6;
        println!("serve, {audit} audited: {million:.2} million observations a second");
    }
    for audit in [0.0, 0.05] {
        let rate = observe(fresh().path(), audit);
        println!(
            "serve, {OBSERVERS} connections to /observe, {audit} audited: {rate:.0} requests a second"
        );
    }
    let million_a_second = websocket(fresh().path()) / 1e6;
    println!("serve, 4 WebSockets: {million_a_second:.2} million observations a second");
    let memory = million(fresh().path());
    println!("serve, a million open streams: {memory:.0} MiB");
    let (median, p99) = latency(fresh().path(), 100_000, 10);
    println!(
        "serve, 100,000 observations a second: an answer takes {median:.2} ms, 99% at most {p99:.2} ms"
    );
    let seconds = restart(fresh().path());
    println!("serve, started again over ten million records: {seconds:.2} s");
}
