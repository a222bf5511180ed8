//! The scores of a block: exact, or one byte each, the bin of a grid.
//!
//! Calibrating only ever asks whether a score reaches a threshold of the grid. A score
//! reaches it exactly if its bin is not below the threshold's. So bins give exactly the
//! same answers as scores, in a quarter of the memory.

use fearless_simd::Simd;

use crate::numbers::grid::Grid;
use crate::numbers::simd::{SIMD_WIDTH, SimdArray, SimdNumber, mask, ones};

/// The most thresholds of a grid whose bins fit a byte; one value is left for "never".
const MOST_BINS: usize = 255;

/// Up to this many sequences of a word are looked at one by one: the narrower the vectors,
/// the more.
const ONE_BY_ONE: u32 = if cfg!(target_arch = "wasm32") { 8 } else { 2 };

/// Whether a grid's bins fit a byte.
pub(crate) fn fits_byte(grid: &Grid) -> bool {
    grid.thresholds().len() <= MOST_BINS
}

/// Scores in any order, by sequence or by step.
#[derive(Debug)]
pub(crate) enum Scores<E, B> {
    /// The original scores.
    Exact(E),
    /// The bins of a grid.
    Binned(B),
}

/// Rows of scores, one per step, as a block keeps them.
pub(crate) type Rows = Scores<Vec<SimdArray<f32>>, Vec<SimdArray<u8>>>;

/// The scores of all sequences of a block at one step.
pub(crate) type Row<'a> = Scores<&'a [SimdArray<f32>], &'a [SimdArray<u8>]>;

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

    /// The highest score of each word; empty for bins, which are compared as fast.
    pub(crate) fn highest(&self) -> Vec<f32> {
        match self {
            Self::Exact(rows) => rows.iter().map(highest).collect(),
            Self::Binned(_) => Vec::new(),
        }
    }
}

/// The highest of some scores, none below 0; simple enough for the compiler to vectorise.
fn highest(lanes: &SimdArray<f32>) -> f32 {
    let higher = |a: f32, b: f32| if b > a { b } else { a };
    let mut highest = [0.0; 16];
    for sixteen in lanes.as_chunks::<16>().0 {
        for (highest, &score) in std::iter::zip(&mut highest, sixteen) {
            *highest = higher(*highest, score);
        }
    }
    highest.into_iter().fold(0.0, higher)
}

impl Row<'_> {
    /// One score; for a bin, the threshold that it reaches.
    #[inline(always)]
    pub(crate) fn score(&self, word: usize, lane: usize, grid: Option<&Grid>) -> f32 {
        match self {
            Self::Exact(row) => row[word][lane],
            Self::Binned(row) => {
                let bin = usize::from(row[word][lane]);
                grid.map_or(0.0, |grid| grid.thresholds()[bin])
            }
        }
    }

    /// One bit per sequence of a word: does its score reach the threshold?
    #[inline(always)]
    pub(crate) fn reach<S: Simd>(&self, simd: S, word: usize, threshold: Threshold) -> u64 {
        match self {
            Self::Exact(row) => SimdNumber::at_least(simd, &row[word], threshold.exact),
            Self::Binned(row) => SimdNumber::at_least(simd, &row[word], threshold.bin),
        }
    }

    /// The same if only some sequences of the word are asked for: a few are looked at one
    /// by one. The bits of the others may be anything.
    #[inline(always)]
    pub(crate) fn reach_of<S: Simd>(
        &self,
        simd: S,
        word: usize,
        threshold: Threshold,
        asked: u64,
    ) -> u64 {
        match self {
            Self::Exact(row) if asked.count_ones() <= ONE_BY_ONE => ones(asked)
                .filter(|&i| row[word][i] >= threshold.exact)
                .fold(0, |reached, i| reached | 1 << i),
            _ => self.reach(simd, word, threshold),
        }
    }

    /// The same for all words at once. Nothing else is done here, so the processor requests
    /// memory many words ahead.
    #[inline(always)]
    pub(crate) fn reach_all<S: Simd>(&self, simd: S, threshold: Threshold, reached: &mut [u64]) {
        match self {
            Self::Exact(row) => {
                for (reached, scores) in std::iter::zip(reached, *row) {
                    *reached = SimdNumber::at_least(simd, scores, threshold.exact);
                }
            }
            Self::Binned(row) => {
                for (reached, bins) in std::iter::zip(reached, *row) {
                    *reached = SimdNumber::at_least(simd, bins, threshold.bin);
                }
            }
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

    /// Turns sequences, each `starts[i]..starts[i + 1]`, into `steps` rows.
    pub(crate) fn rows(&self, starts: &[usize], steps: usize) -> Rows {
        match self {
            Self::Exact(scores) => {
                let words = (starts.len() - 1).div_ceil(SIMD_WIDTH);
                let mut rows = vec![[0.0; SIMD_WIDTH]; steps * words];
                for word in 0..words {
                    turn(scores, of_word(starts, word), 0, |t, lanes| {
                        rows[t * words + word] = *lanes;
                    });
                }
                Rows::Exact(rows)
            }
            Self::Binned(bins) => Rows::Binned(levels(bins, starts, steps)),
        }
    }
}

/// Makes rows of bytes from sequences stored one after the other.
pub(crate) fn levels(values: &[u8], starts: &[usize], steps: usize) -> Vec<SimdArray<u8>> {
    let words = (starts.len() - 1).div_ceil(SIMD_WIDTH);
    let mut rows = vec![[0; SIMD_WIDTH]; steps * words];
    turn_bytes(values, starts, |t, word, lanes| {
        rows[t * words + word] = *lanes;
    });
    rows
}

/// Makes rows of bits from sequences of 0 and 1 stored one after the other.
pub(crate) fn bits(values: &[u8], starts: &[usize], steps: usize) -> Vec<u64> {
    let words = (starts.len() - 1).div_ceil(SIMD_WIDTH);
    let mut rows = vec![0; steps * words];
    turn_bytes(values, starts, |t, word, lanes| {
        rows[t * words + word] = mask(|i| lanes[i] == 1);
    });
    rows
}

/// The starts of the sequences of a word, and the end of the last.
fn of_word(starts: &[usize], word: usize) -> &[usize] {
    let first = word * SIMD_WIDTH;
    &starts[first..=(starts.len() - 1).min(first + SIMD_WIDTH)]
}

/// Passes on the values of up to 64 sequences at each of their steps from one on; 0 past
/// the end of a sequence. The 64 sequences stay in the first-level cache.
fn turn<S: Copy + Default>(
    values: &[S],
    starts: &[usize],
    first: usize,
    mut show: impl FnMut(usize, &SimdArray<S>),
) {
    let longest = starts.windows(2).map(|ends| ends[1] - ends[0]).max();
    let mut lanes = [S::default(); SIMD_WIDTH];
    for t in first..longest.unwrap_or(0) {
        for (lane, ends) in std::iter::zip(&mut lanes, starts.windows(2)) {
            let at = ends[0] + t;
            *lane = if at < ends[1] {
                values[at]
            } else {
                S::default()
            };
        }
        show(t, &lanes);
    }
}

/// The same for bytes, word after word: eight steps of eight sequences at a time, as long
/// as all 64 have them.
fn turn_bytes(values: &[u8], starts: &[usize], mut show: impl FnMut(usize, usize, &SimdArray<u8>)) {
    for word in 0..(starts.len() - 1).div_ceil(SIMD_WIDTH) {
        let starts = of_word(starts, word);
        let shortest = starts.windows(2).map(|ends| ends[1] - ends[0]).min();
        let squares = match starts.len() - 1 {
            SIMD_WIDTH => shortest.unwrap_or(0) / 8,
            _ => 0,
        };
        let mut rows = [[0; SIMD_WIDTH]; 8];
        for square in 0..squares {
            let (groups, _) = starts.as_chunks::<8>();
            for (group, starts) in groups.iter().enumerate() {
                let mut bytes = starts.map(|start| eight(values, start + 8 * square));
                transpose(&mut bytes);
                for (row, eight) in std::iter::zip(&mut rows, bytes) {
                    row[8 * group..8 * group + 8].copy_from_slice(&eight.to_le_bytes());
                }
            }
            for (i, row) in rows.iter().enumerate() {
                show(8 * square + i, word, row);
            }
        }
        turn(values, starts, 8 * squares, |t, lanes| show(t, word, lanes));
    }
}

/// Eight bytes from this place on, the first lowest.
fn eight(values: &[u8], at: usize) -> u64 {
    values[at..]
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Transposes a square of eight by eight bytes: swaps quarters, then the quarters of each,
/// then theirs.
fn transpose(rows: &mut [u64; 8]) {
    for (step, mask) in [
        (4, 0x0000_0000_ffff_ffff),
        (2, 0x0000_ffff_0000_ffff),
        (1, 0x00ff_00ff_00ff_00ff_u64),
    ] {
        for i in (0..8).filter(|i| i & step == 0) {
            let (upper, lower) = (rows[i], rows[i + step]);
            let bits = 8 * step as u32;
            rows[i] = upper & mask | (lower & mask) << bits;
            rows[i + step] = upper >> bits & mask | lower & !mask;
        }
    }
}

/// A threshold that either kind of scores can be compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threshold {
    pub(crate) exact: f32,
    /// The lowest bin that reaches it.
    pub(crate) bin: u8,
}

impl Threshold {
    /// Makes it for scores that were binned on this grid, if they were.
    pub(crate) fn new(exact: f32, grid: Option<&Grid>) -> Self {
        let below = |grid: &Grid| grid.thresholds().partition_point(|&v| v < exact);
        Self {
            exact,
            bin: grid.map_or(0, |grid| below(grid) as u8),
        }
    }
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

    proptest! {
        #[test]
        fn turning_puts_each_value_at_its_step_and_lane(
            lengths in prop_oneof![
                prop::collection::vec(1usize..40, 1..150),
                (1usize..40, 1usize..150).prop_map(|(steps, n)| vec![steps; n]),
            ],
        ) {
            // Each value names its place; 0 is kept for what is not there.
            let name = |i: usize, t: usize| (1 + (i * 41 + t) % 255) as u8;
            let (mut starts, mut values) = (vec![0], Vec::new());
            for (i, &length) in lengths.iter().enumerate() {
                values.extend((0..length).map(|t| name(i, t)));
                starts.push(values.len());
            }
            let steps = *lengths.iter().max().unwrap();
            let floats = Arrived::Exact(values.iter().copied().map(f32::from).collect());
            let odd: Vec<u8> = values.iter().map(|v| v % 2).collect();
            let bits = bits(&odd, &starts, steps);
            let words = lengths.len().div_ceil(SIMD_WIDTH);
            let rows = (floats.rows(&starts, steps), Arrived::Binned(values).rows(&starts, steps));
            let (Rows::Exact(exact), Rows::Binned(binned)) = rows else { unreachable!() };
            for (i, &length) in lengths.iter().enumerate() {
                for t in 0..steps {
                    let expected = if t < length { name(i, t) } else { 0 };
                    let (row, lane) = (t * words + i / SIMD_WIDTH, i % SIMD_WIDTH);
                    prop_assert_eq!(binned[row][lane], expected);
                    prop_assert_eq!(exact[row][lane], f32::from(expected));
                    prop_assert_eq!(bits[row] >> lane & 1, u64::from(expected % 2));
                }
            }
        }
    }
}
