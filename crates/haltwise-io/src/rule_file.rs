//! The rule on disk: versioned JSON, complete enough to audit.

use std::io;
use std::path::Path;

use haltwise::Rule;

use crate::document::Kind;
use crate::error::Result;
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

/// Reads a rule, from a file of its own or from a model file that holds it. Refuses one that is damaged, contradicts itself or was written in a newer
/// format.
pub fn read_rule(path: &Path) -> Result<Rule> {
    RULE.read(path)
}

/// Reads a rule from the bytes of its file, or of a model file that holds it.
pub fn parse_rule(bytes: &[u8]) -> std::result::Result<Rule, String> {
    let text = model_texts(bytes).and_then(|mut texts| texts.remove(RULE_IN_MODEL));
    RULE.parse(text.as_deref().map_or(bytes, str::as_bytes))
        .map_err(|problem| problem.to_string())
}
