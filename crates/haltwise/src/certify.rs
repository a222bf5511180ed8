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
//! Several families of candidates, as the method `adaptive` has, are each
//! tested so at a share of δ; the shares add up to δ, so with probability 1 − δ
//! no family makes a false rejection (union bound), and of all rules that passed
//! any may be taken, by whatever preference.
//!
//! A step by which no one has halted gives no evidence: its p-value is 1.

use serde::{Deserialize, Serialize};

use crate::candidates::Candidates;
use crate::level::{Alpha, Delta};
use crate::pvalue::binomial_tail;
use crate::table::{Counts, Table};

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

/// One test of the trail: a candidate, and the step where it did worst.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The first step, counted from 1, at which the candidate may halt.
    pub opens: usize,
    /// Its threshold there; `None` is never.
    pub threshold: Option<f32>,
    /// The step, counted from 1, whose p-value is the largest.
    pub step: usize,
    /// How many sequences had halted by that step.
    pub halted: u64,
    /// How many of those had a gap.
    pub gaps: u64,
    /// The p-value there, hence of the candidate.
    pub p_value: f64,
    /// Whether it is at most δ, or the family's share of it: the candidate keeps
    /// its promise.
    pub rejected: bool,
}

/// Tests the candidates of a family in their order, at the level that is its
/// share of δ, and stops at the first failure: only the last test may have
/// failed.
pub(crate) fn certify(
    candidates: &Candidates,
    table: &Table,
    promise: Promise,
    alpha: Alpha,
    level: f64,
) -> Vec<Test> {
    let mut trail = Vec::new();
    // Rules for no steps at all cannot be tested, and need not be.
    let rules = match candidates.t_max() {
        0 => 0,
        _ => candidates.len(),
    };
    for c in 0..rules {
        let test = test(candidates, table, c, promise, alpha, level);
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
    table: &Table,
    c: usize,
    promise: Promise,
    alpha: Alpha,
    level: f64,
) -> Test {
    let opens = candidates.opens(c);
    let last = candidates.t_max() - 1;
    let first = match promise {
        Promise::Marginal => last,
        Promise::Conditional => opens,
    };
    let mut halted_by = Counts::default();
    let by_step: Vec<Counts> = table
        .halted_at(c)
        .iter()
        .map(|&at| {
            halted_by += at;
            halted_by
        })
        .collect();
    let (step, p_value) = largest_p_value(&by_step[first..], alpha);
    let threshold = candidates.opening_threshold(c);
    Test {
        opens: opens + 1,
        threshold: (threshold < f32::INFINITY).then_some(threshold),
        step: first + step + 1,
        halted: by_step[first + step].halted,
        gaps: by_step[first + step].gaps,
        p_value,
        rejected: p_value <= level,
    }
}

/// The p-value of "the gap among the halted is above α".
pub(crate) fn p_value(halted: Counts, alpha: Alpha) -> f64 {
    binomial_tail(halted.gaps, halted.halted, alpha.get())
}

/// The largest p-value, and the first place where it stands.
///
/// A tail costs O(√n), so most are ruled out by a bound that costs two
/// logarithms: from the largest bound down, until the next bound is below the
/// largest p-value found. What is skipped cannot change the result.
fn largest_p_value(by_step: &[Counts], alpha: Alpha) -> (usize, f64) {
    let mut bounds: Vec<(f64, usize)> = by_step
        .iter()
        .enumerate()
        .map(|(t, &halted)| (p_value_bound(halted, alpha), t))
        .collect();
    bounds.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut largest = (usize::MAX, -1.0);
    for (bound, t) in bounds {
        if bound < largest.1 {
            break;
        }
        let p = p_value(by_step[t], alpha);
        if p > largest.1 || p == largest.1 && t < largest.0 {
            largest = (t, p);
        }
    }
    largest
}

/// At least the p-value: Chernoff's bound exp(−m·KL(gap ‖ α)) where the gap is
/// below α, else 1; a little more, to cover its rounding.
pub(crate) fn p_value_bound(halted: Counts, alpha: Alpha) -> f64 {
    let a = alpha.get();
    match halted.gap() {
        Some(gap) if gap < a => {
            let part = |x: f64, y: f64| if x > 0.0 { x * (x / y).ln() } else { 0.0 };
            let divergence = part(gap, a) + part(1.0 - gap, 1.0 - a);
            let m = halted.halted as f64;
            (1e-9 + 1e-15 * m - m * divergence).exp()
        }
        _ => 1.0,
    }
}

/// About how many halted sequences a test needs to pass if the share of gaps
/// stays as it was seen; `None` where no number would do, because that share
/// is not below α.
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
            by_step in prop::collection::vec(counts(), 1..20),
        ) {
            let alpha = Alpha::default();
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
