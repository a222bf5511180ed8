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

use rayon::prelude::*;

use crate::evidence::Counts;
use crate::grid::Grid;
use crate::level::Alpha;
use crate::loss::gaps;
use crate::rule::Thresholds;
use crate::trace::{Block, Screening};

/// The thresholds proposed by the screening traces.
pub fn screen(screening: &Screening, alpha: Alpha, grid: &Grid) -> Thresholds {
    let traces = screening.traces();
    let mut running: Vec<Running> = traces.blocks.iter().map(Running::all).collect();
    let mut halted = Counts::default();
    // The lowest bin that halted at the step before; nobody before the first.
    let mut cut = usize::MAX;
    let thresholds = (0..traces.t_max()).map(|t| {
        let bins = advance_all(&mut running, &traces.blocks, t, cut, grid);
        let choice = smallest_good(&bins, halted, alpha);
        cut = choice.unwrap_or(bins.len() - 1);
        for &bin in &bins[cut..] {
            halted += bin;
        }
        choice.map_or(f32::INFINITY, |k| grid.thresholds()[k])
    });
    Thresholds::from_valid(thresholds.collect())
}

/// The sequences of a block that have not halted yet.
struct Running {
    /// Their places in the block.
    place: Vec<u16>,
    /// The bins of their scores at the current step.
    bin: Vec<u16>,
}

impl Running {
    fn all(block: &Block) -> Self {
        Self {
            place: (0..block.len as u16).collect(),
            bin: vec![0; block.len],
        }
    }

    /// Drops the sequences whose bin at the previous step was `cut` or above,
    /// then bins the others by their score at step `t` and counts them.
    ///
    /// A sequence at its own last step halts there whatever its score, with
    /// gap 0: it goes into the extra bin above all thresholds.
    fn advance(&mut self, block: &Block, t: usize, cut: usize, grid: &Grid, bins: &mut [u64]) {
        if t >= block.steps {
            return;
        }
        let scores = block.scores(t);
        let ended = bins.len() - 1;
        let mut kept = 0;
        for slot in 0..self.place.len() {
            if usize::from(self.bin[slot]) >= cut {
                continue;
            }
            let i = usize::from(self.place[slot]);
            let bin = if block.last[i] as usize == t {
                ended
            } else {
                grid.bin(scores[i])
            };
            bins[bin] += Counts::one(gaps(block, t, i / 64) >> (i % 64) & 1 == 1);
            self.place[kept] = self.place[slot];
            self.bin[kept] = bin as u16;
            kept += 1;
        }
        self.place.truncate(kept);
        self.bin.truncate(kept);
    }
}

/// Advances every block to step `t` and adds up the counts per bin.
fn advance_all(
    running: &mut [Running],
    blocks: &[Block],
    t: usize,
    cut: usize,
    grid: &Grid,
) -> Vec<Counts> {
    let bins = grid.thresholds().len() + 1;
    let advance = |mut total: Vec<Counts>, (running, block): (&mut Running, &Block)| {
        // A block's counts fit 32 bits each; totals are kept in 64.
        let mut packed = vec![0; bins];
        running.advance(block, t, cut, grid, &mut packed);
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
            for (left, right) in std::iter::zip(&mut left, right) {
                *left += right;
            }
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
