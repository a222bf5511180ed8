//! The guarantee, checked where the truth is known: calibrate thousands of
//! times and count how often the promise is broken.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::simulate::Process;
use haltwise::*;
use rayon::prelude::*;

/// The tests here fail by chance with at most this probability each.
const LEVEL: f64 = 1e-6;

/// Calibrations per process and method.
const DRAWS: u64 = 4_000;

/// Sequences in a screening and in a certifying set.
const SEQUENCES: usize = 300;

fn calibration() -> Calibration {
    Calibration {
        alpha: 0.1.try_into().unwrap(),
        // Larger than usual, so that thousands of draws can tell δ from 2δ.
        delta: 0.05.try_into().unwrap(),
        grid: Grid::new(0.05).unwrap(),
        ..Calibration::default()
    }
}

type Method = fn(&Calibration, Screening, Certifying) -> Rule;

fn conditional(c: &Calibration, screening: Screening, certifying: Certifying) -> Rule {
    c.conditional(&screening, &certifying).unwrap()
}

fn marginal(c: &Calibration, _: Screening, certifying: Certifying) -> Rule {
    c.marginal(&certifying).unwrap()
}

fn screen_only(c: &Calibration, screening: Screening, _: Certifying) -> Rule {
    c.screen_only(&screening).unwrap()
}

/// How many of the draws give a rule that breaks the promise in truth.
fn violations(process: &Process, method: Method, promise: Promise) -> u64 {
    let c = calibration();
    let violated = |draw: u64| {
        let screening = Screening::new(process.draw(SEQUENCES, 2 * draw));
        let certifying = Certifying::new(process.draw(SEQUENCES, 2 * draw + 1));
        let rule = method(&c, screening, certifying);
        u64::from(process.violates(rule.thresholds(), promise, c.alpha))
    };
    (0..DRAWS).into_par_iter().map(violated).sum()
}

/// Whether so many violations are more than δ explains: P(Bin(draws, δ) ≥
/// violations) below the level.
fn too_many(violations: u64, draws: u64, delta: Delta) -> bool {
    violations > 0 && 1.0 - binomial_tail(violations - 1, draws, delta.get()) < LEVEL
}

#[test]
fn the_bound_itself_has_teeth() {
    let delta = calibration().delta;
    assert!(!too_many((DRAWS as f64 * delta.get()) as u64, DRAWS, delta));
    assert!(too_many(
        (DRAWS as f64 * 1.4 * delta.get()) as u64,
        DRAWS,
        delta
    ));
}

#[test]
fn promises_are_broken_no_more_often_than_delta() {
    let c = calibration();
    for process in Process::hard_cases(c.alpha) {
        for (name, method, promise) in [
            ("marginal", marginal as Method, Promise::Marginal),
            ("conditional", conditional, Promise::Conditional),
        ] {
            let count = violations(&process, method, promise);
            println!("{}: {name} violates in {count} of {DRAWS}", process.name());
            assert!(
                !too_many(count, DRAWS, c.delta),
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
    let c = calibration();
    let cases = Process::hard_cases(c.alpha);
    let named = |name: &str| cases.iter().find(|p| p.name().contains(name)).unwrap();
    for (process, method) in [
        (named("just above"), screen_only as Method),
        (named("one step only"), screen_only),
        (named("few halt early"), screen_only),
        (named("ties"), screen_only),
        (named("few halt early"), marginal),
        (named("one step only"), marginal),
    ] {
        let count = violations(process, method, Promise::Conditional);
        println!("{}: {count} of {DRAWS}", process.name());
        assert!(
            too_many(count, DRAWS, c.delta),
            "{}: {count}",
            process.name()
        );
    }
}
