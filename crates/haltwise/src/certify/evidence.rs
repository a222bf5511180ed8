//! Evidence: the only input of certifying. It adds up, and records which sequences were
//! counted and which were left out, so that leaks and double counts can be refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::data::identity::{Fingerprint, Key, Overlap, SetSummary, Sketch};
use crate::data::outputs::Outputs;
use crate::data::score::ScoreSource;
use crate::data::sequence::Trace;
use crate::data::survey::Survey;
use crate::data::traces::{Traces, TracesBuilder};
use crate::data::unit_weights::UnitWeights;
use crate::numbers::counts::is_zero;
use crate::propose::error::CalibrateError;
use crate::propose::proposal::{Proposal, Role};
use crate::tables::error::EvidenceError;
use crate::tables::table::{Table, Tallied};
use crate::testing::fixed_sequence::Tally;

/// The counts for all families of a [`Proposal`], and whose they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The digest of the proposal it is for.
    pub(crate) proposal: Fingerprint,
    /// The survey of all sequences that were shown, counted or left out.
    pub(crate) survey: Survey,
    /// The sequences that were counted.
    pub(crate) counted: SetSummary,
    /// The sequences that were left out, because they were set aside to fit or to screen.
    pub(crate) left_out: SetSummary,
    /// How many of the counted sequences have a right full prediction.
    pub(crate) full_right: u64,
    /// How many of the counted sequences have no label.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) unlabelled: u64,
    /// The units that were counted, each once, if sequences come in units.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) units: BTreeSet<Key>,
    /// The units that the weights left out, if sequences come in units and have weights.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) thinned_units: BTreeSet<Key>,
    /// How many counted sequences are among those that the proposal was made from.
    pub(crate) overlap: Overlap,
    /// How many of the sequences left out the proposal remembers having set aside.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) recognised: u64,
    /// A sample of the sequences that were shown.
    pub(crate) sketch: Sketch,
    /// The tables, for each family and each group, one per tally.
    pub(crate) tables: Vec<Table>,
}

impl Evidence {
    /// Starts without evidence.
    pub(crate) fn none(proposal: &Proposal) -> Result<Self, EvidenceError> {
        let tallies = proposal.tallies();
        let mut tables = Vec::new();
        for candidates in proposal.candidates() {
            for _group in 0..proposal.groups().len().max(1) {
                for tally in &tallies {
                    tables.push(Table::none(candidates, tally.tallied)?);
                }
            }
        }
        Ok(Self {
            proposal: proposal.digest(),
            survey: Survey::default(),
            counted: SetSummary::default(),
            left_out: SetSummary::default(),
            full_right: 0,
            unlabelled: 0,
            units: BTreeSet::new(),
            thinned_units: BTreeSet::new(),
            overlap: Overlap::default(),
            recognised: 0,
            sketch: Sketch::new(Sketch::OF_EVIDENCE),
            tables,
        })
    }

    /// Adds the evidence of other sequences for the same proposal.
    pub fn add(&mut self, other: &Self) -> Result<(), EvidenceError> {
        if self.proposal != other.proposal || self.tables.len() != other.tables.len() {
            return Err(EvidenceError::OtherProposal);
        }
        if !self.units.is_disjoint(&other.units) {
            return Err(EvidenceError::CutUnit);
        }
        // A unit with one weight is in both parts kept, or in both left out.
        if !self.units.is_disjoint(&other.thinned_units)
            || !self.thinned_units.is_disjoint(&other.units)
        {
            return Err(EvidenceError::UnevenUnit);
        }
        for (mine, other) in std::iter::zip(&mut self.tables, &other.tables) {
            mine.add(other)?;
        }
        self.units.extend(&other.units);
        self.thinned_units.extend(&other.thinned_units);
        self.unlabelled += other.unlabelled;
        self.survey.add(&other.survey);
        self.counted += other.counted;
        self.left_out += other.left_out;
        self.full_right += other.full_right;
        self.overlap += other.overlap;
        self.recognised += other.recognised;
        self.sketch.add(&other.sketch);
        Ok(())
    }

    /// All sequences that were shown, counted or left out.
    pub fn shown(&self) -> SetSummary {
        self.survey.set
    }

    /// How many sequences were counted.
    pub fn sequences(&self) -> u64 {
        self.counted.sequences
    }

    /// How many of them are identical, step for step, to exactly one sequence that the
    /// proposal was made from. If they are the same sequences, nothing is guaranteed. See
    /// [`Warning::Alike`](crate::corridor::Warning::Alike) for the message.
    pub fn alike(&self) -> u64 {
        self.overlap.alike + self.overlap.shared
    }

    /// How many sequences halted, and how many of those had a gap, per candidate and step,
    /// for all families one after the other.
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

/// Gathers evidence: sequences are counted block by block and not kept. If they come in
/// units, they are kept until the units are complete.
#[derive(Debug)]
pub struct Counting {
    proposal: Arc<Proposal>,
    evidence: Evidence,
    /// For each score, for each group, one per tally.
    certifying: Vec<TracesBuilder>,
    /// The fitting sequences, which may help to certify families that do not depend on
    /// them.
    fitted: Vec<TracesBuilder>,
    tallies: Vec<Tally>,
    unit_weights: UnitWeights,
    bytes: Vec<u8>,
}

impl Counting {
    /// Starts without evidence for this proposal.
    pub fn new(proposal: Arc<Proposal>) -> Result<Self, EvidenceError> {
        let tallies = proposal.tallies();
        let builders = || {
            let mut builders = Vec::new();
            for source in proposal.sources() {
                for _group in 0..proposal.groups().len().max(1) {
                    builders.extend(tallies.iter().map(|tally| {
                        Traces::builder()
                            .source(source.clone())
                            .measured(tally.measure)
                    }));
                }
            }
            builders
        };
        Ok(Self {
            evidence: Evidence::none(&proposal)?,
            certifying: builders(),
            fitted: builders(),
            tallies,
            unit_weights: UnitWeights::default(),
            bytes: Vec::new(),
            proposal,
        })
    }

    /// Counts one sequence, unless it was set aside, and returns its fingerprint; `None` if
    /// the weights leave it out.
    pub fn visit(
        &mut self,
        own: Key,
        trace: &Trace<'_>,
    ) -> Result<Option<Fingerprint>, CalibrateError> {
        let proposal = Arc::clone(&self.proposal);
        let (found, t_max) = (trace.len(), proposal.t_max());
        if found > t_max {
            return Err(EvidenceError::TooLong { found, t_max }.into());
        }
        let who = proposal.plan().admission();
        self.unit_weights.check(who.terms, trace)?;
        let Some(key) = who.admit(own, trace)? else {
            self.evidence.survey.thinned += 1;
            if let (Some(_), Some(unit)) = (&who.terms.unit, trace.about().unit) {
                let unit = Key::new(Some(unit), 0);
                self.evidence.thinned_units.insert(unit);
            }
            return Ok(None);
        };
        let group = who.terms.group(trace);
        let place = proposal.place_of(group.as_deref())?;
        let named = trace.id().is_some();
        let role = proposal.role(key);
        if trace.label().is_none() && proposal.needs_labels() {
            return Err(EvidenceError::Unlabelled.into());
        }
        let print = match role {
            Role::Certify => {
                let print = self.add(Role::Certify, place, key, trace)?;
                self.evidence.counted += SetSummary::one(print);
                self.evidence.unlabelled += u64::from(trace.label().is_none());
                if who.terms.unit.is_some() {
                    self.evidence.units.insert(key);
                }
                let met = proposal.others().meet(own, print, named);
                self.evidence.overlap.note(met);
                print
            }
            Role::Fit if proposal.fitted_help() => self.add(Role::Fit, place, key, trace)?,
            Role::Fit | Role::Screen => trace.fingerprint(&mut self.bytes),
        };
        if role != Role::Certify {
            self.evidence.left_out += SetSummary::one(print);
            let had_to_be = proposal.others().had_to_be_left_out(own, print, named);
            self.evidence.recognised += u64::from(had_to_be);
        }
        self.evidence.survey.note(trace, print, group.as_deref());
        self.evidence.sketch.push(own, print, named);
        Ok(Some(print))
    }

    /// Adds a sequence to the tallies of its group, with each score.
    fn add(
        &mut self,
        role: Role,
        place: usize,
        key: Key,
        trace: &Trace<'_>,
    ) -> Result<Fingerprint, CalibrateError> {
        let mut print = Fingerprint::default();
        let in_score = self.proposal.groups().len().max(1) * self.tallies.len();
        let first = place * self.tallies.len();
        for at in (first..self.certifying.len()).step_by(in_score) {
            for (s, tally) in self.tallies.iter().enumerate() {
                if tally.labelled_only && trace.label().is_none() {
                    continue;
                }
                let set = match role {
                    Role::Fit | Role::Screen => &mut self.fitted[at + s],
                    Role::Certify => &mut self.certifying[at + s],
                };
                print = set.add(key, trace)?;
                // A unit must be complete before it is counted.
                if tally.tallied != Tallied::Units
                    && let Some(block) = set.take_block()
                {
                    self.proposal
                        .count_tally(&mut self.evidence, role, at + s, &block)?;
                }
            }
        }
        Ok(print)
    }

    /// Returns the evidence of all visited sequences.
    pub fn finish(mut self) -> Result<Evidence, EvidenceError> {
        for role in [Role::Certify, Role::Fit] {
            let sets = match role {
                Role::Fit | Role::Screen => std::mem::take(&mut self.fitted),
                Role::Certify => std::mem::take(&mut self.certifying),
            };
            for (place, set) in sets.into_iter().enumerate() {
                let set = set.finish();
                self.proposal
                    .count_tally(&mut self.evidence, role, place, &set)?;
            }
        }
        Ok(self.evidence)
    }

    /// Adds the evidence of several visitors of one set; more than one of them may have met
    /// the same unit.
    pub fn sum(
        all: impl IntoIterator<Item = Result<Self, EvidenceError>>,
    ) -> Result<Evidence, EvidenceError> {
        let mut all = all.into_iter();
        let mut sum = all.next().unwrap_or(Err(EvidenceError::None))?;
        for other in all {
            let mut other = other?;
            for (mine, set) in std::iter::zip(&mut sum.certifying, other.certifying) {
                mine.absorb(set).map_err(|_| EvidenceError::OtherProposal)?;
            }
            for (mine, set) in std::iter::zip(&mut sum.fitted, other.fitted) {
                mine.absorb(set).map_err(|_| EvidenceError::OtherProposal)?;
            }
            if !sum.unit_weights.add(other.unit_weights) {
                return Err(EvidenceError::UnevenUnit);
            }
            let shared = std::mem::take(&mut other.evidence.units);
            sum.evidence.add(&other.evidence)?;
            sum.evidence.units.extend(shared);
        }
        sum.finish()
    }
}

impl Proposal {
    /// Computes each score that candidates judge: first the proposal's own, then the plain
    /// one if there are candidates for it.
    pub fn scored(&self, outputs: &Outputs) -> Result<Vec<Traces>, CalibrateError> {
        let [tally] = self.tallies()[..] else {
            return Err(EvidenceError::NoTerms.into());
        };
        if !self.groups().is_empty() || tally.tallied == Tallied::Units {
            return Err(EvidenceError::NoTerms.into());
        }
        let scored = |source: &ScoreSource| outputs.measured(source, tally.measure);
        let sources = self.sources().into_iter();
        Ok(sources.map(scored).collect::<Result<_, _>>()?)
    }

    /// Counts many parts of one [scored](Self::scored) set, given by positions, for
    /// repeated experiments with overlapping parts.
    ///
    /// A part must not certify a proposal that was made from it.
    pub fn count_parts(
        &self,
        scored: &[Traces],
        parts: &[&[usize]],
    ) -> Result<Vec<Evidence>, CalibrateError> {
        let sources = self.sources();
        for (source, traces) in std::iter::zip(&sources, scored) {
            check_score(traces, source)?;
        }
        let Some(first) = scored.first().filter(|_| scored.len() == sources.len()) else {
            return Err(EvidenceError::NoTerms.into());
        };
        if self.needs_labels() && first.labelled() < first.len() as u64 {
            return Err(EvidenceError::Unlabelled.into());
        }
        let prints = first.fingerprints();
        let lengths: Vec<usize> = first.lengths().collect();
        let mut found = Vec::with_capacity(parts.len());
        let mut none = Evidence::none(self)?;
        none.tables.clear();
        for part in parts {
            let mut evidence = none.clone();
            for &i in part.iter().filter(|&&i| i < first.len()) {
                evidence.counted += SetSummary::one(prints[i]);
                evidence.survey.shortest = evidence.survey.shortest.min(lengths[i]);
                evidence.survey.longest = evidence.survey.longest.max(lengths[i]);
            }
            evidence.survey.set = evidence.counted;
            found.push(evidence);
        }
        for family in self.families() {
            let traces = &scored[usize::from(family.score.is_some())];
            let tables = Table::count_parts(&family.candidates, traces, parts)?;
            for (evidence, table) in std::iter::zip(&mut found, tables) {
                evidence.tables.push(table);
            }
        }
        Ok(found)
    }

    /// Counts sequences for every family that judges their score, in the tally given by its
    /// place: score, group and tally.
    ///
    /// The fitting sequences help to certify families that do not depend on them: plain
    /// thresholds and the clock. Any traces drawn like the certifying ones may test these
    /// families; the fitting ones are, if both were split from one set.
    pub(crate) fn count_tally(
        &self,
        evidence: &mut Evidence,
        role: Role,
        place: usize,
        traces: &Traces,
    ) -> Result<(), EvidenceError> {
        let tallies = self.tallies();
        let in_family = self.groups().len().max(1) * tallies.len();
        let (score, place) = (place / in_family, place % in_family);
        let tally = tallies[place % tallies.len()];
        if role == Role::Certify && score == 0 && place.is_multiple_of(tallies.len()) {
            evidence.full_right += traces.full_right();
        }
        for (f, family) in self.families().iter().enumerate() {
            let judged = usize::from(family.score.is_some()) == score;
            if judged && (role == Role::Certify || family.kind.is_same_for_all_data()) {
                let table = &mut evidence.tables[f * in_family + place];
                table.count(&family.candidates, traces, tally.tallied)?;
            }
        }
        Ok(())
    }
}

/// Refuses traces whose score differs and cannot be converted.
fn check_score(traces: &Traces, wanted: &ScoreSource) -> Result<(), EvidenceError> {
    if traces.source() == wanted {
        return Ok(());
    }
    Err(EvidenceError::other_score(traces.source(), wanted))
}
