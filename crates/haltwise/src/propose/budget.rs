//! How many gaps the test allows for a number of halted sequences, and how closely a curve
//! keeps to that.

use libm::log as ln;

use crate::numbers::binomial::binomial_tail;
use crate::testing::betting::{Bets, Profile};
use crate::testing::fixed_sequence::rho;

/// The p-values that a family's curves are screened for, in units of the level that they
/// aim at. The first is the reference; each later one is bolder.
pub(super) const LEVELS: [f64; 4] = [0.5, 2.0, 8.0, 50.0];

/// The same for the cautious curves before the reference. They are held to it once half of
/// all sequences have halted, where bolder curves tend to fail.
pub(super) const STRICT_LEVELS: [f64; 3] = [1e-3, 1e-2, 1e-1];

/// Each of them is screened with this many fewer standard deviations of caution.
const LESS_CAUTION: f64 = 0.4;

/// Counts are raised by this many standard deviations, because the certifying traces may be
/// harder than the fitting ones.
const CAUTION: f64 = 0.7;

/// This many more for the cautious curves, from the one next to the reference on, and this
/// many less for the bold ones, if a thousand times as many traces certify as fit; nothing
/// if as many certify as fit. Many traces tell a gap just above α from one just below; the
/// fitting traces cannot.
const MORE_CAUTION: [f64; 3] = [0.7, 1.4, 2.1];

/// For a p-value: how many gaps among a number of halted sequences give it.
pub(super) struct Budget {
    /// Numbers of halted sequences, rising, and their gaps; linear in between.
    knots: Vec<(f64, f64)>,
}

impl Budget {
    /// Up to this many halted sequences, every number has a knot.
    const DENSE: u64 = 256;

    /// Computes the gaps that a kind of test allows.
    pub(super) fn of(kind: Kind<'_>, most: usize, level: f64) -> Self {
        match kind {
            Kind::Binomial(alpha) => Self::new(most, level, alpha),
            Kind::FewLabels {
                right,
                labelled,
                alpha,
                level: of_labels,
            } => {
                // For each ρ, the numbers of halted sequences that use it.
                let mut budgets: Vec<(f64, Self)> = Vec::new();
                let mut knot = |halted: u64| {
                    let halted = halted as f64;
                    let rho = rho(halted, right, labelled, alpha, of_labels);
                    if budgets.last().is_none_or(|(last, _)| *last != rho) {
                        budgets.push((rho, Self::new(most, level, (alpha / rho).min(0.99))));
                    }
                    let gaps = budgets
                        .last()
                        .map_or(-1.0, |(_, budget)| budget.gaps(halted));
                    (halted, gaps)
                };
                let next = |&halted: &u64| Some(halted + 1 + halted / 64);
                let halted = std::iter::successors(Some(1), next);
                let halted = halted.take_while(|&n| n <= 2 * most as u64 + 2);
                let knots: Vec<(f64, f64)> = halted.map(&mut knot).collect();
                Self {
                    knots: std::iter::once((0.0, -1.0)).chain(knots).collect(),
                }
            }
            Kind::Bets(profile, alpha, delta) => {
                let bets = Bets::new(profile, alpha, delta, most as u64);
                let knot = |halted: u64| {
                    let halted = halted as f64;
                    (halted, bets.budget(profile, halted, level))
                };
                let next = |&halted: &u64| Some(halted + 1 + halted / 64);
                let halted = std::iter::successors(Some(1), next);
                let knots = halted.take_while(|&n| n <= 2 * most as u64 + 2);
                Self {
                    knots: std::iter::once((0.0, -1.0))
                        .chain(knots.map(knot))
                        .collect(),
                }
            }
        }
    }

    pub(super) fn new(most: usize, level: f64, alpha: f64) -> Self {
        // This many halted sequences without a gap are just enough.
        let enough = ln(level) / ln(1.0 - alpha);
        let tail = |gaps: u64, halted: u64| binomial_tail(gaps, halted, alpha);
        let mut knots = vec![(0.0, -1.0)];
        // How many gap counts pass: 0 to `passing` − 1.
        let (mut passing, mut halted) = (0_u64, 0_u64);
        while halted <= most as u64 {
            halted += 1 + halted.saturating_sub(Self::DENSE) / 64;
            passing = first_failing(passing, |gaps| tail(gaps, halted) <= level);
            let gaps = match passing.checked_sub(1) {
                None => halted as f64 / enough - 1.0,
                Some(last) => {
                    // Interpolates between the last count that passes and the next, in the
                    // logarithm of the p-value.
                    let log = |gaps| ln(tail(gaps, halted).max(1e-300));
                    let (below, above) = (log(last), log(passing));
                    last as f64 + (ln(level) - below) / (above - below).max(1e-9)
                }
            };
            knots.push((halted as f64, gaps));
        }
        Self { knots }
    }

    pub(super) fn gaps(&self, halted: f64) -> f64 {
        let after = self.knots.partition_point(|&(m, _)| m <= halted);
        let after = after.clamp(1, self.knots.len() - 1);
        let ((m, gaps), (next_m, next_gaps)) = (self.knots[after - 1], self.knots[after]);
        gaps + (next_gaps - gaps) * (halted - m) / (next_m - m)
    }
}

/// Returns the first number, from one on, that does not pass, if none after it passes. It
/// searches by increasing strides, then between the last two. A tail costs O(√n), and with
/// millions of halted sequences the next number is tens of thousands away.
fn first_failing(from: u64, passes: impl Fn(u64) -> bool) -> u64 {
    if !passes(from) {
        return from;
    }
    let (mut passing, mut stride) = (from, 1);
    while passes(passing + stride) {
        passing += stride;
        stride *= 2;
    }
    while stride > 1 {
        stride /= 2;
        if passes(passing + stride) {
            passing += stride;
        }
    }
    passing + 1
}

/// A limit that follows one budget until this many have halted, then another, and the
/// caution with which a curve is kept to it.
pub(super) struct Limit<'l> {
    pub(super) early: &'l Budget,
    pub(super) late: &'l Budget,
    pub(super) from: f64,
    pub(super) caution: f64,
}

impl Limit<'_> {
    pub(super) fn gaps(&self, halted: f64) -> f64 {
        match halted < self.from {
            true => self.early.gaps(halted),
            false => self.late.gaps(halted),
        }
    }
}

/// The kind of test: of gaps against α, or by bets at α and δ for such expected losses.
#[derive(Clone, Copy)]
pub(super) enum Kind<'k> {
    Binomial(f64),
    Bets(&'k Profile, f64, f64),
    FewLabels {
        right: f64,
        labelled: f64,
        alpha: f64,
        level: f64,
    },
}

/// The budgets of all levels.
pub(super) struct Budgets {
    pub(super) certifying: usize,
    pub(super) budgets: [Budget; LEVELS.len()],
    pub(super) strict: [Budget; STRICT_LEVELS.len()],
}

impl Budgets {
    /// Computes the budgets; `first` is the level that curves are screened for.
    pub(super) fn new(certifying: usize, first: f64, kind: Kind<'_>) -> Self {
        let budget = |level: f64| {
            let level = (level * first).min(0.5);
            Budget::of(kind, certifying, level)
        };
        Self {
            certifying,
            budgets: LEVELS.map(budget),
            strict: STRICT_LEVELS.map(budget),
        }
    }

    /// The limit of a bold curve, or of the reference; `scale` is the number of certifying
    /// traces per fitting trace.
    pub(super) fn bold(&self, i: usize, scale: f64) -> Limit<'_> {
        let less = i.checked_sub(1).map_or(0.0, |i| MORE_CAUTION[i]);
        Limit {
            early: &self.budgets[i],
            late: &self.budgets[i],
            from: 0.0,
            caution: CAUTION - many(scale) * less,
        }
    }

    /// The limit of a cautious curve; `scale` is the number of certifying traces per
    /// fitting trace.
    pub(super) fn strict(&self, i: usize, scale: f64) -> Limit<'_> {
        let more = MORE_CAUTION[STRICT_LEVELS.len() - 1 - i];
        Limit {
            early: &self.budgets[0],
            late: &self.strict[i],
            from: 0.5 * self.certifying as f64,
            caution: CAUTION + many(scale) * more,
        }
    }
}

/// The limit that a curve is held to, in every group.
pub(super) enum Limited {
    /// The limit of a bold curve, or of the reference, which is the first.
    Bold(usize),
    Strict(usize),
    /// Bolder than any other, as if the fitting traces had been too hard.
    Bolder(usize),
}

impl Limited {
    pub(super) fn of<'l>(&self, levels: &'l Budgets, scale: f64) -> Limit<'l> {
        match *self {
            Self::Bold(0) => levels.bold(0, 1.0),
            Self::Bold(i) => levels.bold(i, scale),
            Self::Strict(i) => levels.strict(i, scale),
            Self::Bolder(i) => {
                let bold = levels.bold(LEVELS.len() - 1, scale);
                let less = LESS_CAUTION * (i + 1) as f64;
                Limit {
                    caution: bold.caution - less,
                    ..bold
                }
            }
        }
    }
}

/// Measures how many traces certify per fitting trace: 0 for one, 1 for a thousand.
fn many(scale: f64) -> f64 {
    (libm::log10(scale) / 3.0).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failing_number_is_found_from_anywhere_before_it() {
        for last in 0..70_u64 {
            for from in 0..=last + 1 {
                assert_eq!(first_failing(from, |n| n <= last), last + 1);
            }
        }
    }

    #[test]
    fn a_budget_is_what_the_test_will_grant() {
        let level = 0.005;
        let budget = Budget::new(3000, level, 0.1);
        for halted in [10, 60, 300, 1000, 3000] {
            let gaps = budget.gaps(halted as f64);
            let (floor, ceiling) = (gaps.floor(), gaps.ceil());
            if floor >= 0.0 && halted <= 256 {
                assert!(binomial_tail(floor as u64, halted, 0.1) <= level);
            }
            // Beyond the dense part, interpolation may be slightly off.
            let slack = if halted <= 256 { 0 } else { 1 };
            assert!(binomial_tail(ceiling.max(0.0) as u64 + slack, halted, 0.1) > level);
        }
        assert!(budget.gaps(40.0) < 0.0, "too few to pass at all");
    }
}
