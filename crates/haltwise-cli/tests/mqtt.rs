//! `haltwise serve --mqtt` with a real broker, mosquitto.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use common::{haltwise, ran, write_traces};
use serde_json::{Value, json};

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where a program is, if it is installed.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
    let mut all = path.split(':').map(|folder| Path::new(folder).join(name));
    all.find(|path| path.is_file())
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn broker(port: u16, folder: &Path) -> Option<Running> {
    let Some(mosquitto) = program("mosquitto") else {
        assert!(
            std::env::var_os("HALTWISE_REQUIRE_MOSQUITTO").is_none(),
            "mosquitto is not installed"
        );
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED mqtt: mosquitto is not installed"
        );
        return None;
    };
    let conf = folder.join("mosquitto.conf");
    let text = format!("listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n");
    std::fs::write(&conf, text).unwrap();
    let child = Command::new(mosquitto)
        .arg("-c")
        .arg(conf)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::yield_now();
    }
    Some(Running(child))
}

/// Starts the server, and waits until it is connected to the broker.
fn serve(folder: &Path, port: u16) -> Running {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("haltwise"))
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .args("serve rule.json --store store --audit 1 --listen 127.0.0.1:0".split(' '))
        .args(["--mqtt", &format!("mqtt://127.0.0.1:{port}")])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("connected to the broker") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0);
    }
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    Running(child)
}

fn publish(port: u16, topic: &str, message: &str) {
    let sent = Command::new(program("mosquitto_pub").expect("mosquitto-clients"))
        .args([
            "-p",
            &port.to_string(),
            "-q",
            "1",
            "-t",
            topic,
            "-m",
            message,
        ])
        .status()
        .unwrap();
    assert!(sent.success());
}

/// Listens to the answers.
struct Answers {
    _listening: Running,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Answers {
    fn listen(port: u16) -> Self {
        let mut child = Command::new(program("mosquitto_sub").expect("mosquitto-clients"))
            .args([
                "-p",
                &port.to_string(),
                "-q",
                "1",
                "-t",
                "haltwise/rule/out",
            ])
            .args(["-t", "test/ready"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A retained message comes as soon as it listens.
        let retained = Command::new(program("mosquitto_pub").unwrap())
            .args([
                "-p",
                &port.to_string(),
                "-r",
                "-t",
                "test/ready",
                "-m",
                "ready",
            ])
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

#[test]
fn sensors_speak_mqtt() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let port = free_port();
    let Some(_broker) = broker(port, folder) else {
        return;
    };
    write_traces(&folder.join("traces.npz"), 4000, 1);
    let words = "calibrate traces.npz --method conditional -o rule.json";
    let made = ran(haltwise().current_dir(folder).args(words.split(' ')));
    assert_eq!(made.code, 0, "{}", made.stderr);
    let server = serve(folder, port);
    let mut answers = Answers::listen(port);
    let step = |id: &str, t: u32, score: f64, class: u32| {
        json!({"id": id, "t": t, "score": score, "prediction": class}).to_string()
    };
    publish(port, "haltwise/rule/in", &step("a", 1, 0.1, 0));
    publish(port, "haltwise/rule/in", &step("a", 1, 0.1, 0));
    publish(port, "haltwise/rule/in", &step("a", 2, 1.0, 0));
    let halt = json!({"id": "a", "t": 2, "reason": "threshold", "audit": true});
    assert_eq!(answers.next(), halt, "the repeated step counts once");
    // Without a number it is not taken.
    publish(port, "haltwise/rule/in", r#"{"id": "b", "score": 0.1}"#);
    assert!(answers.next()["remedy"].as_str().unwrap().contains("twice"));
    let rest = [3, 4, 5].map(|t| step("a", t, 1.0, 1)).join("\n");
    publish(port, "haltwise/rule/in", &rest);
    assert_eq!(answers.next(), json!({"id": "a", "t": 5, "audited": true}));
    publish(port, "haltwise/rule/labels", r#"{"id": "a", "label": 1}"#);
    publish(port, "haltwise/rule/labels", r#"{"id": "a", "label": 1}"#);
    assert!(
        answers.next()["error"]
            .as_str()
            .unwrap()
            .contains("waits for a label")
    );
    // The broker keeps what comes while the server is away.
    drop(server);
    publish(port, "haltwise/rule/in", &step("c", 1, 0.1, 0));
    publish(port, "haltwise/rule/in", &step("c", 2, 1.0, 0));
    let _server = serve(folder, port);
    assert_eq!(answers.next()["id"], "c");
}
