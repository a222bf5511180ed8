//! Evidence: what certifying reads, and nothing else. It adds up, and says what
//! was counted and what was left out, so that leaks and double counts can be
//! refused.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::CalibrateError;
use crate::identity::{Fingerprint, Key, Overlap, SetRecord, Sketch};
use crate::parts::Certifying;
use crate::proposal::{Proposal, Role};
use crate::sequence::Trace;
use crate::survey::Survey;
use crate::table::{EvidenceError, Table};
use crate::trace::{Traces, TracesBuilder};

/// The counts for all families of a [`Proposal`], and whose they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The digest of the proposal it is for.
    pub(crate) proposal: Fingerprint,
    /// What was shown, counted or left out.
    pub(crate) survey: Survey,
    /// What was counted.
    pub(crate) counted: SetRecord,
    /// What was left out, because it was set aside to fit or to screen.
    pub(crate) left_out: SetRecord,
    /// How many full predictions of what was counted are right.
    pub(crate) full_right: u64,
    /// How many are among those that the proposal was made from.
    pub(crate) overlap: Overlap,
    /// A sample of what was shown.
    pub(crate) sketch: Sketch,
    /// One per family.
    pub(crate) tables: Vec<Table>,
}

impl Evidence {
    /// None yet.
    pub(crate) fn none(proposal: &Proposal) -> Result<Self, EvidenceError> {
        let tables: Result<_, _> = proposal.candidates().map(Table::none).collect();
        Ok(Self {
            proposal: proposal.digest(),
            survey: Survey::default(),
            counted: SetRecord::default(),
            left_out: SetRecord::default(),
            full_right: 0,
            overlap: Overlap::default(),
            sketch: Sketch::new(Sketch::OF_A_RULE),
            tables: tables?,
        })
    }

    /// Adds the evidence of other sequences for the same proposal.
    pub fn add(&mut self, other: &Self) -> Result<(), EvidenceError> {
        if self.proposal != other.proposal || self.tables.len() != other.tables.len() {
            return Err(EvidenceError::OtherProposal);
        }
        for (mine, other) in std::iter::zip(&mut self.tables, &other.tables) {
            mine.add(other)?;
        }
        self.survey.add(&other.survey);
        self.counted += other.counted;
        self.left_out += other.left_out;
        self.full_right += other.full_right;
        self.overlap += other.overlap;
        self.sketch.add(&other.sketch);
        Ok(())
    }

    /// The sequences that were shown: counted, or left out.
    pub fn shown(&self) -> SetRecord {
        self.survey.set
    }

    /// How many sequences were counted.
    pub fn sequences(&self) -> u64 {
        self.counted.sequences
    }

    /// How many of them say, step for step, what a sequence says that the
    /// proposal was made from, under another id or none: if they are the same
    /// sequences, nothing is guaranteed.
    pub fn alike(&self) -> u64 {
        self.overlap.alike
    }

    /// Per candidate and step, of all families one after the other: how many
    /// halted, and how many of those had a gap.
    pub fn counts(&self) -> [Vec<Vec<u64>>; 2] {
        let rows = || self.tables.iter().flat_map(Table::rows);
        [
            rows()
                .map(|row| row.iter().map(|c| c.halted).collect())
                .collect(),
            rows()
                .map(|row| row.iter().map(|c| c.gaps).collect())
                .collect(),
        ]
    }
}

/// Evidence under way: sequences are counted block by block and let go.
#[derive(Debug)]
pub struct Counting {
    proposal: Arc<Proposal>,
    evidence: Evidence,
    certifying: TracesBuilder,
    /// What was fitted to, and may help to certify the clock.
    fitted: TracesBuilder,
    bytes: Vec<u8>,
}

impl Counting {
    /// No evidence yet for this proposal.
    pub fn new(proposal: Arc<Proposal>) -> Result<Self, EvidenceError> {
        let builder = || Traces::builder().source(proposal.score().clone());
        Ok(Self {
            evidence: Evidence::none(&proposal)?,
            certifying: builder(),
            fitted: builder(),
            bytes: Vec::new(),
            proposal,
        })
    }

    /// Counts one sequence, unless it was set aside, and returns its fingerprint.
    pub fn visit(&mut self, key: Key, trace: &Trace<'_>) -> Result<Fingerprint, CalibrateError> {
        let (found, t_max) = (trace.len(), self.proposal.t_max());
        if found > t_max {
            return Err(EvidenceError::TooLong { found, t_max }.into());
        }
        let print = match self.proposal.role(key) {
            Role::Certify => {
                let print = self.certifying.add(key, trace)?;
                self.evidence.counted += SetRecord::one(print);
                let met = self.proposal.meet(key, print, trace.id().is_some());
                self.evidence.overlap.note(met);
                print
            }
            Role::Fit if self.proposal.has_clock() => {
                let print = self.fitted.add(key, trace)?;
                self.evidence.left_out += SetRecord::one(print);
                print
            }
            Role::Fit | Role::Screen => {
                let print = trace.fingerprint(&mut self.bytes);
                self.evidence.left_out += SetRecord::one(print);
                print
            }
        };
        self.evidence.survey.note(trace, print);
        self.evidence.sketch.push(key, print, trace.id().is_some());
        if let Some(block) = self.certifying.take_block() {
            self.proposal.count_block(&mut self.evidence, &block)?;
        }
        if let Some(block) = self.fitted.take_block() {
            self.proposal.count_fitted(&mut self.evidence, &block)?;
        }
        Ok(print)
    }

    /// The evidence of all that was visited.
    pub fn finish(mut self) -> Result<Evidence, EvidenceError> {
        let certifying = std::mem::take(&mut self.certifying).finish();
        self.proposal.count_block(&mut self.evidence, &certifying)?;
        let fitted = std::mem::take(&mut self.fitted).finish();
        self.proposal.count_fitted(&mut self.evidence, &fitted)?;
        Ok(self.evidence)
    }
}

impl Proposal {
    /// Counts, for every candidate, what it would do to the certifying
    /// sequences.
    pub fn count(&self, certifying: &Certifying) -> Result<Evidence, CalibrateError> {
        let mut evidence = Evidence::none(self)?;
        evidence.survey = certifying.survey();
        evidence.counted = evidence.survey.set;
        for (key, print, named) in certifying.identities() {
            evidence.sketch.push(key, print, named);
            evidence.overlap.note(self.meet(key, print, named));
        }
        certifying.with_traces(self.score(), |traces| {
            self.check_score(traces)?;
            self.count_block(&mut evidence, traces)
        })??;
        Ok(evidence)
    }

    /// The evidence of many parts of one set, given by positions: for repeated
    /// experiments, where parts overlap.
    ///
    /// What a part is to certify must not have been proposed from it.
    pub fn count_parts(
        &self,
        traces: &Traces,
        parts: &[&[usize]],
    ) -> Result<Vec<Evidence>, CalibrateError> {
        self.check_score(traces)?;
        let prints = traces.fingerprints();
        let lengths: Vec<usize> = traces.lengths().collect();
        let mut found = Vec::with_capacity(parts.len());
        let mut none = Evidence::none(self)?;
        none.tables.clear();
        for part in parts {
            let mut evidence = none.clone();
            for &i in part.iter().filter(|&&i| i < traces.len()) {
                evidence.counted += SetRecord::one(prints[i]);
                evidence.survey.shortest = evidence.survey.shortest.min(lengths[i]);
                evidence.survey.longest = evidence.survey.longest.max(lengths[i]);
            }
            evidence.survey.set = evidence.counted;
            found.push(evidence);
        }
        for candidates in self.candidates() {
            let tables = Table::count_parts(candidates, traces, parts)?;
            for (evidence, table) in std::iter::zip(&mut found, tables) {
                evidence.tables.push(table);
            }
        }
        Ok(found)
    }

    fn check_score(&self, traces: &Traces) -> Result<(), EvidenceError> {
        if traces.source() == self.score() {
            return Ok(());
        }
        Err(EvidenceError::other_score(traces.source(), self.score()))
    }

    /// Counts certifying sequences for every family.
    pub(crate) fn count_block(
        &self,
        evidence: &mut Evidence,
        traces: &Traces,
    ) -> Result<(), EvidenceError> {
        evidence.full_right += traces.full_right();
        let mut families = std::iter::zip(self.candidates(), &mut evidence.tables);
        families.try_for_each(|(candidates, table)| table.count(candidates, traces))
    }

    /// Lets sequences that were fitted to help to certify what is the same
    /// whatever they say: the clock. All traces drawn like the certifying ones
    /// may test it; the fitting ones are, where both were split from one set.
    fn count_fitted(&self, evidence: &mut Evidence, fitted: &Traces) -> Result<(), EvidenceError> {
        for (family, table) in std::iter::zip(self.families(), &mut evidence.tables) {
            if family.kind == crate::candidates::FamilyKind::Clock {
                table.count(&family.candidates, fitted)?;
            }
        }
        Ok(())
    }
}
