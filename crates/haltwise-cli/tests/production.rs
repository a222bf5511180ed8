//! The commands of docs/production.md, run as they stand there, one after the other.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use common::serving::stream;
use common::write_traces;

/// The commands of a page.
fn commands(page: &str) -> String {
    let mut script = String::new();
    let blocks = page.split("```sh\n").skip(1);
    for block in blocks {
        script += block.split("```").next().unwrap();
    }
    script
}

/// Streams for a file, and their labels for another: one in `bad` goes wrong early.
fn write_streams(folder: &Path, name: &str, streams: usize, bad: usize) {
    let (mut lines, mut labels) = (String::new(), String::new());
    for i in 0..streams {
        let id = format!("{name}-{i}");
        lines += &stream(&id, u32::from(i % bad != 0), 1);
        writeln!(labels, "{{\"id\":\"{id}\",\"label\":1}}").unwrap();
    }
    std::fs::write(folder.join(format!("{name}.jsonl")), lines).unwrap();
    let labelled = if name == "live" {
        "labels".into()
    } else {
        format!("{name}-labels")
    };
    std::fs::write(folder.join(format!("{labelled}.jsonl")), labels).unwrap();
}

#[test]
fn the_page_works_as_it_says() {
    if Command::new("curl").arg("--version").output().is_err() {
        assert!(
            std::env::var_os("HALTWISE_REQUIRE_CURL").is_none(),
            "no curl"
        );
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED docs/production.md: curl is not installed"
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_traces(&folder.join("traces.parquet"), 4000, 1);
    write_streams(folder, "live", 2000, 50);
    write_streams(folder, "drifted", 1000, 2);
    write_streams(folder, "since", 4000, 1000);
    let page = include_str!("../../../docs/production.md");
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let script = commands(page)
        .replace("127.0.0.1:7070", &format!("127.0.0.1:{port}"))
        .replace(
            "haltwise serve",
            &format!("haltwise serve --listen 127.0.0.1:{port}"),
        );
    // The first that fails ends it, and the server with it.
    let script = format!("set -e\ntrap 'kill -TERM $!; wait' EXIT\n{script}");
    let binary = assert_cmd::cargo::cargo_bin("haltwise");
    let path = format!(
        "{}:{}",
        binary.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}{errors}");
    let (before, after) = said
        .split_once("Alarm: the promise does not hold")
        .expect(&said);
    assert!(
        before.contains("No alarm") || before.contains("All clear"),
        "{before}"
    );
    assert!(after.contains("{\"renewal\":2}"), "{after}");
    assert!(folder.join("new.json").is_file());
}
