//! What thresholds may be.

/// Why numbers are not thresholds.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// There is none.
    #[error("there are no thresholds")]
    Empty,
    /// One is neither in [0, 1] nor never.
    #[error("the threshold of step {step} is {value}: it must lie in [0, 1] or be never")]
    Value {
        /// The step, counted from 1.
        step: usize,
        /// The value found.
        value: f32,
    },
}

/// Whether these are thresholds: numbers in [0, 1], or ∞ for never, at least one.
pub fn check_thresholds(values: &[f32]) -> Result<(), ThresholdError> {
    if values.is_empty() {
        return Err(ThresholdError::Empty);
    }
    let sound = |v: f32| (0.0..=1.0).contains(&v) || v == f32::INFINITY;
    match values.iter().zip(1..).find(|&(&value, _)| !sound(value)) {
        None => Ok(()),
        Some((&value, step)) => Err(ThresholdError::Value { step, value }),
    }
}
