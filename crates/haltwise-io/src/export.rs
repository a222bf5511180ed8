//! Exports a rule for other programs: only what a live stream needs, as a table for
//! `haltwise_stream` in another language, or as minimal JSON.

use std::fmt::Write;

use haltwise::Rule;
use haltwise::rule::Thresholds;
use haltwise::score::ScoreSource;
use haltwise_stream as live;
use haltwise_stream::{GroupStanding, RuleError, TableError};
use serde::{Deserialize, Serialize};

use crate::document::Kind;

/// The forms of an exported rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportTo {
    /// A constant of C, for `haltwise_rule_load`.
    C,
    /// A constant of Rust, for `haltwise_stream::Rule::from_words`.
    Rust,
    /// JSON without the record of how the rule was made, so it cannot be audited.
    JsonMin,
}

/// Why a rule cannot be written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The name is not a valid constant.
    #[error(
        "{0:?} cannot be the name of a constant; use letters, digits and underscores, not \
         beginning with a digit"
    )]
    Name(String),
    /// The table is too large.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// Returns the text of a file that holds the rule; for code, as a constant of this name.
pub fn export_rule(rule: &Rule, to: ExportTo, name: &str) -> Result<String, ExportError> {
    match to {
        ExportTo::JsonMin => Ok(LIVE.json(&LiveRule::of(rule)).unwrap_or_default()),
        ExportTo::C => {
            let words = table(rule, name)?;
            let mut text = String::new();
            let _ = writeln!(text, "/* {} */", about(rule).join("\n   "));
            let _ = writeln!(text, "#include <stdint.h>\n");
            let _ = writeln!(text, "static const uint64_t {name}[{}] = {{", words.len());
            lines(&mut text, &words, |word| format!("0x{word:016x}u"));
            text.push_str("};\n");
            if !rule.halting_groups().is_empty() {
                let groups = rule.halting_groups().iter();
                let groups: String = groups
                    .map(|group| format!("    {},\n", c_text(group)))
                    .collect();
                let _ = write!(
                    text,
                    "\n/* The groups that it halts: give them to haltwise_begin. */\n\
                     static const char *const {name}_groups[] = {{\n{groups}    0\n}};\n"
                );
            }
            Ok(text)
        }
        ExportTo::Rust => {
            let words = table(rule, name)?;
            let mut text = String::new();
            for line in about(rule) {
                let _ = writeln!(text, "/// {line}");
            }
            let name = name.to_uppercase();
            let _ = writeln!(text, "pub static {name}: [u64; {}] = [", words.len());
            lines(&mut text, &words, |word| format!("0x{word:016x}"));
            text.push_str("];\n");
            let groups = rule.halting_groups();
            if !groups.is_empty() {
                let _ = write!(
                    text,
                    "\n/// The groups that it halts: give them to `GroupStanding::of`.\n\
                     pub static {name}_GROUPS: [&str; {}] = {groups:?};\n",
                    groups.len()
                );
            }
            Ok(text)
        }
    }
}

/// Describes the rule to readers of the file.
fn about(rule: &Rule) -> Vec<String> {
    let opens = rule.thresholds().values().iter().zip(1..);
    let mut opens = opens.filter(|(v, _)| **v < f32::INFINITY);
    let first = match opens.next() {
        Some((_, t)) => format!("halts at step {t} at the earliest"),
        None => "never halts early".into(),
    };
    vec![
        format!(
            "A rule of Haltwise, by haltwise {}.",
            env!("CARGO_PKG_VERSION")
        ),
        format!("Its score: {}.", rule.source()),
        format!("It has {} steps and {first}.", rule.t_max()),
    ]
}

/// A text as a constant of C. Bytes that are not printable ASCII are in octal, which ends after
/// three digits.
fn c_text(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'"' | b'\\' | b'?' => format!("\\{}", char::from(byte)),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    let text: String = text.bytes().map(byte).collect();
    format!("\"{text}\"")
}

fn table(rule: &Rule, name: &str) -> Result<Vec<u64>, ExportError> {
    let letter = |c: char| c == '_' || c.is_ascii_alphabetic();
    let sound = name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit());
    if !sound {
        return Err(ExportError::Name(name.into()));
    }
    Ok(rule.live().words()?.collect())
}

fn lines(text: &mut String, words: &[u64], write: impl Fn(u64) -> String) {
    for four in words.chunks(4) {
        let four: Vec<String> = four.iter().map(|&word| write(word)).collect();
        let _ = writeln!(text, "    {},", four.join(", "));
    }
}

const LIVE: Kind = Kind {
    name: "live rule",
    format: "haltwise-live-rule",
    version: 1,
    remedy: "export it again",
    is: "a rule without its record",
    verb: "decide",
};

/// Reads a rule that was exported as minimal JSON.
pub fn parse_live_rule(bytes: &[u8]) -> Result<LiveRule, String> {
    LIVE.parse(bytes).map_err(|problem| problem.to_string())
}

/// The part of a rule that live streams need, without the record of how it was made,
/// and so without a promise that could be audited.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredLiveRule", into = "StoredLiveRule")]
pub struct LiveRule(StoredLiveRule);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredLiveRule {
    thresholds: Thresholds,
    score: ScoreSource,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    classes: Option<usize>,
    reads_on: bool,
    /// The groups that it halts, if it is by group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    halting_groups: Vec<String>,
    /// Whether those are only some of the groups that it was certified for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    some_groups: bool,
}

impl TryFrom<StoredLiveRule> for LiveRule {
    type Error = RuleError;

    fn try_from(record: StoredLiveRule) -> Result<Self, RuleError> {
        let live = Self(record);
        let rule = live.live();
        live::Rule::new(
            rule.thresholds(),
            rule.source(),
            rule.classes(),
            rule.reads_on(),
        )?;
        Ok(live)
    }
}

impl From<LiveRule> for StoredLiveRule {
    fn from(live: LiveRule) -> Self {
        live.0
    }
}

impl LiveRule {
    /// Extracts that part of a rule.
    pub fn of(rule: &Rule) -> Self {
        Self(StoredLiveRule {
            thresholds: rule.thresholds().clone(),
            score: rule.source().clone(),
            classes: rule.classes(),
            reads_on: rule.reads_on(),
            halting_groups: rule.halting_groups().to_vec(),
            some_groups: rule.halts_in().is_some(),
        })
    }

    /// Whether the group of a stream, if that is known, is one that the rule halts.
    pub fn standing(&self, group: Option<&str>) -> GroupStanding {
        match &self.0.halting_groups[..] {
            [] => GroupStanding::Unnamed,
            halting => GroupStanding::of(group, halting.iter().map(String::as_str)),
        }
    }

    /// The rule, for live streams.
    pub fn live(&self) -> live::Rule<'_> {
        let StoredLiveRule {
            thresholds,
            score,
            classes,
            reads_on,
            some_groups,
            halting_groups: _,
        } = &self.0;
        live::Rule::trusted(thresholds.values(), score.live(), *classes, *reads_on)
            .in_some_groups(*some_groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(score: &serde_json::Value) -> Rule {
        let rule = serde_json::json!({
            "method": "screen-only", "promise": null, "alpha": 0.1, "delta": 0.01,
            "score": score, "t_max": 3, "lengths": "unequal",
            "thresholds": [null, 0.75, 0.5], "expected": null, "screened_on": null,
            "certified_on": null, "split": null, "trail": [],
        });
        serde_json::from_value(rule).unwrap()
    }

    fn rules() -> [Rule; 2] {
        let learned = serde_json::json!({"gap": {
            "uses_score": true, "classes": 3, "t_max": 3, "intercept": 0.5,
            "weights": (0..26).map(|i| 0.1 * f64::from(i) - 1.0).collect::<Vec<_>>(),
        }});
        [rule(&"margin".into()), rule(&learned)]
    }

    /// The numbers of an exported constant.
    fn words(text: &str) -> Vec<u64> {
        let hex = |word: &str| u64::from_str_radix(&word[..16], 16).unwrap();
        text.split("0x").skip(1).map(hex).collect()
    }

    #[test]
    fn constants_hold_the_rule() {
        for rule in rules() {
            for (to, head) in [
                (ExportTo::C, "static const uint64_t stop_5["),
                (ExportTo::Rust, "pub static STOP_5: [u64; "),
            ] {
                let text = export_rule(&rule, to, "stop_5").unwrap();
                let words = words(&text);
                assert_eq!(live::Rule::from_words(&words), Ok(rule.live()));
                assert!(text.contains(&format!("{head}{}]", words.len())), "{text}");
            }
        }
    }

    #[test]
    fn little_json_reads_back_and_hostile_json_does_not() {
        for rule in rules() {
            let text = export_rule(&rule, ExportTo::JsonMin, "").unwrap();
            assert!(!text.contains("trail") && !text.contains("alpha"), "{text}");
            let live = parse_live_rule(text.as_bytes()).unwrap();
            assert_eq!(live.live(), rule.live());
            for (from, to) in [
                ("0.75", "7.5"),
                ("[null, 0.75, 0.5]", "[]"),
                ("\"reads_on\": true", "\"reads_on\": 1"),
                ("\"reads_on\": true", "\"reads_on\": true, \"classes\": 0"),
                ("haltwise-live-rule", "haltwise-rule"),
            ] {
                let hostile = text.replace(from, to);
                assert_ne!(hostile, text, "{from}");
                assert!(parse_live_rule(hostile.as_bytes()).is_err(), "{hostile}");
            }
        }
    }

    #[test]
    fn a_name_that_would_not_compile_is_refused() {
        for name in ["", "5", "a b", "é", "a;"] {
            let refused = export_rule(&rules()[0], ExportTo::C, name);
            assert_eq!(refused, Err(ExportError::Name(name.into())));
        }
    }
}
