//! Adam, as PyTorch computes it.

use crate::shape::Shape;
use fearless_simd::{Level, dispatch, prelude::*};
use std::ops::Range;

const BETA_1: f32 = 0.9;
const BETA_2: f32 = 0.999;
const EPSILON: f32 = 1e-8;

/// The optimiser's memory.
#[derive(Clone, Debug)]
pub(crate) struct Adam {
    level: Level,
    /// The running mean of the gradients.
    pub(crate) first: Vec<f32>,
    /// The running mean of their squares.
    pub(crate) second: Vec<f32>,
    /// How many steps were made.
    pub(crate) steps: u64,
    /// The parameters that replace two of PyTorch's.
    merged: Vec<Range<usize>>,
}

impl Adam {
    pub(crate) fn new(shape: &Shape) -> Self {
        let tensors = shape.tensors();
        Adam {
            level: Level::new(),
            first: vec![0.0; shape.parameters()],
            second: vec![0.0; shape.parameters()],
            steps: 0,
            merged: tensors
                .iter()
                .filter(|t| t.merged)
                .map(|t| t.range())
                .collect(),
        }
    }

    /// Moves `parameters` against `gradients`.
    pub(crate) fn step(&mut self, parameters: &mut [f32], gradients: &[f32], rate: f64) {
        self.steps += 1;
        let (rate, scale) = corrected(rate, self.steps);
        let mut start = 0;
        for range in self
            .merged
            .iter()
            .chain([&(gradients.len()..gradients.len())])
        {
            for (range, rate) in [(start..range.start, rate), (range.clone(), 2.0 * rate)] {
                let first = &mut self.first[range.clone()];
                let second = &mut self.second[range.clone()];
                let gradients = &gradients[range.clone()];
                let parameters = &mut parameters[range];
                dispatch!(self.level, simd =>
                    update(simd, parameters, first, second, gradients, rate, scale));
            }
            start = range.end;
        }
    }
}

/// The learning rate at step `steps`, counted from 1, and the factor of the root of the
/// second moment. They correct for moments that start at zero.
pub(crate) fn corrected(rate: f64, steps: u64) -> (f32, f32) {
    let exponent = i32::try_from(steps).unwrap_or(i32::MAX);
    let correct_1 = 1.0 - f64::from(BETA_1).powi(exponent);
    let correct_2 = 1.0 - f64::from(BETA_2).powi(exponent);
    ((rate / correct_1) as f32, (1.0 / correct_2.sqrt()) as f32)
}

#[inline(always)]
fn update<S: Simd>(
    _: S,
    parameters: &mut [f32],
    first: &mut [f32],
    second: &mut [f32],
    gradients: &[f32],
    rate: f32,
    scale: f32,
) {
    let moments = first.iter_mut().zip(second);
    for ((p, g), (m, v)) in parameters.iter_mut().zip(gradients).zip(moments) {
        *m += (1.0 - BETA_1) * (g - *m);
        *v = BETA_2 * *v + (1.0 - BETA_2) * g * g;
        *p -= rate * *m / (v.sqrt() * scale + EPSILON);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape {
            features: 2,
            hidden: 3,
            layers: 1,
            classes: 2,
            gap_head: false,
        }
    }

    #[test]
    fn the_first_step_moves_by_the_rate_and_merged_biases_by_twice_it() {
        let shape = shape();
        let mut adam = Adam::new(&shape);
        let mut parameters = vec![0.0; shape.parameters()];
        let gradients = vec![0.25; shape.parameters()];
        adam.step(&mut parameters, &gradients, 1e-3);
        for tensor in shape.tensors() {
            let rate = if tensor.merged { 2e-3 } else { 1e-3 };
            for p in &parameters[tensor.range()] {
                assert!((p + rate).abs() < 1e-8, "{} {p}", tensor.name);
            }
        }
    }

    #[test]
    fn without_a_gradient_nothing_moves() {
        let shape = shape();
        let mut adam = Adam::new(&shape);
        let mut parameters = vec![0.5; shape.parameters()];
        adam.step(&mut parameters, &vec![0.0; shape.parameters()], 1e-3);
        assert!(parameters.iter().all(|p| *p == 0.5));
    }
}
