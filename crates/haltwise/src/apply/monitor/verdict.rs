//! The verdict of a monitor.

use serde::{Deserialize, Serialize};

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
    /// stream, or each class by itself.
    pub all_clear: bool,
    /// Whether the promise covers each true class separately, but all classes are watched
    /// together. A class that loses more than α can hide behind the others.
    pub pools_classes: bool,
    /// The streams that counted for nothing.
    pub unwatched: Unwatched,
    /// The results for each step and group, since the beginning and recently.
    pub by_step: Vec<ByStep>,
}

/// Audited streams of units that counted for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unwatched {
    /// Streams that began after their unit was closed.
    pub of_closed_units: u64,
    /// Streams of new units that came when [the most units](super::MOST_UNITS) were known.
    /// From then on no new unit is watched.
    pub of_new_units: u64,
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
