//! What a model remembers of its training.

use crate::options::FitOptions;
use crate::series::Series;
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

/// How many hashes of series a model keeps: enough to recognise one in a thousand.
const SEEN: usize = 2048;

/// The sorted hashes to keep.
pub(crate) fn hashes_of(series: &Series<'_>) -> Vec<u64> {
    let mut hashes: Vec<u64> = (0..series.len()).map(|i| series.hash(i)).collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(SEEN);
    hashes
}

impl TrainingRecord {
    /// The approximate share of these series that training has seen with exactly the same
    /// values; `None` if that is not known.
    ///
    /// If the model keeps only the smallest hashes, only series with equally small hashes are
    /// compared: a random part of them.
    pub fn seen_share(&self, series: &Series<'_>) -> Option<f64> {
        let largest = match self.seen.len() {
            SEEN.. => *self.seen.last()?,
            _ => u64::MAX,
        };
        let hashes = (0..series.len()).map(|i| series.hash(i));
        let (mut looked_at, mut seen) = (0, 0);
        for hash in hashes.filter(|hash| *hash <= largest) {
            looked_at += 1;
            seen += usize::from(self.seen.binary_search(&hash).is_ok());
        }
        (looked_at > 0 && !self.seen.is_empty()).then(|| seen as f64 / looked_at as f64)
    }
}
