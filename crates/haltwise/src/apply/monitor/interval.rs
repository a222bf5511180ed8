//! Intervals that hold at every moment at once.

use std::sync::LazyLock;

/// The odds ratios of the bets are e^λ. This many have λ = 8/2^(k/2) for k from 0 on; one
/// more is infinite.
const RATIOS: usize = 28;

/// The λ of each bet, and its odds ratio less 1.
static BETS: LazyLock<[(f64, f64); RATIOS]> = LazyLock::new(|| {
    std::array::from_fn(|i| {
        let lambda = 8.0 * libm::exp2(-0.5 * i as f64);
        (lambda, libm::expm1(lambda))
    })
});

/// An interval for the share of losses among streams that come one by one,
/// `losses` of the first `streams` so far: with probability 1 − `level`, the
/// truth is in the interval at every moment, however often it is looked at.
///
/// *The truth* is the average of pᵢ over the streams so far, where pᵢ is the
/// chance that the i-th loses something given all before it. It may change over
/// time. So the interval is about the average since the first of these streams,
/// and says nothing about any one moment.
///
/// Each end spends half of the level. For an odds ratio r = e^λ > 1, the product
/// over streams of
///
/// > r^(loss) / (1 + pᵢ(r − 1))
///
/// is a martingale that starts at 1, for the divisor is the mean of the dividend.
/// With p the average of the pᵢ, the product of the divisors is at most
/// (1 + p(r − 1))ⁿ, because the logarithm is concave. So
///
/// > r^losses / (1 + p(r − 1))ⁿ
///
/// is never more than that martingale; nor is a mean over several r, with weights
/// that depend on neither p nor the streams, more than the mean of theirs. By
/// Ville's inequality it ever reaches 2/level with probability level/2 at most.
/// The lower end is the largest q in the place of p at which it does; it falls as
/// q grows. The upper end is the lower one of the streams without a loss.
///
/// A stream without a loss never raises this mean, and a loss never lowers it. So both ends
/// stay true if unknown outcomes count as no loss in the lower end, and as losses in the
/// upper end.
///
/// ```
/// let (low, high) = haltwise::monitor::lasting_interval(30, 100, 0.05);
/// assert!(low > 0.15 && low < 0.2 && high > 0.4 && high < 0.5);
/// ```
pub fn lasting_interval(losses: u64, streams: u64, level: f64) -> (f64, f64) {
    (
        lower_end(losses, streams, level),
        upper_end(losses, streams, level),
    )
}

/// The lower end of the [interval](lasting_interval).
pub(super) fn lower_end(losses: u64, streams: u64, level: f64) -> f64 {
    lower(losses.min(streams), streams, level / 2.0)
}

/// The upper end of the [interval](lasting_interval).
pub(super) fn upper_end(losses: u64, streams: u64, level: f64) -> f64 {
    1.0 - lower(streams - losses.min(streams), streams, level / 2.0)
}

fn lower(k: u64, n: u64, level: f64) -> f64 {
    if k == 0 {
        return 0.0;
    }
    let (kf, nf) = (k as f64, n as f64);
    // At k/n no ratio gives more than 1.
    let (mut low, mut high) = (0.0, kf / nf);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if e_value(kf, nf, middle) >= 1.0 / level {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// The mean over odds ratios.
fn e_value(k: f64, n: f64, q: f64) -> f64 {
    let finite = |(lambda, more)| libm::exp(k * lambda - n * libm::log1p(q * more));
    // As r grows, the product tends to 0 if there was a stream without a loss.
    let infinite = match k < n {
        true => 0.0,
        false => libm::exp(-n * libm::log(q)),
    };
    let sum = BETS.iter().copied().map(finite).sum::<f64>() + infinite;
    sum / (RATIOS + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_where_the_mean_gets_there() {
        for (k, n) in [
            (1, 1),
            (1, 50),
            (20, 100),
            (99, 100),
            (100, 100),
            (500, 4000),
        ] {
            let low = lower(k, n, 0.01);
            let found = e_value(k as f64, n as f64, low);
            assert!(
                (found / 100.0 - 1.0).abs() < 1e-3,
                "{k} of {n}: {found} at {low}"
            );
            let share = k as f64 / n as f64;
            assert!(e_value(k as f64, n as f64, share) <= 1.0 + 1e-9);
        }
    }

    /// The step of the proof that is about averages: whatever the chances are, the
    /// product of the divisors is at most that of their average.
    #[test]
    fn no_chances_of_one_average_give_a_larger_divisor() {
        for ratio in [1.01_f64, 2.0, 50.0] {
            let divisor = |p: f64| 1.0 + p * (ratio - 1.0);
            for (a, b) in [(0.0, 1.0), (0.02, 0.15), (0.5, 0.6)] {
                assert!(divisor(a) * divisor(b) <= divisor((a + b) / 2.0).powi(2));
            }
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
