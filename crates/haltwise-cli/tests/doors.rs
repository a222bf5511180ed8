//! The doors of `haltwise serve`: who comes in, how many, for how long, and how they leave.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
// Just enough of a browser's protocol, shared with the reports' tests.
#[allow(dead_code)]
#[path = "../../haltwise-report/tests/browser/chromium.rs"]
mod chromium;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::serving::{PATIENCE, Server, folder, stream, until};
use common::{haltwise, ran, signal};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};

/// This test holds the other ends of many connections.
fn allow_open_files(wanted: u64) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard >= wanted, "this test needs {wanted} open files");
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard).unwrap();
}

/// The number of the newest log in a store.
fn newest_log(store: &Path) -> u64 {
    let entries = std::fs::read_dir(store).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let logs = names.filter_map(|name| name.strip_prefix("_log-")?.parse().ok());
    logs.max().unwrap()
}

/// Whether the server has closed a connection. `said` gets the bytes sent before.
fn is_closed(mut connection: &TcpStream, said: &mut Vec<u8>) -> bool {
    connection.set_nonblocking(true).unwrap();
    match connection.read_to_end(said) {
        Ok(_) => true,
        Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
    }
}

#[test]
fn idle_clients_take_no_files_from_the_store() {
    allow_open_files(2000);
    let folder = folder();
    let words = "rule.json --store store --audit 1 --rotate 1";
    let server = Server::start_after("ulimit -n 1024;", folder.path(), words, None);
    let store = folder.path().join("store/rule");
    let idle: Vec<TcpStream> = (0..1100).map(|_| server.connect()).collect();
    until("nobody is told that there is no room", || {
        let refused = server.ask_with("GET", "/ready", "", "");
        refused.is_some_and(|a| a.status == 503 && a.body.contains("--max-connections"))
    });
    // The log is rotated while they are there.
    let before = newest_log(&store);
    until("the log is not rotated", || newest_log(&store) > before + 1);
    drop(idle);
    until("nobody gets in", || {
        let answer = server.ask_with("GET", "/ready", "", "");
        answer.is_some_and(|answer| answer.status == 200)
    });
    let said = server.post("/rule/streams", &stream("a", 1, 1));
    assert!(said.body.contains("\"audited\":true"), "{said:?}");
    assert_eq!(server.post("/rule/rotate", "").status, 200);
}

#[test]
fn silent_clients_are_cut_off_and_others_are_not() {
    let folder = folder();
    let words = "rule.json --store store --client-timeout 1";
    let server = Server::start(folder.path(), words);
    let talk = |text: &str| {
        let mut connection = server.connect();
        connection.write_all(text.as_bytes()).unwrap();
        connection
    };
    let socket = || {
        let address = format!("ws://{}/rule/ws", server.address);
        let (socket, _) = tungstenite::client(address, server.connect()).unwrap();
        socket
    };
    // Reading a WebSocket answers its pings.
    let mut alive = socket();
    let deaf = socket();
    let events = talk("GET /rule/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let silent = [
        ("says nothing", talk("")),
        ("sends half a head", talk("GET /ready HTTP/1.1\r\nHost: ")),
        (
            "asks no second time",
            talk("GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ),
        ("answers no ping", deaf.get_ref().try_clone().unwrap()),
    ];
    let reading = alive.get_ref().try_clone().unwrap();
    reading
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    for (who, connection) in &silent {
        until(who, || {
            if let Err(tungstenite::Error::Io(error)) = alive.read() {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            }
            is_closed(connection, &mut Vec::new())
        });
    }
    assert!(!is_closed(&events, &mut Vec::new()), "events come slowly");
    reading.set_read_timeout(Some(PATIENCE)).unwrap();
    let line = "{\"id\":1,\"score\":1.0,\"t\":1}\n{\"id\":1,\"score\":1.0,\"t\":2}";
    alive.send(tungstenite::Message::text(line)).unwrap();
    let answer = loop {
        let message = alive.read().unwrap();
        if message.is_text() {
            break message.into_text().unwrap();
        }
    };
    assert!(answer.contains("\"reason\""), "{answer}");
}

#[test]
fn a_client_that_takes_no_answers_is_cut_off() {
    let folder = folder();
    let words = "rule.json --store store --client-timeout 1 --max-connections 1";
    let server = Server::start(folder.path(), words);
    let mut deaf = server.connect();
    write!(
        deaf,
        "POST /rule/streams HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    .unwrap();
    // Each line is answered by what is wrong with it, until both ends are full of answers.
    let lines = "x\n".repeat(10_000);
    deaf.set_write_timeout(Some(PATIENCE)).unwrap();
    let begun = Instant::now();
    while write!(deaf, "{:x}\r\n{lines}\r\n", lines.len()).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it is never cut off");
    }
    assert!(begun.elapsed() < PATIENCE, "it is never cut off");
    // Its place is free again.
    until("nobody gets in", || {
        let answer = server.ask_with("GET", "/ready", "", "");
        answer.is_some_and(|answer| answer.status == 200)
    });
}

/// The most memory that a process ever had, in MiB.
fn peak(server: &Server) -> u64 {
    status_mib(server, "VmHWM:")
}

#[test]
#[cfg(target_os = "linux")]
fn clients_that_take_no_answers_make_the_server_keep_few() {
    let folder = folder();
    let words = "rule.json --store store --client-timeout 600";
    let server = Server::start(folder.path(), words);
    // Each line of one letter is answered by what is wrong with it, which is longer.
    let lines = "x\n".repeat(500_000);
    let mut deaf = Vec::new();
    let before = peak(&server);
    for _ in 0..8 {
        let mut client = server.connect();
        let head = "POST /rule/streams HTTP/1.1\r\nHost: localhost\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        client.write_all(head.as_bytes()).unwrap();
        // Until nothing is read from it any more.
        client
            .set_write_timeout(Some(Duration::from_millis(500)))
            .unwrap();
        while write!(client, "{:x}\r\n{lines}\r\n", lines.len()).is_ok() {}
        deaf.push(client);
    }
    let with_bodies = peak(&server);
    assert!(with_bodies - before < 100, "{} MiB", with_bodies - before);
    let mut sockets = Vec::new();
    for _ in 0..8 {
        let address = format!("ws://{}/rule/ws", server.address);
        let (mut socket, _) = tungstenite::client(address, server.connect()).unwrap();
        socket
            .send(tungstenite::Message::text(lines.clone()))
            .unwrap();
        sockets.push(socket);
    }
    let faults = || server.status()["totals"]["faults"].as_u64().unwrap();
    let mut last = 0;
    until("it never stops answering", || {
        let so_far = faults();
        std::mem::replace(&mut last, so_far) == so_far
    });
    let with_sockets = peak(&server);
    assert!(
        with_sockets - with_bodies < 100,
        "{} MiB",
        with_sockets - with_bodies
    );
    // A client that reads its answers gets one for each line.
    let mut heard = 0;
    while heard < lines.len() / 2 {
        let message = sockets[0].read().unwrap();
        if message.is_text() {
            heard += message.into_text().unwrap().lines().count();
        }
    }
    assert_eq!(heard, lines.len() / 2);
}

#[test]
fn a_frame_that_is_longer_than_a_message_may_be_is_refused_at_its_head() {
    let folder = folder();
    let words = "rule.json --store store --client-timeout 600";
    let server = Server::start(folder.path(), words);
    let address = format!("ws://{}/rule/ws", server.address);
    let (socket, _) = tungstenite::client(address, server.connect()).unwrap();
    let mut raw = socket.get_ref();
    // A masked frame of text, of 15 MiB, which do not come.
    let mut head = vec![0x81, 0xff];
    head.extend((15_u64 << 20).to_be_bytes());
    head.extend([0; 4]);
    raw.write_all(&head).unwrap();
    until("it waits for the frame", || is_closed(raw, &mut Vec::new()));
}

#[test]
fn a_secret_that_no_client_could_show_is_refused() {
    use std::os::unix::ffi::OsStrExt as _;
    let folder = folder();
    let refused = |words: &str, name: &str, secret: &[u8]| {
        let ran = ran(haltwise()
            .current_dir(folder.path())
            .env(name, std::ffi::OsStr::from_bytes(secret))
            .args(words.split(' ')));
        assert_eq!(ran.code, 1, "{name}");
        assert!(ran.stderr.contains(name), "{name}: {}", ran.stderr);
        ran.stderr
    };
    let serve = "serve rule.json --store s --listen 127.0.0.1:0";
    // The last is not even text: to take it for none would let everyone in.
    for secret in ["geheim-ü".as_bytes(), b"a\nb", b"\xff\xfe"] {
        for name in ["HALTWISE_TOKEN", "HALTWISE_TOKEN_READ"] {
            let said = refused(serve, name, secret);
            assert!(said.contains("cannot have"), "{said}");
        }
    }
    for empty in ["", "\n"] {
        let said = refused(serve, "HALTWISE_TOKEN", empty.as_bytes());
        assert!(said.contains("is set, but empty"), "{said}");
    }
    let proxy = "proxy --rule rule.json --server http://127.0.0.1:1 --listen 127.0.0.1:0";
    for secret in ["", ",", "ü"] {
        refused(proxy, "HALTWISE_PROXY_KEYS", secret.as_bytes());
    }
    // A file that a secret was read from has an end of a line.
    let server = Server::start_with(folder.path(), "rule.json --store s", Some("secret\n"));
    let shown = "Authorization: Bearer secret\r\n";
    let status = server.ask_with("GET", "/rule/status", shown, "").unwrap();
    assert_eq!(status.status, 200, "{status:?}");
}

#[test]
fn a_server_ends_within_its_time_and_at_once_if_told_again() {
    let folder = folder();
    let hang = |server: &Server| {
        let mut connection = server.connect();
        let head = "POST /rule/observe HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n";
        connection.write_all(head.as_bytes()).unwrap();
        assert_eq!(server.get("/health").status, 200);
        connection
    };
    let mut server = Server::start(folder.path(), "rule.json --store store --drain 1");
    let _unfinished = hang(&server);
    signal(&server.child, "-TERM");
    let begun = Instant::now();
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(30));
    let mut server = Server::start(folder.path(), "rule.json --store store --drain 3600");
    let unfinished = hang(&server);
    signal(&server.child, "-TERM");
    until("new clients come in", || {
        TcpStream::connect(&server.address).is_err()
    });
    assert!(!is_closed(&unfinished, &mut Vec::new()));
    signal(&server.child, "-TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(143));
}

/// The memory of a process, in MiB.
fn memory(server: &Server) -> u64 {
    status_mib(server, "VmRSS:")
}

/// A number of the system's about a process, in MiB.
fn status_mib(server: &Server, name: &str) -> u64 {
    let path = format!("/proc/{}/status", server.child.id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find(|line| line.starts_with(name));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() / 1024
}

#[test]
#[cfg(target_os = "linux")]
fn ten_thousand_idle_connections_fit_into_200_mib() {
    allow_open_files(10_100);
    let folder = folder();
    let words = "rule.json --store store --client-timeout 600 --max-connections 10001";
    let server = Server::start(folder.path(), words);
    assert_eq!(server.get("/ready").status, 200);
    let before = memory(&server);
    let mut held = Vec::new();
    // If what left were not given back, the third ten thousand would not fit.
    for _ in 0..3 {
        // Half of them have asked something, and may ask more.
        let mut idle: Vec<TcpStream> = (0..10_000).map(|_| server.connect()).collect();
        for connection in idle.iter_mut().step_by(2) {
            write!(connection, "GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut start = [0; 12];
            connection.read_exact(&mut start).unwrap();
            assert_eq!(&start, b"HTTP/1.1 200");
        }
        held.push(memory(&server));
        drop(idle);
        until("the connections are not closed", || {
            let metrics = server.get("/metrics").body;
            // The one that asks is open.
            metrics.contains("\nhaltwise_open_connections 1\n")
        });
    }
    let after = memory(&server);
    let _ = writeln!(
        std::io::stderr(),
        "MiB: {before} before, {held:?} with 10,000 connections, {after} after"
    );
    assert!(held.iter().all(|held| held - before <= 200), "{held:?}");
}

#[test]
fn each_token_opens_its_own_doors() {
    let folder = folder();
    let tokens = "HALTWISE_TOKEN_OBSERVE=observe HALTWISE_TOKEN_LABEL=label \
                  HALTWISE_TOKEN_READ=read";
    let words = "rule.json --store store --audit 1";
    let server = Server::start_after(tokens, folder.path(), words, Some("administer"));
    let step = "{\"id\":1,\"t\":1,\"score\":0.1}";
    for (method, path, role, body) in [
        ("POST", "/rule/observe", "observe", step),
        ("POST", "/rule/streams", "observe", step),
        ("GET", "/rule/ws", "observe", ""),
        ("POST", "/rule/labels", "label", "{\"id\":1,\"label\":1}"),
        ("GET", "/rule/labels/wanted", "label", ""),
        ("GET", "/rule/status", "read", ""),
        ("GET", "/rule/rule", "read", ""),
        ("GET", "/metrics", "read", ""),
        ("POST", "/rule/rotate", "administer", ""),
        ("PUT", "/rule/rule", "administer", "{}"),
    ] {
        for token in ["observe", "label", "read", "administer", "stranger"] {
            let header = format!("Authorization: Bearer {token}\r\n");
            let status = server.ask_with(method, path, &header, body).unwrap().status;
            let refused = match token {
                "stranger" => Some(401),
                _ if token == role || token == "administer" => None,
                _ => Some(403),
            };
            match refused {
                Some(refusal) => assert_eq!(status, refusal, "{method} {path} {token}"),
                None => assert!(![401, 403].contains(&status), "{method} {path} {token}"),
            }
        }
        let status = server.ask_with(method, path, "", body).unwrap().status;
        assert_eq!(status, 401, "{method} {path}");
    }
    // Observations go in by the token for them alone.
    let observing = "Authorization: Bearer observe\r\n";
    let whole = stream("a", 1, 1);
    let said = server.ask_with("POST", "/rule/streams", observing, &whole);
    assert!(said.unwrap().body.contains("\"audited\":true"));
}

fn openssl(folder: &Path) -> bool {
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
                 -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
                 -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem";
    let mut openssl = Command::new("openssl");
    openssl.current_dir(folder).args(words.split_whitespace());
    openssl.output().is_ok_and(|made| made.status.success())
}

#[test]
fn connections_are_encrypted_with_a_certificate() {
    let folder = folder();
    let curl = |arguments: &[&str]| {
        let mut curl = Command::new("curl");
        curl.current_dir(folder.path())
            .args(["-sS", "--max-time", "60"]);
        curl.args(arguments).output()
    };
    if !openssl(folder.path()) || curl(&["--version"]).is_err() {
        let is_needed = std::env::var_os("HALTWISE_REQUIRE_CURL").is_some();
        assert!(!is_needed, "curl or openssl is not installed");
        let _ = writeln!(std::io::stderr(), "SKIPPED TLS: no curl or no openssl");
        return;
    }
    let wrong = ran(haltwise().current_dir(folder.path()).args(
        "serve rule.json --store store --listen 127.0.0.1:0 --tls-cert key.pem --tls-key key.pem"
            .split(' '),
    ));
    assert_eq!(wrong.code, 1);
    assert!(
        wrong.stderr.contains("key.pem: there is no certificate"),
        "{}",
        wrong.stderr
    );
    let words = "rule.json --store store --audit 1 --client-timeout 2 \
                 --tls-cert cert.pem --tls-key key.pem";
    let server = Server::start(folder.path(), words);
    // A client that says nothing, or speaks without TLS, is cut off.
    let silent = server.connect();
    assert!(server.ask_with("GET", "/ready", "", "").is_none());
    let url = |path: &str| format!("https://{}{path}", server.address);
    std::fs::write(folder.path().join("lines"), stream("a", 1, 1)).unwrap();
    let sent = curl(&[
        "--cacert",
        "cert.pem",
        "-T",
        "lines",
        "-X",
        "POST",
        &url("/rule/streams"),
    ]);
    let sent = sent.unwrap();
    let said = String::from_utf8_lossy(&sent.stdout);
    assert!(said.contains("\"audited\":true"), "{sent:?}");
    let stranger = curl(&[&url("/ready")]).unwrap();
    assert!(!stranger.status.success(), "{stranger:?}");
    until("it is never cut off", || {
        is_closed(&silent, &mut Vec::new())
    });
}

#[test]
fn a_log_that_cannot_be_written_stops_nothing() {
    let folder = folder();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let full = std::fs::File::create("/dev/full").unwrap();
    let words = format!(
        "serve rule.json --store store --audit 1 --rotate 1 --listen {port} --log-requests all"
    );
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("haltwise"));
    command
        .current_dir(folder.path())
        .env_remove("HALTWISE_TOKEN");
    command
        .args(words.split(' '))
        .stdout(Stdio::null())
        .stderr(full);
    let server = Server {
        child: command.spawn().unwrap(),
        address: port.to_string(),
        token: None,
    };
    until("it does not start", || {
        let answer = server.ask_with("GET", "/ready", "", "");
        answer.is_some_and(|answer| answer.status == 200)
    });
    let lines: String = (0..80).map(|i| stream(&format!("s{i}"), 0, 1)).collect();
    server.post("/rule/streams", &lines);
    let label = |i| format!("{{\"id\":\"s{i}\",\"label\":1}}\n");
    let labels: String = (0..80).map(label).collect();
    server.post("/rule/labels", &labels);
    assert_eq!(server.status()["alarm"], true);
    let store = folder.path().join("store/rule");
    let before = newest_log(&store);
    until("the log is not rotated", || newest_log(&store) > before + 1);
    assert_eq!(server.get("/ready").status, 200);
}

#[test]
fn many_refused_labels_take_little_memory_and_keep_no_one_waiting() {
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store");
    let before = memory(&server);
    let line = format!("{{\"id\":\"{}\",\"label\":1}}\n", "x".repeat(200));
    let body = line.repeat((15 << 20) / line.len());
    let most = std::thread::scope(|scope| {
        let send = || server.post("/rule/labels", &body);
        let senders: Vec<_> = (0..4).map(|_| scope.spawn(send)).collect();
        let mut most = before;
        while senders.iter().any(|sender| !sender.is_finished()) {
            let asked = Instant::now();
            assert_eq!(server.get("/health").status, 200);
            assert!(
                asked.elapsed() < Duration::from_secs(3),
                "{:?}",
                asked.elapsed()
            );
            most = most.max(memory(&server));
        }
        for sender in senders {
            let said = sender.join().unwrap().json();
            assert_eq!(said["labels"], 0);
            let refused = said["refused"].as_array().unwrap().len() as u64;
            let more = said["more_refused"].as_u64().unwrap();
            assert_eq!(
                (refused, refused + more),
                (100, body.lines().count() as u64)
            );
        }
        most
    });
    assert!(most - before < 100, "{} MiB", most - before);
}

#[test]
fn bodies_have_a_bound_and_a_time() {
    let folder = folder();
    let words = "rule.json --store store --max-line 1000 --client-timeout 1";
    let server = Server::start(folder.path(), words);
    let long = format!("{{\"id\":1,\"score\":0.5,\"x\":\"{}\"}}", "x".repeat(1000));
    let refused = server.post("/rule/observe", &long);
    assert_eq!(refused.status, 413);
    assert!(
        refused.json()["remedy"]
            .as_str()
            .unwrap()
            .contains("--max-line")
    );
    for (method, path) in [
        ("POST", "/rule/observe"),
        ("POST", "/rule/labels"),
        ("PUT", "/rule/rule"),
    ] {
        let mut slow = server.connect();
        write!(
            slow,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"
        )
        .unwrap();
        let mut said = String::new();
        slow.read_to_string(&mut said).unwrap();
        assert!(said.starts_with("HTTP/1.1 408 "), "{path}: {said}");
    }
}

#[test]
fn a_log_for_programs_has_a_line_for_each_request_with_its_id() {
    let folder = folder();
    let words = "serve rule.json --store store --listen 127.0.0.1:0 --log json --log-requests all";
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("haltwise"));
    command
        .current_dir(folder.path())
        .env_remove("HALTWISE_TOKEN");
    command
        .args(words.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut next = || -> Value {
        let line = lines.next().unwrap().unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        line
    };
    let address = loop {
        let line = next();
        assert_eq!(line["level"], "info");
        let message = line["message"].as_str().unwrap();
        if let Some(address) = message.strip_prefix("How it goes: http://") {
            break address.trim_end_matches('/').to_owned();
        }
    };
    let server = Server {
        child,
        address,
        token: None,
    };
    let ask = |path: &str, header: &str| {
        let mut stream = server.connect();
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}Connection: close\r\n\r\n"
        )
        .unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let ids = said
            .lines()
            .filter_map(|line| line.strip_prefix("x-request-id: "));
        let [id] = ids.collect::<Vec<_>>()[..] else {
            panic!("{said}");
        };
        id.to_owned()
    };
    let given = ask("/rule/status?secret=1", "X-Request-Id: abc-1\r\n");
    assert_eq!(given, "abc-1");
    let line = next();
    assert_eq!(line["request_id"], "abc-1");
    assert_eq!(
        (&line["level"], &line["status"]),
        (&json!("info"), &json!(200))
    );
    assert_eq!(
        (&line["method"], &line["path"]),
        (&json!("GET"), &json!("/rule/status"))
    );
    assert_eq!(line["route"], "/{name}/status");
    assert!(line["duration_ms"].as_f64().unwrap() > 0.0);
    let made = ask("/none/status", "");
    let line = next();
    assert_eq!(
        (&line["request_id"], &line["status"]),
        (&json!(made), &json!(404))
    );
    assert_eq!(line["level"], "warn");
    assert_ne!(ask("/rule/status", ""), made);
}

/// A page at an address of its own.
fn foreign_page() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let page = "<!doctype html><title>foreign</title>";
            let length = page.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\
                 Content-Length: {length}\r\n\r\n{page}"
            );
        }
    });
    // To a browser this is another site than 127.0.0.1.
    format!("http://localhost:{}/", address.port())
}

#[test]
fn a_foreign_page_in_a_browser_reaches_nothing() {
    let Some(program) = chromium::find_or_skip("a_foreign_page_in_a_browser_reaches_nothing")
    else {
        return;
    };
    let folder = folder();
    let server = Server::start(folder.path(), "rule.json --store store --audit 1");
    let mut browser = chromium::Browser::start(&program);
    let mut tab = browser.tab();
    let line = "{\\\"id\\\":1,\\\"t\\\":1,\\\"score\\\":0.1}";
    let address = &server.address;
    let attempt = format!(
        "window.done = {{}};
         fetch('http://{address}/rule/streams', {{method: 'POST', mode: 'no-cors', body: \"{line}\"}})
           .then(() => done.post = 'sent', () => done.post = 'failed');
         const socket = new WebSocket('ws://{address}/rule/ws');
         socket.onopen = () => done.socket = 'open';
         socket.onerror = () => done.socket = 'failed';
         true"
    );
    for (page, is_own) in [
        (foreign_page(), false),
        (format!("http://{address}/"), true),
    ] {
        tab.visit(&page, 800, "light");
        tab.evaluate(&attempt);
        until("nothing comes of it", || {
            tab.evaluate("!!(done.post && done.socket)") == json!(true)
        });
        let socket = if is_own { "open" } else { "failed" };
        assert_eq!(tab.evaluate("done.socket"), socket, "{page}");
        let streams = &server.status()["totals"]["streams"];
        assert_eq!(*streams, json!(u64::from(is_own)), "{page}");
    }
}
