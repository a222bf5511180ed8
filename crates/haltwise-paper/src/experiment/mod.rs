//! The paper's experiments: many random splits of several datasets, a few
//! methods on each.

mod figures;
mod page;
mod paper;
mod sweep;
mod table;
mod violations;

use haltwise::Method;

use haltwise::evaluate::{Evaluation, StepResult};
use haltwise::rule::Promise;
use serde::{Deserialize, Serialize};

pub use figures::{ablation_figure, experiment_figures, splits_figure};
pub use page::report_experiment;
pub use sweep::sweep_figure;
pub use table::{Cell, ResultsTable, TableRow};
pub use violations::{Rate, Violations};

/// All that an experiment found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// The tolerated gap.
    pub alpha: f64,
    /// The probability with which a promise may fail.
    pub delta: f64,
    /// Dataset by dataset.
    pub datasets: Vec<DatasetResults>,
}

/// The results on one dataset.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DatasetResults {
    /// Its name, by which the paper's numbers are found.
    pub name: String,
    /// The methods, on the same splits.
    pub methods: Vec<MethodResults>,
    /// t_avg against α, one curve per method; may be empty.
    pub sweep: Vec<SweepCurve>,
    /// The mean of the first step without a gap / t_max, where it is known: the
    /// bound that no rule without a loss can beat.
    #[serde(default)]
    pub oracle: Option<f64>,
    /// Anything to say about where it came from.
    pub note: Option<String>,
}

/// What one method did on every split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodResults {
    /// Its name.
    pub name: String,
    /// How its rules are found.
    pub method: Method,
    /// The promise of its rules, if any.
    pub promise: Option<Promise>,
    /// Split by split.
    pub splits: Vec<SplitResult>,
}

/// What one rule did to the test part of one split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitResult {
    /// How many sequences the test part has.
    pub n: u64,
    /// The accuracy of the full predictions.
    pub late_accuracy: f64,
    /// The accuracy of the early predictions.
    pub early_accuracy: f64,
    /// The gap among the 20% that halted first, if those are any.
    pub gap_20: Option<f64>,
    /// The gap among the 50% that halted first, if those are any.
    pub gap_50: Option<f64>,
    /// The gap over all sequences.
    pub gap: f64,
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// By each step, how many had halted and how many of those had a gap.
    pub by_step: Vec<HaltedBy>,
}

/// The sequences that halted by a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltedBy {
    /// How many.
    pub halted: u64,
    /// How many of those had a gap.
    pub gaps: u64,
}

impl HaltedBy {
    /// The share of gaps among them; `None` if there are none.
    pub fn gap(self) -> Option<f64> {
        (self.halted > 0).then(|| self.gaps as f64 / self.halted as f64)
    }
}

/// How t_avg depends on α for one method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SweepCurve {
    /// The method's name.
    pub method: String,
    /// In increasing order of α.
    pub points: Vec<SweepPoint>,
}

/// One point of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The tolerated gap.
    pub alpha: f64,
    /// The mean over the splits of t_avg.
    pub t_avg: f64,
    /// Its standard error.
    pub standard_error: f64,
}

impl From<&Evaluation> for SplitResult {
    fn from(evaluation: &Evaluation) -> Self {
        let earliest = |share: &str| evaluation.gap_earliest.get(share).copied().flatten();
        // The paper's gaps are 0 or 1, so this is a whole number up to rounding errors.
        let gaps = |step: &StepResult| step.gap_by.unwrap_or(0.0) * step.halted_by as f64;
        let by_step = evaluation.by_step.iter().map(|step| HaltedBy {
            halted: step.halted_by,
            gaps: gaps(step).round() as u64,
        });
        Self {
            n: evaluation.n as u64,
            late_accuracy: evaluation.accuracy.map_or(f64::NAN, |a| a.late),
            early_accuracy: evaluation.accuracy.map_or(f64::NAN, |a| a.early),
            gap_20: earliest("0.2"),
            gap_50: earliest("0.5"),
            gap: evaluation.gap,
            t_avg: evaluation.t_avg,
            by_step: by_step.collect(),
        }
    }
}

impl DatasetResults {
    /// The most steps of any split.
    pub(crate) fn t_max(&self) -> usize {
        let splits = self.methods.iter().flat_map(|m| &m.splits);
        splits.map(|s| s.by_step.len()).max().unwrap_or(1)
    }
}

/// A mean and its standard error; `None` where there is nothing to average.
pub(crate) fn mean_and_error(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let variance = if n > 1.0 { squares / (n - 1.0) } else { 0.0 };
    Some((mean, (variance / n).sqrt()))
}
