//! The rule on disk: versioned JSON, complete enough to audit.

use std::io::{self, Write};
use std::path::Path;

use haltwise::Rule;
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::write::write_whole;

/// What every rule file says it is.
const FORMAT: &str = "haltwise-rule";

/// The version of the format written here, and the newest that can be read.
const VERSION: u64 = 1;

#[derive(Serialize)]
struct RuleFile<'a> {
    format: &'a str,
    version: u64,
    written_by: &'a str,
    #[serde(flatten)]
    rule: &'a Rule,
}

/// A rule as the text of its file.
pub fn rule_json(rule: &Rule) -> io::Result<String> {
    let file = RuleFile {
        format: FORMAT,
        version: VERSION,
        written_by: concat!("haltwise ", env!("CARGO_PKG_VERSION")),
        rule,
    };
    let mut text = Vec::new();
    file.serialize(&mut serde_json::Serializer::with_formatter(
        &mut text,
        OnePerLine { depth: 0 },
    ))?;
    text.push(b'\n');
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    // JSON strings hold no line breaks, so this is between two values.
    Ok(text.replace(", \n", ",\n"))
}

/// Writes a rule, whole or not at all.
pub fn write_rule(path: &Path, rule: &Rule) -> Result<()> {
    write_whole(path, |out| out.write_all(rule_json(rule)?.as_bytes()))
}

/// Reads a rule, and refuses one that is damaged, contradicts itself or was
/// written in a newer format.
pub fn read_rule(path: &Path) -> Result<Rule> {
    let unreadable = |e: io::Error| match e.kind() {
        io::ErrorKind::IsADirectory => Error::new(path, "it is a folder; name the rule file"),
        _ => Error::new(path, format_args!("cannot read it: {e}")),
    };
    let bytes = std::fs::read(path).map_err(unreadable)?;
    parse_rule(&bytes).map_err(|problem| Error::new(path, problem))
}

/// Reads a rule from the bytes of its file.
pub fn parse_rule(bytes: &[u8]) -> std::result::Result<Rule, String> {
    let mut fields: Map<String, Value> = serde_json::from_slice(bytes)
        .map_err(|e| format!("it is not a rule file, or a damaged one: {e}"))?;
    if fields.remove("format") != Some(FORMAT.into()) {
        return Err(format!(
            "it is not a rule file: its \"format\" is not \"{FORMAT}\""
        ));
    }
    let version = fields.remove("version").and_then(|v| v.as_u64());
    let writer = fields.remove("written_by");
    let writer = writer
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or("an unknown version");
    match version {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => {
            return Err(format!(
                "it is a rule of format version {newer}, written by {writer}; this program \
                 reads up to version {VERSION}: use a newer haltwise"
            ));
        }
        _ => return Err("the rule file is damaged: it has no valid \"version\"".into()),
    }
    serde_json::from_value(Value::Object(fields))
        .map_err(|e| format!("the rule file is damaged: {e}; calibrate again"))
}

/// Compact JSON with each field of the outermost object, and each object in a
/// list there, on a line of its own: easy to read, and to compare by line.
struct OnePerLine {
    depth: usize,
}

impl Formatter for OnePerLine {
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.depth == 2 {
            out.write_all(b"\n    ")?;
        }
        self.depth += 1;
        CompactFormatter.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth == 0 {
            out.write_all(b"\n")?;
        }
        CompactFormatter.end_object(out)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        CompactFormatter.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        CompactFormatter.end_array(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(match (self.depth, first) {
            (1, true) => b"\n  ",
            (1, false) => b",\n  ",
            (_, true) => b"",
            (_, false) => b", ",
        })
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haltwise::simulate::{Atom, Process};
    use haltwise::{Calibration, Certifying, Screening};
    use proptest::prelude::*;

    fn rule() -> Rule {
        let atom = |score, gap| Atom::new(score, 1.0, gap).unwrap();
        let mut steps = vec![vec![atom(0.3, 0.08), atom(0.6, 0.05)]; 5];
        steps[0] = vec![atom(0.3, 0.5), atom(0.9, 0.3)];
        let process = Process::new("halts from step 2 on", steps);
        let (screening, certifying) = (process.draw(3_000, 1), process.draw(3_000, 2));
        let (screening, certifying) = (Screening::new(screening), Certifying::new(certifying));
        let rule = Calibration::default().conditional(&screening, &certifying);
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
                refusal(|t| t.replace("\"version\": 1", "\"version\": 2")),
            ),
            (
                "no valid \"version\"",
                refusal(|t| t.replace("\"version\": 1", "\"version\": 0")),
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
                "tests that passed",
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
