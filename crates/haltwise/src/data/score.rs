//! Scores: how safe it looks to stop at a step, and how that number comes about.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use haltwise_stream::{NotAScore, OVERSHOOT, SUM_TOLERANCE, Score, StepError};
use haltwise_stream::{Source, Step};

pub use crate::data::gap_score::GapScore;
use crate::data::gap_score::Memory;

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
    /// How safe it is to stop here, as learned: the probability that it costs nothing, or,
    /// for the promise on average, what was refined from that.
    Gap(Box<GapScore>),
}

impl fmt::Display for ScoreSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Confidence => "given with the trace",
            Self::MaxProbability => "the largest class probability",
            Self::Margin => "the margin between the two largest class probabilities",
            Self::Gap(_) => "how safe stopping is, as learned",
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

    /// What computes it.
    pub fn live(&self) -> Source<'_> {
        match self {
            Self::Confidence => Source::Confidence,
            Self::MaxProbability => Source::MaxProbability,
            Self::Margin => Source::Margin,
            Self::Gap(learned) => Source::Gap(learned.live()),
        }
    }

    /// The memory of a sequence that has not begun; only a learned score needs
    /// room in it.
    pub(crate) fn memory(&self) -> Memory {
        match self {
            Self::Gap(learned) => learned.memory(),
            Self::Confidence | Self::MaxProbability | Self::Margin => Memory::new(Vec::new()),
        }
    }

    /// The scores of a sequence, one per step.
    pub fn scores<'a>(
        &self,
        steps: impl IntoIterator<Item = Step<'a>>,
    ) -> Result<Vec<f32>, StepError> {
        let (source, mut memory) = (self.live(), self.memory());
        let score = |(t, step): (usize, Step<'_>)| Ok(source.score(&step, t, &mut memory)?.get());
        steps.into_iter().enumerate().map(score).collect()
    }
}
