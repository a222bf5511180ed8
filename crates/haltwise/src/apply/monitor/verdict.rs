//! What a monitor knows at a moment.

use serde::{Deserialize, Serialize};

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
    /// How many of those have an unknown halt step or loss.
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
    /// A [lasting interval](super::lasting_interval) for it: with probability 1 − δ all
    /// such intervals, of every step, group, start and moment, are true.
    pub interval: (f64, f64),
    /// Whether, for all steps and groups, the gap is at most α on average since the
    /// beginning, and on average in the recent past, as far as the intervals say.
    /// It is not a claim about any one moment. It is false where something of the
    /// promise is not watched: a stream, or each class by itself.
    pub all_clear: bool,
    /// Whether the promise is to each true class, and all are watched together. A class
    /// that loses more than α can hide behind the others.
    pub pools_classes: bool,
    /// The streams that counted for nothing.
    pub unwatched: Unwatched,
    /// The same of each step and group, since the beginning and of late.
    pub by_step: Vec<ByStep>,
}

/// Streams that were audited as of a unit and counted for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unwatched {
    /// Those that began when their unit was over.
    pub of_closed_units: u64,
    /// Those of new units when [as many as are told apart](super::MOST_UNITS) were known.
    /// From then on no new unit is watched.
    pub of_new_units: u64,
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
    /// The same of the recent past. A rule that was good for long and is bad now
    /// shows here.
    pub recent: Recent,
}

/// What is known of those halted by one step in the recent past: since the latest
/// block after which at least 500 did, or since the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// The audited stream, counted from 1, with which it begins.
    pub since: u64,
    /// How many halted by the step since then, as far as is known.
    pub halted: u64,
    /// The loss among those.
    pub gap: Option<f64>,
    /// A lasting interval for it. It is wider than one since the beginning, for it
    /// holds for all starts at once.
    pub interval: (f64, f64),
}

/// Why monitors cannot be added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SumError {
    /// They are of different rules, or deltas.
    #[error("the monitors watch different promises; all must be of one rule and one delta")]
    OtherWatch,
    /// A unit would count twice.
    #[error(
        "streams of one unit were audited by several monitors, so that it would count more than \
         once; send all streams of a unit to one server"
    )]
    SharedUnit,
}
