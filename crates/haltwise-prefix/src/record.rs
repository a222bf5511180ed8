//! What a model remembers of its training.

use crate::options::FitOptions;
use haltwise_series::{Series, seen};
use serde::{Deserialize, Serialize};

/// How a model was fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRecord {
    /// The options it was fitted with.
    pub options: FitOptions,
    /// The number of series it was fitted to.
    pub trained_on: usize,
    /// At each checkpoint, what the model says about its own training series, each left out.
    pub checkpoints: Vec<CheckpointRecord>,
    /// The version of this crate.
    pub version: String,
    /// Sorted hashes of the training series; if there are many, only the smallest.
    pub seen: Vec<u64>,
}

/// The out-of-sample answers at one checkpoint, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CheckpointRecord {
    /// The training series that reach the checkpoint.
    pub series: usize,
    /// The share of them whose out-of-sample answer is right.
    pub accuracy: f64,
    /// The mean log-loss of the out-of-sample answers.
    pub log_loss: f64,
}

impl TrainingRecord {
    /// The approximate share of these series that training has seen with exactly the same
    /// values; `None` if that is not known.
    pub fn seen_share(&self, series: &Series<'_>) -> Option<f64> {
        seen::share_of(&self.seen, series)
    }
}
