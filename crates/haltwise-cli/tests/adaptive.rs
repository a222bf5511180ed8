//! The adaptive method and the learned score, from traces to live decisions.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{Ran, haltwise, ran};
use haltwise::Sequence;
use haltwise_io::{TraceWriter, WriteOptions};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tempfile::TempDir;

const STEPS: usize = 12;

/// One sequence: predictions, class probabilities, true class.
struct Drawn {
    predictions: Vec<u32>,
    probs: Vec<f32>,
    label: u32,
}

/// Sequences whose class becomes clear at a step of its own. One in four is
/// hopeless: its probabilities never leave the middle and it is never right.
fn drawn(n: usize, seed: u64) -> Vec<Drawn> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let one = |_| {
        let label = rng.random_range(0..2u32);
        let hopeless = rng.random_range(0..4) == 0;
        let clear = rng.random_range(1..STEPS);
        let (mut predictions, mut probs) = (Vec::new(), Vec::new());
        for t in 0..STEPS {
            let (guess, sure) = match (hopeless, t >= clear) {
                (true, _) => (1 - label, 0.5 + 0.05 * rng.random::<f32>()),
                (false, true) => (label, 0.8 + 0.19 * rng.random::<f32>()),
                (false, false) => (rng.random_range(0..2), 0.55 + 0.3 * rng.random::<f32>()),
            };
            predictions.push(guess);
            let first = if guess == 0 { sure } else { 1.0 - sure };
            probs.extend([first, 1.0 - first]);
        }
        Drawn {
            predictions,
            probs,
            label,
        }
    };
    (0..n).map(one).collect()
}

fn write(path: &Path, sequences: &[Drawn]) {
    let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
    for (i, drawn) in sequences.iter().enumerate() {
        let row = Sequence {
            id: Some(&format!("s{i}")),
            label: Some(drawn.label),
            predictions: Some(&drawn.predictions),
            probs: Some((&drawn.probs, 2)),
            ..Sequence::default()
        };
        writer.write(row).unwrap();
    }
    writer.finish().unwrap();
}

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    write(&folder.path().join("cal.parquet"), &drawn(3_000, 1));
    write(&folder.path().join("fit.parquet"), &drawn(1_000, 2));
    write(&folder.path().join("test.parquet"), &drawn(1_000, 3));
    folder
}

fn run(folder: &TempDir, args: &str) -> Ran {
    let run = ran(haltwise().current_dir(folder).args(args.split(' ')));
    assert_eq!(run.code, 0, "{args}: {}", run.stderr);
    run
}

fn evaluated(folder: &TempDir, rule: &str) -> Value {
    let run = run(folder, &format!("evaluate {rule} test.parquet --json"));
    serde_json::from_str(&run.stdout).unwrap()
}

fn rule(folder: &TempDir, name: &str) -> Value {
    serde_json::from_slice(&fs::read(folder.path().join(name)).unwrap()).unwrap()
}

#[test]
fn it_halts_earlier_than_the_paper_and_keeps_the_promise() {
    let folder = folder();
    run(&folder, "calibrate cal.parquet -o adaptive.json");
    run(
        &folder,
        "calibrate cal.parquet --method conditional -o paper.json",
    );
    let (adaptive, paper) = (
        evaluated(&folder, "adaptive.json"),
        evaluated(&folder, "paper.json"),
    );
    let t_avg = |found: &Value| found["t_avg"].as_f64().unwrap();
    assert!(
        t_avg(&adaptive) < 0.9 * t_avg(&paper),
        "{} {}",
        t_avg(&adaptive),
        t_avg(&paper)
    );
    let steps = adaptive["by_step"].as_array().unwrap();
    let certain = |step: &Value| step["gap_by_interval"][0].as_f64().unwrap_or(0.0);
    assert!(steps.iter().all(|step| certain(step) <= 0.1));
    let rule = rule(&folder, "adaptive.json");
    assert_eq!(rule["method"], "adaptive");
    assert_eq!(rule["promise"], "conditional");
    assert!(rule["score"]["gap"]["weights"].is_array());
}

#[test]
fn a_live_stream_halts_where_its_trace_does() {
    let folder = folder();
    run(&folder, "calibrate cal.parquet --score gap -o rule.json");
    let found = evaluated(&folder, "rule.json");
    let mut input = String::new();
    let sequences = drawn(1_000, 3);
    // Step by step, all streams at once, as they would come.
    for t in 0..STEPS {
        for (i, drawn) in sequences.iter().enumerate() {
            let probs = &drawn.probs[2 * t..2 * t + 2];
            writeln!(input, "{{\"id\": {i}, \"probs\": {probs:?}}}").unwrap();
        }
    }
    let decided = ran(haltwise()
        .current_dir(&folder)
        .args(["decide", "rule.json"])
        .write_stdin(input));
    assert_eq!((decided.code, decided.stderr.as_str()), (0, ""));
    let mut halted = [0_u64; STEPS];
    for line in decided.stdout.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        halted[line["t"].as_u64().unwrap() as usize - 1] += 1;
    }
    let by_step = found["by_step"].as_array().unwrap();
    let expected: Vec<u64> = by_step
        .iter()
        .map(|s| s["halted"].as_u64().unwrap())
        .collect();
    assert_eq!(halted, expected[..]);
}

#[test]
fn a_prediction_that_is_no_class_is_named_as_it_was_given() {
    let folder = folder();
    run(&folder, "calibrate cal.parquet --score gap -o rule.json");
    for (given, expected) in [
        ("\"cat\"", "the prediction \"cat\" is none of the 2 classes"),
        ("-3", "the prediction -3 is none of the 2 classes"),
        ("1.5", "the prediction 1.5 is none of the 2 classes"),
        ("[1]", "the prediction [1] is neither a number nor a string"),
    ] {
        let line = format!("{{\"id\": 1, \"probs\": [0.5, 0.5], \"prediction\": {given}}}");
        let decided = ran(haltwise()
            .current_dir(&folder)
            .args(["decide", "rule.json"])
            .write_stdin(line));
        assert_eq!(decided.code, 1);
        decided.complains(expected);
    }
}

#[test]
fn fitting_traces_may_be_given() {
    let folder = folder();
    run(
        &folder,
        "calibrate --fit fit.parquet cal.parquet -o rule.json",
    );
    let rule = rule(&folder, "rule.json");
    assert_eq!(rule["fitted_on"]["sequences"], 1_000);
    assert_eq!(rule["certified_on"]["sequences"], 3_000);
    assert_eq!(rule["split"], Value::Null);
}

#[test]
fn any_method_can_judge_any_score() {
    let folder = folder();
    for method in ["adaptive", "marginal", "conditional"] {
        for score in ["max-probability", "margin", "gap"] {
            let name = &format!("{method}-{score}.json");
            run(
                &folder,
                &format!("calibrate cal.parquet --method {method} --score {score} -o {name}"),
            );
            let rule = rule(&folder, name);
            assert_eq!(rule["method"], method);
            match score {
                "gap" => assert!(rule["score"]["gap"].is_object() && rule["split"].is_object()),
                plain => assert_eq!(rule["score"], plain),
            }
            evaluated(&folder, name);
        }
    }
    let args = "calibrate cal.parquet --score confidence -o rule.json";
    let refused = ran(haltwise().current_dir(&folder).args(args.split(' ')));
    assert_eq!(refused.code, 1);
    refused.complains("\"score\" is needed");
}

#[test]
fn any_thread_count_writes_the_same_bytes() {
    let folder = folder();
    let bytes = |threads: &str| {
        let args = "calibrate cal.parquet -o rule.json".split(' ');
        let command = &mut haltwise();
        let run = ran(command
            .current_dir(&folder)
            .env("RAYON_NUM_THREADS", threads)
            .args(args));
        assert_eq!(run.code, 0, "{}", run.stderr);
        fs::read(folder.path().join("rule.json")).unwrap()
    };
    assert_eq!(bytes("1"), bytes("3"));
}

#[test]
fn a_rule_whose_record_was_changed_is_refused() {
    let folder = folder();
    run(&folder, "calibrate cal.parquet -o rule.json");
    let sound = rule(&folder, "rule.json");
    let refusal = |change: &dyn Fn(&mut Value)| {
        let mut forged = sound.clone();
        change(&mut forged);
        fs::write(folder.path().join("forged.json"), forged.to_string()).unwrap();
        let run = ran(haltwise()
            .current_dir(&folder)
            .args(["inspect", "forged.json"]));
        assert_eq!(run.code, 1, "{}", run.stdout);
        run.stderr
    };
    let shares = refusal(&|rule| rule["families"][0]["share"] = 0.9.into());
    assert!(shares.contains("spend more than delta"), "{shares}");
    let opens = refusal(&|rule| rule["thresholds"][0] = 0.0.into());
    assert!(
        opens.contains("not those of the tests that passed"),
        "{opens}"
    );
    let chosen = refusal(&|rule| rule["chosen"] = 999.into());
    assert!(chosen.contains("did not pass"), "{chosen}");
    let weights = refusal(&|rule| {
        rule["score"]["gap"]["weights"]
            .as_array_mut()
            .unwrap()
            .pop();
    });
    assert!(weights.contains("weights"), "{weights}");
    // Values that say nothing by themselves are held by the seal.
    let last = sound["thresholds"].as_array().unwrap().len() - 2;
    let later = refusal(&|rule| rule["thresholds"][last] = 0.0625.into());
    assert!(later.contains("not those that were certified"), "{later}");
    let weight = refusal(&|rule| rule["score"]["gap"]["weights"][0] = 0.125.into());
    assert!(weight.contains("not those that were certified"), "{weight}");
}
