//! Watching a promise while its rule is in use.
//!
//! A share of the live streams, drawn by chance, is *audited*: answered when the
//! rule halts, and read to its end all the same. So it is known where each
//! halted, and, sooner or later, whether that lost anything. The monitor tests,
//! at every moment at once, the hypothesis that the promise holds:
//!
//! > E[(loss − α)·1{halted by t}] ≤ 0 for every step t, given all streams before.
//!
//! *One bet.* For a p above α, the factor p/α of a stream that halted by t with
//! a loss, (1 − p)/(1 − α) of one that did so without, and 1 of one that did not,
//! is 1 + λ·(loss − α)·1{halted by t} with λ = (p − α)/(α(1 − α)) ≥ 0. Its mean
//! is at most 1 under the hypothesis, so the product over streams is a
//! nonnegative supermartingale that starts at 1.
//!
//! *The mixture.* So is a mean of such products with weights fixed beforehand:
//! over several p, because how large the loss will be is not known; over the
//! [watched steps](Watch), because it is not known where; over groups; and over
//! the blocks of streams from which the product starts, because it is not known
//! when. (A bet that has lost for a year has nothing left to win with; one that
//! starts where the drift does, has.)
//! A block begins before its streams do, so a product that starts there is 1
//! until then. By Ville's inequality, the mixture ever reaches 1/δ with
//! probability δ at most: a false alarm is that rare over the whole life of the
//! rule, however often it is looked at.
//!
//! *Groups* are averaged rather than given a share of δ each: with G of them, a
//! product that reaches G/δ brings the average to 1/δ, so the average never
//! alarms later, and it alarms earlier where several groups drift.
//!
//! *What is not known yet.* Streams count in the order in which they began. One
//! that has begun enters every product by its least factor, of a halt without
//! loss; where it halts, and what that lost, can only raise that. So what is
//! computed is at no moment more than the mixture of the outcomes that will be
//! known in the end, and the bound holds whatever the delays depend on.
//! To leave unknown outcomes out until they are known would not do: losses that
//! come to light first would look like many. (`tests/monitor.rs` shows it.)
//!
//! *Units.* Where the promise is about units, each is one factor: see [`UnitKey`]
//! and `units.rs`, which argues it.
//!
//! Only counts are needed: of each block, watched step and group, how many
//! halted, with which loss. They add, so the counts of several servers, taken by
//! the same calendar, are those of one that had seen it all. To test the sum beside
//! each of S servers is S + 1 tests: [`Watch::shared_by`] gives each its share of δ.

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
pub use mixture::LabelWorth;
use mixture::{BETS, weight};
use stored::Stored;
pub use units::UnitKey;
use units::{Cell, Place, Unit};
pub use verdict::{Alarm, ByStep, Recent, SumError, Unwatched, Verdict};
pub use watch::Watch;

/// How many audited streams are a block where there is no calendar.
pub const BLOCK: u64 = 100;

/// The recent past of a step is the latest blocks in which at least this many
/// streams halted by it, with an outcome that is known.
const RECENT_STREAMS: u64 = 500;

/// The most units that are told apart; streams of later ones count for nothing.
pub const MOST_UNITS: usize = 1_000_000;

/// The streams of one row: those halted by its step, as far as is known.
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
    /// What came after `before`.
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

    /// The loss among those of which it is known.
    fn loss(self) -> Option<f64> {
        let known = self.halted.saturating_sub(self.unknown);
        (known > 0).then(|| self.losses as f64 / known as f64)
    }
}

/// A block of streams: what was counted before it began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Block {
    key: u64,
    audits: u64,
    before: Vec<Row>,
}

/// An audited stream that has begun and not halted.
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

/// An audited stream that has halted, and of which it is not known whether that
/// lost anything.
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
/// It can be stored and taken up again.
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
    /// Units of which something is still open, and those of which all is known.
    units: BTreeMap<(u32, UnitKey), Unit>,
    spent: BTreeSet<(u32, UnitKey)>,
    unwatched: Unwatched,
}

impl Monitor {
    /// No stream was audited yet.
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

    /// What is watched.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// How many streams were audited; where the promise is about units, how many of
    /// those.
    pub fn audits(&self) -> u64 {
        self.audits
    }

    /// The block that is next where there is no calendar: one for each 100 audits.
    pub fn next_block(&self) -> u64 {
        self.audits / BLOCK
    }

    /// How many units are not [closed](Self::close_units), and tell nothing yet. A
    /// [sum](Self::sum) does not know.
    pub fn open_units(&self) -> usize {
        self.units.values().filter(|unit| !unit.closed).count()
    }

    /// Whether a unit has begun and is not [closed](Self::close_units): then all of its
    /// streams are to be audited.
    pub fn has_open_unit(&self, unit: UnitKey) -> bool {
        let groups = 0..self.watch.groups as u32;
        let mut known = groups.filter_map(|group| self.units.get(&(group, unit)));
        known.any(|unit| !unit.closed)
    }

    /// The alarm, if one was raised.
    pub fn alarm(&self) -> Option<Alarm> {
        self.alarm
    }

    /// An audited stream begins, in a group (from 0; one that is not watched
    /// counts as the last) and in the block with this key: the hour, say, or the
    /// number of the stream divided by [`BLOCK`]. Keys never fall; should a
    /// clock go back, the stream is of the block that is under way.
    pub fn begin(&mut self, key: u64, group: usize) -> Running {
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
            group: group.min(self.watch.groups - 1) as u32,
            place: None,
        };
        let rows = 0..self.watch.rows();
        self.update(running.block, running.group, rows, |row| {
            row.halted += 1;
            row.unknown += 1;
        });
        running
    }

    /// An audited stream of a unit begins: as [`begin`](Self::begin), where the
    /// promise is about units. Report all streams of
    /// an audited unit. The unit tells nothing until it is [closed](Self::close_units).
    ///
    /// `None` if nothing that becomes of it could count any more. A stream of a unit that
    /// is over, or of a new one beyond [`MOST_UNITS`], is [unwatched](Unwatched).
    pub fn begin_of_unit(&mut self, key: u64, group: usize, unit: UnitKey) -> Option<Running> {
        let group = group.min(self.watch.groups - 1) as u32;
        let known = (group, unit);
        let is_closed = self.units.get(&known).is_some_and(|unit| unit.closed);
        if is_closed || self.spent.contains(&known) {
            self.unwatched.of_closed_units += 1;
            return None;
        }
        if !self.units.contains_key(&known) {
            if self.units.len() + self.spent.len() >= MOST_UNITS {
                self.unwatched.of_new_units += 1;
                return None;
            }
            let Running { block, .. } = self.begin(key, group as usize);
            self.units.insert(known, Unit::new(unit, group, block));
        }
        let found = self.units.get_mut(&known)?;
        let (block, place) = (found.block, Some(found.begin()?));
        Some(Running {
            block,
            group,
            place,
        })
    }

    /// A unit is over: none of its streams begins any more. Returns whether an alarm is
    /// raised by it.
    pub fn close_unit(&mut self, group: usize, unit: UnitKey) -> Option<Alarm> {
        let rises = self.change_unit((group as u32, unit), |unit| unit.closed = true);
        if rises { self.check() } else { None }
    }

    /// All units are over whose first stream began before the block with this key.
    /// Returns whether an alarm is raised by it.
    pub fn close_units(&mut self, before: u64) -> Option<Alarm> {
        let blocks = self.blocks.partition_point(|block| block.key < before) as u32;
        let due = |unit: &&Unit| unit.block < blocks && !unit.closed;
        let due = self.units.values().filter(due);
        let due: Vec<_> = due.map(|unit| (unit.group, unit.key)).collect();
        let rises = due.into_iter().fold(false, |rises, known| {
            self.change_unit(known, |unit| unit.closed = true) | rises
        });
        if rises { self.check() } else { None }
    }

    /// Changes what is known of a unit, and the counts with it. Returns whether the
    /// e-value may have risen.
    fn change_unit(&mut self, known: (u32, UnitKey), change: impl FnOnce(&mut Unit)) -> bool {
        let Some(mut unit) = self.units.remove(&known) else {
            return false;
        };
        let rows = self.watch.rows();
        let before: Vec<Cell> = (0..rows).map(|r| unit.cell(r)).collect();
        change(&mut unit);
        let after: Vec<Cell> = (0..rows).map(|r| unit.cell(r)).collect();
        let mut rises = false;
        for (r, (was, now)) in before.iter().zip(&after).enumerate() {
            let (was, now) = (was.row(), now.row());
            if was != now {
                rises |= now.halted < was.halted || now.losses > was.losses;
                self.update(unit.block, unit.group, r..r + 1, |row| {
                    *row = row.plus(now).since(was);
                });
            }
        }
        let open = |cells: &[Cell]| cells.iter().any(|cell| cell.row().unknown > 0);
        if open(&after) {
            self.units.insert(known, unit);
        } else {
            self.spent.insert(known);
            self.unknown = self.unknown.saturating_sub(1);
        }
        rises
    }

    /// An audited stream halts at step `t`, counted from 1. Returns whether an
    /// alarm is raised by it: so far it counted by every step.
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

    /// It is known whether halting lost anything. Returns whether an alarm is
    /// raised by it.
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

    /// A stream of which all is known: it began after all before it, halted at
    /// step `t`, counted from 1, with or without a loss.
    pub fn audit(&mut self, key: u64, group: usize, t: u32, loss: bool) -> Option<Alarm> {
        let running = self.begin(key, group);
        // Not `halt`, which would look for an alarm where the e-value only fell.
        let pending = self.place(running, t);
        self.settle(pending, loss)
    }

    /// An [audit](Auditor::audit) that is over, after all before it and in blocks of 100.
    /// Returns what waits for a label, if anything does.
    pub fn take(&mut self, found: &Audited) -> Option<Pending> {
        let block = self.next_block();
        let running = match found.unit {
            None => self.begin(block, found.group),
            Some(unit) => self.begin_of_unit(block, found.group, unit)?,
        };
        let (pending, _alarm) = self.halt(running, found.step);
        match found.loss {
            // It counts as one without a loss until a label tells.
            None => Some(pending),
            Some(loss) => {
                self.settle(pending, loss);
                None
            }
        }
    }

    /// Changes the counts of a stream of a block: the sums of all blocks up to
    /// it, hence what was before each later one.
    fn update(
        &mut self,
        block: u32,
        group: u32,
        rows: std::ops::Range<usize>,
        change: impl Fn(&mut Row),
    ) {
        let first = group as usize * self.watch.rows();
        let rows = first + rows.start..first + rows.end;
        // A stream of another monitor, which only a file that was tampered with
        // brings here, is in no row.
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

    /// Raises an alarm if there is none and the evidence has come to it.
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

    /// The first stream, counted from 1, of a block.
    fn since(&self, block: usize) -> u64 {
        self.blocks.get(block).map_or(0, |block| block.audits) + 1
    }

    /// What is known now.
    pub fn verdict(&self) -> Verdict {
        let mixture = self.mixture();
        let (block, group, row) = match self.alarm {
            Some(alarm) => (
                self.blocks.partition_point(|b| b.audits + 1 < alarm.since),
                alarm.group,
                alarm.step.map_or(0, |step| self.watch.row(step)),
            ),
            None => (0, mixture.group, mixture.row),
        };
        let rows = self.watch.rows();
        let r = group * rows + row;
        let worst = match self.blocks.get(block) {
            Some(start) => self.rows[r].since(start.before[r]),
            None => Row::default(),
        };
        let by_step: Vec<ByStep> = (0..self.rows.len())
            .map(|r| ByStep {
                group: r / rows,
                t: self.watch.step(r % rows),
                halted: self.rows[r].halted.saturating_sub(self.rows[r].unknown),
                gap: self.rows[r].loss(),
                interval: self.interval(0, r, self.rows[r]),
                recent: self.recent(r),
            })
            .collect();
        let alpha = self.watch.alpha.get();
        Verdict {
            audits: self.audits,
            unknown: self.unknown,
            e_value: mixture.e_value,
            alarm: self.alarm.is_some(),
            alarm_at: self.alarm.map(|alarm| alarm.at),
            worst_step: self.watch.step(row),
            worst_group: group,
            since: self.since(block),
            gap: worst.loss(),
            interval: self.interval(block, r, worst),
            all_clear: !self.watch.pools_classes
                && self.unwatched == Unwatched::default()
                && by_step
                    .iter()
                    .all(|step| step.interval.1 <= alpha && step.recent.interval.1 <= alpha),
            pools_classes: self.watch.pools_classes,
            unwatched: self.unwatched,
            by_step,
        }
    }

    /// What a row counted of late. The start depends on what was found, and may: the
    /// intervals of all starts hold at once.
    fn recent(&self, r: usize) -> Recent {
        let since = |block: &Block| self.rows[r].since(block.before[r]);
        let enough = |block: &Block| {
            let row = since(block);
            row.halted.saturating_sub(row.unknown) >= RECENT_STREAMS
        };
        let start = self.blocks.iter().rposition(enough).unwrap_or(0);
        let row = self.blocks.get(start).map_or_else(Row::default, since);
        Recent {
            since: self.since(start),
            halted: row.halted.saturating_sub(row.unknown),
            gap: row.loss(),
            interval: self.interval(start, r, row),
        }
    }

    /// The interval of what a row counted since a block, at the share of δ that
    /// its bets have in the mixture; so all intervals together hold with
    /// probability 1 − δ (union bound).
    fn interval(&self, block: usize, r: usize, row: Row) -> (f64, f64) {
        let level = self.watch.delta.get() * weight(block) * self.watch.weight(r);
        let (low, _) = lasting_interval(row.losses, row.halted, level);
        let (_, high) = lasting_interval(row.losses + row.unknown, row.halted, level);
        (low, high)
    }
}
