//! What the end-to-end tests share.
#![allow(dead_code, unreachable_pub, unused_imports)]

#[path = "../../../haltwise-io/tests/common/mod.rs"]
mod data;
pub mod proxy;
pub mod server;
pub mod serving;
pub mod thinker;
pub mod voter;

pub use data::data_folder;

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Child;

use assert_cmd::Command;
use haltwise::Sequence;
use haltwise::simulate::{Atom, Process};
use haltwise_io::{TraceWriter, WriteOptions};
use serde_json::Value;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

pub fn haltwise() -> Command {
    let mut command = Command::cargo_bin("haltwise").unwrap();
    command.env("NO_COLOR", "1");
    command
}

/// What a run printed and how it ended.
pub struct Ran {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Ran {
    /// Checks that these words are on standard error.
    #[track_caller]
    pub fn complains(&self, words: &str) {
        assert!(
            self.stderr.contains(words),
            "no {words:?} in: {}",
            self.stderr
        );
    }

    /// Checks that these words are on standard output.
    #[track_caller]
    pub fn says(&self, words: &str) {
        assert!(
            self.stdout.contains(words),
            "no {words:?} in: {}",
            self.stdout
        );
    }
}

pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code().unwrap(),
    }
}

/// The lines of a text, each a JSON value.
pub fn json_lines(text: &str) -> Vec<Value> {
    let parse = |line| serde_json::from_str(line).unwrap();
    text.lines().map(parse).collect()
}

/// Sends a signal to a process.
pub fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = std::process::Command::new("kill")
        .args([name, &id])
        .status();
    assert!(sent.unwrap().success());
}

/// Writes traces of five steps that can be halted from the second on.
pub fn write_traces(path: &Path, n: usize, seed: u64) {
    let atom = |score, gap| Atom::new(score, 1.0, gap).unwrap();
    let mut steps = vec![vec![atom(0.3, 0.7), atom(0.6, 0.03)]; 5];
    steps[0] = vec![atom(0.3, 0.7), atom(0.9, 0.3)];
    let drawn = Process::new("test", steps).draw(n, seed);
    let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
    for i in 0..drawn.len() {
        let right = drawn.correct(i).unwrap();
        let predictions: Vec<u32> = right.iter().map(|&c| c.into()).collect();
        let id = format!("s{i}");
        let row = Sequence {
            id: Some(&id),
            label: Some(1),
            predictions: Some(&predictions),
            scores: Some(&drawn.scores(i).unwrap()),
            ..Sequence::default()
        };
        writer.write(row).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes a zip archive.
pub fn write_zip(path: &Path, entries: &[(&str, &[u8])]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    for (name, bytes) in entries {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Writes arrays of integers as NumPy does.
pub fn write_npz(path: &Path, arrays: &[(&str, &[usize], &[i64])]) {
    let npy = |shape: &[usize], values: &[i64]| {
        let lengths: Vec<String> = shape.iter().map(|n| format!("{n},")).collect();
        let dict = format!(
            "{{'descr': '<i8', 'fortran_order': False, 'shape': ({}), }}",
            lengths.concat()
        );
        let header = format!("{dict:<117}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
        bytes
    };
    let files: Vec<(String, Vec<u8>)> = arrays
        .iter()
        .map(|(name, shape, values)| (format!("{name}.npy"), npy(shape, values)))
        .collect();
    let entries: Vec<(&str, &[u8])> = files.iter().map(|(n, b)| (n.as_str(), &b[..])).collect();
    write_zip(path, &entries);
}
