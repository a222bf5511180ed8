//! Sums of losses and of their powers: the only input of bets on a mean.

use serde::{Deserialize, Serialize};

use crate::data::loss::TOP;

/// The number tested, and the sums of their losses' first three powers, in levels of 1/255.
/// With units that halt step by step, the sums may also fall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    /// The number of sequences, or of units of them.
    pub units: u64,
    /// Σ level, Σ level², Σ level³.
    pub sums: [i64; 3],
}

impl Moments {
    /// One loss of this level.
    #[inline(always)]
    pub(crate) fn one(level: u8) -> Self {
        Self {
            units: 1,
            sums: powers(level),
        }
    }

    /// One unit whose mean loss had one level, if it had any, and now has another.
    pub(crate) fn moved(from: Option<u8>, to: u8) -> Self {
        let before = from.map_or([0; 3], powers);
        let now = powers(to);
        Self {
            units: u64::from(from.is_none()),
            sums: std::array::from_fn(|k| now[k] - before[k]),
        }
    }

    /// The mean loss; `None` if there is no unit.
    pub fn mean(self) -> Option<f64> {
        let most = self.units as f64 * f64::from(TOP);
        (self.units > 0).then(|| self.sums[0] as f64 / most)
    }

    /// Whether this many losses could have these sums.
    pub(crate) fn are_possible(self) -> bool {
        let most = i128::from(TOP) * i128::from(self.units);
        let [first, second, third] = self.sums.map(i128::from);
        let top = i128::from(TOP);
        (0..=most).contains(&first)
            && (first..=first * top).contains(&second)
            && (second..=second * top).contains(&third)
    }

    /// The same for 1 − loss.
    pub(crate) fn complement(self) -> Self {
        let (n, top) = (self.units as i64, i64::from(TOP));
        let [a, b, c] = self.sums;
        Self {
            units: self.units,
            sums: [
                top * n - a,
                top * top * n - 2 * top * a + b,
                top * top * top * n - 3 * top * top * a + 3 * top * b - c,
            ],
        }
    }
}

fn powers(level: u8) -> [i64; 3] {
    let x = i64::from(level);
    [x, x * x, x * x * x]
}

impl std::ops::AddAssign for Moments {
    fn add_assign(&mut self, other: Self) {
        self.units += other.units;
        for (mine, other) in std::iter::zip(&mut self.sums, other.sums) {
            *mine += other;
        }
    }
}
