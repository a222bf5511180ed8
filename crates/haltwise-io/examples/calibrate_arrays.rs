//! How long Rust needs from arrays in memory to a conditional rule: what
//! `python/bench/border.py` compares the wheel with.
//!
//! Arguments: a file of f32 scores, one of u32 predictions, one of u32 labels
//! (all raw), how many steps a sequence has, and how often to run. Prints the
//! milliseconds of the fastest run.

#![allow(clippy::unwrap_used)]

use std::time::Instant;

use haltwise::traces::{Key, Traces};
use haltwise::{Method, Plan, Sequence};
use haltwise_io::visit_given;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words =
        |path: &str| -> Vec<[u8; 4]> { std::fs::read(path).unwrap().as_chunks().0.to_vec() };
    let scores: Vec<f32> = words(&arguments[0])
        .into_iter()
        .map(f32::from_le_bytes)
        .collect();
    let integers =
        |path: &str| -> Vec<u32> { words(path).into_iter().map(u32::from_le_bytes).collect() };
    let (predictions, labels) = (integers(&arguments[1]), integers(&arguments[2]));
    let steps: usize = arguments[3].parse().unwrap();
    let run = || {
        let start = Instant::now();
        let mut traces = Traces::builder();
        let feed = |take: &mut haltwise_io::Take<'_>| {
            for (i, &label) in labels.iter().enumerate() {
                let row = i * steps..(i + 1) * steps;
                take(Sequence {
                    label: Some(label),
                    predictions: Some(&predictions[row.clone()]),
                    scores: Some(&scores[row]),
                    ..Sequence::default()
                })?;
            }
            Ok::<(), String>(())
        };
        let taken = visit_given(feed, &mut |trace| {
            let key = Key::new(None, traces.len() as u64);
            let added = traces.add(key, trace).map_err(|e| e.to_string());
            added.map(|_print| ())
        });
        taken.unwrap();
        let (screening, certifying) = traces.finish().split(0.5, 0);
        let rule = Plan::of(Method::Conditional).rule(&screening, &certifying);
        assert!(rule.unwrap().t_max() == steps);
        start.elapsed()
    };
    let runs: usize = arguments[4].parse().unwrap();
    let smallest = (0..runs).map(|_| run()).min().unwrap();
    println!("{:.3}", smallest.as_secs_f64() * 1e3);
}
