//! Logistic regression with a ridge, by Newton's method.
//!
//! The problem is small and dense: a few dozen columns, some ten thousand rows. Rows are
//! processed in chunks of a fixed size, whose sums are added in order, and the vector code
//! fuses or reorders nothing. So the result is the same for any number of threads and any
//! CPU.

use std::ops::Range;

use fearless_simd::dispatch;
use rayon::prelude::*;

/// Rows per unit of work.
const CHUNK: usize = 1024;

/// The penalty on the last column, the intercept: almost none.
const INTERCEPT_RIDGE: f64 = 1e-6;

/// Newton steps are halved at most down to this share.
const SHORTEST_STEP: f64 = 1e-3;

/// The data of a fit: rows of equal width, whose last column is 1, and the outcome of each:
/// 1 if it occurred, 0 if not, or its probability.
pub(crate) struct Rows {
    width: usize,
    values: Vec<f32>,
    outcomes: Vec<f32>,
}

impl Rows {
    pub(crate) fn new(width: usize, values: Vec<f32>, outcomes: Vec<f32>) -> Self {
        debug_assert_eq!(values.len(), width * outcomes.len());
        Self {
            width,
            values,
            outcomes,
        }
    }

    /// Returns the coefficients that maximise the weighted, penalised likelihood, reached
    /// from `start` in at most this many Newton steps.
    pub(crate) fn fit(
        &self,
        weights: &[f64],
        ridge: f64,
        start: Vec<f64>,
        iterations: usize,
    ) -> Vec<f64> {
        let penalty = |beta: &[f64]| -> f64 {
            let square = |(i, b): (usize, &f64)| self.ridge_of(i, ridge) * b * b;
            0.5 * beta.iter().enumerate().map(square).sum::<f64>()
        };
        let mut beta = start;
        let mut loss = self.loss(weights, &beta) + penalty(&beta);
        for _ in 0..iterations {
            let sums = self.derivatives(weights, &beta);
            let Some(step) = self.step(sums, ridge, &beta) else {
                break;
            };
            let mut share = 1.0;
            let (next, next_loss) = loop {
                let moved = std::iter::zip(&beta, &step).map(|(b, s)| b - share * s);
                let next: Vec<f64> = moved.collect();
                let next_loss = self.loss(weights, &next) + penalty(&next);
                if next_loss <= loss || share < SHORTEST_STEP {
                    break (next, next_loss);
                }
                share /= 2.0;
            };
            // Do not move if the step makes the loss larger or not a number.
            if next_loss
                .partial_cmp(&loss)
                .is_none_or(|order| order.is_gt())
            {
                break;
            }
            let gained = loss - next_loss;
            (beta, loss) = (next, next_loss);
            if gained < 1e-5 * loss.abs() {
                break;
            }
        }
        beta
    }

    /// Returns the coefficients without each of some parts of the rows, where `beta` are
    /// those of all rows and each row belongs to one part. They are two Newton steps away,
    /// both with the curvature at `beta`. That takes one pass over each row for all parts,
    /// and one pass over slopes alone for each part, and leaves almost nothing to gain.
    pub(crate) fn without_each(
        &self,
        weights: &[f64],
        part_of: &[usize],
        parts: usize,
        ridge: f64,
        beta: &[f64],
    ) -> Vec<Vec<f64>> {
        let rows_where = |kept: &dyn Fn(usize) -> bool| -> Vec<f64> {
            let rows = std::iter::zip(weights, part_of);
            rows.map(|(&w, &part)| if kept(part) { w } else { 0.0 })
                .collect()
        };
        let sums: Vec<Sums> = (0..parts)
            .map(|part| self.derivatives(&rows_where(&|other| other == part), beta))
            .collect();
        let without = |left_out: usize| {
            let mut kept = Sums::new(self.width);
            let others = (0..parts).filter(|&part| part != left_out);
            others.for_each(|part| kept.add(&sums[part]));
            let first = self.moved(&kept, ridge, beta);
            kept.slope = self.slope(&rows_where(&|part| part != left_out), &first);
            self.moved(&kept, ridge, &first)
        };
        (0..parts).map(without).collect()
    }

    /// Takes a Newton step; returns the same coefficients if there is none.
    fn moved(&self, sums: &Sums, ridge: f64, beta: &[f64]) -> Vec<f64> {
        match self.step(sums.clone(), ridge, beta) {
            Some(step) => std::iter::zip(beta, step).map(|(b, s)| b - s).collect(),
            None => beta.to_vec(),
        }
    }

    /// Newton's step, to be subtracted from the coefficients.
    fn step(&self, mut sums: Sums, ridge: f64, beta: &[f64]) -> Option<Vec<f64>> {
        for (i, slope) in sums.slope.iter_mut().enumerate() {
            let ridge = self.ridge_of(i, ridge);
            *slope += ridge * beta[i];
            sums.curvature[i * self.width + i] += ridge;
        }
        solve(sums.curvature, sums.slope)
    }

    /// The penalty on a column.
    pub(crate) fn ridge_of(&self, column: usize, ridge: f64) -> f64 {
        match column + 1 == self.width {
            true => INTERCEPT_RIDGE,
            false => ridge,
        }
    }

    /// Maps the chunks of rows that have weight, in parallel; the results are in the order
    /// of the rows.
    fn chunks<T: Send>(
        &self,
        weights: &[f64],
        of_chunk: impl Fn(&[f32], &[f32], &[f64]) -> T + Sync,
    ) -> Vec<T> {
        let rows = self.values.par_chunks(CHUNK * self.width);
        let rows = rows.zip(self.outcomes.par_chunks(CHUNK));
        rows.zip(weights.par_chunks(CHUNK))
            .map(|((values, outcomes), weights)| of_chunk(values, outcomes, weights))
            .collect()
    }

    fn loss(&self, weights: &[f64], beta: &[f64]) -> f64 {
        let parts = self.chunks(weights, |values, outcomes, weights| {
            let rows = values.chunks_exact(self.width).zip(outcomes).zip(weights);
            let loss = |((row, &outcome), &weight): ((&[f32], &f32), &f64)| match weight {
                0.0 => 0.0,
                _ => {
                    let z = dot(row, beta);
                    // ln(1 + eᶻ), without overflow.
                    let log = z.max(0.0) + libm::log1p(libm::exp(-z.abs()));
                    weight * (log - f64::from(outcome) * z)
                }
            };
            rows.map(loss).sum::<f64>()
        });
        parts.into_iter().sum()
    }

    /// The first derivative of the loss.
    fn slope(&self, weights: &[f64], beta: &[f64]) -> Vec<f64> {
        let parts = self.chunks(weights, |values, outcomes, weights| {
            let mut slope = vec![0.0; self.width];
            let rows = values.chunks_exact(self.width).zip(outcomes).zip(weights);
            for ((row, &outcome), &weight) in rows.filter(|&(_, &weight)| weight > 0.0) {
                let pull = weight * (chance(row, beta) - f64::from(outcome));
                for (slope, &x) in slope.iter_mut().zip(row) {
                    *slope += pull * f64::from(x);
                }
            }
            slope
        });
        let mut total = vec![0.0; self.width];
        parts.iter().for_each(|part| add(&mut total, part));
        total
    }

    /// The first and second derivatives of the loss; the second is a symmetric matrix,
    /// given by its lower triangle.
    fn derivatives(&self, weights: &[f64], beta: &[f64]) -> Sums {
        let parts = self.chunks(weights, |values, outcomes, weights| {
            self.sums(values, |r, row| match weights[r] {
                0.0 => (0.0, 0.0),
                weight => {
                    let p = chance(row, beta);
                    (
                        weight * (p - f64::from(outcomes[r])),
                        weight * p * (1.0 - p),
                    )
                }
            })
        });
        self.total(&parts)
    }

    /// The sum of each row's outer product with itself, times the row's bend; the lower
    /// triangle.
    pub(crate) fn curvature(&self, bends: &[f64]) -> Vec<f64> {
        let parts = self.chunks(bends, |values, _, bends| {
            self.sums(values, |r, _| (0.0, bends[r]))
        });
        self.total(&parts).curvature
    }

    /// The sums of chunks, in their order.
    fn total(&self, parts: &[Sums]) -> Sums {
        let mut total = Sums::new(self.width);
        parts.iter().for_each(|part| total.add(part));
        total
    }

    /// The sums over some rows. Compiled once for each instruction set that a CPU may have.
    #[inline(always)]
    fn sums(&self, values: &[f32], terms: impl Fn(usize, &[f32]) -> (f64, f64)) -> Sums {
        let mut sums = Sums::new(self.width);
        let level = fearless_simd::Level::new();
        dispatch!(level, _simd => sums.add_rows(values, terms));
        sums
    }

    /// The number of columns.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The values of some of the rows, one after the other.
    pub(crate) fn values(&self, rows: Range<usize>) -> &[f32] {
        &self.values[rows.start * self.width..rows.end * self.width]
    }

    /// The outcome of each row.
    pub(crate) fn outcomes(&self) -> &[f32] {
        &self.outcomes
    }
}

pub(crate) fn add(left: &mut [f64], right: &[f64]) {
    for (left, right) in std::iter::zip(left, right) {
        *left += right;
    }
}

/// The probability of a row's outcome.
#[inline(always)]
fn chance(row: &[f32], beta: &[f64]) -> f64 {
    1.0 / (1.0 + libm::exp(-dot(row, beta)))
}

/// Sums over some rows.
#[derive(Clone)]
struct Sums {
    slope: Vec<f64>,
    curvature: Vec<f64>,
}

/// Rows that are added to the sums at once: each number of the matrix is loaded
/// and stored once for all of them.
const AT_ONCE: usize = 4;

impl Sums {
    fn new(width: usize) -> Self {
        Self {
            slope: vec![0.0; width],
            curvature: vec![0.0; width * width],
        }
    }

    fn add(&mut self, other: &Self) {
        add(&mut self.slope, &other.slope);
        add(&mut self.curvature, &other.curvature);
    }

    /// Adds rows, given the pull and the bend of each.
    #[inline(always)]
    fn add_rows(&mut self, values: &[f32], terms: impl Fn(usize, &[f32]) -> (f64, f64)) {
        let width = self.slope.len();
        let mut rows = vec![0.0; AT_ONCE * width];
        for (g, group) in values.chunks(AT_ONCE * width).enumerate() {
            let (mut pull, mut bend) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
            for (r, row) in group.chunks_exact(width).enumerate() {
                (pull[r], bend[r]) = terms(AT_ONCE * g + r, row);
            }
            if (pull, bend) == ([0.0; AT_ONCE], [0.0; AT_ONCE]) {
                continue;
            }
            rows.fill(0.0);
            for (to, &from) in rows.iter_mut().zip(group) {
                *to = f64::from(from);
            }
            let (a, rest) = rows.split_at(width);
            let (b, rest) = rest.split_at(width);
            let (c, d) = rest.split_at(width);
            for i in 0..width {
                let x = [a[i], b[i], c[i], d[i]];
                self.slope[i] += pull[0] * x[0] + pull[1] * x[1] + pull[2] * x[2] + pull[3] * x[3];
                let x: [f64; AT_ONCE] = std::array::from_fn(|r| bend[r] * x[r]);
                // As far as the diagonal.
                let (a, b, c, d) = (&a[..=i], &b[..=i], &c[..=i], &d[..=i]);
                let sums = &mut self.curvature[i * width..=i * width + i];
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum += x[0] * a[j] + x[1] * b[j] + x[2] * c[j] + x[3] * d[j];
                }
            }
        }
    }
}

/// Added up in four strands, a fixed order that vectors can follow.
#[inline(always)]
pub(crate) fn dot(row: &[f32], beta: &[f64]) -> f64 {
    let mut strands = [0.0; 4];
    let (fours, rest) = row.as_chunks::<4>();
    let (beta_fours, beta_rest) = beta.as_chunks::<4>();
    for (x, b) in std::iter::zip(fours, beta_fours) {
        for i in 0..4 {
            strands[i] += f64::from(x[i]) * b[i];
        }
    }
    let tail = std::iter::zip(rest, beta_rest).map(|(&x, &b)| f64::from(x) * b);
    (strands[0] + strands[1]) + (strands[2] + strands[3]) + tail.sum::<f64>()
}

/// Solves A·x = b for a symmetric, positive definite A given by its lower triangle
/// (Cholesky); `None` if A is not positive definite.
pub(crate) fn solve(mut a: Vec<f64>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for i in 0..n {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| a[i * n + k] * a[j * n + k]).sum();
            let left = a[i * n + j] - known;
            a[i * n + j] = if i > j {
                left / a[j * n + j]
            } else if left > 0.0 {
                left.sqrt()
            } else {
                return None;
            };
        }
    }
    for i in 0..n {
        let known: f64 = (0..i).map(|k| a[i * n + k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * n + i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[k * n + i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * n + i];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    /// Rows whose outcomes follow the coefficients (1, −2, 0.5).
    fn drawn(n: usize) -> Rows {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let (mut values, mut outcomes) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let row = [
                rng.random::<f32>() * 4.0 - 2.0,
                rng.random::<f32>() * 2.0 - 1.0,
                1.0,
            ];
            let p = 1.0 / (1.0 + libm::exp(-dot(&row, &[1.0, -2.0, 0.5])));
            outcomes.push(if rng.random::<f64>() < p { 1.0 } else { 0.0 });
            values.extend(row);
        }
        Rows::new(3, values, outcomes)
    }

    #[test]
    fn the_coefficients_behind_the_draws_are_found() {
        let rows = drawn(60_000);
        let beta = rows.fit(&vec![1.0; 60_000], 1e-3, vec![0.0; 3], 12);
        for (found, truth) in std::iter::zip(&beta, [1.0, -2.0, 0.5]) {
            assert!((found - truth).abs() < 0.05, "{beta:?}");
        }
        // At the optimum the slope, including the penalty, is zero.
        let sums = rows.derivatives(&vec![1.0; 60_000], &beta);
        for (i, slope) in sums.slope.iter().enumerate().take(2) {
            assert!((slope + 1e-3 * beta[i]).abs() < 1.0, "{slope}");
        }
    }

    #[test]
    fn what_becomes_of_the_coefficients_without_some_rows_is_told_in_two_steps() {
        let rows = drawn(4000);
        let weights = [0.7; 4000];
        let beta = rows.fit(&weights, 10.0, vec![0.0; 3], 12);
        let parts: Vec<usize> = (0..4000).map(|i| i % 4).collect();
        let without = rows.without_each(&weights, &parts, 4, 10.0, &beta);
        for (part, quick) in without.iter().enumerate() {
            let kept = parts.iter().map(|&p| if p == part { 0.0 } else { 0.7 });
            let exact = rows.fit(&kept.collect::<Vec<_>>(), 10.0, vec![0.0; 3], 20);
            let apart = |a: &[f64]| {
                let squares = std::iter::zip(a, &exact).map(|(a, b)| (a - b).powi(2));
                squares.sum::<f64>().sqrt()
            };
            assert!(apart(quick) < 0.02 * apart(&beta), "{part}");
        }
    }

    #[test]
    fn a_row_without_weight_does_not_count() {
        let rows = drawn(3000);
        let half: Vec<f64> = (0..3000).map(|i| f64::from(i % 2 == 0)).collect();
        let kept = (0..3000).step_by(2);
        let few = Rows::new(
            3,
            kept.clone()
                .flat_map(|i| rows.values[3 * i..3 * i + 3].to_vec())
                .collect(),
            kept.map(|i| rows.outcomes[i]).collect(),
        );
        let all = rows.fit(&half, 1.0, vec![0.0; 3], 20);
        let few = few.fit(&[1.0; 1500], 1.0, vec![0.0; 3], 20);
        for (a, b) in std::iter::zip(all, few) {
            assert!((a - b).abs() < 1e-3, "{a} {b}");
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let rows = drawn(5000);
        let fit = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let fit = || rows.fit(&vec![0.7; 5000], 10.0, vec![0.0; 3], 12);
            pool.build().unwrap().install(fit)
        };
        assert_eq!(fit(1), fit(3));
    }

    #[test]
    fn separable_outcomes_stay_finite() {
        let rows = Rows::new(2, vec![-1.0, 1.0, 1.0, 1.0], vec![0.0, 1.0]);
        let beta = rows.fit(&[1.0; 2], 1.0, vec![0.0; 2], 50);
        assert!(beta.iter().all(|b| b.is_finite()), "{beta:?}");
    }

    #[test]
    fn a_matrix_that_is_not_positive_is_not_solved() {
        assert_eq!(solve(vec![0.0], vec![1.0]), None);
        assert_eq!(solve(vec![4.0], vec![2.0]), Some(vec![0.5]));
    }
}
