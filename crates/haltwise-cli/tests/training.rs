//! The prefix classifier on the command line: trained, scored, looked into.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{Ran, haltwise, json_lines, ran};
use haltwise_io::{ModelTexts, RULE_IN_MODEL, with_model_texts};
use serde_json::Value;
use tempfile::TempDir;

/// Series of 12 time points that drift up or down, in UCR's text. NaN pads every fifth to 9.
fn write_series(path: &Path, n: usize) {
    let mut text = String::new();
    for i in 0..n {
        let (label, direction) = if i % 2 == 0 {
            ("up", 1.0)
        } else {
            ("down", -1.0)
        };
        text += label;
        for t in 0..12_usize {
            let noise = ((i * 7919 + t * 104_729) % 1_009) as f64 / 1_009.0 - 0.5;
            match i % 5 == 4 && t >= 9 {
                true => text += "\tNaN",
                false => text += &format!("\t{:.4}", direction * t as f64 / 8.0 + 2.0 * noise),
            }
        }
        text.push('\n');
    }
    fs::write(path, text).unwrap();
}

fn folder(n: usize) -> TempDir {
    let folder = TempDir::new().unwrap();
    write_series(&folder.path().join("drift.tsv"), n);
    folder
}

fn go(folder: &TempDir, line: &str) -> Ran {
    ran(haltwise().current_dir(folder).args(line.split(' ')))
}

#[track_caller]
fn done(folder: &TempDir, line: &str) -> Ran {
    let run = go(folder, line);
    assert_eq!(run.code, 0, "{line}: {}", run.stderr);
    run
}

#[track_caller]
fn refused(folder: &TempDir, line: &str, code: i32, words: &str) {
    let run = go(folder, line);
    assert_eq!(run.code, code, "{line}: {}", run.stdout);
    run.complains(words);
}

const TRAIN: &str = "train drift.tsv --hold-out 0.5 -o model.safetensors";

#[test]
fn from_series_to_a_rule_for_which_all_held_out_sequences_certify() {
    let folder = folder(1_200);
    let run = done(&folder, &format!("{TRAIN} --fit-traces fit.parquet"));
    run.says("Trained on 600 sequences, to answer at 12 checkpoints.");
    run.says("each left out: fit.parquet.");
    let scored = done(
        &folder,
        "score model.safetensors drift.tsv --hold-out 0.5 -o new.parquet",
    );
    scored.says("Scored 600 sequences of up to 12 steps");
    assert_eq!(scored.stderr, "");
    done(
        &folder,
        "calibrate new.parquet --fit fit.parquet -o rule.json",
    );
    let rule: Value =
        serde_json::from_str(&done(&folder, "inspect rule.json --json").stdout).unwrap();
    assert_eq!(rule["fitted_on"]["sequences"], 600, "{rule}");
    assert_eq!(rule["certified_on"]["sequences"], 600);
    // The score follows from the probabilities, so a live stream needs nothing else.
    let traces: Value =
        serde_json::from_str(&done(&folder, "inspect fit.parquet --json").stdout).unwrap();
    assert_eq!(
        (&traces["sequences"], &traces["probabilities"]),
        (&600.into(), &true.into())
    );
    assert_eq!(traces["shortest"], 9);
    done(&folder, "evaluate rule.json new.parquet");
    // Its costs are time points.
    done(
        &folder,
        "calibrate new.parquet --fit fit.parquet --cost cost -o cheap.json",
    );
}

#[test]
fn a_model_is_described() {
    let folder = folder(300);
    done(&folder, &format!("{TRAIN} --checkpoints 3,6,12"));
    let run = done(&folder, "inspect model.safetensors");
    for words in [
        "prefix classifier, reading 1 number per time point",
        "3, 6, 12",
        "down, up",
        "150 sequences",
        "right, on sequences left out",
    ] {
        run.says(words);
    }
    let model: Value =
        serde_json::from_str(&done(&folder, "inspect model.safetensors --json").stdout).unwrap();
    assert_eq!(model["checkpoints"], serde_json::json!([3, 6, 12]));
    let late = model["training"]["checkpoints"][2]["accuracy"]
        .as_f64()
        .unwrap();
    assert!(late > 0.8, "{late}");
}

#[test]
fn the_same_seed_gives_the_same_bytes_at_any_number_of_threads() {
    let folder = folder(200);
    let train = |name: &str, threads: &str| {
        let args = ["train", "drift.tsv", "--seed", "5", "--json", "-o", name];
        let mut command = haltwise();
        command
            .current_dir(&folder)
            .env("RAYON_NUM_THREADS", threads)
            .args(args);
        let lines = json_lines(&ran(&mut command).stdout);
        (lines, fs::read(folder.path().join(name)).unwrap())
    };
    let one = train("a.safetensors", "1");
    assert_eq!(one, train("b.safetensors", "3"));
    assert_eq!(one.0.len(), 12);
    assert_eq!(
        (&one.0[11]["points"], &one.0[11]["checkpoints"]),
        (&12.into(), &12.into())
    );
}

#[test]
fn options_of_the_other_classifier_are_refused() {
    let folder = folder(40);
    for option in [
        "--hidden 8",
        "--layers 2",
        "--gap-head",
        "--raw",
        "--max-epochs 3",
        "--patience 3",
        "--device cpu",
        "--resume",
    ] {
        let name = option.split(' ').next().unwrap();
        let words = format!("{name} is for the LSTM only: add --model lstm, or leave {name} out");
        refused(&folder, &format!("{TRAIN} {option}"), 2, &words);
    }
    for option in ["--checkpoints 4", "--fit-traces fit.npz"] {
        let name = option.split(' ').next().unwrap();
        let words = format!("leave out {name} or --model lstm");
        refused(
            &folder,
            &format!("{TRAIN} --model lstm {option}"),
            2,
            &words,
        );
    }
    for (checkpoints, words) in [
        ("0", "give at least 1"),
        ("", "give a number such as 12"),
        ("4,x", "time points such as 5,10,20"),
    ] {
        let line: Vec<&str> = TRAIN
            .split(' ')
            .chain(["--checkpoints", checkpoints])
            .collect();
        let run = ran(haltwise().current_dir(&folder).args(line));
        assert_eq!(run.code, 2);
        run.complains(words);
    }
    refused(
        &folder,
        &format!("{TRAIN} --checkpoints 6,4"),
        1,
        "must be rising",
    );
    refused(
        &folder,
        &format!("{TRAIN} --checkpoints 40,50"),
        1,
        "give checkpoints up to 12",
    );
    assert!(!folder.path().join("model.safetensors").exists());
}

#[test]
fn series_that_a_model_cannot_answer_about_are_refused_and_training_series_are_told() {
    let folder = folder(300);
    done(&folder, &format!("{TRAIN} --checkpoints 6,12"));
    fs::write(
        folder.path().join("short.tsv"),
        "up\t1\t2\t3\ndown\t1\t2\tNaN\n",
    )
    .unwrap();
    let line = "score model.safetensors short.tsv -o traces.npz";
    refused(
        &folder,
        line,
        1,
        "sequence 1 has 3 time points, but the model first answers after 6",
    );
    fs::write(
        folder.path().join("three.tsv"),
        "up\t1\t2\ndown\t1\t2\nflat\t1\t1\n",
    )
    .unwrap();
    let line = "score model.safetensors three.tsv -o traces.npz";
    refused(
        &folder,
        line,
        1,
        "the model knows 2 classes, the sequences have 3",
    );
    let line = "score model.safetensors drift.tsv --hold-out 0.5 -o traces.npz";
    refused(
        &folder,
        &format!("{line} --device cuda:1"),
        1,
        "leave out --device cuda:1",
    );
    assert!(!folder.path().join("traces.npz").exists());
    let run = done(
        &folder,
        "score model.safetensors drift.tsv -o all.csv --without-probs",
    );
    run.complains("about 50% of these sequences are, value for value, among those");
    run.says("Scored 300 sequences of up to 2 steps");
}

#[cfg(unix)]
#[test]
fn a_training_that_is_told_to_stop_writes_nothing() {
    use std::io::BufRead;
    let folder = folder(4_000);
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_haltwise"))
            .current_dir(&folder)
            .args(TRAIN.split(' ').chain(["--json"]))
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        common::signal(&child, signal);
        assert!(lines.count() < 11);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains("stopped: no model was written"), "{said}");
        assert!(!folder.path().join("model.safetensors").exists());
    }
}

#[test]
fn a_model_with_a_rule_in_it_is_read_as_both() {
    let folder = folder(1_200);
    done(&folder, &format!("{TRAIN} --fit-traces fit.parquet"));
    done(
        &folder,
        "score model.safetensors drift.tsv --hold-out 0.5 -o new.parquet",
    );
    done(
        &folder,
        "calibrate new.parquet --fit fit.parquet -o rule.json",
    );
    let file = |name: &str| folder.path().join(name);
    let rule = fs::read_to_string(file("rule.json")).unwrap();
    let model = fs::read(file("model.safetensors")).unwrap();
    let texts = ModelTexts::from([(RULE_IN_MODEL.to_owned(), rule)]);
    fs::write(
        file("early.safetensors"),
        with_model_texts(&model, texts).unwrap(),
    )
    .unwrap();

    done(
        &folder,
        "score early.safetensors drift.tsv --hold-out 0.5 -o again.parquet",
    );
    assert_eq!(
        fs::read(file("again.parquet")).unwrap(),
        fs::read(file("new.parquet")).unwrap()
    );
    let one = done(&folder, "evaluate rule.json new.parquet --json").stdout;
    assert_eq!(
        done(&folder, "evaluate early.safetensors new.parquet --json").stdout,
        one
    );
    let run = done(&folder, "inspect early.safetensors");
    run.says("prefix classifier");
    run.says("Halt when the score reaches");
    let words = "it is a model without a rule; name the rule file";
    refused(&folder, "evaluate model.safetensors new.parquet", 1, words);
}
