//! What a monitor watches: which loss is tolerated, by which steps, in which
//! groups.

use serde::{Deserialize, Serialize};

use crate::certify::Promise;
use crate::level::{Alpha, Delta};
use crate::rule::Rule;

/// The most steps that are watched.
const MOST_STEPS: usize = 64;

/// The weight of the last watched step, by which the most streams have halted;
/// the others share the rest.
const LAST: f64 = 0.6;

/// What is watched: fixed before the first stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    pub(super) alpha: Alpha,
    pub(super) delta: Delta,
    /// Steps counted from 1, rising; none where the promise is about all
    /// streams, wherever they halt.
    pub(super) steps: Vec<u32>,
    pub(super) groups: usize,
}

impl Watch {
    /// What a rule promises; `None` if it promises nothing. False alarms are to
    /// have probability `delta` at most.
    ///
    /// Only steps at which the rule may halt early are watched: who halts at any
    /// other came to its own end, without a gap, so the promise by that step
    /// follows from the promise by the one before. Of more than 64, that many are
    /// taken, spread evenly.
    ///
    /// `None` where there is nothing to watch: the rule promises nothing, or
    /// something about another loss than gaps and disagreements.
    pub fn of(rule: &Rule, delta: Delta) -> Option<Self> {
        if !rule.terms().loss.is_binary() {
            return None;
        }
        let steps = match rule.promise()? {
            Promise::Marginal => Vec::new(),
            Promise::Conditional => early_steps(rule.thresholds().values(), rule.reads_on()),
        };
        Some(Self::new(rule.alpha(), delta, steps))
    }

    /// Watches the loss among those halted by each of these steps, counted from
    /// 1; among all streams if there are none.
    pub fn new(alpha: Alpha, delta: Delta, mut steps: Vec<u32>) -> Self {
        steps.sort_unstable();
        steps.dedup();
        Self {
            alpha,
            delta,
            steps,
            groups: 1,
        }
    }

    /// Watches the same in each of this many groups, at least one.
    pub fn in_groups(mut self, groups: usize) -> Self {
        self.groups = groups.max(1);
        self
    }

    /// The tolerated loss.
    pub fn alpha(&self) -> Alpha {
        self.alpha
    }

    /// The probability that a false alarm is ever raised.
    pub fn delta(&self) -> Delta {
        self.delta
    }

    /// The watched steps, counted from 1; none where all streams count, wherever
    /// they halt.
    pub fn steps(&self) -> &[u32] {
        &self.steps
    }

    /// How many rows of counts there are.
    pub(super) fn rows(&self) -> usize {
        self.steps.len().max(1)
    }

    /// The first row in which a stream counts that halted at step `t`; past the
    /// last where it counts in none.
    pub(super) fn row(&self, t: u32) -> usize {
        self.steps.partition_point(|&step| step < t)
    }

    /// The weight of a row, of all groups.
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

/// The steps, counted from 1, at which thresholds may halt a stream before its
/// end, or some of them.
fn early_steps(thresholds: &[f32], reads_on: bool) -> Vec<u32> {
    // Without reading on, the last step is the end of every stream.
    let early = thresholds.len() - usize::from(!reads_on && !thresholds.is_empty());
    let open = |&(_, &value): &(u32, &f32)| value < f32::INFINITY;
    let open: Vec<u32> = (1..)
        .zip(&thresholds[..early])
        .filter(open)
        .map(|(t, _)| t)
        .collect();
    if open.len() <= MOST_STEPS {
        return open;
    }
    (1..=MOST_STEPS)
        .map(|i| open[i * open.len() / MOST_STEPS - 1])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_at_which_a_rule_may_halt_early_are_watched() {
        const NEVER: f32 = f32::INFINITY;
        let thresholds = [NEVER, 0.5, NEVER, 0.5];
        assert_eq!(early_steps(&thresholds, false), [2]);
        assert_eq!(early_steps(&thresholds, true), [2, 4]);
        assert!(early_steps(&[], false).is_empty());
        let found = early_steps(&[0.5; 1001], false);
        assert_eq!((found.len(), found[0], found[63]), (64, 15, 1000));
    }

    #[test]
    fn what_promises_nothing_is_not_watched() {
        let none = crate::stream::tests::rule(&[Some(0.5); 3]);
        assert_eq!(Watch::of(&none, Delta::default()), None);
    }
}
