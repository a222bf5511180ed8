//! Rules: when to halt, and everything needed to audit why.

use serde::{Deserialize, Serialize};

use crate::data::identity::{Classifier, Fingerprint, Key, Met, SetSummary, Sketch, Sketched};
use crate::data::score::ScoreSource;
use crate::data::terms::{Admission, LABEL, Terms};
use crate::numbers::alpha_delta::{Alpha, Delta};
use crate::numbers::counts::Counts;
use crate::numbers::grid::Grid;
mod audit;

pub use crate::numbers::thresholds::{ThresholdError, Thresholds};
use crate::plan::{Method, Purpose, ScreenBy, Split};
use crate::tables::candidates::AtNever;
pub use crate::tables::candidates::FamilyKind;
pub use crate::testing::betting::Profile;
pub use crate::testing::fixed_sequence::{Labelled, Promise, Proof, Test, halted_needed};

/// A family of candidates that was tested at its own share of δ.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestedFamily {
    /// The kind of rules in it.
    pub kind: FamilyKind,
    /// Its share of δ.
    pub share: f64,
    /// The number of sequences it was tested on.
    pub sequences: u64,
    /// How many of its candidates were tested; each is one entry of the trail.
    pub tests: usize,
    /// The group that they were tested for alone, counted from 0 in the rule's list; `None`
    /// if they were tested for all groups together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
}

/// The tests of a rule for each group alone.
#[derive(Debug, Clone, PartialEq)]
pub struct TestedAlone<'r> {
    /// The place of the rule among the tests of each group's family, counted from 0.
    pub candidate: usize,
    /// The family of each group with its tests, in the order of [`Rule::groups`].
    pub families: Vec<(&'r TestedFamily, &'r [Test])>,
}

/// What the certifying traces say about a rule: estimates, not promises.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// The share of sequences with a gap; for other losses, their mean.
    pub gap: f64,
    /// The mean cost of a sequence, if costs were given, as far as the halt step determines
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Expected {
    /// Estimates it from what halted at each step, and from the cost up to each step.
    pub(crate) fn of(halted_at: &[Counts], costs: Option<&[f64]>) -> Self {
        let (mut total, mut steps, mut spent) = (Counts::default(), 0.0, 0.0);
        for (t, &counts) in halted_at.iter().enumerate() {
            total += counts;
            steps += (t + 1) as f64 * counts.halted as f64;
            spent += costs.map_or(0.0, |costs| costs[t]) * counts.halted as f64;
        }
        Self {
            t_avg: steps / total.halted as f64 / halted_at.len() as f64,
            gap: total.gap().unwrap_or(0.0),
            cost: costs.map(|_| spent / total.halted as f64),
        }
    }

    /// Whether a rule may be chosen before another: by the cost, or else the halt time; if
    /// these are equal, by the loss.
    pub(crate) fn is_no_worse(&self, other: &Self) -> bool {
        let price = |of: &Self| (of.cost.unwrap_or(of.t_avg), of.gap);
        price(self) <= price(other)
    }
}

/// The lengths of the sequences that a rule was calibrated on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// All had the same number of steps, so a stream ends there.
    Equal,
    /// Some were shorter than others, so a stream may be longer than any of them.
    Unequal,
}

/// A stopping rule with the record of how it was made.
///
/// A rule is made by certifying a [`Proposal`](crate::Proposal), or read back from storage.
/// It is never assembled by hand, so you can rely on its [`promise`](Self::promise).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RuleRecord", into = "RuleRecord")]
pub struct Rule(RuleRecord);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleRecord {
    pub(crate) method: Method,
    pub(crate) promise: Option<Promise>,
    #[serde(default, skip_serializing_if = "Purpose::is_use")]
    pub(crate) purpose: Purpose,
    #[serde(default, skip_serializing_if = "Terms::is_default")]
    pub(crate) terms: Terms,
    /// The groups that the promise holds for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// The groups that it halts, if not all of them: the others are read to their ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) halts_in: Option<Vec<String>>,
    /// How the p-values were computed.
    #[serde(default, skip_serializing_if = "Proof::is_binomial")]
    pub(crate) proof: Proof,
    pub(crate) alpha: Alpha,
    pub(crate) delta: Delta,
    /// The looks at the evidence, if more than one was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looks: Option<Looks>,
    /// The grid that the paper's methods choose thresholds from; `adaptive` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) grid_step: Option<Grid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) at_never: Option<AtNever>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) screen_by: Option<ScreenBy>,
    pub(crate) score: ScoreSource,
    pub(crate) t_max: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lengths: Option<Lengths>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classes: Option<usize>,
    pub(crate) thresholds: Thresholds,
    pub(crate) expected: Option<Expected>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) late_accuracy: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fitted_on: Option<SetSummary>,
    pub(crate) screened_on: Option<SetSummary>,
    pub(crate) certified_on: Option<SetSummary>,
    pub(crate) split: Option<Split>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classifier: Option<Classifier>,
    /// The names of the classes, in the order of the probabilities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class_names: Option<Vec<String>>,
    /// The families; their tests follow each other in the trail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) families: Vec<TestedFamily>,
    /// The place in the trail, counted from 1, of the rule that was chosen among all that
    /// passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chosen: Option<usize>,
    /// The digest of score and thresholds, because the trail has only some of their
    /// numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seal: Option<Fingerprint>,
    /// A sample of the sequences that the rule was made from.
    #[serde(default, skip_serializing_if = "Sketched::is_empty")]
    pub(crate) sketch: Sketched,
    /// The share of that sample that chance repeats in another set of the same size.
    #[serde(default, skip_serializing_if = "is_zero_share")]
    pub(crate) sketch_by_chance: f64,
    pub(crate) trail: Vec<Test>,
}

/// Looks at evidence while it grows.
///
/// At each planned look, all evidence so far is tested at a share of δ: 0.7 at the last,
/// equal parts of the rest before. The probability that a promise made at any of them fails
/// is δ at most (union bound), so the rule of the last look may be used, whatever the
/// earlier looks said. Which look is due depends on the number of sequences alone, which
/// says nothing about losses. This needs each look to be made once: the same look on other
/// evidence is another test, at a level that was not spent on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Looks {
    /// After how many sequences each look was planned, including those set aside.
    pub planned: Vec<u64>,
    /// Which look this is, counted from 1.
    pub made: usize,
    /// How many sequences there were.
    pub sequences: u64,
}

impl Looks {
    /// The look that is due; `None` if none are planned.
    pub(crate) fn of(planned: &[u64], sequences: u64) -> Option<Self> {
        (!planned.is_empty()).then(|| Self {
            planned: planned.to_vec(),
            made: planned.partition_point(|&look| look <= sequences),
            sequences,
        })
    }

    fn is_sound(&self) -> bool {
        let due = Self::of(&self.planned, self.sequences);
        due.as_ref() == Some(self) && self.made > 0 && self.planned.is_sorted_by(|a, b| a < b)
    }
}

fn is_zero_share(share: &f64) -> bool {
    *share == 0.0
}

/// What speaks against replacing a rule by another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conflict {
    /// Some of its traces tested the other rule at the same settings, or chose its settings.
    TestedBefore,
    /// Some of its traces tested the other rule at other settings. Each promise holds for itself,
    /// but not for the better of the two.
    OtherSettings,
    /// The other rule promises something, and this one does not.
    LosesPromise,
}

/// Why a stored rule cannot be trusted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("the rule contradicts itself: {0}")]
pub struct RuleError(String);

impl Rule {
    /// How many of the sequences that it was made from a rule [remembers](Self::remembers).
    pub const REMEMBERED: usize = Sketch::OF_A_RULE;

    pub(crate) fn from_record(record: RuleRecord) -> Self {
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

    /// What happens to a sequence that is longer than `t_max`. If true, it is read to its
    /// end, because past `t_max` the rule never halts. The rule was certified that way, so
    /// the promise holds for sequences of any length. If false, the sequence halts at
    /// `t_max`, because all calibration sequences ended there, or because the rule does not
    /// say whether they did. The promise is then about sequences of up to `t_max` steps.
    pub fn reads_on(&self) -> bool {
        self.0.lengths == Some(Lengths::Unequal)
    }

    /// Whether the calibration sequences were of one length, if known.
    pub fn lengths(&self) -> Option<Lengths> {
        self.0.lengths
    }

    /// How many class probabilities a step had in calibration, if known; a live stream must
    /// have the same number.
    pub fn classes(&self) -> Option<usize> {
        self.0.classes
    }

    /// How the rule was found.
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// The promise, which holds with probability 1 − δ; `None` if the rule was only
    /// screened, or was made to explore.
    pub fn promise(&self) -> Option<Promise> {
        self.0.promise.filter(|_| self.0.purpose.is_use())
    }

    /// What the rule is for.
    pub fn purpose(&self) -> Purpose {
        self.0.purpose
    }

    /// Whether it promises something and halts some sequence before its end.
    pub fn is_certified(&self) -> bool {
        self.promise().is_some() && self.halts_early()
    }

    /// What the promise is about, and which sequences it covers.
    pub fn terms(&self) -> &Terms {
        &self.0.terms
    }

    /// The groups that the promise holds for; none if it is for all together.
    pub fn groups(&self) -> &[String] {
        &self.0.groups
    }

    /// The groups that it halts, if not all of those that the promise holds for. The others
    /// are read to their ends, where nothing is lost.
    pub fn halts_in(&self) -> Option<&[String]> {
        self.0.halts_in.as_deref()
    }

    /// The groups that it halts; none if the promise is not by group. If it is by true class,
    /// there are none either: the class of a live stream is known late or never.
    pub fn halting_groups(&self) -> &[String] {
        match self.0.terms.by.as_deref() {
            Some(LABEL) | None => &[],
            Some(_) => self.halts_in().unwrap_or(&self.0.groups),
        }
    }

    /// How the p-values were computed.
    pub fn proof(&self) -> &Proof {
        &self.0.proof
    }

    /// How sequences are admitted, with the seed that weights draw by.
    pub(crate) fn admission(&self) -> Admission<'_> {
        Admission {
            terms: &self.0.terms,
            seed: self.0.split.map_or(0, |split| split.seed),
        }
    }

    /// The tolerated gap.
    pub fn alpha(&self) -> Alpha {
        self.0.alpha
    }

    /// The probability with which the promise may fail at the look that the rule is from; δ
    /// if only one was planned.
    pub fn level(&self) -> Delta {
        self.0.level()
    }

    /// The look at the evidence that the rule is from, if more than one was planned.
    pub fn looks(&self) -> Option<&Looks> {
        self.0.looks.as_ref()
    }

    /// The probability with which the promise may fail.
    pub fn delta(&self) -> Delta {
        self.0.delta
    }

    /// The grid that thresholds were chosen from; `adaptive` has none.
    pub fn grid(&self) -> Option<&Grid> {
        self.0.grid_step.as_ref()
    }

    /// How to compute the score of a live stream.
    pub fn source(&self) -> &ScoreSource {
        &self.0.score
    }

    /// What the certifying traces say about the rule.
    pub fn expected(&self) -> Option<Expected> {
        self.0.expected
    }

    /// The accuracy of the full predictions, on the certifying traces.
    pub fn late_accuracy(&self) -> Option<f64> {
        self.0.late_accuracy
    }

    /// Whether a sequence with this fingerprint is known to be among those that the rule
    /// was made from. The rule remembers a sample, so a few sequences may pass unnoticed,
    /// but not many.
    pub fn remembers(&self, fingerprint: Fingerprint) -> bool {
        let nobody = Key::new(None, 0);
        self.0.sketch.meet(nobody, fingerprint, false) != Met::No
    }

    /// How many sequences of another set of this size the rule may remember by chance: three
    /// standard deviations more than are expected.
    pub fn remembered_by_chance(&self, sequences: u64) -> u64 {
        let size = sequences as f64 / self.made_from_all().sequences.max(1) as f64;
        let expected = self.0.sketch_by_chance * self.0.sketch.len() as f64 * size;
        (expected + 3.0 * expected.sqrt()) as u64
    }

    /// What speaks against replacing an earlier rule by this one.
    ///
    /// Nothing does if the two are the same, if this one is from a later planned look, or if it was
    /// made from other traces. Any other replacement chooses between rules that the same traces
    /// tested, so δ is spent twice.
    pub fn conflict(&self, before: &Self) -> Option<Conflict> {
        let (new, old) = (&self.0, &before.0);
        if new == old {
            return None;
        }
        if self.promise().is_none() {
            return before.promise().map(|_| Conflict::LosesPromise);
        }
        old.promise?;
        let later = match (&new.looks, &old.looks) {
            (Some(new), Some(old)) => new.planned == old.planned && new.made > old.made,
            _ => false,
        };
        let of_same_set = self.made_from_all() == before.made_from_all();
        let by_chance = 0.03 + 2.0 * new.sketch_by_chance;
        let shares = of_same_set || new.sketch.shared(&old.sketch) > by_chance;
        if later || !shares {
            return None;
        }
        let settings =
            |record: &RuleRecord| (record.method, record.promise, record.alpha, record.delta);
        // With other fitting traces, the set differs, but not the sample of what was tested.
        let grew = !of_same_set && new.sketch != old.sketch;
        let looks_again = grew && settings(new) == settings(old) && new.terms == old.terms;
        let chosen_on_them = before.purpose() == Purpose::Explore;
        Some(if looks_again || chosen_on_them {
            Conflict::TestedBefore
        } else {
            Conflict::OtherSettings
        })
    }

    /// All sequences that the rule was made from.
    fn made_from_all(&self) -> SetSummary {
        let parts = [self.fitted_on(), self.screened_on(), self.certified_on()];
        parts.into_iter().flatten().sum()
    }

    /// Whether these are exactly the sequences that the rule was made from, or one of the
    /// parts that they were split into.
    pub fn made_from(&self, set: SetSummary) -> bool {
        let parts = [self.fitted_on(), self.screened_on(), self.certified_on()];
        set == self.made_from_all() || parts.contains(&Some(set))
    }

    /// The traces that the score, or the candidates, were fitted to.
    pub fn fitted_on(&self) -> Option<SetSummary> {
        self.0.fitted_on
    }

    /// The traces that screened.
    pub fn screened_on(&self) -> Option<SetSummary> {
        self.0.screened_on
    }

    /// The traces that certified.
    pub fn certified_on(&self) -> Option<SetSummary> {
        self.0.certified_on
    }

    /// How they were split from one set, if they were.
    pub fn split(&self) -> Option<Split> {
        self.0.split
    }

    /// The classifier whose traces the rule was made from, if known.
    pub fn classifier(&self) -> Option<&Classifier> {
        self.0.classifier.as_ref()
    }

    /// The names of the classes, in the order of the probabilities, if they were given.
    pub fn class_names(&self) -> Option<&[String]> {
        self.0.class_names.as_deref()
    }

    /// Every test that was made.
    pub fn trail(&self) -> &[Test] {
        &self.0.trail
    }

    /// The families whose tests follow each other in the trail.
    pub fn families(&self) -> &[TestedFamily] {
        &self.0.families
    }

    /// Each family with its tests, which follow each other in the trail.
    pub fn tests_by_family(&self) -> impl Iterator<Item = (&TestedFamily, &[Test])> {
        let mut left = self.trail();
        self.families().iter().map(move |family| {
            let (tests, rest) = left.split_at(family.tests.min(left.len()));
            left = rest;
            (family, tests)
        })
    }

    /// Where the rule was tested for each group alone; `None` if it was tested for all groups
    /// at once.
    pub fn tested_alone(&self) -> Option<TestedAlone<'_>> {
        self.0.tested_alone()
    }

    /// The family of the rule that was chosen.
    pub fn chosen_family(&self) -> Option<&TestedFamily> {
        let chosen = self.chosen()?;
        let made_it = |tests: &[Test]| tests.iter().any(|test| std::ptr::eq(test, chosen));
        let mut families = self.tests_by_family();
        Some(families.find(|(_, tests)| made_it(tests))?.0)
    }

    /// The test of the chosen rule in the trail; `None` if none passed.
    pub fn chosen(&self) -> Option<&Test> {
        self.0.trail.get(self.0.chosen?.checked_sub(1)?)
    }

    /// Whether the rule ever halts a sequence of up to `t_max` steps before its end.
    pub fn halts_early(&self) -> bool {
        self.0.thresholds.halt_early()
    }
}

impl TryFrom<RuleRecord> for Rule {
    type Error = RuleError;

    /// Checks what can be checked without the traces: that every p-value
    /// follows from its counts, that the tests were made in the method's order
    /// until one failed, and that the thresholds are those the tests certified.
    fn try_from(record: RuleRecord) -> Result<Self, RuleError> {
        match record.contradiction() {
            None => Ok(Self(record)),
            Some(what) => Err(RuleError(what)),
        }
    }
}

impl From<Rule> for RuleRecord {
    fn from(rule: Rule) -> Self {
        rule.0
    }
}

#[cfg(test)]
impl Rule {
    pub(crate) fn with_lengths(mut self, lengths: Lengths) -> Self {
        self.0.lengths = Some(lengths);
        self
    }

    pub(crate) fn with_classes(mut self, classes: Option<usize>) -> Self {
        self.0.classes = classes;
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::tables::table::MOST_SEQUENCES;

    /// A stored rule with this many tests, each on this many sequences.
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
            let record: RuleRecord = serde_json::from_value(record).unwrap();
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
