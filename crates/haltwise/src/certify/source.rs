//! Where sequences come from: arrays, files of any size, a cluster. Whatever
//! the source, the same driver ([`Plan::calibrate`](crate::Plan::calibrate)) goes
//! through it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

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
use crate::numbers::grid::Grid;
use crate::propose::error::CalibrateError;
use crate::propose::proposal::{Proposal, Role};
use crate::tables::error::EvidenceError;

/// A set of sequences, as the driver sees it: each method goes through all of
/// it once.
pub trait Source {
    /// What can go wrong.
    type Error;

    /// An error about the set as a whole.
    fn refuse(&self, error: CalibrateError) -> Self::Error;

    /// How much of the set may be kept, one byte per score of a grid.
    fn room(&self, grid: &Grid) -> Result<Room, Self::Error>;

    /// Whether all sequences of a unit are counted together.
    fn counts_units(&self, grid: &Grid) -> Result<bool, Self::Error>;

    /// What the set looks like.
    fn survey(&self, who: Admission<'_>) -> Result<Survey, Self::Error>;

    /// The sequences to fit to.
    fn fitting(&self, wanted: Share<'_>) -> Result<Drawn, Self::Error>;

    /// The sequences to screen on and, where asked for, those to certify on.
    fn parts(&self, wanted: &Wanted<'_>) -> Result<Parts, Self::Error>;

    /// The evidence of all sequences that were not set aside.
    fn count(&self, proposal: &Proposal) -> Result<Evidence, Self::Error>;
}

/// How much of a set may be kept in memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Room {
    /// All of it.
    All,
    /// At most this share, to screen on; the others are counted and let go.
    Share(f64),
}

/// How many sequences may be fitted to: a share of a set of which the others
/// certify, or all of another set; in either case those with the smallest draws,
/// [`Fitting::MOST`] at the most.
#[derive(Debug, Clone, Copy)]
pub struct Share<'w> {
    /// The share; `None` for all.
    pub share: Option<f64>,
    /// The seed of the draw.
    pub seed: u64,
    /// Who may come in.
    pub who: Admission<'w>,
}

/// Sequences to fit to.
#[derive(Debug)]
pub struct Drawn {
    /// The sequences.
    pub fitting: Fitting,
    /// Which of the set they are.
    pub aside: SetAside,
    /// What all of the set looks like.
    pub survey: Survey,
}

impl Drawn {
    /// Draws from rows that hold, of the whole set, at least those with the
    /// smallest draws; by default they are the whole.
    pub fn from_part<F: Fold>(
        rows: &F,
        wanted: Share<'_>,
        whole: Option<Survey>,
    ) -> Result<Self, F::Error> {
        let states = rows.fold(Smallest::default, |state, key, trace| {
            state.visit(&wanted, key, trace)
        })?;
        // Beyond what a visitor let go of, not all of a unit may be at hand.
        let known = states.iter().filter_map(|state| state.let_go).min();
        let survey = whole.unwrap_or_else(|| sum(states.iter().map(|state| &state.survey)));
        let mut drawn: Vec<OneDrawn> = states.into_iter().flat_map(|state| state.drawn).collect();
        drawn.sort_unstable();
        drawn.retain(|one| known.is_none_or(|known| one.draw < known));
        let most = match wanted.share {
            Some(share) => {
                let share = SetAside::share(share, wanted.seed);
                let in_share = drawn.iter().filter(|one| one.draw < share.below);
                // However few there are, both parts get one.
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
        })
    }
}

/// Up to this many, without the last unit if it would be cut in two.
fn whole_units(drawn: &[OneDrawn], most: usize) -> usize {
    match drawn.get(most) {
        Some(next) => drawn[..most].partition_point(|one| one.draw < next.draw),
        None => drawn.len().min(most),
    }
}

/// What is wanted of a set of which some sequences may have been fitted to.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// Those that were fitted to.
    pub fit: Option<SetAside>,
    /// Those that screen.
    pub screen: Option<SetAside>,
    /// As many of those as may be kept.
    pub sample: Option<SetAside>,
    /// Whether those that certify are kept too.
    pub keep: bool,
    /// The score; `None` is the one that is there without computing.
    pub score: Option<&'w ScoreSource>,
    /// Scores are kept as bins of this grid.
    pub grid: &'w Grid,
    /// Sequences that must not certify.
    pub(crate) others: &'w Others,
    /// Who may come in.
    pub who: Admission<'w>,
}

/// The parts of a set, as far as they are kept in memory.
#[derive(Debug)]
pub struct Parts {
    /// To screen on, by group; one without a name where there are none.
    pub(crate) screening: BTreeMap<String, Screening>,
    /// To certify on, where that was wanted.
    pub(crate) certifying: BTreeMap<String, Certifying>,
    /// All that screens, kept or not.
    pub(crate) screens: SetSummary,
    /// All that does not certify.
    pub(crate) left_out: SetSummary,
    /// How many of those that certify must not.
    pub(crate) overlap: Overlap,
    /// A sample of it, to be found elsewhere.
    pub(crate) sketch: Sketch,
    /// A sample of all.
    pub(crate) sample: Sketch,
    /// What all of the set looks like.
    pub(crate) survey: Survey,
}

impl Parts {
    /// The same, as part of a larger set that looks like this.
    pub fn of(mut self, whole: Survey) -> Self {
        self.survey = whole;
        self
    }
}

/// Sequences that can be gone through one by one, as often as needed.
pub trait Fold {
    /// What can go wrong.
    type Error;

    /// An error about the set as a whole.
    fn refuse(&self, error: CalibrateError) -> Self::Error;

    /// How much of the set may be kept, one byte per score of a grid.
    fn room(&self, _grid: &Grid) -> Result<Room, Self::Error> {
        Ok(Room::All)
    }

    /// Shows every sequence to a visitor, with its [key](Key), and returns the
    /// states that the visitors ended with. There may be several, on threads of
    /// their own, each with a state: what is made of all states together must
    /// not depend on who saw what.
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

    /// All are kept until they are, where they fit.
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
        for state in states {
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
    /// How many classes the first sequence has, and whether scores.
    kind: Option<(usize, bool)>,
    drawn: BinaryHeap<OneDrawn>,
    /// The smallest draw that was let go of.
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
    /// What screens and what certifies, of each group; begun with its first sequence,
    /// which says what score there is.
    sets: Vec<[TracesBuilder; 2]>,
    /// Where the sets of each group are; without groups there is one, without a name.
    places: BTreeMap<String, usize>,
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

    /// Where the sets of a group are; nowhere if there are more groups than there may be.
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

/// A set that has a score already, of which it is known what was right: as traces whose true
/// class is 1. None of them has an id.
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
            block.show(&mut |i, scores, predictions| {
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

/// Goes through the pieces of a set on all cores. Of several errors it is the first.
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
