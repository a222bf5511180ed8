//! The results of an evaluation, and why there may be none.

use std::collections::BTreeMap;

use haltwise_stream::StepError;
use serde::{Deserialize, Serialize};

use crate::data::sequence_error::SequenceError;
use crate::numbers::counts::is_zero;

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
    /// A sequence lacks a column that the rule's promise needs.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// Sequences of one unit have different weights.
    #[error(
        "sequences of one unit have different weights; a unit is taken whole or left out whole, so \
         give all of its sequences one weight"
    )]
    UnevenUnit,
    /// A step has no score of the kind that the rule judges.
    #[error(transparent)]
    Score(#[from] StepError),
    /// Only some sequences have a column that the rule's promise needs.
    #[error(
        "{without} of {all} sequences have no `{column}`, which the rule's promise speaks of; give it \
         for all of them, or for none"
    )]
    SomeLack {
        /// The column.
        column: String,
        /// How many sequences lack it.
        without: usize,
        /// How many sequences there are.
        all: usize,
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
    /// How many sequences halted by it; with units, how many units had any that did.
    pub halted_by: u64,
    /// The gap among those, or their mean loss; `None` if there are none.
    pub gap_by: Option<f64>,
    /// A 95% interval of it, exact for gaps.
    pub gap_by_interval: (f64, f64),
}

/// How often predictions were right, among the sequences that have a label.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// The accuracy of the full predictions.
    #[serde(rename = "late_accuracy")]
    pub late: f64,
    /// Its standard error.
    #[serde(rename = "late_accuracy_se")]
    pub late_se: f64,
    /// The accuracy of the early predictions.
    #[serde(rename = "early_accuracy")]
    pub early: f64,
    /// Its standard error.
    #[serde(rename = "early_accuracy_se")]
    pub early_se: f64,
}

/// The mean cost of reading.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CostResult {
    /// The cost until the sequences halted.
    pub mean: f64,
    /// The cost of reading them to their ends.
    pub full: f64,
}

/// The results of a rule on the sequences of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// The group.
    pub group: String,
    /// How many sequences.
    pub n: usize,
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// The share with a gap, or the mean loss.
    pub gap: f64,
    /// A 95% interval of it.
    pub gap_interval: (f64, f64),
    /// The results step by step.
    pub by_step: Vec<StepResult>,
}

/// The results of a rule on a set of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How many sequences.
    pub n: usize,
    /// The rule's number of steps; or that of the longest sequence, if the rule [reads
    /// on](crate::Rule::reads_on) and the sequence has more.
    pub t_max: usize,
    /// How often predictions were right; `None` without labels.
    #[serde(flatten)]
    pub accuracy: Option<Accuracy>,
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// Its standard error.
    pub t_avg_se: f64,
    /// The steps read as a share of all steps there were; equals `t_avg` where
    /// every sequence has `t_max` steps.
    pub steps_read: f64,
    /// The share of all sequences with a gap; for another loss, its mean.
    pub gap: f64,
    /// Its standard error.
    pub gap_se: f64,
    /// A 95% interval of it, exact for gaps.
    pub gap_interval: (f64, f64),
    /// The gap among the share of sequences that halted first (ties by input order); with
    /// units, a mean over units. `None` if that share is less than one sequence.
    pub gap_earliest: BTreeMap<String, Option<f64>>,
    /// 95% intervals of those gaps, as if the sequences had been picked without
    /// looking at their halt steps.
    pub gap_earliest_interval: BTreeMap<String, (f64, f64)>,
    /// How many sequences have no label and so say nothing about the gap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlabelled: usize,
    /// How many further sequences the rule's weights leave out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thinned: usize,
    /// The mean cost of reading, if the rule minimises cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostResult>,
    /// The same for each group that the promise covers separately.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_group: Vec<GroupResult>,
    /// The results step by step.
    pub by_step: Vec<StepResult>,
}
