//! The grid of thresholds that screening and the marginal walk choose from.

use fearless_simd::prelude::*;
use fearless_simd::{dispatch, f32x16, u32x16};
use serde::{Deserialize, Serialize};

use crate::numbers::simd::{SIMD_WIDTH, SimdArray, ones};

/// The thresholds 0, Δ, 2Δ, …, 1, as the `f32` numbers that scores are
/// compared with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Grid {
    step: f64,
    /// The thresholds, followed by ∞ as a sentinel.
    edges: Vec<f32>,
}

/// A grid step that does not cut [0, 1] evenly.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "the grid step must be 1 divided by a whole number up to {MOST} (such as 0.01 or 0.005), \
     but {0} was given"
)]
pub struct GridError(f64);

/// The most intervals a grid may have.
const MOST: usize = 10_000;

impl Grid {
    /// The grid with the given step, which must divide 1 evenly.
    pub fn new(step: f64) -> Result<Self, GridError> {
        let intervals = (1.0 / step).round();
        if !(1.0..=MOST as f64).contains(&intervals) || (intervals * step - 1.0).abs() > 1e-9 {
            return Err(GridError(step));
        }
        let edges = (0..=intervals as usize)
            .map(|k| (k as f64 * step).min(1.0) as f32)
            .chain([f32::INFINITY])
            .collect();
        Ok(Self { step, edges })
    }

    /// The distance between two thresholds, Δ.
    pub fn step(&self) -> f64 {
        self.step
    }

    /// All thresholds, rising from 0 to 1.
    pub fn thresholds(&self) -> &[f32] {
        &self.edges[..self.edges.len() - 1]
    }

    /// The index of the largest threshold that a score in [0, 1] reaches.
    pub(crate) fn bin(&self, score: f32) -> usize {
        // The product is off by a rounding error at most, so the answer is
        // this bin or a neighbour; comparing with the edges themselves makes
        // it exact.
        let guess = (score * (self.edges.len() - 2) as f32) as usize;
        guess + usize::from(score >= self.edges[guess + 1]) - usize::from(score < self.edges[guess])
    }
}

impl Grid {
    /// Whether this is one of the thresholds, or never.
    pub(crate) fn holds(&self, threshold: f32) -> bool {
        self.edges.contains(&threshold)
    }

    /// Appends the bins of scores, on a grid whose bins fit a byte.
    pub(crate) fn extend_bins(&self, scores: &[f32], out: &mut Vec<u8>) {
        let level = fearless_simd::Level::new();
        dispatch!(level, simd => self.extend_lanes(simd, scores, out));
    }

    /// Compiled once for each instruction set that a CPU may have.
    #[inline(always)]
    fn extend_lanes<S: Simd>(&self, simd: S, scores: &[f32], out: &mut Vec<u8>) {
        let (whole, rest) = scores.as_chunks::<SIMD_WIDTH>();
        for lanes in whole {
            out.extend(self.bins(simd, lanes, !0).map(|bin| bin as u8));
        }
        let mut lanes = [0.0; SIMD_WIDTH];
        lanes[..rest.len()].copy_from_slice(rest);
        let bins = self
            .bins(simd, &lanes, (1 << rest.len()) - 1)
            .map(|bin| bin as u8);
        out.extend_from_slice(&bins[..rest.len()]);
    }

    /// The bins of 64 scores; only the lanes in `wanted` are guaranteed.
    #[inline(always)]
    pub(crate) fn bins<S: Simd>(
        &self,
        simd: S,
        scores: &SimdArray<f32>,
        wanted: u64,
    ) -> SimdArray<u16> {
        let (mut bins, mut unsure) = ([0; SIMD_WIDTH], 0);
        for (i, scores) in scores.as_chunks::<32>().0.iter().enumerate() {
            let (low, unsure_low) = self.guess(simd, &scores[..16]);
            let (high, unsure_high) = self.guess(simd, &scores[16..]);
            low.narrow(high).store_slice(&mut bins[32 * i..32 * i + 32]);
            unsure |= (unsure_low | unsure_high << 16) << (32 * i);
        }
        for i in ones(unsure & wanted) {
            bins[i] = self.bin(scores[i]) as u16;
        }
        bins
    }

    /// The bins of 16 scores, and one bit for each bin that may be off by one.
    #[inline(always)]
    fn guess<S: Simd>(&self, simd: S, scores: &[f32]) -> (u32x16<S>, u64) {
        // In the sum with 1.5·2²³⁻ᶠ the product becomes a whole number of units 2⁻ᶠ. The
        // roundings of product, sum and thresholds together move it by little more than one
        // unit relative to the edges of its bin. So it is unsure if it lies less than two
        // units from an edge.
        let intervals = self.edges.len() - 2;
        let whole = intervals.ilog2() + 1;
        let f = 22 - whole;
        let magic = 1.5 * (1_u32 << (23 - f)) as f32;
        let product = f32x16::from_slice(simd, scores) * intervals as f32;
        let units = (product + magic).bitcast::<u32x16<S>>();
        let unsure = ((units + 1) & ((1 << f) - 1)).simd_le(2);
        ((units >> f) & ((1 << whole) - 1), unsure.to_bitmask())
    }
}

impl Default for Grid {
    /// Step 0.01.
    fn default() -> Self {
        Self::try_from(0.01).unwrap_or_else(|_| unreachable!("0.01 divides 1"))
    }
}

impl TryFrom<f64> for Grid {
    type Error = GridError;

    fn try_from(step: f64) -> Result<Self, GridError> {
        Self::new(step)
    }
}

impl From<Grid> for f64 {
    fn from(grid: Grid) -> f64 {
        grid.step
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn thresholds_are_the_nearest_f32_to_each_multiple() {
        let grid = Grid::default();
        assert_eq!(grid.thresholds().len(), 101);
        for (k, &threshold) in grid.thresholds().iter().enumerate() {
            assert_eq!(
                threshold,
                format!("{}.{:02}", k / 100, k % 100)
                    .parse::<f32>()
                    .unwrap()
            );
        }
    }

    #[test]
    fn a_step_that_does_not_divide_one_is_refused() {
        for bad in [0.0, -0.1, 0.03, 1e-9, 2.0, f64::NAN, f64::INFINITY] {
            assert!(Grid::new(bad).is_err(), "{bad}");
        }
        for good in [1.0, 0.5, 0.01, 0.001, 0.0001, 1.0 / 3.0] {
            assert!(Grid::new(good).is_ok(), "{good}");
        }
    }

    proptest! {
        #[test]
        fn a_bin_is_the_largest_threshold_reached(
            intervals in 1usize..=MOST, raw in 0u32..=0x3f80_0000, nudge in -3i32..=3,
        ) {
            let grid = Grid::new(1.0 / intervals as f64).unwrap();
            let on_edge = grid.thresholds()[raw as usize % (intervals + 1)];
            let beside = f32::from_bits((on_edge.to_bits() as i32 + nudge).max(0) as u32);
            for score in [f32::from_bits(raw), beside.min(1.0)] {
                let expected = grid.thresholds().iter().rposition(|&e| score >= e).unwrap();
                prop_assert_eq!(grid.bin(score), expected);
                let level = fearless_simd::Level::new();
                let bins = dispatch!(level, simd => grid.bins(simd, &[score; SIMD_WIDTH], 1 << 5));
                prop_assert_eq!(usize::from(bins[5]), expected);
            }
        }
    }
}
