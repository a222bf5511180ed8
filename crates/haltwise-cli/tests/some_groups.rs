//! A rule that halts some groups and reads the others to their ends, through the binary, the
//! server and C.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use common::{Ran, haltwise, json_lines, ran};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Sequences that are right from the second step on. One in seventy-five is of a site that is
/// too small to certify anything.
fn lines(n: usize) -> String {
    let mut text = String::new();
    for i in 0..n {
        let label = i / 2 % 2;
        let site = match i % 75 {
            0 => "the \"islet\"",
            _ => ["north", "south"][i % 2],
        };
        let line = json!({
            "id": format!("s{i}"), "label": label, "predictions": [0, label, label, label],
            "scores": [0.1, 0.9, 0.9, 1.0], "site": site,
        });
        writeln!(text, "{line}").unwrap();
    }
    text
}

fn run(folder: &Path, words: &str) -> Ran {
    let mut command = haltwise();
    command.current_dir(folder).args(words.split_whitespace());
    ran(&mut command)
}

/// A folder with traces, and what `calibrate` said about the rule for them.
fn calibrated() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("t.jsonl"), lines(3000)).unwrap();
    let done = run(folder.path(), "calibrate t.jsonl --by site -o rule.json");
    assert_eq!(done.code, 0, "{}", done.stderr);
    let words: Vec<&str> = done.stdout.split_whitespace().collect();
    let said = words.join(" ");
    (folder, said)
}

#[test]
fn calibrate_says_who_is_left_out_and_evaluate_reads_them_to_the_end() {
    let (folder, said) = calibrated();
    for expected in [
        "it halts where site is north, south, and reads the \"islet\" to the end",
        "Groups that the rule reads to the end, and what would let them in",
        "the \"islet\": tested on",
        "would let it in",
    ] {
        assert!(said.contains(expected), "no {expected:?} in: {said}");
    }
    let folder = folder.path();
    let rule: Value = serde_json::from_slice(&fs::read(folder.join("rule.json")).unwrap()).unwrap();
    assert_eq!(rule["halts_in"], json!(["north", "south"]));
    let inspected = run(folder, "inspect rule.json");
    inspected.says("for north alone");
    let found = run(folder, "evaluate rule.json t.jsonl --json");
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    let times: Vec<f64> = (found["by_group"].as_array().unwrap().iter())
        .map(|group| group["t_avg"].as_f64().unwrap())
        .collect();
    assert_eq!(times[2], 1.0, "{found}");
    assert!(times[0] < 1.0 && times[1] < 1.0, "{found}");
    let watched = run(folder, "monitor rule.json t.jsonl");
    watched.complains("the rule reads the groups of 40 audits to the end");
}

#[test]
fn decide_reads_other_groups_to_the_end_and_tells_those_it_does_not_know() {
    let (folder, _) = calibrated();
    let mut input = String::new();
    let groups = [
        json!("north"),
        json!("the \"islet\""),
        json!("east"),
        Value::Null,
    ];
    for t in 1..=4 {
        for (id, group) in groups.iter().enumerate() {
            let mut line = json!({"id": id, "score": if t == 1 { 0.1 } else { 0.9 }});
            if t == 1 && !group.is_null() {
                line["group"] = group.clone();
            }
            writeln!(input, "{line}").unwrap();
        }
    }
    let mut decide = haltwise();
    decide
        .current_dir(folder.path())
        .args(["decide", "rule.json"]);
    let done = ran(decide.write_stdin(input));
    let found: Vec<(u64, u64, String)> = (json_lines(&done.stdout).iter())
        .map(|line| {
            let number = |field: &str| line[field].as_u64().unwrap();
            let reason = line["reason"].as_str().unwrap();
            (number("id"), number("t"), reason.to_owned())
        })
        .collect();
    let last = |id| (id, 4, "last-step".to_owned());
    let early = (0, 2, "threshold".to_owned());
    assert_eq!(found, [early, last(1), last(2), last(3)]);
    assert_eq!(done.code, 1);
    done.complains("line 3: the rule was not certified for the group \"east\" of site");
    done.complains("line 4: it does not name its group");
    assert!(!done.stderr.contains("line 2:"), "{}", done.stderr);
}

#[test]
fn exported_rules_know_their_groups() {
    let (folder, _) = calibrated();
    let folder = folder.path();
    let done = run(folder, "export rule.json --to c --name pen -o rule.h");
    assert_eq!(done.code, 0, "{}", done.stderr);
    let header = fs::read_to_string(folder.join("rule.h")).unwrap();
    assert!(
        header.contains("static const char *const pen_groups[] = {"),
        "{header}"
    );
    let small = run(folder, "export rule.json --to json-min");
    small.says("\"some_groups\": true");
    let rust = run(folder, "export rule.json --to rust --name pen");
    rust.says("pub static PEN_GROUPS: [&str; 2] = [\"north\", \"south\"];");
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("SKIPPED exported groups in C: there is no cc");
        return;
    }
    // Prints where streams of each group halt: 2, or the last step.
    let program = r#"
#include <stdio.h>
#include "haltwise.h"
#include "rule.h"
int main(void) {
    const char *groups[] = {"north", "south", "the \"islet\"", "east", "\xff", 0};
    haltwise_rule rule;
    if (haltwise_rule_load(&rule, pen, sizeof pen) != 0) return 1;
    for (int i = 0; i < 6; i++) {
        haltwise_stream stream = {0};
        int begun = groups[i] ? haltwise_begin(&stream, pen_groups, groups[i]) : 0;
        if (begun < 0) return 2;
        while (haltwise_observe_score(&rule, &stream, stream.steps ? 0.9f : 0.1f) == 0) {}
        printf("%d:%u ", begun, stream.steps);
    }
    return haltwise_begin(0, pen_groups, "north") < 0 ? 0 : 3;
}
"#;
    fs::write(folder.join("main.c"), program).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let mut build = Command::new(cargo);
    let built = build
        .current_dir(&root)
        .args(["build", "-q", "-p", "haltwise-c"]);
    assert!(built.status().unwrap().success());
    let binary = Path::new(env!("CARGO_BIN_EXE_haltwise"));
    let mut compile = Command::new("cc");
    compile
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root.join("crates/haltwise-c/include"))
        .arg(folder.join("main.c"))
        .arg(binary.with_file_name("libhaltwise_c.a"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(folder.join("main"));
    assert!(compile.status().unwrap().success());
    let ran = Command::new(folder.join("main")).output().unwrap();
    assert_eq!(ran.status.code(), Some(0));
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "1:2 1:2 2:4 2:4 2:4 0:4 "
    );
}
