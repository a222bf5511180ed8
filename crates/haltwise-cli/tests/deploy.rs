//! The files in `deploy/` start the command that there is. (`balanced.rs` runs the one for nginx.)
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use common::serving::{Server, folder, until};
use common::signal;

/// Starts a server with these words after `haltwise`, but a rule, a store and a port of the test's.
/// It gets ready, reads the rule again when it is told to, and ends well.
fn starts_reloads_and_ends(words: &str, own: [(&str, &str); 3]) {
    let folder = folder();
    let mut words = words.to_owned();
    for (theirs, ours) in own {
        assert_eq!(words.matches(theirs).count(), 1, "{theirs} in {words}");
        words = words.replace(theirs, ours);
    }
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("haltwise"))
        .args(words.split_whitespace())
        .current_dir(folder.path())
        .env("HALTWISE_TOKEN", "secret")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = |words: &str| -> String {
        let mut lines = lines.by_ref().map(Result::unwrap);
        lines
            .find(|line| line.contains(words))
            .unwrap_or_else(|| panic!("{words}"))
    };
    let line = said("How it goes: http://");
    let address = line.split("http://").nth(1).unwrap();
    let mut server = Server {
        child,
        address: address.split('/').next().unwrap().to_owned(),
        token: Some("secret"),
    };
    // A probe has no token, and addresses the server by its number.
    until("it is not ready", || {
        let ready = server.ask_with("GET", "/ready", "", "");
        ready.is_some_and(|ready| ready.status == 200)
    });
    assert_eq!(server.get("/rule/status").status, 200);
    signal(&server.child, "-HUP");
    said("has not changed");
    signal(&server.child, "-TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_unit_of_systemd_starts_a_server() {
    let unit = include_str!("../../../deploy/haltwise.service").replace("\\\n", " ");
    let words = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/haltwise "));
    starts_reloads_and_ends(
        words.unwrap(),
        [
            ("/etc/haltwise/rule.json", "rule.json"),
            ("/var/lib/haltwise", "store"),
            ("127.0.0.1:7070", "127.0.0.1:0"),
        ],
    );
    assert!(unit.contains("\nExecReload=/bin/kill -HUP $MAINPID\n"));
    // A disk may be full for longer than a few starts take.
    let (of_unit, of_service) = unit.split_once("\n[Service]\n").unwrap();
    assert!(of_unit.contains("\nStartLimitIntervalSec=0\n"));
    assert!(of_service.contains("\nRestart=on-failure\n"));
}

#[test]
fn the_pods_of_kubernetes_start_a_server() {
    let manifest = include_str!("../../../deploy/kubernetes.yaml");
    let from = manifest.split_once("args:\n").unwrap().1;
    let words = from
        .lines()
        .map_while(|line| line.trim().strip_prefix("- "));
    starts_reloads_and_ends(
        &words.collect::<Vec<_>>().join(" "),
        [
            ("/rules/rule.json", "rule.json"),
            ("=/store", "=store"),
            ("0.0.0.0:7070", "127.0.0.1:0"),
        ],
    );
    // A pod whose disk is full must not be killed for that: only what it serves is held back.
    for (probe, path) in [
        ("livenessProbe", "/health"),
        ("startupProbe", "/health"),
        ("readinessProbe", "/ready"),
    ] {
        let asked = manifest.split_once(&format!("{probe}:\n")).unwrap().1;
        let asked = asked.lines().find(|line| line.contains("httpGet")).unwrap();
        assert!(
            asked.contains(&format!("path: {path}, port: http")),
            "{probe}"
        );
    }
}
