//! The files in `deploy/` start the command that there is. (`balanced.rs` runs the one for nginx.)
#![allow(clippy::unwrap_used)]

mod common;
use common::*;

/// The words after `haltwise`, in which the rule is a file that is not there.
fn starts_up_to_the_rule(words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let words = words.iter().map(|word| match *word {
        rule if rule.ends_with("rule.json") => "missing.json",
        word => word,
    });
    let mut command = haltwise();
    let command = command
        .current_dir(folder.path())
        .env("HALTWISE_TOKEN", "secret")
        .args(words);
    let found = ran(command);
    assert_eq!(found.code, 1, "{}", found.stderr);
    assert!(found.stderr.contains("missing.json"), "{}", found.stderr);
}

#[test]
fn the_unit_of_systemd_starts_a_server() {
    let unit = include_str!("../../../deploy/haltwise.service").replace("\\\n", " ");
    let starts = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let words: Vec<&str> = starts.unwrap().split_whitespace().collect();
    assert_eq!(words[..2], ["/usr/local/bin/haltwise", "serve"]);
    starts_up_to_the_rule(&words[1..]);
    // SIGHUP reads the rule again.
    assert!(unit.contains("\nExecReload=/bin/kill -HUP $MAINPID\n"));
}

#[test]
fn the_pods_of_kubernetes_start_a_server() {
    let manifest = include_str!("../../../deploy/kubernetes.yaml");
    let from = manifest.split_once("args:\n").unwrap().1;
    let words = from
        .lines()
        .map_while(|line| line.trim().strip_prefix("- "));
    starts_up_to_the_rule(&words.collect::<Vec<_>>());
    for probe in ["/health", "/ready"] {
        assert!(manifest.contains(&format!("path: {probe}, port: http")));
    }
}
