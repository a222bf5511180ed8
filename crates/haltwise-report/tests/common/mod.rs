//! Evaluations of simulated traces, the same on every machine.

// Every test file uses its own part of this, and what cannot be simulated
// should fail.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

pub(crate) mod golden;
pub(crate) mod html;

use haltwise::evaluate::Evaluation;
use haltwise::simulate::{Atom, Process};
use haltwise::traces::Traces;
use haltwise::{Ask, Inputs, Method, Plan, Rule, evaluate};
use haltwise_report::Compared;

/// A classifier that grows surer as it reads: with every step more sequences
/// have a high score, and high scores are safe. The first steps are rash, and
/// near the end all is known.
pub(crate) fn process(t_max: usize) -> Process {
    let step = |t: usize| {
        let progress = (t + 1) as f64 / t_max as f64;
        let low = if progress < 0.85 { 0.7 } else { 0.03 };
        let rash = if progress <= 0.25 { 0.18 } else { 0.0 };
        let sure = (1.5 * progress).powi(2) / t_max as f64 * 2.0;
        let atom = |score, weight, gap| Atom::new(score, weight, gap).unwrap();
        vec![
            atom(0.97, sure, 0.02 + rash),
            atom(0.91, sure, 0.05 + rash),
            atom(0.82, sure, 0.08 + rash),
            atom(0.55, 1.0, low),
            atom(0.3, 1.0, low),
        ]
    };
    Process::new("growing surer", (0..t_max).map(step).collect())
}

/// The three methods on the same traces: their names, rules and evaluations.
pub(crate) fn methods(t_max: usize, n: usize, seed: u64) -> Vec<Compared> {
    let process = process(t_max);
    let screening = process.draw(n, 3 * seed + 1);
    let certifying = process.draw(n, 3 * seed + 2);
    let test = process.draw(n, 3 * seed + 3);
    let compared = |name: &str, rule: Rule| {
        let evaluation = evaluate(rule.thresholds(), &test).unwrap();
        Compared::new(name, rule, evaluation)
    };
    vec![
        compared(
            "conditional",
            conditional_rule(None, &screening, &certifying),
        ),
        compared(
            "marginal",
            rule(Plan::of(Method::Marginal), Inputs::one(&certifying)),
        ),
        compared(
            "screened only",
            rule(Plan::of(Method::ScreenOnly), Inputs::one(&screening)),
        ),
    ]
}

pub(crate) fn rule(plan: Plan, given: Inputs<'_, Traces>) -> Rule {
    plan.calibrate(given).unwrap().rule
}

pub(crate) fn conditional_rule(
    alpha: Option<f64>,
    screening: &Traces,
    certifying: &Traces,
) -> Rule {
    let plan = Plan::new(Ask {
        method: Some(Method::Conditional),
        alpha,
        screen: true,
        ..Ask::default()
    });
    rule(plan.unwrap(), Inputs::one(certifying).screen(screening))
}

/// A conditional rule and its evaluation.
pub(crate) fn conditional(t_max: usize, n: usize, seed: u64) -> (Rule, Evaluation) {
    let first = methods(t_max, n, seed).swap_remove(0);
    (first.rule, first.evaluation)
}
