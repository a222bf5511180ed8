//! What `haltwise serve` bears: clients that mean harm, disks without room, operators in a hurry.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use common::serving::{Server, done, folder, load, stream, until};
use common::signal;
use serde_json::{Value, json};

/// A server, and all that it has said so far.
struct Heard {
    server: Server,
    said: Arc<Mutex<String>>,
}

impl Heard {
    /// Starts a server through a program that starts others, such as `sh`.
    fn start(through: &[&str], folder: &Path, words: &str) -> Self {
        let haltwise = assert_cmd::cargo::cargo_bin("haltwise");
        let (first, more) = through.split_first().unwrap();
        let mut child = Command::new(first)
            .args(more)
            .arg(haltwise)
            .args("serve --listen 127.0.0.1:0".split(' '))
            .args(words.split_whitespace())
            .current_dir(folder)
            .env("NO_COLOR", "1")
            .env_remove("HALTWISE_TOKEN")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let mut line = String::new();
        while !line.contains("How it goes: http://") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "{said:?}");
            *said.lock().unwrap() += &line;
        }
        let address = line.split("http://").nth(1).unwrap();
        let address = address.split('/').next().unwrap().to_owned();
        let heard = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &format!("{line}\n");
            }
        });
        Self {
            server: Server {
                child,
                address,
                token: None,
            },
            said,
        }
    }

    fn until_said(&self, times: usize, words: &str) {
        until(words, || {
            self.said.lock().unwrap().matches(words).count() >= times
        });
    }
}

#[test]
fn methods_that_clients_invent_take_no_memory_for_good() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store");
    let ask = |method: &str| server.ask(method, "/rule/status", "").status;
    let families = || server.get("/metrics").body.lines().count();
    assert_eq!(ask("M"), 405);
    families();
    let before = families();
    for i in 0..100 {
        assert_eq!(ask(&format!("M{i}")), 405);
    }
    assert_eq!(families(), before);
    let metrics = server.get("/metrics").body;
    let counted =
        "haltwise_http_request_duration_seconds_count{route=\"other /{name}/status\"} 101";
    assert!(metrics.contains(counted), "{metrics}");
}

/// Sends a byte now and then until the server hangs up, and returns what it said.
fn trickle(mut connection: TcpStream, head: &str) -> String {
    write!(
        connection,
        "{head}\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    let mut back = connection.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while connection.write_all(b"1\r\nx\r\n").is_ok() {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        });
        let mut said = Vec::new();
        // A reset connection has said what it said.
        let _ = back.read_to_end(&mut said);
        let _ = back.shutdown(std::net::Shutdown::Both);
        String::from_utf8(said).unwrap()
    })
}

#[test]
fn a_body_and_a_line_that_come_byte_by_byte_have_a_time_to_be_complete() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --client-timeout 1");
    for (head, status) in [
        ("POST /rule/observe HTTP/1.1", "408"),
        ("POST /rule/labels HTTP/1.1", "408"),
        ("PUT /rule/rule HTTP/1.1", "408"),
        // Its answer has begun, and has a last line.
        ("POST /rule/streams HTTP/1.1", "200"),
    ] {
        let said = trickle(server.connect(), head);
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head}: {said}"
        );
        assert!(
            said.contains("was not complete within 1 s"),
            "{head}: {said}"
        );
    }
}

#[test]
fn bodies_that_are_not_complete_have_a_bound_in_all() {
    const LENGTH: usize = 16 << 20;
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store");
    let begun: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut connection = server.connect();
            let head = format!(
                "PUT /rule/rule HTTP/1.1\r\nHost: localhost\r\nContent-Length: {LENGTH}\r\n\r\n"
            );
            connection.write_all(head.as_bytes()).unwrap();
            // A client that is refused early finds the connection closed.
            let _ = connection.write_all(&vec![b'x'; LENGTH - 1]);
            connection
        })
        .collect();
    let is_refused = |connection: &&TcpStream| {
        let mut start = [0; 12];
        connection.set_nonblocking(true).unwrap();
        connection.peek(&mut start).is_ok_and(|n| n == 12) && &start == b"HTTP/1.1 503"
    };
    // There is room for sixteen, or for fewer of which parts are there.
    until("too few are refused", || {
        begun.iter().filter(is_refused).count() >= 4
    });
    let peak = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: usize = peak
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert!(kib < 340 << 10, "{kib} KiB");
    // The room is free again when they leave.
    drop(begun);
    until("the room is not free again", || {
        server.ask("PUT", "/rule/rule", &"x".repeat(1 << 20)).status == 422
    });
}

#[test]
fn a_rule_that_could_not_be_swapped_in_is_tried_again_at_the_next_sighup() {
    let folder = folder();
    let path = folder.path();
    let ignoring = ["sh", "-c", "trap '' XFSZ; exec \"$@\"", "sh"];
    let heard = Heard::start(&ignoring, path, "rule.json --store store");
    let server = &heard.server;
    let delta = &server.status()["next_delta"];
    let words = format!("calibrate traces.npz --method conditional --delta {delta} -o new.json");
    done(path, &words);
    std::fs::rename(path.join("new.json"), path.join("rule.json")).unwrap();
    server.fill_disk();
    signal(&server.child, "-HUP");
    heard.until_said(1, "rule: the rule stays as it is");
    server.limit("--fsize=unlimited:");
    until("it does not heal", || server.get("/ready").status == 200);
    signal(&server.child, "-HUP");
    heard.until_said(1, "another rule is in use, number 2");
    // Once it is in use it is not tried again.
    signal(&server.child, "-HUP");
    heard.until_said(1, "rule.json has not changed");
}

#[test]
fn a_log_for_programs_has_no_line_that_is_not_json() {
    let folder = folder();
    let path = folder.path();
    done(
        path,
        "calibrate traces.npz --method screen-only -o unproven.json",
    );
    let words = "unproven.json --store store --log json --wait-for-store 0";
    let heard = Heard::start(&["env"], path, words);
    signal(&heard.server.child, "-HUP");
    heard.until_said(1, "has not changed");
    let said = heard.said.lock().unwrap();
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let warned = lines.iter().filter(|line| {
        line["level"] == "warn"
            && line["message"]
                .as_str()
                .unwrap()
                .contains("nothing is watched")
    });
    assert_eq!(warned.count(), 2);
}

#[test]
fn a_start_without_room_on_the_disk_fails_and_the_next_one_goes_on() {
    let folder = folder();
    let path = folder.path();
    let words = "rule.json --store store --audit 1 --on-alarm keep";
    let server = Server::start(path, words);
    let killer = server.child.id().to_string();
    let (audited, labelled) = std::thread::scope(|scope| {
        let loaded = scope.spawn(|| load(&server.address, "a"));
        until("no label comes", || {
            server.status()["totals"]["labels"].as_u64() > Some(10)
        });
        let killed = Command::new("kill").args(["-9", &killer]).status();
        assert!(killed.unwrap().success());
        loaded.join().unwrap()
    });
    drop(server);
    for _ in 0..3 {
        let mut full = Command::new("sh");
        full.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"])
            .arg(assert_cmd::cargo::cargo_bin("haltwise"))
            .args("serve --listen 127.0.0.1:0".split(' '))
            .args(words.split(' '))
            .current_dir(path);
        let full = full.output().unwrap();
        // systemd starts it again, for as long as it fails.
        assert_eq!(full.status.code(), Some(1), "{full:?}");
    }
    let totals = Server::start(path, words).status()["totals"].take();
    assert!(totals["audited"].as_u64() >= Some(audited), "{totals}");
    assert!(
        totals["labels"].as_u64() >= Some(labelled.len() as u64),
        "{totals}"
    );
}

/// A power failure cannot be tried here, so the calls to the system are: the name of a new log is
/// on the disk before the old log is removed.
#[test]
fn the_folder_is_synced_between_a_new_log_and_the_end_of_the_old_one() {
    let folder = folder();
    let path = folder.path();
    let calls = path.join("calls");
    let strace = "strace -D -f -y -e trace=fsync,rename,renameat,renameat2,unlink,unlinkat -o";
    let mut through: Vec<&str> = strace.split(' ').collect();
    through.push(calls.to_str().unwrap());
    let tried = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !tried.is_ok_and(|tried| tried.success()) {
        let is_needed = std::env::var_os("HALTWISE_REQUIRE_STRACE").is_some();
        assert!(!is_needed, "strace is not installed, or may not trace");
        let _ = writeln!(std::io::stderr(), "SKIPPED the order of syncs: no strace");
        return;
    }
    let heard = Heard::start(&through, path, "rule.json --store store --audit 1");
    heard.server.post("/rule/streams", &stream("a", 1, 1));
    let label = json!({"id": "a", "label": 1}).to_string();
    assert_eq!(heard.server.post("/rule/labels", &label).status, 200);
    assert_eq!(heard.server.post("/rule/rotate", "").status, 200);
    drop(heard);
    let mut text = String::new();
    // The log of a rotation that someone asked for.
    until("strace writes down the end of the old log", || {
        text = std::fs::read_to_string(&calls).unwrap();
        text.contains("_log-00000002\"")
            && text.contains("unlink")
            && text.contains("_log-00000002")
    });
    let at = |from: usize, what: &dyn Fn(&str) -> bool| {
        let found = text.lines().skip(from).position(what);
        from + found.unwrap_or_else(|| panic!("{text}"))
    };
    let is_of = |line: &str, call: &str, file: &str| line.contains(call) && line.contains(file);
    let traces = at(0, &|line| {
        is_of(line, "rename", "audits-00000002.parquet\"")
    });
    let synced = at(traces, &|line| is_of(line, "fsync(", "store/rule>"));
    let log = at(synced, &|line| is_of(line, "rename", "_log-00000003\""));
    let synced = at(log, &|line| is_of(line, "fsync(", "store/rule>"));
    at(synced, &|line| is_of(line, "unlink", "_log-00000002\""));
}
