//! Finds where a rule halts each sequence, and what that costs.

use fearless_simd::{Simd, dispatch};
use rayon::prelude::*;

use crate::data::score_rows::Threshold;
use crate::data::traces::{Block, Traces, bit};
use crate::numbers::simd::{SIMD_WIDTH, ones};
use crate::numbers::thresholds::Thresholds;

/// Where one sequence halts, and what that costs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Halt {
    /// The 0-based step.
    pub(crate) step: u32,
    pub(crate) early_is_right: bool,
    pub(crate) full_is_right: bool,
    /// The loss, as it is [counted](crate::data::loss::Measure::counted).
    pub(crate) loss: u8,
}

/// Returns where each sequence halts, in input order. Past the last threshold no sequence
/// halts before its end.
pub(crate) fn halts(thresholds: &Thresholds, traces: &Traces) -> Vec<Halt> {
    let thresholds = traces.thresholds(thresholds.values());
    let per_block = |block| halts_of_block(&thresholds, block);
    match &traces.blocks[..] {
        [only] => per_block(only),
        blocks => blocks.par_iter().flat_map_iter(per_block).collect(),
    }
}

pub(crate) fn halts_of_block(thresholds: &[Threshold], block: &Block) -> Vec<Halt> {
    let level = fearless_simd::Level::new();
    dispatch!(level, simd => halts_of_block_in(simd, thresholds, block))
}

/// Compiled once for each instruction set that a CPU may have.
#[inline(always)]
fn halts_of_block_in<S: Simd>(simd: S, thresholds: &[Threshold], block: &Block) -> Vec<Halt> {
    let mut steps = block.last.clone();
    for (word, steps) in steps.iter_mut().enumerate() {
        let mut running = block.valid(word);
        for (t, &threshold) in thresholds.iter().enumerate().take(block.steps) {
            let halts = running & block.scores(t).reach(simd, word, threshold);
            for i in ones(halts) {
                steps[i] = t as u32;
            }
            running &= !(halts | block.ends(word, t));
            if running == 0 {
                break;
            }
        }
    }
    let halt = |i: usize| {
        let step = steps[i / SIMD_WIDTH][i % SIMD_WIDTH];
        Halt {
            step,
            early_is_right: bit(block.correct(step as usize), i),
            full_is_right: bit(&block.full, i),
            loss: block.loss(step as usize, i),
        }
    };
    (0..block.len).map(halt).collect()
}
