//! Certifying (the paper's Algorithms 2 and A.1): test the candidates in order
//! and keep the last one rejected.
//!
//! The hypothesis H(λ) for a candidate λ is that it breaks its promise. Three
//! facts make the result valid with probability 1 − δ:
//!
//! 1. *One step.* Given that a sequence halts by step t under a fixed λ, its
//!    gap is Bernoulli with the conditional gap R(t) as its mean, and the
//!    certifying sequences that do so are an i.i.d. sample of such. So
//!    [`binomial_tail`] is a valid p-value for "R(t) > α".
//! 2. *All steps of one rule.* H(λ) says that R(t) > α for at least one t. If it
//!    is true for some t, the largest of the p-values is at least the one of
//!    that t, so it is valid too (an intersection-union test; Angelopoulos et
//!    al. 2021, Proposition 6). Steps before the rule opens need no test: who
//!    halted there came to its own end, with gap 0.
//! 3. *All rules.* They are tested in an order fixed without these traces, each
//!    at level δ, until the first that is not rejected. A false rejection
//!    implies that the first true hypothesis of the order was rejected, which
//!    has probability δ at most (fixed sequence testing).
//!
//! The method `adaptive` has several families of candidates. Each family is tested in this
//! way at a share of δ, and the shares add up to δ. So with probability 1 − δ no family
//! makes a false rejection (union bound), and any of the rules that passed may be chosen,
//! by any preference.
//!
//! A step by which no sequence has halted gives no evidence: its p-value is 1.
//!
//! *Groups.* If the promise is for every group, H(λ) says that R(t) > α for some t in some
//! group: fact 2, with the largest of more p-values. The groups are known before any loss
//! is. Given which sequences belong to which group, each group is an i.i.d. sample of its
//! own.
//!
//! A method may also test each group for itself, in a family of its own at a share of δ.
//! Then H(λ, g) says that R(t) > α for some t in group g. A rule that halts the groups for
//! which its H(λ, g) was rejected, and no other, keeps its promise: a sequence that is read
//! to its end loses nothing.
//!
//! *Few labels.* A gap is a disagreement whose full prediction is right. So for a fixed ρ,
//! R(t) > α implies that more than α/ρ of those halted by t disagree, or that more than ρ
//! of the disagreements have the full prediction right. The larger of the two p-values is
//! valid (fact 2). The first needs no label; the second needs only the available labels, a
//! random part. ρ follows from how many have halted, on which the tests are conditional,
//! and from what the fitting traces led to expect. Two plain tests are also made: of
//! disagreements at α, and of the labelled alone. The least of the three p-values, each
//! divided by its share, is valid (Bonferroni).

use serde::{Deserialize, Serialize};

use crate::data::loss::{Loss, Measure, TOP};
use crate::data::words::words;
use crate::numbers::alpha_delta::{Alpha, Delta};
use crate::numbers::binomial::binomial_tail;
use crate::numbers::counts::Counts;
use crate::tables::candidates::Candidates;
use crate::tables::moments::Moments;
use crate::tables::table::{Table, Tallied};
use crate::testing::betting::{Bets, Profile};

/// What a rule promises about the gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// On average over all sequences, the gap is at most α.
    Marginal,
    /// Among the sequences halted by step t, the gap is at most α, for every t
    /// by which any sequence halts.
    Conditional,
}

words! { Promise, "promise":
    Conditional = "halted-by", "Among the sequences halted by step t, for every t";
    Marginal = "average",
        "On average over all sequences; halts earlier, and may lose more among early halts";
}

/// How p-values are computed; fixed before certifying.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Proof {
    /// The exact tail of the number of gaps.
    #[default]
    Binomial,
    /// Bets against the mean of a loss in [0, 1], with these losses expected.
    Bets(Profile),
    /// All disagreements, and the available labels.
    FewLabels {
        /// The expected share of disagreements whose full prediction is right.
        right: f64,
        /// The expected share of sequences with a label.
        labelled: f64,
        /// The shares of the three tests: of disagreements alone, of disagreements and
        /// labels together, and of the labelled alone.
        shares: [f64; 3],
    },
}

/// The sequences of one table (all of a group, or its labelled ones), and what counts as
/// lost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tally {
    pub(crate) labelled_only: bool,
    pub(crate) measure: Measure,
    pub(crate) tallied: Tallied,
}

impl Proof {
    pub(crate) fn is_binomial(&self) -> bool {
        *self == Self::default()
    }

    /// Whether its numbers are valid.
    pub(crate) fn is_sound(&self) -> bool {
        match self {
            Self::FewLabels {
                right,
                labelled,
                shares,
            } => {
                let are_shares = |shares: &[f64]| shares.iter().all(|s| (0.0..=1.0).contains(s));
                are_shares(&[*right, *labelled])
                    && are_shares(shares)
                    && shares.iter().sum::<f64>() <= 1.0 + 1e-9
            }
            _ => true,
        }
    }

    /// The same proof without what was learned from the fitting traces, for families that
    /// these may help to certify.
    pub(crate) fn unlearned(&self) -> Self {
        match self {
            // It acts as if every disagreement had the full prediction right, so labels and
            // disagreements are tested separately. How many have a label says nothing about
            // losses.
            Self::FewLabels {
                labelled, shares, ..
            } => Self::FewLabels {
                right: 1.0,
                labelled: *labelled,
                shares: *shares,
            },
            other => other.clone(),
        }
    }

    /// The tallies of each group.
    pub(crate) fn tallies(&self, loss: Loss, units: bool) -> Vec<Tally> {
        let tally = |labelled_only, measure, tallied| Tally {
            labelled_only,
            measure,
            tallied,
        };
        let bits = |labelled_only, loss| {
            let measure = Measure { loss, binary: true };
            tally(labelled_only, measure, Tallied::Bits)
        };
        match self {
            Self::Binomial => vec![bits(false, loss)],
            Self::Bets(_) if units => vec![tally(false, Measure::of(loss), Tallied::Units)],
            Self::Bets(_) => {
                let measure = Measure {
                    loss,
                    binary: false,
                };
                vec![tally(false, measure, Tallied::Levels)]
            }
            Self::FewLabels { .. } => vec![
                bits(false, Loss::Disagreement),
                bits(true, Loss::Gap),
                bits(true, Loss::Disagreement),
            ],
        }
    }
}

/// If this share has a label, returns the shares of the three tests: of disagreements
/// alone, of disagreements and labels together, and of the labelled alone. Any shares that
/// are fixed before losses are seen are valid (Bonferroni). Which sequences have a label
/// says nothing about losses; this is assumed anyway. The numbers are a heuristic: with few
/// labels nearly all goes to disagreements, with all of them to the labelled.
pub(crate) fn few_labels_shares(labelled: f64) -> [f64; 3] {
    let alone = 0.02 + 0.78 * labelled * labelled;
    let both = 0.08;
    [1.0 - both - alone, both, alone]
}

/// The share of the disagreements among this many halted that may have the full prediction
/// right: the least share that the labelled ones, if they are as expected, will show at
/// this level; 1 if none will.
pub(crate) fn rho(halted: f64, right: f64, labelled: f64, alpha: f64, level: f64) -> f64 {
    let shows = |rho: &f64| {
        let disagreements = labelled * halted * alpha / rho;
        let deviation = (right * (1.0 - right) * disagreements).sqrt();
        let gaps = (right * disagreements + deviation).round() as u64;
        binomial_tail(gaps, disagreements as u64, *rho) <= level
    };
    let first = ((20.0 * right.max(alpha)).ceil() as u32).clamp(1, 20);
    let shares = (first..20).map(|k| f64::from(k) / 20.0);
    shares.into_iter().find(shows).unwrap_or(1.0)
}

/// The counts of the labelled sequences, if not all are labelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Labelled {
    /// Labelled sequences that had halted.
    pub halted: u64,
    /// Those whose early prediction differs from the full one.
    pub disagreements: u64,
    /// The disagreements whose full prediction is right.
    pub gaps: u64,
}

/// The counts by a step, in one group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Found {
    pub(crate) counts: Counts,
    pub(crate) moments: Moments,
    pub(crate) labelled: Labelled,
}

/// Computes p-values.
pub(crate) struct Judge<'p> {
    proof: &'p Proof,
    alpha: Alpha,
    delta: Delta,
    bets: Option<Bets>,
}

impl<'p> Judge<'p> {
    /// Makes the judge for up to this many sequences or units.
    pub(crate) fn new(proof: &'p Proof, alpha: Alpha, delta: Delta, most: u64) -> Self {
        let bets = match proof {
            Proof::Bets(profile) => Some(Bets::at(profile, alpha, delta, most)),
            Proof::Binomial | Proof::FewLabels { .. } => None,
        };
        Self {
            proof,
            alpha,
            delta,
            bets,
        }
    }

    /// The δ that it was made for.
    pub(crate) fn delta(&self) -> Delta {
        self.delta
    }

    pub(crate) fn p_value(&self, found: &Found) -> f64 {
        match (self.proof, &self.bets) {
            (Proof::Bets(_), Some(bets)) => bets.p_value(found.moments),
            // Without bets there is no evidence.
            (Proof::Bets(_), None) => 1.0,
            (Proof::FewLabels { .. }, _) => self.few_labels(found),
            (Proof::Binomial, _) => p_value(found.counts, self.alpha),
        }
    }

    fn few_labels(&self, found: &Found) -> f64 {
        let Proof::FewLabels {
            right,
            labelled: share,
            shares,
        } = *self.proof
        else {
            return 1.0;
        };
        let (all, labelled, alpha) = (found.counts, found.labelled, self.alpha.get());
        let free = binomial_tail(all.gaps, all.halted, alpha);
        let alone = binomial_tail(labelled.gaps, labelled.halted, alpha);
        let level = self.delta.get() * shares[1] / 2.0;
        let rho = rho(all.halted as f64, right, share, alpha, level);
        let both = match rho < 1.0 {
            true => {
                let disagree = binomial_tail(all.gaps, all.halted, (alpha / rho).min(1.0));
                disagree.max(binomial_tail(labelled.gaps, labelled.disagreements, rho))
            }
            false => free,
        };
        let shared = std::iter::zip([free, both, alone], shares);
        shared.map(|(p, share)| p / share).fold(1.0, f64::min)
    }

    /// The largest p-value, and the first place where it stands.
    fn largest(&self, by_step: &[Found]) -> (usize, f64) {
        if self.proof.is_binomial() {
            let counts: Vec<Counts> = by_step.iter().map(|found| found.counts).collect();
            return largest_p_value(&counts, self.alpha);
        }
        let mut largest = (0, -1.0);
        for (t, found) in by_step.iter().enumerate() {
            let p = self.p_value(found);
            if p > largest.1 {
                largest = (t, p);
            }
        }
        largest
    }
}

/// One test of the trail: a candidate, and the step and group with its largest p-value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The group with the largest p-value, counted from 0 in the rule's list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<usize>,
    /// The first step, counted from 1, at which the candidate may halt.
    pub opens: usize,
    /// Its threshold there; `None` is never.
    pub threshold: Option<f32>,
    /// The step, counted from 1, whose p-value is the largest.
    pub step: usize,
    /// How many sequences had halted by that step; with units, how many units had.
    pub halted: u64,
    /// How many of those had a gap, or a disagreement; for other losses, their sum rounded
    /// up.
    pub gaps: u64,
    /// If bets were made: the sums of the losses' powers, in levels of 1/255.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<[i64; 3]>,
    /// If not all have a label: the counts of the labelled ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labelled: Option<Labelled>,
    /// The p-value there, and so of the candidate.
    pub p_value: f64,
    /// Whether the p-value is at most δ, or the family's share of it. If so, the candidate
    /// keeps its promise.
    pub rejected: bool,
}

impl Test {
    /// The counts that determine the p-value.
    pub(crate) fn found(&self) -> Found {
        Found {
            counts: Counts {
                halted: self.halted,
                gaps: self.gaps,
            },
            moments: Moments {
                units: self.halted,
                sums: self.sums.unwrap_or_default(),
            },
            labelled: self.labelled.unwrap_or_default(),
        }
    }
}

/// The tables of a family: for each group, one per tally.
pub(crate) type Tables<'e> = [Vec<&'e Table>];

/// Tests the candidates of a family in their order, at the level that is its share of δ,
/// and stops at the first failure: only the last test may have failed.
pub(crate) fn certify(
    candidates: &Candidates,
    tables: &Tables<'_>,
    promise: Promise,
    judge: &Judge<'_>,
    level: f64,
) -> Vec<Test> {
    let mut trail = Vec::new();
    // Rules without steps cannot be tested, and need no test.
    let rules = match candidates.t_max() {
        0 => 0,
        _ => candidates.len(),
    };
    for c in 0..rules {
        let test = test(candidates, tables, c, promise, judge, level);
        trail.push(test);
        if !test.rejected {
            break;
        }
    }
    trail
}

/// Tests one candidate.
fn test(
    candidates: &Candidates,
    tables: &Tables<'_>,
    c: usize,
    promise: Promise,
    judge: &Judge<'_>,
    level: f64,
) -> Test {
    let opens = candidates.opens(c);
    let last = candidates.t_max() - 1;
    let first = match promise {
        Promise::Marginal => last,
        Promise::Conditional => opens,
    };
    let mut worst: Option<(usize, usize, f64, Found)> = None;
    for (g, tallies) in tables.iter().enumerate() {
        let by_step = found_by_step(tallies, c);
        let (step, p) = judge.largest(&by_step[first..]);
        if worst.as_ref().is_none_or(|worst| p > worst.2) {
            worst = Some((g, first + step, p, by_step[first + step]));
        }
    }
    let (group, step, p_value, found) = worst.unwrap_or((0, last, 1.0, Found::default()));
    let threshold = candidates.opening_threshold(c);
    let bets = matches!(judge.proof, Proof::Bets(_));
    let few = matches!(judge.proof, Proof::FewLabels { .. });
    let whole = (found.moments.sums[0].max(0) as u64).div_ceil(u64::from(TOP));
    Test {
        group: (tables.len() > 1).then_some(group),
        opens: opens + 1,
        threshold: (threshold < f32::INFINITY).then_some(threshold),
        step: step + 1,
        halted: match bets {
            true => found.moments.units,
            false => found.counts.halted,
        },
        gaps: if bets { whole } else { found.counts.gaps },
        sums: bets.then_some(found.moments.sums),
        labelled: few.then_some(found.labelled),
        p_value,
        rejected: p_value <= level,
    }
}

/// The counts by each step, from the tallies of one group.
fn found_by_step(tallies: &[&Table], c: usize) -> Vec<Found> {
    let mut found = Found::default();
    let tally = |s: usize| tallies.get(s).map_or(&[][..], |table| table.halted_at(c));
    let (all, gaps, disagreements) = (tally(0), tally(1), tally(2));
    let moments = tallies.first().map_or(&[][..], |table| table.moments_at(c));
    let step = |t: usize| {
        found.counts += all[t];
        if let Some(&moments) = moments.get(t) {
            found.moments += moments;
        }
        if let (Some(gaps), Some(disagreements)) = (gaps.get(t), disagreements.get(t)) {
            found.labelled.halted += gaps.halted;
            found.labelled.gaps += gaps.gaps;
            found.labelled.disagreements += disagreements.gaps;
        }
        found
    };
    (0..all.len()).map(step).collect()
}

/// The p-value of "the gap among the halted is above α".
pub(crate) fn p_value(halted: Counts, alpha: Alpha) -> f64 {
    binomial_tail(halted.gaps, halted.halted, alpha.get())
}

/// The largest p-value, and the first place where it stands.
///
/// A tail costs O(√n), so most are ruled out by a bound that costs two logarithms. The
/// search goes from the largest bound down, until the next bound is below the largest
/// p-value found. The tails that are skipped cannot change the result, nor can a step by
/// which no further sequence has halted.
fn largest_p_value(by_step: &[Counts], alpha: Alpha) -> (usize, f64) {
    let changed = |&t: &usize| t == 0 || by_step[t] != by_step[t - 1];
    let mut bounds: Vec<(f64, usize)> = (0..by_step.len())
        .filter(changed)
        .map(|t| (log_of_bound(by_step[t], alpha), t))
        .collect();
    bounds.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut largest = (usize::MAX, -1.0);
    for (log, t) in bounds {
        if libm::exp(log) < largest.1 {
            break;
        }
        let p = p_value(by_step[t], alpha);
        if p > largest.1 || p == largest.1 && t < largest.0 {
            largest = (t, p);
        }
    }
    largest
}

/// An upper bound of the p-value.
pub(crate) fn p_value_bound(halted: Counts, alpha: Alpha) -> f64 {
    libm::exp(log_of_bound(halted, alpha))
}

/// The logarithm of Chernoff's bound exp(−m·KL(gap ‖ α)) if the gap is below α, else of 1;
/// raised a little, to cover its rounding.
fn log_of_bound(halted: Counts, alpha: Alpha) -> f64 {
    let a = alpha.get();
    match halted.gap() {
        Some(gap) if gap < a => {
            let part = |x: f64, y: f64| if x > 0.0 { x * libm::log(x / y) } else { 0.0 };
            let divergence = part(gap, a) + part(1.0 - gap, 1.0 - a);
            let m = halted.halted as f64;
            1e-9 + 1e-15 * m - m * divergence
        }
        _ => 0.0,
    }
}

/// Estimates how many halted sequences a test needs to pass if the share of gaps stays as
/// observed; `None` if no number is enough, because that share is not below α.
pub fn halted_needed(seen: Counts, alpha: Alpha, delta: Delta) -> Option<u64> {
    let rate = seen.gap().unwrap_or(0.0);
    let passes = |m: u64| {
        let gaps = (rate * m as f64).round() as u64;
        binomial_tail(gaps, m, alpha.get()) <= delta.get()
    };
    let mut enough = (1..=40).map(|e| 1_u64 << e).find(|&m| passes(m))?;
    let mut short = enough / 2;
    while enough - short > 1 {
        let middle = short + (enough - short) / 2;
        if passes(middle) {
            enough = middle;
        } else {
            short = middle;
        }
    }
    Some(enough)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counts() -> impl Strategy<Value = Counts> {
        (0u64..3_000_000, 0.0..0.3f64, 0u32..22).prop_map(|(m, share, shift)| {
            let halted = m >> shift;
            Counts {
                halted,
                gaps: (halted as f64 * share) as u64,
            }
        })
    }

    proptest! {
        #[test]
        fn the_bound_is_never_below_the_p_value(halted in counts()) {
            let alpha = Alpha::default();
            prop_assert!(p_value_bound(halted, alpha) >= p_value(halted, alpha));
        }

        #[test]
        fn skipping_by_the_bound_finds_the_first_largest(
            by_step in prop::collection::vec((counts(), 1..4_usize), 1..20),
        ) {
            let alpha = Alpha::default();
            let repeated = |(counts, times)| std::iter::repeat_n(counts, times);
            let by_step: Vec<Counts> = by_step.into_iter().flat_map(repeated).collect();
            let plain: Vec<f64> = by_step.iter().map(|&c| p_value(c, alpha)).collect();
            let largest = plain.iter().copied().fold(0.0, f64::max);
            let first = plain.iter().position(|&p| p == largest).unwrap();
            prop_assert_eq!(largest_p_value(&by_step, alpha), (first, largest));
        }
    }

    #[test]
    fn forty_four_without_a_gap_are_just_enough() {
        let (alpha, delta) = (Alpha::default(), Delta::default());
        let seen = |halted, gaps| Counts { halted, gaps };
        assert_eq!(halted_needed(seen(10, 0), alpha, delta), Some(44));
        assert_eq!(halted_needed(seen(0, 0), alpha, delta), Some(44));
        assert_eq!(halted_needed(seen(10, 1), alpha, delta), None);
        assert_eq!(halted_needed(seen(10, 5), alpha, delta), None);
        let needed = halted_needed(seen(100, 5), alpha, delta).unwrap();
        assert!((100..250).contains(&needed), "{needed}");
    }
}
