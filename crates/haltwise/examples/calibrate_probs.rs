//! Measures how long Rust needs from arrays in memory to a rule;
//! `web/npm/bench/calibrate.js` compares WebAssembly with it.
//!
//! Arguments: a file of f32 probabilities, a file of u32 labels (both raw), the number of
//! steps of a sequence, the number of classes, and the method. Prints milliseconds; reading
//! the arrays is not measured.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use haltwise::plan::Word;
use haltwise::{Inputs, Method, Outputs, Plan, Sequence};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words =
        |path: &str| -> Vec<[u8; 4]> { std::fs::read(path).unwrap().as_chunks().0.to_vec() };
    let probs = words(&arguments[0]).into_iter().map(f32::from_le_bytes);
    let probs: Vec<f32> = probs.collect();
    let labels = words(&arguments[1]).into_iter().map(u32::from_le_bytes);
    let number = |i: usize| -> usize { arguments[i].parse().unwrap() };
    let (steps, classes) = (number(2), number(3));
    let mut outputs = Outputs::new();
    for (label, probs) in labels.zip(probs.chunks_exact(steps * classes)) {
        let sequence = Sequence {
            label: Some(label),
            probs: Some((probs, classes)),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let plan = Plan::of(Method::of(&arguments[4]).unwrap());
    let start = Instant::now();
    let found = plan.calibrate(Inputs::one(&outputs));
    let taken = start.elapsed();
    assert_eq!(found.unwrap().rule.t_max(), steps);
    println!("{:.3}", taken.as_secs_f64() * 1e3);
}
