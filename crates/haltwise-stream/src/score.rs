//! How the score of a step is computed.

use crate::gap_score::{GapScore, Memory};
use crate::step::{Score, Step, StepError};

/// The source of a stream's scores.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScoreKind<'a> {
    /// The classifier, or a program beside it, supplies the score.
    Confidence,
    /// The largest of the step's class probabilities.
    MaxProbability,
    /// The largest of the step's class probabilities minus the second largest.
    Margin,
    /// The learned safety of stopping here.
    Gap(GapScore<'a>),
}

impl ScoreKind<'_> {
    /// The score of step `t` (0-based) of a sequence, given the `memory` of its earlier
    /// steps; only a learned score has a memory.
    pub fn score<P: AsMut<[f32]>>(
        &self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory<P>,
    ) -> Result<Score, StepError> {
        match self {
            Self::Gap(learned) => {
                let value = learned.observe(step, t, memory)?;
                Ok(Score(value.clamp(0.0, 1.0)))
            }
            plain => plain.plain_score(step),
        }
    }

    /// Whether it is computed from a step's class probabilities alone.
    pub fn is_of_probs(&self) -> bool {
        match self {
            Self::MaxProbability | Self::Margin => true,
            Self::Confidence | Self::Gap(_) => false,
        }
    }

    /// The score of a step, if it is not learned; it then needs only the step.
    pub fn plain_score(&self, step: &Step<'_>) -> Result<Score, StepError> {
        let value = match self {
            Self::Confidence => return step.given(),
            Self::MaxProbability => Step::largest_two(step.sound_probs()?).1,
            Self::Margin => {
                let (_, first, second) = Step::largest_two(step.sound_probs()?);
                first - second
            }
            Self::Gap(_) => return Err(StepError::NoMemory),
        };
        Ok(Score(value.clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(source: ScoreKind<'_>, step: Step<'_>) -> Result<f32, StepError> {
        let found = source.plain_score(&step);
        found.map(Score::get)
    }

    #[test]
    fn plain_scores_are_read_off_the_step() {
        let step = Step {
            score: Some(0.4),
            probs: Some(&[0.25, 0.625, 0.125]),
            ..Step::default()
        };
        assert_eq!(score(ScoreKind::Confidence, step), Ok(0.4));
        assert_eq!(score(ScoreKind::MaxProbability, step), Ok(0.625));
        assert_eq!(score(ScoreKind::Margin, step), Ok(0.375));
    }

    #[test]
    fn a_single_class_leaves_no_second() {
        assert_eq!(Step::largest_two(&[1.0]), (0, 1.0, 0.0));
        assert_eq!(Step::largest_two(&[0.5, 0.5]), (0, 0.5, 0.5));
    }

    #[test]
    fn what_is_missing_or_no_probability_is_named() {
        let none = Step::default();
        assert_eq!(score(ScoreKind::Confidence, none), Err(StepError::NoScore));
        assert_eq!(score(ScoreKind::Margin, none), Err(StepError::NoProbs));
        for bad in [[0.5, 0.6], [-0.2, 1.2], [f32::NAN, 0.5]] {
            let step = Step {
                probs: Some(&bad),
                ..Step::default()
            };
            let refused = score(ScoreKind::MaxProbability, step);
            assert_eq!(refused, Err(StepError::NotProbabilities));
        }
        let outside = Step {
            score: Some(1.5),
            ..Step::default()
        };
        let refused = score(ScoreKind::Confidence, outside);
        assert!(matches!(refused, Err(StepError::Score(_))));
    }
}
