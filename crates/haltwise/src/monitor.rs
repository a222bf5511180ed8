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
//! Only counts are needed: of each block, watched step and group, how many
//! halted, with which loss. They add, so the counts of several servers, taken by
//! the same calendar, are those of one that had seen it all.

mod audit;
mod interval;
#[cfg(test)]
mod tests;
mod watch;

use serde::{Deserialize, Serialize};

pub use audit::{AuditError, Audited, audit};
pub use interval::lasting_interval;
pub use watch::Watch;

/// How many audited streams are a block where there is no calendar.
pub const BLOCK: u64 = 100;

/// The bets, each by its weight and by how many times the odds of p are those of
/// α: at α = 10%, p is 16%, 21% and 31%.
///
/// These, and the two weights below, were chosen for early alarms at gaps of
/// 15% to 30% where 10% are tolerated (`tests/monitor.rs` has the medians). Any
/// choice is valid; a bet wins most where the truth is near its p, and not much
/// less elsewhere.
const BETS: [(f64, f64); 3] = [(0.25, 1.7), (0.5, 2.4), (0.25, 4.0)];

/// The weight of the products that start with the first stream: most rules that
/// fail in production have failed from the beginning.
const FIRST: f64 = 0.9;

/// The weight of later starts hardly falls for this many blocks, then as 1/b².
const LEVEL: f64 = 60.0;

/// All of the latest blocks, this many, are starting points; of older ones every
/// other, fourth, eighth … So the work does not grow with the time that a rule
/// is in use. Leaving a product out only makes the mixture smaller.
const RECENT: usize = 64;

/// The streams of one row: those halted by its step, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Row {
    /// How many halted by then, and how many may.
    halted: u64,
    /// How many of those lost something.
    losses: u64,
    /// How many of those it is not known of, where they halt or what they lose.
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
}

/// An audited stream that has halted, and of which it is not known whether that
/// lost anything.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[must_use = "the loss counts as unknown until it is settled"]
pub struct Pending {
    block: u32,
    group: u32,
    row: u32,
}

/// That the promise does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// How many streams were audited when it was raised.
    pub at: u64,
    /// The e-value then.
    pub e_value: f64,
    /// The step by which too much was lost, counted from 1; `None` if the
    /// promise is about all streams.
    pub step: Option<u32>,
    /// The group in which it was, from 0.
    pub group: usize,
    /// The audited stream, counted from 1, since which it seems to be so.
    pub since: u64,
}

/// What a monitor knows at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// How many streams were audited.
    pub audits: u64,
    /// Of how many it is not known where they halt or what that loses.
    pub unknown: u64,
    /// The evidence against the promise: an alarm is raised at 1/δ.
    pub e_value: f64,
    /// Whether an alarm was raised, now or before.
    pub alarm: bool,
    /// How many streams were audited then.
    pub alarm_at: Option<u64>,
    /// The step, counted from 1, by which most speaks against the promise;
    /// `None` if the promise is about all streams.
    pub worst_step: Option<u32>,
    /// The group in which that is so, from 0.
    pub worst_group: usize,
    /// The audited stream, counted from 1, since which that seems to be so; 1
    /// as long as there is no alarm.
    pub since: u64,
    /// The loss among those halted by the worst step since then, as far as it
    /// is known; `None` if there are none.
    pub gap: Option<f64>,
    /// A [lasting interval](lasting_interval) for it: with probability 1 − δ all
    /// such intervals, of every step, group, start and moment, are true.
    pub interval: (f64, f64),
    /// Whether the intervals of all steps and groups lie below α.
    pub all_clear: bool,
    /// The same of each step and group, since the beginning.
    pub by_step: Vec<ByStep>,
}

/// What is known of those halted by one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ByStep {
    /// The group, from 0.
    pub group: usize,
    /// The step, counted from 1; `None` for all streams.
    pub t: Option<u32>,
    /// How many halted by then, as far as is known.
    pub halted: u64,
    /// The loss among those.
    pub gap: Option<f64>,
    /// A lasting interval for it; unknown losses are taken for none in its lower
    /// end, and for losses in its upper.
    pub interval: (f64, f64),
}

/// Why monitors cannot be added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the monitors watch different promises; all must be of one rule and one delta")]
pub struct OtherWatch;

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
}

/// What is stored of a monitor.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    watch: Watch,
    audits: u64,
    unknown: u64,
    rows: Vec<Row>,
    blocks: Vec<Block>,
    alarm: Option<Alarm>,
}

impl From<Monitor> for Stored {
    fn from(monitor: Monitor) -> Self {
        let Monitor {
            watch,
            audits,
            unknown,
            rows,
            blocks,
            alarm,
            ..
        } = monitor;
        Self {
            watch,
            audits,
            unknown,
            rows,
            blocks,
            alarm,
        }
    }
}

/// Why a stored monitor cannot be taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the counts of the monitor contradict each other")]
pub struct StoredError;

impl TryFrom<Stored> for Monitor {
    type Error = StoredError;

    fn try_from(stored: Stored) -> Result<Self, StoredError> {
        let mut monitor = Self::new(stored.watch);
        let sound = |rows: &[Row]| {
            rows.len() == monitor.rows.len()
                && rows
                    .iter()
                    .all(|row| row.losses + row.unknown <= row.halted)
        };
        let rising = stored
            .blocks
            .windows(2)
            .all(|w| w[0].key < w[1].key && w[0].audits <= w[1].audits);
        let before = |block: &Block| {
            sound(&block.before)
                && block.audits <= stored.audits
                && std::iter::zip(&block.before, &stored.rows).all(|(a, b)| a.within(*b))
        };
        if !sound(&stored.rows) || !rising || !stored.blocks.iter().all(before) {
            return Err(StoredError);
        }
        monitor.audits = stored.audits;
        monitor.unknown = stored.unknown;
        monitor.rows = stored.rows;
        monitor.blocks = stored.blocks;
        monitor.alarm = stored.alarm;
        Ok(monitor)
    }
}

/// The mixture, and which product in it is the largest, the first of equals.
struct Mixture {
    e_value: f64,
    block: usize,
    group: usize,
    row: usize,
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
        }
    }

    /// What is watched.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// How many streams were audited.
    pub fn audits(&self) -> u64 {
        self.audits
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
        };
        let rows = 0..self.watch.rows();
        self.update(running.block, running.group, rows, |row| {
            row.halted += 1;
            row.unknown += 1;
        });
        running
    }

    /// An audited stream halts at step `t`, counted from 1. Returns whether an
    /// alarm is raised by it: so far it counted by every step.
    pub fn halt(&mut self, running: Running, t: u32) -> (Pending, Option<Alarm>) {
        let pending = self.place(running, t);
        let alarm = if pending.row > 0 { self.check() } else { None };
        (pending, alarm)
    }

    /// Takes a stream out of the rows before the step at which it halts.
    fn place(&mut self, running: Running, t: u32) -> Pending {
        let Running { block, group } = running;
        let row = match self.watch.steps.len() {
            0 => 0,
            _ => self.watch.row(t),
        };
        self.update(block, group, 0..row, |row| {
            row.halted = row.halted.saturating_sub(1);
            row.unknown = row.unknown.saturating_sub(1);
        });
        let row = row as u32;
        Pending { block, group, row }
    }

    /// It is known whether halting lost anything. Returns whether an alarm is
    /// raised by it.
    pub fn settle(&mut self, pending: Pending, loss: bool) -> Option<Alarm> {
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

    /// The evidence against the promise, an e-value: an alarm is raised when it
    /// reaches 1/δ.
    pub fn e_value(&self) -> f64 {
        self.mixture().e_value
    }

    fn mixture(&self) -> Mixture {
        let rows = self.watch.rows();
        // Blocks that have not begun: their products are 1.
        let mut sum = weight_from(self.blocks.len());
        let mut largest = -1.0;
        let mut found = Mixture {
            e_value: 0.0,
            block: 0,
            group: 0,
            row: 0,
        };
        for (b, block) in self.starts() {
            for (r, (&row, &before)) in self.rows.iter().zip(&block.before).enumerate() {
                let products = self.products(row.since(before));
                let product = products.iter().sum::<f64>();
                sum += weight(b) * self.watch.weight(r) * product;
                // Weights say what was expected, not what was found.
                if product > largest {
                    largest = product;
                    (found.block, found.group, found.row) = (b, r / rows, r % rows);
                }
            }
        }
        // More than a double holds is as good as the largest that it does.
        found.e_value = sum.min(f64::MAX);
        found
    }

    /// The blocks from which products start.
    fn starts(&self) -> impl Iterator<Item = (usize, &Block)> {
        let last = self.blocks.len().saturating_sub(1);
        self.blocks
            .iter()
            .enumerate()
            .filter(move |&(b, _)| is_start(b, last))
    }

    /// The product of each bet over streams, times its weight.
    fn products(&self, row: Row) -> [f64; BETS.len()] {
        let others = row.halted.saturating_sub(row.losses) as f64;
        let losses = row.losses as f64;
        std::array::from_fn(|i| {
            let (weight, _) = BETS[i];
            weight * libm::exp(losses * self.loss[i] + others * self.none[i])
        })
    }

    /// How much the e-value would rise if each of these streams turned out to
    /// have lost something: those with the most are the most worth a label.
    pub fn worth<'p>(&self, pending: impl IntoIterator<Item = &'p Pending>) -> Vec<f64> {
        // What one loss more is worth to the products that start with each block,
        // then to all that start by it, in each row and all after it.
        let rows = self.watch.rows();
        let mut worth = vec![vec![0.0; self.rows.len()]; self.blocks.len()];
        for (b, block) in self.starts() {
            for (r, (&row, &before)) in self.rows.iter().zip(&block.before).enumerate() {
                let products = self.products(row.since(before));
                let more = products
                    .iter()
                    .zip(BETS)
                    .map(|(p, (_, ratio))| p * (ratio - 1.0));
                worth[b][r] = weight(b) * self.watch.weight(r) * more.sum::<f64>();
            }
        }
        for start in &mut worth {
            for r in (0..start.len()).rev().filter(|r| (r + 1) % rows > 0) {
                start[r] += start[r + 1];
            }
        }
        for b in 1..worth.len() {
            let (before, now) = worth.split_at_mut(b);
            let sums = now[0].iter_mut().zip(&before[b - 1]);
            sums.for_each(|(now, before)| *now += before);
        }
        let of = |p: &Pending| match p.row as usize {
            row if row < rows => {
                let block = worth.get(p.block as usize);
                let found = block.and_then(|b| b.get(p.group as usize * rows + row));
                found.copied().unwrap_or(0.0)
            }
            _ => 0.0,
        };
        pending.into_iter().map(of).collect()
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
            all_clear: by_step.iter().all(|step| step.interval.1 <= alpha),
            by_step,
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

    /// The monitor of all that several have seen, by one calendar of blocks.
    ///
    /// What was running or pending elsewhere stays unknown. When each stream
    /// began is not known within a block, so whether there was an alarm is looked
    /// up at the ends of blocks.
    pub fn sum(monitors: &[Self]) -> Result<Self, OtherWatch> {
        let Some(first) = monitors.first() else {
            return Err(OtherWatch);
        };
        if monitors.iter().any(|m| m.watch != first.watch) {
            return Err(OtherWatch);
        }
        if let [only] = monitors {
            return Ok(only.clone());
        }
        let mut keys: Vec<u64> = monitors
            .iter()
            .flat_map(|m| m.blocks.iter().map(|b| b.key))
            .collect();
        keys.sort_unstable();
        keys.dedup();
        let mut all = Self::new(first.watch.clone());
        for (i, &key) in keys.iter().enumerate() {
            all.blocks.push(Block {
                key,
                audits: all.audits,
                before: all.rows.clone(),
            });
            let next = keys.get(i + 1).copied();
            let until = monitors.iter().map(|m| m.until(next));
            let (audits, rows) = until.fold((0, None::<Vec<Row>>), |(n, sum), (m, rows)| {
                let sum = match sum {
                    None => rows.to_vec(),
                    Some(sum) => sum.iter().zip(rows).map(|(a, &b)| a.plus(b)).collect(),
                };
                (n + m, Some(sum))
            });
            all.audits = audits;
            all.rows = rows.unwrap_or_default();
            all.check();
        }
        all.unknown = monitors.iter().map(|m| m.unknown).sum();
        Ok(all)
    }

    /// What was counted before the block with this key, or one later, began.
    fn until(&self, key: Option<u64>) -> (u64, &[Row]) {
        let next = key.map_or(self.blocks.len(), |key| {
            self.blocks.partition_point(|block| block.key < key)
        });
        match self.blocks.get(next) {
            Some(block) => (block.audits, &block.before),
            None => (self.audits, &self.rows),
        }
    }
}

/// The weight of the products that start with a block (from 0).
fn weight(block: usize) -> f64 {
    match block {
        0 => FIRST,
        _ => weight_from(block) - weight_from(block + 1),
    }
}

/// The weight of all that start with a block (from 0) or later.
fn weight_from(block: usize) -> f64 {
    match block {
        0 => 1.0,
        _ => (1.0 - FIRST) * LEVEL / ((block - 1) as f64 + LEVEL),
    }
}

/// Whether products start with a block when `last` is under way. Once one is
/// left out, it stays so.
fn is_start(block: usize, last: usize) -> bool {
    match (last - block) / RECENT {
        0 => true,
        age => block.is_multiple_of(2 << age.ilog2()),
    }
}
