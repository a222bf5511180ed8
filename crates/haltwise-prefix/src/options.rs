//! What a fit can be asked for.

use crate::error::{Error, Result};
use haltwise_series::Series;
use serde::{Deserialize, Serialize};

/// The prefixes at which a model answers, in time points read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Checkpoints {
    /// At every time point if there are at most 32, else at 32 that are evenly spaced.
    #[default]
    Usual,
    /// At this many that are evenly spaced; at every time point if there are fewer.
    Number(usize),
    /// After reading exactly these numbers of time points, in rising order.
    At(Vec<usize>),
}

/// The most checkpoints of [`Checkpoints::Usual`].
pub(crate) const MOST_USUAL: usize = 32;
/// The most checkpoints of a model.
pub(crate) const MAX_CHECKPOINTS: usize = 4096;
/// The last time point at which a model may answer.
pub(crate) const MAX_POINTS: usize = 1 << 20;
/// A checkpoint that fewer series reach is only kept if it was asked for by name.
const ENOUGH: usize = 10;

impl Checkpoints {
    /// The lengths to answer at. The last one is the longest length that at least ten series
    /// (or all, if there are fewer) reach.
    pub(crate) fn lengths(&self, series: &Series<'_>) -> Result<Vec<usize>> {
        let refuse = |message: String| Err(Error::Option(message));
        let mut lengths: Vec<usize> = (0..series.len()).map(|i| series.length(i)).collect();
        lengths.sort_unstable_by(|a, b| b.cmp(a));
        let longest = lengths[lengths.len().min(ENOUGH) - 1];
        let number = match self {
            Checkpoints::Usual => MOST_USUAL,
            Checkpoints::Number(number) => *number,
            Checkpoints::At(at) => {
                if at.is_empty() || at[0] == 0 || !at.is_sorted_by(|a, b| a < b) {
                    return refuse(format!(
                        "the checkpoints {at:?} must be rising numbers of time points, from 1"
                    ));
                }
                let second = lengths[1.min(lengths.len() - 1)];
                if let Some(late) = at.iter().find(|&&c| c > second) {
                    return refuse(format!(
                        "fewer than two training series have {late} time points: \
                         give checkpoints up to {second}"
                    ));
                }
                Self::check(at)?;
                return Ok(at.clone());
            }
        };
        if number == 0 {
            return refuse("there must be at least one checkpoint".into());
        }
        let number = number.min(longest).min(MAX_CHECKPOINTS + 1);
        // Rounded halves up, so the last is `longest`.
        let at = (1..=number).map(|i| (2 * i * longest + number) / (2 * number));
        let at = at.collect::<Vec<usize>>();
        Self::check(&at)?;
        Ok(at)
    }

    /// Refuses more checkpoints, and later ones, than a model may have.
    pub(crate) fn check(at: &[usize]) -> Result<()> {
        let last = at.last().copied().unwrap_or(0);
        if at.len() > MAX_CHECKPOINTS || last > MAX_POINTS {
            return Err(Error::TooLarge(format!(
                "{} checkpoints up to time point {last} are too many: a model has at most \
                 {MAX_CHECKPOINTS}, up to time point {MAX_POINTS}",
                at.len()
            )));
        }
        Ok(())
    }
}

/// How to fit a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FitOptions {
    /// The prefixes at which the model answers.
    pub checkpoints: Checkpoints,
    /// The trees at each checkpoint. 0 leaves the answers to the convolutions alone. With 50
    /// instead of 100, a fit takes a quarter less time and a model half the space; the mean
    /// accuracy on seven sets falls by 0.004 at half length.
    pub trees: usize,
    /// Decides biases, channels and trees.
    pub seed: u64,
}

impl Default for FitOptions {
    fn default() -> Self {
        FitOptions {
            checkpoints: Checkpoints::Usual,
            trees: 100,
            seed: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(checkpoints: Checkpoints, lengths: &[u32]) -> Result<Vec<usize>> {
        let steps = lengths.iter().copied().max().unwrap_or(0) as usize;
        let values = vec![0.0; steps * lengths.len()];
        checkpoints.lengths(&Series::with_lengths(&values, steps, 1, lengths)?)
    }

    #[test]
    fn short_series_are_answered_at_every_point_and_long_ones_at_even_spaces() {
        assert_eq!(
            lengths(Checkpoints::Usual, &[5; 3]).unwrap(),
            [1, 2, 3, 4, 5]
        );
        let usual = lengths(Checkpoints::Usual, &[320; 3]).unwrap();
        assert_eq!((usual.len(), usual[0], usual[31]), (32, 10, 320));
        assert_eq!(
            lengths(Checkpoints::Number(3), &[10; 3]).unwrap(),
            [3, 7, 10]
        );
    }

    #[test]
    fn a_few_long_series_do_not_set_the_last_checkpoint() {
        let mut all = [6; 30];
        all[3] = 90;
        assert_eq!(lengths(Checkpoints::Usual, &all).unwrap().last(), Some(&6));
    }

    #[test]
    fn checkpoints_must_rise_and_be_reached() {
        for at in [vec![], vec![0, 2], vec![3, 3], vec![4, 2], vec![2, 6]] {
            assert!(
                lengths(Checkpoints::At(at.clone()), &[5; 4]).is_err(),
                "{at:?}"
            );
        }
        assert_eq!(
            lengths(Checkpoints::At(vec![2, 5]), &[5; 4]).unwrap(),
            [2, 5]
        );
        assert!(lengths(Checkpoints::Number(0), &[5; 4]).is_err());
    }
}
