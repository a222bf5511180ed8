//! Ridge regression onto the classes, with leave-one-out answers in closed form.

use crate::linear::{Cholesky, gram, product};
use ndarray::{Array1, Array2, Axis};

/// Linear scores: `features · weights + intercept`, one column per class.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ridge {
    pub(crate) weights: Array2<f32>,
    pub(crate) intercept: Array1<f32>,
}

/// A fit, and what it says about its own rows.
pub(crate) struct RidgeFit {
    pub(crate) ridge: Ridge,
    /// What it says about each of its rows when that row is left out.
    pub(crate) left_out: Array2<f32>,
    /// The exponent of the penalty, for the next fit to begin at.
    pub(crate) penalty: i32,
}

/// Half decades: penalty 3 is 10^1.5.
const PENALTIES: std::ops::RangeInclusive<i32> = -2..=12;

/// Added to each feature's deviation. A share that is almost always 0 would otherwise count
/// for much where it is not.
const LEAST_DEVIATION: f32 = 1e-2;

impl Ridge {
    /// Fits the rows of `z`. The penalty is looked for downhill from `start`: the loss is
    /// nearly convex in its logarithm.
    pub(crate) fn fit(mut z: Array2<f32>, labels: &[u32], classes: usize, start: i32) -> RidgeFit {
        let (mean, scale) = standardise(&mut z);
        let mut y = Array2::<f32>::zeros((z.nrows(), classes));
        for (mut row, &label) in y.rows_mut().into_iter().zip(labels) {
            row[label as usize] = 1.0;
        }
        let centre = y.sum_axis(Axis(0)) / z.nrows() as f32;
        y -= &centre;

        let problem = Problem::new(z, y);
        let mut best: Option<(i32, Solution)> = None;
        let mut tried = Vec::new();
        let mut ahead = vec![start];
        while let Some(penalty) = ahead.pop() {
            if tried.contains(&penalty) || !PENALTIES.contains(&penalty) {
                continue;
            }
            tried.push(penalty);
            let found = problem.solve(penalty);
            match (found, &best) {
                (Some(found), Some((_, least))) if found.loss >= least.loss => {}
                (Some(found), _) => {
                    best = Some((penalty, found));
                    ahead.extend([penalty - 1, penalty + 1]);
                }
                // Not positive definite to rounding: only a larger penalty helps.
                (None, Some(_)) => {}
                (None, None) => ahead.push(penalty + 1),
            }
        }
        let Some((penalty, solution)) = best else {
            // Not even the largest penalty helps: say how common the classes are.
            let weights = Array2::zeros((problem.z.ncols(), classes));
            let left_out = Array2::zeros(problem.y.dim()) + &centre;
            let ridge = Ridge {
                weights,
                intercept: centre,
            };
            return RidgeFit {
                ridge,
                left_out,
                penalty: start,
            };
        };
        let left_out = problem.left_out(&solution) + &centre;
        let mut weights = problem.weights(solution);
        for (mut row, s) in weights.rows_mut().into_iter().zip(&scale) {
            row *= *s;
        }
        let intercept = &centre - &mean.dot(&weights);
        let ridge = Ridge { weights, intercept };
        RidgeFit {
            ridge,
            left_out,
            penalty,
        }
    }

    /// Adds the scores of one row of features to `scores`, in the order of the features.
    pub(crate) fn score(&self, features: &[f32], scores: &mut [f32]) {
        scores.copy_from_slice(self.intercept.as_slice().unwrap_or(&[]));
        let weights = self.weights.as_slice().unwrap_or(&[]);
        for (x, row) in features.iter().zip(weights.chunks_exact(scores.len())) {
            if *x != 0.0 {
                for (score, w) in scores.iter_mut().zip(row) {
                    *score += x * w;
                }
            }
        }
    }
}

/// Brings each column to mean 0 and deviation 1; returns the means and one over the
/// deviations.
fn standardise(z: &mut Array2<f32>) -> (Array1<f32>, Array1<f32>) {
    let n = z.nrows() as f64;
    let mut mean = Array1::<f64>::zeros(z.ncols());
    for row in z.rows() {
        mean.zip_mut_with(&row, |sum, x| *sum += f64::from(*x));
    }
    let mean = mean.mapv(|sum| (sum / n) as f32);
    *z -= &mean;
    let mut variance = Array1::<f64>::zeros(z.ncols());
    for row in z.rows() {
        variance.zip_mut_with(&row, |sum, x| *sum += f64::from(*x) * f64::from(*x));
    }
    let scale = variance.mapv(|sum| ((sum / n).sqrt() as f32 + LEAST_DEVIATION).recip());
    *z *= &scale;
    (mean, scale)
}

/// Standardised features and centred targets.
struct Problem {
    z: Array2<f32>,
    y: Array2<f32>,
    /// Zᵀ·Z or Z·Zᵀ, whichever is smaller; only the lower triangle.
    gram: Array2<f32>,
    /// Zᵀ·Y, if there are fewer features than rows.
    target: Option<Array2<f32>>,
}

struct Solution {
    loss: f64,
    cholesky: Cholesky,
    /// The weights if there are fewer features than rows; else what multiplies Zᵀ.
    coefficients: Array2<f32>,
    fitted: Array2<f32>,
    /// What each row adds to its own fitted value, if known at this stage.
    leverages: Option<Vec<f32>>,
}

impl Problem {
    fn new(z: Array2<f32>, y: Array2<f32>) -> Self {
        let narrow = z.ncols() < z.nrows();
        Problem {
            gram: gram(if narrow { z.t() } else { z.view() }),
            target: narrow.then(|| product(z.t(), &y)),
            z,
            y,
        }
    }

    /// The fit at a penalty, judged by the squared error of the leave-one-out answers. If
    /// there are fewer features than rows, all rows count with the mean leverage (generalised
    /// cross-validation): the leverage of each would take as long as all the rest.
    fn solve(&self, penalty: i32) -> Option<Solution> {
        let n = self.z.nrows();
        let penalty = libm::pow(10.0, f64::from(penalty) / 2.0) as f32;
        let mut a = self.gram.clone();
        a.diag_mut().mapv_inplace(|d| d + penalty);
        let cholesky = Cholesky::of(a)?;
        let diagonal = cholesky.inverse_diagonal();
        let shrunk = diagonal.iter().map(|d| 1.0 - penalty * d);
        let (coefficients, fitted, leverages, all);
        match &self.target {
            Some(target) => {
                coefficients = cholesky.solve(target.clone());
                fitted = product(self.z.view(), &coefficients);
                let mean = shrunk.map(f64::from).sum::<f64>() / n as f64;
                (leverages, all) = (None, vec![mean as f32; n]);
            }
            None => {
                coefficients = cholesky.solve(self.y.clone());
                fitted = &self.y - &(&coefficients * penalty);
                all = shrunk.collect::<Vec<f32>>();
                leverages = Some(all.clone());
            }
        }
        let residuals = self.residuals(&fitted, &all);
        let loss = residuals
            .iter()
            .map(|r| f64::from(*r) * f64::from(*r))
            .sum();
        Some(Solution {
            loss,
            cholesky,
            coefficients,
            fitted,
            leverages,
        })
    }

    /// Leave-one-out errors. The intercept is free: it has a leverage of 1/n of its own.
    fn residuals(&self, fitted: &Array2<f32>, leverages: &[f32]) -> Array2<f32> {
        let mut residuals = &self.y - fitted;
        let own = 1.0 / self.z.nrows() as f32;
        for (mut row, h) in residuals.rows_mut().into_iter().zip(leverages) {
            row /= (1.0 - h - own).max(1e-4);
        }
        residuals
    }

    /// Leave-one-out answers, less the centre.
    fn left_out(&self, solution: &Solution) -> Array2<f32> {
        let residuals = match &solution.leverages {
            Some(leverages) => self.residuals(&solution.fitted, leverages),
            None => {
                let leverages = solution.cholesky.leverages(self.z.view());
                self.residuals(&solution.fitted, &leverages)
            }
        };
        &self.y - &residuals
    }

    fn weights(&self, solution: Solution) -> Array2<f32> {
        match self.target {
            Some(_) => solution.coefficients,
            None => product(self.z.t(), &solution.coefficients),
        }
    }
}
