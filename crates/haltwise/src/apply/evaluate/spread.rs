//! Means of losses, and standard errors.

use super::CONFIDENCE;
use crate::data::loss::{TOP, level};
use crate::numbers::counts::Counts;
use crate::tables::moments::Moments;
use crate::testing::betting;

/// Sums of losses in [0, 1], over sequences or over means of units. Certifying rounds
/// losses up to levels, which is conservative; a measured mean must not be rounded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Sums {
    /// Σ loss and Σ loss² in integer fractions of one, so the order of adding does not
    /// matter.
    powers: [i128; 2],
    /// The sums that bets need, for the losses rounded down and rounded up to levels.
    down: Moments,
    up: Moments,
}

/// The denominator of those integer fractions.
const PARTS: f64 = (1_u64 << 32) as f64;

impl Sums {
    /// Adds one loss, or replaces a unit's earlier mean loss (if it had any) by the new
    /// one.
    pub(super) fn moved(before: Option<f64>, now: f64) -> Self {
        let parts = |loss: f64| (loss * PARTS) as i128;
        let moved = |power: fn(f64) -> f64| {
            parts(power(now)) - before.map_or(0, |before| parts(power(before)))
        };
        let down = |loss: f64| (loss * f64::from(TOP)) as u8;
        Self {
            powers: [moved(|loss| loss), moved(|loss| loss * loss)],
            down: Moments::moved(before.map(down), down(now)),
            up: Moments::moved(before.map(level), level(now)),
        }
    }

    /// How many sequences or units.
    pub(super) fn units(&self) -> u64 {
        self.up.units
    }

    /// The mean loss; `None` if there is no sequence.
    pub(super) fn mean(&self) -> Option<f64> {
        let units = self.up.units;
        (units > 0).then(|| self.powers[0] as f64 / PARTS / units as f64)
    }

    /// The standard error of the mean.
    pub(super) fn standard_error(&self) -> f64 {
        if self.up.units < 2 {
            return MOST_DEVIATION;
        }
        let units = self.up.units as f64;
        let mean = self.mean().unwrap_or(0.0);
        let variance = (self.powers[1] as f64 / PARTS / units - mean * mean).max(0.0);
        (variance / units).sqrt()
    }

    /// Returns an interval for the mean. Its lower end uses the losses rounded down, whose
    /// mean is no higher; its upper end uses the losses rounded up, whose mean is no lower.
    pub(super) fn interval(&self) -> (f64, f64) {
        let (low, _) = betting::interval(self.down, CONFIDENCE);
        let (_, high) = betting::interval(self.up, CONFIDENCE);
        (low, high)
    }
}

impl std::ops::AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        for (mine, other) in std::iter::zip(&mut self.powers, other.powers) {
            *mine += other;
        }
        self.down += other.down;
        self.up += other.up;
    }
}

/// The standard error of a share: √(p(1 − p)/n).
pub(super) fn standard_error(share: f64, n: usize) -> f64 {
    (share * (1.0 - share) / n as f64).sqrt()
}

/// The largest standard deviation of a number in [0, 1]. One unit says nothing about how
/// much units differ.
const MOST_DEVIATION: f64 = 0.5;

/// Returns the standard error of a mean over sequences that come in units, some without a
/// value. The mean is a ratio of two means over units: the sum of a unit's values, and how
/// many it has. Units are independent; the sequences of one unit are not.
pub(super) fn standard_error_by_unit(
    units: &[Vec<usize>],
    value: impl Fn(usize) -> Option<f64>,
) -> f64 {
    let of_unit = |unit: &Vec<usize>| {
        let values = unit.iter().filter_map(|&i| value(i));
        values.fold((0.0, 0.0), |(n, sum), value| (n + 1.0, sum + value))
    };
    let sums: Vec<(f64, f64)> = units
        .iter()
        .map(of_unit)
        .filter(|&(n, _)| n > 0.0)
        .collect();
    let all = |(n, sum): (f64, f64), &(m, more): &(f64, f64)| (n + m, sum + more);
    let (n, sum) = sums.iter().fold((0.0, 0.0), all);
    if sums.len() < 2 {
        return MOST_DEVIATION;
    }
    let mean = sum / n;
    let squares: f64 = sums.iter().map(|&(m, sum)| (sum - mean * m).powi(2)).sum();
    let count = sums.len() as f64;
    (squares * count / (count - 1.0)).sqrt() / n
}

/// Returns the mean of halt step / t_max and its standard error from counts. Sums of whole
/// numbers give the same result for any order of the sequences.
pub(super) fn mean_time(at_step: &[Counts]) -> (f64, f64) {
    let (mut n, mut sum) = (0, 0_u64);
    for (t, at) in at_step.iter().enumerate() {
        n += at.halted;
        sum += (t as u64 + 1) * at.halted;
    }
    let mean = sum as f64 / n as f64;
    let squares: f64 = at_step
        .iter()
        .enumerate()
        .map(|(t, at)| at.halted as f64 * ((t + 1) as f64 - mean).powi(2))
        .sum();
    let variance = squares / n.saturating_sub(1).max(1) as f64;
    let t_max = at_step.len() as f64;
    (mean / t_max, (variance / n as f64).sqrt() / t_max)
}
