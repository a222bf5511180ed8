//! One threshold per step.

pub use haltwise_stream::ThresholdError;
use haltwise_stream::check_thresholds;
use serde::{Deserialize, Serialize};

/// One threshold per step; a sequence halts at the first step whose score
/// reaches its threshold, or at its end. ∞ is never (`null` in JSON).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Option<f32>>", into = "Vec<Option<f32>>")]
pub struct Thresholds(Vec<f32>);

impl Thresholds {
    /// Thresholds in [0, 1], or ∞ for never, at least one.
    pub fn new(values: Vec<f32>) -> Result<Self, ThresholdError> {
        check_thresholds(&values)?;
        Ok(Self(values))
    }

    pub(crate) fn from_valid(values: Vec<f32>) -> Self {
        Self(values)
    }

    /// Never halt before the end.
    pub fn never(t_max: usize) -> Self {
        Self(vec![f32::INFINITY; t_max])
    }

    /// The same thresholds for sequences of up to `t_max` steps, never halting
    /// at those that are added.
    pub(crate) fn extended(mut self, t_max: usize) -> Self {
        self.0.resize(t_max.max(self.0.len()), f32::INFINITY);
        self
    }

    /// The thresholds as numbers, ∞ for never.
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// The number of steps.
    pub fn t_max(&self) -> usize {
        self.0.len()
    }

    /// The first step (0-based) with a threshold other than never.
    pub(crate) fn opens(&self) -> Option<usize> {
        self.0.iter().position(|&v| v < f32::INFINITY)
    }
}

impl TryFrom<Vec<Option<f32>>> for Thresholds {
    type Error = ThresholdError;

    fn try_from(values: Vec<Option<f32>>) -> Result<Self, ThresholdError> {
        Self::new(
            values
                .into_iter()
                .map(|v| v.unwrap_or(f32::INFINITY))
                .collect(),
        )
    }
}

impl From<Thresholds> for Vec<Option<f32>> {
    fn from(thresholds: Thresholds) -> Self {
        let finite = |v: f32| (v < f32::INFINITY).then_some(v);
        thresholds.0.into_iter().map(finite).collect()
    }
}
