//! Scores: how safe it looks to stop at a step, and how that number comes about.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use crate::gap_score::GapScore;
use crate::gap_score::Memory;
use crate::step::Step;
pub use crate::step::{NotAScore, OVERSHOOT, SUM_TOLERANCE, Score, StepError};

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

impl ScoreSource {
    /// Appends bytes that tell it from every other score.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Confidence => 0,
            Self::MaxProbability => 1,
            Self::Margin => 2,
            Self::Gap(_) => 3,
        });
        if let Self::Gap(learned) = self {
            learned.write_bytes(out);
        }
    }

    /// The text that the first version of the rule file took its seal from.
    pub(crate) fn first_text(&self) -> String {
        match self {
            Self::Confidence => "Confidence".into(),
            Self::MaxProbability => "MaxProbability".into(),
            Self::Margin => "Margin".into(),
            Self::Gap(learned) => format!("Gap({})", learned.first_text()),
        }
    }

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
    use crate::step::StepError;

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
