//! Other promises than the plain one, through the binary: columns of text files, the three
//! verbs, reports, and what is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use common::{Ran, haltwise, ran};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Lines of sequences that are right more often the surer they are.
fn lines(n: usize, seed: u64, labels: bool) -> String {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut text = String::new();
    for i in 0..n {
        let sure: f64 = rng.random();
        let wrong = rng.random::<f64>() > 0.8 + 0.4 * sure;
        let early = u32::from(!wrong);
        let site = ["north", "south"][i % 2];
        let losses = if wrong {
            [0.6, 0.6, 0.3, 0.0]
        } else {
            [0.0; 4]
        };
        let mut line = json!({
            "id": format!("s{seed}-{i}"), "predictions": [early, early, early, 1],
            "scores": [0.7 * sure, 0.8 * sure, 0.9 * sure, sure],
            "losses": losses,
            "site": site, "patient": i / 4, "w": 1.0 - 0.5 * (i % 2) as f64,
            "tokens": [1, 1, 1, 50],
        });
        if labels {
            line["label"] = 1.into();
        }
        writeln!(text, "{line}").unwrap();
    }
    text
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.jsonl"), lines(3000, 1, true)).unwrap();
    fs::write(folder.path().join("new.jsonl"), lines(1000, 2, true)).unwrap();
    fs::write(folder.path().join("bare.jsonl"), lines(3000, 1, false)).unwrap();
    folder
}

fn run(folder: &Path, words: &str) -> Ran {
    let mut command = haltwise();
    command.current_dir(folder).args(words.split_whitespace());
    ran(&mut command)
}

fn done(folder: &Path, words: &str) -> String {
    let run = run(folder, words);
    assert_eq!(run.code, 0, "{words}: {}", run.stderr);
    run.stdout
}

#[test]
fn every_promise_says_what_it_is_and_for_whom() {
    let folder = folder();
    let folder = folder.path();
    for (options, expected) in [
        (
            "--loss disagreement",
            "the early answer differs from the full one for at most 10%",
        ),
        (
            "--loss given",
            "the mean loss of stopping early is at most 0.1 over the sequences",
        ),
        ("--by site", "and for every site (north, south)"),
        ("--unit patient", "each patient counted once"),
        ("--weight w --weight-bound 1", "in the mix that w declares"),
        ("--cost tokens", "at a mean cost of"),
        ("--cost 1,1,1,50", "at a mean cost of"),
        (
            "--method conditional --by site --loss given",
            "for every site",
        ),
    ] {
        // The same traces are tested for another promise.
        let _ = fs::remove_file(folder.join("rule.json"));
        let said = done(folder, &format!("calibrate t.jsonl {options} -o rule.json"));
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(expected), "{options}: {words}");
        let inspected = done(folder, "inspect rule.json");
        assert!(inspected.contains("reads"), "{inspected}");
        let found: Value =
            serde_json::from_str(&done(folder, "evaluate rule.json new.jsonl --json")).unwrap();
        assert!(found["t_avg"].as_f64().unwrap() < 0.9, "{options}: {found}");
    }
}

/// Whatever is promised, a sequence without a label is no evidence about right answers:
/// neither at a planned look nor for candidates that were screened on another set.
#[test]
fn sequences_without_labels_are_refused_as_evidence_at_every_door() {
    let folder = folder();
    let here = folder.path();
    fs::write(here.join("more.jsonl"), lines(40, 3, false)).unwrap();
    for options in [
        "--method conditional --looks 3000,5000",
        "--method marginal --looks 3000,5000",
        "--looks 3000,5000",
        "--promise average --looks 3000,5000",
        "--by site --looks 3000,5000",
        "--unit patient --looks 3000,5000",
        "--weight w --weight-bound 1 --looks 3000,5000",
        "--method conditional --whole",
    ] {
        done(here, &format!("screen t.jsonl {options} -o c.json"));
        let words = "evidence c.json more.jsonl -o more.json";
        let ran = run(here, words);
        assert_eq!(ran.code, 1, "{options}: {}", ran.stderr);
        let said = "a sequence has no label, so its gap is unknown";
        assert!(ran.stderr.contains(said), "{options}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("more.jsonl"),
            "{options}: {}",
            ran.stderr
        );
        assert!(!here.join("more.json").exists(), "{options}");
    }
}

#[test]
fn without_a_label_nothing_about_accuracy_is_said() {
    let folder = folder();
    let folder = folder.path();
    let refused = run(folder, "calibrate bare.jsonl -o rule.json").stderr;
    assert!(
        refused.contains("the loss disagreement needs none"),
        "{refused}"
    );
    done(
        folder,
        "calibrate bare.jsonl --loss disagreement -o rule.json",
    );
    let rule: Value = serde_json::from_slice(&fs::read(folder.join("rule.json")).unwrap()).unwrap();
    assert_eq!(rule["terms"]["loss"], "disagreement");
    assert!(rule.get("late_accuracy").is_none());
    let said = done(folder, "evaluate rule.json bare.jsonl");
    assert!(!said.contains("accuracy"), "{said}");
    let said = done(folder, "evaluate rule.json new.jsonl");
    assert!(said.contains("accuracy, stopping early"), "{said}");
}

#[test]
fn three_verbs_give_the_rule_of_one() {
    let folder = folder();
    let folder = folder.path();
    let text = fs::read_to_string(folder.join("t.jsonl")).unwrap();
    let all: Vec<&str> = text.lines().collect();
    // Cut between two patients.
    fs::write(folder.join("a.jsonl"), all[..1200].join("\n")).unwrap();
    fs::write(folder.join("b.jsonl"), all[1200..].join("\n")).unwrap();
    for options in [
        "--by site --loss given",
        "--unit patient",
        "--weight w --weight-bound 1",
    ] {
        for rule in ["whole.json", "parts.json"] {
            let _ = fs::remove_file(folder.join(rule));
        }
        done(
            folder,
            &format!("calibrate t.jsonl {options} -o whole.json"),
        );
        done(
            folder,
            &format!("screen t.jsonl {options} -o candidates.json"),
        );
        for part in ["a", "b"] {
            done(
                folder,
                &format!("evidence candidates.json {part}.jsonl -o {part}.json"),
            );
        }
        done(folder, "certify a.json b.json -o parts.json");
        let read = |name: &str| fs::read(folder.join(name)).unwrap();
        assert!(read("whole.json") == read("parts.json"), "{options}");
    }
}

#[test]
fn a_report_has_a_panel_for_groups_and_the_cost_beside_the_steps() {
    let folder = folder();
    let folder = folder.path();
    done(
        folder,
        "calibrate t.jsonl --by site --cost tokens -o rule.json",
    );
    let said = done(folder, "evaluate rule.json new.jsonl --report report.html");
    for expected in ["For every site", "north", "south", "mean cost"] {
        assert!(said.contains(expected), "{said}");
    }
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    for expected in ["For every site", "Mean cost", "Every group as a table"] {
        assert!(page.contains(expected), "{expected}");
    }
}

#[test]
fn a_forecast_is_a_table_a_figure_and_a_sentence() {
    let folder = folder();
    let folder = folder.path();
    fs::write(folder.join("pilot.jsonl"), lines(300, 3, true)).unwrap();
    let said = done(
        folder,
        "forecast pilot.jsonl --sizes 200,1000 --figure f.svg",
    );
    assert!(said.contains("traces expect to read"), "{said}");
    assert!(said.contains("disagreement, no labels"), "{said}");
    assert!(
        fs::read_to_string(folder.join("f.svg"))
            .unwrap()
            .contains("</svg>")
    );
    let found = done(folder, "forecast pilot.jsonl --sizes 1000 --json");
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["pilot"], 300);
    let size = &found["forecasts"][0]["sizes"][0];
    assert_eq!(
        (&size["traces"], &size["certified"]),
        (&1000.into(), &1.0.into())
    );
    fs::write(folder.join("bare.jsonl"), lines(300, 3, false)).unwrap();
    let said = done(folder, "forecast bare.jsonl --sizes 500");
    assert!(!said.contains("with labels"), "{said}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_a_remedy() {
    let folder = folder();
    let folder = folder.path();
    for (options, expected) in [
        ("--by ward", "there is no field \"ward\""),
        ("--weight w", "--weight needs --weight-bound"),
        ("--weight w --weight-bound 0.7", "above the bound 0.7"),
        ("--loss absolute", "--loss needs --scale"),
        ("--scale 2", "--scale goes with the loss absolute only"),
        ("--cost 1,-2", "--cost: costs are numbers of at least 0"),
        (
            "--cost tokens --method marginal",
            "--cost goes with the method adaptive only",
        ),
        (
            "--loss given --method conditional --screen-by p-value",
            "--screen-by p-value goes",
        ),
        (
            "--by label",
            "all sequences have the same value in the column `label`",
        ),
    ] {
        let run = run(folder, &format!("calibrate t.jsonl {options} -o rule.json"));
        assert_ne!(run.code, 0, "{options}");
        assert!(run.stderr.contains(expected), "{options}: {}", run.stderr);
    }
}
