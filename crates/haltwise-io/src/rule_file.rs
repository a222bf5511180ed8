//! The rule on disk: versioned JSON, complete enough to audit.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use haltwise::Rule;

use crate::document::Kind;
use crate::error::{Error, Result};
use crate::model_file::model_texts;

pub(crate) const RULE: Kind = Kind {
    name: "rule",
    format: "haltwise-rule",
    version: 2,
    remedy: "calibrate again",
    is: "a rule",
    verb: "evaluate",
};

/// The name under which a model file holds a rule: the text of the rule's own file.
pub const RULE_IN_MODEL: &str = RULE.format;

/// A rule as the text of its file.
pub fn rule_json(rule: &Rule) -> io::Result<String> {
    RULE.json(rule)
}

/// Writes a rule: a whole file, or nothing.
pub fn write_rule(path: &Path, rule: &Rule) -> Result<()> {
    RULE.write(path, rule)
}

/// Reads a rule, from a file of its own or from a model file that holds it. Refuses one that is
/// damaged, contradicts itself or was written in a newer format.
pub fn read_rule(path: &Path) -> Result<Rule> {
    RULE.read(path)
}

/// Reads a rule from the bytes of its file, or of a model file that holds it.
pub fn parse_rule(bytes: &[u8]) -> std::result::Result<Rule, String> {
    RULE.parse(&rule_file(bytes))
        .map_err(|problem| problem.to_string())
}

/// The same, with the text of the rule's file.
pub fn parse_rule_text(bytes: &[u8]) -> std::result::Result<(Rule, String), String> {
    let rule = parse_rule(bytes)?;
    let text = String::from_utf8_lossy(&rule_file(bytes)).into_owned();
    Ok((rule, text))
}

/// The bytes of a rule's file, which may be in a model file.
fn rule_file(bytes: &[u8]) -> Cow<'_, [u8]> {
    let text = model_texts(bytes).and_then(|mut texts| texts.remove(RULE_IN_MODEL));
    text.map_or(Cow::Borrowed(bytes), |text| Cow::Owned(text.into_bytes()))
}

/// Reads a rule as [`read_rule`] does, with the text of the rule's file.
pub fn read_rule_text(path: &Path) -> Result<(Rule, String)> {
    let rule = read_rule(path)?;
    let bytes =
        std::fs::read(path).map_err(|e| Error::new(path, format_args!("cannot read it: {e}")))?;
    let text = String::from_utf8_lossy(&rule_file(&bytes)).into_owned();
    Ok((rule, text))
}
