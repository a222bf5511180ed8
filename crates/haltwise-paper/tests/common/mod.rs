//! Experiments on simulated traces, the same on every machine.

// Every test file uses its own part of this, and what cannot be simulated
// should fail.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "../../../haltwise-report/tests/common/mod.rs"]
pub(crate) mod report;

use haltwise::{Ask, Inputs, Method, Plan, evaluate};
use haltwise_paper::{DatasetResults, Experiment, MethodResults, SweepCurve, SweepPoint};

/// An experiment like the paper's, on simulated traces.
pub(crate) fn experiment(datasets: &[(&str, usize)], splits: u64, n: usize) -> Experiment {
    let datasets = datasets.iter().map(|&(name, t_max)| {
        let mut methods: Vec<MethodResults> = Vec::new();
        for seed in 0..splits {
            for (i, compared) in report::methods(t_max, n, seed).iter().enumerate() {
                if seed == 0 {
                    methods.push(MethodResults {
                        name: compared.name.clone(),
                        method: compared.rule.method(),
                        promise: compared.rule.promise(),
                        splits: Vec::new(),
                    });
                }
                methods[i].splits.push((&compared.evaluation).into());
            }
        }
        DatasetResults {
            name: name.into(),
            methods,
            sweep: sweep(t_max, n),
            oracle: Some(0.25),
            note: Some("Simulated.".into()),
        }
    });
    Experiment {
        alpha: 0.1,
        delta: 0.01,
        datasets: datasets.collect(),
    }
}

fn sweep(t_max: usize, n: usize) -> Vec<SweepCurve> {
    let process = report::process(t_max);
    let screening = process.draw(n, 1);
    let certifying = process.draw(n, 2);
    let test = process.draw(n, 3);
    let point = |alpha: f64, conditional: bool| {
        let rule = if conditional {
            report::conditional_rule(Some(alpha), &screening, &certifying)
        } else {
            let plan = Plan::new(Ask {
                method: Some(Method::Marginal),
                alpha: Some(alpha),
                ..Ask::default()
            });
            report::rule(plan.unwrap(), Inputs::one(&certifying))
        };
        let evaluation = evaluate(rule.thresholds(), &test).unwrap();
        SweepPoint {
            alpha,
            t_avg: evaluation.t_avg,
            standard_error: evaluation.t_avg_se,
        }
    };
    let curve = |method: &str, conditional| SweepCurve {
        method: method.into(),
        points: (1..=10)
            .map(|k| point(f64::from(k) / 50.0, conditional))
            .collect(),
    };
    vec![curve("conditional", true), curve("marginal", false)]
}
