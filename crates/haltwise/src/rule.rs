//! Rules: when to halt, and everything needed to audit why.

use serde::{Deserialize, Serialize};

pub use crate::bets::Profile;
pub use crate::candidates::FamilyKind;
use crate::candidates::{AtNever, spend_delta};
use crate::certify::Judge;
pub use crate::certify::{Labelled, Promise, Proof, Test, halted_needed};
use crate::counts::Counts;
use crate::grid::Grid;
use crate::identity::{Classifier, Fingerprint, Key, Met, SetRecord, Sketch, Sketched};
use crate::level::{Alpha, Delta};
use crate::plan::{Method, Split};
use crate::pvalue::tail_cost;
use crate::score::ScoreSource;
use crate::screen::ScreenBy;
use crate::table::MOST_SEQUENCES;
use crate::terms::{Admission, Terms};
pub use crate::thresholds::{ThresholdError, Thresholds};

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
    /// How many of its candidates were tested: as many entries of the trail.
    pub tests: usize,
}

/// What the certifying traces say about a rule: estimates, not promises.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// The share of sequences with a gap; of other losses, their mean.
    pub gap: f64,
    /// The mean cost of a sequence, where costs were given, as far as it follows
    /// from the halt step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

impl Expected {
    /// What a rule did to those who halted at each step, and what has been spent
    /// by each.
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

    /// Whether a rule may be chosen before another: by the cost, or else the halt time;
    /// where that is the same, by what is lost.
    pub(crate) fn is_no_worse(&self, other: &Self) -> bool {
        let price = |of: &Self| (of.cost.unwrap_or(of.t_avg), of.gap);
        price(self) <= price(other)
    }
}

/// How long the sequences were that a rule was calibrated on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lengths {
    /// All had as many steps, so that a stream is over there.
    Equal,
    /// Some were shorter than others, so that a stream may be longer than any of
    /// them.
    Unequal,
}

/// A stopping rule with the record of how it came about.
///
/// Made by certifying a [`Proposal`](crate::Proposal), or read back from where
/// it was stored; never assembled by hand, so that [`promise`](Self::promise) can
/// be relied on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Rule(Record);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(crate) method: Method,
    pub(crate) promise: Option<Promise>,
    #[serde(default, skip_serializing_if = "Terms::is_usual")]
    pub(crate) terms: Terms,
    /// The groups that the promise holds for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// How the p-values came about.
    #[serde(default, skip_serializing_if = "Proof::is_usual")]
    pub(crate) proof: Proof,
    pub(crate) alpha: Alpha,
    pub(crate) delta: Delta,
    /// The looks at the evidence, where more than one was planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) looks: Option<Looks>,
    /// What the paper's methods choose thresholds from; `adaptive` has none.
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
    pub(crate) fitted_on: Option<SetRecord>,
    pub(crate) screened_on: Option<SetRecord>,
    pub(crate) certified_on: Option<SetRecord>,
    pub(crate) split: Option<Split>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) classifier: Option<Classifier>,
    /// The families, whose tests follow each other in the trail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) families: Vec<FamilyRecord>,
    /// The place in the trail, counted from 1, of the rule that was chosen among
    /// all that passed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) chosen: Option<usize>,
    /// The digest of score and thresholds, of which the trail has but some
    /// numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seal: Option<Fingerprint>,
    /// A sample of the sequences that the rule was made from.
    #[serde(default, skip_serializing_if = "Sketched::is_empty")]
    pub(crate) sketch: Sketched,
    pub(crate) trail: Vec<Test>,
}

/// Looks at evidence while it grows.
///
/// At each of K looks that were planned, all evidence so far is tested at δ/K.
/// Whatever is promised at any of them fails with probability δ at the most (union
/// bound), so the rule of the last look made may be used, whatever the ones before
/// it said. That needs each look to be made once: the same one again on other
/// evidence is another test, at a level that was not spent on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Looks {
    /// After how many sequences, those set aside among them, each was planned.
    pub planned: Vec<u64>,
    /// Which one this is, counted from 1.
    pub made: usize,
    /// How many sequences there were.
    pub sequences: u64,
}

impl Looks {
    /// The look that is due; `None` where none are planned.
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
    /// How many of the sequences that it was made from a rule
    /// [remembers](Self::remembers).
    pub const REMEMBERED: usize = Sketch::OF_A_RULE;

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

    /// How many class probabilities a step had while calibrating, where it is
    /// known; those of a live stream must be as many.
    pub fn classes(&self) -> Option<usize> {
        self.0.classes
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

    /// What the promise is about, and for whom it holds.
    pub fn terms(&self) -> &Terms {
        &self.0.terms
    }

    /// The groups that it holds for; none where it is for all together.
    pub fn groups(&self) -> &[String] {
        &self.0.groups
    }

    /// How the p-values came about.
    pub fn proof(&self) -> &Proof {
        &self.0.proof
    }

    /// The seed that weights draw by.
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

    /// The probability with which the promise may fail at one look; δ where one was
    /// planned.
    pub fn level(&self) -> Delta {
        self.0.level()
    }

    /// Which look at the evidence it is from, where more than one was planned.
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

    /// How the score of a live stream is to be computed.
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

    /// Whether a sequence of this fingerprint is known to be among those that
    /// the rule was made from. A sample of them is remembered, so that a few
    /// sequences may pass unnoticed, but not many.
    pub fn remembers(&self, fingerprint: Fingerprint) -> bool {
        let nobody = Key::new(None, 0);
        self.0.sketch.meet(nobody, fingerprint, false) != Met::No
    }

    /// Whether this rule, in the place of one before it, would be another look at the
    /// sequences of that one, together with others, that was not planned: then δ is
    /// spent twice.
    pub fn looks_again(&self, before: &Self) -> bool {
        let (new, old) = (&self.0, &before.0);
        let asked = |record: &Record| (record.method, record.promise, record.alpha, record.delta);
        let same = asked(new) == asked(old) && new.terms == old.terms && new.promise.is_some();
        let later = match (&new.looks, &old.looks) {
            (Some(new), Some(old)) => new.planned == old.planned && new.made > old.made,
            _ => false,
        };
        same && !later && new.sketch != old.sketch && new.sketch.shared(&old.sketch) > 0.03
    }

    /// Whether these are the very sequences that the rule was made from, or a
    /// part that they were split into.
    pub fn made_from(&self, set: SetRecord) -> bool {
        let parts = [self.fitted_on(), self.screened_on(), self.certified_on()];
        let all: SetRecord = parts.into_iter().flatten().sum();
        set == all || parts.contains(&Some(set))
    }

    /// The traces that the score, or the candidates, were fitted to.
    pub fn fitted_on(&self) -> Option<SetRecord> {
        self.0.fitted_on
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

    /// The classifier whose traces the rule was made from, where it is known.
    pub fn classifier(&self) -> Option<&Classifier> {
        self.0.classifier.as_ref()
    }

    /// Every test that was made.
    pub fn trail(&self) -> &[Test] {
        &self.0.trail
    }

    /// The families whose tests follow each other in the trail.
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

    /// The family of the rule that was chosen.
    pub fn chosen_family(&self) -> Option<&FamilyRecord> {
        let chosen = self.chosen()?;
        let made_it = |tests: &[Test]| tests.iter().any(|test| std::ptr::eq(test, chosen));
        let mut families = self.tests_by_family();
        Some(families.find(|(_, tests)| made_it(tests))?.0)
    }

    /// The test, in the trail, of the rule that was chosen; `None` if none
    /// passed.
    pub fn chosen(&self) -> Option<&Test> {
        self.0.trail.get(self.0.chosen?.checked_sub(1)?)
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
    fn try_from(mut record: Record) -> Result<Self, RuleError> {
        record.complete();
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
    /// Rules of the paper's methods were once stored without their one family.
    fn complete(&mut self) {
        let kind = match self.method {
            Method::Marginal => FamilyKind::OneThreshold,
            Method::Conditional => FamilyKind::Backward,
            Method::Adaptive | Method::ScreenOnly => return,
        };
        if !self.families.is_empty() || self.chosen.is_some() {
            return;
        }
        self.families.push(FamilyRecord {
            kind,
            share: 1.0,
            sequences: self.certified_on.map_or(0, |set| set.sequences),
            tests: self.trail.len(),
        });
        let passed = self.trail.iter().rposition(|test| test.rejected);
        self.chosen = passed.map(|c| c + 1);
    }

    /// The probability with which the promise may fail at one look.
    fn level(&self) -> Delta {
        let looks = self.looks.as_ref().map_or(0, |looks| looks.planned.len());
        self.delta.over(looks)
    }

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
        let either = self.method == Method::Adaptive && self.promise.is_some();
        if self.promise != self.method.promise() && !either {
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
        let adaptive = self.method == Method::Adaptive;
        if adaptive && self.fitted_on.is_none() {
            return Some("no traces that its candidates were fitted to".into());
        }
        let kind = |kind: FamilyKind| match self.method {
            Method::Marginal => kind == FamilyKind::OneThreshold,
            Method::Conditional => kind == FamilyKind::Backward,
            _ => !kind.is_nested(),
        };
        if !self.families.iter().all(|family| kind(family.kind))
            || !adaptive && self.families.len() != 1
        {
            return Some("its families are not those of its method".into());
        }
        if self.looks.as_ref().is_some_and(|looks| !looks.is_sound()) {
            return Some("a look at the evidence that was not planned".into());
        }
        if !self.proof.is_sound() {
            return Some("its tests spend more than their level".into());
        }
        if self.groups.is_empty() != self.terms.by.is_none() {
            return Some("groups, but no column that they are values of, or the reverse".into());
        }
        if !spend_delta(self.families.iter().map(|family| family.share)) {
            return Some("the families spend more than delta".into());
        }
        self.families_contradiction()
            .or_else(|| self.thresholds_contradiction())
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

    fn families_contradiction(&self) -> Option<String> {
        let sequences = |set: Option<SetRecord>| set.map_or(0, |set| set.sequences);
        let (certified, fitted) = (sequences(self.certified_on), sequences(self.fitted_on));
        let mut place = 0_usize;
        for family in &self.families {
            let with_fitted = family.kind.is_free()
                && self.split.is_some_and(|split| split.fit_fraction.is_some());
            // Of later sequences, too, some were set aside.
            let on_both = match &self.looks {
                Some(looks) => looks.sequences,
                None => certified.saturating_add(fitted),
            };
            if family.sequences != certified && !(with_fitted && family.sequences == on_both) {
                return Some("a family was tested on traces that are not on record".into());
            }
            let end = place.saturating_add(family.tests);
            let Some(tests) = self.trail.get(place..end) else {
                return Some("its families have more tests than the trail".into());
            };
            let found = self.family_contradiction(place, tests, family);
            if found.is_some() {
                return found;
            }
            place = end;
        }
        let fewer = place != self.trail.len();
        fewer.then(|| "its families have fewer tests than the trail".into())
    }

    /// Tests that stand in the trail behind this many others: each follows from its
    /// counts, at its share of δ, until one failed.
    fn family_contradiction(
        &self,
        before: usize,
        tests: &[Test],
        family: &FamilyRecord,
    ) -> Option<String> {
        let delta = self.level();
        let level = delta.get() * family.share;
        let proof = match family.kind.is_free() {
            true => self.proof.unlearned(),
            false => self.proof.clone(),
        };
        let judge = Judge::new(&proof, self.alpha, delta, family.sequences);
        for (i, test) in tests.iter().enumerate() {
            let found = self.test_contradiction(test, family.sequences, level, &judge);
            if let Some(what) = found {
                return Some(format!("test {} of the trail {what}", before + i + 1));
            }
        }
        let failures = tests.iter().filter(|test| !test.rejected).count();
        let goes_on = failures > 1 || failures == 1 && tests.last().is_some_and(|t| t.rejected);
        goes_on.then(|| "the trail goes on after a test that failed".into())
    }

    /// The thresholds must be those of a rule that passed.
    fn thresholds_contradiction(&self) -> Option<String> {
        let chosen = self.chosen.map(|place| place.checked_sub(1));
        let test = match chosen {
            None => None,
            Some(place) => match place.and_then(|place| self.trail.get(place)) {
                Some(test) if test.rejected => Some(test),
                _ => return Some("the rule that was chosen did not pass".into()),
            },
        };
        let thresholds = self.thresholds.values();
        let agrees = match (self.method, test) {
            (Method::Marginal, _) => self.marginal_thresholds().as_deref() == Some(thresholds),
            (Method::Conditional, _) => self.walked_thresholds().as_deref() == Some(thresholds),
            (_, None) => thresholds.iter().all(|&v| v == f32::INFINITY),
            (_, Some(test)) => {
                let opens = self.thresholds.opens();
                opens.map(|t| t + 1) == Some(test.opens)
                    && opens.map(|t| thresholds[t]) == test.threshold
            }
        };
        if !agrees {
            return Some("its thresholds are not those of the tests that passed".into());
        }
        // The trail of the paper's methods has every threshold, and once they
        // were stored without a seal.
        let sealed = match self.seal {
            Some(seal) => seal == self.digest() || seal == self.first_digest(),
            None => self.method != Method::Adaptive,
        };
        (!sealed).then(|| "its score or its thresholds are not those that were certified".into())
    }

    /// The digest of score and thresholds: the bytes of their numbers. It guards
    /// against mix-ups, not against forgery.
    pub(crate) fn digest(&self) -> Fingerprint {
        let mut bytes = Vec::new();
        self.score.write_bytes(&mut bytes);
        let thresholds = self.thresholds.values().iter();
        bytes.extend(thresholds.flat_map(|value| value.to_le_bytes()));
        Fingerprint::of(&bytes)
    }

    /// The same as the first version of the format had it: of the score as a
    /// text.
    fn first_digest(&self) -> Fingerprint {
        let mut bytes = self.score.first_text().into_bytes();
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

    fn test_contradiction(
        &self,
        test: &Test,
        sequences: u64,
        level: f64,
        judge: &Judge<'_>,
    ) -> Option<&'static str> {
        let steps = 1..=self.t_max;
        if !steps.contains(&test.opens) || !steps.contains(&test.step) || test.step < test.opens {
            return Some("names a step that does not exist or was not tested");
        }
        if !(test.gaps <= test.halted && test.halted <= sequences) {
            return Some("counts more sequences than there are");
        }
        if test.group.is_some_and(|group| group >= self.groups.len())
            || test.group.is_none() != self.groups.is_empty()
        {
            return Some("names a group that does not exist");
        }
        let found = test.found();
        let labelled = found.labelled;
        if !found.moments.are_possible()
            || labelled.gaps > labelled.disagreements
            || labelled.disagreements > labelled.halted
            || labelled.halted > test.halted
        {
            return Some("counts more than there is");
        }
        let p = judge.p_value(&found);
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
