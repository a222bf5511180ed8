//! Watches a promise while its rule is in use.
//!
//! A share of the live streams, drawn by chance, is *audited*: each is answered when the
//! rule halts, but is still read to its end. So the monitor learns where each halted and,
//! sooner or later, whether that lost anything. It tests, at every moment at once, the
//! hypothesis that the promise holds:
//!
//! > E[(loss − α)·1{halted by t}] ≤ 0 for every step t, given all streams before.
//!
//! *One bet.* For a p above α, the factor p/α of a stream that halted by t with
//! a loss, (1 − p)/(1 − α) of one that did so without, and 1 of one that did not,
//! is 1 + λ·(loss − α)·1{halted by t} with λ = (p − α)/(α(1 − α)) ≥ 0. Its mean
//! is at most 1 under the hypothesis, so the product over streams is a
//! nonnegative supermartingale that starts at 1.
//!
//! *The mixture.* A mean of such products, with weights fixed beforehand, is also a
//! nonnegative supermartingale that starts at 1. The mean is taken over several p, because
//! the size of the loss is unknown; over the [watched steps](Watch), because the step where
//! it occurs is unknown; over groups; and over the blocks of streams from which the product
//! starts, because the time is unknown. (A bet that has lost for a year has nothing left to
//! win with; a bet that starts where the drift does has.) A block begins before its streams
//! do, so a product that starts there is 1 until then. By Ville's inequality, the mixture
//! ever reaches 1/δ with probability δ at most. So the probability of a false alarm is at
//! most δ over the whole life of the rule, however often the monitor is consulted.
//!
//! *Groups* are averaged rather than given a share of δ each: with G of them, a
//! product that reaches G/δ brings the average to 1/δ, so the average never
//! alarms later, and it alarms earlier where several groups drift.
//!
//! *Unknown outcomes.* Streams count in the order in which they began. A stream that has
//! begun enters every product by its least factor, that of a halt without loss. Where it
//! halts, and what that lost, can only raise that factor. So the computed value is at no
//! moment more than the mixture of the outcomes that will be known in the end, and the
//! bound holds whatever the delays depend on. It would be wrong to leave unknown outcomes
//! out until they are known: losses that come to light first would look like many.
//! (`tests/monitor` shows it.)
//!
//! *Units.* If the promise is about units, each unit is one factor: see [`UnitKey`] and the
//! argument in `units.rs`.
//!
//! The monitor needs only counts: for each block, watched step and group, how many halted,
//! and with which loss. Counts add, so those of several servers with the same calendar
//! equal the counts of one server that had seen it all. Testing the sum as well as each of
//! S servers makes S + 1 tests: [`Watch::shared_by`] gives each its share of δ.

mod audit;
mod interval;
mod mixture;
mod stored;
mod sum;
#[cfg(test)]
mod tests;
mod units;
mod verdict;
mod watch;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

pub use audit::{AuditError, Audited, Auditor};
pub use interval::lasting_interval;
use mixture::BETS;
pub use mixture::LabelWorth;
use stored::Stored;
pub use units::UnitKey;
use units::{Place, Unit};
pub use verdict::{Alarm, ByStep, Recent, SumError, Unwatched, Verdict, WatchError};
pub use watch::Watch;

/// The number of audited streams in a block if there is no calendar.
pub const BLOCK: u64 = 100;

/// The recent past of a step is the latest blocks in which at least this many streams with
/// a known outcome halted by it.
const RECENT_STREAMS: u64 = 500;

/// The most units that are told apart; streams of later units count for nothing.
pub const MOST_UNITS: usize = 1_000_000;

/// The streams of one row: those known to have halted by its step, and those that may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Row {
    /// How many halted by then, and how many may.
    halted: u64,
    /// How many of those lost something.
    losses: u64,
    /// How many of those have an unknown halt step or loss.
    unknown: u64,
}

impl Row {
    /// Returns what came after `before`.
    fn since(self, before: Self) -> Self {
        Self {
            halted: self.halted.saturating_sub(before.halted),
            losses: self.losses.saturating_sub(before.losses),
            unknown: self.unknown.saturating_sub(before.unknown),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            halted: self.halted + other.halted,
            losses: self.losses + other.losses,
            unknown: self.unknown + other.unknown,
        }
    }

    /// Whether it counts no more than another.
    fn within(self, all: Self) -> bool {
        self.halted <= all.halted && self.losses <= all.losses
    }

    /// The loss among the streams whose loss is known.
    fn loss(self) -> Option<f64> {
        let known = self.halted.saturating_sub(self.unknown);
        (known > 0).then(|| self.losses as f64 / known as f64)
    }
}

/// A block of streams, with the counts before it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Block {
    key: u64,
    audits: u64,
    before: Vec<Row>,
}

/// An audited stream that has begun and has not halted.
///
/// Neither this nor [`Pending`] can be copied, so that nothing is counted twice; both
/// can be stored with their monitor.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "the stream counts as running until it is said where it halts"]
pub struct Running {
    block: u32,
    group: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
}

/// An audited stream that has halted; whether that lost anything is not known.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "the loss counts as unknown until it is settled"]
pub struct Pending {
    block: u32,
    group: u32,
    row: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    place: Option<Place>,
}

/// The test that a promise still holds, valid at every moment.
///
/// ```
/// use haltwise::monitor::{Monitor, Watch};
/// use haltwise::plan::{Alpha, Delta};
///
/// let watch = Watch::new(Alpha::default(), Delta::default(), vec![1, 2, 3]);
/// let mut monitor = Monitor::new(watch);
/// // Each third stream that halts at step 2 loses a right answer: far above 10%.
/// for i in 0..60 {
///     monitor.audit(i / 100, 0, 2, i % 3 == 0);
/// }
/// let verdict = monitor.verdict();
/// assert!(verdict.alarm && verdict.worst_step >= Some(2));
/// ```
///
/// A monitor can be stored and restored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Monitor {
    watch: Watch,
    /// The logarithms of the factors of a loss and of none, per bet.
    loss: [f64; BETS.len()],
    none: [f64; BETS.len()],
    audits: u64,
    unknown: u64,
    /// Group after group, a row per watched step.
    rows: Vec<Row>,
    blocks: Vec<Block>,
    alarm: Option<Alarm>,
    /// Units with something still open, and units about which everything is known.
    units: BTreeMap<(u32, UnitKey), Unit>,
    spent: BTreeSet<(u32, UnitKey)>,
    unwatched: Unwatched,
}

impl Monitor {
    /// Starts with no audited stream.
    pub fn new(watch: Watch) -> Self {
        let alpha = watch.alpha.get();
        // With p's odds r times those of α, both divide by 1 + (r − 1)α.
        let none = BETS.map(|(_, ratio)| -libm::log1p((ratio - 1.0) * alpha));
        let loss = std::array::from_fn(|i| none[i] + libm::log(BETS[i].1));
        Self {
            rows: vec![Row::default(); watch.groups * watch.rows()],
            watch,
            loss,
            none,
            audits: 0,
            unknown: 0,
            blocks: Vec::new(),
            alarm: None,
            units: BTreeMap::new(),
            spent: BTreeSet::new(),
            unwatched: Unwatched::default(),
        }
    }

    /// Returns what is watched.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// How many streams were audited; if the promise is about units, how many units.
    pub fn audits(&self) -> u64 {
        self.audits
    }

    /// The next block if there is no calendar: one for each 100 audits.
    pub fn next_block(&self) -> u64 {
        self.audits / BLOCK
    }

    /// The alarm, if one was raised.
    pub fn alarm(&self) -> Option<Alarm> {
        self.alarm
    }

    /// Goes on with a watch of the same counts and another share of δ. Returns whether δ
    /// became smaller.
    ///
    /// A smaller δ may be taken at any moment before the alarm: whatever made someone ask
    /// for it, an alarm from then on says that the mixture has reached the new 1/δ, which
    /// has probability δ at most. A larger one may not.
    pub fn take_watch(&mut self, wanted: &Watch) -> Result<bool, WatchError> {
        if !self.watch.counts_like(wanted) {
            return Err(WatchError::OtherCounts);
        }
        let (own, new) = (self.watch.delta.get(), wanted.delta.get());
        if new > own {
            return Err(WatchError::SmallerDelta);
        }
        if new < own && self.alarm.is_some() {
            return Err(WatchError::AlarmStands);
        }
        self.watch = wanted.clone();
        Ok(new < own)
    }

    /// Begins an audited stream, in a group (from 0) and in the block with this key: for
    /// example the hour, or the number of the stream divided by [`BLOCK`]. Keys never fall;
    /// if a clock goes back, the stream belongs to the current block.
    ///
    /// Returns `None` if the stream is [unwatched](Unwatched), because the promise is about
    /// units or does not cover the group.
    pub fn begin(&mut self, key: u64, group: usize) -> Option<Running> {
        if self.watch.by_unit {
            self.unwatched.without_unit += 1;
            return None;
        }
        let group = self.watched_group(group)?;
        Some(self.enter(key, group))
    }

    /// The group, if the promise covers it. Otherwise a stream of it is unwatched.
    fn watched_group(&mut self, group: usize) -> Option<u32> {
        let watched = group < self.watch.groups;
        self.unwatched.without_group += u64::from(!watched);
        watched.then_some(group as u32)
    }

    /// Counts a stream, or a unit, that begins.
    fn enter(&mut self, key: u64, group: u32) -> Running {
        if self.blocks.last().is_none_or(|block| block.key < key) {
            self.blocks.push(Block {
                key,
                audits: self.audits,
                before: self.rows.clone(),
            });
        }
        self.audits += 1;
        self.unknown += 1;
        let running = Running {
            block: (self.blocks.len() - 1) as u32,
            group,
            place: None,
        };
        let rows = 0..self.watch.rows();
        self.update(running.block, running.group, rows, |row| {
            row.halted += 1;
            row.unknown += 1;
        });
        running
    }

    /// Halts an audited stream at step `t`, counted from 1. Until now it counted by every
    /// step. Returns the alarm if this raises one.
    pub fn halt(&mut self, running: Running, t: u32) -> (Pending, Option<Alarm>) {
        if let Some(place) = running.place {
            let (block, group) = (running.block, running.group);
            let row = self.watch.row_of(t) as u32;
            let rises = self.change_unit((group, place.unit), |unit| unit.halt(place.stream, row));
            let alarm = if rises { self.check() } else { None };
            let place = Some(place);
            return (
                Pending {
                    block,
                    group,
                    row,
                    place,
                },
                alarm,
            );
        }
        let pending = self.place(running, t);
        let alarm = if pending.row > 0 { self.check() } else { None };
        (pending, alarm)
    }

    /// Takes a stream out of the rows before the step at which it halts.
    fn place(&mut self, running: Running, t: u32) -> Pending {
        let Running {
            block,
            group,
            place,
        } = running;
        let row = self.watch.row_of(t);
        self.update(block, group, 0..row, |row| {
            row.halted = row.halted.saturating_sub(1);
            row.unknown = row.unknown.saturating_sub(1);
        });
        let row = row as u32;
        Pending {
            block,
            group,
            row,
            place,
        }
    }

    /// Records whether halting lost anything. Returns the alarm if this raises one.
    pub fn settle(&mut self, pending: Pending, loss: bool) -> Option<Alarm> {
        if let Some(place) = pending.place {
            let known = (pending.group, place.unit);
            let rises = self.change_unit(known, |unit| unit.settle(place.stream, loss));
            return if rises { self.check() } else { None };
        }
        self.unknown = self.unknown.saturating_sub(1);
        let rows = pending.row as usize..self.watch.rows();
        self.update(pending.block, pending.group, rows, |row| {
            row.losses += u64::from(loss);
            row.unknown = row.unknown.saturating_sub(1);
        });
        if loss { self.check() } else { None }
    }

    /// Records a stream whose outcome is fully known: it began after all earlier ones and
    /// halted at step `t`, counted from 1, with or without a loss.
    pub fn audit(&mut self, key: u64, group: usize, t: u32, loss: bool) -> Option<Alarm> {
        let running = self.begin(key, group)?;
        // Not `halt`, which would look for an alarm although the e-value only fell.
        let pending = self.place(running, t);
        self.settle(pending, loss)
    }

    /// Records a finished [audit](Auditor::audit), after all before it and in blocks of
    /// 100. Returns the stream if it still waits for a label.
    pub fn take(&mut self, found: &Audited) -> Option<Pending> {
        let block = self.next_block();
        let running = match found.unit {
            None => self.begin(block, found.group)?,
            Some(unit) => self.begin_of_unit(block, found.group, unit)?,
        };
        let (pending, _alarm) = self.halt(running, found.step);
        match found.loss {
            // It counts as no loss until a label is known.
            None => Some(pending),
            Some(loss) => {
                self.settle(pending, loss);
                None
            }
        }
    }

    /// Changes the counts of a stream in a block: the sums of all blocks up to it, and so
    /// the counts before each later block.
    fn update(
        &mut self,
        block: u32,
        group: u32,
        rows: std::ops::Range<usize>,
        change: impl Fn(&mut Row),
    ) {
        let first = group as usize * self.watch.rows();
        let rows = first + rows.start..first + rows.end;
        // A stream of another monitor is in no row. Only a file that was tampered with
        // brings one here.
        let counts = |all: &mut [Row]| {
            if let Some(rows) = all.get_mut(rows.clone()) {
                rows.iter_mut().for_each(&change);
            }
        };
        counts(&mut self.rows);
        let later = self
            .blocks
            .get_mut(block as usize + 1..)
            .unwrap_or_default();
        later.iter_mut().for_each(|block| counts(&mut block.before));
    }

    /// Raises an alarm if there is none and the evidence has reached the threshold.
    fn check(&mut self) -> Option<Alarm> {
        if self.alarm.is_some() {
            return None;
        }
        let found = self.mixture();
        if found.e_value < 1.0 / self.watch.delta.get() {
            return None;
        }
        self.alarm = Some(Alarm {
            at: self.audits,
            e_value: found.e_value,
            step: self.watch.step(found.row),
            group: found.group,
            since: self.since(found.block),
        });
        self.alarm
    }

    /// The first stream of a block, counted from 1.
    fn since(&self, block: usize) -> u64 {
        self.blocks.get(block).map_or(0, |block| block.audits) + 1
    }
}
