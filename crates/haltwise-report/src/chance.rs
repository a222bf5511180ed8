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
//!    1.2). Steps by which no one has halted, p = 1, change nothing. Groups are
//!    independent of each other, and so are their p-values.
//!
//! *Losses in [0, 1] and means over units* need two other arguments, for neither 1
//! nor 2 is about them. A sum of m independent numbers in [0, 1] with means of at
//! most α reaches a whole number k with probability e·P(Bin(m, α) ≥ k) at most
//! (Bentkus 2004, theorem 1.2), and a sum that reaches s reaches ⌊s⌋. So e times
//! the p-value of ⌊s⌋ is a p-value. `evaluate` measures the sum without rounding
//! losses up to levels, as certifying does; a sum that was rounded up would accuse
//! rules that keep their promise. And whatever the dependence of p-values, Simes'
//! test keeps its level if that is divided by 1 + 1/2 + … + 1/K (Hommel 1983).

use haltwise::evaluate::CONFIDENCE;
use haltwise::stats::binomial_tail;

/// The probability with which gaps that are at most α in truth are called more
/// than chance explains: the lower side of the intervals shown, so that a gap
/// that is called so has all of its interval above α.
pub const LEVEL: f64 = (1.0 - CONFIDENCE) / 2.0;

/// The kind of losses that are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Losses {
    /// Each is 0 or 1, and all are independent.
    ZeroOrOne,
    /// They lie in [0, 1], as means over units do.
    UpToOne,
}

impl Losses {
    /// The p-value for "their mean is at most α", where `sum` is the sum of `n` of them.
    pub fn p_value(self, sum: f64, n: u64, alpha: f64) -> f64 {
        match self {
            // A whole number up to rounding errors.
            Self::ZeroOrOne => p_value(sum.round() as u64, n, alpha),
            Self::UpToOne => (std::f64::consts::E * p_value(sum.floor() as u64, n, alpha)).min(1.0),
        }
    }

    /// What Simes' level is divided by, with this many looks.
    fn price(self, looks: usize) -> f64 {
        match self {
            Self::ZeroOrOne => 1.0,
            Self::UpToOne => (1..=looks).map(|i| 1.0 / i as f64).sum(),
        }
    }
}

/// P(Bin(m, α) ≥ k), the p-value for "the gap is at most α".
fn p_value(gaps: u64, halted: u64, alpha: f64) -> f64 {
    binomial_tail(halted.saturating_sub(gaps), halted, 1.0 - alpha)
}

/// Whether gaps above α are more than chance explains with this many looks. The
/// looks must be chosen without a look at the sequences: all steps, or those
/// from where the rule opens.
pub fn beyond_chance(losses: Losses, looks: impl IntoIterator<Item = f64>) -> bool {
    let mut p_values: Vec<f64> = looks.into_iter().collect();
    p_values.sort_by(f64::total_cmp);
    let share = LEVEL / losses.price(p_values.len()) / p_values.len() as f64;
    let ranked = p_values.iter().enumerate();
    let mut beyond = ranked.filter(|&(i, &p)| p <= share * (i + 1) as f64);
    beyond.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::{LEVEL, Losses, p_value};
    use haltwise::evaluate::CONFIDENCE;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    /// From the numbers of gaps and of halted sequences at each look.
    fn beyond_chance<const N: usize>(looks: [(u64, u64); N], alpha: f64) -> bool {
        let p_values = looks.map(|(gaps, halted)| p_value(gaps, halted, alpha));
        super::beyond_chance(Losses::ZeroOrOne, p_values)
    }

    #[test]
    fn p_values_are_upper_tails() {
        assert_eq!(p_value(0, 0, 0.1), 1.0);
        assert_eq!(p_value(0, 9, 0.1), 1.0);
        assert!((p_value(2, 2, 0.1) - 0.01).abs() < 1e-12);
        assert!((p_value(1, 2, 0.1) - 0.19).abs() < 1e-12);
    }

    /// The mean of losses in [0, 1] can deviate more than a count: the sum is not rounded up,
    /// and several looks cost more.
    #[test]
    fn losses_that_are_not_0_or_1_need_more() {
        let (binary, other) = (Losses::ZeroOrOne, Losses::UpToOne);
        assert_eq!(binary.p_value(30.0 - 1e-9, 200, 0.1), p_value(30, 200, 0.1));
        let expected = std::f64::consts::E * p_value(35, 200, 0.1);
        assert_eq!(other.p_value(35.9, 200, 0.1), expected);
        assert_eq!(other.p_value(0.0, 200, 0.1), 1.0);
        let p = LEVEL / 1.5;
        assert!(super::beyond_chance(other, [p]) && super::beyond_chance(binary, [p; 2]));
        assert!(super::beyond_chance(other, [p; 2]));
        assert!(!super::beyond_chance(other, [p * 1.01; 2]));
    }

    /// In how many of 10,000 evaluations 400 sequences or units make it look as if more
    /// than α were lost. One in 32 of those that are left halts at each of 40 steps. Each
    /// loses α on average: 0 or 1, or the mean of `ties` such losses.
    fn accused(losses: Losses, ties: u32) -> u64 {
        const STEPS: usize = 40;
        let mut rng = SmallRng::seed_from_u64(u64::from(ties));
        let mut accused = 0;
        for _ in 0..10_000 {
            let mut at_step = [(0, 0.0); STEPS];
            for _ in 0..400 {
                let t = (0..STEPS - 1).find(|_| rng.random_ratio(1, 32));
                let lost = (0..ties).filter(|_| rng.random_bool(0.1)).count();
                let at = &mut at_step[t.unwrap_or(STEPS - 1)];
                *at = (at.0 + 1, at.1 + lost as f64 / f64::from(ties));
            }
            let (mut n, mut sum) = (0, 0.0);
            let looks = at_step.map(|(more, lost)| {
                (n, sum) = (n + more, sum + lost);
                losses.p_value(sum, n, 0.1)
            });
            accused += u64::from(super::beyond_chance(losses, looks));
        }
        accused
    }

    #[test]
    fn rules_at_their_promise_are_accused_in_at_most_the_level_of_evaluations() {
        for (losses, ties) in [
            (Losses::ZeroOrOne, 1),
            (Losses::UpToOne, 1),
            (Losses::UpToOne, 3),
        ] {
            let found = accused(losses, ties);
            let (_, most) = haltwise::stats::clopper_pearson(found, 10_000, 0.98);
            println!("{losses:?}, {ties}: {found} of 10,000 accused, at most {most:.4}");
            assert!(most <= LEVEL, "{losses:?} {ties}: {found}");
        }
    }

    /// So the test above can fail: each look for itself accuses too often.
    #[test]
    fn looks_that_are_judged_one_by_one_accuse_too_often() {
        let mut rng = SmallRng::seed_from_u64(7);
        let by_chance = (0..1000).filter(|_| {
            let (mut n, mut gaps) = (0, 0);
            (0..40).any(|_| {
                for _ in 0..10 {
                    n += 1;
                    gaps += u64::from(rng.random_bool(0.1));
                }
                p_value(gaps, n, 0.1) <= LEVEL
            })
        });
        assert!(by_chance.count() > 50);
    }

    #[test]
    fn one_look_is_the_lower_end_of_the_interval() {
        for gaps in 0..60 {
            let low = haltwise::stats::clopper_pearson(gaps, 200, CONFIDENCE).0;
            assert_eq!(beyond_chance([(gaps, 200)], 0.1), low > 0.1, "{gaps}");
        }
    }

    #[test]
    fn more_looks_need_more_and_equal_ones_do_not() {
        let high = (30, 200);
        let p = p_value(30, 200, 0.1);
        assert!(p < LEVEL && 4.0 * p > LEVEL);
        assert!(beyond_chance([high], 0.1));
        assert!(!beyond_chance([high, (1, 50), (2, 60), (3, 70)], 0.1));
        assert!(beyond_chance([high; 4], 0.1));
        assert!(!beyond_chance([], 0.1));
    }
}
