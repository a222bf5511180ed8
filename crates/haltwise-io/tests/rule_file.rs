//! The rule on disk reads back equal, and is refused if damaged. docs/rule-file.md is
//! compared with the code: every field and every word of the format is described, and the
//! example is what is written.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::path::Path;

use haltwise::simulate::{Atom, Process};
use haltwise::{Ask, Inputs, Method, Plan, Rule};
use haltwise_io::{
    RULE_IN_MODEL, parse_rule, parse_rule_text, read_rule, read_rule_text, rule_json,
    with_model_texts, write_rule,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rule-file.md");

fn page() -> String {
    let text = std::fs::read_to_string(PAGE).unwrap();
    text.replace("\r\n", "\n")
}

fn rule() -> Rule {
    let atom = |score, gap| Atom::new(score, 1.0, gap).unwrap();
    let mut steps = vec![vec![atom(0.3, 0.08), atom(0.6, 0.05)]; 5];
    steps[0] = vec![atom(0.3, 0.5), atom(0.9, 0.3)];
    let process = Process::new("halts from step 2 on", steps);
    let (screening, certifying) = (process.draw(3_000, 1), process.draw(3_000, 2));
    let plan = Plan::new(Ask {
        method: Some(Method::Conditional),
        screen: true,
        ..Ask::default()
    });
    let given = Inputs::one(&certifying).screen(&screening);
    let rule = plan.unwrap().calibrate(given).unwrap().rule;
    assert!(rule.halts_early() && rule.trail().len() > 1);
    rule
}

#[test]
fn a_rule_is_read_out_of_a_model_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("early.safetensors");
    let (model, rule) = (b"\x02\0\0\0\0\0\0\0{}", rule());
    let texts = [(RULE_IN_MODEL.to_owned(), rule_json(&rule).unwrap())];
    std::fs::write(&path, with_model_texts(model, texts.into()).unwrap()).unwrap();
    assert_eq!(read_rule(&path).unwrap(), rule);
    assert_eq!(parse_rule(&std::fs::read(&path).unwrap()).unwrap(), rule);
    let with_text = (rule.clone(), rule_json(&rule).unwrap());
    assert_eq!(read_rule_text(&path).unwrap(), with_text);
    assert_eq!(
        parse_rule_text(&std::fs::read(&path).unwrap()).unwrap(),
        with_text
    );
    // A rule that was changed there is refused, as in a file of its own.
    let text = rule_json(&rule)
        .unwrap()
        .replace("\"alpha\": 0.1", "\"alpha\": 0.01");
    let texts = [(RULE_IN_MODEL.to_owned(), text)];
    std::fs::write(&path, with_model_texts(model, texts.into()).unwrap()).unwrap();
    assert!(read_rule(&path).is_err());
    std::fs::write(&path, model).unwrap();
    let refused = read_rule(&path).unwrap_err().to_string();
    assert!(
        refused.contains("it is a model without a rule; name the rule file"),
        "{refused}"
    );
}

#[test]
fn what_is_written_reads_back_equal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rule.json");
    write_rule(&path, &rule()).unwrap();
    assert_eq!(read_rule(&path).unwrap(), rule());
}

#[test]
fn the_file_is_meant_to_be_read() {
    let text = rule_json(&rule()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], r#"  "format": "haltwise-rule","#);
    assert!(
        lines
            .iter()
            .any(|l| l.starts_with("  \"thresholds\": [null, ")),
        "{text}"
    );
    assert!(
        lines.iter().any(|l| l.starts_with("    {\"opens\": 5, ")),
        "{text}"
    );
    assert!(lines.iter().all(|l| !l.ends_with(' ')), "{text}");
}

/// The error that a change to the file's text causes.
fn refusal(change: impl Fn(&str) -> String) -> String {
    let text = rule_json(&rule()).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text);
    parse_rule(changed.as_bytes()).unwrap_err()
}

#[test]
fn damaged_and_other_versions_files_are_refused() {
    for (expected, found) in [
        (
            "this program reads version 2: use a newer haltwise",
            refusal(|t| t.replace("\"version\": 2", "\"version\": 3")),
        ),
        (
            "this program reads version 2: calibrate again",
            refusal(|t| t.replace("\"version\": 2", "\"version\": 1")),
        ),
        (
            "no valid \"version\"",
            refusal(|t| t.replace("\"version\": 2", "\"version\": 0")),
        ),
        ("it is cut short", refusal(|t| t[..t.len() / 2].into())),
        (
            "not a rule file",
            refusal(|t| t.replace("haltwise-rule", "other")),
        ),
        (
            "alpha must lie strictly",
            refusal(|t| t.replace("\"alpha\": 0.1", "\"alpha\": 1.5")),
        ),
        (
            "missing field `delta`",
            refusal(|t| t.replace("  \"delta\": 0.01,\n", "")),
        ),
        (
            "unknown field",
            refusal(|t| t.replace("\"delta\"", "\"detla\"")),
        ),
        (
            "thresholds for t_max",
            refusal(|t| t.replace("\"t_max\": 5", "\"t_max\": 6")),
        ),
        (
            "does not follow from its counts",
            refusal(|t| t.replace("\"gaps\": ", "\"gaps\": 1")),
        ),
        (
            "the promise it states",
            refusal(|t| {
                t.replacen(
                    "\"promise\": \"conditional\"",
                    "\"promise\": \"marginal\"",
                    1,
                )
            }),
        ),
        (
            "tests that passed",
            refusal(|t| t.replace("\"thresholds\": [null, ", "\"thresholds\": [0.5, ")),
        ),
        // A later threshold, the kind of promise, the order of the tests.
        (
            "tests that passed",
            refusal(|t| t.replacen("0.0],", "1.0],", 1)),
        ),
        (
            "not those of its method",
            refusal(|t| t.replace("\": \"conditional\"", "\": \"marginal\"")),
        ),
        (
            "tests that passed",
            refusal(|t| t.replacen("{\"opens\": 5, ", "{\"opens\": 3, ", 1)),
        ),
        (
            "not those that were certified",
            refusal(|t| {
                let at = t.find("  \"seal\"").unwrap();
                let end = at + t[at..].find('\n').unwrap() + 1;
                format!("{}{}", &t[..at], &t[end..])
            }),
        ),
        (
            "no certifying traces",
            refusal(|t| {
                let at = t.find("\"certified_on\"").unwrap();
                let end = at + t[at..].find('\n').unwrap();
                format!("{}\"certified_on\": null,{}", &t[..at], &t[end..])
            }),
        ),
        (
            "more sequences than there are",
            refusal(|t| t.replace("\"sequences\": 3000", "\"sequences\": 3")),
        ),
        (
            "more certifying traces than can be",
            refusal(|t| t.replace("\"sequences\": 3000", "\"sequences\": 9000000000000000000")),
        ),
    ] {
        assert!(found.contains(expected), "{expected:?} not in {found:?}");
    }
}

/// Rules that an earlier build stored: a change of the format is a new version.
#[test]
fn stored_rules_are_read_and_audited() {
    for text in [
        include_str!("fixtures/rule-conditional.json"),
        include_str!("fixtures/rule-adaptive.json"),
    ] {
        let rule = parse_rule(text.as_bytes()).unwrap();
        assert_eq!(rule_json(&rule).unwrap(), text);
        // Another first threshold is noticed.
        let at = text.find("\"thresholds\"").unwrap();
        let digits = at + text[at..].find("0.").unwrap() + 2;
        let changed = format!("{}1{}", &text[..digits], &text[digits..]);
        assert!(parse_rule(changed.as_bytes()).is_err());
    }
}

proptest! {
    #[test]
    fn no_change_of_bytes_makes_the_reader_panic(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
    ) {
        let mut bytes = rule_json(&rule()).unwrap().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        let _ = parse_rule(&bytes);
    }
}

/// The file of a rule, as Haltwise 0.1.0 writes it.
fn written() -> String {
    let text = rule_json(&rule()).unwrap();
    let version = concat!("haltwise ", env!("CARGO_PKG_VERSION"));
    text.replace(version, "haltwise 0.1.0")
}

#[test]
fn the_example_is_what_is_written() {
    let page = page();
    let start = page.find("```json\n").unwrap() + "```json\n".len();
    let end = start + page[start..].find("```").unwrap();
    if std::env::var_os("HALTWISE_WRITE").is_some() {
        let page = format!("{}{}{}", &page[..start], written(), &page[end..]);
        std::fs::write(Path::new(PAGE), page).unwrap();
        return;
    }
    let shown = &page[start..end];
    assert_eq!(
        shown,
        written(),
        "HALTWISE_WRITE=1 cargo test -p haltwise-io --test rule_file"
    );
    assert_eq!(parse_rule(shown.as_bytes()).unwrap(), rule());
}

/// A file with every field that a rule can have. It contradicts itself, but this is
/// detected only after every field has been read.
fn everything() -> Value {
    let mut file: Value = serde_json::from_str(&rule_json(&rule()).unwrap()).unwrap();
    let set = file["certified_on"].clone();
    file["fitted_on"] = set;
    file["screen_by"] = json!("risk");
    file["terms"] = json!({
        "loss": "given", "by": "a", "unit": "b", "weight": {"column": "c", "bound": 2.0},
        "cost": {"column": "d"},
    });
    file["looks"] = json!({"planned": [10, 20], "made": 1, "sequences": 10});
    file["split"] = json!({"fit_fraction": 0.3, "screen_fraction": 0.5, "seed": 0});
    file["expected"]["cost"] = json!(1.0);
    file["score"] = json!({"gap": {
        "uses_score": true, "classes": 0, "t_max": 5, "weights": vec![0.0; 11], "intercept": 0.0,
    }});
    file["trail"][0]["labelled"] = json!({"halted": 1, "disagreements": 1, "gaps": 1});
    file
}

/// The values that the reader says it expected in this place.
fn expected(file: &Value) -> BTreeSet<String> {
    let said = parse_rule(file.to_string().as_bytes()).unwrap_err();
    assert!(said.contains("unknown "), "{said}");
    let names = said.split("expected ").nth(1).expect(&said);
    let mut names = names.split('`').skip(1).step_by(2).map(str::to_owned);
    names.by_ref().collect()
}

/// The fields that an object may have, taken from the error for an unknown field.
fn fields(pointer: &str) -> BTreeSet<String> {
    let mut file = everything();
    let object = file.pointer_mut(pointer).expect(pointer);
    object["no such field"] = json!(0);
    expected(&file)
}

/// The words that a field may have.
fn words(pointer: &str) -> BTreeSet<String> {
    let mut file = everything();
    *file.pointer_mut(pointer).expect(pointer) = json!("no-such-word");
    expected(&file)
}

/// The section below a heading, down to the next one.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page
        .find(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    let rest = &page[start + 1..];
    &rest[..rest[1..].find("\n## ").map_or(rest.len(), |end| end + 1)]
}

/// The rows of the table in a section: the name, and the rest.
fn rows(section: &str) -> Vec<(String, &str)> {
    let row = |line: &'_ str| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some(name.to_owned())
    };
    let lines = section.lines();
    lines.filter_map(|line| Some((row(line)?, line))).collect()
}

#[test]
fn every_field_is_described() {
    let page = page();
    for (heading, pointer) in [
        ("The document", ""),
        ("Terms", "/terms"),
        ("Looks", "/looks"),
        ("The learned score", "/score/gap"),
        ("Expected", "/expected"),
        ("Sets", "/fitted_on"),
        ("Sets", "/certified_on"),
        ("Split", "/split"),
        ("Families", "/families/0"),
        ("Trail", "/trail/0"),
        ("Labelled", "/trail/0/labelled"),
    ] {
        let rows = rows(section(&page, heading));
        let described: BTreeSet<String> = rows.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(described.len(), rows.len(), "{heading}: a field twice");
        let mut there = fields(pointer);
        if pointer.is_empty() {
            // These are removed before the rule itself is read.
            there.extend(["format", "version", "written_by"].map(str::to_owned));
        }
        assert_eq!(described, there, "{heading}");
    }
    let weight = rows(section(&page, "Terms"));
    let weight = weight.iter().find(|(name, _)| name == "weight").unwrap().1;
    for field in fields("/terms/weight") {
        assert!(weight.contains(&format!("\"{field}\"")), "{weight}");
    }
}

#[test]
fn every_word_is_described() {
    let page = page();
    for (heading, field, pointer) in [
        ("The document", "method", "/method"),
        ("The document", "promise", "/promise"),
        ("The document", "score", "/score"),
        ("The document", "lengths", "/lengths"),
        ("The document", "at_never", "/at_never"),
        ("The document", "screen_by", "/screen_by"),
        ("Terms", "loss", "/terms/loss"),
        ("Terms", "cost", "/terms/cost"),
        ("Families", "kind", "/families/0/kind"),
    ] {
        let rows = rows(section(&page, heading));
        let (_, row) = rows.iter().find(|(name, _)| name == field).expect(field);
        for word in words(pointer) {
            let told = row.contains(&format!("`{word}`")) || row.contains(&format!("\"{word}\""));
            assert!(told, "{field} may be {word:?}: {row}");
        }
    }
    let proof = section(&page, "Proof");
    let mut file = everything();
    file["proof"] = json!("no-such-word");
    for word in expected(&file) {
        assert!(proof.contains(&format!("\"{word}\"")), "{word}");
    }
}
