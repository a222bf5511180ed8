//! How many halted, and how many of those had a gap.

use serde::{Deserialize, Serialize};

/// How many sequences halted, and how many of those had a gap. If losses are levels of
/// 1/255, the sum of the levels takes the place of the gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Sequences that halted.
    pub halted: u64,
    /// Those whose full prediction is right and whose early prediction is wrong.
    pub gaps: u64,
}

impl Counts {
    /// Packs small counts in one word, so that one addition serves both: halted in the low
    /// half, gaps in the high half. Sums and differences are right modulo 2⁶⁴ if the end
    /// result fits.
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

    /// The share of the halted that had a gap; `None` if none halted.
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

/// Whether a number is 0; stored forms leave zeros out.
pub(crate) fn is_zero<T: Default + PartialEq>(n: &T) -> bool {
    *n == T::default()
}
