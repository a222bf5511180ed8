//! How much of δ each family of candidates has.

use super::plain::{CLOSING, GENTLE, LOW, Plain, STEEP};
use crate::data::loss::Loss;
use crate::data::score::ScoreSource;
use crate::data::survey::Survey;
use crate::plan::Plan;
use crate::testing::fixed_sequence::Promise;

/// The shares of δ: see [`propose`].
///
/// They follow from the plan, from how many traces there are and from whether labels are
/// missing, and from nothing else: fitting traces may help to certify the families that are
/// the same for all data, so that nothing about those, their levels least of all, may
/// depend on what any trace says.
pub(super) struct Shares {
    /// Of the best curves.
    pub(super) best: f64,
    /// Of the walk along the best curve, or of the curves for another test.
    pub(super) second: f64,
    /// Of each family of thresholds on the plain score.
    pub(super) plain: &'static [(Plain, f64)],
    pub(super) clock: f64,
}

/// Below this many fitting traces, they hardly tell curves apart.
const FEW_FITTED: usize = 120;

/// From this many on, curves are worth more than all that needs no fit, and a score can
/// be refined.
const MANY_FITTED: usize = 300;

/// Below this α, the clock would have to strike late.
const SMALL_ALPHA: f64 = 0.075;

impl Shares {
    /// The fewer traces there are to fit to, the more is worth what has nothing to be
    /// fitted, and where they were set aside may be certified on them too: thresholds of
    /// the plain score and, most of all, the clock.
    pub(super) fn of(plan: &Plan, promise: Promise, certifying: &Survey, fitted: usize) -> Self {
        let few_labels = few_labels(plan, certifying);
        let shares = |best, second, plain, clock| Self {
            best,
            second,
            plain,
            clock,
        };
        let shares = match promise {
            // The second family is for the test that uses the labels there are.
            Promise::Marginal if few_labels => shares(0.6, 0.1, &[(Plain::Lower, 0.2)][..], 0.1),
            Promise::Conditional if few_labels => {
                shares(0.5, 0.2, &[(STEEP, 0.08), (LOW, 0.02)], 0.2)
            }
            Promise::Marginal if fitted < FEW_FITTED => {
                shares(0.15, 0.02, &[(Plain::Lower, 0.48)], 0.35)
            }
            Promise::Marginal if fitted < MANY_FITTED => {
                shares(0.4, 0.05, &[(Plain::Lower, 0.35)], 0.2)
            }
            Promise::Marginal if refines(plan, fitted) => {
                shares(0.94, 0.02, &[(Plain::Lower, 0.02)], 0.02)
            }
            Promise::Marginal => shares(0.85, 0.05, &[(Plain::Lower, 0.05)], 0.05),
            Promise::Conditional if fitted < FEW_FITTED => {
                shares(0.05, 0.03, &[(STEEP, 0.26), (LOW, 0.04)], 0.62)
            }
            Promise::Conditional if fitted < MANY_FITTED && plan.alpha().get() < SMALL_ALPHA => {
                shares(0.43, 0.02, &[(GENTLE, 0.47), (LOW, 0.05)], 0.03)
            }
            Promise::Conditional if fitted < MANY_FITTED => shares(
                0.3,
                0.05,
                &[(STEEP, 0.15), (LOW, 0.05), (CLOSING, 0.3)],
                0.15,
            ),
            Promise::Conditional => {
                shares(0.5, 0.1, &[(STEEP, 0.08), (LOW, 0.02), (CLOSING, 0.1)], 0.2)
            }
        };
        // Whoever asked for the learned score gets no other, and the curves its share.
        match plan.score() {
            Some(ScoreSource::Gap(())) => Self {
                best: 1.0 - shares.second - shares.clock,
                plain: &[],
                ..shares
            },
            _ => shares,
        }
    }
}

/// Whether a learned score is refined: for the average over all, which groups may not
/// share, from so many traces that it does not learn them by heart.
pub(super) fn refines(plan: &Plan, fitted: usize) -> bool {
    let learns = plan.score().and_then(ScoreSource::plain).is_none();
    let over_all = plan.promise() == Some(Promise::Marginal) && plan.terms().by.is_none();
    learns && over_all && fitted >= MANY_FITTED
}

/// Whether labels are needed that not all certifying traces have.
pub(super) fn few_labels(plan: &Plan, certifying: &Survey) -> bool {
    plan.terms().loss == Loss::Gap && certifying.unlabelled > 0
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let shares = Shares::of(&Plan::new(ask).unwrap(), promise, &certifying, fitted);
            let plain: f64 = shares.plain.iter().map(|(_, share)| share).sum();
            let sum = shares.best + shares.second + plain + shares.clock;
            assert!(
                (sum - 1.0).abs() < 1e-12,
                "{sum} of delta: {alpha}, {promise:?}, {fitted}"
            );
        };
        for alpha in [0.05, 0.1] {
            for promise in [Promise::Conditional, Promise::Marginal] {
                for fitted in [1, 119, 120, 299, 300, 1_000_000] {
                    planned(alpha, promise, None, fitted, 0, None);
                    planned(alpha, promise, None, fitted, 0, Some("site"));
                    planned(alpha, promise, None, fitted, 50, None);
                    planned(alpha, promise, Some(ScoreSource::Gap(())), fitted, 0, None);
                    planned(alpha, promise, Some(ScoreSource::Gap(())), fitted, 50, None);
                }
            }
        }
    }
}
