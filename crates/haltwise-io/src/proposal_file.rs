//! Proposals on disk, between fixing them and gathering evidence.

use std::path::Path;

use haltwise::Proposal;

use crate::document::Kind;
use crate::error::Result;

pub(crate) const PROPOSAL: Kind = Kind {
    name: "candidates",
    format: "haltwise-candidates",
    version: 2,
    remedy: "screen again",
    is: "candidates, made by `haltwise screen`",
    verb: "evidence",
};

/// Writes a proposal: a whole file, or nothing.
pub fn write_proposal(path: &Path, proposal: &Proposal) -> Result<()> {
    PROPOSAL.write(path, proposal)
}

/// Reads a proposal. Refuses a file that is damaged, contradicts itself or was written in
/// another format.
pub fn read_proposal(path: &Path) -> Result<Proposal> {
    PROPOSAL.read(path)
}
