//! The rule on disk: versioned JSON, complete enough to audit.

use std::io;
use std::path::Path;

use haltwise::Rule;

use crate::document::Kind;
use crate::error::Result;

pub(crate) const RULE: Kind = Kind {
    name: "rule",
    format: "haltwise-rule",
    version: 2,
    oldest: 1,
    remedy: "calibrate again",
    is: "a rule",
    verb: "evaluate",
};

/// A rule as the text of its file.
pub fn rule_json(rule: &Rule) -> io::Result<String> {
    RULE.json(rule)
}

/// Writes a rule, whole or not at all.
pub fn write_rule(path: &Path, rule: &Rule) -> Result<()> {
    RULE.write(path, rule)
}

/// Reads a rule, and refuses one that is damaged, contradicts itself or was
/// written in a newer format.
pub fn read_rule(path: &Path) -> Result<Rule> {
    RULE.read(path)
}

/// Reads a rule from the bytes of its file.
pub fn parse_rule(bytes: &[u8]) -> std::result::Result<Rule, String> {
    RULE.parse(bytes).map_err(|problem| problem.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haltwise::simulate::{Atom, Process};
    use haltwise::traces::{Certifying, Screening};
    use haltwise::{Method, Plan};
    use proptest::prelude::*;

    fn rule() -> Rule {
        let atom = |score, gap| Atom::new(score, 1.0, gap).unwrap();
        let mut steps = vec![vec![atom(0.3, 0.08), atom(0.6, 0.05)]; 5];
        steps[0] = vec![atom(0.3, 0.5), atom(0.9, 0.3)];
        let process = Process::new("halts from step 2 on", steps);
        let (screening, certifying) = (process.draw(3_000, 1), process.draw(3_000, 2));
        let (screening, certifying) = (Screening::new(screening), Certifying::new(certifying));
        let rule = Plan::of(Method::Conditional).rule(&screening, &certifying);
        let rule = rule.unwrap();
        assert!(rule.halts_early() && rule.trail().len() > 1);
        rule
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

    /// What a change to the file's text makes of it.
    fn refusal(change: impl Fn(&str) -> String) -> String {
        let text = rule_json(&rule()).unwrap();
        let changed = change(&text);
        assert_ne!(changed, text);
        parse_rule(changed.as_bytes()).unwrap_err()
    }

    #[test]
    fn damaged_and_newer_files_are_refused() {
        for (expected, found) in [
            (
                "written by haltwise",
                refusal(|t| t.replace("\"version\": 2", "\"version\": 3")),
            ),
            (
                "no valid \"version\"",
                refusal(|t| t.replace("\"version\": 2", "\"version\": 0")),
            ),
            ("not a rule file", refusal(|t| t[..t.len() / 2].into())),
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

    /// Rules that the first version of the format stored, one of each method.
    #[test]
    fn rules_of_the_first_version_are_read_and_audited() {
        for (name, text) in [
            (
                "marginal",
                include_str!("../tests/fixtures/rule-v1-marginal.json"),
            ),
            (
                "conditional",
                include_str!("../tests/fixtures/rule-v1-conditional.json"),
            ),
            (
                "conditional",
                include_str!("../tests/fixtures/rule-v1-conditional-gap.json"),
            ),
            (
                "adaptive",
                include_str!("../tests/fixtures/rule-v1-adaptive.json"),
            ),
            (
                "adaptive",
                include_str!("../tests/fixtures/rule-v1-adaptive-gap.json"),
            ),
            (
                "screen-only",
                include_str!("../tests/fixtures/rule-v1-screen-only.json"),
            ),
        ] {
            let rule = parse_rule(text.as_bytes()).unwrap();
            assert!(!rule.reads_on(), "{name}: a stream was over at t_max");
            let again = parse_rule(rule_json(&rule).unwrap().as_bytes()).unwrap();
            assert_eq!(again, rule, "{name}");
            if name == "screen-only" {
                continue;
            }
            // Another first threshold is noticed.
            let at = text.find("\"thresholds\"").unwrap();
            let digits = at + text[at..].find("0.").unwrap() + 2;
            let changed = format!("{}1{}", &text[..digits], &text[digits..]);
            assert!(parse_rule(changed.as_bytes()).is_err(), "{name}");
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
}
