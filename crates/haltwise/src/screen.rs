//! Screening (the paper's Algorithm 1): propose one threshold per step.
//!
//! Going forward in time, each step gets the smallest threshold of the grid
//! that keeps the gap among all sequences halted so far at α or below. This is
//! a heuristic: the thresholds are fitted to the screening traces and promise
//! nothing until they are certified on others.
//!
//! The paper's listing tries every threshold at every step over every
//! sequence. Here each running sequence is put into its bin of the grid once
//! per step; the counts for a threshold are then suffix sums over the bins, and
//! the smallest good one is found in a single scan: O(T·(n + G)).

use fearless_simd::dispatch;
use rayon::prelude::*;

use crate::evidence::{Counts, add_counts};
use crate::grid::Grid;
use crate::lanes::{Lanes, ones};
use crate::level::Alpha;
use crate::loss::gaps;
use crate::scores::{Row, Threshold};
use crate::thresholds::Thresholds;
use crate::trace::{Block, Traces};

/// What screening asks of a threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScreenBy {
    /// That the gap among those halted so far is at most α.
    #[default]
    Risk,
    /// That its p-value is at most δ.
    #[serde(rename = "p-value")]
    PValue,
}

/// The thresholds proposed by the screening traces.
pub(crate) fn screen(traces: &Traces, alpha: Alpha, grid: &Grid) -> Thresholds {
    let bins_of = BinsOf::new(grid, traces);
    let mut running: Vec<Running> = traces.blocks.iter().map(Running::all).collect();
    let mut halted = Counts::default();
    let mut thresholds = Vec::with_capacity(traces.t_max());
    for t in 0..traces.t_max() {
        let before = thresholds.last().copied().unwrap_or(f32::INFINITY);
        let before = traces.threshold(before);
        let bins = advance_all(&mut running, &traces.blocks, t, before, &bins_of);
        let choice = smallest_good(&bins, halted, alpha);
        // With no good threshold, only those at their end halt.
        for &bin in &bins[choice.unwrap_or(bins.len() - 1)..] {
            halted += bin;
        }
        thresholds.push(choice.map_or(f32::INFINITY, |k| grid.thresholds()[k]));
    }
    Thresholds::from_valid(thresholds)
}

/// The sequences of a block that have not halted yet, one bit each.
struct Running(Vec<u64>);

impl Running {
    fn all(block: &Block) -> Self {
        Self((0..block.words()).map(|word| block.valid(word)).collect())
    }

    /// Drops the sequences that halt at the step before `t`, then counts the
    /// others by the bin of their score at step `t`.
    ///
    /// A sequence at its own last step halts there whatever its score, with
    /// gap 0: it goes into the extra bin above all thresholds.
    fn advance(
        &mut self,
        block: &Block,
        t: usize,
        before: Threshold,
        bins_of: &BinsOf<'_>,
        bins: &mut [u64],
    ) {
        if t >= block.steps {
            return;
        }
        let level = fearless_simd::Level::new();
        match block.scores(t) {
            Row::Exact(row) => {
                let of = |scores: &Lanes<f32>| bins_of.grid.bins(scores);
                dispatch!(level, _simd => self.count(block, t, before, row, of, bins));
            }
            Row::Binned(row) => {
                let of = |lanes: &Lanes<u8>| lanes.map(|bin| bins_of.table[usize::from(bin)]);
                dispatch!(level, _simd => self.count(block, t, before, row, of, bins));
            }
        }
    }

    /// Compiled once for each instruction set that a CPU may have.
    #[inline(always)]
    fn count<S>(
        &mut self,
        block: &Block,
        t: usize,
        before: Threshold,
        row: &[Lanes<S>],
        bins_of: impl Fn(&Lanes<S>) -> Lanes<u16>,
        bins: &mut [u64],
    ) {
        let ended = bins.len() - 1;
        for (word, running) in self.0.iter_mut().enumerate() {
            if t > 0 {
                let halted = block.scores(t - 1).reach(word, before);
                *running &= !(halted | block.ends(word, t - 1));
            }
            if *running == 0 {
                continue;
            }
            let ends = *running & block.ends(word, t);
            bins[ended] += u64::from(ends.count_ones()) * Counts::one(false);
            let lanes = bins_of(&row[word]);
            let gaps = gaps(block, t, word);
            let counted = *running & !ends;
            if counted == !0 {
                for (i, &bin) in lanes.iter().enumerate() {
                    bins[usize::from(bin)] += Counts::one(gaps >> i & 1 == 1);
                }
                continue;
            }
            for i in ones(counted) {
                bins[usize::from(lanes[i])] += Counts::one(gaps >> i & 1 == 1);
            }
        }
    }
}

/// The bins of scores, be they exact or binned already.
struct BinsOf<'a> {
    grid: &'a Grid,
    /// The bins of a set that is binned already: themselves, unless that was
    /// on another grid.
    table: Vec<u16>,
}

impl<'a> BinsOf<'a> {
    fn new(grid: &'a Grid, traces: &Traces) -> Self {
        let binned = traces.grid().map_or(&[][..], Grid::thresholds);
        let table = binned.iter().map(|&score| grid.bin(score) as u16).collect();
        Self { grid, table }
    }
}

/// Advances every block to step `t` and adds up the counts per bin.
fn advance_all(
    running: &mut [Running],
    blocks: &[Block],
    t: usize,
    before: Threshold,
    bins_of: &BinsOf<'_>,
) -> Vec<Counts> {
    let bins = bins_of.grid.thresholds().len() + 1;
    let advance = |mut total: Vec<Counts>, (running, block): (&mut Running, &Block)| {
        // A block's counts fit 32 bits each; totals are kept in 64.
        let mut packed = vec![0; bins];
        running.advance(block, t, before, bins_of, &mut packed);
        for (total, packed) in std::iter::zip(&mut total, packed) {
            *total += Counts::unpack(packed);
        }
        total
    };
    let zero = || vec![Counts::default(); bins];
    if blocks.len() == 1 {
        return std::iter::zip(running, blocks).fold(zero(), advance);
    }
    running
        .par_iter_mut()
        .zip(blocks)
        .fold(zero, advance)
        .reduce(zero, |mut left, right| {
            add_counts(&mut left, &right);
            left
        })
}

/// The lowest bin such that, once all from it up have halted, the gap among
/// the halted is at most α; `None` if there is none.
fn smallest_good(bins: &[Counts], before: Counts, alpha: Alpha) -> Option<usize> {
    let mut halted = before;
    for &bin in bins {
        halted += bin;
    }
    // The last bin holds the ended, who halt with any threshold.
    for (k, bin) in bins[..bins.len() - 1].iter().enumerate() {
        // Where no one would halt, the gap is undefined here and for every
        // larger threshold. A quotient, not gaps ≤ α·halted: dividing rounds
        // 3/30 to the same double as the literal 0.1, multiplying does not.
        if halted.gap()? <= alpha.get() {
            return Some(k);
        }
        halted.halted -= bin.halted;
        halted.gaps -= bin.gaps;
    }
    None
}
