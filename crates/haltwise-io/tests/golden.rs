//! The paper's results on the paper's models and data, to the last digit.
//!
//! These tests need the golden files next to the folder that `HALTWISE_DATA` names. Without
//! them, they are skipped with a message.

// Shared test code may also panic here.
#![allow(clippy::unwrap_used)]

#[allow(unreachable_pub)]
mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use common::data_folder;
use haltwise::evaluate::*;
use haltwise::plan::*;
use haltwise::rule::*;
use haltwise::stats::*;
use haltwise::traces::*;
use haltwise::{Inputs, Plan};
use rayon::prelude::*;

const DATASETS: [&str; 4] = [
    "PenDigits",
    "Crop",
    "ElectricDevices",
    "WalkingSittingStanding",
];

/// The folder of golden files, if there is one.
fn golden(test: &str) -> Option<PathBuf> {
    let found = Some(data_folder()?.join("../golden")).filter(|folder| folder.is_dir());
    if found.is_none() {
        let note = "no golden files; set HALTWISE_DATA to the folder beside them";
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {note}");
    }
    found
}

fn traces(folder: &Path, name: &str) -> Traces {
    let file = folder.join(format!("{name}.traces.npz"));
    haltwise_io::read_traces(&[file], &mut |_, _| {}).unwrap()
}

/// One split of the traces: test, screening and certifying positions.
struct Split {
    test: Vec<usize>,
    calibration: Vec<usize>,
}

impl Split {
    fn screening(&self, all: &Traces) -> Traces {
        let half = self.calibration.len() / 2;
        all.select(self.calibration[..half].iter().copied())
    }

    fn certifying(&self, all: &Traces) -> Traces {
        let half = self.calibration.len() / 2;
        all.select(self.calibration[half..].iter().copied())
    }

    fn all_calibration(&self, all: &Traces) -> Traces {
        all.select(self.calibration.iter().copied())
    }
}

fn splits(folder: &Path, name: &str) -> Vec<Split> {
    let file = folder.join(format!("{name}.splits.npz"));
    let integers = |array| haltwise_io::read_integers(&file, array).unwrap();
    let (order, n_test) = (integers("order"), integers("n_test").values[0]);
    order
        .values
        .chunks(order.shape[1])
        .map(|order| {
            let order: Vec<usize> = order.iter().map(|&i| i as usize).collect();
            let (test, calibration) = order.split_at(n_test as usize);
            Split {
                test: test.to_vec(),
                calibration: calibration.to_vec(),
            }
        })
        .collect()
}

/// Exactly the paper's listing.
fn listing() -> Plan {
    skipping().walking(AtNever::Stop).unwrap()
}

fn skipping() -> Plan {
    let ask = Ask {
        method: Some(Method::Conditional),
        screen: true,
        ..Ask::default()
    };
    Plan::new(ask).unwrap()
}

fn found(plan: &Plan, given: Inputs<'_, Traces>) -> Rule {
    plan.calibrate(given).unwrap().rule
}

fn marginal() -> Plan {
    Plan::of(Method::Marginal)
}

fn screen_only() -> Plan {
    Plan::of(Method::ScreenOnly)
}

#[derive(serde::Deserialize)]
struct GoldenRule {
    marginal: Option<f32>,
    screen: Vec<Option<f32>>,
    conditional: Vec<Option<f32>>,
}

#[test]
fn thresholds_equal_the_papers_on_all_forty_cases() {
    let Some(folder) = golden("thresholds_equal_the_papers_on_all_forty_cases") else {
        return;
    };
    // Skipping "never" must give the same result if the walk does not meet one.
    for name in DATASETS {
        let all = traces(&folder, name);
        let text = std::fs::read_to_string(folder.join(format!("{name}.rules.json"))).unwrap();
        let expected: Vec<GoldenRule> = serde_json::from_str(&text).unwrap();
        assert_eq!(expected.len(), 10);
        for (i, (expected, split)) in std::iter::zip(expected, splits(&folder, name)).enumerate() {
            let thresholds = |rule: Rule| Vec::<Option<f32>>::from(rule.thresholds().clone());
            let (screening, certifying) = (split.screening(&all), split.certifying(&all));
            let calibration = split.all_calibration(&all);
            let marginal = found(&marginal(), Inputs::one(&calibration));
            assert_eq!(thresholds(marginal)[0], expected.marginal, "{name} {i}");
            let screened = found(&screen_only(), Inputs::one(&screening));
            assert_eq!(thresholds(screened), expected.screen, "{name} {i}");
            let parts = || Inputs::one(&certifying).screen(&screening);
            let conditional = found(&listing(), parts());
            assert_eq!(thresholds(conditional), expected.conditional, "{name} {i}");
            let skipping = thresholds(found(&skipping(), parts()));
            if skipping != expected.conditional {
                println!("{name} {i}: skipping never goes further: {skipping:?}");
                assert!(
                    expected
                        .conditional
                        .iter()
                        .zip(&skipping)
                        .all(|(l, s)| l.is_none() || l == s)
                );
            }
        }
    }
}

type Means = BTreeMap<String, f64>;

/// The mean results of a method on the test sets, over all splits.
fn means(all: &Traces, splits: &[Split], method: impl Fn(&Split) -> Rule + Sync) -> Means {
    let results: Vec<Evaluation> = splits
        .par_iter()
        .map(|split| {
            let test = all.select(split.test.iter().copied());
            evaluate(method(split).thresholds(), &test).unwrap()
        })
        .collect();
    let mean = |value: &dyn Fn(&Evaluation) -> f64| {
        results.iter().map(value).sum::<f64>() / results.len() as f64
    };
    Means::from([
        ("late_accuracy".into(), mean(&|e| e.accuracy.unwrap().late)),
        (
            "early_accuracy".into(),
            mean(&|e| e.accuracy.unwrap().early),
        ),
        ("gap_20".into(), mean(&|e| e.gap_earliest["0.2"].unwrap())),
        ("gap_50".into(), mean(&|e| e.gap_earliest["0.5"].unwrap())),
        ("gap".into(), mean(&|e| e.gap)),
        ("t_avg".into(), mean(&|e| e.t_avg)),
    ])
}

#[test]
fn means_over_a_hundred_splits_equal_the_table() {
    let Some(folder) = golden("means_over_a_hundred_splits_equal_the_table") else {
        return;
    };
    let table = std::fs::read_to_string(folder.join("table.json")).unwrap();
    let table: BTreeMap<String, BTreeMap<String, Means>> = serde_json::from_str(&table).unwrap();
    for name in DATASETS {
        let all = traces(&folder, name);
        let splits = splits(&folder, name);
        let conditional = |s: &Split| {
            let parts = (s.screening(&all), s.certifying(&all));
            found(&listing(), Inputs::one(&parts.1).screen(&parts.0))
        };
        let marginal = |s: &Split| found(&marginal(), Inputs::one(&s.all_calibration(&all)));
        let screen_only = |s: &Split| found(&screen_only(), Inputs::one(&s.screening(&all)));
        for (method, found) in [
            ("marginal", means(&all, &splits, marginal)),
            ("conditional", means(&all, &splits, conditional)),
            ("screen_only", means(&all, &splits, screen_only)),
        ] {
            for (value, expected) in &table[name][method] {
                let found = found[value];
                assert!(
                    (found - expected).abs() < 0.5e-4 + 1e-9,
                    "{name} {method} {value}: {found} instead of {expected}"
                );
            }
        }
    }
}

/// Treats real traces as the whole population, so that true gaps are exact, and counts how
/// many calibrations on samples of it break the conditional promise.
fn violations(
    population: &Traces,
    n: usize,
    rule: impl Fn(&Traces, &Traces) -> Rule + Sync,
) -> u64 {
    (0..DRAWS)
        .into_par_iter()
        .map(|draw| {
            let screening = population.resample(n, 2 * draw);
            let certifying = population.resample(n, 2 * draw + 1);
            let rule = rule(&screening, &certifying);
            let truth = evaluate(rule.thresholds(), population).unwrap();
            let violated = truth
                .by_step
                .iter()
                .any(|s| s.gap_by.is_some_and(|gap| gap > 0.1));
            u64::from(violated)
        })
        .sum()
}

const DRAWS: u64 = 300;

#[test]
fn on_real_traces_the_promise_is_kept_and_only_by_certifying() {
    let Some(folder) = golden("on_real_traces_the_promise_is_kept_and_only_by_certifying") else {
        return;
    };
    // Exact: P(Bin(300, δ) ≥ limit) < 1e-6.
    let limit = (1..)
        .find(|&v| 1.0 - binomial_tail(v - 1, DRAWS, 0.01) < 1e-6)
        .unwrap();
    for name in ["PenDigits", "Crop"] {
        let population = traces(&folder, name);
        let n = population.len() / 3;
        let conditional = violations(&population, n, |s, t| {
            found(&skipping(), Inputs::one(t).screen(s))
        });
        let screened = violations(&population, n, |s, _| found(&screen_only(), Inputs::one(s)));
        let marginal = violations(&population, 2 * n, |_, t| {
            found(&marginal(), Inputs::one(t))
        });
        println!(
            "{name}: conditional {conditional}, screening alone {screened}, marginal {marginal} of {DRAWS}"
        );
        assert!(conditional < limit, "{name}: {conditional} of {DRAWS}");
        assert!(screened > DRAWS * 3 / 4, "{name}: {screened} of {DRAWS}");
        assert!(marginal > DRAWS / 2, "{name}: {marginal} of {DRAWS}");
    }
}
