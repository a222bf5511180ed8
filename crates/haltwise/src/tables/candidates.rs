//! Candidate rules in the order in which they are tested.
//!
//! The order must be fixed without a look at the certifying traces. This, and stopping at
//! the first failure, makes testing many rules as safe as testing one (fixed sequence
//! testing; see [`certify`](mod@crate::testing::fixed_sequence)).

use serde::{Deserialize, Serialize};

use crate::numbers::grid::Grid;
use crate::numbers::thresholds::Thresholds;

/// What a backward walk does at a step whose candidate threshold is "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtNever {
    /// Skip it: the rule is the same as the one before, whose hypothesis was already rejected,
    /// so there is nothing to test.
    #[default]
    Skip,
    /// Test it anyway, as the paper's listing does. If no sequence has halted by that step,
    /// the test cannot be passed and the walk ends.
    Stop,
}

/// The kinds of rules that families consist of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FamilyKind {
    /// One threshold for all steps, lower and lower.
    OneThreshold,
    /// A threshold per step, revealed from the last step back.
    Backward,
    /// Threshold curves.
    Curves,
    /// Thresholds on the score that came with the traces, the same for all data.
    Plain,
    /// Every sequence halts at one step, whatever the score.
    Clock,
}

impl FamilyKind {
    /// Whether each rule halts every sequence no later than the rules before it, so that
    /// the last to pass is the one to choose.
    pub(crate) fn is_nested(self) -> bool {
        matches!(self, Self::OneThreshold | Self::Backward)
    }

    /// Whether the family is the same for all data. Then the fitting traces may help to
    /// certify it if they were drawn like the certifying ones.
    pub(crate) fn is_same_for_all_data(self) -> bool {
        matches!(self, Self::Plain | Self::Clock)
    }
}

/// Whether these are valid shares of δ that sum to at most all of it.
pub(crate) fn spend_delta(shares: impl Iterator<Item = f64> + Clone) -> bool {
    // The tolerance is for the rounding of their sum.
    shares.clone().all(|share| share > 0.0) && shares.sum::<f64>() <= 1.0 + 1e-12
}

/// An ordered family of candidate rules, cautious ones first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Family", into = "Family")]
pub(crate) struct Candidates {
    t_max: usize,
    family: Family,
    /// The (0-based) step at which each rule of a backward walk opens.
    walk: Vec<usize>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Family {
    /// The same threshold at every one of this many steps, from 1 down to 0.
    OneThreshold(Grid, usize),
    /// The screened thresholds, revealed from the last step back.
    Backward(Thresholds, AtNever),
    /// Any rules, all of `t_max` steps.
    List(Vec<Thresholds>),
}

impl Candidates {
    /// One threshold for all steps, from the largest of the grid down: the
    /// order of the paper's Algorithm A.1.
    pub(crate) fn one_threshold(grid: Grid, t_max: usize) -> Self {
        Family::OneThreshold(grid, t_max).into()
    }

    /// The screened thresholds, revealed one by one from the last step back:
    /// the order of the paper's Algorithm 2.
    pub(crate) fn backward(screened: &Thresholds, at_never: AtNever) -> Self {
        Family::Backward(screened.clone(), at_never).into()
    }

    /// Any list of rules, tested in the order given; a shorter rule never halts at the
    /// steps it lacks.
    pub(crate) fn list(rules: impl IntoIterator<Item = Thresholds>) -> Self {
        Family::List(rules.into_iter().collect()).into()
    }

    /// How many rules there are.
    pub(crate) fn len(&self) -> usize {
        match &self.family {
            Family::OneThreshold(grid, _) => grid.thresholds().len(),
            Family::Backward(..) => self.walk.len(),
            Family::List(rules) => rules.len(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of steps the rules are for.
    pub(crate) fn t_max(&self) -> usize {
        self.t_max
    }

    /// The rule in place `c`, counted from 0; `None` past the last.
    pub(crate) fn rule(&self, c: usize) -> Option<Thresholds> {
        match &self.family {
            Family::OneThreshold(grid, _) => {
                let threshold = *grid.thresholds().iter().rev().nth(c)?;
                Some(Thresholds::from_valid(vec![threshold; self.t_max]))
            }
            Family::Backward(screened, _) => {
                let opens = *self.walk.get(c)?;
                let mut revealed = screened.values().to_vec();
                revealed[..opens].fill(f32::INFINITY);
                Some(Thresholds::from_valid(revealed))
            }
            Family::List(rules) => rules.get(c).cloned(),
        }
    }

    /// The (0-based) first step at which rule `c` may halt a sequence before its end: the
    /// earliest that needs a test. It is computed from the rule, never read from a file.
    pub(crate) fn opens(&self, c: usize) -> usize {
        match &self.family {
            Family::OneThreshold(..) => 0,
            Family::Backward(..) => self.walk[c],
            Family::List(rules) => rules[c].opens().unwrap_or(self.t_max - 1),
        }
    }

    /// The threshold of rule `c` at the step where it opens.
    pub(crate) fn opening_threshold(&self, c: usize) -> f32 {
        match &self.family {
            Family::OneThreshold(grid, _) => grid.thresholds()[grid.thresholds().len() - 1 - c],
            Family::Backward(screened, _) => screened.values()[self.walk[c]],
            Family::List(rules) => rules[c].values()[self.opens(c)],
        }
    }

    /// Whether all thresholds are of this grid.
    pub(crate) fn on(&self, grid: &Grid) -> bool {
        let holds = |rule: &Thresholds| rule.values().iter().all(|&v| grid.holds(v));
        match &self.family {
            Family::OneThreshold(own, _) => own == grid,
            Family::Backward(screened, _) => holds(screened),
            Family::List(rules) => rules.iter().all(holds),
        }
    }

    pub(crate) fn family(&self) -> &Family {
        &self.family
    }
}

impl From<Family> for Candidates {
    fn from(family: Family) -> Self {
        let (t_max, walk, family) = match family {
            Family::OneThreshold(grid, t_max) => {
                (t_max, Vec::new(), Family::OneThreshold(grid, t_max))
            }
            Family::Backward(screened, at_never) => {
                let tested =
                    |&t: &usize| at_never == AtNever::Stop || screened.values()[t] < f32::INFINITY;
                let walk = (0..screened.t_max()).rev().filter(tested).collect();
                (screened.t_max(), walk, Family::Backward(screened, at_never))
            }
            Family::List(rules) => {
                let t_max = rules.iter().map(Thresholds::t_max).max().unwrap_or(0);
                let rules = rules.into_iter().map(|rule| rule.extended(t_max)).collect();
                (t_max, Vec::new(), Family::List(rules))
            }
        };
        Self {
            t_max,
            family,
            walk,
        }
    }
}

impl From<Candidates> for Family {
    fn from(candidates: Candidates) -> Self {
        candidates.family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: f32 = f32::INFINITY;

    fn rules(candidates: &Candidates) -> Vec<Vec<f32>> {
        (0..candidates.len())
            .map(|c| candidates.rule(c).unwrap().values().to_vec())
            .collect()
    }

    #[test]
    fn the_backward_walk_reveals_thresholds_from_the_end() {
        let screened = Thresholds::new(vec![0.9, NEVER, 0.5, 0.0]).unwrap();
        let skipping = Candidates::backward(&screened, AtNever::Skip);
        assert_eq!(
            rules(&skipping),
            [
                [NEVER, NEVER, NEVER, 0.0],
                [NEVER, NEVER, 0.5, 0.0],
                [0.9, NEVER, 0.5, 0.0],
            ]
        );
        let listing = Candidates::backward(&screened, AtNever::Stop);
        assert_eq!(listing.len(), 4);
        assert_eq!(listing.opens(2), 1);
        assert_eq!(listing.opening_threshold(2), NEVER);
    }

    #[test]
    fn one_threshold_goes_from_strict_to_loose() {
        let candidates = Candidates::one_threshold(Grid::new(0.5).unwrap(), 2);
        assert_eq!(rules(&candidates), [[1.0, 1.0], [0.5, 0.5], [0.0, 0.0]]);
        assert_eq!(candidates.rule(3), None);
    }
}
