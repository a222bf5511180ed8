//! What `haltwise serve` keeps in its store, and how it goes on from there.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::serving::{Server, done, folder, stream, until};
use common::{haltwise, ran};
use serde_json::{Value, json};

/// All files in a folder and the folders in it.
fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => files.extend(all_files(&path)),
            false => files.push(path),
        }
    }
    files.sort();
    files
}

fn bytes_in(folder: &Path) -> u64 {
    let length = |path: &PathBuf| std::fs::metadata(path).map_or(0, |about| about.len());
    all_files(folder).iter().map(length).sum()
}

/// A rule with another alpha, for a renewal that may have this delta. It takes the place of the
/// one that was there.
fn calibrate(folder: &Path, name: &str, alpha: f64, delta: f64) -> String {
    let _ = std::fs::remove_file(folder.join(name));
    done(
        folder,
        &format!(
            "calibrate traces.npz --method conditional --alpha {alpha} --delta {delta} -o {name}"
        ),
    );
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// `HALTWISE_FULL_DISKS` says how often; `make soak-serve` does it 50 times.
#[test]
fn a_full_disk_is_waited_for_and_nothing_that_was_acknowledged_is_lost() {
    let folder = folder();
    let words = "rule.json --store store --audit 1 --on-alarm keep";
    let limited = "trap '' XFSZ; ulimit -S -f 400;";
    let server = Server::start_after(limited, folder.path(), words, None);
    let mut labelled = Vec::new();
    let times = std::env::var("HALTWISE_FULL_DISKS").map_or(3, |n| n.parse().unwrap());
    let mut memory = Vec::new();
    for round in 0..times {
        memory.push(server.memory() >> 10);
        let refused = loop {
            let id = format!("s{}", labelled.len());
            let said = server.post("/rule/streams", &stream(&id, 0, 1));
            if said.body.contains("cannot be written") || said.status == 503 {
                break said.body;
            }
            let label = format!("{{\"id\":\"{id}\",\"label\":1}}");
            let said = server.post("/rule/labels", &label);
            if said.status == 503 {
                break said.body;
            }
            // One that was refused before may be there all the same, and have its label.
            assert!([200, 404].contains(&said.status), "{said:?}");
            labelled.push(id);
            assert!(labelled.len() < 100_000, "the disk is never full");
        };
        assert!(
            refused.contains("make room") || refused.contains("/ready"),
            "{refused}"
        );
        assert_eq!(server.get("/health").status, 200);
        server.fill_disk();
        let ready = server.get("/ready");
        assert_eq!(ready.status, 503);
        let said = ready.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains("cannot be written"), "{said}");
        let metrics = server.get("/metrics").body;
        assert!(
            metrics.contains("haltwise_ready{rule=\"rule\"} 0"),
            "{metrics}"
        );
        assert!(!metrics.contains("haltwise_store_errors_total{rule=\"rule\"} 0\n"));
        // While there is no room nothing new is decided.
        let before = server.status()["totals"]["streams"].clone();
        assert_eq!(
            server
                .post("/rule/observe", r#"{"id": "new", "score": 0.1}"#)
                .status,
            503
        );
        assert_eq!(server.status()["totals"]["streams"], before);
        // With room it goes on by itself.
        server.limit("--fsize=unlimited");
        until("it is ready again", || server.get("/ready").status == 200);
        labelled.push(format!("s{}", labelled.len()));
        let id = format!("between-{round}");
        assert_eq!(
            server
                .post("/rule/streams", &stream(&id, 1, 1))
                .lines()
                .len(),
            2
        );
        let full = std::fs::read_dir(folder.path().join("store/rule")).unwrap();
        let longest = full
            .map(|e| e.unwrap().metadata().unwrap().len())
            .max()
            .unwrap();
        server.limit(&format!("--fsize={}:unlimited", longest + 50_000));
    }
    let _ = writeln!(
        std::io::stderr(),
        "{times} full disks: {} labels, none of those acknowledged lost; MiB before each: {memory:?}",
        labelled.len()
    );
    let before = server.status();
    server.kill();
    let server = Server::start(folder.path(), words);
    let status = server.status();
    let labels = |status: &Value| status["totals"]["labels"].as_u64().unwrap();
    assert!(labels(&status) >= labels(&before), "{status}");
    let audited = |status: &Value| status["totals"]["audited"].as_u64().unwrap();
    assert!(audited(&status) >= audited(&before), "{status}");
}

#[test]
fn a_server_without_descriptors_heals_when_it_has_some() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --audit 1");
    server.post("/rule/streams", &stream("a", 0, 1));
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.child.id()));
    let open = open.unwrap().count();
    // Enough to answer, too few for another log.
    let mut rotation = server.connect();
    server.limit(&format!("--nofile={}:4096", open + 1));
    use std::io::{Read as _, Write as _};
    let host = &server.address;
    write!(
        rotation,
        "POST /rule/rotate HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )
    .unwrap();
    let mut said = String::new();
    rotation.read_to_string(&mut said).unwrap();
    assert!(
        said.contains("503") && said.contains("open files"),
        "{said}"
    );
    server.limit("--nofile=4096:4096");
    assert_eq!(server.get("/ready").status, 200);
    assert_eq!(
        server
            .post("/rule/streams", &stream("b", 0, 1))
            .lines()
            .len(),
        2
    );
    assert_eq!(server.post("/rule/rotate", "").status, 200);
    server.kill();
    let server = Server::start(folder.path(), "rule.json --store store --audit 1");
    assert_eq!(server.status()["audits"], 2);
}

#[test]
fn a_swap_a_stop_and_a_restart_lose_no_audit() {
    let folder = folder();
    let words = "rule.json --store store --audit 1";
    let server = Server::start(folder.path(), words);
    let first = |name: &str| -> String {
        (0..50)
            .map(|i| format!("{{\"id\":\"{name}{i}\",\"t\":1,\"score\":0.1,\"prediction\":1}}\n"))
            .collect()
    };
    let rest = |name: &str| -> String {
        let mut lines = String::new();
        for i in 0..50 {
            for t in 2..6 {
                lines +=
                    &format!("{{\"id\":\"{name}{i}\",\"t\":{t},\"score\":1.0,\"prediction\":1}}\n");
            }
        }
        lines
    };
    assert_eq!(server.post("/rule/streams", &first("old")).body, "");
    let delta = server.status()["next_delta"].as_f64().unwrap();
    let new = calibrate(folder.path(), "new.json", 0.1, delta);
    assert_eq!(server.ask("PUT", "/rule/rule", &new).json()["renewal"], 2);
    assert_eq!(server.post("/rule/streams", &first("new")).body, "");
    server.stop();
    let server = Server::start(folder.path(), words);
    assert_eq!(server.get("/rule/rule").body, new);
    // Streams from before the swap go on with their rule, which has its last word.
    let halts = server.post("/rule/streams", &rest("old")).lines();
    assert_eq!(halts.len(), 50, "{:?}", halts.first());
    assert!(halts.iter().all(|halt| halt["t"] == 2), "{:?}", halts[0]);
    // Those from after it are audited to their end.
    let said = server.post("/rule/streams", &rest("new")).lines();
    let audited = said.iter().filter(|said| said["audited"] == true);
    assert_eq!(
        (said.len(), audited.count()),
        (100, 50),
        "{:?}",
        said.first()
    );
    let status = server.status();
    assert_eq!(
        (&status["audits"], &status["unknown"]),
        (&json!(50), &json!(0)),
        "{status}"
    );
    assert_eq!(status["totals"]["halted"], 100);
}

/// What a server says before it is ready, and whether it came to that.
fn started(folder: &Path, words: &str) -> (bool, String) {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("haltwise"))
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .env_remove("HALTWISE_TOKEN")
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(words)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::BufRead as _;
    let mut said = String::new();
    let mut is_ready = false;
    for line in std::io::BufReader::new(child.stderr.take().unwrap()).lines() {
        let line = line.unwrap();
        is_ready = line.starts_with("How it goes");
        said += &line;
        said.push('\n');
        if is_ready {
            break;
        }
    }
    if is_ready {
        common::signal(&child, "-TERM");
    }
    child.wait().unwrap();
    (
        is_ready,
        said.split_whitespace().collect::<Vec<_>>().join(" "),
    )
}

#[test]
fn a_server_says_which_rule_it_serves_and_takes_no_other_by_the_way() {
    let folder = folder();
    let folder = folder.path();
    // All are served at the same name.
    for name in ["first", "second", "third"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    std::fs::copy(folder.join("rule.json"), folder.join("first/rule.json")).unwrap();
    let share = |n: f64| 2.0 * 0.1 / (n * (n + 1.0)) * 0.999;
    calibrate(folder, "second/rule.json", 0.2, share(2.0).min(0.0033));
    calibrate(folder, "third/rule.json", 0.3, share(3.0).min(0.0016));
    let start = |words: &str| started(folder, &format!("{words} --store store"));
    let says = |words: &str, parts: &[&str]| {
        let (is_ready, said) = start(words);
        assert!(is_ready, "{words}: {said}");
        parts
            .iter()
            .for_each(|part| assert!(said.contains(part), "{words}: {said}"));
    };
    let refuses = |words: &str, parts: &[&str]| {
        let (is_ready, said) = start(words);
        assert!(!is_ready, "{words}: {said}");
        parts
            .iter()
            .for_each(|part| assert!(said.contains(part), "{words}: {said}"));
    };
    says(
        "first/rule.json",
        &["the rule of the file; the store is new"],
    );
    says(
        "first/rule.json",
        &["the rule of the file, which is the store's (rule 1 there)"],
    );
    refuses(
        "second/rule.json",
        &["store/rule: ", "--replace", "delta of 0.00"],
    );
    says(
        "second/rule.json --replace",
        &["in place of the store's (rule 2 there now)"],
    );
    // The first file is what a unit of systemd names: the store's rule goes on.
    says(
        "first/rule.json",
        &["the store's rule (rule 2 there, alpha 0.2", "--replace"],
    );
    says("second/rule.json", &["which is the store's (rule 2 there)"]);
    says("third/rule.json --replace", &["rule 3 there now"]);
    refuses("second/rule.json", &["was in use here once", "rule 3"]);
    // Back to an earlier one.
    says("second/rule.json --replace", &["rule 4 there now"]);
    says("first/rule.json --replace", &["rule 5 there now"]);
    says("first/rule.json", &["which is the store's (rule 5 there)"]);
    // `serve` also refuses a spent delta with --replace.
    calibrate(folder, "third/rule.json", 0.4, 0.1);
    refuses(
        "third/rule.json --replace",
        &["cannot take its place", "next_delta"],
    );
}

#[test]
fn a_store_takes_a_smaller_share_of_delta_and_sums_are_checked_for_it() {
    let folder = folder();
    let folder = folder.path();
    let says = |words: &str, part: &str| {
        let (is_ready, said) = started(folder, &format!("rule.json {words}"));
        assert!(is_ready && said.contains(part), "{words}: {said}");
        said
    };
    let monitored = |stores: &str| {
        let words = format!("monitor rule.json {stores}");
        let ran = ran(haltwise()
            .current_dir(folder)
            .args(words.split_whitespace()));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        ran.stderr
    };
    for store in ["a", "b"] {
        let said = says(&format!("--store {store}"), "the store is new");
        assert!(!said.contains("from now on"), "{said}");
    }
    let said = monitored("a b");
    assert!(said.contains("--servers 2"), "{said}");
    for store in ["a", "b"] {
        says(&format!("--store {store} --servers 2"), "from now on");
        let said = says(&format!("--store {store} --servers 2"), "serving");
        assert!(!said.contains("from now on"), "{said}");
        // The share of a store never rises.
        says(&format!("--store {store}"), "keeps its delta");
    }
    for stores in ["a b", "a"] {
        assert_eq!(monitored(stores), "");
    }
}

#[test]
fn files_of_a_store_are_for_its_user_alone() {
    let folder = folder();
    let server = Server::start_after(
        "umask 022;",
        folder.path(),
        "rule.json --store outer/store --audit 1 --on-alarm keep",
        None,
    );
    let lines: String = (0..60).map(|i| stream(&format!("s{i}"), 0, 1)).collect();
    server.post("/rule/streams", &lines);
    let labels: String = (0..60)
        .map(|i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n"))
        .collect();
    server.post("/rule/labels", &labels);
    assert_eq!(server.status()["alarm"], true);
    assert_eq!(server.post("/rule/rotate", "").status, 200);
    let store = folder.path().join("outer/store/rule");
    let files = all_files(&store);
    assert!(
        files
            .iter()
            .any(|f| f.to_string_lossy().contains("_before-")),
        "{files:?}"
    );
    assert!(files.len() >= 3, "{files:?}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in &files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
        let inside = file.ancestors().skip(1).take_while(|p| *p != folder.path());
        for folder in inside {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
    }
}

#[test]
fn what_a_killed_server_left_unfinished_is_removed() {
    let folder = folder();
    let words = "rule.json --store store --audit 1";
    let server = Server::start(folder.path(), words);
    labelled(&server, "a");
    server.kill();
    let store = folder.path().join("store/rule");
    std::fs::create_dir_all(store.join("_before-1")).unwrap();
    std::fs::create_dir_all(store.join("_before.new")).unwrap();
    let unfinished = [
        ".haltwise-Ab12",
        "_before-1/.haltwise-Cd34",
        "_log-00000001.new",
        "_audits-00000001.new",
    ];
    let others = [
        "_before.new/audits-00000009.jsonl",
        "audits-00000008.parquet",
    ];
    for name in unfinished.iter().chain(&others) {
        std::fs::write(store.join(name), "precious").unwrap();
    }
    let server = Server::start(folder.path(), words);
    assert_eq!(server.status()["totals"]["labels"], 1);
    for name in unfinished {
        assert!(!store.join(name).exists(), "{name}");
    }
    for name in others {
        assert!(store.join(name).exists(), "{name}");
    }
}

#[test]
fn old_traces_are_removed_as_the_operator_wishes() {
    let folder = folder();
    let traces = |folder: &Path| -> Vec<PathBuf> {
        let mut files = all_files(&folder.join("store"));
        files.retain(|file| file.to_string_lossy().contains("audits-"));
        files
    };
    let audits = |server: &Server, from: usize| {
        let ids = from..from + 20;
        let lines: String = ids
            .clone()
            .map(|i| stream(&format!("s{i}"), 1, 1))
            .collect();
        server.post("/rule/streams", &lines);
        let labels: String = ids
            .map(|i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n"))
            .collect();
        assert_eq!(server.post("/rule/labels", &labels).json()["labels"], 20);
        assert_eq!(server.post("/rule/rotate", "").status, 200);
    };
    let server = Server::start(folder.path(), "rule.json --store store --audit 1");
    (0..4).for_each(|round| audits(&server, 20 * round));
    // One that nobody labels.
    server.post("/rule/streams", &stream("waits", 0, 1));
    server.stop();
    let all = traces(folder.path());
    assert_eq!(all.len(), 4);
    // The first is three days old by its date.
    let touched = Command::new("touch")
        .args(["-d", "3 days ago"])
        .arg(&all[0])
        .status();
    assert!(touched.unwrap().success());
    let words = "rule.json --store store --audit 1 --keep-days 2";
    Server::start(folder.path(), words).stop();
    assert_eq!(traces(folder.path()), all[1..]);
    let length = std::fs::metadata(&all[3]).unwrap().len();
    let words = format!(
        "rule.json --store store --audit 1 --keep-bytes {}",
        2 * length + 20
    );
    let server = Server::start(folder.path(), &words);
    assert_eq!(traces(folder.path()), all[2..]);
    assert_eq!(server.status()["waiting"], 1);
    audits(&server, 100);
    let left = traces(folder.path());
    assert_eq!((left.len(), &left[0]), (2, &all[3]));
}

#[test]
fn long_lines_are_refused_at_every_door_and_the_log_stays_short() {
    let folder = folder();
    let words = "rule.json --store store --audit 1 --max-line 500000";
    let server = Server::start(folder.path(), words);
    let line = |id: usize, bytes: usize| {
        let probs = format!("[{}1]", "0,".repeat(bytes / 2));
        format!("{{\"id\":{id},\"score\":0.1,\"prediction\":1,\"probs\":{probs}}}")
    };
    let long = line(0, 15 << 20);
    let refused = server.post("/rule/observe", &line(0, 500_000));
    assert_eq!(refused.status, 413);
    assert!(
        refused.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("--max-line")
    );
    assert!(server.post("/rule/streams", &long).lines()[0]["error"].is_string());
    let label = format!("{{\"id\":1,\"label\":\"{}\"}}", "x".repeat(1 << 20));
    assert_eq!(server.post("/rule/labels", &label).status, 422);
    let address = format!("ws://{}/rule/ws", server.address);
    let (mut socket, _) = tungstenite::client(address, server.connect()).unwrap();
    // Too long for a line, not for a message.
    socket
        .send(tungstenite::Message::text(line(0, 600_000)))
        .unwrap();
    let said = socket.read().unwrap().into_text().unwrap();
    assert!(said.contains("--max-line"), "{said}");
    drop(socket);
    assert_eq!(server.status()["totals"]["streams"], 0);
    // Sixty streams of the longest lines that may be.
    for id in 0..60 {
        for _ in 0..6 {
            let taken = server.post("/rule/observe", &line(id, 490_000));
            assert_eq!(taken.status, 200, "{taken:?}");
        }
        server.post("/rule/observe", &format!("{{\"id\":{id},\"end\":true}}"));
    }
    let status = server.status();
    assert_eq!(status["totals"]["audited"], 60);
    let bytes = bytes_in(&folder.path().join("store"));
    assert!(bytes < 1 << 20, "{bytes}");
    let resident = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let resident = resident
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    let kilobytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kilobytes < 200 << 10, "{resident}");
}

#[test]
fn damage_in_the_last_line_of_the_log_is_told_and_counted() {
    let folder = folder();
    let words = "rule.json --store store --audit 1";
    let server = Server::start(folder.path(), words);
    for i in 0..50 {
        server.post("/rule/streams", &stream(&format!("s{i}"), 1, 1));
    }
    server.kill();
    let log = all_files(&folder.path().join("store"));
    let log = log
        .iter()
        .find(|f| f.to_string_lossy().contains("_log-"))
        .unwrap();
    let mut bytes = std::fs::read(log).unwrap();
    let at = bytes.len() - 10;
    bytes[at] ^= 1;
    std::fs::write(log, bytes).unwrap();
    let mut command = haltwise();
    command.current_dir(folder.path());
    let read = ran(command.args("monitor rule.json store".split(' ')));
    assert_eq!(read.code, 0, "{}", read.stderr);
    let said: Vec<&str> = read.stderr.split_whitespace().collect();
    assert!(said.join(" ").contains("is damaged"), "{said:?}");
    let (is_ready, said) = started(folder.path(), &format!("{words} --wait-for-store 1"));
    assert!(
        is_ready && said.contains("is damaged: its checksum is wrong"),
        "{said}"
    );
    // The next start finds a log that is whole.
    let (_, said) = started(folder.path(), words);
    assert!(!said.contains("damaged"), "{said}");
}

/// Streams that are open, with one step each, and their second step, which halts them.
fn open_streams(name: &str, n: usize) -> (String, String) {
    let first: String = (0..n)
        .map(|i| format!("{{\"id\":\"{name}{i}\",\"t\":1,\"score\":0.1,\"prediction\":1}}\n"))
        .collect();
    let second = first.replace("\"t\":1,\"score\":0.1", "\"t\":2,\"score\":1.0");
    (first, second)
}

#[test]
fn a_start_that_fails_leaves_open_streams_to_the_next_server() {
    let folder = folder();
    let path = folder.path();
    let (first, second) = open_streams("s", 100);
    let server = Server::start(path, "rule.json --store store");
    assert_eq!(server.post("/rule/streams", &first).body, "");
    server.stop();
    let fails = |words: &str, because: &str| {
        let mut command = haltwise();
        let ran = ran(command.current_dir(path).args(words.split(' ')));
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(because), "{}", ran.stderr);
    };
    // Another program has its address.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let words = format!("serve rule.json --store store --listen {address}");
    fails(&words, "cannot listen on");
    // The store of another rule has another one.
    std::fs::create_dir(path.join("new")).unwrap();
    std::fs::copy(path.join("rule.json"), path.join("other.json")).unwrap();
    Server::start(path, "other.json --store store").stop();
    calibrate(path, "new/other.json", 0.2, 0.0033);
    let words = "serve rule.json new/other.json --store store --listen 127.0.0.1:0";
    fails(words, "the store has another rule");
    // The broker's authorities are no certificates, and its id is none.
    std::fs::write(path.join("store/rule/_mqtt-id"), "nonsense").unwrap();
    let words = "serve rule.json --store store --listen 127.0.0.1:0 --mqtt mqtt://127.0.0.1:1";
    fails(words, "it is no client id");
    let server = Server::start(path, "rule.json --store store");
    let halts = server.post("/rule/streams", &second).lines();
    assert_eq!(halts.len(), 100, "{:?}", halts.first());
    assert!(halts.iter().all(|halt| halt["t"] == 2), "{:?}", halts[0]);
}

/// An audit with its label.
fn labelled(server: &Server, id: &str) {
    assert_eq!(
        server
            .post("/rule/streams", &stream(id, 1, 1))
            .lines()
            .len(),
        2
    );
    let label = format!("{{\"id\":\"{id}\",\"label\":1}}");
    assert_eq!(server.post("/rule/labels", &label).status, 200, "{id}");
}

#[test]
fn a_server_whose_store_was_moved_away_acknowledges_nothing_and_harms_no_other() {
    let folder = folder();
    let place = |name: &str| folder.path().join(name);
    let words = "rule.json --store store --audit 1";
    let server = Server::start(folder.path(), words);
    labelled(&server, "first");
    std::fs::rename(place("store"), place("moved")).unwrap();
    let refused = server.post("/rule/streams", &stream("lost", 1, 1));
    assert!(
        refused.body.contains("it was moved or removed"),
        "{refused:?}"
    );
    // Nor is the store of another server touched, which begins there.
    let other = Server::start(folder.path(), words);
    labelled(&other, "another");
    let before = all_files(&place("store"));
    let rotated = server.post("/rule/rotate", "");
    assert_eq!(rotated.status, 503, "{rotated:?}");
    assert!(rotated.body.contains("put it back"), "{rotated:?}");
    assert_eq!(all_files(&place("store")), before);
    let ready = server.get("/ready");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("_log-"), "{ready:?}");
    labelled(&other, "and another");
    other.kill();
    let other = Server::start(folder.path(), words);
    assert_eq!(other.status()["totals"]["labels"], 2);
    other.stop();
    // It goes on once the store is back.
    std::fs::rename(place("store"), place("others")).unwrap();
    std::fs::rename(place("moved"), place("store")).unwrap();
    until("the store is back", || server.get("/ready").status == 200);
    labelled(&server, "second");
    server.kill();
    let server = Server::start(folder.path(), words);
    let status = server.status();
    assert_eq!(status["totals"]["labels"], 2, "{status}");
}

#[test]
fn a_lock_file_that_was_removed_is_made_again() {
    let folder = folder();
    let words = "rule.json --store store --audit 1";
    let server = Server::start(folder.path(), words);
    let lock = folder.path().join("store/rule/_lock");
    std::fs::remove_file(&lock).unwrap();
    until("there is a lock file again", || lock.exists());
    labelled(&server, "a");
    let (is_ready, said) = started(folder.path(), &format!("{words} --wait-for-store 0"));
    assert!(
        !is_ready && said.contains("another server uses this store"),
        "{said}"
    );
    server.stop();
    let server = Server::start(folder.path(), words);
    assert_eq!(server.status()["totals"]["labels"], 1);
}

#[test]
fn silent_streams_are_closed_even_where_no_new_log_can_be_written() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --idle 1 --rotate 1");
    // A folder is where the next log is to be written, whatever its number.
    let store = folder.path().join("store/rule");
    let log = || {
        let mut logs = all_files(&store);
        logs.retain(|path| path.extension().is_none() && path.to_string_lossy().contains("_log-"));
        let name = logs.last().unwrap().file_name().unwrap().to_owned();
        name.to_str().unwrap()["_log-".len()..]
            .parse::<u32>()
            .unwrap()
    };
    let now = log();
    for next in now + 1..now + 100 {
        let _ = std::fs::create_dir(store.join(format!("_log-{next:08}.new")));
    }
    until("rotations fail", || {
        server.post("/rule/rotate", "").status == 503
    });
    let (first, _) = open_streams("s", 10);
    assert_eq!(server.post("/rule/streams", &first).body, "");
    until("silent streams are closed", || {
        server.status()["totals"]["idle"] == 10
    });
    let metrics = server.get("/metrics").body;
    assert!(
        !metrics.contains("haltwise_store_errors_total{rule=\"rule\"} 0\n"),
        "{metrics}"
    );
}

#[test]
fn sighup_brings_no_rule_back_whose_file_has_not_changed() {
    let folder = folder();
    let path = folder.path();
    std::fs::copy(path.join("rule.json"), path.join("second.json")).unwrap();
    let server = Server::start(path, "rule.json second.json --store store");
    let delta = server.status()["next_delta"].as_f64().unwrap();
    let new = calibrate(path, "new.json", 0.2, delta);
    assert_eq!(server.ask("PUT", "/rule/rule", &new).json()["renewal"], 2);
    // The files are read in their order: once the second has its new rule, the first was read.
    std::fs::copy(path.join("new.json"), path.join("second.json")).unwrap();
    let id = server.child.id().to_string();
    let told = Command::new("kill").args(["-HUP", &id]).status();
    assert!(told.unwrap().success());
    until("the second rule is renewed", || {
        server.get("/second/status").json()["renewal"] == 2
    });
    assert_eq!(server.get("/rule/rule").body, new);
    assert_eq!(server.status()["renewal"], 2);
}

/// A metric family as its lines say.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    samples: Vec<(String, String, f64)>,
}

/// Reads metrics as strictly as Prometheus' own linter.
fn families(text: &str) -> std::collections::BTreeMap<String, Family> {
    let mut families = std::collections::BTreeMap::<String, Family>::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            let known = families.insert(name.to_owned(), Family::default());
            assert!(known.is_none(), "{name} has two HELP lines");
            families.get_mut(name).unwrap().help = help.to_owned();
            current = name.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, current, "TYPE follows HELP");
            let family = families.get_mut(name).unwrap();
            assert!(
                family.kind.is_empty() && family.samples.is_empty(),
                "{name}"
            );
            family.kind = kind.to_owned();
        } else {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(is_name), "{line}");
            let family = families.get_mut(&current).unwrap();
            let suffix = name
                .strip_prefix(&*current)
                .unwrap_or_else(|| panic!("{line}"));
            let allowed: &[&str] = match &*family.kind {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(allowed.contains(&suffix), "{line}");
            let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
            family
                .samples
                .push((name.into(), labels.strip_suffix('}').unwrap().into(), value));
        }
    }
    for (name, family) in &families {
        assert!(family.help.ends_with('.'), "{name}");
        assert_eq!(family.kind == "counter", name.ends_with("_total"), "{name}");
        let mut seen = std::collections::HashSet::new();
        for (sample, labels, value) in &family.samples {
            assert!(
                seen.insert((sample, labels)),
                "{sample}{{{labels}}} is there twice"
            );
            assert!(family.kind == "gauge" || *value >= 0.0, "{sample}");
        }
        if family.kind == "histogram" {
            let unit = name.ends_with("_seconds");
            let infinite = |labels: &str| labels.ends_with("le=\"+Inf\"");
            let (mut last, mut whole) = (0.0, 0.0);
            for (sample, labels, value) in &family.samples {
                if sample.ends_with("_bucket") {
                    assert!(*value >= last, "{sample}{{{labels}}}");
                    last = *value;
                    if infinite(labels) {
                        (whole, last) = (*value, 0.0);
                    }
                } else if sample.ends_with("_count") {
                    assert_eq!(*value, whole, "{sample}");
                }
            }
            assert!(unit, "{name}");
        }
    }
    families
}

#[test]
fn metrics_are_what_prometheus_expects_and_counters_begin_with_the_process() {
    let folder = folder();
    let words = "rule.json --store store --audit 0.5 --on-alarm keep";
    let server = Server::start(folder.path(), words);
    let lines: String = (0..100).map(|i| stream(&format!("s{i}"), 0, 1)).collect();
    server.post("/rule/streams", &lines);
    server.post("/rule/observe", r#"{"id": "open", "score": 0.1}"#);
    server.post("/rule/observe", "nonsense");
    let metrics = |server: &Server| families(&server.get("/metrics").body);
    let now = metrics(&server);
    let value = |families: &std::collections::BTreeMap<String, Family>, name: &str| {
        families[name].samples[0].2
    };
    let status = server.status();
    let audited = status["totals"]["audited"].as_f64().unwrap();
    assert!((20.0..80.0).contains(&audited));
    for (name, expected) in [
        ("haltwise_build_info", 1.0),
        ("haltwise_observations_total", 501.0),
        ("haltwise_streams_total", 101.0),
        ("haltwise_halted_total", 100.0),
        // Three steps of each that was not read on.
        ("haltwise_steps_saved_total", 3.0 * (100.0 - audited)),
        ("haltwise_audited_total", audited),
        ("haltwise_faults_total", 1.0),
        ("haltwise_open_streams", 1.0),
        ("haltwise_halted_streams", 100.0),
        ("haltwise_labels_waiting", audited),
        ("haltwise_labels_wanted", audited),
        (
            "haltwise_audits",
            audited + f64::from(u8::from(status["audits"] != audited as u64)),
        ),
        ("haltwise_ready", 1.0),
        ("haltwise_alarm", 0.0),
        ("haltwise_store_errors_total", 0.0),
        ("haltwise_log_lost_records_total", 0.0),
    ] {
        assert_eq!(value(&now, name), expected, "{name}");
    }
    for name in [
        "haltwise_kept_bytes",
        "haltwise_kept_streams",
        "haltwise_log_bytes",
    ] {
        assert!(value(&now, name) > 0.0, "{name}");
    }
    let build = &now["haltwise_build_info"].samples[0].1;
    assert_eq!(*build, format!("version=\"{}\"", env!("CARGO_PKG_VERSION")));
    let commits = &now["haltwise_commit_duration_seconds"].samples;
    assert!(
        commits
            .iter()
            .any(|(name, _, n)| name.ends_with("_count") && *n > 0.0)
    );
    let requests = &now["haltwise_http_request_duration_seconds"].samples;
    let observed = requests.iter().find(|(name, labels, _)| {
        name.ends_with("_count") && labels == "route=\"POST /{name}/observe\""
    });
    assert_eq!(observed.unwrap().2, 2.0);
    // No counter falls while the process lives, whatever comes of it.
    let labels: String = (0..100)
        .map(|i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n"))
        .collect();
    server.post("/rule/labels", &labels);
    server.post("/rule/rotate", "");
    let later = metrics(&server);
    for (name, family) in now.iter().filter(|(_, family)| family.kind == "counter") {
        assert!(value(&later, name) >= family.samples[0].2, "{name}");
    }
    // After a kill all of them begin again, also those that the log brings back: a rate is
    // then right for all.
    server.kill();
    let server = Server::start(folder.path(), words);
    assert_eq!(
        server.status()["totals"]["audited"].as_f64().unwrap(),
        audited
    );
    for (name, family) in metrics(&server)
        .iter()
        .filter(|(_, family)| family.kind == "counter")
    {
        assert_eq!(family.samples[0].2, 0.0, "{name}");
    }
}

/// A library that shifts the clock of a process by as many seconds as a file says.
const SHIFT: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(id, now);
    if (id == CLOCK_REALTIME) {
        long shift = 0;
        FILE *file = fopen(getenv("SHIFT_FILE"), "r");
        if (file) { if (fscanf(file, "%ld", &shift) != 1) shift = 0; fclose(file); }
        now->tv_sec += shift;
    }
    return result;
}
"#;

/// Waits until a server has looked for idle streams twice, which it does each second, when it
/// notes the evidence.
fn looked_for_idle_streams(server: &Server) {
    let noted = || server.status()["history"].as_array().unwrap().len();
    let before = noted();
    until("it looks for idle streams", || noted() > before + 2);
}

#[test]
fn a_wall_clock_that_jumps_closes_no_stream_and_refuses_none() {
    let folder = folder();
    let path = folder.path();
    std::fs::write(path.join("shift.c"), SHIFT).unwrap();
    let compiled = Command::new("cc")
        .current_dir(path)
        .args(["-shared", "-fPIC", "-o", "shift.so", "shift.c", "-ldl"])
        .status();
    assert!(
        compiled.is_ok_and(|status| status.success()),
        "cc is needed"
    );
    let shift = path.join("shift.txt");
    let set = |seconds: i64| std::fs::write(&shift, seconds.to_string()).unwrap();
    let shell = format!(
        "export SHIFT_FILE={} LD_PRELOAD={};",
        shift.display(),
        path.join("shift.so").display()
    );
    let words = "rule.json --store store --audit 1 --idle 5";
    let step = |id: &str, t: u32, score: f64| {
        json!({"id": id, "t": t, "score": score, "prediction": 1}).to_string()
    };
    for jump in [2 * 3600, -115 * 86_400] {
        let name = format!("s{jump}");
        set(0);
        let server = Server::start_after(&shell, path, words, None);
        assert_eq!(
            server.post("/rule/observe", &step(&name, 1, 0.1)).status,
            200
        );
        set(jump);
        looked_for_idle_streams(&server);
        let said = server.post("/rule/observe", &step(&name, 2, 1.0)).json();
        assert_eq!(said["answers"][0]["t"], 2, "{jump}: {said}");
        assert_eq!(server.status()["totals"]["idle"], 0);
        let early = format!("b{jump}");
        assert_eq!(
            server.post("/rule/observe", &step(&early, 1, 0.1)).status,
            200
        );
        // Nor does it after a restart with that clock.
        server.stop();
        let server = Server::start_after(&shell, path, words, None);
        let new = json!({"id": format!("new{jump}"), "score": 0.1}).to_string();
        assert_eq!(server.post("/rule/observe", &new).status, 200, "{jump}");
        looked_for_idle_streams(&server);
        let said = server.post("/rule/observe", &step(&early, 2, 1.0)).json();
        assert_eq!(said["answers"][0]["t"], 2, "{jump}: {said}");
        server.stop();
    }
}
