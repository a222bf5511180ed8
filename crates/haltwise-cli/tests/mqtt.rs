//! `haltwise serve --mqtt` with a real broker, mosquitto.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use common::{haltwise, ran, write_traces};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The path of a program, if it is installed.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let mut all = path.split(':').map(|folder| Path::new(folder).join(name));
    all.find(|path| path.is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A broker, and what its clients need to be let in.
struct Broker {
    _running: Running,
    port: u16,
    tls: bool,
    /// Arguments of mosquitto's clients.
    client: Vec<String>,
}

const LOGIN: [&str; 2] = ["sensor", "open sesame"];

/// A broker without secrets, or one with a certificate of its own that wants a
/// password.
fn broker(folder: &Path, tls: bool) -> Option<Broker> {
    let needed = ["mosquitto", "mosquitto_passwd", "openssl"];
    if let Some(missing) = needed.into_iter().find(|name| program(name).is_none()) {
        assert!(
            std::env::var_os("HALTWISE_REQUIRE_MOSQUITTO").is_none(),
            "{missing} is not installed"
        );
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED mqtt: {missing} is not installed"
        );
        return None;
    }
    let port = free_port();
    let conf = folder.join("mosquitto.conf");
    let mut text = format!("listener {port} 127.0.0.1\npersistence false\n");
    let mut client = vec!["-p".to_owned(), port.to_string()];
    if tls {
        secrets(folder);
        let path = |name: &str| folder.join(name).display().to_string();
        text += &format!(
            "certfile {}\nkeyfile {}\npassword_file {}\nallow_anonymous false\n",
            path("cert.pem"),
            path("key.pem"),
            path("passwords")
        );
        let [user, password] = LOGIN;
        let more = ["-h", "localhost", "-u", user, "-P", password, "--cafile"];
        client.extend(more.map(str::to_owned));
        client.push(path("cert.pem"));
    } else {
        text += "allow_anonymous true\n";
    }
    std::fs::write(&conf, text).unwrap();
    let child = Command::new(program("mosquitto").unwrap())
        .arg("-c")
        .arg(conf)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
    Some(Broker {
        _running: Running(child),
        port,
        tls,
        client,
    })
}

/// A certificate for localhost that nobody else vouches for, and a password.
fn secrets(folder: &Path) {
    let made = |program: &Path, words: &[&str]| {
        let mut command = Command::new(program);
        let run = command.current_dir(folder).args(words).output().unwrap();
        assert!(run.status.success(), "{words:?}: {run:?}");
    };
    let words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost \
                 -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
                 -keyout key.pem -out cert.pem";
    let words: Vec<&str> = words.split_whitespace().collect();
    made(&program("openssl").unwrap(), &words);
    let [user, password] = LOGIN;
    let words = ["-b", "-c", "passwords", user, password];
    made(&program("mosquitto_passwd").unwrap(), &words);
    // Where tests run as root, the broker does not.
    for (path, mode) in [
        (folder.join("key.pem"), 0o644),
        (folder.join("passwords"), 0o644),
        (folder.to_path_buf(), 0o755),
    ] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
}

impl Broker {
    /// Starts the server; what it says goes on.
    fn start(&self, folder: &Path, login: Option<[&str; 2]>) -> (Running, BufReader<ChildStderr>) {
        // Without room on the disk it goes on.
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
            .arg(assert_cmd::cargo::cargo_bin("haltwise"))
            .current_dir(folder)
            .env("NO_COLOR", "1")
            .args("serve rule.json --store store --audit 1 --listen 127.0.0.1:0 --mqtt".split(' '));
        let port = self.port;
        match self.tls {
            true => command
                .arg(format!("mqtts://localhost:{port}"))
                .args(["--mqtt-ca", "cert.pem"]),
            false => command.arg(format!("mqtt://127.0.0.1:{port}")),
        };
        if let Some([user, password]) = login {
            command.env("HALTWISE_MQTT_USER", user);
            command.env("HALTWISE_MQTT_PASSWORD", password);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        (Running(child), said)
    }

    /// The same, once it is connected.
    fn serve(&self, folder: &Path) -> Running {
        let (running, mut said) = self.start(folder, self.tls.then_some(LOGIN));
        until(&mut said, "connected to the broker");
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        running
    }

    fn publish(&self, topic: &str, message: &str) {
        let sent = Command::new(program("mosquitto_pub").expect("mosquitto-clients"))
            .args(&self.client)
            .args(["-q", "1", "-t", topic, "-m", message])
            .status()
            .unwrap();
        assert!(sent.success());
    }
}

/// Reads until a line has these words, and returns it.
fn until(said: &mut impl BufRead, words: &str) -> String {
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "no {words:?}");
        // It would be tried again for ever.
        assert!(!line.contains("is gone") || words == "is gone", "{line}");
    }
    line
}

/// Listens to the answers.
struct Answers {
    _listening: Running,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Answers {
    fn listen(broker: &Broker) -> Self {
        let mut child = Command::new(program("mosquitto_sub").expect("mosquitto-clients"))
            .args(&broker.client)
            .args(["-q", "1", "-t", "haltwise/rule/out", "-t", "test/ready"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A retained message comes as soon as it listens.
        let retained = Command::new(program("mosquitto_pub").unwrap())
            .args(&broker.client)
            .args(["-r", "-t", "test/ready", "-m", "ready"])
            .status();
        assert!(retained.unwrap().success());
        assert_eq!(lines.next().unwrap().unwrap(), "ready");
        Self {
            _listening: Running(child),
            lines,
        }
    }

    fn next(&mut self) -> Value {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            if !line.is_empty() {
                return serde_json::from_str(&line).unwrap();
            }
        }
    }
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_traces(&folder.path().join("traces.npz"), 4000, 1);
    let words = "calibrate traces.npz --method conditional -o rule.json";
    let made = ran(haltwise().current_dir(folder.path()).args(words.split(' ')));
    assert_eq!(made.code, 0, "{}", made.stderr);
    folder
}

fn step(id: &str, t: u32, score: f64, class: u32) -> String {
    json!({"id": id, "t": t, "score": score, "prediction": class}).to_string()
}

#[test]
fn sensors_speak_mqtt() {
    let folder = folder();
    let folder = folder.path();
    let Some(broker) = broker(folder, false) else {
        return;
    };
    let server = broker.serve(folder);
    let mut answers = Answers::listen(&broker);
    broker.publish("haltwise/rule/in", &step("a", 1, 0.1, 0));
    broker.publish("haltwise/rule/in", &step("a", 1, 0.1, 0));
    broker.publish("haltwise/rule/in", &step("a", 2, 1.0, 0));
    let halt = json!({"id": "a", "t": 2, "reason": "threshold", "audit": true});
    assert_eq!(answers.next(), halt, "the repeated step counts once");
    // Without a number it is not taken.
    broker.publish("haltwise/rule/in", r#"{"id": "b", "score": 0.1}"#);
    assert!(answers.next()["remedy"].as_str().unwrap().contains("twice"));
    let rest = [3, 4, 5].map(|t| step("a", t, 1.0, 1)).join("\n");
    broker.publish("haltwise/rule/in", &rest);
    assert_eq!(answers.next(), json!({"id": "a", "t": 5, "audited": true}));
    broker.publish("haltwise/rule/labels", r#"{"id": "a", "label": 1}"#);
    broker.publish("haltwise/rule/labels", r#"{"id": "a", "label": 1}"#);
    let unasked = |answer: &Value| {
        let error = answer["error"].as_str();
        error.is_some_and(|error| error.contains("waits for a label"))
    };
    assert!(unasked(&answers.next()));
    // The broker keeps what comes while the server is away.
    drop(server);
    broker.publish("haltwise/rule/in", &step("c", 1, 0.1, 0));
    broker.publish("haltwise/rule/in", &step("c", 2, 1.0, 0));
    let _server = broker.serve(folder);
    // The broker sends unacknowledged messages again: here the label that no one waited for.
    let mut kept = std::iter::repeat_with(|| answers.next()).skip_while(unasked);
    assert_eq!(kept.next().unwrap()["id"], "c");
}

/// As many as a broker sends before it waits for one to be acknowledged, and more.
const MESSAGES: usize = 50;

#[test]
fn what_came_while_the_disk_was_full_is_answered_once_there_is_room() {
    let folder = folder();
    let folder = folder.path();
    let Some(broker) = broker(folder, false) else {
        return;
    };
    let (server, mut said) = broker.start(folder, None);
    until(&mut said, "connected to the broker");
    let mut answers = Answers::listen(&broker);
    let limit = |files: &str| {
        let id = server.0.id().to_string();
        let set = Command::new("prlimit").args([files, "--pid", &id]).status();
        assert!(set.unwrap().success());
    };
    limit("--fsize=0:");
    for i in 0..MESSAGES {
        let id = format!("s{i}");
        let lines = [step(&id, 1, 0.1, 0), step(&id, 2, 1.0, 0)].join("\n");
        broker.publish("haltwise/rule/in", &lines);
    }
    until(&mut said, "hung up on the broker");
    limit("--fsize=unlimited:");
    until(&mut said, "connected to the broker");
    let mut answered = std::collections::HashSet::new();
    while answered.len() < MESSAGES {
        let answer = answers.next();
        assert_eq!(answer["t"], 2, "{answer}");
        answered.insert(answer["id"].to_string());
    }
}

#[test]
fn brokers_with_a_certificate_and_a_password_are_spoken_to() {
    let folder = folder();
    let folder = folder.path();
    let Some(broker) = broker(folder, true) else {
        return;
    };
    let server = broker.serve(folder);
    let mut answers = Answers::listen(&broker);
    broker.publish("haltwise/rule/in", &step("a", 1, 0.1, 0));
    broker.publish("haltwise/rule/in", &step("a", 2, 1.0, 0));
    assert_eq!(answers.next()["id"], "a");
    drop(server);
    // Without the password, and with a certificate that is not the broker's.
    let (refused, mut said) = broker.start(folder, None);
    until(&mut said, "is gone");
    drop(refused);
    std::fs::rename(folder.join("cert.pem"), folder.join("known.pem")).unwrap();
    secrets(folder);
    let (refused, mut said) = broker.start(folder, Some(LOGIN));
    let why = until(&mut said, "is gone");
    assert!(why.to_lowercase().contains("certificate"), "{why}");
    drop(refused);
    std::fs::write(folder.join("cert.pem"), "nothing").unwrap();
    let (_refused, mut said) = broker.start(folder, Some(LOGIN));
    until(&mut said, "there is no certificate in it");
}
