//! Measures promises on the golden traces: what few labels are worth, how often a forecast
//! from 300 traces holds for 1,000 others, how `adaptive` compares with `conditional` if
//! few traces calibrate, and when the two promises of `adaptive` halt.
//!
//! `cargo run --release -p haltwise-io --example measure_promises -- FOLDER
//! few-labels|forecast|small|votes|large` where FOLDER has `NAME.traces.npz`, for votes
//! `Votes.traces.npz`. LABELS says how many of the labels are kept (200).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::Instant;

use haltwise::evaluate::halt_steps;
use haltwise::forecast::forecast;
use haltwise::rule::Promise;
use haltwise::terms::Loss;
use haltwise::traces::{Key, Trace};
use haltwise::{Ask, Inputs, Method, Outputs, Plan, Rule, Sequence};
use haltwise_io::{Columns, read_outputs, visit_traces};
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use rayon::prelude::*;

const NAMES: [&str; 4] = [
    "PenDigits",
    "ElectricDevices",
    "Crop",
    "WalkingSittingStanding",
];

/// With the questions about documents, whose file is `QuALITY.traces.npz`.
const LARGE: [&str; 5] = [NAMES[0], NAMES[1], NAMES[2], NAMES[3], "QuALITY"];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = Path::new(&arguments[0]);
    let names: &[&str] = match arguments[1].as_str() {
        "votes" => &["Votes"],
        "large" => &LARGE,
        _ => &NAMES,
    };
    for name in names {
        let file = folder.join(format!("{name}.traces.npz"));
        match arguments[1].as_str() {
            "few-labels" => few_labels(name, &file),
            "large" => both_promises(name, &file),
            "small" => {
                for n in [150, 300, 600] {
                    beside_conditional(name, &file, n, 0.1, 64);
                }
            }
            "votes" => {
                for alpha in [0.05, 0.1] {
                    beside_conditional(name, &file, 700, alpha, 50);
                }
            }
            _ => forecasts(name, &file),
        }
    }
}

fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    order
}

fn t_avg(rule: &Rule, test: &Outputs) -> f64 {
    let traces = test.traces(rule.source()).unwrap();
    let steps = halt_steps(rule.thresholds(), &traces).unwrap();
    let sum: u64 = steps.iter().copied().map(u64::from).sum();
    sum as f64 / steps.len() as f64 / rule.t_max() as f64
}

fn calibrated(ask: Ask, traces: &Outputs) -> Rule {
    let plan = Plan::new(ask).unwrap();
    plan.calibrate(Inputs::one(traces)).unwrap().rule
}

/// The sequences; only some of them keep their labels.
fn labelled(file: &Path, kept: &[usize], few: usize) -> (Outputs, Outputs) {
    let (mut all, mut only) = (Outputs::new(), Outputs::new());
    let mut place = vec![usize::MAX; 1 << 20];
    for (i, &at) in kept.iter().enumerate() {
        place[at] = i;
    }
    let mut position = 0;
    visit_traces(
        &[file],
        &Columns::default(),
        &mut |_, _| {},
        &mut |row: &Trace<'_>| {
            let i = place[position];
            position += 1;
            if i == usize::MAX {
                return Ok(());
            }
            let given = Sequence {
                label: row.label().filter(|_| i < few),
                ..row.given()
            };
            let mut checker = haltwise::traces::Checker::new();
            let trace = checker.check(given).map_err(|e| e.to_string())?;
            let key = Key::new(None, i as u64);
            all.add(key, &trace).map_err(|e| e.to_string())?;
            if i < few {
                only.add(key, &trace).map_err(|e| e.to_string())?;
            }
            Ok(())
        },
    )
    .unwrap();
    (all, only)
}

fn few_labels(name: &str, file: &Path) {
    let whole = read_outputs(&[file], &Columns::default(), &mut |_, _| {}).unwrap();
    let (mut sums, splits) = ([0.0; 4], 20);
    for seed in 0..splits {
        let order = shuffled(whole.len(), seed);
        let (test, kept) = order.split_at(whole.len() / 3);
        let test = whole.select(test.iter().copied());
        let few = std::env::var("LABELS").map_or(200, |n| n.parse().unwrap());
        let (mixed, only) = labelled(file, kept, few);
        let free = Ask {
            loss: Some(Loss::Disagreement),
            ..Ask::default()
        };
        let all = whole.select(kept.iter().copied());
        for (sum, rule) in std::iter::zip(
            &mut sums,
            [
                calibrated(Ask::default(), &mixed),
                calibrated(Ask::default(), &only),
                calibrated(free, &mixed),
                calibrated(Ask::default(), &all),
            ],
        ) {
            if std::env::var_os("SHOW").is_some() {
                let last = rule.trail().first();
                eprintln!(
                    "{name} {seed} {:?} {:.3} {last:?}",
                    rule.proof(),
                    t_avg(&rule, &test)
                );
            }
            *sum += t_avg(&rule, &test) / splits as f64;
        }
    }
    let [both, alone, free, all] = sums;
    println!(
        "{name}: few labels and the others {both:.3}, the few alone {alone:.3}, no labels {free:.3}, all labels {all:.3}"
    );
}

fn forecasts(name: &str, file: &Path) {
    let whole = read_outputs(&[file], &Columns::default(), &mut |_, _| {}).unwrap();
    let (mut covered, draws) = (0, 50);
    let (mut predicted, mut found) = (0.0, 0.0);
    let start = Instant::now();
    let mut spent = 0.0;
    for seed in 0..draws {
        let order = shuffled(whole.len(), seed);
        let pilot = whole.select(order[..300].iter().copied());
        let others = whole.select(order[300..1300].iter().copied());
        let plan = Plan::default();
        let before = Instant::now();
        let range = forecast(&plan, &pilot, &[1000], seed, || true).unwrap()[0].t_avg;
        spent += before.elapsed().as_secs_f64();
        let rule = calibrated(Ask::default(), &others);
        let given = rule.expected().map_or(1.0, |expected| expected.t_avg);
        covered += usize::from((range.low..=range.high).contains(&given));
        predicted += range.mean / draws as f64;
        found += given / draws as f64;
    }
    println!(
        "{name}: {covered} of {draws} covered; predicted {predicted:.3}, found {found:.3}; {:.2} s a forecast, {:.0} s in all",
        spent / draws as f64,
        start.elapsed().as_secs_f64()
    );
}

/// Compares the halt times of `adaptive` and `conditional`, calibrated on the same few
/// traces at δ = 5%.
fn beside_conditional(name: &str, file: &Path, n: usize, alpha: f64, draws: u64) {
    let whole = read_outputs(&[file], &Columns::default(), &mut |_, _| {}).unwrap();
    let start = Instant::now();
    let found: Vec<[f64; 3]> = (0..draws)
        .into_par_iter()
        .map(|seed| {
            let order = shuffled(whole.len(), seed);
            let (few, test) = order.split_at(n);
            let few = whole.select(few.iter().copied());
            let test = whole.select(test.iter().copied());
            let asked = |method| Ask {
                method: Some(method),
                alpha: Some(alpha),
                delta: Some(0.05),
                ..Ask::default()
            };
            let on_average = Ask {
                promise: Some(Promise::Marginal),
                ..asked(Method::Adaptive)
            };
            [
                asked(Method::Adaptive),
                asked(Method::Conditional),
                on_average,
            ]
            .map(|ask| t_avg(&calibrated(ask, &few), &test))
        })
        .collect();
    let mean = |i: usize| found.iter().map(|t| t[i]).sum::<f64>() / draws as f64;
    let later = found.iter().filter(|t| t[0] > t[1] + 1e-12).count();
    let all = found.iter().filter(|t| t[0] == 1.0 && t[1] < 1.0).count();
    let far = found.iter().filter(|t| t[0] > 1.5 * mean(0)).count();
    println!(
        "{name}, {n}, alpha {alpha}: adaptive {:.4}, conditional {:.4}, on average {:.4}; later in {later} of {draws}, \
         everything in {all}, far above the mean in {far}; {:.1} s",
        mean(0),
        mean(1),
        mean(2),
        start.elapsed().as_secs_f64()
    );
}

/// When `adaptive` halts under either promise, calibrated on two thirds.
fn both_promises(name: &str, file: &Path) {
    let whole = read_outputs(&[file], &Columns::default(), &mut |_, _| {}).unwrap();
    let draws = std::env::var("DRAWS").map_or(100, |n| n.parse().unwrap());
    let found: Vec<[f64; 2]> = (0..draws)
        .into_par_iter()
        .map(|seed| {
            let order = shuffled(whole.len(), seed);
            let (test, calibrating) = order.split_at(whole.len() / 3);
            let calibrating = whole.select(calibrating.iter().copied());
            let test = whole.select(test.iter().copied());
            [Promise::Conditional, Promise::Marginal].map(|promise| {
                let ask = Ask {
                    promise: Some(promise),
                    ..Ask::default()
                };
                t_avg(&calibrated(ask, &calibrating), &test)
            })
        })
        .collect();
    let mean = |i: usize| found.iter().map(|t| t[i]).sum::<f64>() / draws as f64;
    println!(
        "{name}: halted by {:.4}, on average {:.4}",
        mean(0),
        mean(1)
    );
}
