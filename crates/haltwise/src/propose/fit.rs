//! Fitting the gap score to traces that certifying never sees.
//!
//! A ridge logistic regression of the gap on the features of a step, in two passes. The
//! first weighs all steps alike; the second weighs mostly those where a rule would have to
//! decide: still running, and near the level that α asks for. If the aim is an average, the
//! score is then refined (`refine.rs`).
//!
//! Candidates are screened on the same traces. With scores that were fitted to those
//! traces, they would look better than they are. So for screening, each sequence is scored
//! by a fit that left out a fifth of the sequences, including this one (cross-fitting;
//! approximate, because that fit is two steps away from the full one). None of this touches
//! the guarantee, which needs only that the certifying traces took no part.

use rayon::prelude::*;

use crate::data::gap_score::{GapScore, Memory};
use crate::data::loss::{Loss, TOP};
use crate::data::outputs::Outputs;
use crate::data::roles::Fitting;
use crate::data::score::ScoreSource;
use crate::numbers::alpha_delta::Alpha;
use crate::propose::logistic::Rows;
use crate::propose::refine::{Falling, Stopping};
use haltwise_stream::{Features, StepError, log_odds};

/// The most steps of a sequence that are fitted to.
const FITTED_STEPS: usize = 24;

/// The number of parts; one is left out at a time.
const FOLDS: usize = 5;

/// The most Newton steps of a fit.
const ITERATIONS: usize = 12;

/// Below this many sequences, the fit is regularised more, and fewer coefficients are
/// fitted.
pub(crate) const FEW: usize = 500;

/// The ridge, on standardised features.
fn ridge(sequences: usize) -> f64 {
    if sequences < FEW { 50.0 } else { 10.0 }
}

/// The target of the prediction: how likely a loss is, or how large.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    Loss(Loss),
    /// The gap if not all sequences have a label. Without a label, a disagreement counts as
    /// a gap in the share in which it is one with a label. If most have no label, the
    /// disagreement itself, about which far more is known.
    FewLabels,
}

impl Target {
    /// The loss at each step of each sequence.
    fn losses(self, outputs: &Outputs) -> Vec<Vec<f32>> {
        let of = |loss: Loss, i: usize| {
            let mut levels = Vec::new();
            loss.levels(&outputs.trace(i), &mut levels);
            let loss = |level| f32::from(level) / f32::from(TOP);
            levels.into_iter().map(loss).collect::<Vec<f32>>()
        };
        let all = |loss: Loss| -> Vec<Vec<f32>> {
            let all = (0..outputs.len()).into_par_iter();
            all.map(|i| of(loss, i)).collect()
        };
        match self {
            Self::Loss(loss) => all(loss),
            Self::FewLabels => {
                let mut losses = all(Loss::Disagreement);
                if 2 * outputs.labelled() < outputs.len() {
                    return losses;
                }
                let gaps = all(Loss::Gap);
                let right = right_share(outputs) as f32;
                for (i, gaps) in gaps.into_iter().enumerate() {
                    match outputs.is_labelled(i) {
                        true => losses[i] = gaps,
                        false => losses[i].iter_mut().for_each(|loss| *loss *= right),
                    }
                }
                losses
            }
        }
    }
}

/// The share of labelled disagreements, over all steps, whose full prediction is right. It
/// is raised by a standard deviation, because few labels say little, and is a half or more
/// if there are none.
pub(crate) fn right_share(outputs: &Outputs) -> f64 {
    let (mut disagreements, mut gaps, mut sequences) = (1.0, 0.5, 1.0);
    for i in (0..outputs.len()).filter(|&i| outputs.is_labelled(i)) {
        let trace = outputs.trace(i);
        let found = trace.disagrees().filter(|&d| d).count() as f64;
        disagreements += found;
        sequences += f64::from(found > 0.0);
        let full = trace.right().last().unwrap_or(false);
        gaps += trace.right().filter(|&r| full && !r).count() as f64;
    }
    let share: f64 = gaps / disagreements;
    (share + (share * (1.0 - share) / sequences).sqrt()).min(1.0)
}

/// The aim of refining a score, if the loss is promised on average.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim<'a> {
    /// The loss that a rule may have.
    pub(crate) loss: f64,
    /// The total cost up to each step; `None` if every step costs the same.
    pub(crate) costs: Option<&'a [f64]>,
}

impl Aim<'_> {
    /// The share of all costs that is spent by each of `t_max` steps.
    fn spent(&self, t_max: usize) -> Vec<f64> {
        let by = |t: usize| self.costs.map_or((t + 1) as f64, |costs| costs[t]);
        let all = by(t_max - 1).max(f64::MIN_POSITIVE);
        (0..t_max).map(|t| by(t) / all).collect()
    }
}

/// A fitted score, and the scores with which its own traces may be screened.
pub(crate) struct Fit {
    pub(crate) score: GapScore,
    /// For each sequence, one score per step, by a fit that left it out.
    pub(crate) held_out: Vec<Vec<f32>>,
    /// A series of falling thresholds, each for all steps, in log-odds, if the score is
    /// refined.
    pub(crate) falling: Vec<f64>,
}

/// Fits the gap score; `None` if there is nothing to learn from, because there is no gap.
pub(crate) fn fit(
    fitting: &Fitting,
    alpha: Alpha,
    target: Target,
    aim: Option<Aim<'_>>,
) -> Result<Option<Fit>, StepError> {
    let outputs = fitting.outputs();
    let features = outputs.features();
    let steps = fitted_steps(features.t_max);
    let losses = target.losses(outputs);
    let (mut table, sequences) = Table::new(outputs, features, &steps, &losses)?;
    let gaps: f64 = table.gaps.iter().map(|&gap| f64::from(gap)).sum();
    let share = gaps / table.gaps.len() as f64;
    if !(share > 0.0 && share < 1.0) {
        return Ok(None);
    }
    let scale = table.standardise();
    let rows = Rows::new(table.width, table.values, table.gaps);
    let ridge = ridge(outputs.len());

    let mut start = vec![0.0; table.width];
    start[table.width - 1] = log_odds(share);
    let first = rows.fit(&vec![1.0; sequences.len()], ridge, start, ITERATIONS);
    let weights = decision_weights(outputs, &scale.score(features, &first), &steps, alpha)?;
    let beta = rows.fit(&weights, ridge, first, ITERATIONS);

    let folds: Vec<usize> = sequences.iter().map(|i| i % FOLDS).collect();
    let without = rows.without_each(&weights, &folds, FOLDS, ridge, &beta);
    let held_out = |without: &[Vec<f64>]| -> Result<Vec<Vec<f32>>, StepError> {
        let source = |beta: &Vec<f64>| ScoreSource::Gap(Box::new(scale.score(features, beta)));
        let sources: Vec<ScoreSource> = without.iter().map(source).collect();
        let all = (0..outputs.len()).into_par_iter();
        all.map(|i| sources[i % FOLDS].scores(outputs.steps(i)))
            .collect()
    };
    let mut fit = Fit {
        score: scale.score(features, &beta),
        held_out: held_out(&without)?,
        falling: Vec::new(),
    };
    let Some(aim) = aim else {
        return Ok(Some(fit));
    };
    let spent = aim.spent(outputs.t_max());
    if let Some(trade) = Falling::new(&fit.held_out, &losses, &spent).trade(aim.loss) {
        let stopping = Stopping::new(&rows, &steps, &losses, &spent, trade);
        let (beta, without) = stopping.cross_refined(&beta, &without, ridge);
        fit.score = scale.score(features, &beta);
        fit.held_out = held_out(&without)?;
        fit.falling = Falling::new(&fit.held_out, &losses, &spent).thresholds(aim.loss);
    }
    Ok(Some(fit))
}

/// The 0-based steps to fit to: all except the last, or a selection that is denser at the
/// beginning.
fn fitted_steps(t_max: usize) -> Vec<usize> {
    let before_last = t_max.saturating_sub(1);
    if before_last <= FITTED_STEPS {
        return (0..before_last).collect();
    }
    let ratio = libm::pow(before_last as f64, 1.0 / (FITTED_STEPS - 1) as f64);
    let step = |k: usize| libm::pow(ratio, k as f64).round() as usize - 1;
    let mut steps: Vec<usize> = (0..FITTED_STEPS).map(step).collect();
    steps.dedup();
    steps
}

/// Means and deviations of the features.
struct Scale {
    mean: Vec<f64>,
    deviation: Vec<f64>,
}

impl Scale {
    /// The score with standardised coefficients, on raw features. The regression predicts
    /// the gap and the score its absence: hence the signs.
    fn score(&self, features: Features, beta: &[f64]) -> GapScore {
        let weights = std::iter::zip(beta, &self.deviation).map(|(b, d)| -b / d);
        let weights: Vec<f64> = weights.collect();
        let shift: f64 = std::iter::zip(&weights, &self.mean)
            .map(|(w, m)| w * m)
            .sum();
        let intercept = -beta[weights.len()] - shift;
        GapScore::new(features, weights, intercept)
    }
}

/// The features of the fitted steps, and whether each has a gap.
struct Table {
    width: usize,
    /// Row by row, each followed by a 1.
    values: Vec<f32>,
    gaps: Vec<f32>,
}

impl Table {
    /// Collects the given steps of each sequence, except its last, where there is no gap to
    /// predict; and the sequence that each row belongs to.
    fn new(
        outputs: &Outputs,
        features: Features,
        steps: &[usize],
        losses: &[Vec<f32>],
    ) -> Result<(Self, Vec<usize>), StepError> {
        let of_sequence = |i: usize| -> Result<(Vec<f32>, Vec<f32>), StepError> {
            let losses = &losses[i];
            let (mut values, mut gaps) = (Vec::new(), Vec::new());
            let mut memory = Memory::new(vec![0.0; features.room()]);
            for (t, step) in outputs.steps(i).enumerate().take(losses.len() - 1) {
                if steps.binary_search(&t).is_err() {
                    features.pass(&step, &mut memory)?;
                    continue;
                }
                features.observe(&step, t, &mut memory, &mut |x| values.push(x as f32))?;
                values.push(1.0);
                gaps.push(losses[t]);
            }
            Ok((values, gaps))
        };
        let found: Vec<(Vec<f32>, Vec<f32>)> = (0..outputs.len())
            .into_par_iter()
            .map(of_sequence)
            .collect::<Result<_, _>>()?;
        let mut table = Self {
            width: features.count() + 1,
            values: Vec::new(),
            gaps: Vec::new(),
        };
        let mut sequences = Vec::new();
        for (i, (values, gaps)) in found.into_iter().enumerate() {
            table.values.extend(values);
            sequences.extend(std::iter::repeat_n(i, gaps.len()));
            table.gaps.extend(gaps);
        }
        Ok((table, sequences))
    }

    /// Shifts and scales all features to mean 0 and deviation 1.
    fn standardise(&mut self) -> Scale {
        let (width, n) = (self.width - 1, self.gaps.len() as f64);
        let (mut mean, mut deviation) = (vec![0.0; width], vec![0.0; width]);
        for row in self.values.chunks_exact(self.width) {
            for (mean, &x) in mean.iter_mut().zip(row) {
                *mean += f64::from(x) / n;
            }
        }
        for row in self.values.chunks_exact(self.width) {
            let centred = std::iter::zip(row, &mean);
            for (deviation, (&x, mean)) in deviation.iter_mut().zip(centred) {
                *deviation += (f64::from(x) - mean).powi(2) / n;
            }
        }
        for deviation in &mut deviation {
            *deviation = deviation.sqrt();
            // A feature that never varies carries no information; its weight stays 0.
            if *deviation < 1e-6 {
                *deviation = 1.0;
            }
        }
        for row in self.values.chunks_exact_mut(self.width) {
            for (x, (mean, deviation)) in row.iter_mut().zip(mean.iter().zip(&deviation)) {
                *x = ((f64::from(*x) - mean) / deviation) as f32;
            }
        }
        Scale { mean, deviation }
    }
}

/// The weight of each fitted row in the second pass: largest where a rule would still be
/// running and the score is near the level that α asks for.
fn decision_weights(
    outputs: &Outputs,
    score: &GapScore,
    steps: &[usize],
    alpha: Alpha,
) -> Result<Vec<f64>, StepError> {
    let level = log_odds(1.0 - 1.2 * alpha.get());
    let of_sequence = |i: usize| -> Result<Vec<f64>, StepError> {
        let (live, mut memory) = (score.live(), score.memory());
        let (mut running, mut weights) = (true, Vec::new());
        let last = outputs.steps(i).count().saturating_sub(1);
        for (t, step) in outputs.steps(i).enumerate().take(last) {
            let fitted = steps.binary_search(&t).is_ok();
            if !fitted && !running {
                live.features().pass(&step, &mut memory)?;
                continue;
            }
            let odds = live.log_odds(&step, t, &mut memory)?;
            if fitted {
                let running = if running { 1.0 } else { 0.02 };
                let near = libm::exp(-0.5 * ((odds - level) / 1.5).powi(2));
                weights.push(running * (near + 0.05) + 0.02);
            }
            running &= odds < level + 0.5;
        }
        Ok(weights)
    };
    let weights: Vec<Vec<f64>> = (0..outputs.len())
        .into_par_iter()
        .map(of_sequence)
        .collect::<Result<_, _>>()?;
    let weights = weights.concat();
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    Ok(weights.into_iter().map(|w| 0.5 * w / mean).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::sequence::Sequence;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    /// A third of the sequences is hopeless: never right, with low confidence, so stopping
    /// them costs nothing. The others are right at the end, and before it three times in
    /// five, however sure they look.
    fn drawn(n: usize, seed: u64) -> Fitting {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut outputs = Outputs::new();
        for _ in 0..n {
            let hopeless = rng.random_range(0..3) == 0;
            let (mut predictions, mut scores) = (Vec::new(), Vec::new());
            for t in 0..6 {
                let sure = match hopeless {
                    true => 0.1 + 0.1 * rng.random::<f32>(),
                    false => 0.5 + 0.5 * rng.random::<f32>(),
                };
                let right = !hopeless && (t == 5 || rng.random::<f32>() < 0.6);
                predictions.push(u32::from(right));
                scores.push(sure);
            }
            let sequence = Sequence {
                label: Some(1),
                predictions: Some(&predictions),
                scores: Some(&scores),
                ..Sequence::default()
            };
            outputs.push(sequence).unwrap();
        }
        Fitting::new(outputs)
    }

    #[test]
    fn the_hopeless_are_seen_to_cost_nothing() {
        let fit = fit(
            &drawn(2000, 1),
            Alpha::default(),
            Target::Loss(Loss::Gap),
            None,
        )
        .unwrap()
        .unwrap();
        let score = |prediction, sure| {
            let step = haltwise_stream::Step {
                prediction: Some(prediction),
                score: Some(sure),
                probs: None,
            };
            let mut memory = fit.score.memory();
            fit.score.live().observe(&step, 0, &mut memory).unwrap()
        };
        let (hopeless, sure) = (score(0, 0.15), score(0, 0.95));
        assert!(hopeless > 0.85, "{hopeless}");
        assert!(sure < 0.7, "{sure}");
    }

    #[test]
    fn held_out_scores_are_near_the_final_ones_but_not_the_same() {
        let fitting = drawn(1000, 2);
        let fit = fit(&fitting, Alpha::default(), Target::Loss(Loss::Gap), None)
            .unwrap()
            .unwrap();
        let source = ScoreSource::Gap(Box::new(fit.score));
        let traces = fitting.outputs().traces(&source).unwrap();
        let mut differ = 0;
        for i in 0..1000 {
            for (a, b) in std::iter::zip(traces.scores(i).unwrap(), &fit.held_out[i]) {
                assert!((a - b).abs() < 0.2, "{a} {b}");
                differ += usize::from(a != *b);
            }
        }
        assert!(differ > 5000, "{differ}");
    }

    #[test]
    fn on_average_the_score_is_refined_and_costs_count() {
        let fitting = drawn(600, 3);
        let fitted = |aim| {
            let loss = Target::Loss(Loss::Gap);
            fit(&fitting, Alpha::default(), loss, aim).unwrap().unwrap()
        };
        let plain = fitted(None);
        let aim = Aim {
            loss: 0.08,
            costs: None,
        };
        let refined = fitted(Some(aim));
        assert!(
            plain.falling.is_empty()
                && refined.falling.len() > 100
                && refined.falling.is_sorted_by(|a, b| a > b)
        );
        assert_ne!(refined.score, plain.score);
        assert_ne!(refined.held_out, plain.held_out);
        // If all cost is spent at once, stopping saves nothing.
        let at_once = [1.0; 6];
        let for_nothing = fitted(Some(Aim {
            costs: Some(&at_once),
            ..aim
        }));
        assert_eq!(for_nothing.score, plain.score);
    }

    #[test]
    fn without_a_gap_there_is_nothing_to_learn() {
        let mut outputs = Outputs::new();
        for _ in 0..50 {
            let sequence = Sequence {
                label: Some(0),
                predictions: Some(&[0, 0, 0]),
                scores: Some(&[0.5, 0.6, 0.7]),
                ..Sequence::default()
            };
            outputs.push(sequence).unwrap();
        }
        let fitting = Fitting::new(outputs);
        assert!(
            fit(&fitting, Alpha::default(), Target::Loss(Loss::Gap), None)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn many_steps_are_thinned_out_towards_the_end() {
        assert_eq!(fitted_steps(1), [0; 0]);
        assert_eq!(fitted_steps(4), [0, 1, 2]);
        let steps = fitted_steps(207);
        assert_eq!((steps[0], steps[steps.len() - 1]), (0, 205));
        assert!(steps.len() <= FITTED_STEPS);
        assert!(steps.is_sorted());
    }
}
