//! The sequences to fit to: those with the smallest draws of a set.

use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::certify::source::{Fold, sum};
use crate::data::identity::{Key, SetAside};
use crate::data::outputs::Outputs;
use crate::data::roles::Fitting;
use crate::data::sequence::Trace;
use crate::data::sequence_error::SequenceError;
use crate::data::survey::Survey;
use crate::data::terms::Admission;
use crate::propose::error::CalibrateError;

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
