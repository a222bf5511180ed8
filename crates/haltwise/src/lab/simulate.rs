//! Traces drawn from processes whose true gaps are known in closed form: the ground truth
//! for checking the guarantee.
//!
//! At every step a sequence's score is drawn from a few values, independently
//! of all other steps; given the score, the early prediction has a gap with a
//! known probability. So under any rule the probability of halting at a step,
//! and of a gap there, is a product of known numbers.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use crate::data::traces::Traces;
pub use crate::lab::synthetic::{DrawnSequence, SyntheticClassifier};
use crate::numbers::alpha_delta::Alpha;
use crate::numbers::thresholds::Thresholds;
use crate::testing::fixed_sequence::Promise;
use haltwise_stream::{NotAScore, Score};

/// One value the score of a step can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Atom {
    score: Score,
    weight: f64,
    gap: f64,
}

impl Atom {
    /// A score that is drawn in proportion to `weight`, with the probability of a gap when
    /// halting at it. That probability is at most 0.9, because the full prediction is right
    /// for nine in ten sequences.
    pub fn new(score: f32, weight: f64, gap: f64) -> Result<Self, NotAScore> {
        Ok(Self {
            score: score.try_into()?,
            weight: weight.max(0.0),
            gap: gap.clamp(0.0, FULL_ACCURACY),
        })
    }
}

/// The share of sequences whose full prediction is right. If it is wrong, so is every early
/// prediction, and there is no gap.
const FULL_ACCURACY: f64 = 0.9;

/// A process that generates traces.
#[derive(Debug, Clone, PartialEq)]
pub struct Process {
    name: String,
    steps: Vec<Vec<Atom>>,
    /// The weights of the lengths 1, 2, ….
    lengths: Vec<f64>,
}

impl Process {
    /// A process whose sequences all have one step per list of atoms.
    pub fn new(name: impl Into<String>, steps: Vec<Vec<Atom>>) -> Self {
        let mut lengths = vec![0.0; steps.len()];
        if let Some(last) = lengths.last_mut() {
            *last = 1.0;
        }
        Self {
            name: name.into(),
            steps,
            lengths,
        }
    }

    /// Sets the weights of the lengths 1, 2, …, for sequences of unequal length.
    pub fn with_lengths(mut self, weights: Vec<f64>) -> Self {
        self.lengths = weights;
        self.lengths.resize(self.steps.len(), 0.0);
        self
    }

    /// The name of the process.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Draws `n` sequences; the same seed gives the same traces.
    pub fn draw(&self, n: usize, seed: u64) -> Traces {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut traces = Traces::builder();
        for _ in 0..n {
            let length = 1 + pick(&self.lengths, rng.random());
            let full_is_right = rng.random::<f64>() < FULL_ACCURACY;
            let (mut scores, mut right) = (Vec::new(), Vec::new());
            for (t, atoms) in self.steps[..length].iter().enumerate() {
                let weights: Vec<f64> = atoms.iter().map(|a| a.weight).collect();
                let atom = atoms[pick(&weights, rng.random())];
                let gap = rng.random::<f64>() < atom.gap / FULL_ACCURACY;
                scores.push(atom.score.get());
                right.push(full_is_right && (!gap || t + 1 == length));
            }
            // The label is "right", so a prediction is right if it is true. Scores are in
            // [0, 1] and lengths are equal, so the builder cannot refuse.
            let _ = traces.push(None, &true, &right, &scores);
        }
        traces.finish()
    }

    /// The true gap among the sequences halted by each step; `None` if no sequence halts by
    /// then.
    pub fn true_gaps(&self, thresholds: &Thresholds) -> Vec<Option<f64>> {
        let all: f64 = self.lengths.iter().sum();
        let (mut halted, mut gaps) = (0.0, 0.0);
        // The probability that no threshold was reached so far. It does not depend on the
        // length while the sequence has not ended.
        let mut unreached = 1.0;
        let mut longer = 1.0;
        let mut result = Vec::new();
        for (t, atoms) in self.steps.iter().enumerate() {
            let ends = self.lengths[t] / all;
            longer -= ends;
            let threshold = thresholds.values().get(t).copied().unwrap_or(f32::INFINITY);
            let total: f64 = atoms.iter().map(|a| a.weight).sum();
            let reaching = atoms.iter().filter(|a| a.score.get() >= threshold);
            let (mut reach, mut reach_with_gap) = (0.0, 0.0);
            for atom in reaching {
                reach += atom.weight / total;
                reach_with_gap += atom.weight / total * atom.gap;
            }
            halted += unreached * (ends + longer * reach);
            gaps += unreached * longer * reach_with_gap;
            unreached *= 1.0 - reach;
            result.push((halted > 0.0).then(|| gaps / halted));
        }
        result
    }

    /// Whether thresholds truly break a promise.
    pub fn violates(&self, thresholds: &Thresholds, promise: Promise, alpha: Alpha) -> bool {
        // The tolerance is for rounding if the truth is exactly α.
        let above = |gap: &Option<f64>| gap.is_some_and(|gap| gap > alpha.get() + 1e-12);
        let gaps = self.true_gaps(thresholds);
        match promise {
            Promise::Marginal => gaps.last().is_some_and(above),
            Promise::Conditional => gaps.iter().any(above),
        }
    }

    /// Processes that reveal a wrong test, for a tolerated gap α.
    pub fn hard_cases(alpha: Alpha) -> Vec<Self> {
        let alpha = alpha.get();
        let atom = |score, weight, gap| Atom {
            score: Score::try_from(score).unwrap_or_else(|_| unreachable!("a constant in [0, 1]")),
            weight,
            gap,
        };
        // Meaningful scores: high ones are safer.
        let sound = |low, high| {
            vec![
                atom(0.3, 1.0, low),
                atom(0.6, 1.0, high),
                atom(0.9, 1.0, high / 2.0),
            ]
        };
        let flat = |gap| {
            vec![
                atom(0.2, 1.0, gap),
                atom(0.5, 1.0, gap),
                atom(0.8, 1.0, gap),
            ]
        };
        vec![
            Self::new("the gap is exactly alpha", vec![flat(alpha); 6]),
            Self::new("the gap is just above alpha", vec![flat(alpha * 1.01); 6]),
            Self::new(
                "the gap is above alpha at one step only",
                // By step 3, and only by then, it is 1.04·α.
                (0..6)
                    .map(|t| if t == 2 { 2.3 } else { 0.5 })
                    .map(|gap| vec![atom(0.1, 9.0, 5.0 * alpha), atom(0.9, 1.0, gap * alpha)])
                    .collect(),
            ),
            Self::new(
                "few halt early, and wrongly",
                vec![
                    vec![atom(0.1, 98.0, 0.5), atom(0.95, 2.0, 0.4)],
                    vec![atom(0.1, 95.0, 0.5), atom(0.95, 5.0, 0.25)],
                    sound(3.0 * alpha, alpha),
                    sound(2.0 * alpha, alpha * 0.9),
                    sound(alpha, alpha / 2.0),
                ],
            ),
            Self::new(
                "unequal lengths",
                (0..8)
                    .map(|t| sound(alpha * (3.0 - 0.2 * f64::from(t)), alpha * 1.05))
                    .collect(),
            )
            .with_lengths(vec![0.0, 2.0, 0.0, 1.0, 1.0, 1.0, 0.0, 3.0]),
            Self::new(
                "scores full of ties, on the edges of the grid",
                (0..5)
                    .map(|t| {
                        vec![
                            atom(0.0, 1.0, alpha * 2.0),
                            atom(0.5, 2.0, alpha * (1.3 - 0.1 * f64::from(t))),
                            atom(1.0, 1.0, alpha * 0.9),
                        ]
                    })
                    .collect(),
            ),
        ]
    }
}

/// Returns the index that a number in [0, 1) draws in proportion to the weights.
fn pick(weights: &[f64], uniform: f64) -> usize {
    let mut left = uniform * weights.iter().sum::<f64>();
    for (i, weight) in weights.iter().enumerate() {
        if left < *weight {
            return i;
        }
        left -= weight;
    }
    // Rounding can get here: return the last index that can be drawn.
    weights.iter().rposition(|&w| w > 0.0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::evaluate::evaluate;

    #[test]
    fn true_gaps_are_what_many_draws_show() {
        for process in Process::hard_cases(Alpha::default()) {
            let rule = Thresholds::new(vec![f32::INFINITY, 0.9, 0.5, 0.6, 0.5]).unwrap();
            let rule = rule.extended(process.steps.len());
            let measured = evaluate(&rule, &process.draw(60_000, 7)).unwrap();
            for (truth, step) in std::iter::zip(process.true_gaps(&rule), measured.by_step) {
                let (Some(truth), Some(gap)) = (truth, step.gap_by) else {
                    assert_eq!(truth.is_some(), step.gap_by.is_some());
                    continue;
                };
                let error = (truth * (1.0 - truth) / step.halted_by as f64).sqrt();
                assert!(
                    (truth - gap).abs() <= 5.0 * error,
                    "{}: {truth} {step:?}",
                    process.name
                );
            }
        }
    }

    #[test]
    fn the_same_seed_draws_the_same_traces() {
        let process = &Process::hard_cases(Alpha::default())[4];
        let print = |seed| process.draw(100, seed).summary();
        assert_eq!(print(3), print(3));
        assert_ne!(print(3), print(4));
    }
}
