//! Screening (the paper's Algorithm 1): propose one threshold per step.
//!
//! Going forward in time, each step gets the smallest threshold of the grid that keeps the
//! gap among all sequences halted so far at α or below; or, as the paper's section 4.1
//! suggests, that makes the p-value of "it is above α" at most δ. Either is a heuristic:
//! the thresholds are fitted to the screening traces and promise nothing until they are
//! certified on others.
//!
//! The paper's listing tries every threshold at every step over every sequence. Here each
//! running sequence is put into its bin of the grid once per step. The counts for a
//! threshold are then suffix sums over the bins, and a single scan finds the smallest good
//! one: O(T·(n + G)).

use fearless_simd::prelude::*;
use fearless_simd::{dispatch, mask16x32, u16x32};
use rayon::prelude::*;

use crate::data::score_rows::{Row, Threshold};
use crate::data::traces::{Block, Traces};
use crate::numbers::alpha_delta::{Alpha, Delta};
use crate::numbers::counts::{Counts, add_counts};
use crate::numbers::grid::Grid;
use crate::numbers::simd::{SIMD_WIDTH, SimdArray, SimdNumber, ones};
use crate::numbers::thresholds::Thresholds;
use crate::plan::ScreenBy;
use crate::tables::table::MOST_BLOCKS;
use crate::testing::fixed_sequence::{p_value, p_value_bound};

impl ScreenBy {
    /// Whether that holds; `None` if no sequence has halted.
    fn good(self, halted: Counts, alpha: Alpha, delta: Delta) -> Option<bool> {
        // A quotient, not gaps ≤ α·halted: dividing rounds 3/30 to the same
        // double as the literal 0.1, multiplying does not.
        let gap = halted.gap()?;
        let delta = delta.get();
        Some(match self {
            Self::Risk => gap <= alpha.get(),
            // A tail costs O(√n), so it is computed only if two bounds leave the question
            // open. From its mean on, a binomial's tail is a half or more.
            Self::PValue if gap >= alpha.get() && delta < 0.5 => false,
            Self::PValue if p_value_bound(halted, alpha) <= delta => true,
            Self::PValue => p_value(halted, alpha) <= delta,
        })
    }
}

/// The thresholds proposed by the screening traces.
pub(crate) fn screen(
    groups: &[&Traces],
    alpha: Alpha,
    delta: Delta,
    grid: &Grid,
    by: ScreenBy,
) -> Thresholds {
    // If losses are levels, their sum takes the place of the gaps.
    let whole = groups.first().map_or(1, |traces| traces.measure().unit());
    let good = |halted: Counts| {
        let gaps = halted.gaps.div_ceil(whole);
        match whole {
            1 => by.good(halted, alpha, delta),
            _ => by.good(Counts { gaps, ..halted }, alpha, delta),
        }
    };
    match groups {
        // Waking the pool costs more than a small set.
        [traces] if traces.blocks.len() == 1 => screen_groups(groups, grid, good),
        // From inside the pool, each step is spread without waking it again.
        _ => rayon::scope(|_| screen_groups(groups, grid, good)),
    }
}

/// The smallest threshold, step by step, that is good in every group.
fn screen_groups(
    groups: &[&Traces],
    grid: &Grid,
    good: impl Fn(Counts) -> Option<bool>,
) -> Thresholds {
    let mut screened: Vec<Screened<'_>> = groups
        .iter()
        .filter(|traces| !traces.is_empty())
        .map(|traces| Screened {
            traces,
            bins_of: BinsOf::new(grid, traces),
            parts: Part::all(&traces.blocks, grid),
            halted: Counts::default(),
        })
        .collect();
    let t_max = groups
        .iter()
        .map(|traces| traces.t_max())
        .max()
        .unwrap_or(0);
    let mut thresholds = Vec::with_capacity(t_max);
    for t in 0..t_max {
        let before = thresholds.last().copied().unwrap_or(f32::INFINITY);
        let bins: Vec<Vec<Counts>> = screened
            .iter_mut()
            .map(|group| {
                let before = group.traces.threshold(before);
                advance_all(&mut group.parts, t, before, &group.bins_of)
            })
            .collect();
        let chosen = std::iter::zip(&screened, &bins)
            .map(|(group, bins)| smallest_good(bins, group.halted, &good))
            .reduce(|one, other| Some(one?.max(other?)))
            .flatten();
        // Groups may be good at different thresholds, and need not all be good at the
        // largest.
        let fits = |k: &usize| {
            std::iter::zip(&screened, &bins).all(|(group, bins)| {
                let mut halted = group.halted;
                bins[*k..].iter().for_each(|&bin| halted += bin);
                good(halted).unwrap_or(true)
            })
        };
        let choice = match screened.len() {
            1 => chosen,
            _ => chosen.and_then(|k| (k..grid.thresholds().len()).find(fits)),
        };
        // Without a good threshold, only sequences at their end halt.
        for (group, bins) in std::iter::zip(&mut screened, &bins) {
            for &bin in &bins[choice.unwrap_or(bins.len() - 1)..] {
                group.halted += bin;
            }
        }
        thresholds.push(choice.map_or(f32::INFINITY, |k| grid.thresholds()[k]));
    }
    Thresholds::from_valid(thresholds)
}

/// A group to screen on.
struct Screened<'a> {
    traces: &'a Traces,
    bins_of: BinsOf<'a>,
    parts: Vec<Part<'a>>,
    halted: Counts,
}

/// The blocks that one task processes at each step.
struct Part<'a> {
    blocks: &'a [Block],
    /// The sequences of each block that have not halted yet, one bit each.
    running: Vec<Vec<u64>>,
    tally: Tally,
}

impl<'a> Part<'a> {
    /// Makes a few parts for each thread, so that a slow thread does not hold up all.
    fn all(blocks: &'a [Block], grid: &Grid) -> Vec<Self> {
        let size = blocks.len().div_ceil(4 * rayon::current_num_threads());
        let valid = |block: &Block| (0..block.words()).map(|word| block.valid(word)).collect();
        let part = |blocks: &'a [Block]| Self {
            blocks,
            running: blocks.iter().map(valid).collect(),
            tally: Tally::new(grid),
        };
        blocks
            .chunks(size.clamp(1, MOST_BLOCKS))
            .map(part)
            .collect()
    }

    /// Drops the sequences that halt at the step before `t`, then counts the others by the
    /// bin of their score at step `t`.
    ///
    /// A sequence at its own last step halts there whatever its score, so it goes into the
    /// extra bin above all thresholds.
    fn advance(&mut self, t: usize, before: Threshold, bins_of: &BinsOf<'_>) -> Vec<Counts> {
        let level = fearless_simd::Level::new();
        for (block, running) in std::iter::zip(self.blocks, &mut self.running) {
            if t < block.steps {
                let tally = &mut self.tally;
                dispatch!(level, simd => tally.count(simd, block, running, t, before, bins_of));
            }
        }
        self.tally.take()
    }
}

/// The number of copies of each counter. Neighbouring sequences often fall into the same
/// bin, and a counter that was just added to is not available for some time; so each eighth
/// lane has its own copy.
const COPIES: usize = 8;

/// Fewer running sequences in a word than this are faster counted one by one.
const FEW: u32 = 8;

/// Counts by bin and gap.
struct Tally {
    thresholds: usize,
    /// Cell 2·bin counts those without a gap, the next cell those with one. Lanes that have
    /// halted go past the last bin: adding them to cells that are never read is faster than
    /// leaving them out.
    cells: Vec<[u32; COPIES]>,
    /// Sequences at their own end, and their losses.
    ended: Counts,
    /// The sum of levels by bin, if losses are levels.
    levels: Vec<u64>,
}

impl Tally {
    fn new(grid: &Grid) -> Self {
        let thresholds = grid.thresholds().len();
        Self {
            thresholds,
            cells: vec![[0; COPIES]; 2 * thresholds + SIMD_WIDTH / COPIES],
            ended: Counts::default(),
            levels: Vec::new(),
        }
    }

    /// Counts one block, and removes the sequences that stop from `running`.
    ///
    /// Compiled once for each instruction set that a CPU may have.
    #[inline(always)]
    fn count<S: Simd>(
        &mut self,
        simd: S,
        block: &Block,
        running: &mut [u64],
        t: usize,
        before: Threshold,
        bins_of: &BinsOf<'_>,
    ) {
        let row = block.scores(t);
        let row_before = block.scores(t.saturating_sub(1));
        let aside = 2 * self.thresholds as u16;
        let (mut ended, counters) = (Counts::default(), &mut self.cells[..]);
        for (word, running) in running.iter_mut().enumerate() {
            if *running == 0 {
                continue;
            }
            *running &= !row_before.reach(simd, word, before);
            let go_on = if block.equal_lengths {
                if t + 1 == block.steps { 0 } else { !0 }
            } else {
                SimdNumber::at_least(simd, &block.last[word], t as u32 + 1)
            };
            let ends = *running & !go_on;
            ended.halted += u64::from(ends.count_ones());
            *running &= go_on;
            if let Some(levels) = block.levels(t, word) {
                ended.gaps += ones(ends).map(|i| u64::from(levels[i])).sum::<u64>();
                self.levels.resize(self.thresholds, 0);
                for i in ones(*running) {
                    let bin = bins_of.one(&row, word, i);
                    counters[2 * bin][i % COPIES] += 1;
                    self.levels[bin] += u64::from(levels[i]);
                }
                continue;
            }
            let gaps = block.gaps(t, word);
            ended.gaps += u64::from((ends & gaps).count_ones());
            if running.count_ones() < FEW {
                for i in ones(*running) {
                    let bin = bins_of.one(&row, word, i);
                    let cell = 2 * bin + usize::from(gaps >> i & 1 == 1);
                    counters[cell][i % COPIES] += 1;
                }
                continue;
            }
            let bins = match row {
                Row::Exact(row) => bins_of.grid.bins(simd, &row[word], *running),
                Row::Binned(row) => bins_of.again(&row[word]),
            };
            let cells = cells_of(simd, &bins, gaps, *running, aside);
            let (eights, _) = cells.as_chunks::<COPIES>();
            for eight in eights {
                for (copy, &cell) in eight.iter().enumerate() {
                    counters[usize::from(cell)][copy] += 1;
                }
            }
        }
        self.ended += ended;
    }

    /// Returns the counts by bin, followed by those at their end, and starts anew.
    fn take(&mut self) -> Vec<Counts> {
        let sum = |cell: &[u32; COPIES]| cell.iter().copied().map(u64::from).sum::<u64>();
        let (pairs, _) = self.cells[..2 * self.thresholds].as_chunks::<2>();
        let counts = |[without, with]: &[[u32; COPIES]; 2]| Counts {
            halted: sum(without) + sum(with),
            gaps: sum(with),
        };
        let mut bins: Vec<Counts> = pairs.iter().map(counts).collect();
        for (bin, levels) in std::iter::zip(&mut bins, &self.levels) {
            bin.gaps += levels;
        }
        bins.push(std::mem::take(&mut self.ended));
        self.cells.fill([0; COPIES]);
        self.levels.fill(0);
        bins
    }
}

/// The cells of 64 sequences: by bin and gap for those that are `counted`, from `aside` on
/// for the others.
#[inline(always)]
fn cells_of<S: Simd>(
    simd: S,
    bins: &SimdArray<u16>,
    gaps: u64,
    counted: u64,
    aside: u16,
) -> SimdArray<u16> {
    let mut cells: SimdArray<u16> = std::array::from_fn(|i| aside + (i / COPIES) as u16);
    for (half, cells) in cells.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let bins = u16x32::from_slice(simd, &bins[32 * half..32 * half + 32]);
        let gaps = mask16x32::from_bitmask(simd, gaps >> (32 * half));
        let counted = mask16x32::from_bitmask(simd, counted >> (32 * half));
        let double = bins + bins;
        let cell = gaps.select(double + 1, double);
        let aside = u16x32::load_array_ref(simd, cells);
        counted.select(cell, aside).store_array(cells);
    }
    cells
}

/// The bins of scores, exact or already binned.
struct BinsOf<'a> {
    grid: &'a Grid,
    /// The new bin for each old bin, if the set was already binned on another grid.
    table: Vec<u16>,
}

impl<'a> BinsOf<'a> {
    fn new(grid: &'a Grid, traces: &Traces) -> Self {
        let other = traces.grid().filter(|&other| other != grid);
        let binned = other.map_or(&[][..], Grid::thresholds);
        let table = binned.iter().map(|&score| grid.bin(score) as u16).collect();
        Self { grid, table }
    }

    /// The bin of one score. Never inlined: inlining it would make the loop over whole
    /// words slower.
    #[inline(never)]
    fn one(&self, row: &Row<'_>, word: usize, i: usize) -> usize {
        match row {
            Row::Exact(row) => self.grid.bin(row[word][i]),
            Row::Binned(row) if self.table.is_empty() => usize::from(row[word][i]),
            Row::Binned(row) => usize::from(self.table[usize::from(row[word][i])]),
        }
    }

    /// The new bins of scores that are already binned.
    #[inline(always)]
    fn again(&self, bins: &SimdArray<u8>) -> SimdArray<u16> {
        if self.table.is_empty() {
            return bins.map(u16::from);
        }
        bins.map(|bin| self.table[usize::from(bin)])
    }
}

/// Advances every part to step `t` and adds up the counts per bin.
fn advance_all(
    parts: &mut [Part<'_>],
    t: usize,
    before: Threshold,
    bins_of: &BinsOf<'_>,
) -> Vec<Counts> {
    let advance = |part: &mut Part<'_>| part.advance(t, before, bins_of);
    if let [only] = parts {
        return advance(only);
    }
    let zero = || vec![Counts::default(); bins_of.grid.thresholds().len() + 1];
    let add = |mut left: Vec<Counts>, right: Vec<Counts>| {
        add_counts(&mut left, &right);
        left
    };
    parts.par_iter_mut().map(advance).reduce(zero, add)
}

/// The lowest bin such that halting all from it up is good; `None` if there is none.
fn smallest_good(
    bins: &[Counts],
    before: Counts,
    good: impl Fn(Counts) -> Option<bool>,
) -> Option<usize> {
    let mut halted = before;
    for &bin in bins {
        halted += bin;
    }
    // The last bin holds the sequences at their end, which halt with any threshold.
    let mut lowered = true;
    for (k, bin) in bins[..bins.len() - 1].iter().enumerate() {
        // If no sequence would halt, none does with a larger threshold. After an empty bin,
        // the answer is the same as for that bin.
        if lowered && good(halted)? {
            return Some(k);
        }
        lowered = bin.halted > 0;
        halted.halted -= bin.halted;
        halted.gaps -= bin.gaps;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(halted: u64, gaps: u64) -> Counts {
        Counts { halted, gaps }
    }

    #[test]
    fn a_p_value_asks_for_more_than_a_low_gap() {
        let (alpha, delta) = (Alpha::default(), Delta::default());
        let good = |by: ScreenBy, halted, gaps| by.good(seen(halted, gaps), alpha, delta);
        for by in [ScreenBy::Risk, ScreenBy::PValue] {
            assert_eq!(good(by, 0, 0), None);
            assert_eq!(good(by, 44, 0), Some(true));
            assert_eq!(good(by, 10_000, 1_001), Some(false));
        }
        for (halted, gaps) in [(1, 0), (43, 0), (100, 9), (10_000, 1_000)] {
            assert_eq!(good(ScreenBy::Risk, halted, gaps), Some(true));
            assert_eq!(good(ScreenBy::PValue, halted, gaps), Some(false));
        }
    }

    #[test]
    fn the_names_are_those_that_people_write() {
        for (by, name) in [
            (ScreenBy::Risk, "\"risk\""),
            (ScreenBy::PValue, "\"p-value\""),
        ] {
            assert_eq!(serde_json::to_string(&by).unwrap(), name);
            assert_eq!(serde_json::from_str::<ScreenBy>(name).unwrap(), by);
        }
    }

    #[test]
    fn behind_empty_bins_nothing_is_judged_twice() {
        let judged = std::cell::Cell::new(0);
        let good = |_: Counts| {
            judged.set(judged.get() + 1);
            Some(false)
        };
        let mut bins = vec![Counts::default(); 101];
        (bins[30], bins[70]) = (seen(5, 2), seen(3, 1));
        assert_eq!(smallest_good(&bins, seen(9, 9), good), None);
        assert_eq!(judged.get(), 3);
    }
}
