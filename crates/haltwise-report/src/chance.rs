//! Whether gaps above α, looked at by many steps, are more than chance explains.
//!
//! By each step t, `k` of the `m` sequences halted so far have a gap. If the
//! true gap by t is at most α, p = P(Bin(m, α) ≥ k) is at most u with
//! probability at most u. But a rule with forty steps gives forty chances to be
//! unlucky, so all p-values are judged together, by Simes' test: of `K` looks,
//! accuse if for some i the i-th smallest p-value is at most i/K times
//! [`LEVEL`]. The looks are nested and so go up and down together, which is
//! what this test is good at; the union bound would use i = 1 alone.
//!
//! *Claim.* If the true gap by every step is at most α, [`beyond_chance`] is
//! true with probability at most [`LEVEL`].
//!
//! 1. *The worst case is a gap with probability α whatever the halt step.* Let
//!    W(t) be the probability of halting by t, G(t) ≤ α·W(t) that of halting by
//!    t with a gap. Compare with W(t) and α·W(t): there, gaps come no later and
//!    are no fewer, and what is left without a gap comes no earlier. So each
//!    sequence can be drawn together with one of the worst case such that one
//!    with a gap has it there too, halting no later; and one without either
//!    has a gap there or halts no earlier (match equal quantiles). Each such
//!    change, at each step, adds a halted sequence with a gap, gives a halted
//!    one a gap or takes away one without, or changes nothing. None raises
//!    P(Bin(m, α) ≥ k), and Simes' test accuses the sooner the lower p-values
//!    are, as long as `K` does not depend on the sequences.
//! 2. *In the worst case Simes' test is valid.* Gaps are independent of halt
//!    steps there, so take all `m` as given: the `k` are a walk of independent
//!    steps. Given `k` at one look, later ones add an independent number to it
//!    and earlier ones are draws without replacement from it, so that all of
//!    them grow with it: the p-values are positively dependent on each, under
//!    which Simes' test keeps its level (Benjamini and Yekutieli 2001, theorem
//!    1.2). Steps by which no one has halted, p = 1, change nothing.

use haltwise::corridor::Counts;
use haltwise::evaluate::CONFIDENCE;
use haltwise::stats::binomial_tail;

/// The probability with which gaps that are at most α in truth are called more
/// than chance explains: the lower side of the intervals shown, so that a gap
/// that is called so has all of its interval above α.
pub(crate) const LEVEL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// P(Bin(m, α) ≥ k), the p-value for "the gap is at most α".
pub(crate) fn p_value(seen: Counts, alpha: f64) -> f64 {
    let without = seen.halted.saturating_sub(seen.gaps);
    binomial_tail(without, seen.halted, 1.0 - alpha)
}

/// Whether gaps above α are more than chance explains with this many looks. The
/// looks must be chosen without a look at the sequences: all steps, or those
/// from where the rule opens.
pub(crate) fn beyond_chance(looks: impl IntoIterator<Item = f64>) -> bool {
    let mut p_values: Vec<f64> = looks.into_iter().collect();
    p_values.sort_by(f64::total_cmp);
    let share = LEVEL / p_values.len() as f64;
    let ranked = p_values.iter().enumerate();
    let mut beyond = ranked.filter(|&(i, &p)| p <= share * (i + 1) as f64);
    beyond.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::{Counts, LEVEL, p_value};
    use haltwise::evaluate::CONFIDENCE;

    fn seen(gaps: u64, halted: u64) -> Counts {
        Counts { halted, gaps }
    }

    fn beyond_chance<const N: usize>(looks: [Counts; N], alpha: f64) -> bool {
        super::beyond_chance(looks.map(|seen| p_value(seen, alpha)))
    }

    #[test]
    fn p_values_are_upper_tails() {
        assert_eq!(p_value(seen(0, 0), 0.1), 1.0);
        assert_eq!(p_value(seen(0, 9), 0.1), 1.0);
        assert!((p_value(seen(2, 2), 0.1) - 0.01).abs() < 1e-12);
        assert!((p_value(seen(1, 2), 0.1) - 0.19).abs() < 1e-12);
    }

    #[test]
    fn one_look_is_the_lower_end_of_the_interval() {
        for gaps in 0..60 {
            let low = haltwise::stats::clopper_pearson(gaps, 200, CONFIDENCE).0;
            assert_eq!(beyond_chance([seen(gaps, 200)], 0.1), low > 0.1, "{gaps}");
        }
    }

    #[test]
    fn more_looks_need_more_and_equal_ones_do_not() {
        let high = seen(30, 200);
        let p = p_value(high, 0.1);
        assert!(p < LEVEL && 4.0 * p > LEVEL);
        assert!(beyond_chance([high], 0.1));
        assert!(!beyond_chance(
            [high, seen(1, 50), seen(2, 60), seen(3, 70)],
            0.1
        ));
        assert!(beyond_chance([high; 4], 0.1));
        assert!(!beyond_chance([], 0.1));
    }
}
