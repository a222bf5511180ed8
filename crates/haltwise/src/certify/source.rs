//! Sources of sequences: arrays, files of any size, a cluster. The same driver
//! ([`Plan::calibrate`](crate::Plan::calibrate)) goes through every source.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;

use crate::certify::evidence::{Counting, Evidence};
use crate::data::identity::{Key, Others, Overlap, SetAside, SetSummary, Sketch};
use crate::data::loss::Measure;
use crate::data::outputs::Outputs;
use crate::data::roles::{Certifying, Fitting, Screening};
use crate::data::score::ScoreSource;
use crate::data::sequence::{About, Trace};
use crate::data::sequence_error::SequenceError;
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

/// How many sequences may be fitted to: a share of a set whose other sequences certify, or
/// all of another set. In either case those with the smallest draws are chosen, at most
/// [`Fitting::MOST`].
#[derive(Debug, Clone, Copy)]
pub struct Share<'w> {
    /// The share; `None` for all.
    pub share: Option<f64>,
    /// The seed of the draw.
    pub seed: u64,
    /// Which sequences are admitted.
    pub who: Admission<'w>,
    /// Whether the whole set is needed again, and may be held for that: see
    /// [`Fold::may_hold`].
    pub again: bool,
}

/// Sequences to fit to.
#[derive(Debug)]
pub struct Drawn {
    /// The sequences.
    pub fitting: Fitting,
    /// Which sequences of the set they are.
    pub aside: SetAside,
    /// The survey of the whole set.
    pub survey: Survey,
    /// The whole set, if it was held in memory.
    pub(crate) held: Option<Held>,
}

impl Drawn {
    /// Draws from rows that hold at least those with the smallest draws of the whole set;
    /// by default the rows are the whole set.
    pub fn from_part<F: Fold>(
        rows: &F,
        wanted: Share<'_>,
        whole: Option<Survey>,
    ) -> Result<Self, F::Error> {
        let most = match wanted.again {
            true => rows.may_hold(),
            false => 0,
        };
        let (start, bytes) = (|| (Smallest::default(), Outputs::new()), AtomicU64::new(0));
        let states = rows.fold(start, |(state, held), key, trace| {
            if most > 0 {
                hold(held, key, trace, &bytes, most);
            }
            state.visit(&wanted, key, trace)
        })?;
        let (states, held): (Vec<Smallest>, Vec<Outputs>) = states.into_iter().unzip();
        let held = (most > 0 && bytes.into_inner() <= most).then_some(Held(held));
        // Past the smallest draw that a visitor let go of, some sequences of a unit may be
        // missing.
        let known = states.iter().filter_map(|state| state.let_go).min();
        let survey = whole.unwrap_or_else(|| sum(states.iter().map(|state| &state.survey)));
        let mut drawn: Vec<OneDrawn> = states.into_iter().flat_map(|state| state.drawn).collect();
        drawn.sort_unstable();
        drawn.retain(|one| known.is_none_or(|known| one.draw < known));
        let most = match wanted.share {
            Some(share) => {
                let share = SetAside::share(share, wanted.seed);
                let in_share = drawn.iter().filter(|one| one.draw < share.below);
                // However few sequences there are, both parts get one.
                let most = (survey.sequences() as usize).saturating_sub(1);
                in_share.count().max(1).min(most)
            }
            None => drawn.len(),
        };
        let most = whole_units(&drawn, most.min(Fitting::MOST));
        drawn.truncate(most);
        let below = drawn.last().map_or(0, |last| last.draw.saturating_add(1));
        let mut outputs = Outputs::new();
        for one in &drawn {
            let added = one.sequence.append_to(&mut outputs);
            added.map_err(|e| rows.refuse(e.into()))?;
        }
        Ok(Self {
            fitting: Fitting::new(outputs),
            aside: SetAside {
                seed: wanted.seed,
                below,
            },
            survey,
            held,
        })
    }
}

/// Holds one more sequence, unless that takes the set past `most` bytes.
fn hold(held: &mut Outputs, key: Key, trace: &Trace<'_>, bytes: &AtomicU64, most: u64) {
    // A vector that grows takes up to twice its size.
    let more = 2 * Outputs::bytes_of(trace);
    let fits = bytes
        .fetch_add(more, Ordering::Relaxed)
        .saturating_add(more)
        <= most;
    // A sequence unlike the others is refused by the visitor.
    if !fits || held.add(key, trace).is_err() {
        bytes.fetch_max(most.saturating_add(1), Ordering::Relaxed);
        *held = Outputs::new();
    }
}

/// A whole set that is held in memory, in parts.
#[derive(Debug)]
pub(crate) struct Held(Vec<Outputs>);

impl Fold for Held {
    type Error = CalibrateError;

    fn refuse(&self, error: CalibrateError) -> CalibrateError {
        error
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, CalibrateError> {
        let mut states = Vec::new();
        for part in &self.0 {
            states.extend(part.fold(&start, &visit)?);
        }
        Ok(states)
    }
}

/// Returns up to this many, without the last unit if it would be cut in two.
fn whole_units(drawn: &[OneDrawn], most: usize) -> usize {
    match drawn.get(most) {
        Some(next) => drawn[..most].partition_point(|one| one.draw < next.draw),
        None => drawn.len().min(most),
    }
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

fn sum<'s>(surveys: impl Iterator<Item = &'s Survey>) -> Survey {
    surveys.fold(Survey::default(), |mut sum, survey| {
        sum.add(survey);
        sum
    })
}

/// The sequences with the smallest draws that one visitor has met.
#[derive(Default)]
struct Smallest {
    survey: Survey,
    /// The number of classes of the first sequence, and whether it has scores.
    kind: Option<(usize, bool)>,
    drawn: BinaryHeap<OneDrawn>,
    /// The smallest draw that was discarded.
    let_go: Option<u64>,
    bytes: Vec<u8>,
}

/// A sequence that may be fitted to, ordered by its draw.
struct OneDrawn {
    draw: u64,
    key: Key,
    sequence: Owned,
}

/// A sequence that stays in memory.
struct Owned(Outputs);

impl Owned {
    fn append_to(&self, outputs: &mut Outputs) -> Result<(), SequenceError> {
        outputs.add(self.0.key(0), &self.0.trace(0))
    }
}

impl Smallest {
    fn visit(
        &mut self,
        wanted: &Share<'_>,
        key: Key,
        trace: &Trace<'_>,
    ) -> Result<(), CalibrateError> {
        let Some(key) = wanted.who.admit(key, trace)? else {
            self.survey.thinned += 1;
            return Ok(());
        };
        let kind = (trace.classes(), trace.given_scores().is_some());
        if *self.kind.get_or_insert(kind) != kind {
            return Err(SequenceError::unlike().into());
        }
        let group = wanted.who.terms.group(trace);
        let print = trace.fingerprint(&mut self.bytes);
        self.survey.note(trace, print, group.as_deref());
        let draw = key.draw(wanted.seed);
        if self.drawn.len() >= Fitting::MOST {
            let last = self.drawn.peek();
            let keep = last.is_none_or(|last| (draw, key) <= (last.draw, last.key));
            let let_go = match keep {
                true => self.drawn.pop().map_or(draw, |last| last.draw),
                false => draw,
            };
            self.let_go = Some(self.let_go.map_or(let_go, |known| known.min(let_go)));
            if !keep {
                return Ok(());
            }
        }
        let mut sequence = Outputs::new();
        sequence.add(key, trace)?;
        self.drawn.push(OneDrawn {
            draw,
            key,
            sequence: Owned(sequence),
        });
        Ok(())
    }
}

impl Ord for OneDrawn {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.draw, self.key).cmp(&(other.draw, other.key))
    }
}

impl PartialOrd for OneDrawn {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for OneDrawn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OneDrawn {}

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
