//! How many halted, and how many of those had a gap.

use serde::{Deserialize, Serialize};

/// How many sequences halted, and how many of those had a gap. Of losses that
/// are levels of 1/255, the sum of the levels stands for the gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Sequences that halted.
    pub halted: u64,
    /// Those of them where the full prediction is right and the early one wrong.
    pub gaps: u64,
}

impl Counts {
    /// Counts kept in one word while they are small, so that one addition
    /// serves both: halted in the low half, gaps in the high. Sums and
    /// differences are right modulo 2⁶⁴ as long as the end result fits.
    #[inline(always)]
    pub(crate) fn one(gap: bool) -> u64 {
        1 | u64::from(gap) << 32
    }

    pub(crate) fn unpack(packed: u64) -> Self {
        Self {
            halted: packed & 0xffff_ffff,
            gaps: packed >> 32,
        }
    }

    /// The share of the halted that had a gap; `None` if no one halted.
    pub fn gap(self) -> Option<f64> {
        (self.halted > 0).then(|| self.gaps as f64 / self.halted as f64)
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.halted += other.halted;
        self.gaps += other.gaps;
    }
}

/// Adds one table of counts to another of the same shape.
pub(crate) fn add_counts(left: &mut [Counts], right: &[Counts]) {
    for (left, &right) in std::iter::zip(left, right) {
        *left += right;
    }
}

/// Whether a number is 0, and so needs no mention where it is stored.
pub(crate) fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}
