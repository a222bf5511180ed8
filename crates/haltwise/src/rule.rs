//! Rules: when to halt, and everything needed to audit why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::candidates::AtNever;
use crate::certify::{Promise, Test, p_value};
use crate::evidence::{Counts, MOST_SEQUENCES};
use crate::grid::Grid;
use crate::level::{Alpha, Delta};
use crate::trace::{Fingerprint, ScoreSource};

/// One threshold per step; a sequence halts at the first step whose score
/// reaches its threshold, or at its end. ∞ is never (`null` in JSON).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Option<f32>>", into = "Vec<Option<f32>>")]
pub struct Thresholds(Vec<f32>);

/// Why numbers are not thresholds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// There is none.
    #[error("there are no thresholds")]
    Empty,
    /// One is neither in [0, 1] nor never.
    #[error("the threshold of step {step} is {value}: it must lie in [0, 1] or be never")]
    Value {
        /// The step, counted from 1.
        step: usize,
        /// What was found.
        value: f32,
    },
}

impl Thresholds {
    /// Thresholds in [0, 1], or ∞ for never, at least one.
    pub fn new(values: Vec<f32>) -> Result<Self, ThresholdError> {
        if values.is_empty() {
            return Err(ThresholdError::Empty);
        }
        let valid = |v: &f32| (0.0..=1.0).contains(v) || *v == f32::INFINITY;
        match values.iter().position(|v| !valid(v)) {
            None => Ok(Self(values)),
            Some(t) => Err(ThresholdError::Value {
                step: t + 1,
                value: values[t],
            }),
        }
    }

    pub(crate) fn from_valid(values: Vec<f32>) -> Self {
        Self(values)
    }

    /// Never halt before the end.
    pub fn never(t_max: usize) -> Self {
        Self(vec![f32::INFINITY; t_max])
    }

    /// The same thresholds for sequences of up to `t_max` steps, never halting
    /// at those that are added.
    pub(crate) fn extended(mut self, t_max: usize) -> Self {
        self.0.resize(t_max.max(self.0.len()), f32::INFINITY);
        self
    }

    /// The thresholds as numbers, ∞ for never.
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// The number of steps.
    pub fn t_max(&self) -> usize {
        self.0.len()
    }

    /// The first step (0-based) with a threshold other than never.
    pub(crate) fn opens(&self) -> Option<usize> {
        self.0.iter().position(|&v| v < f32::INFINITY)
    }
}

impl TryFrom<Vec<Option<f32>>> for Thresholds {
    type Error = ThresholdError;

    fn try_from(values: Vec<Option<f32>>) -> Result<Self, ThresholdError> {
        Self::new(
            values
                .into_iter()
                .map(|v| v.unwrap_or(f32::INFINITY))
                .collect(),
        )
    }
}

impl From<Thresholds> for Vec<Option<f32>> {
    fn from(thresholds: Thresholds) -> Self {
        let finite = |v: f32| (v < f32::INFINITY).then_some(v);
        thresholds.0.into_iter().map(finite).collect()
    }
}

/// How a rule was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The paper's Algorithm A.1: one threshold, the gap controlled on average.
    Marginal,
    /// The paper's Algorithms 1 and 2: one threshold per step, the gap
    /// controlled among the sequences halted by any step.
    Conditional,
    /// Algorithm 1 alone. Promises nothing; kept to show why certifying matters.
    ScreenOnly,
}

impl Method {
    /// What a rule found this way promises, if anything.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Self::Marginal => Some(Promise::Marginal),
            Self::Conditional => Some(Promise::Conditional),
            Self::ScreenOnly => None,
        }
    }
}

/// A set of traces that a rule was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetRecord {
    /// How many sequences.
    pub sequences: u64,
    /// Their fingerprint.
    pub fingerprint: Fingerprint,
}

/// How one set of traces was split into a screening and a certifying part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The share that was to screen.
    pub screen_fraction: f64,
    /// The seed of the draw.
    pub seed: u64,
}

/// What the certifying traces say about a rule: estimates, not promises.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// The share of sequences with a gap.
    pub gap: f64,
}

/// What is known about a classifier, as names and values: enough to tell it
/// from another, for which a rule would promise nothing.
pub type Classifier = BTreeMap<String, String>;

/// A stopping rule with the record of how it came about.
///
/// Made by [`Calibration`](crate::Calibration), or read back from where it was
/// stored; never assembled by hand, so that [`promise`](Self::promise) can be
/// relied on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Rule(Record);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) method: Method,
    pub(crate) promise: Option<Promise>,
    pub(crate) alpha: Alpha,
    pub(crate) delta: Delta,
    pub(crate) grid_step: Grid,
    pub(crate) at_never: AtNever,
    pub(crate) score: ScoreSource,
    pub(crate) t_max: usize,
    pub(crate) thresholds: Thresholds,
    pub(crate) expected: Option<Expected>,
    pub(crate) screened_on: Option<SetRecord>,
    pub(crate) certified_on: Option<SetRecord>,
    pub(crate) split: Option<Split>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classifier: Option<Classifier>,
    pub(crate) trail: Vec<Test>,
}

/// Why a stored rule cannot be trusted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the rule contradicts itself: {0}")]
pub struct RuleError(String);

impl Rule {
    pub(crate) fn from_record(record: Record) -> Self {
        Self(record)
    }

    /// The thresholds.
    pub fn thresholds(&self) -> &Thresholds {
        &self.0.thresholds
    }

    /// The most steps a sequence may have.
    pub fn t_max(&self) -> usize {
        self.0.t_max
    }

    /// How the rule was found.
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// What is promised with probability 1 − δ; `None` if the rule was only
    /// screened.
    pub fn promise(&self) -> Option<Promise> {
        self.0.promise
    }

    /// The tolerated gap.
    pub fn alpha(&self) -> Alpha {
        self.0.alpha
    }

    /// The probability with which the promise may fail.
    pub fn delta(&self) -> Delta {
        self.0.delta
    }

    /// The grid that thresholds were chosen from.
    pub fn grid(&self) -> &Grid {
        &self.0.grid_step
    }

    /// How the score of a live stream is to be computed.
    pub fn source(&self) -> ScoreSource {
        self.0.score
    }

    /// What the certifying traces say about the rule.
    pub fn expected(&self) -> Option<Expected> {
        self.0.expected
    }

    /// The traces that screened.
    pub fn screened_on(&self) -> Option<SetRecord> {
        self.0.screened_on
    }

    /// The traces that certified.
    pub fn certified_on(&self) -> Option<SetRecord> {
        self.0.certified_on
    }

    /// How the two were split from one set, if they were.
    pub fn split(&self) -> Option<Split> {
        self.0.split
    }

    /// Records how the two sets were split from one.
    pub fn with_split(mut self, split: Split) -> Self {
        self.0.split = Some(split);
        self
    }

    /// The classifier whose traces the rule was made from, where it is known.
    pub fn classifier(&self) -> Option<&Classifier> {
        self.0.classifier.as_ref()
    }

    /// Records whose traces the rule was made from.
    pub fn with_classifier(mut self, classifier: Option<Classifier>) -> Self {
        self.0.classifier = classifier;
        self
    }

    /// Every test that was made.
    pub fn trail(&self) -> &[Test] {
        &self.0.trail
    }

    /// Whether the rule ever halts a sequence before its end.
    pub fn halts_early(&self) -> bool {
        let steps = self.0.thresholds.values().split_last();
        steps.is_some_and(|(_, before)| before.iter().any(|&v| v < f32::INFINITY))
    }
}

impl TryFrom<Record> for Rule {
    type Error = RuleError;

    /// Checks what can be checked without the traces: that every p-value
    /// follows from its counts, that the tests were made in the method's order
    /// until one failed, and that the thresholds are those the tests certified.
    fn try_from(record: Record) -> Result<Self, RuleError> {
        match record.contradiction() {
            None => Ok(Self(record)),
            Some(what) => Err(RuleError(what)),
        }
    }
}

impl From<Rule> for Record {
    fn from(rule: Rule) -> Self {
        rule.0
    }
}

impl Record {
    fn contradiction(&self) -> Option<String> {
        if self.thresholds.t_max() != self.t_max {
            let found = self.thresholds.t_max();
            return Some(format!("{found} thresholds for t_max {}", self.t_max));
        }
        if self.promise != self.method.promise() {
            return Some("its method does not give the promise it states".into());
        }
        if self.promise.is_none() {
            return (!self.trail.is_empty()).then(|| "tests, but no promise".into());
        }
        match self.certified_on {
            None => return Some("a promise, but no certifying traces".into()),
            Some(set) if set.sequences > MOST_SEQUENCES => {
                return Some("more certifying traces than can be".into());
            }
            Some(_) => {}
        }
        for (i, test) in self.trail.iter().enumerate() {
            if let Some(what) = self.test_contradiction(test) {
                return Some(format!("test {} of the trail {what}", i + 1));
            }
        }
        let failures = self.trail.iter().filter(|test| !test.rejected).count();
        if failures > 1 || failures == 1 && self.trail.last().is_some_and(|test| test.rejected) {
            return Some("the trail goes on after a test that failed".into());
        }
        let expected = match self.method {
            Method::Marginal => self.marginal_thresholds(),
            _ => self.walked_thresholds(),
        };
        (expected.as_deref() != Some(self.thresholds.values()))
            .then(|| "its thresholds are not those of the tests that passed".into())
    }

    /// The thresholds that a walk down the grid ends with; `None` where the
    /// trail is no such walk.
    fn marginal_thresholds(&self) -> Option<Vec<f32>> {
        let grid = self.grid_step.thresholds().iter().rev();
        let tested = self.trail.iter().map(|test| test.threshold);
        let in_order = tested.eq(grid.take(self.trail.len()).map(|&v| Some(v)));
        let on_all = self
            .trail
            .iter()
            .all(|test| test.step == self.t_max && test.opens == 1);
        let last = self.trail.iter().rev().find(|test| test.rejected);
        let chosen = last
            .and_then(|test| test.threshold)
            .unwrap_or(f32::INFINITY);
        (in_order && on_all).then(|| vec![chosen; self.t_max])
    }

    /// The thresholds that a backward walk ends with; `None` where the trail
    /// is no such walk.
    fn walked_thresholds(&self) -> Option<Vec<f32>> {
        let mut thresholds = vec![f32::INFINITY; self.t_max];
        let mut before = self.t_max + 1;
        for test in &self.trail {
            if test.opens >= before {
                return None;
            }
            before = test.opens;
            if test.rejected {
                thresholds[test.opens - 1] = test.threshold.unwrap_or(f32::INFINITY);
            }
        }
        Some(thresholds)
    }

    fn test_contradiction(&self, test: &Test) -> Option<&'static str> {
        let steps = 1..=self.t_max;
        if !steps.contains(&test.opens) || !steps.contains(&test.step) || test.step < test.opens {
            return Some("names a step that does not exist or was not tested");
        }
        let sequences = self.certified_on.map_or(0, |set| set.sequences);
        if !(test.gaps <= test.halted && test.halted <= sequences) {
            return Some("counts more sequences than there are");
        }
        let counts = Counts {
            halted: test.halted,
            gaps: test.gaps,
        };
        let p = p_value(counts, self.alpha);
        // Stored digits round-trip; the allowance is for other versions' sums.
        let agrees = (test.p_value - p).abs() <= 1e-9 * p;
        if !agrees {
            return Some("has a p-value that does not follow from its counts");
        }
        (test.rejected != (test.p_value <= self.delta.get()))
            .then_some("has a verdict that does not follow from its p-value")
    }
}
