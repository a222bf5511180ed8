//! Rules: when to halt, and everything needed to audit why.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::candidates::AtNever;
use crate::certify::{Promise, Test, p_value};
use crate::evidence::{Counts, MOST_SEQUENCES};
use crate::grid::Grid;
use crate::level::{Alpha, Delta};
use crate::propose::{FamilyKind, spend_delta};
use crate::pvalue::tail_cost;
use crate::score::ScoreSource;
use crate::trace::{Fingerprint, Traces};

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
    /// A learned score and threshold curves, with the conditional promise;
    /// halts earlier than the paper's.
    Adaptive,
    /// Algorithm 1 alone. Promises nothing; kept to show why certifying matters.
    ScreenOnly,
}

impl Method {
    /// What a rule found this way promises, if anything.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Self::Marginal => Some(Promise::Marginal),
            Self::Conditional | Self::Adaptive => Some(Promise::Conditional),
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

impl SetRecord {
    /// The record of some traces.
    pub fn of(traces: &Traces) -> Self {
        Self {
            sequences: traces.len() as u64,
            fingerprint: traces.fingerprint(),
        }
    }
}

/// How one set of traces was split into parts, of which the last certified.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The share that was to fit a score, and candidates where the method
    /// proposes them from the same traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit_fraction: Option<f64>,
    /// The share, of what was left then, that was to screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen_fraction: Option<f64>,
    /// The seed of the draw.
    pub seed: u64,
}

impl Split {
    /// The share that was to certify.
    pub fn certifying_share(&self) -> f64 {
        (1.0 - self.fit_fraction.unwrap_or(0.0)) * (1.0 - self.screen_fraction.unwrap_or(0.0))
    }
}

/// A family of candidates that was tested at its own share of δ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyRecord {
    /// What kind of rules it consists of.
    pub kind: FamilyKind,
    /// Its share of δ.
    pub share: f64,
    /// On how many sequences it was tested.
    pub sequences: u64,
    /// How many of its candidates were tested: so many entries of the trail.
    pub tests: usize,
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

/// Whether the sequences that a rule was calibrated on were all of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// They were, so that step `t_max` is the end of any sequence.
    Equal,
    /// They were not, so that others may be longer than all that were seen.
    Unequal,
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
    /// What the paper's methods choose thresholds from; `adaptive` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grid_step: Option<Grid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_never: Option<AtNever>,
    pub(crate) score: ScoreSource,
    pub(crate) t_max: usize,
    pub(crate) thresholds: Thresholds,
    pub(crate) expected: Option<Expected>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fitted_on: Option<SetRecord>,
    pub(crate) screened_on: Option<SetRecord>,
    pub(crate) certified_on: Option<SetRecord>,
    pub(crate) split: Option<Split>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classifier: Option<Classifier>,
    /// Unknown in files of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lengths: Option<Lengths>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classes: Option<usize>,
    /// The families of `adaptive`, whose tests follow each other in the trail;
    /// the paper's methods have one family, tested at δ itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) families: Vec<FamilyRecord>,
    /// With several families, the place in the trail, counted from 1, of the
    /// rule that was chosen among all that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chosen: Option<usize>,
    /// With several families, the digest of score and thresholds, of which the
    /// trail has but one number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seal: Option<Fingerprint>,
    pub(crate) trail: Vec<Test>,
}

/// The most tests of `adaptive`, many times what it proposes for any number of
/// steps.
const MOST_ADAPTIVE_TESTS: usize = 100_000;

/// The most operations spent on recomputing p-values: seconds, and enough for
/// 10,000 tests on 10⁹ sequences each.
const MOST_WORK: f64 = 4e9;

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

    /// The steps of the longest sequence that the rule was calibrated on.
    pub fn t_max(&self) -> usize {
        self.0.t_max
    }

    /// What becomes of a sequence that is longer than `t_max`: if true, it is
    /// read to its end, for past `t_max` the rule never halts. That is how it was
    /// certified, so the promise holds for sequences of any length. If false, it
    /// halts at `t_max`, because all sequences that were calibrated on ended there,
    /// or because the rule does not say whether they did; the promise is then about
    /// sequences of up to `t_max` steps.
    pub fn reads_on(&self) -> bool {
        self.0.lengths == Some(Lengths::Unequal)
    }

    /// Whether the sequences that were calibrated on were of one length, where
    /// it is known.
    pub fn lengths(&self) -> Option<Lengths> {
        self.0.lengths
    }

    /// Records whether the sequences were of one length.
    pub fn with_lengths(mut self, lengths: Lengths) -> Self {
        self.0.lengths = Some(lengths);
        self
    }

    /// How many class probabilities a step had while calibrating, where it is
    /// known; those of a live stream must be as many.
    pub fn classes(&self) -> Option<usize> {
        self.0.classes
    }

    /// Records how many class probabilities a step had.
    pub fn with_classes(mut self, classes: Option<usize>) -> Self {
        self.0.classes = classes;
        self
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

    /// The grid that thresholds were chosen from; `adaptive` has none.
    pub fn grid(&self) -> Option<&Grid> {
        self.0.grid_step.as_ref()
    }

    /// How the score of a live stream is to be computed.
    pub fn source(&self) -> &ScoreSource {
        &self.0.score
    }

    /// What the certifying traces say about the rule.
    pub fn expected(&self) -> Option<Expected> {
        self.0.expected
    }

    /// The traces that the score, or the candidates, were fitted to.
    pub fn fitted_on(&self) -> Option<SetRecord> {
        self.0.fitted_on
    }

    /// Records the traces that a learned score was fitted to.
    pub fn with_fitted_on(mut self, set: SetRecord) -> Self {
        self.0.fitted_on = Some(set);
        self
    }

    /// The traces that screened.
    pub fn screened_on(&self) -> Option<SetRecord> {
        self.0.screened_on
    }

    /// The traces that certified.
    pub fn certified_on(&self) -> Option<SetRecord> {
        self.0.certified_on
    }

    /// How they were split from one set, if they were.
    pub fn split(&self) -> Option<Split> {
        self.0.split
    }

    /// Records how the sets were split from one.
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

    /// The families whose tests follow each other in the trail; none where the
    /// whole trail is one.
    pub fn families(&self) -> &[FamilyRecord] {
        &self.0.families
    }

    /// Each family with its tests, which follow each other in the trail.
    pub fn tests_by_family(&self) -> impl Iterator<Item = (&FamilyRecord, &[Test])> {
        let mut left = self.trail();
        self.families().iter().map(move |family| {
            let (tests, rest) = left.split_at(family.tests.min(left.len()));
            left = rest;
            (family, tests)
        })
    }

    /// The test, in the trail, of the rule that was chosen; `None` if none
    /// passed.
    pub fn chosen(&self) -> Option<&Test> {
        match self.0.chosen {
            Some(place) => self.0.trail.get(place.checked_sub(1)?),
            None if self.0.families.is_empty() => {
                self.0.trail.iter().rev().find(|test| test.rejected)
            }
            None => None,
        }
    }

    /// Whether the rule ever halts a sequence of up to `t_max` steps before its end.
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
        let fitted = match &self.score {
            ScoreSource::Gap(score) => Some(score.classes()).filter(|&k| k > 0),
            _ => None,
        };
        let known = self.classes.or(fitted);
        if known == Some(0) || fitted.is_some() && known != fitted {
            return Some("its score was fitted to another number of classes".into());
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
        if let Some(what) = self.excess() {
            return Some(what);
        }
        if self.method == Method::Adaptive {
            return self.adaptive_contradiction();
        }
        if !self.families.is_empty() || self.chosen.is_some() {
            return Some("families, but its method has none".into());
        }
        let sequences = self.certified_on.map_or(0, |set| set.sequences);
        if let Some(what) = self.family_contradiction(0, &self.trail, sequences, 1.0) {
            return Some(what);
        }
        let expected = match self.method {
            Method::Marginal => self.marginal_thresholds(),
            _ => self.walked_thresholds(),
        };
        (expected.as_deref() != Some(self.thresholds.values()))
            .then(|| "its thresholds are not those of the tests that passed".into())
    }

    /// More tests, or more work to recompute their p-values, than any calibration
    /// leaves behind: a file may ask for minutes of it.
    fn excess(&self) -> Option<String> {
        let most = match (self.method, &self.grid_step) {
            (Method::Adaptive, _) => MOST_ADAPTIVE_TESTS,
            (Method::Marginal, Some(grid)) => grid.thresholds().len(),
            _ => self.t_max,
        };
        let tests = self.trail.len();
        if tests > most {
            return Some(format!(
                "{tests} tests, where its method makes {most} at the most"
            ));
        }
        let work: f64 = self.trail.iter().map(|test| tail_cost(test.halted)).sum();
        (work > MOST_WORK).then(|| {
            format!(
                "to recompute its {tests} p-values takes {work:.0e} operations, and more than \
                 {MOST_WORK:.0e} are not made"
            )
        })
    }

    /// Tests that stand in the trail behind so many others, each at its share
    /// of δ, on so many sequences, until one failed.
    fn family_contradiction(
        &self,
        before: usize,
        tests: &[Test],
        sequences: u64,
        share: f64,
    ) -> Option<String> {
        let level = self.delta.get() * share;
        for (i, test) in tests.iter().enumerate() {
            if let Some(what) = self.test_contradiction(test, sequences, level) {
                return Some(format!("test {} of the trail {what}", before + i + 1));
            }
        }
        let failures = tests.iter().filter(|test| !test.rejected).count();
        let goes_on = failures > 1 || failures == 1 && tests.last().is_some_and(|t| t.rejected);
        goes_on.then(|| "the trail goes on after a test that failed".into())
    }

    fn adaptive_contradiction(&self) -> Option<String> {
        if self.fitted_on.is_none() {
            return Some("no traces that its candidates were fitted to".into());
        }
        if !spend_delta(self.families.iter().map(|family| family.share)) {
            return Some("the families spend more than delta".into());
        }
        let sequences = |set: Option<SetRecord>| set.map_or(0, |set| set.sequences);
        let (certified, fitted) = (sequences(self.certified_on), sequences(self.fitted_on));
        let mut place = 0_usize;
        for family in &self.families {
            let with_fitted = family.kind == FamilyKind::Clock
                && self.split.is_some_and(|split| split.fit_fraction.is_some());
            let on_both = certified.saturating_add(fitted);
            if family.sequences != certified && !(with_fitted && family.sequences == on_both) {
                return Some("a family was tested on traces that are not on record".into());
            }
            let end = place.saturating_add(family.tests);
            let Some(tests) = self.trail.get(place..end) else {
                return Some("its families have more tests than the trail".into());
            };
            let found = self.family_contradiction(place, tests, family.sequences, family.share);
            if found.is_some() {
                return found;
            }
            place = end;
        }
        if place != self.trail.len() {
            return Some("its families have fewer tests than the trail".into());
        }
        let thresholds = self.thresholds.values();
        let agrees = match self.chosen {
            None => thresholds.iter().all(|&v| v == f32::INFINITY),
            Some(chosen) => chosen
                .checked_sub(1)
                .and_then(|place| self.trail.get(place))
                .is_some_and(|test| {
                    let opens = self.thresholds.opens();
                    test.rejected
                        && opens.map(|t| t + 1) == Some(test.opens)
                        && opens.map(|t| thresholds[t]) == test.threshold
                }),
        };
        if !agrees {
            return Some("its thresholds are not those of a test that passed".into());
        }
        (self.seal != Some(self.digest()))
            .then(|| "its score or its thresholds are not those that were certified".into())
    }

    /// The digest of score and thresholds. It guards against mix-ups, not
    /// against forgery.
    pub(crate) fn digest(&self) -> Fingerprint {
        let mut bytes = format!("{:?}", self.score).into_bytes();
        let thresholds = self.thresholds.values().iter();
        bytes.extend(thresholds.flat_map(|value| value.to_le_bytes()));
        Fingerprint::of(&bytes)
    }

    /// The thresholds that a walk down the grid ends with; `None` where the
    /// trail is no such walk.
    fn marginal_thresholds(&self) -> Option<Vec<f32>> {
        let grid = self.grid_step.as_ref()?.thresholds().iter().rev();
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

    fn test_contradiction(&self, test: &Test, sequences: u64, level: f64) -> Option<&'static str> {
        let steps = 1..=self.t_max;
        if !steps.contains(&test.opens) || !steps.contains(&test.step) || test.step < test.opens {
            return Some("names a step that does not exist or was not tested");
        }
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
        (test.rejected != (test.p_value <= level))
            .then_some("has a verdict that does not follow from its p-value")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A stored rule with so many tests, each on so many sequences.
    fn stored(method: &str, t_max: usize, tests: usize, halted: u64) -> Value {
        let test = |i: usize| {
            json!({
                "opens": t_max.saturating_sub(i).max(1), "threshold": 0.5, "step": t_max,
                "halted": halted, "gaps": halted / 10, "p_value": 0.5, "rejected": false,
            })
        };
        let promise = if method == "marginal" {
            "marginal"
        } else {
            "conditional"
        };
        let fingerprint = Fingerprint::default();
        json!({
            "method": method, "promise": promise, "alpha": 0.1, "delta": 0.01,
            "grid_step": 0.01, "score": "confidence", "t_max": t_max,
            "thresholds": vec![0.5; t_max], "expected": null,
            "fitted_on": {"sequences": 10, "fingerprint": fingerprint}, "screened_on": null,
            "certified_on": {"sequences": MOST_SEQUENCES, "fingerprint": fingerprint},
            "split": null, "trail": (0..tests).map(test).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn a_trail_that_would_take_minutes_to_check_is_refused_before() {
        for (method, t_max, tests, halted, expected) in [
            (
                "conditional",
                3,
                4,
                1 << 20,
                "4 tests, where its method makes 3 at the most",
            ),
            (
                "marginal",
                3,
                102,
                1 << 20,
                "102 tests, where its method makes 101 at the most",
            ),
            (
                "adaptive",
                3,
                100_001,
                1,
                "where its method makes 100000 at the most",
            ),
            (
                "conditional",
                20_000,
                20_000,
                MOST_SEQUENCES,
                "takes 2e11 operations",
            ),
            ("marginal", 3, 101, u64::MAX, "takes 4e12 operations"),
            ("adaptive", 3, 50_000, 1 << 36, "takes 1e11 operations"),
        ] {
            let refused = serde_json::from_value::<Rule>(stored(method, t_max, tests, halted));
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn ten_thousand_tests_on_a_billion_sequences_are_not_too_many() {
        for method in ["conditional", "adaptive"] {
            let record = stored(method, 10_000, 10_000, 1_000_000_000);
            let record: Record = serde_json::from_value(record).unwrap();
            assert_eq!(record.excess(), None);
        }
    }

    #[test]
    fn files_that_do_not_say_how_long_sequences_were_halt_at_the_last_step() {
        let mut stored = stored("screen-only", 3, 0, 0);
        stored["promise"] = Value::Null;
        let rule: Rule = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(
            (rule.lengths(), rule.classes(), rule.reads_on()),
            (None, None, false)
        );
        let written = serde_json::to_value(&rule).unwrap();
        assert!(written.get("lengths").is_none() && written.get("classes").is_none());
        let rule = rule.with_lengths(Lengths::Unequal).with_classes(Some(3));
        let written = serde_json::to_value(&rule).unwrap();
        assert_eq!(
            (&written["lengths"], &written["classes"]),
            (&json!("unequal"), &json!(3))
        );
        assert_eq!(serde_json::from_value::<Rule>(written).unwrap(), rule);
    }

    #[test]
    fn a_score_fitted_to_other_classes_than_the_rule_has_is_refused() {
        let mut stored = stored("screen-only", 3, 0, 0);
        stored["promise"] = Value::Null;
        stored["score"] = json!({"gap": {
            "uses_score": false, "classes": 3, "t_max": 3, "weights": vec![0.0; 26], "intercept": 0.0,
        }});
        for (classes, sound) in [
            (Value::Null, true),
            (json!(3), true),
            (json!(4), false),
            (json!(0), false),
        ] {
            stored["classes"] = classes.clone();
            let rule = serde_json::from_value::<Rule>(stored.clone());
            assert_eq!(rule.is_ok(), sound, "{classes}: {rule:?}");
        }
    }
}
