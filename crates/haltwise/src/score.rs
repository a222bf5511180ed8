//! Scores: how safe it looks to stop at a step, and how that number comes about.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::gap_score::{GapScore, Memory};
use crate::trace::TraceError;

/// A score: a number in [0, 1] that says how safe it looks to stop here.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Score(f32);

impl Score {
    /// The number itself.
    pub fn get(self) -> f32 {
        self.0
    }
}

impl TryFrom<f32> for Score {
    type Error = TraceError;

    fn try_from(value: f32) -> Result<Self, TraceError> {
        if (0.0..=1.0).contains(&value) {
            Ok(Self(value))
        } else {
            Err(TraceError::Score { step: None, value })
        }
    }
}

/// How the scores of a set of traces came about: what a live stream must do to
/// be judged by the same rule.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreSource {
    /// The classifier, or something beside it, supplies the score.
    #[default]
    Confidence,
    /// The largest of the step's class probabilities.
    MaxProbability,
    /// The largest of the step's class probabilities less the second largest.
    Margin,
    /// The learned probability that stopping here costs nothing.
    Gap(Box<GapScore>),
}

impl fmt::Display for ScoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confidence => "given with the trace",
            Self::MaxProbability => "the largest class probability",
            Self::Margin => "the margin between the two largest class probabilities",
            Self::Gap(_) => "the learned probability of no gap",
        })
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
    /// What is remembered of the stream is not what this score remembers.
    #[error("the state of the stream was made by another rule")]
    OtherRule,
    /// The score that came with the step is no score.
    #[error(transparent)]
    Score(#[from] TraceError),
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
    pub(crate) fn largest_two(probs: &[f32]) -> (u32, f32, f32) {
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
    pub(crate) fn sound_probs(&self) -> Result<&'a [f32], StepError> {
        let probs = self.probs.ok_or(StepError::NoProbs)?;
        let sum: f32 = probs.iter().sum();
        let inside = |p: &f32| (-OVERSHOOT..=1.0 + OVERSHOOT).contains(p);
        // NaN fails both.
        match (sum - 1.0).abs() <= SUM_TOLERANCE && probs.iter().all(inside) {
            true => Ok(probs),
            false => Err(StepError::NotProbabilities),
        }
    }

    /// The score that came with the step.
    pub(crate) fn given(&self) -> Result<Score, StepError> {
        Ok(self.score.ok_or(StepError::NoScore)?.try_into()?)
    }
}

impl ScoreSource {
    /// The scores of a sequence, one per step.
    pub fn scores<'a>(
        &self,
        steps: impl IntoIterator<Item = Step<'a>>,
    ) -> Result<Vec<f32>, StepError> {
        let mut memory = None;
        let score = |(t, step): (usize, Step<'_>)| Ok(self.score(&step, t, &mut memory)?.get());
        steps.into_iter().enumerate().map(score).collect()
    }

    /// The score of step `t` (0-based) of a sequence of which `memory` saw the
    /// steps before; only a learned score has one.
    pub(crate) fn score(
        &self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Option<Box<Memory>>,
    ) -> Result<Score, StepError> {
        let value = match self {
            Self::Confidence => return step.given(),
            Self::MaxProbability => Step::largest_two(step.sound_probs()?).1,
            Self::Margin => {
                let (_, first, second) = Step::largest_two(step.sound_probs()?);
                first - second
            }
            Self::Gap(learned) => learned.observe(step, t, memory.get_or_insert_default())?,
        };
        Ok(Score(value.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(source: &ScoreSource, step: Step<'_>) -> Result<f32, StepError> {
        let found = source.score(&step, 0, &mut None);
        found.map(Score::get)
    }

    #[test]
    fn plain_scores_are_read_off_the_step() {
        let step = Step {
            score: Some(0.4),
            probs: Some(&[0.25, 0.625, 0.125]),
            ..Step::default()
        };
        assert_eq!(score(&ScoreSource::Confidence, step), Ok(0.4));
        assert_eq!(score(&ScoreSource::MaxProbability, step), Ok(0.625));
        assert_eq!(score(&ScoreSource::Margin, step), Ok(0.375));
    }

    #[test]
    fn a_single_class_leaves_no_second() {
        assert_eq!(Step::largest_two(&[1.0]), (0, 1.0, 0.0));
        assert_eq!(Step::largest_two(&[0.5, 0.5]), (0, 0.5, 0.5));
    }

    #[test]
    fn what_is_missing_or_no_probability_is_named() {
        let none = Step::default();
        assert_eq!(
            score(&ScoreSource::Confidence, none),
            Err(StepError::NoScore)
        );
        assert_eq!(score(&ScoreSource::Margin, none), Err(StepError::NoProbs));
        for bad in [[0.5, 0.6], [-0.2, 1.2], [f32::NAN, 0.5]] {
            let step = Step {
                probs: Some(&bad),
                ..Step::default()
            };
            assert_eq!(
                score(&ScoreSource::MaxProbability, step),
                Err(StepError::NotProbabilities)
            );
        }
        let outside = Step {
            score: Some(1.5),
            ..Step::default()
        };
        let refused = score(&ScoreSource::Confidence, outside);
        assert!(matches!(refused, Err(StepError::Score(_))));
    }
}
