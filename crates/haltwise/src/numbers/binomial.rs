//! The binomial tail, the p-value of every test made here.
//!
//! Let `k` of `m` halted sequences have a gap. If the true gap is above α, then
//! P(at most `k` gaps) ≤ P(Bin(m, α) ≤ k), because the binomial is
//! stochastically increasing in its success probability. So that tail is a
//! valid p-value for "the gap is above α" (Bates et al. 2021, appendix B), and
//! an exact one: nothing is asymptotic.
//!
//! The function is written out because no available one keeps 12 digits over the needed
//! range (`m` up to 10⁹, values down to 1e-300). Measured on the first 1056 entries of
//! `tests/golden/binomial_tail.csv`, SciPy 1.17 misses 60 (by up to 1.2e-10), the crate
//! statrs 0.19 misses 343 and puruspe 0.4 misses 730, some by orders of magnitude. They
//! lose digits in differences of log-gammas. Here the probability of one value comes from a
//! saddle-point expansion without such differences (C. Loader, "Fast and accurate
//! computation of binomial probabilities", 2000), and the tail from a nested sum of term
//! ratios.

use libm::{exp, log as ln, log1p as ln_1p};

/// Returns P(X ≤ `k`) for X binomial with `n` trials of success probability `p`, to 12
/// significant digits for `n` up to 10⁹ and results down to 1e-300. `p` may be arbitrarily
/// near to 0 or 1, and is taken as the exact value of the double: 1 − 10⁻¹⁶ stands for 1 −
/// 2⁻⁵³.
///
/// Costs O(√n) near the mean and less away from it. A `p` outside (0, 1) gives
/// the limit at the nearer end, NaN gives NaN.
///
/// ```
/// // No gap among 44 halted sequences: just enough at α = 0.1, δ = 0.01.
/// assert!(haltwise::stats::binomial_tail(0, 43, 0.1) > 0.01);
/// assert!(haltwise::stats::binomial_tail(0, 44, 0.1) <= 0.01);
/// ```
pub fn binomial_tail(k: u64, n: u64, p: f64) -> f64 {
    if p.is_nan() {
        return f64::NAN;
    }
    if k >= n || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    let (kf, nf, q) = (k as f64, n as f64, 1.0 - p);
    if kf < nf * p {
        // Terms fall from k down: Σ pmf(k−j) = pmf(k)·(1 + r₁(1 + r₂(1 + …))).
        let odds = q / p;
        let ratio = |j: f64| (kf - j + 1.0) / (nf - kf + j) * odds;
        probability(kf, nf, p) * nested_sum(ratio, kf)
    } else {
        // Past the mean, the tail is one minus the upper tail, whose terms fall from k + 1
        // up. The difference is at least about a half, so no digit is lost.
        let odds = p / q;
        let ratio = |j: f64| (nf - kf - j) / (kf + 1.0 + j) * odds;
        1.0 - probability(kf + 1.0, nf, p) * nested_sum(ratio, nf - kf - 1.0)
    }
}

/// Estimates the most operations that [`binomial_tail`] takes for `n` trials: the start of
/// [`nested_sum`] if its first ratio is 1 and all trials are terms.
pub(crate) fn tail_cost(n: u64) -> f64 {
    1.0 + (84.0 * n as f64).sqrt()
}

/// 1 + r₁(1 + r₂(1 + …)) for falling ratios, at most `terms` of them.
///
/// It is evaluated from the inside out. Every later factor then damps rounding errors,
/// which would otherwise add up.
fn nested_sum(ratio: impl Fn(f64) -> f64, terms: f64) -> f64 {
    if terms < 1.0 {
        return 1.0;
    }
    // Where to start: the product of the first m ratios is below e⁻⁴² (less
    // than half a unit in the last place) once a·m + c·m²/2 ≥ 42, where
    // a = −ln r₁ and c = 1/terms. The ratios fall at least that fast: the one
    // that counts down from `terms` loses a factor of at most 1 − j/terms ≤
    // exp(−j/terms) by the j-th, and the other factor only helps.
    let a = -ln(ratio(1.0)).min(0.0);
    let c = 1.0 / terms;
    let start = (84.0 / (a + (a * a + 84.0 * c).sqrt())).ceil().min(terms);
    let mut sum = 1.0;
    let mut j = start;
    while j >= 1.0 {
        sum = 1.0 + ratio(j) * sum;
        j -= 1.0;
    }
    sum
}

/// P(X = `k`) for 0 ≤ k ≤ n, 0 < p < 1.
pub(crate) fn probability(k: f64, n: f64, p: f64) -> f64 {
    if k == 0.0 {
        return exp(n * ln_1p(-p));
    }
    if k == n {
        return exp(n * ln(p));
    }
    // The mean n·p and its rounding error; at n = 10⁹ that error, times the
    // distance from the mean, would cost three digits.
    let mean = n * p;
    let mean_error = n.mul_add(p, -mean);
    let distance = (k - mean) - mean_error;
    // The mean of the failures. Near p = 1, n − mean would be a difference of
    // like numbers, and 1 − p is exact from a half on.
    let failures = if p < 0.5 { n - mean } else { n * (1.0 - p) };
    let deviance = deviance(k, mean, distance) + deviance(n - k, failures, -distance);
    let correction = stirling_error(n) - stirling_error(k) - stirling_error(n - k);
    exp(correction - deviance) * (n / (std::f64::consts::TAU * k * (n - k))).sqrt()
}

/// Returns x·ln(x/m) − d with d = x − m known precisely: how far x is from its mean m.
fn deviance(x: f64, m: f64, d: f64) -> f64 {
    let v = d / (x + m);
    if v.abs() > 0.3 {
        return x * ln(x / m) - d;
    }
    // ln(x/m) = 2·(v + v³/3 + v⁵/5 + …); the leading terms cancel against d
    // and leave d·v + 2x·(v³/3 + v⁵/5 + …).
    let square = v * v;
    let mut power = 2.0 * x * v;
    let mut sum = d * v;
    for j in 1..40 {
        power *= square;
        let next = sum + power / f64::from(2 * j + 1);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

/// ln(n!) − ln(√(2πn)·(n/e)ⁿ) for whole n ≥ 1.
fn stirling_error(n: f64) -> f64 {
    const SMALL: [f64; 15] = [
        0.08106146679532726,
        0.0413406959554093,
        0.02767792568499834,
        0.020790672103765093,
        0.016644691189821193,
        0.013876128823070748,
        0.01189670994589177,
        0.010411265261972096,
        0.009255462182712733,
        0.00833056343336287,
        0.007573675487951841,
        0.00694284010720953,
        0.006408994188004207,
        0.0059513701127588475,
        0.005554733551962801,
    ];
    if n < 15.5 {
        return SMALL[n as usize - 1];
    }
    // Bernoulli numbers B₂ₖ/(2k(2k−1)): from n = 16 on, six terms leave an
    // error below 1e-17.
    let s = 1.0 / (n * n);
    (1.0 / 12.0
        - s * (1.0 / 360.0
            - s * (1.0 / 1260.0 - s * (1.0 / 1680.0 - s * (1.0 / 1188.0 - s * 691.0 / 360_360.0)))))
        / n
}

/// The exact (Clopper–Pearson) interval for a success probability after `k`
/// successes in `n` trials, at the given confidence; (0, 1) without trials.
///
/// Its ends are where the tails on either side reach half the remaining
/// probability, so it covers the truth with at least that confidence for every
/// `n`.
///
/// ```
/// let (low, high) = haltwise::stats::clopper_pearson(0, 44, 0.98);
/// assert_eq!(low, 0.0);
/// assert!((high - 0.0994).abs() < 1e-4); // 1 − 0.01^(1/44)
/// ```
pub fn clopper_pearson(k: u64, n: u64, confidence: f64) -> (f64, f64) {
    let k = k.min(n);
    let side = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let low = if k == 0 {
        0.0
    } else {
        // P(X ≥ k) under p is P(X ≤ n − k) under 1 − p.
        1.0 - where_tail_falls_to(side, n - k, n)
    };
    let high = if k == n {
        1.0
    } else {
        where_tail_falls_to(side, k, n)
    };
    (low, high)
}

/// The p at which P(Bin(n, p) ≤ k), which falls as p grows, reaches `level`;
/// for k < n.
///
/// Newton's method on the logarithm, which is nearly straight, kept inside a
/// bracket that halves whenever a step would leave it.
fn where_tail_falls_to(level: f64, k: u64, n: u64) -> f64 {
    let (kf, nf) = (k as f64, n as f64);
    let (mut low, mut high) = (0.0, 1.0);
    let mut p = (kf + 1.0) / (nf + 2.0);
    // A few steps in practice, 100 halvings at worst.
    for _ in 0..100 {
        let tail = binomial_tail(k, n, p);
        if tail > level {
            low = p;
        } else {
            high = p;
        }
        // The derivative of the tail is −(n − k)/(1 − p) times P(X = k).
        let slope = (nf - kf) / (1.0 - p) * probability(kf, nf, p);
        let step = ln(tail / level) * tail / slope;
        let next = match p + step {
            next if next > low && next < high => next,
            _ => 0.5 * (low + high),
        };
        let moved = (next - p).abs();
        p = next;
        if moved <= 1e-15 * p {
            break;
        }
    }
    p
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn agrees_with_the_reference_to_12_digits() {
        let table = include_str!("../../tests/golden/binomial_tail.csv");
        let mut worst = 0.0_f64;
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let (n, k) = (fields[0].parse().unwrap(), fields[1].parse().unwrap());
            let (alpha, expected): (f64, f64) =
                (fields[2].parse().unwrap(), fields[3].parse().unwrap());
            let error = (binomial_tail(k, n, alpha) / expected - 1.0).abs();
            assert!(error < 1e-12, "{line}: off by {error:e}");
            worst = worst.max(error);
        }
        println!("largest relative error {worst:e}");
        assert!(table.lines().count() > 1300);
    }

    #[test]
    fn ends_of_the_range_are_exact() {
        assert_eq!(binomial_tail(3, 3, 0.1), 1.0);
        assert_eq!(binomial_tail(9, 3, 0.1), 1.0);
        assert_eq!(binomial_tail(0, 0, 0.1), 1.0);
        assert_eq!(binomial_tail(2, 3, 0.0), 1.0);
        assert_eq!(binomial_tail(2, 3, 1.0), 0.0);
        assert!(binomial_tail(2, 3, f64::NAN).is_nan());
        assert_eq!(binomial_tail(1, u64::MAX, 0.5), 0.0);
    }

    proptest! {
        #[test]
        fn small_cases_equal_the_plain_sum(n in 1u64..60, k in 0u64..60, p in 0.001..0.999f64) {
            let mut term = (1.0 - p).powi(n as i32);
            let mut sum = 0.0;
            for j in 0..=k.min(n) {
                sum += term;
                term *= (n - j) as f64 / (j + 1) as f64 * p / (1.0 - p);
            }
            prop_assert!((binomial_tail(k, n, p) / sum - 1.0).abs() < 1e-11);
        }

        #[test]
        fn more_gaps_never_give_a_smaller_p_value(
            n in 1u64..5000, share in 0.0..1.0f64, p in 0.01..0.5f64,
        ) {
            let k = (n as f64 * share) as u64;
            prop_assert!(binomial_tail(k, n, p) <= binomial_tail(k + 1, n, p) * (1.0 + 1e-12));
        }

        #[test]
        fn intervals_hold_the_estimate_and_tighten_with_n(n in 1u64..2000, share in 0.0..1.0f64) {
            let k = (n as f64 * share) as u64;
            let estimate = k as f64 / n as f64;
            let (low, high) = clopper_pearson(k, n, 0.95);
            prop_assert!(low <= estimate && estimate <= high);
            let (low4, high4) = clopper_pearson(4 * k, 4 * n, 0.95);
            prop_assert!(high4 - low4 < high - low);
        }

        #[test]
        fn interval_ends_are_where_the_tails_reach_half_the_rest(
            n in 1u64..2_000_000, shift in 0u32..20, share in 0.0..1.0f64, confidence in 0.5..0.999f64,
        ) {
            let n = (n >> shift).max(1);
            let k = (n as f64 * share) as u64;
            let (low, high) = clopper_pearson(k, n, confidence);
            let side = (1.0 - confidence) / 2.0;
            if k < n {
                prop_assert!((binomial_tail(k, n, high) / side - 1.0).abs() < 1e-8);
            }
            if k > 0 {
                prop_assert!((binomial_tail(n - k, n, 1.0 - low) / side - 1.0).abs() < 1e-8);
            }
        }
    }

    #[test]
    fn intervals_equal_published_ones() {
        // Brown, Cai and DasGupta (2001) discuss these; values from SciPy's
        // binomtest(k, n).proportion_ci(0.95, "exact").
        for (k, n, low, high) in [
            (0, 10, 0.0, 0.308_497_1),
            (3, 10, 0.066_739_5, 0.652_452_9),
            (50, 1000, 0.037_335_4, 0.065_390_5),
            (10, 10, 0.691_502_9, 1.0),
        ] {
            let (l, h) = clopper_pearson(k, n, 0.95);
            assert!((l - low).abs() < 1e-6 && (h - high).abs() < 1e-6, "{l} {h}");
        }
    }
}
