//! Evidence on disk: parts that were gathered anywhere, and their sum.
//!
//! A wrong count would silently void the guarantee, so every part says which
//! candidates and which files it is about, and parts that do not fit together
//! are refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use haltwise::{Evidence, Fingerprint, Proposal, Rule, SetRecord};
use serde::{Deserialize, Serialize};

use crate::document::Kind;
use crate::error::{Error, Result};
use crate::sets::{Input, sum};

const EVIDENCE: Kind = Kind {
    name: "evidence",
    format: "haltwise-evidence",
    version: 1,
    remedy: "gather it again",
};

/// The evidence of some files for candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct EvidencePart {
    proposal: Proposal,
    inputs: Vec<Input>,
    evidence: Evidence,
}

/// Evidence as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    inputs: Vec<Input>,
    proposal: Proposal,
    evidence: Evidence,
}

impl EvidencePart {
    /// Evidence for candidates, gathered from files; an error says how the
    /// three contradict each other.
    pub fn new(
        proposal: Proposal,
        inputs: Vec<Input>,
        evidence: Evidence,
    ) -> std::result::Result<Self, String> {
        let contradiction = |what: &str| Err(format!("the evidence contradicts itself: {what}"));
        if evidence.candidates() != proposal.candidates() || evidence.source() != proposal.source()
        {
            return contradiction("it was gathered for other candidates");
        }
        let read = sum(&inputs);
        let counted = counted(&evidence);
        let plausible = match proposal.split() {
            // The screening part was read, but not counted.
            Some(_) => counted.sequences <= read.sequences,
            None => counted == read,
        };
        if !plausible {
            return contradiction("it does not count the sequences of its files");
        }
        let screened = proposal.screened_on().map(|set| set.fingerprint);
        let mut prints = inputs.iter().map(|input| input.fingerprint);
        if screened == Some(read.fingerprint) || prints.any(|print| screened == Some(print)) {
            return Err("the candidates were screened on these very traces, \
                        which voids the guarantee; gather evidence from others"
                .into());
        }
        let part = Self {
            proposal,
            inputs,
            evidence,
        };
        match part.first_twice() {
            Some(file) => contradiction(&format!("it has {file} twice")),
            None => Ok(part),
        }
    }

    /// A file that is there twice, by its content.
    fn first_twice(&self) -> Option<&str> {
        let mut met = HashMap::new();
        let mut inputs = self.inputs.iter();
        let twice = inputs.find(|input| met.insert(input.fingerprint, ()).is_some());
        twice.map(|input| input.file.as_str())
    }

    /// The candidates, and the levels they are to be tested at.
    pub fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    /// The files it was gathered from.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The counts.
    pub fn evidence(&self) -> &Evidence {
        &self.evidence
    }
}

fn counted(evidence: &Evidence) -> SetRecord {
    SetRecord {
        sequences: evidence.sequences(),
        fingerprint: evidence.fingerprint(),
    }
}

impl From<EvidencePart> for Record {
    fn from(part: EvidencePart) -> Self {
        Self {
            inputs: part.inputs,
            proposal: part.proposal,
            evidence: part.evidence,
        }
    }
}

impl TryFrom<Record> for EvidencePart {
    type Error = String;

    fn try_from(record: Record) -> std::result::Result<Self, String> {
        Self::new(record.proposal, record.inputs, record.evidence)
    }
}

/// Writes evidence, whole or not at all.
pub fn write_evidence(path: &Path, part: &EvidencePart) -> Result<()> {
    EVIDENCE.write(path, part)
}

/// Reads evidence, and refuses a file that is damaged, contradicts itself or
/// was written in a newer format.
pub fn read_evidence(path: &Path) -> Result<EvidencePart> {
    EVIDENCE.read(path)
}

/// Certifies the sum of evidence parts, each from the place that it is given
/// with. Refused are parts for different candidates, a file that is in two
/// parts, and, where screening read all traces, parts that are not all of them.
pub fn certify_parts(
    parts: impl IntoIterator<Item = Result<(PathBuf, EvidencePart)>>,
) -> Result<Rule> {
    let mut sum: Option<(PathBuf, EvidencePart)> = None;
    let mut met: HashMap<Fingerprint, (PathBuf, String)> = HashMap::new();
    for part in parts {
        let (path, part) = part?;
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
                if sum.proposal != part.proposal {
                    let problem = format_args!(
                        "it was gathered for other candidates than {}; gather both for the same",
                        first.display()
                    );
                    return Err(Error::new(&path, problem));
                }
                let added = sum.evidence.add(&part.evidence);
                added.map_err(|e| Error::new(&path, e))?;
                sum.inputs.extend(part.inputs);
            }
        }
    }
    let Some((first, total)) = sum else {
        return Err(Error::new("evidence", "there is none to certify on"));
    };
    total.check_complete().map_err(|e| Error::new(&first, e))?;
    let certified = total.proposal.certify(&total.evidence);
    certified.map_err(|e| Error::new(&first, e))
}

impl EvidencePart {
    /// Refuses evidence that is not of all the traces that screening read.
    fn check_complete(&self) -> std::result::Result<(), String> {
        let Some(whole) = self.proposal.all() else {
            return Ok(());
        };
        let read = sum(&self.inputs);
        if read == whole {
            return Ok(());
        }
        let files = self.inputs.len();
        Err(match read.sequences == whole.sequences {
            true => "the traces are not those that were read while screening; screen again".into(),
            false => format!(
                "the evidence is of {} sequences in {files} files, but {} were read while \
                 screening; give every part, and each once",
                read.sequences, whole.sequences
            ),
        })
    }
}
