//! The watch of a monitor: the tolerated loss, the steps and the groups.

use serde::{Deserialize, Serialize};

use crate::data::terms::LABEL;
use crate::numbers::alpha_delta::{Alpha, Delta};
use crate::rule::Rule;
use crate::testing::fixed_sequence::Promise;

/// The most steps that are watched.
const MOST_STEPS: usize = 64;

/// The weight of the last watched step, by which the most streams have halted;
/// the others share the rest.
const LAST: f64 = 0.6;

/// What to watch; fixed before the first stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    pub(super) alpha: Alpha,
    pub(super) delta: Delta,
    /// Steps counted from 1, rising; none if the promise is about all streams, wherever
    /// they halt.
    pub(super) steps: Vec<u32>,
    pub(super) groups: usize,
    /// Whether the promise is about units, each of which counts once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) by_unit: bool,
    /// Whether the promise covers each true class separately, but all classes are watched
    /// together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) pools_classes: bool,
    /// Whether the promise covers more steps than are watched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) thins_steps: bool,
    /// How many servers share δ, each with a monitor of its own.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub(super) servers: u32,
}

fn one() -> u32 {
    1
}

fn is_one(servers: &u32) -> bool {
    *servers == 1
}

impl Watch {
    /// Watches what a rule promises. The probability of a false alarm is `delta` at most.
    ///
    /// Only steps at which the rule may halt early are watched. A stream that halts at any
    /// other step came to its own end, without a gap, so the promise by that step follows
    /// from the promise by the step before. If there are more than 64, then 64 of them are
    /// watched, spread evenly. Nothing is known then about a step between two of them, and
    /// the verdict is never "all clear".
    ///
    /// The promise is watched in each of the [groups](Rule::halting_groups) that the rule
    /// halts, and by unit if the rule's promise is about units. If the groups are the true
    /// classes, all streams are watched together. The class of a stream is known late or
    /// never, and labels are wanted where early and full answer differ. So a group of labelled
    /// streams would hold only those that may have lost something. A promise that holds in
    /// every class holds for all, since E[(loss − α)·1{halted by t}] is then a sum of terms
    /// that are at most 0. So an alarm is true, but the lack of an alarm says nothing about any
    /// one class.
    ///
    /// Returns `None` if nothing can be watched: the rule promises nothing, its loss is
    /// neither gap nor disagreement, or its promise is about the units in each group.
    pub fn of(rule: &Rule, delta: Delta) -> Option<Self> {
        let terms = rule.terms();
        let by_unit = terms.unit.is_some();
        // A unit may enter a second group after its loss in the first is known, and whether
        // it does may depend on that loss. Then nothing bounds the mean of the factor of
        // its second group. The mean of a unit over all groups mixes its means in each by
        // how many streams it has there, and nothing is promised about that mixture.
        if !terms.loss.is_binary() || by_unit && terms.by.is_some() {
            return None;
        }
        let (steps, thins_steps) = match rule.promise()? {
            Promise::Marginal => (Vec::new(), false),
            Promise::Conditional => early_steps(rule.thresholds().values(), rule.reads_on()),
        };
        let watch = Self::new(rule.alpha(), delta, steps).in_groups(rule.halting_groups().len());
        Some(Self {
            by_unit,
            pools_classes: terms.by.as_deref() == Some(LABEL),
            thins_steps,
            ..watch
        })
    }

    /// Watches the loss among those halted by each of these steps, counted from 1; among
    /// all streams if there are no steps.
    pub fn new(alpha: Alpha, delta: Delta, mut steps: Vec<u32>) -> Self {
        steps.sort_unstable();
        steps.dedup();
        Self {
            alpha,
            delta,
            steps,
            groups: 1,
            by_unit: false,
            pools_classes: false,
            thins_steps: false,
            servers: 1,
        }
    }

    /// Watches the same in each of this many groups, at least one. Each stream, or unit,
    /// must belong to one group only.
    pub fn in_groups(mut self, groups: usize) -> Self {
        self.groups = groups.max(1);
        self
    }

    /// Watches units, each of which counts once.
    pub fn by_units(mut self) -> Self {
        self.by_unit = true;
        self
    }

    /// Sets the share of δ for one of several servers of a rule. Each server tests its own
    /// streams, and the [sum](super::Monitor::sum) is one test more. Each test has
    /// δ/(servers + 1), so all together raise a false alarm with probability δ at most
    /// (union bound).
    pub fn shared_by(mut self, servers: u32) -> Self {
        self.servers = servers.max(1);
        if servers > 1 {
            let share = self.delta.get() / (f64::from(servers) + 1.0);
            // A share of a number in (0, 1) is one too.
            self.delta = Delta::try_from(share).unwrap_or(self.delta);
        }
        self
    }

    /// How many servers share δ; 1 if this is the only one.
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// Whether the counts of one watch are those of another: all but the shares of δ and
    /// what is said of the verdict.
    pub(super) fn counts_like(&self, other: &Self) -> bool {
        (self.alpha, &self.steps, self.groups, self.by_unit)
            == (other.alpha, &other.steps, other.groups, other.by_unit)
    }

    /// Whether the promise is about units.
    pub fn is_by_unit(&self) -> bool {
        self.by_unit
    }

    /// The tolerated loss.
    pub fn alpha(&self) -> Alpha {
        self.alpha
    }

    /// The probability that a false alarm is ever raised.
    pub fn delta(&self) -> Delta {
        self.delta
    }

    /// The watched steps, counted from 1; none if all streams count, wherever they halt.
    pub fn steps(&self) -> &[u32] {
        &self.steps
    }

    /// How many rows of counts there are.
    pub(super) fn rows(&self) -> usize {
        self.steps.len().max(1)
    }

    /// The first row in which a stream that halted at step `t` counts; past the last row if
    /// it counts in none.
    pub(super) fn row(&self, t: u32) -> usize {
        self.steps.partition_point(|&step| step < t)
    }

    /// The same, if no step is watched and all streams count, wherever they halt.
    pub(super) fn row_of(&self, t: u32) -> usize {
        match self.steps.is_empty() {
            true => 0,
            false => self.row(t),
        }
    }

    /// The weight of a row, over all groups.
    pub(super) fn weight(&self, r: usize) -> f64 {
        let rows = self.rows();
        let weight = match r % rows {
            _ if rows == 1 => 1.0,
            row if row + 1 == rows => LAST,
            _ => (1.0 - LAST) / (rows - 1) as f64,
        };
        weight / self.groups as f64
    }

    /// The step of a row.
    pub(super) fn step(&self, row: usize) -> Option<u32> {
        self.steps.get(row).copied()
    }
}

/// The steps to watch, counted from 1: those at which thresholds may halt some stream before
/// its end. Also returns whether some of them are left out.
fn early_steps(thresholds: &[f32], reads_on: bool) -> (Vec<u32>, bool) {
    // Without reading on, the last step is the end of every stream.
    let early = thresholds.len() - usize::from(!reads_on && !thresholds.is_empty());
    let open = |&(_, &value): &(u32, &f32)| value < f32::INFINITY;
    let open: Vec<u32> = (1..)
        .zip(&thresholds[..early])
        .filter(open)
        .map(|(t, _)| t)
        .collect();
    if open.len() <= MOST_STEPS {
        return (open, false);
    }
    let watched = (1..=MOST_STEPS).map(|i| open[i * open.len() / MOST_STEPS - 1]);
    (watched.collect(), true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_at_which_a_rule_may_halt_early_are_watched() {
        const NEVER: f32 = f32::INFINITY;
        let thresholds = [NEVER, 0.5, NEVER, 0.5];
        assert_eq!(early_steps(&thresholds, false), (vec![2], false));
        assert_eq!(early_steps(&thresholds, true), (vec![2, 4], false));
        assert_eq!(early_steps(&[], false), (vec![], false));
        let (found, thins) = early_steps(&[0.5; 1001], false);
        assert_eq!((found.len(), found[0], found[63]), (64, 15, 1000));
        assert!(thins && !early_steps(&[0.5; 65], false).1);
    }

    #[test]
    fn what_promises_nothing_is_not_watched() {
        let none = crate::apply::stream::tests::rule(&[Some(0.5); 3]);
        assert_eq!(Watch::of(&none, Delta::default()), None);
    }
}
