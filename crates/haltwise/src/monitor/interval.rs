//! Intervals that hold at every moment at once.

use crate::pvalue::{binomial_tail, probability};

/// An interval for the share of losses among streams that come one by one,
/// `losses` of the first `streams` so far: with probability 1 − `level`, the
/// truth is in the interval at every moment, however often it is looked at.
///
/// Each end spends half of the level. The lower one is the largest q at which
/// "the share is at most q" is rejected, by the mixture of all bets on a larger
/// p = q + (1 − q)s, s uniform in (0, 1):
///
/// > ∫ (1 + s(1 − q)/q)^losses · (1 − s)^(streams − losses) ds ≥ 2/level,
///
/// a supermartingale under that hypothesis as in the [alarm](super), so that
/// Ville's inequality bounds the chance that it ever gets there. The upper end is
/// the lower one of the streams without a loss. A stream without a loss never
/// raises the integral, nor does a loss lower it: so both ends stay true where
/// unknown outcomes are taken for none in the lower, and for losses in the upper.
///
/// Where the share changes over time, the lower end is one for the largest that
/// it was, the upper end for the smallest.
///
/// ```
/// let (low, high) = haltwise::monitor::lasting_interval(30, 100, 0.05);
/// assert!(low > 0.15 && low < 0.2 && high > 0.4 && high < 0.5);
/// ```
pub fn lasting_interval(losses: u64, streams: u64, level: f64) -> (f64, f64) {
    let losses = losses.min(streams);
    let low = lower(losses, streams, level / 2.0);
    let high = 1.0 - lower(streams - losses, streams, level / 2.0);
    (low, high)
}

fn lower(k: u64, n: u64, level: f64) -> f64 {
    if k == 0 {
        return 0.0;
    }
    // With p for the variable the integral is that of a beta density from q on,
    // which is a binomial tail: P(Bin(n+1, q) ≤ k) / ((n+1)(1−q) P(Bin(n, q) = k)).
    // It falls as q grows, and is below 1 at k/n; left of that the tail is
    // about 1, so nothing underflows but the divisor, which gives infinity.
    let (kf, nf) = (k as f64, n as f64);
    let e_value =
        |q: f64| binomial_tail(k, n + 1, q) / ((nf + 1.0) * (1.0 - q) * probability(kf, nf, q));
    let (mut low, mut high) = (0.0, kf / nf);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if e_value(middle) >= 1.0 / level {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use libm::{exp, log1p as ln_1p};

    use super::*;

    /// The integral itself, by the midpoint rule.
    fn integral(k: f64, n: f64, q: f64) -> f64 {
        const STEPS: u32 = 20_000;
        let at = |i: u32| {
            let s = (f64::from(i) + 0.5) / f64::from(STEPS);
            exp(ln_1p(s * (1.0 - q) / q) * k + ln_1p(-s) * (n - k))
        };
        (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
    }

    #[test]
    fn the_ends_are_where_the_integral_gets_there() {
        for (k, n) in [
            (1, 1),
            (1, 50),
            (20, 100),
            (99, 100),
            (100, 100),
            (500, 4000),
        ] {
            let low = lower(k, n, 0.01);
            let found = integral(k as f64, n as f64, low);
            assert!(
                (found / 100.0 - 1.0).abs() < 1e-3,
                "{k} of {n}: {found} at {low}"
            );
        }
    }

    #[test]
    fn the_ends_only_widen_where_an_outcome_is_taken_for_the_better_or_the_worse() {
        for (k, n) in [(0, 1), (3, 9), (30, 300), (299, 300)] {
            let (low, high) = lasting_interval(k, n, 0.01);
            assert!((0.0..=1.0).contains(&low) && low < high && high <= 1.0);
            assert!(lasting_interval(k, n + 1, 0.01).0 <= low);
            assert!(lasting_interval(k + 1, n + 1, 0.01).1 >= high);
        }
        assert_eq!(lasting_interval(0, 0, 0.01), (0.0, 1.0));
    }

    #[test]
    fn millions_of_streams_give_a_narrow_one() {
        let (low, high) = lasting_interval(1_000_000, 10_000_000, 0.01);
        assert!(low > 0.099 && high < 0.101, "{low} {high}");
        let (low, high) = lasting_interval(0, 1_000_000_000, 0.01);
        assert!(low == 0.0 && high < 1e-7, "{high}");
    }
}
