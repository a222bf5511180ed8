//! How often the measured gap was above α over the splits.

use haltwise::evaluate::CONFIDENCE;
use haltwise::rule::Promise;
use haltwise::stats::clopper_pearson;
use serde::Serialize;

use super::{Experiment, HaltedBy, MethodResults, SplitResult};
use haltwise_report::chance::{Losses, beyond_chance};

/// How many of the splits, with the exact 95% interval of that share. The
/// splits are taken as independent draws; those of one dataset overlap.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rate {
    /// In how many splits.
    pub count: u64,
    /// Of how many.
    pub splits: u64,
    /// The exact 95% interval of the share.
    pub interval: (f64, f64),
}

/// How often one method's gap was above α on one dataset.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Violations {
    /// The dataset.
    pub dataset: String,
    /// The method.
    pub method: String,
    /// The promise of its rules, if any.
    pub promise: Option<Promise>,
    /// The gap over all test sequences was above α.
    pub on_average: Rate,
    /// The gap among the test sequences halted by some step was above α.
    pub by_some_step: Rate,
    /// It was so by more than chance explains, with all steps looked at
    /// together: where the true gap by every step is at most α, this counts at
    /// most 2.5% of the splits.
    pub beyond_chance: Rate,
}

impl Experiment {
    /// How often each method's gap was above α, dataset by dataset.
    pub fn violations(&self) -> Vec<Violations> {
        let of_dataset = |dataset: &super::DatasetResults| {
            let of_method = |method| violations(&dataset.name, method, self.alpha);
            dataset.methods.iter().map(of_method).collect::<Vec<_>>()
        };
        self.datasets.iter().flat_map(of_dataset).collect()
    }
}

fn violations(dataset: &str, method: &MethodResults, alpha: f64) -> Violations {
    let rate = |is_above: &dyn Fn(&SplitResult) -> bool| {
        let count = method.splits.iter().filter(|s| is_above(s)).count() as u64;
        let splits = method.splits.len() as u64;
        Rate {
            count,
            splits,
            interval: clopper_pearson(count, splits, CONFIDENCE),
        }
    };
    let losses = Losses::ZeroOrOne;
    let p_value = |by: &HaltedBy| losses.p_value(by.gaps as f64, by.halted, alpha);
    Violations {
        dataset: dataset.into(),
        method: method.name.clone(),
        promise: method.promise,
        on_average: rate(&|split| split.gap > alpha),
        by_some_step: rate(&|split| split.by_step.iter().any(|&by| is_above(by, alpha))),
        beyond_chance: rate(&|split| beyond_chance(losses, split.by_step.iter().map(p_value))),
    }
}

pub(crate) fn is_above(by: HaltedBy, alpha: f64) -> bool {
    by.gap().is_some_and(|gap| gap > alpha)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(by_step: &[(u64, u64)]) -> SplitResult {
        let by_step: Vec<_> = by_step
            .iter()
            .map(|&(gaps, halted)| HaltedBy { halted, gaps })
            .collect();
        let last = by_step.last().copied();
        SplitResult {
            n: 100,
            late_accuracy: 0.9,
            early_accuracy: 0.8,
            gap_20: None,
            gap_50: None,
            gap: last.and_then(HaltedBy::gap).unwrap_or(0.0),
            t_avg: 0.5,
            by_step,
        }
    }

    #[test]
    fn a_split_counts_once_for_each_way_of_being_above() {
        let method = MethodResults {
            name: "m".into(),
            method: haltwise::Method::ScreenOnly,
            promise: None,
            splits: vec![
                split(&[(0, 0), (1, 5), (5, 100)]),
                split(&[(0, 10), (30, 60), (9, 100)]),
                split(&[(0, 10), (0, 20), (12, 100)]),
                split(&[(0, 10), (2, 20), (10, 100)]),
                // The interval of one step lies above α, but there are three.
                split(&[(0, 10), (17, 100), (17, 200)]),
            ],
        };
        let found = violations("d", &method, 0.1);
        assert_eq!(found.on_average.count, 1);
        assert_eq!(found.by_some_step.count, 4);
        assert!(clopper_pearson(17, 100, CONFIDENCE).0 > 0.1);
        assert_eq!(found.beyond_chance.count, 1);
        assert_eq!(found.by_some_step.splits, 5);
        let (low, high) = found.by_some_step.interval;
        assert!(low < 0.8 && 0.8 < high);
    }
}
