//! Testing the mean of a loss in [0, 1] by betting against it, from four sums.
//!
//! Let X₁ … Xₙ be independent losses with mean above α. For any ν in (0, 1/(1 − α)) the
//! product of the factors 1 − ν(Xᵢ − α) has mean 1 at the most, so it is an e-value, and
//! 1/product is a p-value (Markov). That stays true if each factor is made smaller. Here
//! its logarithm f(x) is replaced by the cubic q that meets it at 0 and 1 and touches it at
//! some m: the remainder is f⁗(ξ)/24 · x(x − 1)(x − m)², and f⁗ < 0, so q ≤ f on [0, 1],
//! with equality at 0, m and 1. A sum of cubics needs only n, ΣX, ΣX² and ΣX³. These are
//! whole numbers if losses are whole levels, so evidence adds up exactly, in any order, and
//! a p-value follows from four numbers that a rule can record.
//!
//! ν and m must not depend on the losses that are tested. They follow from n (the test is
//! conditional on n), from α and δ, and from the losses that the fitting traces led to
//! expect (the profile). A bad guess costs power, never validity. Several bets are
//! averaged: a mean of e-values is an e-value.

use libm::{exp, log as ln, log1p as ln_1p};
use serde::{Deserialize, Serialize};

use crate::data::loss::TOP;
use crate::numbers::alpha_delta::{Alpha, Delta};
use crate::tables::moments::Moments;

/// The expected losses: values and their shares. Empty if nothing is known.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<(f64, f64)>", into = "Vec<(f64, f64)>")]
pub struct Profile(Vec<(f64, f64)>);

/// The most values of a profile.
const MOST_VALUES: usize = 32;

impl Profile {
    /// Makes the profile of observed losses, given as levels.
    pub(crate) fn of(levels: impl IntoIterator<Item = u8>) -> Self {
        let mut counts = [0_u64; MOST_VALUES];
        let mut sums = [0_u64; MOST_VALUES];
        for level in levels {
            // 0 and 1 stand for themselves.
            let bin = match level {
                0 => 0,
                TOP => MOST_VALUES - 1,
                _ => 1 + (usize::from(level) - 1) * (MOST_VALUES - 2) / usize::from(TOP - 1),
            };
            counts[bin] += 1;
            sums[bin] += u64::from(level);
        }
        let total: u64 = counts.iter().sum();
        let value = |(&n, &sum): (&u64, &u64)| {
            let mean = sum as f64 / n as f64 / f64::from(TOP);
            (n > 0).then_some((mean, n as f64 / total as f64))
        };
        Self(std::iter::zip(&counts, &sums).filter_map(value).collect())
    }

    /// The mean of a function of the loss.
    fn mean(&self, of: impl Fn(f64) -> f64) -> f64 {
        self.0.iter().map(|&(x, share)| share * of(x)).sum()
    }

    /// Whether only 0 and 1 are expected.
    pub(crate) fn is_binary(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|&(x, _)| x == 0.0 || x == 1.0)
    }
}

impl TryFrom<Vec<(f64, f64)>> for Profile {
    type Error = String;

    fn try_from(values: Vec<(f64, f64)>) -> Result<Self, String> {
        let share = |x: &f64| (0.0..=1.0).contains(x);
        let sound = values.iter().all(|(x, weight)| share(x) && share(weight));
        match sound && values.len() <= MOST_VALUES {
            true => Ok(Self(values)),
            false => Err("the losses that were expected are none".into()),
        }
    }
}

impl From<Profile> for Vec<(f64, f64)> {
    fn from(profile: Profile) -> Self {
        profile.0
    }
}

/// The share of the wealth that follows the profile; the rest guards against a misleading
/// profile.
const ON_PROFILE: f64 = 0.8;

/// How many bets are tried, and how many points where the cubic touches.
const NUS: usize = 48;
const TOUCHES: usize = 19;

/// The bets for numbers of losses up to some number.
#[derive(Debug)]
pub(crate) struct Bets {
    /// For each half of a binary order of magnitude of n: the logarithm of each bet's
    /// share, and its cubic in the level.
    by_size: Vec<Vec<(f64, [f64; 4])>>,
}

impl Bets {
    /// The bets against "the mean is above α", for up to `most` losses.
    pub(crate) fn new(profile: &Profile, alpha: f64, delta: f64, most: u64) -> Self {
        let of_size = of_size(profile, alpha, delta);
        Self {
            by_size: (0..=size(most)).map(of_size).collect(),
        }
    }

    /// The bets for exactly this many losses, if nothing is expected.
    fn expecting_nothing(alpha: f64, delta: f64, units: u64) -> Self {
        Self {
            by_size: vec![of_size(&Profile::default(), alpha, delta)(size(units))],
        }
    }

    /// The bets at the levels of a plan.
    pub(crate) fn at(profile: &Profile, alpha: Alpha, delta: Delta, most: u64) -> Self {
        Self::new(profile, alpha.get(), delta.get(), most)
    }

    fn of(&self, units: u64) -> &[(f64, [f64; 4])] {
        let size = size(units).min(self.by_size.len() - 1);
        &self.by_size[size]
    }

    /// The p-value of "the mean is above α".
    pub(crate) fn p_value(&self, found: Moments) -> f64 {
        if found.units == 0 {
            return 1.0;
        }
        let log = |&(weight, q): &(f64, [f64; 4])| {
            let [a, b, c] = found.sums.map(|sum| sum as f64);
            weight + q[0] * found.units as f64 + q[1] * a + q[2] * b + q[3] * c
        };
        let logs: Vec<f64> = self.of(found.units).iter().map(log).collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logs.iter().map(|log| exp(log - largest)).sum();
        exp(-(largest + ln(sum))).min(1.0)
    }

    /// Estimates how large the sum of this many losses may be for a p-value, if the ratios
    /// of their powers are those of the profile.
    pub(crate) fn budget(&self, profile: &Profile, units: f64, level: f64) -> f64 {
        let (weight, q) = self.of(units as u64)[0];
        let first = profile.mean(|x| x).max(1e-9);
        let top = f64::from(TOP);
        let ratio = |k: i32| profile.mean(|x| x.powi(k)) / first * top.powi(k - 1);
        let per_level = q[1] + q[2] * ratio(2) + q[3] * ratio(3);
        (q[0] * units + weight + ln(level)) / -per_level / top
    }
}

/// Makes the bets for a size of samples.
fn of_size(profile: &Profile, alpha: f64, delta: f64) -> impl Fn(usize) -> Vec<(f64, [f64; 4])> {
    let defaults = [
        // Rare and whole, rare and half, always and small; all half of α.
        Profile(vec![(0.0, 1.0 - alpha / 2.0), (1.0, alpha / 2.0)]),
        Profile(vec![(0.0, 1.0 - alpha), (0.5, alpha)]),
        Profile(vec![
            (alpha / 4.0, 1.0 / 3.0),
            (alpha / 2.0, 1.0 / 3.0),
            (alpha * 0.75, 1.0 / 3.0),
        ]),
    ];
    let mut weighted: Vec<(f64, Profile)> = Vec::new();
    let rest = match profile.0.is_empty() {
        true => 1.0,
        false => {
            weighted.push((ON_PROFILE, profile.clone()));
            1.0 - ON_PROFILE
        }
    };
    let each = rest / defaults.len() as f64;
    weighted.extend(defaults.map(|profile| (each, profile)));
    move |size: usize| {
        let n = libm::exp2((size as f64 + 0.5) / 2.0);
        let bet =
            |(weight, profile): &(f64, Profile)| (ln(*weight), best(profile, n, alpha, delta));
        weighted.iter().map(bet).collect()
    }
}

/// The index of the bets for this many losses.
fn size(units: u64) -> usize {
    (2.0 * libm::log2(units.max(1) as f64)).floor() as usize
}

/// The cubic, in levels, of the bet that would most likely pass with n losses like these.
fn best(profile: &Profile, n: f64, alpha: f64, delta: f64) -> [f64; 4] {
    let top = 0.999 / (1.0 - alpha);
    let nus = (1..=NUS).map(|j| top * (j as f64 / NUS as f64).powi(3));
    // How many standard deviations the mean of Σf is above the passing level.
    let margin = |nu: f64| {
        let f = |x: f64| ln_1p(-nu * (x - alpha));
        let mean = profile.mean(f);
        let spread = profile.mean(|x| (f(x) - mean).powi(2)).sqrt() + 1e-9;
        (n * mean + ln(delta)) / (spread * n.sqrt())
    };
    let nu = first_largest(nus, margin);
    let touches = (1..=TOUCHES).map(|k| k as f64 / (TOUCHES + 1) as f64);
    let growth = |m: f64| {
        let q = cubic(nu, alpha, m);
        profile.mean(|x| q[0] + x * (q[1] + x * (q[2] + x * q[3])))
    };
    let q = cubic(nu, alpha, first_largest(touches, growth));
    let per_level = |k: usize| q[k] / f64::from(TOP).powi(k as i32);
    // The tolerance is for rounding, of the cubic and of the sums.
    let q: [f64; 4] = std::array::from_fn(per_level);
    [q[0] - 1e-12, q[1], q[2], q[3]]
}

fn first_largest(values: impl Iterator<Item = f64>, of: impl Fn(f64) -> f64) -> f64 {
    let mut best = (f64::NAN, f64::NEG_INFINITY);
    for value in values {
        let found = of(value);
        if best.0.is_nan() || found > best.1 {
            best = (value, found);
        }
    }
    best.0
}

/// The cubic that meets ln(1 − ν(x − α)) at 0 and 1 and touches it at m.
fn cubic(nu: f64, alpha: f64, m: f64) -> [f64; 4] {
    let f = |x: f64| ln_1p(-nu * (x - alpha));
    let (f0, f1, fm) = (f(0.0), f(1.0), f(m));
    let slope = -nu / (1.0 - nu * (m - alpha));
    // Divided differences at 0, m, m, 1 (Newton's form).
    let d01 = (fm - f0) / m;
    let d23 = (f1 - fm) / (1.0 - m);
    let d012 = (slope - d01) / m;
    let d123 = (d23 - slope) / (1.0 - m);
    let d = d123 - d012;
    // f0 + d01·x + d012·x(x − m) + d·x(x − m)².
    [f0, d01 - d012 * m + d * m * m, d012 - 2.0 * d * m, d]
}

/// Returns an interval that covers the mean with this confidence, by the bets that expect
/// nothing; (0, 1) without losses.
pub(crate) fn interval(found: Moments, confidence: f64) -> (f64, f64) {
    if found.units == 0 {
        return (0.0, 1.0);
    }
    let level = (1.0 - confidence) / 2.0;
    // The least α that the test accepts as above the mean.
    let above = |found: Moments| {
        let believed = |alpha: f64| {
            let bets = Bets::expecting_nothing(alpha, level, found.units);
            bets.p_value(found) <= level
        };
        let (mut low, mut high) = (found.mean().unwrap_or(0.0).min(1.0), 1.0);
        for _ in 0..24 {
            let middle = f64::midpoint(low, high);
            match believed(middle) {
                true => high = middle,
                false => low = middle,
            }
        }
        high
    };
    (1.0 - above(found.complement()), above(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    proptest! {
        #[test]
        fn the_cubic_is_never_above_the_logarithm(
            alpha in 0.005..0.6f64, bet in 0.001..0.999f64, m in 0.05..0.95f64, x in 0.0..=1.0f64,
        ) {
            let nu = bet / (1.0 - alpha);
            let q = cubic(nu, alpha, m);
            let q = |x: f64| q[0] + x * (q[1] + x * (q[2] + x * q[3]));
            let f = |x: f64| ln_1p(-nu * (x - alpha));
            prop_assert!(q(x) <= f(x) + 1e-12);
            for node in [0.0, m, 1.0] {
                prop_assert!((q(node) - f(node)).abs() < 1e-9);
            }
        }
    }

    /// Counts how often 200 losses drawn by this function pass, if 300 others were
    /// expected.
    fn passes(draws: usize, mut draw: impl FnMut(&mut Xoshiro256PlusPlus) -> f64) -> usize {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let profile = Profile::of((0..300).map(|_| crate::data::loss::level(draw(&mut rng))));
        let bets = Bets::new(&profile, 0.1, 0.01, 200);
        let mut passed = 0;
        for _ in 0..draws {
            let mut found = Moments::default();
            for _ in 0..200 {
                found += Moments::one(crate::data::loss::level(draw(&mut rng)));
            }
            passed += usize::from(bets.p_value(found) <= 0.01);
        }
        passed
    }

    /// A draw of Beta(1, b).
    fn beta(rng: &mut Xoshiro256PlusPlus, b: f64) -> f64 {
        1.0 - libm::pow(rng.random::<f64>(), 1.0 / b)
    }

    #[test]
    fn losses_of_half_of_alpha_pass() {
        let half = passes(
            2_000,
            |rng| if rng.random::<f64>() < 0.1 { 0.5 } else { 0.0 },
        );
        assert!(half >= 1_500, "{half} of 2000");
        let small = passes(2_000, |rng| beta(rng, 19.0));
        assert!(small >= 1_900, "{small} of 2000");
    }

    #[test]
    fn losses_of_alpha_seldom_pass() {
        // 10,000 draws at δ = 1%: more than 130 occur with probability 0.2%.
        let rare = |share: f64, loss: f64| {
            move |rng: &mut Xoshiro256PlusPlus| {
                if rng.random::<f64>() < share {
                    loss
                } else {
                    0.0
                }
            }
        };
        for (what, passed) in [
            ("whole", passes(10_000, rare(0.1, 1.0))),
            ("half", passes(10_000, rare(0.2, 0.5))),
            ("always", passes(10_000, |_| 0.1)),
            ("skewed", passes(10_000, |rng| beta(rng, 9.0))),
        ] {
            assert!(passed <= 130, "{what}: {passed} of 10000");
        }
    }

    #[test]
    fn an_interval_holds_the_mean() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        let (mut outside, draws) = (0, 400);
        for _ in 0..draws {
            let mut found = Moments::default();
            for _ in 0..150 {
                found += Moments::one(crate::data::loss::level(beta(&mut rng, 4.0)));
            }
            let (low, high) = interval(found, 0.95);
            assert!(low < high && high - low < 0.25, "{low} {high}");
            outside += usize::from(!(low..=high).contains(&0.2));
        }
        assert!(outside <= 20, "{outside} of {draws}");
    }

    #[test]
    fn a_profile_keeps_what_is_whole() {
        assert!(Profile::of([0, 0, 255]).is_binary());
        assert!(!Profile::of([0, 254, 255]).is_binary());
        assert!(!Profile::default().is_binary());
        let stored = serde_json::to_string(&Profile::of([0, 51, 255, 255])).unwrap();
        assert_eq!(stored, "[[0.0,0.25],[0.2,0.25],[1.0,0.5]]");
    }
}
