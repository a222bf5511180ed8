//! Evidence on disk: parts that were gathered on any machine, and their sum.
//!
//! A wrong count would silently void the guarantee. So every part states its candidates and
//! its files, and parts that do not fit together are refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use haltwise::corridor::EvidenceError;
use haltwise::traces::{Fingerprint, SetSummary};
use haltwise::{Evidence, Proposal, Rule};
use serde::{Deserialize, Serialize};

use crate::document::Kind;
use crate::error::{Error, Result};

pub(crate) const EVIDENCE: Kind = Kind {
    name: "evidence",
    format: "haltwise-evidence",
    version: 2,
    remedy: "gather it again",
    is: "evidence, made by `haltwise evidence`",
    verb: "certify",
};

/// A file that was read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// Its path, as given.
    pub file: String,
    /// How many sequences it has.
    pub sequences: u64,
    /// Their fingerprint.
    pub fingerprint: Fingerprint,
}

/// The evidence of some files for candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredPart", into = "StoredPart")]
pub struct EvidencePart(StoredPart);

/// The stored form of evidence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredPart {
    inputs: Vec<Input>,
    proposal: Proposal,
    evidence: Evidence,
}

impl EvidencePart {
    /// Makes the evidence for candidates, gathered from files. An error says how the three
    /// contradict each other.
    pub fn new(
        proposal: Proposal,
        inputs: Vec<Input>,
        evidence: Evidence,
    ) -> std::result::Result<Self, String> {
        let set = |input: &Input| SetSummary {
            sequences: input.sequences,
            fingerprint: input.fingerprint,
        };
        if inputs.iter().map(set).sum::<SetSummary>() != evidence.shown() {
            return Err("the evidence is damaged: it is not of its files".into());
        }
        proposal.check_part(&evidence).map_err(|e| e.to_string())?;
        let mut met = HashMap::new();
        let twice = |input: &&Input| met.insert(input.fingerprint, ()).is_some();
        if let Some(input) = inputs.iter().find(twice) {
            return Err(format!(
                "it counts {} twice; a sequence may count only once",
                input.file
            ));
        }
        Ok(Self(StoredPart {
            inputs,
            proposal,
            evidence,
        }))
    }

    /// The files it was gathered from.
    pub fn inputs(&self) -> &[Input] {
        &self.0.inputs
    }

    /// The counts.
    pub fn evidence(&self) -> &Evidence {
        &self.0.evidence
    }
}

impl From<EvidencePart> for StoredPart {
    fn from(part: EvidencePart) -> Self {
        part.0
    }
}

impl TryFrom<StoredPart> for EvidencePart {
    type Error = String;

    fn try_from(record: StoredPart) -> std::result::Result<Self, String> {
        Self::new(record.proposal, record.inputs, record.evidence)
    }
}

/// Writes evidence: a whole file, or nothing.
pub fn write_evidence(path: &Path, part: &EvidencePart) -> Result<()> {
    EVIDENCE.write(path, part)
}

/// Reads evidence. Refuses a file that is damaged, contradicts itself or was written in a
/// newer format.
pub fn read_evidence(path: &Path) -> Result<EvidencePart> {
    EVIDENCE.read(path)
}

/// Certifies the sum of evidence parts, each given with its file's path. Refuses parts for
/// different candidates and a file that is in two parts; if screening read all traces, also
/// parts that do not cover all of them.
pub fn certify_parts(
    parts: impl IntoIterator<Item = Result<(PathBuf, EvidencePart)>>,
) -> Result<Rule> {
    let mut sum: Option<(PathBuf, StoredPart)> = None;
    let mut met: HashMap<Fingerprint, (PathBuf, String)> = HashMap::new();
    for part in parts {
        let (path, EvidencePart(part)) = part?;
        for input in &part.inputs {
            let here = (path.clone(), input.file.clone());
            if let Some((before, file)) = met.insert(input.fingerprint, here) {
                let problem = format_args!(
                    "it counts {}, which {} counts too (as {file}); a sequence may count only \
                     once, so leave one of the two away",
                    input.file,
                    before.display()
                );
                return Err(Error::new(&path, problem));
            }
        }
        match &mut sum {
            None => sum = Some((path, part)),
            Some((first, sum)) => {
                let added = sum.evidence.add(&part.evidence);
                added.map_err(|e| {
                    let than = match e {
                        EvidenceError::OtherProposal => format!(" than {}", first.display()),
                        _ => String::new(),
                    };
                    Error::new(&path, format_args!("{e}{than}"))
                })?;
            }
        }
    }
    let Some((first, total)) = sum else {
        return Err(Error::new("evidence", "there is none to certify on"));
    };
    let certified = total.proposal.certify(&total.evidence);
    certified.map_err(|e| Error::new(&first, e))
}
