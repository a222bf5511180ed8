#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
// Code that could panic is forbidden here, except in tests.
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

#[cfg(test)]
extern crate std;

mod gap_score;
mod ln;
mod rule;
mod score;
mod state;
mod step;
mod table;
mod thresholds;

pub use gap_score::{Features, GapScore, GapScoreError, Memory, log_odds, probability};
pub use rule::{Rule, RuleError};
pub use score::ScoreKind;
pub use state::{Decision, GroupStanding, Reason, State};
pub use step::{NotAScore, OVERSHOOT, SUM_TOLERANCE, Score, Step, StepError};
pub use table::TableError;
pub use thresholds::{ThresholdError, check_thresholds};
