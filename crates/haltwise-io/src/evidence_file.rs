//! Evidence on disk: parts that were gathered anywhere, and their sum.
//!
//! A wrong count would silently void the guarantee, so every part says which
//! candidates and which files it is about, and parts that do not fit together
//! are refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use haltwise::{Evidence, Fingerprint, ProposalEvidence, Rule, Screened};
use serde::{Deserialize, Serialize};

use crate::document::Kind;
use crate::error::{Error, Result};
use crate::sets::{Input, sum};

pub(crate) const EVIDENCE: Kind = Kind {
    name: "evidence",
    format: "haltwise-evidence",
    version: 1,
    remedy: "gather it again",
    is: "evidence, made by `haltwise evidence`",
    verb: "certify",
};

/// The evidence of some files for candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct EvidencePart {
    screened: Screened,
    inputs: Vec<Input>,
    evidence: ProposalEvidence,
}

/// Evidence as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    inputs: Vec<Input>,
    screened: Screened,
    evidence: ProposalEvidence,
}

impl EvidencePart {
    /// Evidence for candidates, gathered from files; an error says how the
    /// three contradict each other.
    pub fn new(
        screened: Screened,
        inputs: Vec<Input>,
        evidence: ProposalEvidence,
    ) -> std::result::Result<Self, String> {
        let contradiction = |what: &str| Err(format!("the evidence contradicts itself: {what}"));
        if screened.check(&evidence).is_err() {
            return contradiction("it was gathered for other candidates");
        }
        let read = sum(&inputs).sequences;
        let counted = || evidence.families().iter().map(Evidence::sequences);
        // What was set aside is read, but counted for some families at most.
        let plausible = match screened.is_split() {
            true => counted().all(|counted| counted <= read),
            false => counted().all(|counted| counted == read),
        };
        if !plausible {
            return contradiction("it does not count the sequences of its files");
        }
        let part = Self {
            screened,
            inputs,
            evidence,
        };
        part.check_others()?;
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

    /// The files it was gathered from.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The counts.
    pub fn evidence(&self) -> &ProposalEvidence {
        &self.evidence
    }

    /// How many sequences may certify.
    pub fn certifying(&self) -> u64 {
        self.evidence
            .families()
            .first()
            .map_or(0, Evidence::sequences)
    }
}

impl From<EvidencePart> for Record {
    fn from(part: EvidencePart) -> Self {
        Self {
            inputs: part.inputs,
            screened: part.screened,
            evidence: part.evidence,
        }
    }
}

impl TryFrom<Record> for EvidencePart {
    type Error = String;

    fn try_from(record: Record) -> std::result::Result<Self, String> {
        Self::new(record.screened, record.inputs, record.evidence)
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
                if sum.screened != part.screened {
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
    total
        .check_complete()
        .and_then(|()| total.check_others())
        .map_err(|e| Error::new(&first, e))?;
    let certified = total.screened.certify(&total.evidence);
    certified.map_err(|e| Error::new(&first, e))
}

impl EvidencePart {
    /// Refuses evidence of the traces that the candidates were made from.
    fn check_others(&self) -> std::result::Result<(), String> {
        let made_from = self.screened.made_from().map(|set| set.fingerprint);
        let mut prints = self.evidence.families().iter().map(Evidence::fingerprint);
        match !self.screened.is_split() && prints.any(|print| Some(print) == made_from) {
            true => Err(
                "the candidates were made from these very traces, which voids the \
                         guarantee; gather evidence from others"
                    .into(),
            ),
            false => Ok(()),
        }
    }

    /// Refuses evidence that is not of all the traces that screening read.
    fn check_complete(&self) -> std::result::Result<(), String> {
        let Some(whole) = self.screened.all() else {
            return Ok(());
        };
        let read = sum(&self.inputs);
        if read == whole {
            return Ok(());
        }
        let files = match self.inputs.len() {
            1 => "1 file".to_owned(),
            n => format!("{n} files"),
        };
        Err(match read.sequences == whole.sequences {
            true => "the traces are not those that were read while screening; screen again".into(),
            false => format!(
                "the evidence is of {} sequences in {files}, but {} were read while \
                 screening; give every part, and each once",
                read.sequences, whole.sequences
            ),
        })
    }
}
