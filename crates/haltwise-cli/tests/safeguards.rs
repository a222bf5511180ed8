//! What looks right and is not: labels that are numbered in another way, traces that the rule has
//! seen, and traces that were tested before.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::Path;

use common::{Ran, haltwise, ran, write_traces};
use haltwise::Sequence;
use haltwise_io::{TraceWriter, WriteOptions};
use serde_json::Value;

/// Runs the program in a folder.
fn run(folder: &Path, args: &[&str]) -> Ran {
    ran(haltwise().current_dir(folder).args(args))
}

/// Writes traces of three steps with five probabilities each. The classifier is right for 80% at
/// the end. `label` says what is written for each class.
fn write_probs(path: &Path, n: usize, classes: usize, label: impl Fn(usize) -> Option<u32>) {
    let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
    for i in 0..n {
        let truth = i * 7 % (classes - 1);
        let last = match i % 5 {
            0 => (truth + 1 + i / 5 % (classes - 1)) % classes,
            _ => truth,
        };
        let mut probs = Vec::new();
        for (t, sure) in [(0, 0.4), (1, 0.6), (2, 0.9)] {
            let predicted = if t == 0 && i % 3 == 0 {
                truth + 1
            } else {
                last
            };
            // Every sequence has probabilities of its own.
            let sure = sure + 0.05 * ((i as f32 + 0.5) / n as f32);
            let other = (1.0 - sure) / (classes - 1) as f32;
            probs.extend((0..classes).map(|k| if k == predicted { sure } else { other }));
        }
        let id = format!("s{i}");
        writer
            .write(Sequence {
                id: Some(&id),
                label: label(truth),
                probs: Some((&probs, classes)),
                ..Sequence::default()
            })
            .unwrap();
    }
    writer.finish().unwrap();
}

fn number(class: usize) -> Option<u32> {
    Some(class as u32)
}

#[test]
fn labels_that_start_at_1_are_refused_although_each_is_in_range() {
    let folder = tempfile::tempdir().unwrap();
    let (good, off) = ("good.npz", "off.npz");
    write_probs(&folder.path().join(good), 600, 5, number);
    write_probs(&folder.path().join(off), 600, 5, |class| number(class + 1));
    let calibrate = |traces, more: &[&str]| {
        let args = [&["calibrate", traces, "-o", "rule.json"], more].concat();
        run(folder.path(), &args)
    };
    let refused = calibrate(off, &[]);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    refused.complains("off.npz: at the last step the predictions agree with");
    refused.complains("--label-check skip");
    assert!(!folder.path().join("rule.json").exists());
    let forced = calibrate(off, &["--label-check", "skip"]);
    assert_eq!(forced.code, 0, "{}", forced.stderr);
    forced.complains("warning: at the last step the predictions agree with");
    std::fs::remove_file(folder.path().join("rule.json")).unwrap();
    let fine = calibrate(good, &[]);
    assert_eq!((fine.code, &*fine.stderr), (0, ""), "{}", fine.stderr);
    // The rule is applied to labels that were numbered in another way.
    let found = run(folder.path(), &["evaluate", "rule.json", off]);
    assert_eq!(found.code, 0);
    found.complains("warning: at the last step the predictions agree with");
}

#[test]
fn labels_that_start_at_1_are_never_all_clear() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("right.npz"), 3000, 6, number);
    let made = run(
        folder.path(),
        &["calibrate", "right.npz", "-o", "rule.json"],
    );
    assert_eq!(made.code, 0, "{}", made.stderr);
    write_probs(&folder.path().join("audits.npz"), 2999, 6, number);
    write_probs(&folder.path().join("off.npz"), 2999, 6, |class| {
        Some(class as u32 + 1)
    });
    let json = |audits| run(folder.path(), &["monitor", "rule.json", audits, "--json"]);
    let all_clear = |ran: &Ran| {
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        said["all_clear"].as_bool().unwrap()
    };
    let found = json("audits.npz");
    assert!(all_clear(&found), "{}", found.stdout);
    assert!(
        !found.stderr.contains("probably number"),
        "{}",
        found.stderr
    );
    let off = json("off.npz");
    assert!(!all_clear(&off), "{}", off.stdout);
    off.complains("probably number the classes in different ways");
}

#[test]
fn a_rule_is_not_written_under_the_name_of_a_trace_file_nor_a_page_under_another() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("t.npz"), 600, 5, number);
    let refused = run(folder.path(), &["calibrate", "t.npz", "-o", "rule.parquet"]);
    assert_eq!(refused.code, 1);
    refused.complains("rule.parquet: a rule is a JSON file");
    refused.complains("write it to rule.json");
    assert!(!folder.path().join("rule.parquet").exists());
    let made = run(folder.path(), &["calibrate", "t.npz", "-o", "rule.json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let report = ["evaluate", "rule.json", "t.npz", "--report", "report.pdf"];
    let refused = run(folder.path(), &report);
    assert_eq!(refused.code, 1);
    refused.complains("report.pdf: the report is an HTML file; write it to report.html");
}

#[test]
fn a_promise_by_the_array_of_labels_names_the_column_to_use() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("t.npz"), 600, 5, number);
    let asked = ["calibrate", "t.npz", "-o", "rule.json", "--by", "labels"];
    let refused = run(folder.path(), &asked);
    assert_eq!(refused.code, 1);
    refused.complains("for a promise to each true class, name the column \"label\"");
}

#[test]
fn each_part_of_the_evidence_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("off.npz"), 600, 5, |class| {
        number(class + 1)
    });
    let screened = run(
        folder.path(),
        &["screen", "off.npz", "-o", "candidates.json"],
    );
    assert_eq!(screened.code, 0, "{}", screened.stderr);
    let args = ["evidence", "candidates.json", "off.npz", "-o", "1.json"];
    let refused = run(folder.path(), &args);
    assert_eq!(refused.code, 1);
    refused.complains("the predictions agree with");
}

#[test]
fn a_weak_classifier_is_asked_about_and_certified() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weak.csv");
    let mut text = String::from("id,t,label,prediction,score\n");
    for i in 0..600 {
        // Class 0 has 90%, and the classifier says 1 too often.
        let (label, last) = match i % 10 {
            0 => (1, 1),
            1..=3 => (0, 1),
            _ => (0, 0),
        };
        text += &format!("s{i},1,{label},{last},0.{i:03}\ns{i},2,{label},{last},1\n");
    }
    std::fs::write(path, text).unwrap();
    let found = run(folder.path(), &["calibrate", "weak.csv", "-o", "rule.json"]);
    assert_eq!(found.code, 0, "{}", found.stderr);
    found.complains("agree with 70.0% of the 600 labels, and class 0 alone has 90.0%");
    found.complains("Do labels and predictions number the classes alike?");
}

#[test]
fn a_negative_label_is_missing_only_if_the_archive_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let traces = folder.path().join("traces.npz");
    let half = |class: usize| class.is_multiple_of(2).then_some(class as u32);
    write_probs(&traces, 600, 5, half);
    let found = run(folder.path(), &["inspect", "traces.npz", "--json"]);
    let said: Value = serde_json::from_str(&found.stdout).unwrap();
    assert_eq!(said["labelled"], 300, "{said}");
    // The same archive without the array that says so.
    let mut archive = zip::ZipArchive::new(std::fs::File::open(&traces).unwrap()).unwrap();
    let names: Vec<String> = (archive.file_names())
        .map(|name| name.unwrap().into_owned())
        .collect();
    assert!(names.contains(&"missing.npy".to_owned()), "{names:?}");
    let unsaid = std::fs::File::create(folder.path().join("unsaid.npz")).unwrap();
    let mut copy = zip::ZipWriter::new(unsaid);
    for name in names.iter().filter(|name| *name != "missing.npy") {
        copy.raw_copy_file(archive.by_name(name).unwrap()).unwrap();
    }
    copy.finish().unwrap();
    let refused = run(folder.path(), &["calibrate", "unsaid.npz", "-o", "r.json"]);
    assert_eq!(refused.code, 1);
    refused.complains("labels: -1 is not a class");
    refused.complains("np.savez(..., missing=-1)");
    refused.complains("np.unique(labels, return_inverse=True)[1]");
}

#[test]
fn traces_that_made_the_rule_are_told_in_words_json_and_the_report() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("all.npz"), 1500, 5, number);
    write_probs(&folder.path().join("new.npz"), 1499, 5, number);
    let made = run(folder.path(), &["calibrate", "all.npz", "-o", "rule.json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    // Another order and fewer of them.
    let mut writer =
        TraceWriter::create(folder.path().join("part.npz"), WriteOptions::default()).unwrap();
    let mut rows = Vec::new();
    let none = haltwise_io::Columns::default();
    let all = [folder.path().join("all.npz")];
    haltwise_io::visit_traces(&all, &none, &mut |_, _| {}, &mut |row| {
        rows.push((row.label(), row.probs().unwrap().to_vec()));
        Ok(())
    })
    .unwrap();
    for (label, probs) in rows.iter().rev().take(500) {
        writer
            .write(Sequence {
                label: *label,
                probs: Some((probs, 5)),
                ..Sequence::default()
            })
            .unwrap();
    }
    writer.finish().unwrap();
    for (traces, share, words) in [
        ("all.npz", Some("all"), "made from these very"),
        ("part.npz", Some("some"), "made from some of these"),
        ("new.npz", None, "Over all 1,499 sequences"),
    ] {
        let args = ["evaluate", "rule.json", traces, "--report", "report.html"];
        let found = run(folder.path(), &args);
        assert_eq!(found.code, 0, "{}", found.stderr);
        found.says(&format!(
            "{words}{}",
            if share.is_some() { " sequences" } else { "" }
        ));
        assert_eq!(
            found.stderr.contains("flatter it"),
            share.is_some(),
            "{}",
            found.stderr
        );
        let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        assert_eq!(
            page.contains("do not test its promise"),
            share.is_some(),
            "{traces}"
        );
        assert_eq!(page.contains("verdict warn"), share.is_some(), "{traces}");
        let found = run(folder.path(), &["evaluate", "rule.json", traces, "--json"]);
        let said: Value = serde_json::from_str(&found.stdout).unwrap();
        assert_eq!(said["calibrated_on"].as_str(), share, "{traces}");
    }
}

#[test]
fn traces_with_another_number_of_classes_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("five.npz"), 600, 5, number);
    write_probs(&folder.path().join("four.npz"), 600, 4, number);
    // A score that any number of classes has.
    let args = "calibrate five.npz --method marginal --score max-probability -o rule.json";
    let made = run(folder.path(), &args.split(' ').collect::<Vec<_>>());
    assert_eq!(made.code, 0, "{}", made.stderr);
    let refused = run(folder.path(), &["evaluate", "rule.json", "four.npz"]);
    assert_eq!(refused.code, 1, "{}", refused.stdout);
    refused.complains("4 class probabilities");
}

#[test]
fn few_traces_do_not_say_that_more_would_not_help() {
    let folder = tempfile::tempdir().unwrap();
    // At once, three of twenty answers are wrong, and three of twenty may well be one of twenty.
    let calibrate = |name: &str, n: usize| {
        let mut text = String::from("id,t,label,prediction,score\n");
        for i in 0..n {
            let early = usize::from(i % 7 == 0);
            text += &format!("s{i},1,0,{early},1\ns{i},2,0,0,1\n");
        }
        std::fs::write(folder.path().join(name), text).unwrap();
        let rule = format!("{name}.json");
        let args = ["calibrate", name, "--method", "marginal", "-o", &rule];
        run(folder.path(), &args)
    };
    let few = calibrate("few.csv", 20).stdout.replace("\n  ", " ");
    assert!(!few.contains("More traces would not help"), "{few}");
    assert!(few.contains("too few to tell the true share"), "{few}");
    let many = calibrate("many.csv", 2_000).stdout.replace("\n  ", " ");
    assert!(many.contains("More traces would not help"), "{many}");
}

#[test]
fn a_calibration_without_a_result_says_so_where_people_and_scripts_look() {
    let folder = tempfile::tempdir().unwrap();
    write_probs(&folder.path().join("few.npz"), 20, 5, number);
    write_traces(&folder.path().join("many.npz"), 1500, 1);
    let calibrate = |traces, rule, more: &[&str]| {
        let args = [&["calibrate", traces, "-o", rule], more].concat();
        run(folder.path(), &args)
    };
    let found = calibrate("few.npz", "none.json", &[]);
    let last = found.stdout.lines().last().unwrap();
    assert_eq!(
        (found.code, last),
        (
            0,
            "Written to none.json. Nothing was certified: every sequence is read to its end."
        )
    );
    let said = |ran: Ran| -> Value { serde_json::from_str(&ran.stdout).unwrap() };
    assert_eq!(
        said(calibrate("few.npz", "none.json", &["--json"]))["certified"],
        false
    );
    assert_eq!(
        said(calibrate("many.npz", "some.json", &["--json"]))["certified"],
        true
    );
    let refused = calibrate("few.npz", "required.json", &["--require"]);
    assert_eq!(refused.code, 1);
    refused.complains("nothing was certified, so required.json is not written");
    assert!(!folder.path().join("required.json").exists());
    assert_eq!(
        calibrate("many.npz", "required.json", &["--require"]).code,
        0
    );
}

#[test]
fn traces_that_were_tested_are_tested_again_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    write_traces(&folder.path().join("may.npz"), 1500, 1);
    write_traces(&folder.path().join("june.npz"), 1500, 2);
    let calibrate = |traces, more: &[&str]| {
        let args = [&["calibrate", traces, "-o", "rule.json"], more].concat();
        run(folder.path(), &args)
    };
    // The same calibration gives the same rule.
    for _ in 0..2 {
        let found = calibrate("may.npz", &[]);
        assert_eq!((found.code, &*found.stderr), (0, ""));
    }
    for other in [
        ["--alpha", "0.05"],
        ["--seed", "1"],
        ["--method", "marginal"],
    ] {
        let found = calibrate("may.npz", &other);
        assert_eq!(found.code, 0, "{other:?}");
        found.complains("these traces certified at other settings");
        found.complains("--purpose explore");
    }
    // Other traces are another test.
    let found = calibrate("june.npz", &["--alpha", "0.05"]);
    assert_eq!((found.code, &*found.stderr), (0, ""));
    let found = calibrate("may.npz", &["--purpose", "explore"]);
    assert_eq!(found.code, 0);
    found.complains("takes the place of one that promised something");
}

#[test]
fn a_rule_that_compares_settings_promises_nothing() {
    let folder = tempfile::tempdir().unwrap();
    write_traces(&folder.path().join("may.npz"), 1500, 1);
    let calibrate = |more: &[&str]| {
        let args = [&["calibrate", "may.npz", "-o", "tried.json"], more].concat();
        run(folder.path(), &args)
    };
    for alpha in ["0.1", "0.15", "0.2"] {
        let found = calibrate(&["--purpose", "explore", "--alpha", alpha]);
        assert_eq!(found.code, 0, "{}", found.stderr);
        found.says("Nothing: the rule was made to compare settings.");
        found.says("Written to tried.json. It promises nothing.");
        found.says("steps on average");
    }
    let refused = calibrate(&[]);
    assert_eq!(refused.code, 1);
    refused.complains("tried.json explored some of these traces");
    let found = run(folder.path(), &["evaluate", "tried.json", "may.npz"]);
    found.says("Nothing: the rule was made to compare settings.");
    assert_eq!(calibrate(&["--purpose", "explore", "--require"]).code, 1);
}

#[test]
fn the_same_count_is_told_everywhere() {
    let folder = tempfile::tempdir().unwrap();
    // One threshold of the plain score passes on the fitting traces also.
    write_probs(&folder.path().join("all.npz"), 400, 5, number);
    let made = run(folder.path(), &["calibrate", "all.npz", "-o", "rule.json"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let words = made.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let of = words.split("drawn like the ").nth(1).unwrap();
    let certified = of.split(" traces").next().unwrap().to_owned();
    let args = [
        "evaluate",
        "rule.json",
        "all.npz",
        "--report",
        "report.html",
    ];
    assert_eq!(run(folder.path(), &args).code, 0);
    let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(
        page.contains(&format!("Certified on {certified} sequences")),
        "{certified}"
    );
}

#[test]
fn lines_are_counted_the_same_whatever_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = "id,t,label,prediction,score\na,1,0,0,0.5\na,2,0,0,oops\n";
    for (name, text) in [
        ("unix.csv", text.to_owned()),
        ("dos.csv", text.replace('\n', "\r\n")),
    ] {
        std::fs::write(folder.path().join(name), text).unwrap();
        let refused = run(folder.path(), &["calibrate", name, "-o", "rule.json"]);
        refused.complains(&format!("{name}: line 3, score: \"oops\" is not a number"));
    }
}
