//! One step of a sequence: the classifier's output, and the score that came with it.

/// A score: a number in [0, 1] that says how safe it looks to stop here.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Score(pub(crate) f32);

/// A number that is not a score.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("the score {0} is not a number in [0, 1]")]
pub struct NotAScore(pub f32);

impl Score {
    /// The number itself.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for Score {
    type Error = NotAScore;

    fn try_from(value: f32) -> Result<Self, NotAScore> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(NotAScore(value))
        }
    }
}

/// The output of a classifier at one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Step<'a> {
    /// The predicted class; if missing, the most probable one.
    pub prediction: Option<u32>,
    /// The score that came with it.
    pub score: Option<f32>,
    /// The class probabilities.
    pub probs: Option<&'a [f32]>,
}

/// Why a step has no score.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The score must come with the step, and is missing.
    #[error("a \"score\" is needed at each step, and there is none")]
    NoScore,
    /// The score is computed from probabilities, and they are missing.
    #[error("the class probabilities, \"probs\", are needed at each step, and there are none")]
    NoProbs,
    /// The prediction is not one of the classes.
    #[error("the prediction {found} is none of the {classes} classes, counted from 0")]
    Prediction {
        /// The predicted class.
        found: u32,
        /// How many classes there are.
        classes: usize,
    },
    /// The learned score needs the prediction, and it is missing.
    #[error("a \"prediction\" is needed at each step, and there is none")]
    NoPrediction,
    /// The numbers are not probabilities.
    #[error("the probabilities are not numbers in [0, 1] that add up to 1")]
    NotProbabilities,
    /// The number of classes is not that of calibration.
    #[error("{found} class probabilities, but the rule was calibrated with {expected}")]
    Classes {
        /// How many there are.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// A learned score needs memory, and there is none.
    #[error("a learned score needs memory for each stream")]
    NoMemory,
    /// The stream's memory belongs to another score.
    #[error("the state of the stream was made by another rule")]
    OtherRule,
    /// The score that came with the step is invalid.
    #[error(transparent)]
    Score(#[from] NotAScore),
}

/// How far the sum of a step's probabilities may be from 1. This is wide enough for half
/// precision and for three printed decimals, and far too narrow for logits or per-class
/// sigmoids.
pub const SUM_TOLERANCE: f32 = 1e-2;

/// How far a probability may lie outside [0, 1] and still count as 0 or 1: enough for
/// rounding to half precision or in a softmax, and no more.
pub const OVERSHOOT: f32 = 1e-4;

impl<'a> Step<'a> {
    /// The two largest class probabilities, in [0, 1], and the class of the
    /// largest (the first of equals).
    pub fn largest_two(probs: &[f32]) -> (u32, f32, f32) {
        let (mut class, mut first, mut second) = (0, f32::NEG_INFINITY, 0.0);
        for (k, &p) in probs.iter().enumerate() {
            if p > first {
                second = if k == 0 { 0.0 } else { first };
                (class, first) = (k as u32, p);
            } else if p > second {
                second = p;
            }
        }
        (class, first.clamp(0.0, 1.0), second.clamp(0.0, 1.0))
    }

    /// The probabilities, if they are valid.
    pub fn sound_probs(&self) -> Result<&'a [f32], StepError> {
        let probs = self.probs.ok_or(StepError::NoProbs)?;
        let sum: f32 = probs.iter().sum();
        let inside = |p: &f32| (-OVERSHOOT..=1.0 + OVERSHOOT).contains(p);
        // NaN fails both conditions.
        if (sum - 1.0).abs() <= SUM_TOLERANCE && probs.iter().all(inside) {
            Ok(probs)
        } else {
            Err(StepError::NotProbabilities)
        }
    }

    /// The score that came with the step.
    pub fn given(&self) -> Result<Score, StepError> {
        Ok(self.score.ok_or(StepError::NoScore)?.try_into()?)
    }
}
