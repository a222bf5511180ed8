//! Calibrating, the way that users take, beside the least it could cost: going once through the
//! scores and once through the predictions, on the same threads.
//!
//!     make bench
#![allow(clippy::unwrap_used, clippy::expect_used)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use haltwise::evaluate::*;
use haltwise::plan::*;
use haltwise::score::*;
use haltwise::stats::*;
use haltwise::terms::Loss;
use haltwise::traces::*;
use haltwise::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

const SEQUENCES: usize = 1_000_000;
const STEPS: usize = 100;

/// Sequences whose score wanders upwards, and whose predictions are right as
/// often as the score says, more or less.
fn sequence(rng: &mut Xoshiro256PlusPlus, scores: &mut [f32], right: &mut [bool]) {
    let mut score = 0.2 + 0.3 * rng.random::<f32>();
    let pace = 0.03 * rng.random::<f32>();
    for (score_at, right_at) in std::iter::zip(scores, right) {
        score = (score + pace * (rng.random::<f32>() - 0.2)).clamp(0.0, 0.999);
        *score_at = score;
        *right_at = rng.random::<f32>() < 0.7 + 0.3 * score;
    }
}

fn generate(n: usize, seed: u64) -> Traces {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut traces = Traces::builder();
    let (mut scores, mut right) = (vec![0.0; STEPS], vec![false; STEPS]);
    for _ in 0..n {
        sequence(&mut rng, &mut scores, &mut right);
        traces.push(None, &true, &right, &scores).expect("sound");
    }
    traces.finish()
}

fn large(c: &mut Criterion) {
    let mut group = c.benchmark_group("1,000,000 x 100");
    group.sample_size(10);
    let matrix: Vec<f32> = vec![0.5; SEQUENCES * STEPS];
    group.bench_function("sum of the scores", |b| {
        b.iter(|| -> f32 { matrix.par_chunks(1 << 16).map(sum).sum() })
    });
    drop(matrix);
    let predictions: Vec<u32> = vec![1; SEQUENCES * STEPS];
    group.bench_function("compare the predictions", |b| {
        let right = |chunk: &[u32]| chunk.iter().map(|&p| u32::from(p == 1)).sum::<u32>();
        b.iter(|| -> u32 { predictions.par_chunks(1 << 16).map(right).sum() })
    });
    drop(predictions);
    let outputs = said(SEQUENCES, 1);
    for method in [Method::ScreenOnly, Method::Marginal, Method::Conditional] {
        let plan = Plan::of(method);
        group.bench_function(format!("{method:?}"), |b| {
            b.iter(|| plan.calibrate(Inputs::one(&outputs)))
        });
    }
    let plan = Plan::of(Method::Conditional);
    let rule = plan.calibrate(Inputs::one(&outputs)).expect("sound").rule;
    drop(outputs);
    let other = generate(SEQUENCES / 2, 3);
    group.bench_function("evaluate thresholds (half the traces)", |b| {
        b.iter(|| evaluate(rule.thresholds(), &other))
    });
    group.finish();
}

/// The same sequences with predictions of classes.
fn said(n: usize, seed: u64) -> Outputs {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut outputs = Outputs::new();
    let (mut scores, mut right) = (vec![0.0; STEPS], vec![false; STEPS]);
    for _ in 0..n {
        sequence(&mut rng, &mut scores, &mut right);
        let predictions: Vec<u32> = right.iter().map(|&right| u32::from(right)).collect();
        let sequence = Sequence {
            label: Some(1),
            predictions: Some(&predictions),
            scores: Some(&scores),
            ..Sequence::default()
        };
        outputs.push(sequence).expect("sound");
    }
    outputs
}

/// A sum that vectorises: sixteen running sums.
fn sum(values: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 16];
    for chunk in values.chunks_exact(16) {
        for (sum, value) in std::iter::zip(&mut sums, chunk) {
            *sum += value;
        }
    }
    sums.iter().sum()
}

fn observe(c: &mut Criterion) {
    let plan = Plan::of(Method::Conditional);
    let found = plan.calibrate(Inputs::one(&generate(10_000, 3)));
    let rule = found.expect("sound").rule;
    let scores: Vec<Score> = generate(1, 4).scores(0).expect("one")[..]
        .iter()
        .map(|&s| s.try_into().expect("in range"))
        .collect();
    c.bench_function("observe, 100 steps", |b| {
        b.iter_batched(
            State::new,
            |mut state| {
                scores
                    .iter()
                    .filter(|&&s| rule.observe_score(&mut state, s) != Decision::Continue)
                    .count()
            },
            BatchSize::SmallInput,
        )
    });
}

/// Traces with class probabilities, in the shape of ElectricDevices.
fn generate_outputs(n: usize, seed: u64) -> Outputs {
    const CLASSES: u32 = 7;
    const STEPS: usize = 96;
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut outputs = Outputs::new();
    let (mut scores, mut right) = (vec![0.0; STEPS], vec![false; STEPS]);
    for _ in 0..n {
        sequence(&mut rng, &mut scores, &mut right);
        let label = rng.random_range(0..CLASSES);
        let wrong = (label + 1) % CLASSES;
        let class = |&right: &bool| if right { label } else { wrong };
        let predictions: Vec<u32> = right.iter().map(class).collect();
        let mut probs = Vec::new();
        for (&class, &score) in std::iter::zip(&predictions, &scores) {
            let top = 1.0 / CLASSES as f32 + (1.0 - 1.0 / CLASSES as f32) * score;
            let rest = (1.0 - top) / (CLASSES - 1) as f32;
            probs.extend((0..CLASSES).map(|k| if k == class { top } else { rest }));
        }
        let sequence = Sequence {
            label: Some(label),
            predictions: Some(&predictions),
            scores: Some(&scores),
            probs: Some((&probs, CLASSES as usize)),
            ..Sequence::default()
        };
        outputs.push(sequence).expect("sound");
    }
    outputs
}

fn adaptive(c: &mut Criterion) {
    let mut group = c.benchmark_group("adaptive, 1,664 to fit, 2,220 to certify, x 96 x 7");
    group.sample_size(10);
    let (fitting, certifying) = (generate_outputs(1_664, 5), generate_outputs(2_220, 6));
    let plan = Plan::new(Ask {
        fit: true,
        ..Ask::default()
    });
    let plan = plan.expect("sound");
    let given = || Inputs::one(&certifying).fit(&fitting);
    group.bench_function("fit and propose", |b| b.iter(|| plan.propose(given())));
    group.bench_function("fit, propose, score and certify", |b| {
        b.iter(|| plan.calibrate(given()))
    });
    group.finish();
}

/// What promises cost beside the plain one: all from sequences to a rule.
fn promises(c: &mut Criterion) {
    let mut group = c.benchmark_group("promises, 1,000,000 x 100");
    group.sample_size(10);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
    let mut outputs = Outputs::new();
    let (mut scores, mut right) = (vec![0.0; STEPS], vec![false; STEPS]);
    let sites: Vec<String> = (0..10).map(|site| site.to_string()).collect();
    for i in 0..SEQUENCES {
        sequence(&mut rng, &mut scores, &mut right);
        let predictions: Vec<u32> = right.iter().map(|&right| u32::from(right)).collect();
        let loss = |&right: &bool| if right { 0.0 } else { 0.1 * (i % 9) as f32 };
        let losses: Vec<f32> = right.iter().map(loss).collect();
        let sequence = Sequence {
            label: Some(1),
            predictions: Some(&predictions),
            scores: Some(&scores),
            losses: Some(&losses),
            about: About {
                group: Some(&sites[i % 10]),
                ..About::default()
            },
            ..Sequence::default()
        };
        outputs.push(sequence).expect("sound");
    }
    let costs = terms::Cost::Steps((1..=STEPS).map(|t| t as f64).collect());
    for (method, name, ask) in [
        (Method::Conditional, "gap", Ask::default()),
        (
            Method::Conditional,
            "disagreement",
            Ask {
                loss: Some(Loss::Disagreement),
                ..Ask::default()
            },
        ),
        (
            Method::Conditional,
            "gap by ten groups",
            Ask {
                by: Some("site".into()),
                ..Ask::default()
            },
        ),
        (
            Method::Conditional,
            "losses in [0, 1]",
            Ask {
                loss: Some(Loss::Given),
                ..Ask::default()
            },
        ),
        (Method::Adaptive, "gap", Ask::default()),
        (
            Method::Adaptive,
            "gap, at the least cost",
            Ask {
                cost: Some(costs),
                ..Ask::default()
            },
        ),
        (
            Method::Adaptive,
            "gap by ten groups",
            Ask {
                by: Some("site".into()),
                ..Ask::default()
            },
        ),
        (
            Method::Adaptive,
            "losses in [0, 1]",
            Ask {
                loss: Some(Loss::Given),
                ..Ask::default()
            },
        ),
    ] {
        let plan = Plan::new(Ask {
            method: Some(method),
            ..ask
        });
        let plan = plan.expect("sound");
        group.bench_function(format!("{method:?}, {name}"), |b| {
            b.iter(|| plan.calibrate(Inputs::one(&outputs)))
        });
    }
    group.finish();
}

fn p_value(c: &mut Criterion) {
    let mut group = c.benchmark_group("binomial tail");
    for (k, n) in [(80, 1_109), (9_800, 100_000), (99_300, 1_000_000)] {
        group.bench_function(format!("{k} of {n}"), |b| {
            b.iter(|| binomial_tail(std::hint::black_box(k), n, 0.1))
        });
    }
    group.finish();
}

criterion_group!(benches, large, adaptive, promises, observe, p_value);
criterion_main!(benches);
