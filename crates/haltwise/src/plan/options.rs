//! What can be asked for: the list of options, and the words that each takes, the same at
//! every door.

use serde::{Deserialize, Serialize};

use super::PlanError;
use crate::data::score::ScoreSource;
use crate::data::terms::{Cost, Loss, Terms, Weight};
use crate::tables::candidates::AtNever;
use crate::testing::fixed_sequence::Promise;

/// What makes a threshold good enough to be proposed, judged by the screening
/// sequences halted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScreenBy {
    /// Their gap is at most α.
    #[default]
    Risk,
    /// The p-value of "the gap is above α" is at most δ: they would pass the
    /// test that certifying makes on other traces. More cautious at steps by
    /// which few have halted.
    #[serde(rename = "p-value")]
    PValue,
}

/// How a rule is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// A learned score and threshold curves, with either promise; halts earlier
    /// than the paper's.
    #[default]
    Adaptive,
    /// The paper's Algorithms 1 and 2: one threshold per step, the gap
    /// controlled among the sequences halted by any step.
    Conditional,
    /// The paper's Algorithm A.1: one threshold, the gap controlled on average.
    Marginal,
    /// Algorithm 1 alone. Promises nothing; kept to show why certifying matters.
    ScreenOnly,
}

/// What the words of an option mean: the same at every door.
pub trait Word: Copy + 'static {
    /// Each value, with the word for it and what it means.
    const WORDS: &'static [(Self, &'static str, &'static str)];

    /// What is said where a word is none of these: "method", say.
    const NAME: &'static str;

    /// The value that a word stands for.
    fn of(word: &str) -> Result<Self, PlanError> {
        let known = Self::WORDS.iter().find(|(_, name, _)| *name == word);
        known.map(|known| known.0).ok_or_else(|| {
            let words: Vec<String> = Self::WORDS.iter().map(|w| format!("{:?}", w.1)).collect();
            PlanError::Word {
                option: Self::NAME,
                found: word.to_owned(),
                known: words.join(", "),
            }
        })
    }
}

impl Word for Method {
    const NAME: &'static str = "method";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Adaptive,
            "adaptive",
            "A learned score and threshold curves; the gap is controlled among the sequences \
             halted by any step, or as --promise says",
        ),
        (
            Self::Marginal,
            "marginal",
            "The paper's; one threshold; the gap is controlled on average over all sequences",
        ),
        (
            Self::Conditional,
            "conditional",
            "The paper's; a threshold per step, the gap is controlled among the sequences halted \
             by any step",
        ),
        (
            Self::ScreenOnly,
            "screen-only",
            "The conditional method without its tests: promises nothing, for comparison",
        ),
    ];
}

impl Method {
    /// What a rule found this way promises, if anything; `adaptive`, unless
    /// something else was asked for.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Self::Marginal => Some(Promise::Marginal),
            Self::Conditional | Self::Adaptive => Some(Promise::Conditional),
            Self::ScreenOnly => None,
        }
    }

    /// Whether thresholds of a grid are screened for each step.
    pub(super) fn screens(self) -> bool {
        matches!(self, Self::Conditional | Self::ScreenOnly)
    }
}

impl Word for Promise {
    const NAME: &'static str = "promise";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Conditional,
            "halted-by",
            "Among the sequences halted by step t, for every t",
        ),
        (
            Self::Marginal,
            "average",
            "On average over all sequences; halts earlier, and may lose more among early halts",
        ),
    ];
}

/// What says how safe it is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreWord {
    /// The score that the traces carry.
    Confidence,
    /// The largest class probability.
    MaxProbability,
    /// The largest class probability less the second largest.
    Margin,
    /// How safe stopping is, as learned.
    Gap,
}

impl Word for ScoreWord {
    const NAME: &'static str = "score";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Confidence,
            "confidence",
            "The score that the traces carry",
        ),
        (
            Self::MaxProbability,
            "max-probability",
            "The largest class probability",
        ),
        (
            Self::Margin,
            "margin",
            "The largest class probability less the second largest",
        ),
        (
            Self::Gap,
            "gap",
            "The probability that stopping costs nothing, learned from traces that are set aside",
        ),
    ];
}

impl ScoreWord {
    /// The score, where it needs no learning.
    pub(crate) fn plain(self) -> Option<ScoreSource> {
        match self {
            Self::Confidence => Some(ScoreSource::Confidence),
            Self::MaxProbability => Some(ScoreSource::MaxProbability),
            Self::Margin => Some(ScoreSource::Margin),
            Self::Gap => None,
        }
    }
}

impl Word for AtNever {
    const NAME: &'static str = "at_never";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Skip,
            "skip",
            "Go on: there is nothing to test at that step",
        ),
        (Self::Stop, "stop", "End there, as the paper's listing does"),
    ];
}

impl Word for ScreenBy {
    const NAME: &'static str = "screen_by";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Risk,
            "risk",
            "The smallest threshold whose gap among the screening traces is at most alpha",
        ),
        (
            Self::PValue,
            "p-value",
            "The smallest threshold whose p-value on the screening traces is at most delta",
        ),
    ];
}

/// What is lost by stopping early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossWord {
    /// The full prediction is right and the early one is wrong.
    Gap,
    /// The early prediction differs from the full one.
    Disagreement,
    /// What comes with the traces.
    Given,
    /// How much worse than the full one a predicted number is.
    Absolute,
}

impl Word for LossWord {
    const NAME: &'static str = "loss";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Gap,
            "gap",
            "The full prediction is right and the early one is wrong; labels may be missing",
        ),
        (
            Self::Disagreement,
            "disagreement",
            "The early prediction differs from the full one; needs no labels at all",
        ),
        (
            Self::Given,
            "given",
            "The losses that the traces carry, in [0, 1] at each step",
        ),
        (
            Self::Absolute,
            "absolute",
            "How much further from the true number the early prediction is than the full one, in \
             units of the scale",
        ),
    ];
}

/// What is asked for, as it came in at a door; `None` is whatever is usual.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// How to find the rule; by default `adaptive`.
    pub method: Option<Method>,
    /// What `adaptive` is to promise; by default the gap by every step.
    pub promise: Option<Promise>,
    /// The tolerated gap; by default 0.1.
    pub alpha: Option<f64>,
    /// The probability with which the promise may fail; by default 0.01.
    pub delta: Option<f64>,
    /// What to judge; by default the score that the traces carry, or for
    /// `adaptive` that or the learned one, whichever promises to halt earlier.
    pub score: Option<ScoreWord>,
    /// Whether there are other traces to fit to.
    pub fit: bool,
    /// Without them: the share that is set aside to fit to; by default 0.3.
    pub fit_fraction: Option<f64>,
    /// Whether there are other traces to screen on.
    pub screen: bool,
    /// Without them: the share that screens; by default the paper's half.
    pub screen_fraction: Option<f64>,
    /// The seed of the split; by default 0.
    pub seed: Option<u64>,
    /// The distance between the thresholds to choose from; by default 0.01.
    pub grid_step: Option<f64>,
    /// What the backward walk does where the screened threshold is "never".
    pub at_never: Option<AtNever>,
    /// What screening asks of a threshold.
    pub screen_by: Option<ScreenBy>,
    /// What is lost by stopping early; by default the gap.
    pub loss: Option<LossWord>,
    /// The loss that counts as 1, of predicted numbers.
    pub scale: Option<f64>,
    /// The column whose every value the promise is to hold for.
    pub by: Option<String>,
    /// The column that names what is drawn as one.
    pub unit: Option<String>,
    /// The column of weights, for a declared shift.
    pub weight: Option<String>,
    /// What no weight exceeds.
    pub weight_bound: Option<f64>,
    /// What reading costs; by default every step as much.
    pub cost: Option<Cost>,
    /// After how many sequences evidence may be looked at, where more of it is to
    /// come; by default once, whenever that is.
    pub looks: Vec<u64>,
}

impl Ask {
    /// The terms that are asked for.
    pub(super) fn terms(&self) -> Result<Terms, PlanError> {
        let positive = |option, found: f64| match found.is_finite() && found > 0.0 {
            true => Ok(found),
            false => Err(PlanError::Positive { option, found }),
        };
        let absolute = self.loss == Some(LossWord::Absolute);
        if self.scale.is_some() && !absolute {
            let remedy = "goes with the loss absolute only";
            return Err(PlanError::Needless {
                option: "scale",
                remedy,
            });
        }
        let loss = match (self.loss, self.scale) {
            (None | Some(LossWord::Gap), _) => Loss::Gap,
            (Some(LossWord::Disagreement), _) => Loss::Disagreement,
            (Some(LossWord::Given), _) => Loss::Given,
            (Some(LossWord::Absolute), Some(scale)) => Loss::Absolute {
                scale: positive("scale", scale)?,
            },
            (Some(LossWord::Absolute), None) => {
                return Err(PlanError::Needs {
                    option: "loss",
                    other: "scale",
                    why: "how far from the truth counts as a loss of 1",
                });
            }
        };
        let weight = match (&self.weight, self.weight_bound) {
            (None, None) => None,
            (Some(column), Some(bound)) => Some(Weight {
                column: column.clone(),
                bound: positive("weight_bound", bound)?,
            }),
            (Some(_), None) => {
                return Err(PlanError::Needs {
                    option: "weight",
                    other: "weight_bound",
                    why: "what no weight exceeds, fixed before looking at the traces",
                });
            }
            (None, Some(_)) => {
                let remedy = "goes with a column of weights only";
                return Err(PlanError::Needless {
                    option: "weight_bound",
                    remedy,
                });
            }
        };
        if let Some(Cost::Steps(costs)) = &self.cost {
            let sound = |cost: &f64| cost.is_finite() && *cost >= 0.0;
            if !costs.iter().all(sound) || costs.iter().sum::<f64>() <= 0.0 {
                return Err(PlanError::Costs);
            }
        }
        Ok(Terms {
            loss,
            by: self.by.clone(),
            unit: self.unit.clone(),
            weight,
            cost: self.cost.clone(),
        })
    }

    /// Asks for such terms, and for nothing else.
    pub fn of_terms(terms: Terms) -> Self {
        let (loss, scale) = match terms.loss {
            Loss::Gap => (None, None),
            Loss::Disagreement => (Some(LossWord::Disagreement), None),
            Loss::Given => (Some(LossWord::Given), None),
            Loss::Absolute { scale } => (Some(LossWord::Absolute), Some(scale)),
        };
        let (weight, weight_bound) = match terms.weight {
            Some(Weight { column, bound }) => (Some(column), Some(bound)),
            None => (None, None),
        };
        Self {
            loss,
            scale,
            by: terms.by,
            unit: terms.unit,
            weight,
            weight_bound,
            cost: terms.cost,
            ..Self::default()
        }
    }
}
