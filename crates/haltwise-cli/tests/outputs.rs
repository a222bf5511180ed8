//! Where results go: nothing that is read is lost, nothing is done in vain.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{haltwise, ran, write_traces};
use tempfile::TempDir;

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    write_traces(&folder.path().join("traces.parquet"), 2_000, 1);
    for (verb, output) in [("calibrate", "rule.json"), ("screen", "candidates.json")] {
        let args = [verb, "traces.parquet", "-o", output];
        let made = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(made.code, 0, "{}", made.stderr);
    }
    folder
}

#[test]
fn an_output_that_is_read_too_is_refused_and_kept() {
    let folder = folder();
    for (command, kept) in [
        (
            "calibrate traces.parquet -o traces.parquet",
            "traces.parquet",
        ),
        ("calibrate *.parquet -o ./traces.parquet", "traces.parquet"),
        ("screen traces.parquet -o traces.parquet", "traces.parquet"),
        (
            "evaluate rule.json traces.parquet --report traces.parquet",
            "traces.parquet",
        ),
        (
            "evaluate rule.json traces.parquet --report rule.json",
            "rule.json",
        ),
        (
            "evidence candidates.json traces.parquet -o candidates.json",
            "candidates.json",
        ),
    ] {
        let before = fs::read(folder.path().join(kept)).unwrap();
        let run = ran(haltwise().current_dir(&folder).args(command.split(' ')));
        assert_eq!(run.code, 1, "{command}: {}", run.stdout);
        assert!(
            run.stderr.contains("give another output"),
            "{command}: {}",
            run.stderr
        );
        assert_eq!(
            fs::read(folder.path().join(kept)).unwrap(),
            before,
            "{command}"
        );
    }
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_training() {
    let folder = folder();
    for (output, expected) in [
        ("nowhere/m.safetensors", "the folder nowhere does not exist"),
        (".", "it is a folder"),
        (
            "rule.json/m.safetensors",
            "rule.json is a file, not a folder",
        ),
    ] {
        // This many epochs would take hours.
        let lstm = ["train", "PenDigits", "--model", "lstm"];
        let args = [&lstm[..], &["--patience", "100000", "-o", output]].concat();
        let run = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(run.code, 1, "{}", run.stdout);
        run.complains(expected);
    }
}

#[test]
fn the_work_is_finished_when_the_reader_has_gone() {
    let folder = folder();
    let args = [
        "train",
        "PenDigits",
        "--model",
        "lstm",
        "--max-epochs",
        "3",
        "--json",
    ];
    let mut child = Command::new(env!("CARGO_BIN_EXE_haltwise"))
        .current_dir(&folder)
        .args(args)
        .args(["-o", "m.safetensors"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert!(folder.path().join("m.safetensors").exists());
}
