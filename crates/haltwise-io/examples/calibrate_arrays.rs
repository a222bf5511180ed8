//! Measures how long Rust needs from arrays in memory to a conditional rule;
//! `python/bench/border.py` compares the wheel with it.
//!
//! Arguments: a file of f32 scores, a file of u32 predictions, a file of u32 labels (all
//! raw), the number of steps of a sequence, and the number of runs. Prints the milliseconds
//! of the fastest run.

#![allow(clippy::unwrap_used)]

use std::ops::Range;
use std::time::Instant;

use haltwise::corridor::{CalibrateError, Fold};
use haltwise::traces::{Key, Trace};
use haltwise::{Inputs, Method, Plan, Sequence};
use haltwise_io::{Take, fold_given};

struct Arrays {
    scores: Vec<f32>,
    predictions: Vec<u32>,
    labels: Vec<u32>,
    steps: usize,
}

impl Fold for Arrays {
    type Error = String;

    fn refuse(&self, error: CalibrateError) -> String {
        error.to_string()
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, String> {
        let feed = |rows: Range<usize>, take: &mut Take<'_>| {
            for i in rows {
                let row = i * self.steps..(i + 1) * self.steps;
                take(Sequence {
                    label: Some(self.labels[i]),
                    predictions: Some(&self.predictions[row.clone()]),
                    scores: Some(&self.scores[row]),
                    ..Sequence::default()
                })?;
            }
            Ok(())
        };
        let visit = |state: &mut S, position, trace: &Trace<'_>| {
            visit(state, Key::new(None, position), trace).map_err(|e| e.to_string())
        };
        fold_given(self.labels.len(), &mut || Ok(()), start, feed, visit)
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words =
        |path: &str| -> Vec<[u8; 4]> { std::fs::read(path).unwrap().as_chunks().0.to_vec() };
    let floats = words(&arguments[0]).into_iter().map(f32::from_le_bytes);
    let integers =
        |path: &str| -> Vec<u32> { words(path).into_iter().map(u32::from_le_bytes).collect() };
    let arrays = Arrays {
        scores: floats.collect(),
        predictions: integers(&arguments[1]),
        labels: integers(&arguments[2]),
        steps: arguments[3].parse().unwrap(),
    };
    let run = || {
        let start = Instant::now();
        let found = Plan::of(Method::Conditional).calibrate(Inputs::one(&arrays));
        assert!(found.unwrap().rule.t_max() == arrays.steps);
        start.elapsed()
    };
    let runs: usize = arguments[4].parse().unwrap();
    let smallest = (0..runs).map(|_| run()).min().unwrap();
    println!("{:.3}", smallest.as_secs_f64() * 1e3);
}
