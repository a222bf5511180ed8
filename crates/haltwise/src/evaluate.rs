//! What a rule does to traces: accuracy early and late, halt times, and the
//! gap among the sequences halted by each step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::halt::{Halt, halts};
use crate::pvalue::clopper_pearson;
use crate::rule::Rule;
use crate::table::Counts;
use crate::thresholds::Thresholds;
use crate::trace::Traces;

/// The confidence of the intervals around every gap.
pub const CONFIDENCE: f64 = 0.95;

/// The shares of earliest sequences for which the gap is reported.
const EARLIEST: [&str; 2] = ["0.2", "0.5"];

/// Why a rule cannot be applied to traces.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// There is nothing to evaluate.
    #[error("there are no traces")]
    Empty,
    /// A sequence has more steps than the rule.
    #[error(
        "a sequence has {found} steps, but the rule was calibrated for {t_max} at the most; \
         calibrate on traces of that length"
    )]
    TooLong {
        /// The steps of the longest sequence.
        found: usize,
        /// The rule's.
        t_max: usize,
    },
    /// The traces were binned on a grid that lacks one of the thresholds.
    #[error("the traces were binned on a grid that does not have the threshold {0}")]
    OffGrid(f32),
}

/// One step of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The step, counted from 1.
    pub t: usize,
    /// How many sequences halted at it.
    pub halted: u64,
    /// How many sequences halted by it.
    pub halted_by: u64,
    /// The gap among those; `None` if there are none.
    pub gap_by: Option<f64>,
    /// The exact 95% interval of that gap.
    pub gap_by_interval: (f64, f64),
}

/// What a rule did to a set of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How many sequences.
    pub n: usize,
    /// The rule's number of steps; those of the longest sequence where the rule
    /// [reads on](Rule::reads_on) and that has more.
    pub t_max: usize,
    /// The accuracy of the full predictions.
    pub late_accuracy: f64,
    /// Its standard error.
    pub late_accuracy_se: f64,
    /// The accuracy of the early predictions.
    pub early_accuracy: f64,
    /// Its standard error.
    pub early_accuracy_se: f64,
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// Its standard error.
    pub t_avg_se: f64,
    /// The steps read as a share of all steps there were; equals `t_avg` where
    /// every sequence has `t_max` steps.
    pub steps_read: f64,
    /// The share of all sequences with a gap.
    pub gap: f64,
    /// Its standard error.
    pub gap_se: f64,
    /// The exact 95% interval of the gap.
    pub gap_interval: (f64, f64),
    /// The gap among the share of sequences that halted first (ties by input
    /// order); `None` where that share is less than one sequence.
    pub gap_earliest: BTreeMap<String, Option<f64>>,
    /// 95% intervals of those gaps, as if the sequences had been picked without
    /// looking at their halt steps.
    pub gap_earliest_interval: BTreeMap<String, (f64, f64)>,
    /// Step by step.
    pub by_step: Vec<StepResult>,
}

/// The step, counted from 1, at which each sequence halts, in input order.
pub fn halt_steps(thresholds: &Thresholds, traces: &Traces) -> Result<Vec<u32>, EvaluateError> {
    check(thresholds, false, traces)?;
    Ok(halts(thresholds, traces)
        .iter()
        .map(|halt| halt.step + 1)
        .collect())
}

/// Refuses sequences that are longer than the rule, unless it reads on, and
/// scores that were binned on a grid without its thresholds.
fn check(thresholds: &Thresholds, reads_on: bool, traces: &Traces) -> Result<(), EvaluateError> {
    if traces.t_max() > thresholds.t_max() && !reads_on {
        return Err(EvaluateError::TooLong {
            found: traces.t_max(),
            t_max: thresholds.t_max(),
        });
    }
    let off = |v: &&f32| traces.grid().is_some_and(|grid| !grid.holds(**v));
    match thresholds.values().iter().find(off) {
        Some(&off) => Err(EvaluateError::OffGrid(off)),
        None => Ok(()),
    }
}

/// Applies thresholds to traces and measures what happened.
pub fn evaluate(thresholds: &Thresholds, traces: &Traces) -> Result<Evaluation, EvaluateError> {
    let mut evaluator = Evaluator::new(thresholds.clone());
    evaluator.add(traces)?;
    evaluator.finish()
}

/// Evaluates traces that come in parts, and keeps eight bytes of each.
#[derive(Debug, Clone)]
pub struct Evaluator {
    thresholds: Thresholds,
    /// Whether a sequence that has more steps is read to its end, or refused.
    reads_on: bool,
    /// The steps of the rule, or of the longest sequence that has more.
    t_max: usize,
    /// Where each sequence halts, in the order they came.
    halts: Vec<Halt>,
    /// How many steps they have in all.
    available: usize,
}

impl Evaluator {
    /// Nothing evaluated yet. Sequences that have more steps than there are
    /// thresholds will be refused.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            t_max: thresholds.t_max(),
            thresholds,
            reads_on: false,
            halts: Vec::new(),
            available: 0,
        }
    }

    /// The same for a rule, which [may read on](Rule::reads_on) where it has no
    /// threshold any more.
    pub fn for_rule(rule: &Rule) -> Self {
        Self {
            reads_on: rule.reads_on(),
            ..Self::new(rule.thresholds().clone())
        }
    }

    /// Applies the thresholds to more traces.
    pub fn add(&mut self, traces: &Traces) -> Result<(), EvaluateError> {
        check(&self.thresholds, self.reads_on, traces)?;
        self.t_max = self.t_max.max(traces.t_max());
        self.halts.append(&mut halts(&self.thresholds, traces));
        self.available += traces.lengths().sum::<usize>();
        Ok(())
    }

    /// Adds what was evaluated with the same thresholds elsewhere, behind what
    /// is here.
    pub fn append(&mut self, mut later: Self) {
        self.t_max = self.t_max.max(later.t_max);
        self.halts.append(&mut later.halts);
        self.available += later.available;
    }

    /// What happened to all of them.
    pub fn finish(self) -> Result<Evaluation, EvaluateError> {
        let (halts, t_max) = (&self.halts, self.t_max);
        if halts.is_empty() {
            return Err(EvaluateError::Empty);
        }
        let n = halts.len();
        let mut at_step = vec![Counts::default(); t_max];
        for halt in halts {
            at_step[halt.step as usize] += Counts::unpack(Counts::one(halt.gap()));
        }
        let share = |hits: usize| hits as f64 / n as f64;
        let late_accuracy = share(halts.iter().filter(|h| h.full_is_right).count());
        let early_accuracy = share(halts.iter().filter(|h| h.early_is_right).count());
        let (t_avg, t_avg_se) = mean_time(&at_step);
        let by_step = by_step(&at_step);
        let total = at_step.iter().fold(Counts::default(), |mut sum, &at| {
            sum += at;
            sum
        });
        let gap = total.gap().unwrap_or(0.0);
        let earliest = EARLIEST.map(|share| (share, earliest(halts, &at_step, share)));
        let read: u64 = halts.iter().map(|h| u64::from(h.step) + 1).sum();
        Ok(Evaluation {
            n,
            t_max,
            late_accuracy,
            late_accuracy_se: standard_error(late_accuracy, n),
            early_accuracy,
            early_accuracy_se: standard_error(early_accuracy, n),
            t_avg,
            t_avg_se,
            steps_read: read as f64 / self.available as f64,
            gap,
            gap_se: standard_error(gap, n),
            gap_interval: interval(total),
            gap_earliest: earliest.map(|(q, c)| (q.into(), c.gap())).into(),
            gap_earliest_interval: earliest.map(|(q, c)| (q.into(), interval(c))).into(),
            by_step,
        })
    }
}

/// The exact interval of the share of gaps.
fn interval(counts: Counts) -> (f64, f64) {
    clopper_pearson(counts.gaps, counts.halted, CONFIDENCE)
}

/// The standard error of a share: √(p(1 − p)/n).
fn standard_error(share: f64, n: usize) -> f64 {
    (share * (1.0 - share) / n as f64).sqrt()
}

/// The mean of halt step / t_max and its standard error, from the counts: sums
/// of whole numbers, so the same for any order of the sequences.
fn mean_time(at_step: &[Counts]) -> (f64, f64) {
    let (mut n, mut sum) = (0, 0_u64);
    for (t, at) in at_step.iter().enumerate() {
        n += at.halted;
        sum += (t as u64 + 1) * at.halted;
    }
    let mean = sum as f64 / n as f64;
    let squares: f64 = at_step
        .iter()
        .enumerate()
        .map(|(t, at)| at.halted as f64 * ((t + 1) as f64 - mean).powi(2))
        .sum();
    let variance = squares / n.saturating_sub(1).max(1) as f64;
    let t_max = at_step.len() as f64;
    (mean / t_max, (variance / n as f64).sqrt() / t_max)
}

fn by_step(at_step: &[Counts]) -> Vec<StepResult> {
    let mut halted_by = Counts::default();
    let result = |(t, &at): (usize, &Counts)| {
        halted_by += at;
        StepResult {
            t: t + 1,
            halted: at.halted,
            halted_by: halted_by.halted,
            gap_by: halted_by.gap(),
            gap_by_interval: interval(halted_by),
        }
    };
    at_step.iter().enumerate().map(result).collect()
}

/// The counts of the ⌊share·n⌋ sequences that halted first, ties by input order.
fn earliest(halts: &[Halt], at_step: &[Counts], share: &str) -> Counts {
    let share: f64 = share.parse().unwrap_or(0.0);
    let mut left = (share * halts.len() as f64) as u64;
    let mut counts = Counts::default();
    for (t, &at) in at_step.iter().enumerate() {
        if at.halted <= left {
            left -= at.halted;
            counts += at;
            continue;
        }
        let tied = halts.iter().filter(|h| h.step as usize == t);
        for halt in tied.take(left as usize) {
            counts += Counts::unpack(Counts::one(halt.gap()));
        }
        break;
    }
    counts
}
