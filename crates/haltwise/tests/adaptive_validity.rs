//! The guarantee of the method `adaptive`, checked where the truth is known.
//!
//! A learned score looks at the past of a sequence, so its true gaps have no
//! closed form. They have one where the population is finite: traces are drawn
//! with replacement from a fixed set, and a rule's true gaps are what it does
//! to that set.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::evaluate::*;
use haltwise::plan::*;
use haltwise::rule::*;
use haltwise::score::ScoreSource;
use haltwise::simulate::Process;
use haltwise::stats::*;
use haltwise::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

/// The tests here fail by chance with at most this probability each.
const LEVEL: f64 = 1e-6;

const DRAWS: u64 = 500;

/// Sequences to fit to and to certify on, or both before the split.
const SEQUENCES: usize = 300;

const POPULATION: usize = 2_000;

/// Larger than usual, so that hundreds of draws can tell δ from 2δ.
const DELTA: f64 = 0.05;

/// The sequences of a process, with classes: the true one and, where the
/// prediction is wrong, another one. Half of the time the classifier also
/// states class probabilities, in line with its score.
fn population(process: &Process, seed: u64, with_probs: bool) -> Outputs {
    let traces = process.draw(POPULATION, seed);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut outputs = Outputs::new();
    for i in 0..traces.len() {
        let label = rng.random_range(0..3);
        let wrong = (label + rng.random_range(1..3)) % 3;
        let right = traces.correct(i).unwrap();
        let predictions: Vec<u32> = right
            .iter()
            .map(|&right| if right { label } else { wrong })
            .collect();
        let scores = traces.scores(i).unwrap();
        let mut probs = Vec::new();
        for (&class, &score) in std::iter::zip(&predictions, &scores) {
            let rest = (1.0 - score) / 2.0;
            probs.extend((0..3).map(|k| if k == class { score } else { rest }));
        }
        let sequence = Sequence {
            id: None,
            label: Some(label),
            predictions: Some(&predictions),
            scores: Some(&scores),
            probs: with_probs.then_some((&probs, 3)),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    outputs
}

/// The sharpest case: by any step, the gap is just above α and nothing that can
/// be seen tells where, so that a rule which halts all alike breaks the promise.
fn noise(seed: u64) -> Outputs {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut outputs = Outputs::new();
    for i in 0..2_000 {
        // 201 of 2000 is the least share above 10%.
        let (label, gap) = (i % 3, i < 201);
        let early = if gap { (label + 1) % 3 } else { label };
        let mut predictions = vec![early; 5];
        predictions[4] = label;
        let scores: Vec<f32> = (0..5).map(|_| rng.random()).collect();
        let sequence = Sequence {
            label: Some(label),
            predictions: Some(&predictions),
            scores: Some(&scores),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    outputs
}

fn drawn(population: &Outputs, n: usize, rng: &mut Xoshiro256PlusPlus) -> Outputs {
    population.resample(n, rng.random())
}

type Found = fn(&Outputs, &mut Xoshiro256PlusPlus) -> Rule;

/// Fits to traces of their own.
fn apart(population: &Outputs, rng: &mut Xoshiro256PlusPlus) -> Rule {
    let fitting = drawn(population, SEQUENCES, rng);
    let certifying = drawn(population, SEQUENCES, rng);
    let plan = Plan::new(Ask {
        delta: Some(DELTA),
        score: Some(ScoreSource::Gap(())),
        fit: true,
        ..Ask::default()
    });
    let given = Inputs::one(&certifying).fit(&fitting);
    plan.unwrap().calibrate(given).unwrap().rule
}

/// Sets traces aside; the clock is tested on all.
fn split_at(delta: f64, population: &Outputs, rng: &mut Xoshiro256PlusPlus) -> Rule {
    let outputs = drawn(population, SEQUENCES, rng);
    let plan = Plan::new(Ask {
        delta: Some(delta),
        seed: Some(rng.random()),
        ..Ask::default()
    });
    let found = plan.unwrap().calibrate(Inputs::one(&outputs));
    found.unwrap().rule
}

fn split(population: &Outputs, rng: &mut Xoshiro256PlusPlus) -> Rule {
    split_at(DELTA, population, rng)
}

/// The same, certified at ten times the δ that it is judged by.
fn careless(population: &Outputs, rng: &mut Xoshiro256PlusPlus) -> Rule {
    split_at(10.0 * DELTA, population, rng)
}

/// Whether a rule breaks the conditional promise on the population.
fn violates(rule: &Rule, population: &Outputs) -> bool {
    let traces = population.traces(rule.source()).unwrap();
    // A sequence longer than any that was drawn is read to its end.
    let mut thresholds = rule.thresholds().values().to_vec();
    thresholds.resize(traces.t_max().max(thresholds.len()), f32::INFINITY);
    let found = evaluate(&Thresholds::new(thresholds).unwrap(), &traces).unwrap();
    let alpha = rule.alpha().get() + 1e-12;
    found
        .by_step
        .iter()
        .any(|s| s.gap_by.is_some_and(|gap| gap > alpha))
}

fn violations(population: &Outputs, method: Found) -> (u64, u64) {
    let one = |draw: u64| {
        let rule = method(population, &mut Xoshiro256PlusPlus::seed_from_u64(draw));
        let (violates, halts) = (violates(&rule, population), rule.halts_early());
        (u64::from(violates), u64::from(halts))
    };
    let add = |a: (u64, u64), b: (u64, u64)| (a.0 + b.0, a.1 + b.1);
    (0..DRAWS).into_par_iter().map(one).reduce(|| (0, 0), add)
}

fn too_many(violations: u64) -> bool {
    violations > 0 && 1.0 - binomial_tail(violations - 1, DRAWS, DELTA) < LEVEL
}

#[test]
fn the_promise_is_broken_no_more_often_than_delta() {
    let mut populations = vec![("nothing but noise".to_owned(), noise(9))];
    for (i, process) in Process::hard_cases(Alpha::default()).iter().enumerate() {
        let population = population(process, i as u64, i % 2 == 0);
        populations.push((process.name().to_owned(), population));
    }
    let mut halted = 0;
    for (name, population) in populations {
        for (how, method) in [("apart", apart as Found), ("split", split)] {
            let (count, halts) = violations(&population, method);
            println!("{name}, {how}: {count} of {DRAWS} violate, {halts} halt early");
            assert!(!too_many(count), "{name}, {how}: {count}");
            halted += halts;
        }
    }
    assert!(halted > 3 * DRAWS, "only {halted} rules halt at all");
}

/// A rule that is certified at a larger δ is caught: so the test above can fail.
#[test]
fn what_is_certified_carelessly_is_caught() {
    let (count, _) = violations(&noise(9), careless);
    println!("{count} of {DRAWS}");
    assert!(too_many(count), "{count}");
}
