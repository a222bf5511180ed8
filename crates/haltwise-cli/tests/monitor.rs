//! `haltwise monitor`, end to end: alarms where a source drifts, and only there.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::{haltwise, ran, write_traces};
use haltwise::Sequence;
use haltwise_io::{Columns, TraceWriter, WriteOptions, visit_traces};
use serde_json::Value;
use tempfile::TempDir;

/// A folder with a rule and audits of the source that it was made for.
fn folder(method: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_traces(&folder.path().join("traces.npz"), 4000, 1);
    write_traces(&folder.path().join("good.parquet"), 3000, 2);
    let words = format!("calibrate traces.npz --method {method} -o rule.json");
    done(folder.path(), &words);
    folder
}

fn run(folder: &Path, words: &str) -> common::Ran {
    ran(haltwise()
        .current_dir(folder)
        .args(words.split_whitespace()))
}

fn done(folder: &Path, words: &str) -> String {
    let ran = run(folder, words);
    assert_eq!(ran.code, 0, "{words}: {}", ran.stderr);
    ran.stdout
}

fn json(folder: &Path, words: &str) -> Value {
    serde_json::from_str(&done(folder, &format!("{words} --json"))).unwrap()
}

/// The audits of a source that has changed: early predictions are of no use.
fn write_drifted(folder: &Path, from: &str, to: &str) {
    let mut writer = TraceWriter::create(folder.join(to), WriteOptions::default()).unwrap();
    let mut i = 0;
    visit_traces(
        &[folder.join(from)],
        &Columns::default(),
        &mut |_, _| {},
        &mut |trace| {
            i += 1;
            let mut predictions = trace.predictions().to_vec();
            let last = predictions.len() - 1;
            if i % 3 == 0 {
                predictions[..last].fill(0);
                predictions[last] = trace.label().unwrap();
            }
            let id = format!("drifted-{i}");
            let row = Sequence {
                id: Some(&id),
                predictions: Some(&predictions),
                ..trace.given()
            };
            writer.write(row).map_err(|e| e.to_string())
        },
    )
    .unwrap();
    writer.finish().unwrap();
}

#[test]
fn a_source_that_drifts_is_found_and_one_that_does_not_is_left_alone() {
    for method in ["adaptive", "conditional"] {
        let folder = folder(method);
        let folder = folder.path();
        write_drifted(folder, "good.parquet", "bad.parquet");
        let good = json(folder, "monitor rule.json good.parquet");
        assert_eq!(
            (&good["audits"], &good["alarm"]),
            (&3000.into(), &false.into())
        );
        assert_eq!(good["alarm_at"], Value::Null);
        assert_eq!(good["labels_wanted"], serde_json::json!([]));
        assert!(good["e_value"].as_f64().unwrap() < 1.0);

        let bad = json(folder, "monitor rule.json good.parquet bad.parquet");
        assert_eq!(bad["alarm"], true, "{method}");
        let at = bad["alarm_at"].as_u64().unwrap();
        assert!((3001..3500).contains(&at), "{method}: {at}");
        let since = bad["since"].as_u64().unwrap();
        assert!((2801..3300).contains(&since), "{method}: {since}");
        let ends = &bad["interval"];
        let (low, gap, high) = (&ends[0], &bad["gap"], &ends[1]);
        let order = [low, gap, high].map(|v| v.as_f64().unwrap());
        assert!(order[0] > 0.1 && order.is_sorted(), "{order:?}");
        assert!(bad["worst_step"].as_u64().unwrap() >= 2);

        let words = done(folder, "monitor rule.json good.parquet bad.parquet");
        let expected = format!("It was raised at audit {}", at / 1000);
        assert!(words.contains(&expected), "{words}");
        assert!(words.contains("Alarm: the promise does not hold any more"));
        let words = done(folder, "monitor rule.json good.parquet");
        assert!(!words.contains("Alarm"), "{words}");
    }
}

#[test]
fn what_cannot_be_watched_is_refused_with_a_remedy() {
    let folder = folder("screen-only");
    let folder = folder.path();
    let message = run(folder, "monitor rule.json good.parquet").stderr;
    assert!(
        message.contains("no promise to watch: the rule was only screened"),
        "{message}"
    );
    let ran = run(folder, "monitor rule.json good.parquet --delta 1.5");
    assert_eq!(ran.code, 2);
    ran.complains("--delta");
}

#[test]
fn traces_that_a_rule_was_made_from_are_called_out() {
    let folder = folder("adaptive");
    let ran = run(folder.path(), "monitor rule.json traces.npz");
    assert_eq!(ran.code, 0);
    ran.complains("they are no audits");
    let ran = run(folder.path(), "monitor rule.json nothing.parquet");
    assert_eq!(ran.code, 1);
    ran.complains("nothing.parquet: ");
}

#[test]
fn the_help_says_when_the_test_may_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let help = done(folder.path(), "monitor --help");
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("only when every unit in the files is complete"),
        "{help}"
    );
}
