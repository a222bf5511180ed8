//! Traces larger than memory, cut into files, gathered in parts: one rule,
//! byte for byte; and what does not fit together is refused.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::path::{Path, PathBuf};

use common::{Ran, haltwise, ran};
use haltwise::Sequence;
use haltwise_io::{Columns, TraceWriter, WriteOptions, visit_traces};
use tempfile::TempDir;

/// A folder to work in, with made-up traces in it.
struct Work(TempDir);

impl Work {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a command whose words with a dot or a slash are files here.
    fn run(&self, words: &str) -> Ran {
        let mut command = haltwise();
        command.current_dir(self.0.path());
        ran(command.args(words.split_whitespace()))
    }

    fn done(&self, words: &str) -> Ran {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words}: {}", ran.stderr);
        ran
    }

    /// The message of a command that must fail.
    fn refused(&self, words: &str) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, 1, "{words}: {}{}", ran.stdout, ran.stderr);
        ran.stderr
    }

    /// Removes rules, if they are there, so that the same traces may be tested again.
    fn remove(&self, rules: &[&str]) {
        for rule in rules {
            let _ = std::fs::remove_file(self.path(rule));
        }
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The names in the folder, to see that nothing half-written is left.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

/// A sequence that is read from one file and written to another.
#[derive(Clone)]
struct Row {
    id: String,
    label: Option<u32>,
    predictions: Vec<u32>,
    scores: Vec<f32>,
}

/// The sequences of a file.
fn rows(from: &Path) -> Vec<Row> {
    let mut rows = Vec::new();
    visit_traces(&[from], &Columns::default(), &mut |_, _| {}, &mut |row| {
        rows.push(Row {
            id: row.id().unwrap().to_owned(),
            label: row.label(),
            predictions: row.predictions().to_vec(),
            scores: row.scores().to_vec(),
        });
        Ok(())
    })
    .unwrap();
    rows
}

fn write_rows<'r>(rows: impl IntoIterator<Item = &'r Row>, path: PathBuf) {
    let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
    for row in rows {
        let sequence = Sequence {
            id: Some(&row.id),
            label: row.label,
            predictions: Some(&row.predictions),
            scores: Some(&row.scores),
            ..Sequence::default()
        };
        writer.write(sequence).unwrap();
    }
    writer.finish().unwrap();
}

/// Writes sequences of a file again: those in each range to a file of its own,
/// whose rows are in the reverse order.
fn cut(from: &Path, into: &Path, sizes: &[usize]) {
    std::fs::create_dir(into).unwrap();
    let rows = rows(from);
    assert_eq!(rows.len(), sizes.iter().sum::<usize>());
    let mut rest = &rows[..];
    for (i, &size) in sizes.iter().enumerate() {
        let (part, after) = rest.split_at(size);
        rest = after;
        write_rows(part.iter().rev(), into.join(format!("{i}.parquet")));
    }
}

#[test]
fn simulating_gives_the_same_bytes_on_any_number_of_cores() {
    let work = Work::new();
    for threads in ["1", "3"] {
        let mut command = haltwise();
        command.current_dir(work.0.path());
        command.env("RAYON_NUM_THREADS", threads);
        let words = "simulate --sequences 500 --steps 20 --shortest 3 --files 4 -o";
        let ran = ran(command.args(words.split(' ')).arg(threads));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    for file in 0..4 {
        let bytes = |folder| {
            let path = work.path(folder).join(format!("part-{file:05}.parquet"));
            std::fs::read(path).unwrap()
        };
        assert_eq!(bytes("1"), bytes("3"));
    }
    assert_eq!(work.names(), ["1", "3"]);
    let again = work.refused("simulate --files 2 -o 1");
    assert!(again.contains("1: the folder exists already"), "{again}");
}

#[test]
fn one_rule_however_the_traces_are_read_and_cut() {
    let work = Work::new();
    // Several blocks, and enough for a sample of it to differ from the whole.
    work.done("simulate --sequences 30000 --steps 40 --shortest 10 -o all.parquet");
    let sizes = [1, 12_000, 30, 9_969, 7_000, 900, 100];
    cut(&work.path("all.parquet"), &work.path("cut"), &sizes);
    for (method, options) in [
        ("adaptive", ""),
        ("conditional", "--screen-fraction 0.3 --seed 4"),
        ("marginal", ""),
    ] {
        let how = format!("--method {method} {options}");
        work.remove(&["whole.json", "cut.json", "parts.json"]);
        work.done(&format!("calibrate all.parquet {how} -o whole.json"));
        let whole = work.text("whole.json");
        assert!(whole.contains("\"rejected\": true"), "{method}: {whole}");

        work.done(&format!("calibrate cut {how} -o cut.json"));
        assert_eq!(work.text("cut.json"), whole, "{method}, cut and turned");

        work.done(&format!("screen cut/*.parquet {how} -o candidates.json"));
        for i in 0..sizes.len() {
            work.done(&format!(
                "evidence candidates.json cut/{i}.parquet -o {i}.json"
            ));
        }
        let parts: Vec<String> = (0..sizes.len())
            .rev()
            .map(|i| format!("{i}.json"))
            .collect();
        work.done(&format!("certify {} -o parts.json", parts.join(" ")));
        assert_eq!(work.text("parts.json"), whole, "{method}, in parts");
    }
}

#[test]
fn what_does_not_fit_is_read_twice_and_gives_the_same_rule() {
    let work = Work::new();
    // Twelve million steps of unequal length take 27 MB: more than is left of
    // the least that may be asked for.
    work.done("simulate --sequences 300000 --steps 60 --shortest 20 --files 3 -o traces");
    for (options, sampled) in [
        ("--method conditional --screen-fraction 0.2", false),
        ("--method marginal", false),
        ("--method conditional --screen-fraction 0.9", true),
    ] {
        work.remove(&["kept.json", "streamed.json"]);
        let ran = work.done(&format!("calibrate traces {options} -o kept.json"));
        assert!(!ran.stderr.contains("read twice"), "{}", ran.stderr);
        let ran = work.done(&format!(
            "calibrate traces {options} --memory 280MiB -o streamed.json"
        ));
        ran.complains("300,000 sequences of 12,0");
        ran.complains("they are read twice");
        assert_eq!(
            ran.stderr.contains("screened on"),
            sampled,
            "{}",
            ran.stderr
        );
        assert_eq!(
            work.text("kept.json") == work.text("streamed.json"),
            !sampled
        );
    }
    // A sample screens, but what certifies is the same.
    let certified = |name: &str| {
        let text = work.text(name);
        let line = text
            .lines()
            .find(|l| l.contains("\"certified_on\""))
            .unwrap();
        line.to_owned()
    };
    assert_eq!(certified("kept.json"), certified("streamed.json"));
    let ran = work.run("calibrate traces --memory 1MB -o rule.json");
    ran.complains("at least 256MiB");
}

#[test]
fn evaluating_files_is_evaluating_all_at_once() {
    let work = Work::new();
    work.done("simulate --sequences 20000 --steps 30 --shortest 5 -o all.parquet");
    work.done("simulate --sequences 20000 --steps 30 --shortest 5 --files 5 -o cut");
    work.done("calibrate all.parquet --method conditional -o rule.json");
    let whole = work.done("evaluate rule.json all.parquet --json");
    let cut = work.done("evaluate rule.json cut --json");
    assert_eq!(cut.stdout, whole.stdout);
    cut.complains("these very traces");
}

#[test]
fn evidence_that_does_not_add_up_is_refused() {
    let work = Work::new();
    work.done("simulate --sequences 2000 --steps 10 --files 2 -o traces");
    work.done("simulate --sequences 2000 --steps 10 --files 2 --seed 9 -o others");
    let screen = |options: &str, output: &str| {
        work.done(&format!("screen traces {options} -o {output}"));
    };
    screen("--method conditional", "c.json");
    screen("--method conditional --seed 1", "other.json");
    let evidence = |candidates: &str, traces: &str, output: &str| {
        work.done(&format!("evidence {candidates} {traces} -o {output}"));
    };
    evidence("c.json", "traces/part-00000.parquet", "0.json");
    evidence("c.json", "traces/part-00001.parquet", "1.json");
    evidence("c.json", "others/part-00001.parquet", "1-of-others.json");
    evidence(
        "other.json",
        "traces/part-00001.parquet",
        "1-for-other.json",
    );
    let refused = |parts: &str, why: &str| {
        let message = work.refused(&format!("certify {parts} -o rule.json"));
        assert!(message.contains(why), "{why:?} not in {message:?}");
        assert!(!work.path("rule.json").exists());
    };
    refused(
        "0.json 1-for-other.json",
        "1-for-other.json: the evidence was gathered for other candidate rules",
    );
    refused(
        "0.json 1.json 0.json",
        "0.json: it counts traces/part-00000.parquet, which",
    );
    refused("0.json", "of 1000 sequences, but 2000 were read");
    refused(
        "0.json 1-of-others.json",
        "the traces are not those that were read",
    );
    // The same file in two parts, beside others.
    evidence("c.json", "traces", "both.json");
    refused(
        "both.json 1.json",
        "1.json: it counts traces/part-00001.parquet",
    );
    // Damage, and other files.
    let text = work.text("0.json");
    for (from, to, why) in [
        ("\"halted\":", "\"hatled\":", "the evidence file is damaged"),
        (
            "\"sequences\": 1000",
            "\"sequences\": 10",
            "it is not of its files",
        ),
        ("\"version\": 2", "\"version\": 7", "use a newer haltwise"),
        (
            "haltwise-evidence",
            "haltwise-rule",
            "it is not an evidence file",
        ),
    ] {
        std::fs::write(work.path("bad.json"), text.replacen(from, to, 1)).unwrap();
        refused("bad.json 1.json", why);
    }
    refused("c.json", "c.json: it is not an evidence file");
    work.done("certify 1.json 0.json -o rule.json");
    assert!(work.text("rule.json").contains("conditional"));
}

#[test]
fn candidates_never_certify_on_what_they_were_made_from() {
    let work = Work::new();
    work.done("simulate --sequences 2000 --steps 10 -o january.parquet");
    work.done("simulate --sequences 2000 --steps 12 --seed 1 -o february.parquet");
    let how = "--method conditional";
    work.done(&format!(
        "screen january.parquet {how} --whole --t-max 12 -o c.json"
    ));
    let message = work.refused("evidence c.json january.parquet -o e.json");
    assert!(message.contains("made from these very traces"), "{message}");
    work.done("evidence c.json february.parquet -o e.json");
    work.done("certify e.json -o rule.json");
    let direct = "calibrate february.parquet --screen january.parquet -o direct.json";
    work.done(&format!("{direct} {how}"));
    assert_eq!(work.text("rule.json"), work.text("direct.json"));
    work.done(&format!(
        "screen january.parquet {how} --whole -o short.json"
    ));
    let message = work.refused("evidence short.json february.parquet -o e.json");
    assert!(message.contains("february.parquet: row"), "{message}");
    assert!(message.contains("a sequence has 12 steps"), "{message}");
}

#[test]
fn broken_inputs_are_refused_by_name_and_nothing_is_left() {
    let work = Work::new();
    work.done("simulate --sequences 4000 --steps 20 --files 3 -o traces");
    let middle = work.path("traces/part-00001.parquet");
    let whole = std::fs::read(&middle).unwrap();
    let refused = |why: &str| {
        for command in [
            "calibrate traces -o rule.json",
            "calibrate traces --method conditional -o rule.json",
            "screen traces -o rule.json",
        ] {
            let message = work.refused(command);
            assert!(message.contains(why), "{command}: {message}");
            assert_eq!(work.names(), ["traces"]);
        }
    };
    // Cut short, empty, and with a byte changed in the middle.
    std::fs::write(&middle, &whole[..whole.len() / 2]).unwrap();
    refused("part-00001.parquet: it cannot be decoded");
    std::fs::write(&middle, "").unwrap();
    refused("part-00001.parquet: it is empty");
    let mut changed = whole.clone();
    changed[whole.len() / 3] ^= 0x55;
    changed[whole.len() / 3 + 1] ^= 0x55;
    std::fs::write(&middle, &changed).unwrap();
    refused("part-00001.parquet: ");
    // The same sequences again, under another name.
    std::fs::write(&middle, &whole).unwrap();
    let copy = work.path("traces/part-00003.parquet");
    std::fs::write(&copy, &whole).unwrap();
    refused("part-00003.parquet: row 1: the id \"1333\" was met before");
    std::fs::remove_file(&copy).unwrap();
    std::fs::write(work.path("traces/notes.txt"), "x").unwrap();
    refused("notes.txt: it is not a trace file");
}

/// A disk that is full: everything written to it fails.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing_behind() {
    let work = Work::new();
    work.done("simulate --sequences 2000 --steps 10 -o traces.parquet");
    // A limit on the size of files stands for the disk.
    for command in [
        "calibrate traces.parquet -o rule.json",
        "screen traces.parquet -o candidates.json",
        "simulate --sequences 100000 --files 2 -o more",
    ] {
        let program = assert_cmd::cargo::cargo_bin("haltwise");
        let script = format!(
            "trap '' XFSZ; ulimit -f 1; exec {} {command}",
            program.display()
        );
        let output = std::process::Command::new("bash")
            .current_dir(work.0.path())
            .args(["-c", &script])
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {message}");
        assert!(message.contains("cannot write it"), "{command}: {message}");
        assert_eq!(work.names(), ["traces.parquet"], "{command}");
    }
}

#[test]
fn traces_without_ids_cannot_leak_from_screening_into_certifying() {
    let work = Work::new();
    let line = |i: u32| {
        let right = u32::from(!i.is_multiple_of(7));
        let score = f64::from(i) / 1000.0;
        format!("{{\"label\":1,\"predictions\":[{right},1],\"scores\":[{score},0.9]}}\n")
    };
    let lines = |range: std::ops::Range<u32>| range.map(line).collect::<String>();
    std::fs::write(work.path("1.jsonl"), lines(0..400)).unwrap();
    std::fs::write(work.path("2.jsonl"), lines(400..900)).unwrap();
    work.done("screen 1.jsonl 2.jsonl --method conditional -o c.json");
    // A part, and another order: other rows would be left out than screened.
    for files in ["1.jsonl", "2.jsonl"] {
        let message = work.refused(&format!("evidence c.json {files} -o e.json"));
        assert!(message.contains("the sequences have no ids"), "{message}");
    }
    work.done("evidence c.json 2.jsonl 1.jsonl -o turned.json");
    let message = work.refused("certify turned.json -o rule.json");
    assert!(
        message.contains("the sequences left out are not those"),
        "{message}"
    );
    work.done("evidence c.json 1.jsonl 2.jsonl -o e.json");
    work.done("certify e.json -o rule.json");
    work.done("calibrate 1.jsonl 2.jsonl --method conditional -o direct.json");
    assert_eq!(work.text("rule.json"), work.text("direct.json"));
}

#[test]
fn other_traces_and_learned_scores_stay_within_memory() {
    let work = Work::new();
    work.done("simulate --sequences 30000 --steps 30 --files 3 -o traces");
    work.done("simulate --sequences 12000 --steps 30 --seed 5 -o other.parquet");
    for options in [
        "--fit other.parquet",
        "--method marginal --score gap",
        "--method conditional --score gap --fit other.parquet",
        "--method conditional --screen other.parquet",
    ] {
        work.remove(&["kept.json", "streamed.json"]);
        work.done(&format!("calibrate traces {options} -o kept.json"));
        let ran = work.done(&format!(
            "calibrate traces {options} --memory 256.6MiB -o streamed.json"
        ));
        ran.complains("they are read twice");
        if !ran.stderr.contains("screened on") {
            assert_eq!(
                work.text("kept.json"),
                work.text("streamed.json"),
                "{options}"
            );
        }
    }
}

/// More traces are lawful where looks were planned: each is made once, at its share
/// of delta, and the rule says which one it is from.
#[test]
fn looks_that_were_planned_add_up_and_no_others_are_made() {
    let work = Work::new();
    work.done("simulate --sequences 1500 --seed 5 -o all.parquet");
    cut(
        &work.path("all.parquet"),
        &work.path("parts"),
        &[600, 100, 800],
    );
    let refused = work.run("screen parts/0.parquet --looks 1000,500 -o c.json");
    assert_eq!(refused.code, 2);
    refused.complains("each larger than the last");
    work.done("screen parts/0.parquet --looks 500,1000 -o c.json");
    for part in ["0", "1", "2"] {
        work.done(&format!(
            "evidence c.json parts/{part}.parquet -o {part}.json"
        ));
    }
    work.done("certify 0.json -o rule.json");
    let look = |name: &str| -> serde_json::Value {
        let rule: serde_json::Value = serde_json::from_str(&work.text(name)).unwrap();
        rule["looks"].clone()
    };
    let made = |made: u64, sequences: u64| serde_json::json!({"planned": [500, 1000], "made": made, "sequences": sequences});
    assert_eq!(look("rule.json"), made(1, 600));
    // The same look again is the same rule; on more traces it is another look.
    work.done("certify 0.json -o rule.json");
    let again = work.refused("certify 0.json 1.json -o rule.json");
    assert!(
        again.contains("is from look 1 of 2 already") && again.contains("due at 1,000 traces"),
        "{again}"
    );
    let said = work
        .done("certify 0.json 1.json 2.json -o rule.json")
        .stdout;
    assert_eq!(look("rule.json"), made(2, 1500));
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("comes from look 2 of 2"), "{said}");
    work.done("inspect rule.json");

    // Before the first look there is nothing to certify.
    work.done("screen parts/1.parquet --looks 500 -o early.json");
    work.done("evidence early.json parts/1.parquet -o e.json");
    let early = work.refused("certify e.json -o early-rule.json");
    assert!(
        early.contains("the first look is planned after 500 sequences"),
        "{early}"
    );

    // Without a plan, a rule is not replaced by one that counts its traces again.
    work.done("calibrate parts/0.parquet -o plain.json");
    work.done("calibrate parts/0.parquet -o plain.json");
    let before = work.text("plain.json");
    let again = work.refused("calibrate parts/0.parquet parts/2.parquet -o plain.json");
    assert!(
        again.contains("spends delta twice") && again.contains("--looks"),
        "{again}"
    );
    assert_eq!(work.text("plain.json"), before);
    work.done("calibrate parts/2.parquet -o plain.json");
}

/// The same sequences under new names, and none of them under a name that another has.
fn renamed(rows: &[Row], prefix: &str) -> Vec<Row> {
    let rename = |row: &Row| Row {
        id: format!("{prefix}-{}", row.id),
        ..row.clone()
    };
    rows.iter().map(rename).collect()
}

/// Once evidence is topped up, what was left out is more than what was set aside, so
/// that their fingerprints cannot be equal. What then leaks is refused where the ids
/// prove it, and told where only the content shows it.
#[test]
fn rows_that_come_again_in_later_evidence_are_refused_or_told() {
    let work = Work::new();
    work.done("simulate --sequences 1200 --seed 5 -o may.parquet");
    work.done("simulate --sequences 500 --seed 6 -o more.parquet");
    let may = rows(&work.path("may.parquet"));
    let fresh = renamed(&rows(&work.path("more.parquet")), "fresh");
    write_rows(&fresh, work.path("fresh.parquet"));
    let again = renamed(&may, "june");
    write_rows(again.iter().chain(&fresh), work.path("renamed.parquet"));
    write_rows(may.iter().chain(&fresh), work.path("repeated.parquet"));
    let warning = "certifying sequences are identical, step for step, to sequences that the \
                   candidates were made from";
    for method in ["adaptive", "conditional"] {
        work.done(&format!(
            "screen may.parquet --method {method} --looks 1000,1500 -o c.json"
        ));
        let counted = |part: &str| {
            let words = format!("evidence c.json {part}.parquet -o {part}.json --json");
            let ran = work.done(&words);
            let found: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
            (found["alike"].as_u64().unwrap(), ran.stderr)
        };
        let certified = |parts: &str| {
            let ran = work.done(&format!("certify {parts} -o rule-{method}.json"));
            std::fs::remove_file(work.path(&format!("rule-{method}.json"))).unwrap();
            ran.stderr
        };
        // Lawful requests pass without a message.
        for part in ["may", "fresh"] {
            let (alike, said) = counted(part);
            assert!(alike == 0 && !said.contains(warning), "{method}: {said}");
        }
        assert!(!certified("may.json").contains(warning));
        assert!(!certified("may.json fresh.json").contains(warning));

        // The rows of May under new ids, beside those of May: both verbs say so.
        let (alike, said) = counted("renamed");
        assert!(alike > 150, "{method}: {alike}");
        assert!(said.contains(&format!("{alike} {warning}")), "{said}");
        let said = certified("may.json renamed.json");
        assert!(said.contains(&format!("{alike} {warning}")), "{said}");

        // Without those of May, some of what was set aside was not left out.
        let refused = work.refused("certify renamed.json -o leaked.json");
        assert!(refused.contains(warning), "{method}: {refused}");
        assert!(
            refused.contains("the sequences left out are not those"),
            "{method}: {refused}"
        );
        // Under their own ids they are left out, and would count twice.
        counted("repeated");
        assert!(!certified("repeated.json").contains(warning));
        let twice = work.refused("certify may.json repeated.json -o leaked.json");
        assert!(
            twice.contains("sequences come twice, under the same ids"),
            "{method}: {twice}"
        );
        assert!(!work.path("leaked.json").exists());
    }
}
