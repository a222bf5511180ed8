//! The binary as a person or a pipeline meets it.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::io::Write;
use std::path::Path;

use assert_cmd::Command;
use common::{haltwise, ran, write_traces};
use serde_json::Value;
use tempfile::TempDir;

fn folder_with_traces() -> TempDir {
    let folder = TempDir::new().unwrap();
    write_traces(&folder.path().join("cal.npz"), 3_000, 1);
    write_traces(&folder.path().join("test.parquet"), 1_000, 2);
    folder
}

fn calibrated() -> TempDir {
    let folder = folder_with_traces();
    let args = ["calibrate", "cal.npz", "--method", "conditional"];
    let command = &mut haltwise();
    let run = ran(command
        .current_dir(&folder)
        .args(args)
        .args(["-o", "rule.json"]));
    assert_eq!(run.code, 0, "{}", run.stderr);
    folder
}

#[test]
fn calibrate_says_what_is_guaranteed_to_whom_and_what_to_expect() {
    let folder = folder_with_traces();
    let run =
        ran(haltwise()
            .current_dir(&folder)
            .args(["calibrate", "cal.npz", "-o", "rule.json"]));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let text = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for expected in [
        "With 99% confidence",
        "at most 10% of the sequences halted by step t, for every step t",
        "independent draws from one source",
        "On the certifying traces it reads 2.",
        "step 1 never",
        "rules passed their tests on 2,",
        "was chosen among those that passed",
        "Written to rule.json.",
    ] {
        assert!(
            text.contains(expected),
            "{expected:?} is not in:\n{}",
            run.stdout
        );
    }
    assert!(!run.stdout.contains('\u{1b}'), "colours behind a pipe");
}

#[test]
fn the_same_seed_writes_the_same_bytes() {
    let folder = folder_with_traces();
    let rule = |name: &str, seed: &str, threads: &str| {
        let args = ["calibrate", "cal.npz", "--seed", seed, "-o", name];
        haltwise()
            .current_dir(&folder)
            .env("RAYON_NUM_THREADS", threads)
            .args(args)
            .assert()
            .success();
        fs::read(folder.path().join(name)).unwrap()
    };
    assert_eq!(rule("a.json", "7", "1"), rule("b.json", "7", "3"));
    assert_ne!(rule("a.json", "7", "1"), rule("b.json", "8", "1"));
}

#[test]
fn every_format_gives_the_same_rule() {
    let folder = TempDir::new().unwrap();
    let mut rules = Vec::new();
    for name in ["t.npz", "t.parquet", "t.arrow", "t.jsonl", "t.csv"] {
        write_traces(&folder.path().join(name), 2_000, 3);
        let run = ran(haltwise().current_dir(&folder).args([
            "calibrate",
            name,
            "-o",
            "rule.json",
            "--json",
        ]));
        assert_eq!(run.code, 0, "{name}: {}", run.stderr);
        rules.push(run.stdout);
    }
    assert!(rules.iter().all(|rule| *rule == rules[0]));
}

#[test]
fn evaluate_prints_the_documented_object() {
    let folder = calibrated();
    let run = ran(haltwise().current_dir(&folder).args([
        "evaluate",
        "rule.json",
        "test.parquet",
        "--json",
    ]));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    let e: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&e["n"], &e["t_max"]), (&1000.into(), &5.into()));
    for field in ["late_accuracy", "early_accuracy", "t_avg", "gap"] {
        assert!((0.0..=1.0).contains(&e[field].as_f64().unwrap()), "{field}");
    }
    assert!(e["gap_earliest"]["0.2"].is_number() && e["gap_earliest"]["0.5"].is_number());
    let steps = e["by_step"].as_array().unwrap();
    assert_eq!(steps.len(), 5);
    assert_eq!(steps[0]["gap_by"], Value::Null);
    assert_eq!(steps[4]["halted_by"], 1000);
    assert!(e["gap"].as_f64().unwrap() <= 0.1);

    let words =
        ran(haltwise()
            .current_dir(&folder)
            .args(["evaluate", "rule.json", "test.parquet"]));
    let text = words
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        text.contains("within the tolerated 10%"),
        "{}",
        words.stdout
    );
    assert!(words.stdout.contains("95% interval"));
}

#[test]
fn evaluating_on_the_certifying_traces_is_warned_about() {
    let folder = folder_with_traces();
    let args = [
        "calibrate",
        "--method",
        "marginal",
        "cal.npz",
        "-o",
        "rule.json",
    ];
    haltwise()
        .current_dir(&folder)
        .args(args)
        .assert()
        .success();
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(["evaluate", "rule.json", "cal.npz"]));
    assert_eq!(run.code, 0);
    run.complains("made from these very traces");
}

#[test]
fn a_rule_that_was_only_screened_is_never_shown_as_certified() {
    let folder = folder_with_traces();
    let args = [
        "calibrate",
        "--method",
        "screen-only",
        "cal.npz",
        "-o",
        "rule.json",
    ];
    let run = ran(haltwise().current_dir(&folder).args(args));
    assert!(
        run.stdout
            .contains("Nothing: the rule was only screened, not certified.")
    );
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(["inspect", "rule.json"]));
    assert!(
        run.stdout
            .contains("Nothing: the rule was only screened, not certified.")
    );
    let rule: Value =
        serde_json::from_slice(&fs::read(folder.path().join("rule.json")).unwrap()).unwrap();
    assert_eq!(rule["promise"], Value::Null);
}

#[test]
fn too_few_traces_still_succeed_and_say_how_many_are_needed() {
    let folder = TempDir::new().unwrap();
    write_traces(&folder.path().join("few.csv"), 60, 4);
    for (method, needed) in [
        ("conditional", "44 must halt by then"),
        ("adaptive", "needs at least 49 halted sequences"),
    ] {
        let args = [
            "calibrate",
            "few.csv",
            "--method",
            method,
            "-o",
            "rule.json",
        ];
        let run = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let text = run.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            text.contains("No saving: every sequence is read to its end."),
            "{text}"
        );
        assert!(
            text.starts_with("What is guaranteed Nothing is lost, because every sequence is read to its end: no rule that stops early"),
            "{text}"
        );
        assert!(text.contains(needed), "{text}");
        let rule: Value =
            serde_json::from_slice(&fs::read(folder.path().join("rule.json")).unwrap()).unwrap();
        assert_eq!(
            rule["thresholds"],
            serde_json::json!([null, null, null, null, null])
        );
    }
}

#[test]
fn the_same_traces_cannot_fit_or_screen_and_certify() {
    let folder = folder_with_traces();
    fs::copy(
        folder.path().join("cal.npz"),
        folder.path().join("copy.npz"),
    )
    .unwrap();
    for other in ["cal.npz", "./cal.npz", "copy.npz"] {
        for (method, option) in [("conditional", "--screen"), ("adaptive", "--fit")] {
            let args = ["calibrate", "--method", method, option, other, "cal.npz"];
            let command = &mut haltwise();
            let run = ran(command
                .current_dir(&folder)
                .args(args)
                .args(["-o", "rule.json"]));
            assert_eq!(run.code, 1, "{other}");
            run.complains("voids the guarantee");
        }
    }
    assert!(!folder.path().join("rule.json").exists());
}

#[test]
fn a_file_named_twice_is_not_counted_twice() {
    let folder = folder_with_traces();
    for method in ["marginal", "conditional"] {
        let args = [
            "calibrate",
            "--method",
            method,
            "cal.npz",
            "./cal.npz",
            "-o",
            "rule.json",
        ];
        fails(&folder, &args, &["named twice"]);
    }
}

#[test]
fn evaluating_on_both_halves_of_a_split_is_warned_about() {
    let folder = calibrated();
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(["evaluate", "rule.json", "cal.npz"]));
    run.complains("made from these very traces");
}

#[test]
fn the_built_in_dataset_has_no_halves() {
    let folder = TempDir::new().unwrap();
    let args = [
        "train",
        "PenDigits",
        "--part",
        "train",
        "-o",
        "m.safetensors",
    ];
    fails(&folder, &args, &["use --hold-out"]);
}

#[test]
fn screen_offers_only_methods_that_promise_something() {
    let help = ran(haltwise().args(["screen", "--help"])).stdout;
    assert!(help.contains("- conditional:"), "{help}");
    assert!(!help.contains("- screen-only:"), "{help}");
    let args = [
        "screen",
        "cal.npz",
        "-o",
        "c.json",
        "--method",
        "screen-only",
    ];
    let run = ran(haltwise().args(args));
    assert_eq!(run.code, 2);
    assert!(
        run.stderr.contains("adaptive, marginal, conditional"),
        "{}",
        run.stderr
    );
}

#[test]
fn wrong_usage_ends_with_2() {
    for args in [
        &[
            "calibrate",
            "x.npz",
            "-o",
            "r.json",
            "--method",
            "marginal",
            "--seed",
            "3",
        ][..],
        &[
            "calibrate",
            "x.npz",
            "-o",
            "r.json",
            "--screen-fraction",
            "2",
        ],
        &[
            "calibrate",
            "x.npz",
            "-o",
            "r.json",
            "--method",
            "marginal",
            "--screen",
            "y.npz",
        ],
        &["calibrate", "x.npz", "-o", "r.json", "--screen", "y.npz"],
        &[
            "calibrate",
            "x.npz",
            "-o",
            "r.json",
            "--method",
            "conditional",
            "--fit",
            "y.npz",
        ],
        &["calibrate", "x.npz"],
        &["calibrate", "x.npz", "-o", "r.json", "--alpha", "1.5"],
        &["calibrate", "x.npz", "-o", "r.json", "--grid-step", "0.03"],
        &["calibrate", "x.npz", "-o", "r.json", "--method", "magic"],
        &[
            "screen", "x.npz", "-o", "c.json", "--method", "marginal", "--seed", "3",
        ],
        &["nonsense"],
        &[],
    ] {
        assert_eq!(ran(haltwise().args(args)).code, 2, "{args:?}");
    }
}

#[test]
fn numbers_that_cannot_be_meant_are_refused_in_plain_words() {
    for (option, value, expected) in [
        ("--alpha", "-0.1", "strictly between 0 and 1"),
        ("--alpha", "10%", ": write 0.1\n"),
        ("--alpha", "0,05", ": write 0.05\n"),
        ("--alpha", "ten", ": it is not a number\n"),
        ("--seed", "x", "give a whole number, 0 or more"),
        ("--seed", "-3", "give a whole number, 0 or more"),
        ("--memory", "99999999999GiB", "give less"),
    ] {
        let run = ran(haltwise().args(["calibrate", "x.npz", "-o", "r.json", option, value]));
        assert_eq!(run.code, 2, "{option} {value}");
        run.complains(expected);
        run.complains(option);
        // clap's own words about a value come without the usage.
        if option != "--memory" {
            let usage = "Usage: haltwise calibrate [OPTIONS] --output <RULE> <TRACES>...";
            run.complains(usage);
        }
    }
}

#[test]
fn files_in_the_wrong_place_or_under_a_wrong_name_get_the_remedy() {
    let folder = calibrated();
    let copy = |from: &str, to: &str| {
        fs::copy(folder.path().join(from), folder.path().join(to)).unwrap();
    };
    write_traces(&folder.path().join("lines.jsonl"), 100, 3);
    for (file, name, remedy) in [
        (
            "test.parquet",
            "a.npz",
            "it is a Parquet file, whatever its name says; rename it to end in .parquet",
        ),
        ("test.parquet", "a.csv", "rename it to end in .parquet"),
        ("cal.npz", "b.parquet", "rename it to end in .npz"),
        ("lines.jsonl", "c.arrow", "rename it to end in .jsonl"),
        (
            "rule.json",
            "d.json",
            "it is JSON, as rules are, and no trace file",
        ),
    ] {
        copy(file, name);
        for args in [
            &["calibrate", name, "-o", "r.json"][..],
            &["evaluate", "rule.json", name],
        ] {
            fails(&folder, args, &[name, remedy]);
        }
    }
    for verb in ["evaluate", "monitor"] {
        let swapped = "it is not the rule, but rule.json is; name the rule first";
        fails(
            &folder,
            &[verb, "test.parquet", "rule.json"],
            &["test.parquet", swapped],
        );
    }
    fails(
        &folder,
        &["evaluate", "test.parquet", "cal.npz"],
        &["it is not a rule file but a Parquet file"],
    );
    let whole = fs::read(folder.path().join("rule.json")).unwrap();
    for part in [whole.len() / 2, whole.len() - 3, 0] {
        fs::write(folder.path().join("half.json"), &whole[..part]).unwrap();
        let remedy = "calibrate again, or copy it again";
        fails(
            &folder,
            &["evaluate", "half.json", "cal.npz"],
            &["half.json", remedy],
        );
    }
}

#[test]
fn traces_that_end_before_the_rule_does_are_pointed_out() {
    let folder = calibrated();
    let rows = "id,t,label,prediction,score\na,1,1,1,0.5\na,2,1,1,0.6\n";
    fs::write(folder.path().join("short.csv"), rows).unwrap();
    let evaluate = |traces| {
        ran(haltwise()
            .current_dir(&folder)
            .args(["evaluate", "rule.json", traces]))
    };
    let run = evaluate("short.csv");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let said = "none of these traces has more than 2 steps, and the rule is for 5";
    run.complains(said);
    assert_eq!(evaluate("test.parquet").stderr, "");
}

#[test]
fn inspect_says_what_a_file_is_and_who_takes_it() {
    let folder = folder_with_traces();
    let traces = "cal.npz";
    let run = |args: &[&str]| ran(haltwise().current_dir(&folder).args(args));
    assert_eq!(run(&["screen", traces, "-o", "c.json"]).code, 0);
    let evidence = run(&["evidence", "c.json", traces, "-o", "e.json"]);
    assert_eq!(evidence.code, 0, "{}", evidence.stderr);
    fails(
        &folder,
        &["inspect", "c.json"],
        &["candidates", "`haltwise evidence` takes it"],
    );
    fails(
        &folder,
        &["inspect", "e.json"],
        &["evidence", "`haltwise certify` takes it"],
    );
    let said = run(&["inspect", traces]).stdout;
    assert!(
        said.contains("1 among the labels, without probabilities"),
        "{said}"
    );
    let line = "{\"label\":1,\"probs\":[[0.2,0.3,0.5]]}\n";
    fs::write(folder.path().join("probs.jsonl"), line).unwrap();
    let said = run(&["inspect", "probs.jsonl"]).stdout;
    assert!(said.contains("3, with their probabilities"), "{said}");
    let too_short = [
        "screen",
        "--method",
        "conditional",
        "--whole",
        "--t-max",
        "3",
    ];
    fails(
        &folder,
        &[&too_short[..], &[traces, "-o", "c.json"]].concat(),
        &["--t-max 3 is less than the 5 steps"],
    );
}

/// A run that must fail with exit code 1, saying all of this on standard error.
fn fails(folder: &TempDir, args: &[&str], expected: &[&str]) {
    let run = ran(haltwise().current_dir(folder).args(args));
    assert_eq!(run.code, 1, "{args:?}\n{}\n{}", run.stdout, run.stderr);
    for text in expected {
        assert!(
            run.stderr.contains(text),
            "{text:?} is not in: {}",
            run.stderr
        );
    }
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
}

#[test]
fn bad_input_is_named_with_its_place_and_remedy() {
    let folder = folder_with_traces();
    let header = "id,t,label,prediction,score\n";
    let file = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
    file("nan.csv", &format!("{header}a,1,0,0,0.5\na,2,0,0,NaN\n"));
    file("range.csv", &format!("{header}a,1,0,0,1.5\n"));
    file(
        "missing.csv",
        &format!("{header}a,1,0,0,0.5\na,3,0,0,0.5\n"),
    );
    file("twice.csv", &format!("{header}a,1,0,0,0.5\na,1,0,0,0.5\n"));
    file(
        "ragged.jsonl",
        "{\"label\":0,\"predictions\":[0,1],\"scores\":[0.5]}\n",
    );
    file("empty.csv", "");
    file("none.csv", header);
    file("what.xyz", "?");
    let parquet = fs::read(folder.path().join("test.parquet")).unwrap();
    fs::write(
        folder.path().join("cut.parquet"),
        &parquet[..parquet.len() / 2],
    )
    .unwrap();
    fs::create_dir(folder.path().join("folder.npz")).unwrap();
    for (name, expected) in [
        ("nan.csv", &["nan.csv", "line 3"][..]),
        ("range.csv", &["range.csv", "line 2", "1.5"]),
        ("missing.csv", &["missing.csv", "step 2"]),
        ("twice.csv", &["twice.csv", "line 3"]),
        ("ragged.jsonl", &["ragged.jsonl", "line 1"]),
        ("empty.csv", &["empty.csv", "empty"]),
        ("none.csv", &["none.csv"]),
        ("what.xyz", &["what.xyz", ".parquet"]),
        ("cut.parquet", &["cut.parquet"]),
        ("folder.npz", &["folder.npz", "folder"]),
        ("absent.npz", &["absent.npz"]),
    ] {
        fails(&folder, &["calibrate", name, "-o", "rule.json"], expected);
        fails(&folder, &["inspect", name], &[name]);
    }
    assert!(
        !folder.path().join("rule.json").exists(),
        "a rule from bad input"
    );
}

#[test]
fn fixtures_of_other_writers_are_refused_with_their_place() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haltwise-io/tests/fixtures");
    let folder = TempDir::new().unwrap();
    for (name, expected) in [
        ("bad_nan.npz", "scores"),
        ("bad_int_scores.npz", "scores"),
        ("bad_shapes.npz", "shape"),
        ("bad_label.npz", "label"),
        ("bad_logits.npz", "softmax"),
        ("bad_ragged.parquet", "row"),
        ("bad_twice.parquet", "id"),
        ("bad_scores_type.parquet", "scores"),
    ] {
        let path = fixtures.join(name);
        let args = ["calibrate", path.to_str().unwrap(), "-o", "rule.json"];
        fails(&folder, &args, &[name, expected]);
    }
    // The other byte order is not an error: it is read right.
    let big_endian = fixtures.join("big_endian.npz");
    let run = ran(haltwise().args(["inspect", big_endian.to_str().unwrap()]));
    assert_eq!(run.code, 0, "{}", run.stderr);
}

#[test]
fn a_rule_that_cannot_be_written_leaves_the_old_one() {
    let folder = calibrated();
    let rule = folder.path().join("rule.json");
    let old = fs::read(&rule).unwrap();
    fails(
        &folder,
        &["calibrate", "cal.npz", "-o", "no/rule.json"],
        &["no/rule.json", "create it"],
    );
    fails(
        &folder,
        &["calibrate", "cal.npz", "-o", "."],
        &["it is a folder"],
    );
    fails(
        &folder,
        &["calibrate", "cal.npz", "-o", "/dev/null"],
        &["not an ordinary file"],
    );
    // A disk that is full: the shell lets no file grow, and writing fails.
    let binary = haltwise().get_program().to_owned();
    let script = "trap '' XFSZ; ulimit -f 0; exec \"$0\" calibrate cal.npz --seed 5 -o rule.json";
    let run = ran(Command::new("bash")
        .current_dir(&folder)
        .args(["-c", script])
        .arg(binary));
    assert_eq!(run.code, 1);
    run.complains("rule.json: cannot write it");
    assert_eq!(fs::read(&rule).unwrap(), old);
    let hidden = fs::read_dir(&folder).unwrap().filter_map(|e| e.ok());
    let left: Vec<_> = hidden
        .filter(|e| e.file_name().to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn damaged_and_newer_rules_are_refused() {
    let folder = calibrated();
    let text = fs::read_to_string(folder.path().join("rule.json")).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write(
        "newer.json",
        &text.replace("\"version\": 2", "\"version\": 9"),
    );
    write("cut.json", &text[..200]);
    write(
        "forged.json",
        &text.replacen("\"gaps\": ", "\"gaps\": 9", 1),
    );
    for (name, expected) in [
        ("newer.json", "use a newer haltwise"),
        ("cut.json", "cut short"),
        ("forged.json", "does not follow from its counts"),
        ("absent.json", "cannot read it"),
    ] {
        fails(
            &folder,
            &["evaluate", name, "test.parquet"],
            &[name, expected],
        );
        fails(&folder, &["decide", name], &[name, expected]);
        fails(&folder, &["inspect", name], &[name, expected]);
    }
}

/// The decisions for a stream of lines, what was complained about, the exit code.
fn decide(folder: &TempDir, args: &[&str], lines: &str) -> (Vec<String>, String, i32) {
    let mut all = vec!["decide", "rule.json"];
    all.extend(args);
    let run = ran(haltwise().current_dir(folder).args(all).write_stdin(lines));
    (
        run.stdout.lines().map(str::to_owned).collect(),
        run.stderr,
        run.code,
    )
}

#[test]
fn decide_halts_each_stream_at_its_own_step() {
    let folder = calibrated();
    let (decisions, complaints, code) = decide(
        &folder,
        &[],
        "{\"id\":\"a\",\"score\":0.99}\n\
         {\"id\":7,\"score\":0.1,\"t\":1}\n\
         {\"id\":\"a\",\"score\":0.99}\n\
         {\"id\":\"a\",\"score\":0.99}\n\
         {\"id\":7,\"score\":0.1,\"end\":true}\n\
         {\"id\":7,\"score\":0.1}\n\
         {\"id\":7,\"end\":true}\n",
    );
    assert_eq!((complaints.as_str(), code), ("", 0));
    assert_eq!(
        decisions,
        [
            r#"{"id":"a","t":2,"reason":"threshold"}"#,
            r#"{"id":7,"t":2,"reason":"end"}"#,
            r#"{"id":7,"t":1,"reason":"end"}"#,
        ]
    );
}

#[test]
fn decide_reports_bad_lines_by_number_and_goes_on() {
    let folder = calibrated();
    let (decisions, complaints, code) = decide(
        &folder,
        &[],
        "nonsense\n\
         {\"id\":\"a\",\"score\":0.1}\n\
         \n\
         {\"id\":\"a\",\"score\":7}\n\
         {\"id\":\"a\",\"score\":0.1,\"t\":1}\n\
         {\"id\":[1],\"score\":0.1}\n\
         {\"id\":\"b\"}\n\
         {\"id\":\"c\",\"end\":true}\n\
         {\"id\":\"a\",\"score\":0.1,\"t\":3}\n\
         {\"id\":\"a\",\"score\":0.1}\n\
         {\"id\":\"a\",\"score\":0.1}",
    );
    assert_eq!(code, 1);
    for line in [1, 4, 5, 6, 7, 8] {
        assert!(
            complaints.contains(&format!("line {line}: ")),
            "{line}:\n{complaints}"
        );
    }
    assert!(
        complaints.contains("step 1 came where step 3 was due"),
        "{complaints}"
    );
    assert!(
        complaints.contains("6 lines could not be used, out of 11"),
        "{complaints}"
    );
    // The step with the bad score counted: the stream ends at its fifth.
    assert_eq!(decisions, [r#"{"id":"a","t":5,"reason":"last-step"}"#]);
}

#[test]
fn decide_counts_steps_it_cannot_use() {
    let folder = calibrated();
    // Thresholds are for steps: a score that is null, text or absent moves its
    // stream on all the same.
    let (decisions, complaints, code) = decide(
        &folder,
        &[],
        "{\"id\":\"a\",\"score\":null}\n{\"id\":\"a\",\"score\":\"0.9\"}\n\
         {\"id\":\"a\",\"score\":0.1}\n{\"id\":\"a\",\"score\":1}\n\
         {\"id\":\"b\",\"score\":0.1,\"t\":1}\n{\"id\":\"b\",\"score\":1,\"t\":4}\n\
         {\"id\":\"c\",\"score\":0.1,\"t\":99}\n",
    );
    assert_eq!(code, 1);
    for text in [
        "line 1: the score null",
        "line 2: the score \"0.9\"",
        "line 6: step 4 came",
        "line 7: step 99 came where step 1 was due",
        "2 lines could not be used and 2 lines came after missing steps, out of 7",
    ] {
        assert!(complaints.contains(text), "{text}:\n{complaints}");
    }
    assert_eq!(
        decisions,
        [
            r#"{"id":"a","t":4,"reason":"threshold"}"#,
            r#"{"id":"b","t":4,"reason":"threshold"}"#,
            r#"{"id":"c","t":5,"reason":"last-step"}"#,
        ]
    );
}

#[test]
fn decide_passes_over_no_line_that_it_uses() {
    let folder = calibrated();
    let line = "{\"id\":\"a\",\"score\":1,\"t\":3}\n";
    let (decisions, complaints, code) = decide(&folder, &[], line);
    assert_eq!(decisions, [r#"{"id":"a","t":3,"reason":"threshold"}"#]);
    let expected = "error: 1 line came after missing steps, out of 1";
    assert!(complaints.contains(expected), "{complaints}");
    assert_eq!(code, 1);
}

#[test]
fn decide_says_what_is_wrong_with_a_line_in_the_users_words() {
    let folder = calibrated();
    for (line, expected) in [
        (
            r#"["a",0.9,null,null,1,true]"#,
            "it is no JSON object, such as {",
        ),
        (r#"{"score":0.9}"#, "it has no \"id\""),
        (
            r#"{"id":"a","score":NaN}"#,
            "it is no sound JSON object: it cannot be read on at column 19",
        ),
        (
            r#"{"id":"a","score":0.9"#,
            "it is no sound JSON object: it breaks off at column 21",
        ),
        (
            r#"{"id":"a","score":0.9,"id":"b"}"#,
            "it is no sound JSON object: a field comes twice at column 26",
        ),
        (
            r#"{"id":"a","score":0.9,"t":-1}"#,
            "\"t\" is -1, and not a step",
        ),
        (
            r#"{"id":"a","score":0.9,"t":"1"}"#,
            "\"t\" is \"1\", and not a step",
        ),
        (
            r#"{"id":"a","score":0.9,"end":1}"#,
            "\"end\" is 1, and neither true nor false",
        ),
    ] {
        let (decisions, complaints, code) = decide(&folder, &[], line);
        assert!(complaints.contains(expected), "{line}: {complaints}");
        for ours in ["struct", "u64", "f32"] {
            assert!(!complaints.contains(ours), "{line}: {complaints}");
        }
        assert_eq!((decisions.len(), code), (0, 1), "{line}");
    }
    let none = ran(haltwise().args(["decide", "rule.json", "--max-streams", "0"]));
    assert_eq!(none.code, 2, "{}", none.stderr);
}

#[test]
fn the_example_in_decides_help_keeps_its_lines() {
    let help = ran(haltwise().args(["decide", "--help"])).stdout;
    assert!(
        help.contains("{\"id\": \"a\", \"score\": 0.93}               in\n"),
        "{help}"
    );
}

#[test]
fn decide_decides_once_for_each_stream() {
    let folder = calibrated();
    // Twelve steps under a rule for five; then the stream ends and begins anew.
    let mut lines = "{\"id\":1,\"score\":0.1}\n".repeat(12);
    lines += "{\"id\":1,\"end\":true}\n{\"id\":1,\"score\":0.1,\"end\":true}\n";
    let (decisions, complaints, code) = decide(&folder, &[], &lines);
    assert_eq!((complaints.as_str(), code), ("", 0));
    assert_eq!(
        decisions,
        [
            r#"{"id":1,"t":5,"reason":"last-step"}"#,
            r#"{"id":1,"t":1,"reason":"end"}"#
        ]
    );
}

#[test]
fn decide_answers_before_it_waits() {
    let folder = calibrated();
    let mut child = std::process::Command::new(haltwise().get_program())
        .current_dir(&folder)
        .args(["decide", "rule.json"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (send, decisions) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::BufRead::lines(std::io::BufReader::new(output)) {
            let _ = send.send(line.unwrap());
        }
    });
    for id in 0..3 {
        write!(
            input,
            "{{\"id\":{id},\"score\":1}}\n{{\"id\":{id},\"score\":1}}\n"
        )
        .unwrap();
        input.flush().unwrap();
        let patience = std::time::Duration::from_secs(60);
        let decision = decisions
            .recv_timeout(patience)
            .expect("the decision is kept back");
        assert_eq!(
            decision,
            format!("{{\"id\":{id},\"t\":2,\"reason\":\"threshold\"}}")
        );
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn decide_bounds_its_open_streams() {
    let folder = calibrated();
    // Two streams may run at once; a third is refused.
    let lines = "{\"id\":1,\"score\":0.1}\n{\"id\":2,\"score\":0.1}\n{\"id\":3,\"score\":0.1}\n";
    let (_, complaints, code) = decide(&folder, &["--max-streams", "2"], lines);
    assert_eq!(code, 1);
    assert!(complaints.contains("raise --max-streams"), "{complaints}");
    // A halted one makes room.
    let lines = "{\"id\":1,\"score\":1}\n{\"id\":1,\"score\":1}\n{\"id\":2,\"score\":0.1}\n\
                 {\"id\":3,\"score\":0.1}\n";
    let (decisions, _, code) = decide(&folder, &["--max-streams", "2"], lines);
    assert_eq!((decisions.len(), code), (1, 0));
}

/// The same rule with more on record.
fn record(folder: &TempDir, field: &str, value: Value) {
    let path = folder.path().join("rule.json");
    let mut rule: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    rule[field] = value;
    fs::write(path, rule.to_string()).unwrap();
}

/// Makes of the stored rule one without a promise, which no test holds to its score and thresholds.
fn screened_only(folder: &TempDir) {
    record(folder, "method", "screen-only".into());
    record(folder, "promise", Value::Null);
    record(folder, "trail", serde_json::json!([]));
}

#[test]
fn decide_reads_on_past_the_last_step_where_lengths_were_unequal() {
    let folder = calibrated();
    // A rule that seldom halts, at its last step neither.
    let never = serde_json::json!([null, null, 0.9, 0.9, 0.9]);
    screened_only(&folder);
    record(&folder, "thresholds", never);
    let steps = |n: usize| "{\"id\":1,\"score\":0.1}\n".repeat(n);
    let lines = steps(5) + "{\"id\":1,\"score\":1}\n{\"id\":1,\"score\":1,\"end\":true}\n";
    for (lengths, decision) in [
        (None, r#"{"id":1,"t":5,"reason":"last-step"}"#),
        (Some("equal"), r#"{"id":1,"t":5,"reason":"last-step"}"#),
        (Some("unequal"), r#"{"id":1,"t":7,"reason":"end"}"#),
    ] {
        if let Some(lengths) = lengths {
            record(&folder, "lengths", lengths.into());
        }
        let (decisions, complaints, code) = decide(&folder, &[], &lines);
        assert_eq!((complaints.as_str(), code), ("", 0), "{lengths:?}");
        assert_eq!(decisions, [decision], "{lengths:?}");
    }
    let lines = "{\"id\":2,\"t\":99,\"score\":1}\n{\"id\":2,\"end\":true}\n";
    let (decisions, complaints, _) = decide(&folder, &[], lines);
    assert_eq!(decisions, [r#"{"id":2,"t":99,"reason":"end"}"#]);
    assert!(
        complaints.contains("step 99 came where step 1"),
        "{complaints}"
    );
}

#[test]
fn decide_holds_streams_to_the_rules_number_of_classes() {
    let folder = calibrated();
    record(&folder, "classes", 3.into());
    screened_only(&folder);
    for score in ["confidence", "max-probability", "margin"] {
        record(&folder, "score", score.into());
        let lines = "{\"id\":1,\"score\":0.5,\"probs\":[0.5,0.25,0.25]}\n\
                     {\"id\":1,\"score\":0.5,\"probs\":[0.5,0.5]}\n\
                     {\"id\":1,\"score\":0.1}\n{\"id\":1,\"end\":true}\n";
        let (decisions, complaints, code) = decide(&folder, &[], lines);
        let expected = "line 2: 2 class probabilities, but the rule was calibrated with 3";
        assert!(complaints.contains(expected), "{score}: {complaints}");
        assert!(
            complaints.contains("1 line could not be used"),
            "{complaints}"
        );
        // The step counts all the same.
        assert_eq!(decisions, [r#"{"id":1,"t":3,"reason":"end"}"#]);
        assert_eq!(code, 1);
    }
}

#[test]
fn decide_passes_over_lines_and_ids_that_are_too_long() {
    let folder = calibrated();
    let long_line = format!(
        "{{\"id\":1,\"score\":0.1,\"x\":\"{}\"}}",
        "x".repeat(17 << 20)
    );
    let long_id = format!("{{\"id\":\"{}\",\"score\":0.1}}", "i".repeat(5_000));
    let lines = format!(
        "{{\"id\":1,\"score\":0.1}}\n{long_line}\n{long_id}\n{{\"id\":1,\"end\":true}}\n{long_line}"
    );
    let (decisions, complaints, code) = decide(&folder, &[], &lines);
    assert_eq!(decisions, [r#"{"id":1,"t":1,"reason":"end"}"#]);
    assert_eq!(code, 1);
    for text in [
        "line 2: it has more than 16,777,216 bytes",
        "…: the id has 5002 bytes; at most 4096 are possible",
        "line 5: it has more than",
        "3 lines could not be used, out of 5",
    ] {
        assert!(complaints.contains(text), "{text}:\n{complaints}");
    }
    assert!(complaints.len() < 1_000, "{complaints}");
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let folder = calibrated();
    let lines = "{\"id\":\"\u{9b}2Ja\u{7f}\",\"end\":true}\n\
                 {\"id\":\"b\",\"score\":0.1,\"t\":\"\u{9d}\"}\n\
                 {\"id\":\"b\",\"score\":\"\u{9d}\"}\n\u{1b}[31m";
    let (_, complaints, _) = decide(&folder, &[], lines);
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(!complaints.contains(raw), "{complaints:?}");
    for text in [
        "stream \"\\u009b2Ja\\u007f\": it ends",
        "the score \"\\u009d\" is not",
    ] {
        assert!(complaints.contains(text), "{text}:\n{complaints}");
    }
    // What a rule file says about itself is shown on standard output.
    let classifier = serde_json::json!({"\u{1b}]0;pwned\u{7}m": "any"});
    record(&folder, "classifier", classifier);
    let shown = ran(haltwise()
        .current_dir(&folder)
        .args(["inspect", "rule.json"]));
    shown.says("\\u001b]0;pwned\\u0007m");
    assert!(!shown.stdout.contains(raw), "{:?}", shown.stdout);
}

/// Two classes that rise or fall, hard to tell at first.
fn write_series(path: &Path, n: usize) {
    let mut text = String::new();
    for i in 0..n {
        let direction = if i % 2 == 0 { 1.0 } else { -1.0 };
        text += if i % 2 == 0 { "up" } else { "down" };
        for t in 0..6 {
            let noise = ((i * 7 + t * 13) % 11) as f64 / 11.0 - 0.5;
            text += &format!("\t{:.3}", direction * t as f64 / 3.0 + noise);
        }
        text.push('\n');
    }
    fs::write(path, text).unwrap();
}

#[test]
fn from_series_to_decisions_without_leaving_the_tool() {
    let folder = TempDir::new().unwrap();
    write_series(&folder.path().join("lines.tsv"), 1_500);
    let run = |args: &[&str]| {
        let run = ran(haltwise().current_dir(&folder).args(args));
        assert_eq!(run.code, 0, "{args:?}: {}", run.stderr);
        run.stdout
    };
    let held = ["--hold-out", "0.6", "--split-seed", "3"];
    let train = [
        "train",
        "lines.tsv",
        "-o",
        "model.safetensors",
        "--max-epochs",
        "12",
        "--json",
    ];
    let epochs = run(&[&train[..], &held].concat());
    assert_eq!(epochs.lines().count(), 12);
    let last: Value = serde_json::from_str(epochs.lines().last().unwrap()).unwrap();
    assert!(
        last["validation_accuracy"].as_f64().unwrap() > 0.9,
        "{last}"
    );
    let score = [
        "score",
        "model.safetensors",
        "lines.tsv",
        "-o",
        "traces.parquet",
    ];
    let text = run(&[&score[..], &held].concat());
    assert!(
        text.contains("Scored 900 sequences of up to 6 steps"),
        "{text}"
    );
    assert!(run(&["inspect", "model.safetensors"]).contains("down, up"));
    run(&["calibrate", "traces.parquet", "-o", "rule.json"]);
    run(&[
        "evaluate",
        "rule.json",
        "traces.parquet",
        "--report",
        "report.html",
    ]);
    let page = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("traces.parquet"));
    assert!(run(&["inspect", "rule.json"]).contains("a rule"));
}

#[test]
fn training_again_with_the_same_seed_writes_the_same_bytes() {
    let folder = TempDir::new().unwrap();
    write_series(&folder.path().join("lines.tsv"), 300);
    let model = |name: &str, threads: &str| {
        let args = [
            "train",
            "lines.tsv",
            "--max-epochs",
            "3",
            "--seed",
            "5",
            "-o",
            name,
        ];
        let mut command = haltwise();
        command
            .current_dir(&folder)
            .env("RAYON_NUM_THREADS", threads)
            .args(args);
        command.assert().success();
        fs::read(folder.path().join(name)).unwrap()
    };
    assert_eq!(model("a.safetensors", "1"), model("b.safetensors", "3"));
}

#[test]
fn series_and_models_that_cannot_be_used_are_explained() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    file("one.tsv", b"a\t1\t2\na\t2\t3\n");
    file("short.tsv", b"a\t1\nb\t2\n");
    file("gaps.tsv", b"a\t1\tNaN\t2\nb\t2\t3\t4\n");
    file("words.tsv", b"a\t1\tx\nb\t2\t3\n");
    file("two.tsv", b"a\t1\t2\nb\t2\t3\n");
    file("model.pt", b"not a checkpoint");
    for (name, expected) in [
        ("one.tsv", "class"),
        ("short.tsv", "step"),
        ("gaps.tsv", "--fill-missing"),
        ("words.tsv", "line 1"),
        ("absent.ts", "absent.ts"),
    ] {
        fails(
            &folder,
            &["train", name, "-o", "model.safetensors"],
            &[expected],
        );
    }
    fails(
        &folder,
        &["score", "model.pt", "two.tsv", "-o", "t.npz"],
        &["model.pt", "it is not a model", "`haltwise train`"],
    );
    fails(&folder, &["inspect", "model.pt"], &["model.pt"]);
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(["inspect", "absent.pt"]));
    assert_eq!(run.stderr.matches("No such file").count(), 1);
    assert!(!folder.path().join("model.safetensors").exists());
}

#[test]
fn an_interrupted_training_is_not_started_over_by_accident() {
    let folder = TempDir::new().unwrap();
    write_series(&folder.path().join("lines.tsv"), 100);
    fs::write(folder.path().join("m.safetensors.training"), "state").unwrap();
    fails(
        &folder,
        &["train", "lines.tsv", "-o", "m.safetensors"],
        &["--resume"],
    );
    fails(
        &folder,
        &["train", "lines.tsv", "-o", "m.safetensors", "--resume"],
        &["it is not a training state", "not a training state"],
    );
    fs::remove_file(folder.path().join("m.safetensors.training")).unwrap();
    fails(
        &folder,
        &["train", "lines.tsv", "-o", "m.safetensors", "--resume"],
        &["nothing to resume", "leave out --resume"],
    );
}

/// Trains without end, and sends a signal once the first epoch is over: which
/// one that was, and how it ended.
#[cfg(unix)]
fn told_to_stop(folder: &TempDir, more: &[&str], signal: &str) -> (u64, Option<i32>, String) {
    use std::io::BufRead;
    let args = ["train", "lines.tsv", "--json", "-o", "m.safetensors"];
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_haltwise"))
        .current_dir(folder)
        .args(args)
        .args(["--max-epochs", "1000000", "--patience", "1000000"])
        .args(more)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut epochs = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&epochs.next().unwrap().unwrap()).unwrap();
    common::signal(&child, signal);
    assert!(epochs.all(|line| line.is_ok()));
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (first["epoch"].as_u64().unwrap(), output.status.code(), said)
}

#[cfg(unix)]
#[test]
fn a_training_that_is_told_to_stop_keeps_what_it_has() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let folder = TempDir::new().unwrap();
        write_series(&folder.path().join("lines.tsv"), 300);
        let (epoch, ended, said) = told_to_stop(&folder, &[], signal);
        assert_eq!((epoch, ended), (1, Some(code)), "{signal}: {said}");
        assert!(said.contains("stopping at the next good moment"), "{said}");
        // The best so far, and the state to go on from.
        let inspect = ["inspect", "m.safetensors"];
        assert_eq!(ran(haltwise().current_dir(&folder).args(inspect)).code, 0);
        let (epoch, ended, said) = told_to_stop(&folder, &["--resume"], signal);
        assert!(epoch > 1 && ended == Some(code), "{signal}: {epoch} {said}");
    }
}

#[test]
fn a_device_that_is_not_there_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    write_series(&folder.path().join("lines.tsv"), 60);
    let train = [
        "train",
        "lines.tsv",
        "-o",
        "m.safetensors",
        "--max-epochs",
        "1",
    ];
    let with = |device: &'static str| [&train[..], &["--device", device]].concat();
    fails(
        &folder,
        &with("cuda:99"),
        &[
            "cuda:99 cannot be used: there is no",
            "`cpu` does without it",
        ],
    );
    assert!(!folder.path().join("m.safetensors").exists());
    let wrong = ran(haltwise().current_dir(&folder).args(with("gpu")));
    assert_eq!(wrong.code, 2);
    let words = wrong.stderr;
    assert!(words.contains("give auto, cpu, cuda or cuda:N"), "{words}");
    for device in ["cpu", "auto"] {
        let _ = fs::remove_file(folder.path().join("m.safetensors"));
        haltwise()
            .current_dir(&folder)
            .args(with(device))
            .assert()
            .success();
    }
    let score = [
        "score",
        "m.safetensors",
        "lines.tsv",
        "-o",
        "t.parquet",
        "--device",
        "cuda:99",
    ];
    fails(&folder, &score, &["cuda:99 cannot be used"]);
    assert!(!folder.path().join("t.parquet").exists());
}

#[test]
fn the_demo_tells_the_whole_story() {
    let folder = TempDir::new().unwrap();
    let run = ran(haltwise().current_dir(&folder).arg("demo"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    for expected in [
        "10,992 pen strokes",
        "marginal",
        "conditional",
        "The report is",
    ] {
        assert!(run.stdout.contains(expected), "{expected}:\n{}", run.stdout);
    }
    let made = folder.path().join("haltwise-demo");
    for name in [
        "model.safetensors",
        "test.parquet",
        "marginal.json",
        "conditional.json",
    ] {
        assert!(made.join(name).exists(), "{name}");
    }
    let page = fs::read_to_string(made.join("report.html")).unwrap();
    assert!(page.contains("conditional") && page.contains("<svg"));
    // Our own model, our own split: the conditional promise holds on the test strokes.
    let args = [
        "evaluate",
        "haltwise-demo/conditional.json",
        "haltwise-demo/test.parquet",
        "--json",
    ];
    let e: Value =
        serde_json::from_str(&ran(haltwise().current_dir(&folder).args(args)).stdout).unwrap();
    for step in e["by_step"].as_array().unwrap() {
        let low = step["gap_by_interval"][0].as_f64().unwrap();
        assert!(low <= 0.1, "{step}");
    }
}

#[test]
fn help_completions_and_manual_pages_are_there() {
    let help = ran(haltwise().arg("--help"));
    assert!(help.stdout.contains("Start here:") && help.stdout.contains("calibrate"));
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let run = ran(haltwise().args(["completions", shell]));
        assert!(run.code == 0 && run.stdout.contains("calibrate"), "{shell}");
    }
    let folder = TempDir::new().unwrap();
    haltwise()
        .args(["man", "-o"])
        .arg(folder.path().join("new/folder"))
        .assert()
        .success();
    assert!(folder.path().join("new/folder/haltwise-decide.1").exists());
    assert!(ran(haltwise().arg("man")).stdout.contains(".TH haltwise"));
}

#[test]
fn output_that_no_one_reads_is_not_an_error() {
    let folder = calibrated();
    let binary = haltwise().get_program().to_owned();
    let script = "set -o pipefail; \"$0\" inspect rule.json | true";
    let run = ran(Command::new("bash")
        .current_dir(&folder)
        .args(["-c", script])
        .arg(binary));
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
}

#[test]
fn a_sequence_that_is_too_long_for_the_rule_is_named_by_its_line() {
    let folder = calibrated();
    let line = |id: &str, steps: usize| {
        let (predictions, scores) = (vec![1; steps], vec![0.5; steps]);
        serde_json::json!({"id": id, "label": 1, "predictions": predictions, "scores": scores})
    };
    let lines = [line("a", 5), line("b", 5), line("c", 9)];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(folder.path().join("long.jsonl"), text).unwrap();
    let run = ran(haltwise()
        .current_dir(&folder)
        .args(["evaluate", "rule.json", "long.jsonl"]));
    assert_eq!(run.code, 1);
    for expected in ["long.jsonl", "line 3", "9 steps"] {
        run.complains(expected);
    }
}

#[test]
fn the_same_sequences_without_ids_are_noticed() {
    let folder = TempDir::new().unwrap();
    let lines = |name: &str, rows: std::ops::Range<u32>| {
        let line = |i: u32| {
            let scores = [
                0.2,
                0.4 + f64::from(i % 997) / 2000.0,
                f64::from(i) / 4000.0,
            ];
            let right = u32::from(!i.is_multiple_of(5));
            serde_json::json!({"label": 1, "predictions": [right, right, 1], "scores": scores})
        };
        let text: String = rows.map(|i| format!("{}\n", line(i))).collect();
        fs::write(folder.path().join(name), text).unwrap();
    };
    lines("all.jsonl", 0..2000);
    lines("some.jsonl", 0..700);
    lines("others.jsonl", 2000..2700);
    for (args, warned) in [("--fit some.jsonl", true), ("--fit others.jsonl", false)] {
        let command = &mut haltwise();
        let run = ran(command
            .current_dir(&folder)
            .args(["calibrate", "all.jsonl", "-o", "rule.json"])
            .args(args.split(' ')));
        assert_eq!(run.code, 0, "{}", run.stderr);
        let found = run
            .stderr
            .contains("700 certifying sequences are identical");
        assert_eq!(found, warned, "{args}: {}", run.stderr);
    }
}
