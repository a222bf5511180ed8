//! How much of δ each family of candidates has.

use super::plain::{CLOSING, GENTLE, LOW, Plain, STEEP};
use crate::data::loss::Loss;
use crate::data::score::ScoreSource;
use crate::data::survey::Survey;
use crate::plan::{Method, Plan};
use crate::testing::fixed_sequence::Promise;

/// The shares of δ: see [`propose`](super::families::propose).
///
/// They follow from the promise, the number of traces and whether labels are missing, and
/// from nothing else. Fitting traces may help to certify the families that are the same for
/// all data. So nothing about those families may depend on the content of any trace, least
/// of all their levels.
#[derive(Clone, Copy)]
pub(super) struct Shares {
    /// The share of the best curves.
    pub(super) best: f64,
    /// The share of the walk along the best curve, or of the curves for another test.
    pub(super) second: f64,
    /// The share of all thresholds on the plain score together, in equal parts for each of
    /// their families.
    plain: f64,
    pub(super) clock: f64,
}

/// From this many fitting traces on, curves are worth more than all rules that need no fit,
/// and a score can be refined.
const MANY_FITTED: usize = 300;

/// The shares, by the number of fitting traces at which they end. With few fitting traces,
/// rules that need no fitting deserve more of δ.
///
/// Tuned on the four golden sets, QuALITY, votes, and 150 to 600 traces of the golden sets,
/// where they read 0.4% more steps than the eleven rows that stood here before. Ten UCR sets
/// that were not used for tuning read 0.6% more.
const SHARES: [(usize, Shares); 3] = [
    (120, Shares::of_delta(0.05, 0.03, 0.3, 0.62)),
    (MANY_FITTED, Shares::of_delta(0.35, 0.05, 0.45, 0.15)),
    (usize::MAX, Shares::of_delta(0.7, 0.05, 0.05, 0.2)),
];

impl Shares {
    const fn of_delta(best: f64, second: f64, plain: f64, clock: f64) -> Self {
        Self {
            best,
            second,
            plain,
            clock,
        }
    }

    pub(super) fn of(plan: &Plan, certifying: &Survey, fitted: usize) -> Self {
        // The test that uses the available labels counts disagreements, which are many.
        let fitted = match few_labels(plan, certifying) {
            true => MANY_FITTED,
            false => fitted,
        };
        let row = SHARES.iter().find(|(below, _)| fitted < *below);
        let (_, shares) = row.unwrap_or(&SHARES[2]);
        // If the learned score is requested, no other score is tried: the curves have its share.
        match plan.score().map(ScoreSource::plain) {
            Some(None) => Self {
                best: shares.best + shares.plain,
                plain: 0.0,
                ..*shares
            },
            Some(Some(_)) | None => *shares,
        }
    }

    /// The families of thresholds on the plain score, each with its share.
    pub(super) fn plain(&self, promise: Promise) -> impl Iterator<Item = (Plain, f64)> {
        let families: &[Plain] = match promise {
            _ if self.plain == 0.0 => &[],
            Promise::Marginal => &[Plain::Lower],
            Promise::Conditional => &[STEEP, LOW, CLOSING, GENTLE],
        };
        let each = self.plain / families.len() as f64;
        families.iter().map(move |&shape| (shape, each))
    }
}

/// The share of δ of each family for rules that halt all groups. The rest is for rules that
/// halt some of them, in equal parts for each group.
///
/// Rules for all groups come first, so they have nearly all. With 300, 700 and 2,000 traces
/// in the smallest group they certify mean losses of 4.8, 6.6 and 7.9%; with all of δ it
/// would be 5.1, 6.6 and 7.9% (α = 10%, δ = 1%, 80% power). Where all groups pass, rules read 0
/// to 0.7% more steps than with all of δ (a third group of 180 to 500 among 4,000 simulated
/// traces, 40 calibrations each). The number is a choice, not tuned on data.
const ALL_GROUPS: f64 = 0.9;

/// How a family's share of δ is split between tests for all groups and for each alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GroupShares {
    /// The part for rules that hold in all groups at once.
    pub(crate) all: f64,
    /// The part for each group alone; `None` if groups are not tested alone.
    pub(crate) each: Option<f64>,
}

impl GroupShares {
    /// Groups are tested alone if the others can be read to the end, and lose nothing there.
    /// The paper's methods give all of δ to all groups.
    pub(crate) fn of(plan: &Plan, groups: usize) -> Self {
        if plan.method() != Method::Adaptive || !plan.terms().may_read_on() || groups == 0 {
            return Self {
                all: 1.0,
                each: None,
            };
        }
        Self {
            all: ALL_GROUPS,
            each: Some((1.0 - ALL_GROUPS) / groups as f64),
        }
    }
}

/// Whether a learned score is refined. This is done for the average over all, which groups
/// may not share, and from enough traces that the score does not overfit.
pub(super) fn refines(plan: &Plan, fitted: usize) -> bool {
    let learns = plan.score().and_then(ScoreSource::plain).is_none();
    let over_all = plan.promise() == Some(Promise::Marginal) && plan.terms().by.is_none();
    learns && over_all && fitted >= MANY_FITTED
}

/// Whether labels are needed and some certifying traces have none.
pub(super) fn few_labels(plan: &Plan, certifying: &Survey) -> bool {
    plan.terms().loss == Loss::Gap && certifying.unlabelled > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::terms::LABEL;

    #[test]
    fn whatever_is_planned_all_of_delta_is_shared_out() {
        let planned = |alpha, promise, score, fitted, unlabelled, by: Option<&str>| {
            let ask = crate::plan::Ask {
                alpha: Some(alpha),
                promise: Some(promise),
                score,
                by: by.map(str::to_owned),
                ..crate::plan::Ask::default()
            };
            let certifying = Survey {
                unlabelled,
                ..Survey::default()
            };
            let shares = Shares::of(&Plan::new(ask).unwrap(), &certifying, fitted);
            let plain: f64 = shares.plain(promise).map(|(_, share)| share).sum();
            let sum = shares.best + shares.second + plain + shares.clock;
            assert!(
                (sum - 1.0).abs() < 1e-12,
                "{sum} of delta: {alpha}, {promise:?}, {fitted}"
            );
        };
        for alpha in [0.05, 0.1] {
            for promise in [Promise::Conditional, Promise::Marginal] {
                for fitted in [1, 119, 120, 299, 300, 1_000_000, usize::MAX] {
                    planned(alpha, promise, None, fitted, 0, None);
                    planned(alpha, promise, None, fitted, 0, Some("site"));
                    planned(alpha, promise, None, fitted, 50, None);
                    planned(alpha, promise, Some(ScoreSource::Gap(())), fitted, 0, None);
                    planned(alpha, promise, Some(ScoreSource::Gap(())), fitted, 50, None);
                }
            }
        }
    }

    #[test]
    fn groups_are_tested_alone_only_if_the_others_can_be_read_to_the_end() {
        let shares = |method, by: &str, loss| {
            let ask = crate::plan::Ask {
                method: Some(method),
                by: Some(by.to_owned()),
                loss: Some(loss),
                ..crate::plan::Ask::default()
            };
            GroupShares::of(&Plan::new(ask).unwrap(), 3)
        };
        let alone = shares(Method::Adaptive, "site", Loss::Gap);
        let spent = alone.all + 3.0 * alone.each.unwrap();
        assert!((spent - 1.0).abs() < 1e-12, "{spent}");
        for (method, by, loss) in [
            (Method::Conditional, "site", Loss::Gap),
            (Method::Marginal, "site", Loss::Gap),
            (Method::Adaptive, LABEL, Loss::Gap),
            // Reading to the end may cost something.
            (Method::Adaptive, "site", Loss::Given),
        ] {
            let (all, each) = (1.0, None);
            assert_eq!(shares(method, by, loss), GroupShares { all, each });
        }
    }
}
