//! The audit when a rule is read: whether its record contradicts itself.
//!
//! It checks what can be checked without the traces: that every p-value follows from its
//! counts, that the tests were made in the method's order until one failed, and that the
//! thresholds are those that the tests certified.

use super::{FamilyKind, RuleRecord, Test, TestedAlone, TestedFamily};
use crate::data::identity::{Fingerprint, SetSummary};
use crate::data::score::GapScore;
use crate::numbers::alpha_delta::Delta;
use crate::numbers::binomial::tail_cost;
use crate::plan::Method;
use crate::tables::candidates::spend_delta;
use crate::tables::table::MOST_SEQUENCES;
use crate::testing::fixed_sequence::Judge;

/// The most tests of `adaptive`: many times what it proposes for any number of steps.
const MOST_ADAPTIVE_TESTS: usize = 100_000;

/// The most operations spent on recomputing p-values: seconds, and enough for
/// 10,000 tests on 10⁹ sequences each.
const MOST_WORK: f64 = 4e9;

impl RuleRecord {
    /// The probability with which the promise may fail at its look.
    pub(super) fn level(&self) -> Delta {
        let looks = self.looks.as_ref();
        let (made, planned) = looks.map_or((0, 0), |looks| (looks.made, looks.planned.len()));
        self.delta.at_look(made, planned)
    }

    pub(super) fn contradiction(&self) -> Option<String> {
        if self.thresholds.t_max() != self.t_max {
            let found = self.thresholds.t_max();
            return Some(format!("{found} thresholds for t_max {}", self.t_max));
        }
        let fitted = self.score.learned().map(GapScore::classes);
        let fitted = fitted.filter(|&k| k > 0);
        let known = self.classes.or(fitted);
        if known == Some(0) || fitted.is_some() && known != fitted {
            return Some("its score was fitted to another number of classes".into());
        }
        let either = self.method == Method::Adaptive && self.promise.is_some();
        if self.promise != self.method.promise() && !either {
            return Some("its method does not give the promise it states".into());
        }
        if !(0.0..=1.0).contains(&self.sketch_by_chance) {
            return Some("a share of its sample that is none".into());
        }
        if self.promise.is_none() {
            let tested = !self.trail.is_empty() || self.halts_in.is_some();
            return tested.then(|| "tests, but no promise".into());
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
        let kind = |kind: FamilyKind| match self.method.family() {
            Some(own) => kind == own,
            None => !kind.is_nested(),
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
            .or_else(|| {
                let what = "it halts other groups than those for which it passed";
                self.halts_others().then(|| what.to_owned())
            })
    }

    /// Refuses more tests, or more work to recompute their p-values, than any calibration
    /// produces: a file could ask for minutes of it.
    pub(super) fn excess(&self) -> Option<String> {
        let most = match (self.method.family(), &self.grid_step) {
            (Some(FamilyKind::OneThreshold), Some(grid)) => grid.thresholds().len(),
            // Each group may have been tested alone.
            (None, _) if self.method.promise().is_some() => {
                MOST_ADAPTIVE_TESTS.saturating_mul(1 + self.groups.len())
            }
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
        let sequences = |set: Option<SetSummary>| set.map_or(0, |set| set.sequences);
        let (certified, fitted) = (sequences(self.certified_on), sequences(self.fitted_on));
        let adaptive = self.method == Method::Adaptive;
        let mut place = 0_usize;
        for family in &self.families {
            let with_fitted = family.kind.is_same_for_all_data()
                && self.split.is_some_and(|split| split.fit_fraction.is_some());
            // Some of the later sequences were also set aside.
            let on_both = match &self.looks {
                Some(looks) => looks.sequences,
                None => certified.saturating_add(fitted),
            };
            let whole = family.sequences == certified;
            let sound = match family.group {
                None => whole || with_fitted && family.sequences == on_both,
                // Some of all.
                Some(group) => {
                    let most = if with_fitted { on_both } else { certified };
                    adaptive && group < self.groups.len() && family.sequences <= most
                }
            };
            if !sound {
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

    /// Checks tests that follow this many others in the trail: each follows from its
    /// counts, at its share of δ, until one failed.
    fn family_contradiction(
        &self,
        before: usize,
        tests: &[Test],
        family: &TestedFamily,
    ) -> Option<String> {
        let delta = self.level();
        let level = delta.get() * family.share;
        let proof = match family.kind.is_same_for_all_data() {
            true => self.proof.unlearned(),
            false => self.proof.clone(),
        };
        let judge = Judge::new(&proof, self.alpha, delta, family.sequences);
        let elsewhere = |test: &Test| family.group.is_some() && test.group != family.group;
        if tests.iter().any(elsewhere) {
            return Some("a test of one group is in the family of another".into());
        }
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
        let agrees = match (self.method.family(), test) {
            (Some(FamilyKind::OneThreshold), _) => {
                self.marginal_thresholds().as_deref() == Some(thresholds)
            }
            (Some(FamilyKind::Backward), _) => {
                self.walked_thresholds().as_deref() == Some(thresholds)
            }
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
        let sealed = self.seal == Some(self.digest());
        (!sealed).then(|| "its score or its thresholds are not those that were certified".into())
    }

    /// Where the chosen rule was tested for each group alone; `None` if it was tested for all
    /// groups at once.
    pub(super) fn tested_alone(&self) -> Option<TestedAlone<'_>> {
        let place = self.chosen?.checked_sub(1)?;
        let (mut families, mut chosen, mut start) = (Vec::new(), None, 0_usize);
        for family in &self.families {
            let end = start.saturating_add(family.tests);
            if (start..end).contains(&place) {
                chosen = Some((families.len(), place - start));
            }
            families.push((family, self.trail.get(start..end).unwrap_or_default()));
            start = end;
        }
        let (f, candidate) = chosen?;
        let group = families[f].0.group?;
        // The families of the groups follow each other.
        let first = f.checked_sub(group).unwrap_or(families.len());
        let of_groups = families.into_iter().skip(first).take(self.groups.len());
        Some(TestedAlone {
            candidate,
            families: of_groups.collect(),
        })
    }

    /// Whether the rule halts other groups than those for which it passed.
    fn halts_others(&self) -> bool {
        let Some(TestedAlone {
            candidate,
            families,
        }) = self.tested_alone()
        else {
            return self.halts_in.is_some();
        };
        let passed = |g: usize| {
            families.get(g).is_some_and(|(family, tests)| {
                let test = tests.get(candidate);
                family.group == Some(g) && test.is_some_and(|test| test.rejected)
            })
        };
        let names = self.groups.iter().enumerate();
        let passed: Vec<&String> = names
            .filter(|(g, _)| passed(*g))
            .map(|(_, name)| name)
            .collect();
        let some = !passed.is_empty() && passed.len() < self.groups.len();
        !self.terms.may_read_on() || !some || !passed.into_iter().eq(self.halts_in.iter().flatten())
    }

    /// The digest of score and thresholds, taken over the bytes of their numbers. It guards
    /// against mix-ups, not against forgery.
    pub(crate) fn digest(&self) -> Fingerprint {
        let mut bytes = Vec::new();
        self.score.write_bytes(&mut bytes);
        let thresholds = self.thresholds.values().iter();
        bytes.extend(thresholds.flat_map(|value| value.to_le_bytes()));
        Fingerprint::of(&bytes)
    }

    /// The thresholds at the end of a walk down the grid; `None` if the trail is no such
    /// walk.
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

    /// The thresholds at the end of a backward walk; `None` if the trail is no such walk.
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
        // Stored digits round-trip; the tolerance allows for other versions' sums.
        let agrees = (test.p_value - p).abs() <= 1e-9 * p;
        if !agrees {
            return Some("has a p-value that does not follow from its counts");
        }
        (test.rejected != (test.p_value <= level))
            .then_some("has a verdict that does not follow from its p-value")
    }
}
