//! One threshold per step.

pub use haltwise_stream::ThresholdError;
use haltwise_stream::check_thresholds;
use serde::{Deserialize, Serialize};

/// One threshold per step. A sequence halts at the first step whose score reaches its
/// threshold, or at its end. ∞ means never (`null` in JSON).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Option<f32>>", into = "Vec<Option<f32>>")]
pub struct Thresholds(Vec<f32>);

impl Thresholds {
    /// Thresholds in [0, 1], or ∞ for never, at least one.
    pub fn new(values: Vec<f32>) -> Result<Self, ThresholdError> {
        check_thresholds(&values)?;
        Ok(Self(values))
    }

    pub(crate) fn from_valid(values: Vec<f32>) -> Self {
        Self(values)
    }

    /// Thresholds that never halt before the end.
    pub fn never(t_max: usize) -> Self {
        Self(vec![f32::INFINITY; t_max])
    }

    /// Extends the thresholds to `t_max` steps, and never halts at the added steps.
    pub(crate) fn extended(mut self, t_max: usize) -> Self {
        self.0.resize(t_max.max(self.0.len()), f32::INFINITY);
        self
    }

    /// The thresholds as numbers, ∞ for never.
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// Whether they ever halt a sequence of this length before its end.
    pub(crate) fn halt_early(&self) -> bool {
        let steps = self.0.split_last();
        steps.is_some_and(|(_, before)| before.iter().any(|&v| v < f32::INFINITY))
    }

    /// The number of steps.
    pub fn t_max(&self) -> usize {
        self.0.len()
    }

    /// The first step (0-based) at which a sequence reaches its threshold; `None` if there
    /// is none.
    pub(crate) fn first_reached(&self, scores: &[f32]) -> Option<usize> {
        first(&self.0, scores, |score, threshold| score >= threshold)
    }

    /// The first step (0-based) whose score reaches its threshold or is invalid (not in [0,
    /// 1]).
    pub(crate) fn first_reached_or_unsound(&self, scores: &[f32]) -> Option<usize> {
        let stops = |score: f32, threshold: f32| {
            // A NaN is in no range.
            !((0.0..=1.0).contains(&score) && score < threshold)
        };
        first(&self.0, scores, stops).or_else(|| {
            let rest = scores.get(self.0.len()..)?;
            let unsound = rest.iter().position(|score| !(0.0..=1.0).contains(score))?;
            Some(self.0.len() + unsound)
        })
    }

    /// The first step (0-based) with a threshold other than never.
    pub(crate) fn opens(&self) -> Option<usize> {
        self.0.iter().position(|&v| v < f32::INFINITY)
    }
}

/// How many steps are compared together: as many as a wide register holds.
const TOGETHER: usize = 16;

/// The first place where a pair of numbers meets the condition; none past the end of the
/// shorter list.
#[inline(always)]
fn first(thresholds: &[f32], scores: &[f32], asked: impl Fn(f32, f32) -> bool) -> Option<usize> {
    let steps = thresholds.len().min(scores.len());
    let (thresholds, scores) = (&thresholds[..steps], &scores[..steps]);
    let at = |from: usize, pair: (&[f32], &[f32])| {
        let found = std::iter::zip(pair.0, pair.1).position(|(&v, &s)| asked(s, v));
        found.map(|i| from + i)
    };
    let (many, rest) = thresholds.as_chunks::<TOGETHER>();
    let (many_scores, rest_scores) = scores.as_chunks::<TOGETHER>();
    for (i, (thresholds, scores)) in std::iter::zip(many, many_scores).enumerate() {
        // There is no early exit, so the loop runs as wide as the processor does.
        let mut any = 0;
        for (&threshold, &score) in std::iter::zip(thresholds, scores) {
            any |= u32::from(asked(score, threshold));
        }
        if any != 0 {
            return at(i * TOGETHER, (thresholds, scores));
        }
    }
    at(steps - rest.len(), (rest, rest_scores))
}

impl TryFrom<Vec<Option<f32>>> for Thresholds {
    type Error = ThresholdError;

    fn try_from(values: Vec<Option<f32>>) -> Result<Self, ThresholdError> {
        Self::new(
            values
                .into_iter()
                .map(|v| v.unwrap_or(f32::INFINITY))
                .collect(),
        )
    }
}

impl From<Thresholds> for Vec<Option<f32>> {
    fn from(thresholds: Thresholds) -> Self {
        let finite = |v: f32| (v < f32::INFINITY).then_some(v);
        thresholds.0.into_iter().map(finite).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_step_is_the_one_that_a_plain_loop_finds(
            thresholds in prop::collection::vec(
                prop_oneof![2 => 0.3f32..1.0, 1 => Just(f32::INFINITY)], 1..60,
            ),
            scores in prop::collection::vec(
                prop_oneof![
                    60 => 0.0f32..0.7,
                    1 => Just(1.0), 1 => Just(f32::NAN), 1 => Just(-0.5), 1 => Just(1.5),
                    1 => Just(f32::INFINITY),
                ],
                1..80,
            ),
        ) {
            let rule = Thresholds::new(thresholds.clone()).unwrap();
            let threshold = |t: usize| thresholds.get(t).copied();
            let reaches = |t: usize| threshold(t).is_some_and(|v| scores[t] >= v);
            let expected = (0..scores.len()).find(|&t| reaches(t));
            prop_assert_eq!(rule.first_reached(&scores), expected);
            let expected = (0..scores.len())
                .find(|&t| reaches(t) || !(0.0..=1.0).contains(&scores[t]));
            prop_assert_eq!(rule.first_reached_or_unsound(&scores), expected);
        }
    }
}
