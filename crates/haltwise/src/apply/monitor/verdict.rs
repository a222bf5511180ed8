//! The verdict of a monitor.

use serde::{Deserialize, Serialize};

use super::interval::{lower_end, upper_end};
use super::mixture::weight;
use super::{Block, Monitor, RECENT_STREAMS, Row};

/// An alarm: the promise does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alarm {
    /// How many streams were audited when it was raised.
    pub at: u64,
    /// The e-value then.
    pub e_value: f64,
    /// The step by which too much was lost, counted from 1; `None` if the promise is about
    /// all streams.
    pub step: Option<u32>,
    /// The group in which that happened, from 0.
    pub group: usize,
    /// The audited stream, counted from 1, since which the promise seems broken.
    pub since: u64,
}

/// The knowledge of a monitor at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// How many streams were audited.
    pub audits: u64,
    /// How many of those have an unknown halt step or loss.
    pub unknown: u64,
    /// The evidence against the promise: an alarm is raised at 1/δ.
    pub e_value: f64,
    /// Whether an alarm was raised, now or before.
    pub alarm: bool,
    /// How many streams were audited then.
    pub alarm_at: Option<u64>,
    /// The step, counted from 1, with the most evidence against the promise; `None` if the
    /// promise is about all streams.
    pub worst_step: Option<u32>,
    /// The group with that evidence, from 0.
    pub worst_group: usize,
    /// The audited stream, counted from 1, since which the promise seems broken; 1 while
    /// there is no alarm.
    pub since: u64,
    /// The known loss among those halted by the worst step since then; `None` if none
    /// halted.
    pub gap: Option<f64>,
    /// A [lasting interval](super::lasting_interval) for it. With probability 1 − δ, all
    /// such intervals (of every step, group, start and moment) are true.
    pub interval: (f64, f64),
    /// Whether, as far as the intervals say, the gap is at most α for all steps and groups,
    /// both on average since the beginning and on average in the recent past. It is not a
    /// claim about any one moment. It is false if any part of the promise is not watched: a
    /// stream, a step, or each class by itself.
    pub all_clear: bool,
    /// Whether the promise covers each true class separately, but all classes are watched
    /// together. A class that loses more than α can hide behind the others.
    pub pools_classes: bool,
    /// Whether the promise covers more steps than are watched. Between two watched steps,
    /// the gap may be larger than α.
    pub thins_steps: bool,
    /// The streams that counted for nothing.
    pub unwatched: Unwatched,
    /// The results for each step and group, since the beginning and recently.
    pub by_step: Vec<ByStep>,
}

/// Audited streams that counted for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unwatched {
    /// Streams that began after their unit was closed.
    pub of_closed_units: u64,
    /// Streams of new units that came when [the most units](super::MOST_UNITS) were known.
    /// From then on no new unit is watched.
    pub of_new_units: u64,
    /// Streams that did not say their unit, although the promise is about units.
    #[serde(default)]
    pub without_unit: u64,
    /// Streams of no group that the promise covers.
    #[serde(default)]
    pub without_group: u64,
}

impl Unwatched {
    /// How many streams.
    pub fn streams(&self) -> u64 {
        self.of_closed_units + self.of_new_units + self.without_unit + self.without_group
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            of_closed_units: self.of_closed_units + other.of_closed_units,
            of_new_units: self.of_new_units + other.of_new_units,
            without_unit: self.without_unit + other.without_unit,
            without_group: self.without_group + other.without_group,
        }
    }
}

impl Verdict {
    /// The audit, counted from 1, since which the recent past is known at every step and
    /// group. It is the earliest of their starts; those of most steps are later.
    pub fn recent_since(&self) -> u64 {
        let starts = self.by_step.iter().map(|step| step.recent.since);
        starts.min().unwrap_or(1)
    }
}

/// The counts of the streams halted by one step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ByStep {
    /// The group, from 0.
    pub group: usize,
    /// The step, counted from 1; `None` for all streams.
    pub t: Option<u32>,
    /// How many are known to have halted by then.
    pub halted: u64,
    /// The loss among those.
    pub gap: Option<f64>,
    /// A lasting interval for it. Unknown losses count as no loss in its lower end, and as
    /// losses in its upper end.
    pub interval: (f64, f64),
    /// The same for the recent past. It shows when a rule that was good for long has become
    /// bad.
    pub recent: Recent,
}

/// The counts of the streams halted by one step in the recent past: since the latest block
/// after which at least 500 did, or since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// The audited stream, counted from 1, with which it begins.
    pub since: u64,
    /// How many are known to have halted by the step since then.
    pub halted: u64,
    /// The loss among those.
    pub gap: Option<f64>,
    /// A lasting interval for it. It is wider than one since the beginning, because it
    /// holds for all starts at once.
    pub interval: (f64, f64),
}

/// Why a monitor does not take over another watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The watch counts something else.
    #[error("it watches other steps, groups or units, or another alpha")]
    OtherCounts,
    /// The wanted δ is larger. To change to it after a look at the evidence would be to
    /// choose the δ that suits.
    #[error("its delta is smaller than the one asked for, and a delta never rises")]
    SmallerDelta,
    /// An alarm was raised at a δ that is larger than the wanted one.
    #[error("its alarm was raised at a larger delta than the one asked for")]
    AlarmStands,
}

/// Why monitors cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SumError {
    /// The monitors watch different rules, or with different deltas.
    #[error("the monitors watch different promises; all must be of one rule and one delta")]
    OtherWatch,
    /// A unit would count twice.
    #[error(
        "streams of one unit were audited by several monitors, so that it would count more than \
         once; send all streams of a unit to one server"
    )]
    SharedUnit,
}

impl Monitor {
    /// Returns what is known now.
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
                && !self.watch.thins_steps
                && self.unwatched == Unwatched::default()
                && by_step
                    .iter()
                    .all(|step| step.interval.1 <= alpha && step.recent.interval.1 <= alpha),
            pools_classes: self.watch.pools_classes,
            thins_steps: self.watch.thins_steps,
            unwatched: self.unwatched,
            by_step,
        }
    }

    /// Returns the recent counts of a row. The start may depend on what was found, because
    /// the intervals for all starts hold at once.
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

    /// Returns the interval for what a row counted since a block, at the share of δ that
    /// its bets have in the mixture. So all intervals together hold with probability 1 − δ
    /// (union bound).
    fn interval(&self, block: usize, r: usize, row: Row) -> (f64, f64) {
        let level = self.watch.delta.get() * weight(block) * self.watch.weight(r);
        let most = row.losses + row.unknown;
        (
            lower_end(row.losses, row.halted, level),
            upper_end(most, row.halted, level),
        )
    }
}
