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
    remedy: "calibrate again",
    is: "a rule",
    verb: "evaluate",
};

/// A rule as the text of its file.
pub fn rule_json(rule: &Rule) -> io::Result<String> {
    RULE.json(rule)
}

/// Writes a rule: a whole file, or nothing.
pub fn write_rule(path: &Path, rule: &Rule) -> Result<()> {
    RULE.write(path, rule)
}

/// Reads a rule. Refuses one that is damaged, contradicts itself or was written in a newer
/// format.
pub fn read_rule(path: &Path) -> Result<Rule> {
    RULE.read(path)
}

/// Reads a rule from the bytes of its file.
pub fn parse_rule(bytes: &[u8]) -> std::result::Result<Rule, String> {
    RULE.parse(bytes).map_err(|problem| problem.to_string())
}
