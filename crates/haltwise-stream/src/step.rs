//! One step of a sequence: what the classifier said, and the score that came
//! with it.

/// A score: a number in [0, 1] that says how safe it looks to stop here.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Score(pub(crate) f32);

/// A number that is no score.
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

/// What a classifier said at one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Step<'a> {
    /// The predicted class; where it is missing, the most probable one.
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
    /// The score is to come with the step, and does not.
    #[error("a \"score\" is needed at each step, and there is none")]
    NoScore,
    /// The score is to be computed from probabilities that are not there.
    #[error("the class probabilities, \"probs\", are needed at each step, and there are none")]
    NoProbs,
    /// The prediction is none of the classes.
    #[error("the prediction {found} is none of the {classes} classes, counted from 0")]
    Prediction {
        /// The class that is said to be predicted.
        found: u32,
        /// How many there are.
        classes: usize,
    },
    /// The learned score looks at the prediction, and there is none.
    #[error("a \"prediction\" is needed at each step, and there is none")]
    NoPrediction,
    /// The numbers are no probabilities.
    #[error("the probabilities are not numbers in [0, 1] that add up to 1")]
    NotProbabilities,
    /// There are not as many classes as there were while calibrating.
    #[error("{found} class probabilities, but the rule was calibrated with {expected}")]
    Classes {
        /// How many there are.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// A learned score remembers what it saw, and has nothing to do it with.
    #[error("a learned score needs memory for each stream")]
    NoMemory,
    /// The stream's memory belongs to another score.
    #[error("the state of the stream was made by another rule")]
    OtherRule,
    /// The score that came with the step is no score.
    #[error(transparent)]
    Score(#[from] NotAScore),
}

/// How far the probabilities of a step may be from adding up to 1. Wide enough
/// for half precision and for three printed decimals, far too narrow for logits
/// or per-class sigmoids.
pub const SUM_TOLERANCE: f32 = 1e-2;

/// How far a probability may lie outside [0, 1] and still be taken for 0 or 1:
/// what rounding to half precision or in a softmax leaves, no more.
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

    /// The probabilities, if they are such.
    pub fn sound_probs(&self) -> Result<&'a [f32], StepError> {
        let probs = self.probs.ok_or(StepError::NoProbs)?;
        let sum: f32 = probs.iter().sum();
        let inside = |p: &f32| (-OVERSHOOT..=1.0 + OVERSHOOT).contains(p);
        // NaN fails both.
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
