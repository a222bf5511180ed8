//! Rules whose score and candidates are fitted to what the prefix classifier says about its own
//! training series, each left out (`docs/validity.md`, "Fitting to the training series"). The whole
//! way is simulated: a new model, a new rule and new series each time.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;

use haltwise::evaluate::Evaluator;
use haltwise::plan::{Ask, Plan};
use haltwise::rule::Promise;
use haltwise::stats::binomial_tail;
use haltwise::traces::{Checker, Key};
use haltwise::{Inputs, Outputs, Rule, Sequence};
use haltwise_prefix::{Answers, FitOptions, Fitted, Series, fit};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use rayon::prelude::*;

const POINTS: usize = 6;
const ALPHA: f64 = 0.1;
const DELTA: f64 = 0.1;
const DEPLOYMENTS: u64 = 400;
const NEW: usize = 3_000;

/// Series of two classes that drift apart, slowly beside the noise.
fn draw(n: usize, rng: &mut Xoshiro256PlusPlus) -> (Vec<f32>, Vec<u32>) {
    let labels: Vec<u32> = (0..n).map(|_| rng.random_range(0..2)).collect();
    let mut values = Vec::with_capacity(n * POINTS);
    for &label in &labels {
        let drift = if label == 0 { -0.35 } else { 0.35 };
        values.extend((0..POINTS).map(|_| {
            let noise: f32 = (0..4).map(|_| rng.random::<f32>() - 0.5).sum();
            drift + noise * 1.7
        }));
    }
    (values, labels)
}

/// What the model says about each series, with its label.
fn each(answers: &Answers, labels: &[u32], mut take: impl FnMut(Sequence<'_>)) {
    for (i, &label) in labels.iter().enumerate() {
        let probs: Vec<f32> = (0..answers.reached(i))
            .flat_map(|checkpoint| answers.at(i, checkpoint).iter().copied())
            .collect();
        take(Sequence {
            label: Some(label),
            probs: Some((&probs, answers.classes())),
            ..Sequence::default()
        });
    }
}

fn outputs(answers: &Answers, labels: &[u32]) -> Outputs {
    let mut all = Outputs::new();
    each(answers, labels, |sequence| all.push(sequence).unwrap());
    all
}

fn gap_on(rule: &Rule, answers: &Answers, labels: &[u32]) -> f64 {
    let (mut evaluator, mut checker) = (Evaluator::for_rule(rule), Checker::new());
    let mut position = 0;
    each(answers, labels, |sequence| {
        let trace = checker.check(sequence).unwrap();
        evaluator.push(Key::new(None, position), &trace).unwrap();
        position += 1;
    });
    evaluator.finish().unwrap().gap
}

/// The gap, on new series, of a rule for a new model. The series that certify are the training
/// series themselves, or new ones.
fn gap(seed: u64, certify_on_training: bool) -> f64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (values, labels) = draw(60, &mut rng);
    let series = Series::new(&values, POINTS, 1).unwrap();
    let classes = vec!["down".to_string(), "up".to_string()];
    let options = FitOptions {
        trees: 10,
        seed,
        ..FitOptions::default()
    };
    let Fitted {
        model,
        out_of_sample,
        ..
    } = fit(&series, &labels, classes, &options, |_| {
        ControlFlow::Continue(())
    })
    .unwrap();
    let said = |values: &[f32]| {
        let series = Series::new(values, POINTS, 1).unwrap();
        model.answers(&series).unwrap()
    };
    let fitting = outputs(&out_of_sample, &labels);
    let (certifying, new) = (draw(150, &mut rng), draw(NEW, &mut rng));
    let certifying = if certify_on_training {
        outputs(&said(&values), &labels)
    } else {
        outputs(&said(&certifying.0), &certifying.1)
    };
    let plan = Plan::new(Ask {
        alpha: Some(ALPHA),
        delta: Some(DELTA),
        promise: Some(Promise::Marginal),
        ..Ask::default()
    })
    .unwrap();
    let inputs = Inputs {
        fit: Some(&fitting),
        ..Inputs::one(&certifying)
    };
    let rule = plan.calibrate(inputs).unwrap().rule;
    gap_on(&rule, &said(&new.0), &new.1)
}

/// How many deployments lose more than alpha, beyond what 3,000 new series can mistake: if the
/// promise holds, a deployment is counted with a probability of at most 0.2% more than delta.
/// Beside it, how many lose anything: the others stop too late to test the promise.
fn broken(certify_on_training: bool) -> (u64, u64) {
    let margin = 3.0 * (ALPHA * (1.0 - ALPHA) / NEW as f64).sqrt();
    let deployments = (0..DEPLOYMENTS).into_par_iter();
    let gaps: Vec<f64> = deployments
        .map(|seed| gap(seed, certify_on_training))
        .collect();
    let above = |limit: f64| gaps.iter().filter(|&&gap| gap > limit).count() as u64;
    (above(ALPHA + margin), above(0.01))
}

/// The chance of this many broken promises, or more, if each breaks with probability delta.
fn chance(broken: u64) -> f64 {
    binomial_tail(DEPLOYMENTS - broken, DEPLOYMENTS, 1.0 - DELTA - 0.002)
}

#[test]
fn a_rule_fitted_to_the_training_series_keeps_its_promise() {
    let (broken, lossy) = broken(false);
    assert!(lossy > DEPLOYMENTS / 2, "{lossy} of {DEPLOYMENTS}");
    assert!(chance(broken) > 1e-6, "{broken} of {DEPLOYMENTS}");
}

#[test]
fn a_rule_certified_on_the_training_series_is_caught() {
    let (broken, _) = broken(true);
    assert!(chance(broken) < 1e-6, "{broken} of {DEPLOYMENTS}");
}
