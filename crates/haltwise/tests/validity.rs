//! The guarantee, checked where the truth is known: calibrate thousands of
//! times and count how often the promise is broken.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::plan::*;
use haltwise::rule::*;
use haltwise::simulate::Process;
use haltwise::stats::*;
use haltwise::traces::*;
use haltwise::{Inputs, Plan};
use rayon::prelude::*;

/// The tests here fail by chance with at most this probability each.
const LEVEL: f64 = 1e-6;

/// Calibrations per process and method.
const DRAWS: u64 = 4_000;

/// Sequences in a screening and in a certifying set.
const SEQUENCES: usize = 300;

fn plan(method: Method) -> Plan {
    Plan::new(Ask {
        method: Some(method),
        // Larger than usual, so that thousands of draws can tell δ from 2δ.
        delta: Some(0.05),
        grid_step: Some(0.05),
        screen: method == Method::Conditional,
        ..Ask::default()
    })
    .unwrap()
}

type Found = fn(&Traces, &Traces) -> Rule;

fn found(method: Method, given: Inputs<'_, Traces>) -> Rule {
    plan(method).calibrate(given).unwrap().rule
}

fn conditional(screening: &Traces, certifying: &Traces) -> Rule {
    let given = Inputs::one(certifying).screen(screening);
    found(Method::Conditional, given)
}

fn marginal(_: &Traces, certifying: &Traces) -> Rule {
    found(Method::Marginal, Inputs::one(certifying))
}

fn screen_only(screening: &Traces, _: &Traces) -> Rule {
    found(Method::ScreenOnly, Inputs::one(screening))
}

/// How many of the draws give a rule that breaks the promise in truth.
fn violations(process: &Process, method: Found, promise: Promise) -> u64 {
    let alpha = Alpha::default();
    let violated = |draw: u64| {
        let screening = process.draw(SEQUENCES, 2 * draw);
        let certifying = process.draw(SEQUENCES, 2 * draw + 1);
        let rule = method(&screening, &certifying);
        u64::from(process.violates(rule.thresholds(), promise, alpha))
    };
    (0..DRAWS).into_par_iter().map(violated).sum()
}

/// Whether this many violations are more than δ explains: P(Bin(draws, δ) ≥
/// violations) below the level.
fn too_many(violations: u64, draws: u64, delta: Delta) -> bool {
    violations > 0 && 1.0 - binomial_tail(violations - 1, draws, delta.get()) < LEVEL
}

#[test]
fn the_bound_itself_has_teeth() {
    let delta = plan(Method::Marginal).delta();
    assert!(!too_many((DRAWS as f64 * delta.get()) as u64, DRAWS, delta));
    assert!(too_many(
        (DRAWS as f64 * 1.4 * delta.get()) as u64,
        DRAWS,
        delta
    ));
}

#[test]
fn promises_are_broken_no_more_often_than_delta() {
    let delta = plan(Method::Marginal).delta();
    for process in Process::hard_cases(Alpha::default()) {
        for (name, method, promise) in [
            ("marginal", marginal as Found, Promise::Marginal),
            ("conditional", conditional, Promise::Conditional),
        ] {
            let count = violations(&process, method, promise);
            println!("{}: {name} violates in {count} of {DRAWS}", process.name());
            assert!(
                !too_many(count, DRAWS, delta),
                "{}: {name} violates in {count} of {DRAWS} draws",
                process.name()
            );
        }
    }
}

/// Without certifying, or judged by a promise it does not make, a rule is
/// caught: so the test above can fail.
#[test]
fn what_promises_less_is_caught() {
    let delta = plan(Method::Marginal).delta();
    let cases = Process::hard_cases(Alpha::default());
    let named = |name: &str| cases.iter().find(|p| p.name().contains(name)).unwrap();
    for (process, method) in [
        (named("just above"), screen_only as Found),
        (named("one step only"), screen_only),
        (named("few halt early"), screen_only),
        (named("ties"), screen_only),
        (named("few halt early"), marginal),
        (named("one step only"), marginal),
    ] {
        let count = violations(process, method, Promise::Conditional);
        println!("{}: {count} of {DRAWS}", process.name());
        assert!(too_many(count, DRAWS, delta), "{}: {count}", process.name());
    }
}
