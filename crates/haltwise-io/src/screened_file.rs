//! Candidates on disk, between screening and gathering evidence.

use std::path::Path;

use haltwise::Screened;

use crate::document::Kind;
use crate::error::Result;

pub(crate) const SCREENED: Kind = Kind {
    name: "candidates",
    format: "haltwise-candidates",
    version: 1,
    remedy: "screen again",
    is: "candidates, made by `haltwise screen`",
    verb: "evidence",
};

/// Writes candidates, whole or not at all.
pub fn write_screened(path: &Path, screened: &Screened) -> Result<()> {
    SCREENED.write(path, screened)
}

/// Reads candidates, and refuses a file that is damaged, contradicts itself or
/// was written in a newer format.
pub fn read_screened(path: &Path) -> Result<Screened> {
    SCREENED.read(path)
}
