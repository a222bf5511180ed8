//! The scores of a block: as they came, or one byte each, the bin of a grid.
//!
//! Calibrating only ever asks whether a score reaches a threshold of the grid,
//! and a score does so exactly if its bin is not below the threshold's: bins
//! give the same answers as scores, to the bit, in a quarter of the memory.

use crate::grid::Grid;
use crate::lanes::{LANES, Lanes, mask};

/// The most thresholds a grid may have for its bins to fit a byte, with one
/// value left for "never".
const MOST_BINS: usize = 255;

/// Whether a grid's bins fit a byte.
pub(crate) fn fits_byte(grid: &Grid) -> bool {
    grid.thresholds().len() <= MOST_BINS
}

/// Scores, in whatever order, of sequences or of steps.
#[derive(Debug)]
pub(crate) enum Scores<E, B> {
    /// As they came.
    Exact(E),
    /// The bins of a grid.
    Binned(B),
}

/// Rows of scores, one per step, as a block keeps them.
pub(crate) type Rows = Scores<Vec<Lanes<f32>>, Vec<Lanes<u8>>>;

/// The scores of all sequences of a block at one step.
pub(crate) type Row<'a> = Scores<&'a [Lanes<f32>], &'a [Lanes<u8>]>;

/// The scores of sequences one after the other, as they arrive.
pub(crate) type Arrived = Scores<Vec<f32>, Vec<u8>>;

impl Rows {
    /// Part of the rows, counted in words.
    #[inline(always)]
    pub(crate) fn words(&self, words: std::ops::Range<usize>) -> Row<'_> {
        match self {
            Self::Exact(rows) => Row::Exact(&rows[words]),
            Self::Binned(rows) => Row::Binned(&rows[words]),
        }
    }
}

impl Row<'_> {
    /// One bit per sequence of a word: does its score reach the threshold?
    #[inline(always)]
    pub(crate) fn reach(&self, word: usize, threshold: Threshold) -> u64 {
        match self {
            Self::Exact(row) => reach(&row[word], threshold.exact),
            Self::Binned(row) => reach(&row[word], threshold.bin),
        }
    }
}

impl Arrived {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Exact(scores) => scores.len(),
            Self::Binned(bins) => bins.len(),
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Self::Exact(scores) => scores.clear(),
            Self::Binned(bins) => bins.clear(),
        }
    }

    /// Turns sequences, `starts[i]..starts[i + 1]` each, into `steps` rows.
    pub(crate) fn rows(&self, starts: &[usize], steps: usize) -> Rows {
        match self {
            Self::Exact(scores) => Rows::Exact(turned(scores, starts, steps)),
            Self::Binned(bins) => Rows::Binned(turned(bins, starts, steps)),
        }
    }
}

/// Rows of 64 lanes from sequences that lie one after the other; 0 past the
/// end of a sequence.
pub(crate) fn turned<S: Copy + Default>(
    values: &[S],
    starts: &[usize],
    steps: usize,
) -> Vec<Lanes<S>> {
    let sequences = starts.len() - 1;
    let words = sequences.div_ceil(LANES);
    let mut rows = vec![[S::default(); LANES]; steps * words];
    // A word at a time: its 64 sequences stay in the first-level cache, and
    // each line of the rows is written once.
    for word in 0..words {
        let first = word * LANES;
        let starts = &starts[first..=sequences.min(first + LANES)];
        let shortest = starts.windows(2).map(|s| s[1] - s[0]).min().unwrap_or(0);
        for t in 0..shortest {
            let row = &mut rows[t * words + word];
            for (value, &start) in std::iter::zip(row, &starts[..starts.len() - 1]) {
                *value = values[start + t];
            }
        }
        for (lane, ends) in starts.windows(2).enumerate() {
            for t in shortest..ends[1] - ends[0] {
                rows[t * words + word][lane] = values[ends[0] + t];
            }
        }
    }
    rows
}

/// A threshold, to compare either kind of scores with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threshold {
    pub(crate) exact: f32,
    /// The lowest bin that reaches it.
    pub(crate) bin: u8,
}

impl Threshold {
    /// For scores that were binned on this grid, if they were.
    pub(crate) fn new(exact: f32, grid: Option<&Grid>) -> Self {
        let below = |grid: &Grid| grid.thresholds().partition_point(|&v| v < exact);
        Self {
            exact,
            bin: grid.map_or(0, |grid| below(grid) as u8),
        }
    }
}

/// One bit per lane: does the score reach the threshold?
#[inline(always)]
pub(crate) fn reach<S: Copy + PartialOrd>(scores: &Lanes<S>, threshold: S) -> u64 {
    mask(|i| scores[i] >= threshold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bin_reaches_what_its_score_reaches(
            intervals in 1usize..=254, raw in 0u32..=0x3f80_0000, k in any::<prop::sample::Index>(),
        ) {
            let grid = Grid::new(1.0 / intervals as f64).unwrap();
            prop_assert!(fits_byte(&grid));
            let scores = [f32::from_bits(raw), *k.get(grid.thresholds())];
            let never = [f32::INFINITY];
            for &threshold in grid.thresholds().iter().chain(&never) {
                let threshold = Threshold::new(threshold, Some(&grid));
                for score in scores {
                    let bin = grid.bin(score) as u8;
                    prop_assert_eq!(score >= threshold.exact, bin >= threshold.bin);
                }
            }
        }
    }

    #[test]
    fn turning_puts_each_value_at_its_step_and_lane() {
        // 70 sequences of 1 to 5 steps; each value names its place.
        let lengths: Vec<usize> = (0..70).map(|i| 1 + i % 5).collect();
        let mut starts = vec![0];
        let mut values = Vec::new();
        for (i, &length) in lengths.iter().enumerate() {
            values.extend((0..length).map(|t| (1 + i * 10 + t) as f32));
            starts.push(values.len());
        }
        let rows = turned(&values, &starts, 5);
        for (i, &length) in lengths.iter().enumerate() {
            for t in 0..5 {
                let expected = if t < length { 1 + i * 10 + t } else { 0 };
                assert_eq!(rows[t * 2 + i / LANES][i % LANES], expected as f32);
            }
        }
    }
}
