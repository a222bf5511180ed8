//! Evaluations of simulated traces, the same on every machine.

// Every test file uses its own part of this.
#![allow(dead_code)]

use haltwise::simulate::{Atom, Process};
use haltwise::{Calibration, Certifying, Evaluation, Rule, Screening, evaluate};
use haltwise_report::Compared;

/// A classifier that grows surer as it reads: later steps have higher scores,
/// and high scores are safer. The first steps are over-confident.
pub(crate) fn process(t_max: usize) -> Process {
    let step = |t: usize| {
        let progress = t as f64 / t_max as f64;
        let rash = if t < t_max / 4 { 0.25 } else { 0.0 };
        (1..=20)
            .map(|k| {
                let score = f64::from(k) / 20.0;
                let centre = 0.3 + 0.6 * progress;
                let weight = (-((score - centre) / 0.16).powi(2)).exp();
                let gap = (1.0 - score).powi(2) * (1.0 - 0.7 * progress) + rash * score;
                Atom::new(score as f32, weight, gap.min(0.85)).unwrap()
            })
            .collect()
    };
    Process::new("growing surer", (0..t_max).map(step).collect())
}

/// The three methods on the same traces: their names, rules and evaluations.
pub(crate) fn methods(t_max: usize, n: usize, seed: u64) -> Vec<Compared> {
    let process = process(t_max);
    let calibration = Calibration::default();
    let screening = Screening::new(process.draw(n, 3 * seed + 1));
    let certifying = Certifying::new(process.draw(n, 3 * seed + 2));
    let test = process.draw(n, 3 * seed + 3);
    let compared = |name: &str, rule: Rule| {
        let evaluation = evaluate(rule.thresholds(), &test).unwrap();
        Compared::new(name, rule, evaluation)
    };
    vec![
        compared(
            "conditional",
            calibration.conditional(&screening, &certifying).unwrap(),
        ),
        compared("marginal", calibration.marginal(&certifying).unwrap()),
        compared(
            "screened only",
            calibration.screen_only(&screening).unwrap(),
        ),
    ]
}

/// A conditional rule and its evaluation.
pub(crate) fn conditional(t_max: usize, n: usize, seed: u64) -> (Rule, Evaluation) {
    let first = methods(t_max, n, seed).swap_remove(0);
    (first.rule, first.evaluation)
}
