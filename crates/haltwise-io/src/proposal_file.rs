//! Candidates on disk, between screening and gathering evidence.

use std::path::Path;

use haltwise::Proposal;

use crate::document::Kind;
use crate::error::Result;

const PROPOSAL: Kind = Kind {
    name: "candidates",
    format: "haltwise-candidates",
    version: 1,
    remedy: "screen again",
};

/// Writes candidates, whole or not at all.
pub fn write_proposal(path: &Path, proposal: &Proposal) -> Result<()> {
    PROPOSAL.write(path, proposal)
}

/// Reads candidates, and refuses a file that is damaged, contradicts itself or
/// was written in a newer format.
pub fn read_proposal(path: &Path) -> Result<Proposal> {
    PROPOSAL.read(path)
}
