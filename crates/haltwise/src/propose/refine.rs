//! Refining a learned score for the promise on average.
//!
//! A regression predicts losses everywhere as well as it can. A rule needs less, and more:
//! to stop each sequence where that is cheapest, which also depends on later steps. So
//! refining starts at the coefficients of the regression and descends on the cost of
//! stopping by them.
//!
//! The cost of stopping at a step is the time spent plus λ times the loss. At each step
//! that a sequence reaches, it is stopped with a probability that rises with its score,
//!
//! ```text
//! p = 1 / (1 + exp(−κ·(score − θ))),
//! ```
//!
//! so the mean cost of a sequence from a step on is V = p·cost + (1 − p)·V′, with the V′ of
//! the next step, and is smooth in the coefficients. θ is the threshold where the score
//! keeps the gap that is aimed at. λ is how much time a small increase of that gap saves
//! there: the multiplier of "as early as possible within this gap".
//!
//! The guarantee is not affected: the score is still fixed before certifying.

use std::ops::Range;

use fearless_simd::dispatch;
use rayon::prelude::*;

use crate::propose::logistic::{Rows, add, dot, solve};
use haltwise_stream::log_odds;

/// κ: how sharply stopping depends on the score, whose log-odds it multiplies.
const SHARPNESS: f64 = 1.5;

/// The number of steps downhill. It is small on purpose: the very bottom is overfitted.
const STEPS: usize = 6;

/// The first length that each step tries, and the shortest.
const LENGTHS: [f64; 2] = [2.0, 0.01];

/// A sequence that reaches a step with at most this probability counts as not reaching it.
const HARDLY: f64 = 1e-6;

/// Thresholds are dense from where they lose this share of the loss that is aimed at, to
/// where they lose this multiple of it.
const AROUND: [f64; 2] = [0.3, 2.5];

/// The steps between these two.
const LINKS: u32 = 160;

/// How much higher the thresholds before them are, in log-odds.
const STRICTER: [f64; 4] = [4.0, 2.0, 1.0, 0.5];

/// Sequences per unit of work.
const CHUNK: usize = 32;

/// The cost of stopping sequences.
pub(crate) struct Stopping<'r> {
    rows: &'r Rows,
    /// The rows of each sequence, in the order of its steps.
    sequences: Vec<Range<usize>>,
    /// The time spent by each row.
    spent: Vec<f64>,
    /// The cost of each sequence if it is read to its end.
    ends: Vec<f64>,
    trade: Trade,
}

/// The threshold where scores stop sequences with the intended loss, and how much time a
/// small increase of that loss saves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trade {
    /// θ, in log-odds.
    threshold: f64,
    /// λ.
    multiplier: f64,
}

/// The effect of one threshold for all steps on some sequences, as it falls.
pub(crate) struct Falling {
    /// Each score that it reaches, with the mean loss and the mean time spent there.
    path: Vec<(f32, f64, f64)>,
}

impl Falling {
    /// Follows the threshold, given the scores and the losses at each step of each
    /// sequence, and the time spent by each step.
    pub(crate) fn new(scores: &[Vec<f32>], losses: &[Vec<f32>], spent: &[f64]) -> Self {
        // It reaches a sequence's records: the highest, which comes last, and then earlier
        // and earlier ones.
        let mut records: Vec<(f32, usize, usize)> = Vec::new();
        for (i, scores) in scores.iter().enumerate() {
            let mut highest = f32::NEG_INFINITY;
            for (t, &score) in scores.iter().enumerate().take(losses[i].len() - 1) {
                if score > highest {
                    highest = score;
                    records.push((score, i, t));
                }
            }
        }
        records.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let n = scores.len() as f64;
        let mut at: Vec<usize> = losses.iter().map(|losses| losses.len() - 1).collect();
        let mut time = at.iter().map(|&t| spent[t]).sum::<f64>() / n;
        // Given losses may also be positive at the end.
        let at_end = losses.iter().filter_map(|losses| losses.last());
        let mut lost = at_end.map(|&loss| f64::from(loss)).sum::<f64>() / n;
        let mut path: Vec<(f32, f64, f64)> = Vec::with_capacity(records.len());
        for (score, i, t) in records {
            lost += f64::from(losses[i][t] - losses[i][at[i]]) / n;
            time += (spent[t] - spent[at[i]]) / n;
            at[i] = t;
            // Sequences with the same score are reached together.
            path.pop_if(|last| last.0 == score);
            path.push((score, lost, time));
        }
        Self { path }
    }

    /// The point where it first loses this much; its end if it never does.
    fn losing(&self, loss: f64) -> Option<(f32, f64, f64)> {
        let first = self.path.iter().find(|(_, lost, _)| *lost >= loss);
        first.or(self.path.last()).copied()
    }

    /// How much time a small increase of the loss saves near this loss; `None` if nothing
    /// is lost or nothing is saved.
    pub(crate) fn trade(&self, loss: f64) -> Option<Trade> {
        let after = self.losing(1.3 * loss)?;
        let before = self.losing(0.5 * after.1)?;
        let (threshold, ..) = self.losing(loss)?;
        let multiplier = (before.2 - after.2) / (after.1 - before.1);
        (after.1 > before.1 && multiplier > 0.0).then(|| Trade {
            threshold: log_odds(f64::from(threshold)),
            multiplier,
        })
    }

    /// Lower and lower thresholds, in log-odds: from one that stops hardly any sequence,
    /// past those with about this loss, to one that loses far too much or stops all at
    /// once.
    pub(crate) fn thresholds(&self, loss: f64) -> Vec<f64> {
        let at = |times: f64| Some(log_odds(f64::from(self.losing(times * loss)?.0)));
        let [from, to] = AROUND.map(|times| at(times).unwrap_or(0.0));
        let near = (0..=LINKS).map(|k| from + (to - from) * f64::from(k) / f64::from(LINKS));
        let strict = STRICTER.iter().map(|higher| from + higher);
        strict.chain(near).collect()
    }
}

/// A row where a sequence may be stopped.
struct Stop {
    /// The probability of stopping there, if the sequence reaches it.
    chance: f64,
    /// The derivative of the cost by the score there.
    pull: f64,
}

/// The cost of stopping, and its derivative by the coefficients.
struct Look {
    cost: f64,
    slope: Vec<f64>,
}

impl Look {
    fn nothing(width: usize) -> Self {
        Self {
            cost: 0.0,
            slope: vec![0.0; width],
        }
    }
}

impl<'r> Stopping<'r> {
    /// Makes it from rows that are these steps of each sequence, if they come before its
    /// last; with the losses at all of its steps.
    pub(crate) fn new(
        rows: &'r Rows,
        steps: &[usize],
        losses: &[Vec<f32>],
        spent_by: &[f64],
        trade: Trade,
    ) -> Self {
        let (mut sequences, mut spent, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        for losses in losses {
            let (begin, last) = (spent.len(), losses.len() - 1);
            let before_last = steps.iter().take_while(|&&t| t < last);
            spent.extend(before_last.map(|&t| spent_by[t]));
            sequences.push(begin..spent.len());
            ends.push(spent_by[last] + trade.multiplier * f64::from(losses[last]));
        }
        Self {
            rows,
            sequences,
            spent,
            ends,
            trade,
        }
    }

    /// Returns coefficients near these with a lower cost of stopping. Also returns the same
    /// for each of some coefficients that were fitted without a part of the sequences
    /// (parts are dealt out in turn), without that part.
    pub(crate) fn cross_refined(
        &self,
        beta: &[f64],
        without: &[Vec<f64>],
        ridge: f64,
    ) -> (Vec<f64>, Vec<Vec<f64>>) {
        let curvature = self.curvature(beta);
        let refined = |(part, beta): (usize, &Vec<f64>)| {
            let kept = |i: usize| i % without.len() != part;
            self.refined(beta, &curvature, ridge, kept)
        };
        let without = without.par_iter().enumerate().map(refined);
        (
            self.refined(beta, &curvature, ridge, |_| true),
            without.collect(),
        )
    }

    /// Returns coefficients near these with a lower cost of stopping the sequences that are
    /// kept.
    ///
    /// `curvature`, that of all sequences, gives steps of a sensible length in all
    /// directions; `ridge` holds the coefficients near `beta`.
    fn refined(
        &self,
        beta: &[f64],
        curvature: &[f64],
        ridge: f64,
        kept: impl Fn(usize) -> bool + Sync,
    ) -> Vec<f64> {
        let width = self.rows.width();
        let mut bowl = curvature.to_vec();
        for i in 0..width {
            bowl[i * width + i] += self.rows.ridge_of(i, ridge);
        }
        let look = |now: &[f64]| {
            let mut look = self.look(now, &kept);
            for (i, (b, from)) in std::iter::zip(now, beta).enumerate() {
                let ridge = self.rows.ridge_of(i, ridge);
                look.cost += 0.5 * ridge * (b - from).powi(2);
                look.slope[i] += ridge * (b - from);
            }
            look
        };
        let mut now = beta.to_vec();
        let mut here = look(&now);
        for _ in 0..STEPS {
            let Some(step) = solve(bowl.clone(), here.slope.clone()) else {
                break;
            };
            let [mut length, shortest] = LENGTHS;
            let lower = loop {
                let moved = std::iter::zip(&now, &step).map(|(b, s)| b - length * s);
                let next: Vec<f64> = moved.collect();
                let there = look(&next);
                if there.cost < here.cost {
                    break Some((next, there));
                }
                length /= 2.0;
                if length < shortest {
                    break None;
                }
            };
            let Some(lower) = lower else {
                break;
            };
            (now, here) = lower;
        }
        now
    }

    /// Estimates how sharply the cost may bend at these coefficients, from the pull of each
    /// row; the lower triangle.
    fn curvature(&self, beta: &[f64]) -> Vec<f64> {
        let all = (0..self.sequences.len()).into_par_iter();
        let bends = all.flat_map_iter(|i| {
            let mut stops = Vec::new();
            self.stop(i, beta, &mut stops);
            let bends = stops.into_iter().map(|stop| SHARPNESS * stop.pull.abs());
            // Rows that are hardly ever reached do not bend it.
            let rest = std::iter::repeat(0.0);
            bends.chain(rest).take(self.sequences[i].len())
        });
        self.rows.curvature(&bends.collect::<Vec<f64>>())
    }

    fn look(&self, beta: &[f64], kept: &(impl Fn(usize) -> bool + Sync)) -> Look {
        let of_chunk = |(chunk, sequences): (usize, &[Range<usize>])| {
            let mut look = Look::nothing(beta.len());
            let mut stops = Vec::new();
            let all = chunk * CHUNK..chunk * CHUNK + sequences.len();
            let level = fearless_simd::Level::new();
            dispatch!(level, _simd => {
                for i in all.filter(|&i| kept(i)) {
                    self.add(i, beta, &mut stops, &mut look);
                }
            });
            look
        };
        let chunks = self.sequences.par_chunks(CHUNK).enumerate();
        let parts: Vec<Look> = chunks.map(of_chunk).collect();
        let mut total = Look::nothing(beta.len());
        for part in parts {
            total.cost += part.cost;
            add(&mut total.slope, &part.slope);
        }
        total
    }

    /// Adds one sequence.
    #[inline(always)]
    fn add(&self, i: usize, beta: &[f64], stops: &mut Vec<Stop>, look: &mut Look) {
        look.cost += self.stop(i, beta, stops);
        let rows = self.rows.values(self.sequences[i].clone());
        for (row, stop) in rows.chunks_exact(beta.len()).zip(&*stops) {
            for (slope, &x) in look.slope.iter_mut().zip(row) {
                *slope -= stop.pull * f64::from(x);
            }
        }
    }

    /// The mean cost of a sequence, and the contribution of each of its rows, as far as the
    /// sequence may come.
    #[inline(always)]
    fn stop(&self, i: usize, beta: &[f64], stops: &mut Vec<Stop>) -> f64 {
        let rows = self.sequences[i].clone();
        stops.clear();
        let mut reached = 1.0;
        for row in self.rows.values(rows.clone()).chunks_exact(beta.len()) {
            // The regression predicts the loss and the score its absence: hence the sign.
            let score = -dot(row, beta);
            let odds = SHARPNESS * (score - self.trade.threshold);
            let chance = 1.0 / (1.0 + libm::exp(-odds));
            let pull = SHARPNESS * reached * chance * (1.0 - chance);
            stops.push(Stop { chance, pull });
            reached *= 1.0 - chance;
            if reached < HARDLY {
                break;
            }
        }
        let outcomes = &self.rows.outcomes()[rows.clone()];
        let spent = &self.spent[rows];
        let mut later = self.ends[i];
        for (r, stop) in stops.iter_mut().enumerate().rev() {
            let now = spent[r] + self.trade.multiplier * f64::from(outcomes[r]);
            stop.pull *= now - later;
            later += stop.chance * (now - later);
        }
        later
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    const STEPS: usize = 4;

    /// Rows of two features and a 1, `STEPS` of each sequence, with losses by chance.
    fn drawn(n: usize) -> Rows {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let rows = n * STEPS;
        let row = |_| [2.0 * rng.random::<f32>() - 1.0, rng.random(), 1.0];
        let values: Vec<f32> = (0..rows).flat_map(row).collect();
        let losses = (0..rows).map(|_| f32::from(rng.random_range(0..4_u8) == 0));
        Rows::new(3, values, losses.collect())
    }

    fn stopping(rows: &Rows) -> Stopping<'_> {
        let trade = Trade {
            threshold: 0.3,
            multiplier: 1.2,
        };
        of_equal_lengths(rows, &[0.2, 0.4, 0.6, 0.8, 1.0], trade)
    }

    /// All sequences have one step more than rows; the last step loses nothing.
    fn of_equal_lengths<'r>(rows: &'r Rows, spent: &[f64], trade: Trade) -> Stopping<'r> {
        let losses = vec![vec![0.0; STEPS + 1]; rows.outcomes().len() / STEPS];
        Stopping::new(rows, &[0, 1, 2, 3], &losses, spent, trade)
    }

    #[test]
    fn the_slope_is_that_of_the_cost() {
        let rows = drawn(50);
        let stopping = stopping(&rows);
        let beta = [0.7, -0.4, 0.2];
        let kept = |i: usize| !i.is_multiple_of(3);
        let slope = stopping.look(&beta, &kept).slope;
        for j in 0..beta.len() {
            let cost = |by: f64| {
                let mut beta = beta;
                beta[j] += by;
                stopping.look(&beta, &kept).cost
            };
            let found = (cost(1e-5) - cost(-1e-5)) / 2e-5;
            assert!((found - slope[j]).abs() < 1e-5, "{found} {}", slope[j]);
        }
    }

    #[test]
    fn any_number_of_threads_refines_to_the_same_bits() {
        let rows = drawn(400);
        let beta = vec![0.7, -0.4, 0.2];
        let without = vec![vec![0.6, -0.5, 0.1], vec![0.8, -0.3, 0.3]];
        let refined = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let refined = || stopping(&rows).cross_refined(&beta, &without, 1.0);
            pool.build().unwrap().install(refined)
        };
        assert_eq!(refined(1), refined(3));
        let (all, parts) = refined(2);
        assert!(all != parts[0] && parts[0] != parts[1]);
    }

    /// A sequence with only one step costs what that step does; rows are the steps before
    /// the last.
    #[test]
    fn sequences_may_differ_in_length_and_lose_at_their_end() {
        let row = [1.0, 1.0];
        let rows = Rows::new(2, row.repeat(3), vec![1.0, 0.0, 1.0]);
        let losses = [vec![0.5], vec![1.0, 0.0, 0.25], vec![1.0, 0.0]];
        let trade = Trade {
            threshold: 0.0,
            multiplier: 2.0,
        };
        let stopping = Stopping::new(&rows, &[0, 1, 2, 3], &losses, &[0.1, 0.4, 1.0], trade);
        assert_eq!(stopping.sequences, [0..0, 0..2, 2..3]);
        assert_eq!(stopping.spent, [0.1, 0.4, 0.1]);
        assert_eq!(stopping.ends, [1.1, 1.5, 0.4]);
        // Even odds at each step.
        let cost = stopping.look(&[0.0, 0.0], &|_| true).cost;
        let expected = 1.1 + (0.5 * 2.1 + 0.25 * 0.4 + 0.25 * 1.5) + (0.5 * 2.1 + 0.5 * 0.4);
        assert!((cost - expected).abs() < 1e-9, "{cost} {expected}");
    }

    #[test]
    fn refining_makes_stopping_cheaper_and_a_ridge_holds_it_back() {
        let rows = drawn(400);
        let stopping = stopping(&rows);
        let beta = vec![0.7, -0.4, 0.2];
        let curvature = stopping.curvature(&beta);
        let refined = |ridge: f64| stopping.refined(&beta, &curvature, ridge, |_| true);
        let cost = |beta: &[f64]| stopping.look(beta, &|_| true).cost;
        let way = |to: &[f64]| -> f64 {
            let way = std::iter::zip(to, &beta).map(|(a, b)| (a - b).powi(2));
            way.take(2).sum()
        };
        let (free, held) = (refined(0.1), refined(1e4));
        assert!(cost(&free) < cost(&held) && cost(&held) < cost(&beta));
        assert!(way(&free) > 0.01 && way(&held) < 1e-6);
    }

    /// Sequences of two kinds are equally likely to lose by stopping at once. One kind
    /// becomes known a step later, the other only at the end: waiting pays for the first
    /// kind.
    #[test]
    fn who_will_soon_be_told_is_waited_for() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let (mut values, mut losses) = (Vec::new(), Vec::new());
        for i in 0..1000 {
            let (soon, loses) = (i % 2, rng.random_range(0..10) < 3);
            let later = loses && soon == 0;
            for lost in [loses, later, later, later] {
                values.extend([soon as f32, 1.0]);
                losses.push(f32::from(lost));
            }
        }
        let rows = Rows::new(2, values, losses);
        let trade = Trade {
            threshold: 0.0,
            multiplier: 1.0,
        };
        let stopping = of_equal_lengths(&rows, &[0.1, 0.2, 0.6, 0.9, 1.0], trade);
        let beta = vec![0.0, 0.0];
        let curvature = stopping.curvature(&beta);
        let refined = stopping.refined(&beta, &curvature, 1.0, |_| true);
        assert!(
            refined[0] > 0.5,
            "waits for those who are soon told: {refined:?}"
        );
    }

    #[test]
    fn a_falling_threshold_is_followed_to_the_number() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let lengths = [3_usize, 5, 1, 4, 5, 5, 2, 5];
        // The scores have ties, and there are losses at the end.
        let mut score = |_| f32::from(rng.random_range(1..20_u8)) / 20.0;
        let scores = lengths.map(|n| (0..n).map(&mut score).collect::<Vec<f32>>());
        let mut lost = |_| f32::from(rng.random_range(0..3_u8)) / 2.0;
        let losses = lengths.map(|n| (0..n).map(&mut lost).collect::<Vec<f32>>());
        let spent = [0.1, 0.3, 0.4, 0.8, 1.0];
        let falling = Falling::new(&scores, &losses, &spent);
        assert!(falling.path.len() > 8);
        for &(threshold, lost, time) in &falling.path {
            let (mut sum, mut sum_time) = (0.0, 0.0);
            for (scores, losses) in std::iter::zip(&scores, &losses) {
                let last = scores.len() - 1;
                let halts = scores.iter().position(|&score| score >= threshold);
                let halts = halts.map_or(last, |t| t.min(last));
                sum += f64::from(losses[halts]) / 8.0;
                sum_time += spent[halts] / 8.0;
            }
            assert!((sum - lost).abs() < 1e-9 && (sum_time - time).abs() < 1e-9);
        }
    }

    #[test]
    fn a_trade_is_the_time_that_more_loss_buys() {
        // Ten sequences halt at once, the one with the highest score first; the last five
        // lose.
        let scores: Vec<Vec<f32>> = (1..=10)
            .map(|i| vec![0.95 - 0.05 * i as f32, 0.0])
            .collect();
        let losses: Vec<Vec<f32>> = (1..=10).map(|i| vec![f32::from(i > 5), 0.0]).collect();
        let falling = Falling::new(&scores, &losses, &[0.5, 1.0]);
        let trade = falling.trade(0.3).unwrap();
        assert!((trade.multiplier - 0.5).abs() < 1e-6, "{trade:?}");
        assert!((trade.threshold - log_odds(0.55)).abs() < 1e-6, "{trade:?}");
        let thresholds = falling.thresholds(0.2);
        assert!(thresholds.is_sorted_by(|a, b| a >= b));
        assert!((thresholds[thresholds.len() - 1] - log_odds(0.45)).abs() < 1e-6);
        let nothing = vec![vec![0.0, 0.0]; 10];
        assert_eq!(
            Falling::new(&scores, &nothing, &[0.5, 1.0]).trade(0.3),
            None
        );
    }
}
