//! `haltwise decide` through a pipe: observations per second, and the memory
//! that a million open streams take.

#![allow(clippy::expect_used)]

mod common;

use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use common::write_rule;

/// Sends `lines` to the command and returns the seconds it took and, where the
/// system tells, its peak memory in MiB.
fn run(rule: &Path, streams: usize, lines: usize) -> (f64, Option<f64>) {
    let mut input = Vec::new();
    for i in 0..lines {
        writeln!(input, "{{\"id\":\"stream-{}\",\"score\":0.1}}", i % streams).expect("memory");
    }
    let start = Instant::now();
    let mut child = Command::new(env!("CARGO_BIN_EXE_haltwise"))
        .arg("decide")
        .arg(rule)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary");
    let mut pipe = BufWriter::new(child.stdin.take().expect("piped"));
    pipe.write_all(&input).expect("open");
    pipe.flush().expect("open");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok();
    drop(pipe);
    assert!(child.wait().expect("ran").success());
    let seconds = start.elapsed().as_secs_f64();
    let peak = status.and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("VmHWM"))?;
        line.split_whitespace().nth(1)?.parse::<f64>().ok()
    });
    (seconds, peak.map(|kib| kib / 1024.0))
}

fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    let rule = folder.path().join("rule.json");
    write_rule(&rule);
    let lines = 4_000_000;
    let best = (0..3)
        .map(|_| run(&rule, 1_000, lines).0)
        .fold(f64::INFINITY, f64::min);
    println!(
        "decide: {:.2} million observations a second",
        lines as f64 / best / 1e6
    );
    let (seconds, peak) = run(&rule, 1_000_000, 2_000_000);
    println!(
        "decide, a million open streams: {:.2} million observations a second, {:.0} MiB at the peak",
        2.0 / seconds,
        peak.unwrap_or(f64::NAN)
    );
}
