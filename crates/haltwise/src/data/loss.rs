//! Losses: what stopping early can cost, and what a promise can be about.
//!
//! The gap is 1 if the full prediction is right and the early one is wrong. A disagreement
//! is 1 if the two differ: it needs no label, and is never less than the gap. Other losses
//! lie in [0, 1] and are kept as levels of 1/255, rounded up. So a promise about the levels
//! also holds for the losses.

use serde::{Deserialize, Serialize};

use crate::data::sequence::{Numbers, Trace};
use crate::data::sequence_error::SequenceError;
use crate::data::words::words;
use crate::numbers::simd::SimdArray;

/// The level of a loss of 1.
pub(crate) const TOP: u8 = 255;

/// What a promise is about. Without its scale, `Loss<()>`, it is the meaning of a word.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss<Scale = f64> {
    /// The full prediction is right and the early one is wrong.
    #[default]
    Gap,
    /// The early prediction differs from the full one.
    Disagreement,
    /// A loss in [0, 1] that came with the sequences.
    Given,
    /// How much further from the truth the early number is than the full one,
    /// in units of a scale, at most 1.
    Absolute {
        /// The scale.
        scale: Scale,
    },
}

words! { Loss<()>, "loss":
    Gap = "gap",
        "The full prediction is right and the early one is wrong; labels may be missing";
    Disagreement = "disagreement",
        "The early prediction differs from the full one; needs no labels";
    Given = "given",
        "The losses that come with the traces, in [0, 1] at each step";
    Absolute { scale: () } = "absolute",
        "How much further from the true number the early prediction is than the full one, in units \
         of `scale`";
}

impl<Scale> Loss<Scale> {
    /// Converts the scale of the loss, or returns the error of the conversion.
    pub(crate) fn with_scale<Other, E>(
        self,
        make: impl FnOnce(Scale) -> Result<Other, E>,
    ) -> Result<Loss<Other>, E> {
        Ok(match self {
            Self::Gap => Loss::Gap,
            Self::Disagreement => Loss::Disagreement,
            Self::Given => Loss::Given,
            Self::Absolute { scale } => Loss::Absolute {
                scale: make(scale)?,
            },
        })
    }

    /// Whether the loss is 0 or 1, and 0 at the end of a sequence.
    pub fn is_binary(&self) -> bool {
        match self {
            Self::Gap | Self::Disagreement => true,
            Self::Given | Self::Absolute { .. } => false,
        }
    }

    /// Whether the loss is unknown without the true class. (The loss `absolute` needs a
    /// true number, which every sequence must have.)
    pub fn needs_label(&self) -> bool {
        match self {
            Self::Gap => true,
            Self::Disagreement | Self::Given | Self::Absolute { .. } => false,
        }
    }
}

impl Loss {
    /// Whether halting lost anything, computed from the early answer, the full answer and
    /// the right one, if known. `None` if only the right answer could tell, or if the loss
    /// is not about whether answers agree.
    ///
    /// ```
    /// use haltwise::terms::Loss;
    ///
    /// assert_eq!(Loss::Gap.of_answers(&"cat", &"cat", None), Some(false));
    /// assert_eq!(Loss::Gap.of_answers(&"cat", &"dog", None), None);
    /// assert_eq!(Loss::Gap.of_answers(&"cat", &"dog", Some(&"dog")), Some(true));
    /// assert_eq!(Loss::Disagreement.of_answers(&"cat", &"dog", None), Some(true));
    /// ```
    pub fn of_answers<T: PartialEq + ?Sized>(
        self,
        early: &T,
        full: &T,
        right: Option<&T>,
    ) -> Option<bool> {
        match self {
            Self::Gap if early == full => Some(false),
            Self::Gap => right.map(|right| gap(full == right, early == right)),
            Self::Disagreement => Some(early != full),
            Self::Given | Self::Absolute { .. } => None,
        }
    }

    /// Refuses a sequence that lacks the inputs of the loss. A missing label is judged for
    /// the whole set, not here.
    pub(crate) fn check(self, trace: &Trace<'_>) -> Result<(), SequenceError> {
        let (has_it, column) = match self {
            Self::Gap | Self::Disagreement => (trace.predicts(), "predictions"),
            Self::Given => (trace.losses().is_some(), "losses"),
            Self::Absolute { .. } => (trace.numbers().is_some(), "predictions"),
        };
        if has_it {
            return Ok(());
        }
        Err(SequenceError::no_column(column))
    }

    /// Computes the level at each step; nothing if it is not known.
    pub(crate) fn levels(self, trace: &Trace<'_>, out: &mut Vec<u8>) {
        out.clear();
        let one = |lost: bool| if lost { TOP } else { 0 };
        match self {
            Self::Gap => {
                let full = trace.right().last().unwrap_or(false);
                out.extend(trace.right().map(|right| one(gap(full, right))));
            }
            Self::Disagreement => out.extend(trace.disagrees().map(one)),
            Self::Given | Self::Absolute { .. } => {
                let values = self.values(trace).into_iter().flatten();
                out.extend(values.map(level));
            }
        }
    }

    /// The unrounded loss at each step, in [0, 1]; `None` if it is only 0 or 1, or not
    /// known.
    pub(crate) fn values(self, trace: &Trace<'_>) -> Option<Vec<f64>> {
        match self {
            Self::Gap | Self::Disagreement => None,
            Self::Given => {
                let losses = trace.losses()?.iter();
                Some(losses.map(|&loss| f64::from(loss)).collect())
            }
            Self::Absolute { scale } => {
                let Numbers { predictions, label } = trace.numbers()?;
                let error = |p: f32| (f64::from(p) - f64::from(label)).abs();
                let full = predictions.last().map_or(0.0, |&p| error(p));
                let more = |&p: &f32| ((error(p) - full) / scale).clamp(0.0, 1.0);
                Some(predictions.iter().map(more).collect())
            }
        }
    }
}

/// The level of a loss, rounded up.
pub(crate) fn level(loss: f64) -> u8 {
    (loss.clamp(0.0, 1.0) * f64::from(TOP)).ceil() as u8
}

/// The gap of one sequence.
///
/// ```
/// assert!(haltwise::stats::gap(true, false));
/// // A sequence the classifier gets wrong anyway costs nothing to stop.
/// assert!(!haltwise::stats::gap(false, false));
/// ```
pub fn gap(full_is_right: bool, early_is_right: bool) -> bool {
    full_is_right && !early_is_right
}

/// How the losses of a set are kept: which loss, and whether only as 0 and 1. In that case,
/// values in between count as 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Measure {
    pub(crate) loss: Loss,
    pub(crate) binary: bool,
}

impl Default for Measure {
    fn default() -> Self {
        Self::of(Loss::Gap)
    }
}

impl Measure {
    /// The usual measure for a loss.
    pub(crate) fn of(loss: Loss) -> Self {
        Self {
            loss,
            binary: loss.is_binary(),
        }
    }

    /// What a loss of this level adds to the number of gaps.
    pub(crate) fn counted(self, level: u8) -> u8 {
        match self.binary {
            true => u8::from(level > 0),
            false => level,
        }
    }

    /// What a loss of 1 adds to it.
    pub(crate) fn unit(self) -> u64 {
        if self.binary { 1 } else { u64::from(TOP) }
    }
}

/// The losses of a block, step by step.
#[derive(Debug)]
pub(crate) enum Losses {
    /// Gaps: they follow from which predictions were right.
    Gaps,
    /// One bit for each loss.
    Bits(Vec<u64>),
    /// One level for each loss.
    Levels(Vec<SimdArray<u8>>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::checker::Checker;
    use crate::data::sequence::Sequence;

    fn levels(loss: Loss, given: Sequence<'_>) -> Vec<u8> {
        let (mut checker, mut out) = (Checker::new(), Vec::new());
        loss.levels(&checker.check(given).unwrap(), &mut out);
        out
    }

    #[test]
    fn a_disagreement_needs_no_label_and_is_never_less_than_the_gap() {
        let mut given = Sequence {
            predictions: Some(&[2, 0, 1, 1]),
            scores: Some(&[0.5; 4]),
            ..Sequence::default()
        };
        assert_eq!(levels(Loss::Disagreement, given), [255, 255, 0, 0]);
        for label in 0..3 {
            given.label = Some(label);
            let gap = levels(Loss::Gap, given);
            let most = levels(Loss::Disagreement, given);
            assert!(std::iter::zip(gap, most).all(|(gap, most)| gap <= most));
        }
    }

    #[test]
    fn levels_are_rounded_up() {
        assert_eq!((level(0.0), level(1.0), level(7.0)), (0, 255, 255));
        assert_eq!(level(1e-9), 1);
        for loss in [0.1, 0.25, 0.5, 0.999] {
            let up = f64::from(level(loss)) / 255.0;
            assert!((0.0..1.0 / 255.0).contains(&(up - loss)), "{loss}");
        }
    }

    #[test]
    fn a_number_is_judged_by_how_much_worse_it_is_than_the_last() {
        let given = Sequence {
            scores: Some(&[0.5; 3]),
            numbers: Some(Numbers {
                predictions: &[0.0, 4.0, 3.0],
                label: 5.0,
            }),
            ..Sequence::default()
        };
        assert_eq!(levels(Loss::Absolute { scale: 3.0 }, given), [255, 0, 0]);
        assert_eq!(levels(Loss::Absolute { scale: 6.0 }, given), [128, 0, 0]);
    }
}
