//! Sources of sequences: arrays, files of any size, a cluster. The same driver
//! ([`Plan::calibrate`](crate::Plan::calibrate)) goes through every source.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use rayon::prelude::*;

use crate::certify::drawn::{Drawn, Share};
use crate::certify::evidence::{Counting, Evidence};
use crate::data::identity::{Key, Others, Overlap, SetAside, SetSummary, Sketch};
use crate::data::loss::Measure;
use crate::data::outputs::Outputs;
use crate::data::roles::{Certifying, Screening};
use crate::data::score::ScoreSource;
use crate::data::sequence::{About, Trace};
use crate::data::survey::Survey;
use crate::data::terms::Admission;
use crate::data::traces::{Traces, TracesBuilder};
use crate::data::unit_weights::UnitWeights;
use crate::numbers::grid::Grid;
use crate::propose::error::CalibrateError;
use crate::propose::proposal::{Proposal, Role};
use crate::tables::error::EvidenceError;

/// A set of sequences as the driver sees it: each method goes through all of it once.
pub trait Source {
    /// The error of the source.
    type Error;

    /// Makes an error about the set as a whole.
    fn refuse(&self, error: CalibrateError) -> Self::Error;

    /// Returns how much of the set may be kept, at one byte per score of a grid.
    fn room(&self, grid: &Grid) -> Result<Room, Self::Error>;

    /// Whether all sequences of a unit are counted together.
    fn counts_units(&self, grid: &Grid) -> Result<bool, Self::Error>;

    /// Surveys the set.
    fn survey(&self, who: Admission<'_>) -> Result<Survey, Self::Error>;

    /// Draws the sequences to fit to.
    fn fitting(&self, wanted: Share<'_>) -> Result<Drawn, Self::Error>;

    /// Returns the sequences to screen on and, if asked for, those to certify on.
    fn parts(&self, wanted: &Wanted<'_>) -> Result<Parts, Self::Error>;

    /// Gathers the evidence of all sequences that were not set aside.
    fn count(&self, proposal: &Proposal) -> Result<Evidence, Self::Error>;
}

/// How much of a set may be kept in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Room {
    /// All of the set.
    All,
    /// At most this share, to screen on; the others are counted and not kept.
    Share(f64),
}

/// What the driver wants of a set, some of whose sequences may have been fitted to.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// The sequences that were fitted to.
    pub fit: Option<SetAside>,
    /// The sequences that screen.
    pub screen: Option<SetAside>,
    /// As many of the screening sequences as may be kept.
    pub sample: Option<SetAside>,
    /// Whether the certifying sequences are also kept.
    pub keep: bool,
    /// The score; `None` is the one that needs no computing.
    pub score: Option<&'w ScoreSource>,
    /// Scores are kept as bins of this grid.
    pub grid: &'w Grid,
    /// Sequences that must not certify.
    pub(crate) others: &'w Others,
    /// Which sequences are admitted.
    pub who: Admission<'w>,
}

/// The parts of a set, as far as they are kept in memory.
#[derive(Debug)]
pub struct Parts {
    /// The screening sequences by group; one group without a name if there are none.
    pub(crate) screening: BTreeMap<String, Screening>,
    /// The certifying sequences, if wanted.
    pub(crate) certifying: BTreeMap<String, Certifying>,
    /// All screening sequences, kept or not.
    pub(crate) screens: SetSummary,
    /// All sequences that do not certify.
    pub(crate) left_out: SetSummary,
    /// How many of the certifying sequences must not certify.
    pub(crate) overlap: Overlap,
    /// A sample of what does not certify, to find it elsewhere.
    pub(crate) sketch: Sketch,
    /// A sample of the whole set.
    pub(crate) sample: Sketch,
    /// The survey of the whole set.
    pub(crate) survey: Survey,
}

impl Parts {
    /// The same parts, as part of a larger set with this survey.
    pub fn of(mut self, whole: Survey) -> Self {
        self.survey = whole;
        self
    }
}

/// Sequences that can be gone through one by one, as often as needed.
pub trait Fold {
    /// The error of the set.
    type Error;

    /// Makes an error about the set as a whole.
    fn refuse(&self, error: CalibrateError) -> Self::Error;

    /// Returns how much of the set may be kept, at one byte per score of a grid.
    fn room(&self, _grid: &Grid) -> Result<Room, Self::Error> {
        Ok(Room::All)
    }

    /// Returns how many bytes of sequences may be held in memory so that the set need not be
    /// gone through again; 0 if that costs little.
    fn may_hold(&self) -> u64 {
        0
    }

    /// Shows every sequence to a visitor, with its [key](Key), and returns the final states
    /// of the visitors. There may be several visitors, on threads of their own, each with a
    /// state. The result of combining all states must not depend on which visitor saw which
    /// sequence.
    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, Self::Error>;
}

impl<F: Fold> Source for F {
    type Error = F::Error;

    fn refuse(&self, error: CalibrateError) -> Self::Error {
        Fold::refuse(self, error)
    }

    fn room(&self, grid: &Grid) -> Result<Room, Self::Error> {
        Fold::room(self, grid)
    }

    /// Units are counted together if all sequences fit in memory until they are counted.
    fn counts_units(&self, grid: &Grid) -> Result<bool, Self::Error> {
        Ok(Fold::room(self, grid)? == Room::All)
    }

    fn survey(&self, who: Admission<'_>) -> Result<Survey, Self::Error> {
        let start = || (Survey::default(), Vec::new());
        let states = self.fold(start, |(survey, bytes), key, trace| {
            if who.admit(key, trace)?.is_none() {
                survey.thinned += 1;
                return Ok(());
            }
            let group = who.terms.group(trace);
            survey.note(trace, trace.fingerprint(bytes), group.as_deref());
            Ok(())
        })?;
        Ok(sum(states.iter().map(|(survey, _)| survey)))
    }

    fn fitting(&self, wanted: Share<'_>) -> Result<Drawn, Self::Error> {
        Drawn::from_part(self, wanted, None)
    }

    fn parts(&self, wanted: &Wanted<'_>) -> Result<Parts, Self::Error> {
        let states = self.fold(Keeping::default, |state, key, trace| {
            state.visit(wanted, key, trace)
        })?;
        let survey = sum(states.iter().map(|state| &state.survey));
        let mut parts = Parts {
            screening: BTreeMap::new(),
            certifying: BTreeMap::new(),
            screens: SetSummary::default(),
            left_out: SetSummary::default(),
            overlap: Overlap::default(),
            sketch: Sketch::new(Sketch::OF_A_PROPOSAL),
            sample: Sketch::new(Sketch::OF_EVIDENCE),
            survey,
        };
        let mut sets: BTreeMap<String, [TracesBuilder; 2]> = BTreeMap::new();
        let mut unit_weights = UnitWeights::default();
        for state in states {
            if !unit_weights.add(state.unit_weights) {
                return Err(Fold::refuse(self, EvidenceError::UnevenUnit.into()));
            }
            parts.screens += state.screens;
            parts.left_out += state.left_out;
            parts.overlap += state.overlap;
            parts.sketch.add(&state.sketch);
            parts.sample.add(&state.sample);
            let mut own: Vec<_> = state.sets.into_iter().map(Some).collect();
            for (group, place) in state.places {
                let Some([screens, certifies]) = own[place].take() else {
                    continue;
                };
                match sets.entry(group) {
                    Entry::Vacant(new) => {
                        new.insert([screens, certifies]);
                    }
                    Entry::Occupied(mut known) => {
                        let [screening, certifying] = known.get_mut();
                        screening
                            .absorb(screens)
                            .and_then(|()| certifying.absorb(certifies))
                            .map_err(|e| Fold::refuse(self, e.into()))?;
                    }
                }
            }
        }
        for (group, [screening, certifying]) in sets {
            let (screening, certifying) = (screening.finish(), certifying.finish());
            parts
                .screening
                .insert(group.clone(), Screening::new(screening));
            parts.certifying.insert(group, Certifying::new(certifying));
        }
        Ok(parts)
    }

    fn count(&self, proposal: &Proposal) -> Result<Evidence, Self::Error> {
        let refuse = |e: EvidenceError| Fold::refuse(self, e.into());
        let shared = Arc::new(proposal.clone());
        let states = self.fold(
            || Counting::new(Arc::clone(&shared)),
            |state, key, trace| match state {
                Ok(counting) => counting.visit(key, trace).map(|_print| ()),
                Err(e) => Err(e.clone().into()),
            },
        )?;
        Counting::sum(states).map_err(refuse)
    }
}

pub(super) fn sum<'s>(surveys: impl Iterator<Item = &'s Survey>) -> Survey {
    surveys.fold(Survey::default(), |mut sum, survey| {
        sum.add(survey);
        sum
    })
}

/// What one visitor keeps.
struct Keeping {
    survey: Survey,
    screens: SetSummary,
    left_out: SetSummary,
    overlap: Overlap,
    sketch: Sketch,
    sample: Sketch,
    /// The screening and the certifying sequences of each group. The first sequence of a
    /// group starts them, because it determines the score.
    sets: Vec<[TracesBuilder; 2]>,
    /// The place of the sets of each group; without groups there is one, without a name.
    places: BTreeMap<String, usize>,
    unit_weights: UnitWeights,
    bytes: Vec<u8>,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            survey: Survey::default(),
            screens: SetSummary::default(),
            left_out: SetSummary::default(),
            overlap: Overlap::default(),
            sketch: Sketch::new(Sketch::OF_A_PROPOSAL),
            sample: Sketch::new(Sketch::OF_EVIDENCE),
            sets: Vec::new(),
            places: BTreeMap::new(),
            unit_weights: UnitWeights::default(),
            bytes: Vec::new(),
        }
    }
}

impl Keeping {
    fn visit(
        &mut self,
        wanted: &Wanted<'_>,
        own: Key,
        trace: &Trace<'_>,
    ) -> Result<(), CalibrateError> {
        self.unit_weights.check(wanted.who.terms, trace)?;
        let Some(key) = wanted.who.admit(own, trace)? else {
            self.survey.thinned += 1;
            return Ok(());
        };
        let group = wanted.who.terms.group(trace);
        let place = self.place(group.as_deref(), wanted, trace);
        let (screening, certifying) = match place.and_then(|place| self.sets.get_mut(place)) {
            Some([screening, certifying]) => (Some(screening), Some(certifying)),
            None => (None, None),
        };
        let role = Role::of(key, wanted.fit, wanted.screen);
        let set = match role {
            Role::Screen if wanted.sample.is_none_or(|sample| sample.has(key)) => screening,
            Role::Certify if wanted.keep => certifying,
            _ => None,
        };
        let print = match set {
            Some(set) => set.add(key, trace)?,
            None => trace.fingerprint(&mut self.bytes),
        };
        let named = trace.id().is_some();
        match role {
            Role::Certify => {
                let met = wanted.others.meet(own, print, named);
                self.overlap.note(met);
            }
            Role::Fit => self.left_out += SetSummary::one(print),
            Role::Screen => {
                self.left_out += SetSummary::one(print);
                self.screens += SetSummary::one(print);
                self.sketch.push(own, print, named);
            }
        }
        self.sample.push(own, print, named);
        self.survey.note(trace, print, group.as_deref());
        Ok(())
    }

    /// Returns the place of the sets of a group; `None` if there are too many groups.
    fn place(
        &mut self,
        group: Option<&str>,
        wanted: &Wanted<'_>,
        trace: &Trace<'_>,
    ) -> Option<usize> {
        let known = match group {
            None => (!self.sets.is_empty()).then_some(0),
            Some(group) => self.places.get(group).copied(),
        };
        if known.is_some() || self.sets.len() > Survey::MOST_GROUPS {
            return known;
        }
        let source = wanted.score.cloned().unwrap_or_else(|| trace.source());
        let builder = || {
            Traces::builder()
                .source(source.clone())
                .measured(Measure::of(wanted.who.terms.loss))
                .binned(wanted.grid.clone())
        };
        let place = self.sets.len();
        self.sets.push([builder(), builder()]);
        self.places
            .insert(group.unwrap_or_default().to_owned(), place);
        Some(place)
    }
}

impl Fold for Outputs {
    type Error = CalibrateError;

    fn refuse(&self, error: CalibrateError) -> CalibrateError {
        error
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, CalibrateError> {
        let pieces = self.len().div_ceil(PIECE);
        on_all_cores(pieces, start, |state, piece| {
            let after = self.len().min((piece + 1) * PIECE);
            (piece * PIECE..after).try_for_each(|i| visit(state, self.key(i), &self.trace(i)))
        })
    }
}

/// A set with computed scores and known correctness: traces whose true class is 1. None of
/// them has an id.
impl Fold for Traces {
    type Error = CalibrateError;

    fn refuse(&self, error: CalibrateError) -> CalibrateError {
        error
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, CalibrateError> {
        let scores_given = match self.source() {
            ScoreSource::Confidence => true,
            ScoreSource::MaxProbability => false,
            other => return Err(EvidenceError::other_score(other, &ScoreSource::default()).into()),
        };
        if self.grid().is_some() {
            return Err(EvidenceError::OffGrid.into());
        }
        if self.measure() != Measure::default() {
            return Err(EvidenceError::NoTerms.into());
        }
        if self.labelled() < self.len() as u64 {
            return Err(EvidenceError::Unlabelled.into());
        }
        on_all_cores(self.blocks.len(), start, |state, b| {
            let block = &self.blocks[b];
            block.show(|i, scores, predictions| {
                let trace = Trace {
                    id: None,
                    label: Some(1),
                    predictions,
                    scores,
                    scores_given,
                    probs: None,
                    classes: 0,
                    predicts: true,
                    numbers: None,
                    losses: None,
                    about: About::default(),
                };
                visit(state, block.keys[i], &trace)
            })
        })
    }
}

/// How many sequences a thread goes through at a time.
const PIECE: usize = 4096;

/// Goes through the pieces of a set on all cores. Among several errors it returns the
/// first.
fn on_all_cores<S: Send, E: Send>(
    pieces: usize,
    start: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, usize) -> Result<(), E> + Sync,
) -> Result<Vec<S>, E> {
    // Waking the pool costs more than a small set.
    if pieces < 2 || rayon::current_num_threads() < 2 {
        let mut state = start();
        (0..pieces).try_for_each(|piece| work(&mut state, piece))?;
        return Ok(vec![state]);
    }
    let begin = || Ok(start());
    let go_on = |state: Result<S, E>, piece| {
        let mut state = state?;
        work(&mut state, piece).map(|()| state)
    };
    // In the order of the pieces.
    let states: Vec<Result<S, E>> = (0..pieces).into_par_iter().fold(begin, go_on).collect();
    states.into_iter().collect()
}
