//! Scores: how safe it looks to stop at a step, and how that number is computed.

use std::fmt;

use serde::{Deserialize, Serialize};

pub use haltwise_stream::{NotAScore, OVERSHOOT, SUM_TOLERANCE, Score, StepError};
use haltwise_stream::{ScoreKind, Step};

pub use crate::data::gap_score::GapScore;
use crate::data::gap_score::Memory;
use crate::data::words::words;
use crate::numbers::thresholds::Thresholds;

/// How the scores of a set of traces were computed. A live stream must do the same to be
/// judged by the same rule. Before anything is learned, `ScoreSource<()>`, it is the
/// meaning of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreSource<Learned = Box<GapScore>> {
    /// The classifier, or a program beside it, supplies the score.
    #[default]
    Confidence,
    /// The largest of the step's class probabilities.
    MaxProbability,
    /// The largest of the step's class probabilities minus the second largest.
    Margin,
    /// The learned safety of stopping here: the probability that it costs nothing; or, for
    /// the promise on average, a refinement of that.
    Gap(Learned),
}

words! { ScoreSource<()>, "score":
    Confidence = "confidence", "The score that the traces carry";
    MaxProbability = "max-probability", "The largest class probability";
    Margin = "margin", "The largest class probability less the second largest";
    Gap(()) = "gap",
        "The probability that stopping costs nothing, learned from traces that are set aside";
}

impl ScoreSource<()> {
    /// The score, if it needs no learning.
    pub(crate) fn plain(self) -> Option<ScoreSource> {
        match self {
            Self::Confidence => Some(ScoreSource::Confidence),
            Self::MaxProbability => Some(ScoreSource::MaxProbability),
            Self::Margin => Some(ScoreSource::Margin),
            Self::Gap(()) => None,
        }
    }
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
    /// The kind of score, without what was learned.
    pub fn kind(&self) -> ScoreSource<()> {
        match self {
            Self::Confidence => ScoreSource::Confidence,
            Self::MaxProbability => ScoreSource::MaxProbability,
            Self::Margin => ScoreSource::Margin,
            Self::Gap(_) => ScoreSource::Gap(()),
        }
    }

    /// The learned score, if this is one.
    pub fn learned(&self) -> Option<&GapScore> {
        match self {
            Self::Gap(learned) => Some(learned),
            Self::Confidence | Self::MaxProbability | Self::Margin => None,
        }
    }

    /// Whether it is computed from a step's class probabilities alone.
    pub fn is_of_probs(&self) -> bool {
        self.live().is_of_probs()
    }

    /// Appends bytes that tell it from every other score.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Confidence => 0,
            Self::MaxProbability => 1,
            Self::Margin => 2,
            Self::Gap(_) => 3,
        });
        if let Some(learned) = self.learned() {
            learned.write_bytes(out);
        }
    }

    /// The computation of the score.
    pub fn live(&self) -> ScoreKind<'_> {
        match self {
            Self::Confidence => ScoreKind::Confidence,
            Self::MaxProbability => ScoreKind::MaxProbability,
            Self::Margin => ScoreKind::Margin,
            Self::Gap(learned) => ScoreKind::Gap(learned.live()),
        }
    }

    /// The memory before the first step of a sequence; only a learned score needs room in
    /// it.
    pub(crate) fn memory(&self) -> Memory {
        let learned = self.learned();
        learned.map_or_else(|| Memory::new(Vec::new()), GapScore::memory)
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

    /// The first step (0-based) of a sequence whose score reaches its threshold. While no
    /// threshold can be reached, a learned score only updates its memory.
    pub(crate) fn first_reached<'a>(
        &self,
        thresholds: &Thresholds,
        steps: impl IntoIterator<Item = Step<'a>>,
    ) -> Result<Option<usize>, StepError> {
        let (source, mut memory) = (self.live(), self.memory());
        let steps = std::iter::zip(steps, thresholds.values());
        for (t, (step, &threshold)) in steps.enumerate() {
            match source {
                ScoreKind::Gap(learned) if threshold == f32::INFINITY => {
                    learned.features().pass(&step, &mut memory)?;
                }
                _ if source.score(&step, t, &mut memory)?.get() >= threshold => {
                    return Ok(Some(t));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
