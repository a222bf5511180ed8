//! Counts losses that are levels, and units whose sequences count as one: the sums that
//! bets need, per candidate and step.

use fearless_simd::{Simd, dispatch};
use rayon::prelude::*;

use crate::data::identity::by_key;
use crate::data::loss::TOP;
use crate::data::score_rows::Threshold;
use crate::data::traces::{Block, Traces};
use crate::numbers::counts::Counts;
use crate::numbers::simd::{SIMD_WIDTH, SimdArray, SimdNumber, ones};
use crate::tables::candidates::Candidates;
use crate::tables::halting::{Halt, halts};
use crate::tables::moments::Moments;

/// The counts at each step under one rule.
struct Row {
    counts: Vec<Counts>,
    moments: Vec<Moments>,
}

/// Counts any rules, one after the other.
pub(crate) fn count_each(
    candidates: &Candidates,
    traces: &Traces,
    counts: &mut [Counts],
    moments: &mut [Moments],
) {
    let t_max = candidates.t_max();
    let of_rule = |c: usize| {
        let mut row = Row {
            counts: vec![Counts::default(); t_max],
            moments: vec![Moments::default(); t_max],
        };
        for halt in candidates
            .rule(c)
            .iter()
            .flat_map(|rule| halts(rule, traces))
        {
            let t = halt.step as usize;
            row.counts[t].halted += 1;
            row.counts[t].gaps += u64::from(halt.loss);
            row.moments[t] += Moments::one(halt.loss);
        }
        row
    };
    add_rows(candidates, of_rule, counts, moments);
}

fn add_rows(
    candidates: &Candidates,
    of_rule: impl Fn(usize) -> Row + Sync + Send,
    counts: &mut [Counts],
    moments: &mut [Moments],
) {
    let t_max = candidates.t_max();
    if t_max == 0 {
        return;
    }
    let rows: Vec<Row> = (0..candidates.len()).into_par_iter().map(of_rule).collect();
    let cells = counts
        .chunks_exact_mut(t_max)
        .zip(moments.chunks_exact_mut(t_max));
    for ((counts, moments), row) in cells.zip(rows) {
        for (cell, found) in std::iter::zip(counts, row.counts) {
            *cell += found;
        }
        for (cell, found) in std::iter::zip(moments, row.moments) {
            *cell += found;
        }
    }
}

/// Counts units. The loss of a unit by a step is the mean over those of its sequences that
/// have halted by then, and each unit that has any counts as one.
///
/// Units are independent draws, whatever the dependence inside them, and the mean is in [0,
/// 1]. So the bets' test holds for the mean over units, conditional on how many units have
/// halted a sequence.
pub(crate) fn count_units(
    candidates: &Candidates,
    traces: &Traces,
    counts: &mut [Counts],
    moments: &mut [Moments],
) {
    let t_max = candidates.t_max();
    let members = members(traces);
    let whole = u64::from(TOP) / traces.measure().unit();
    let of_rule = |c: usize| {
        let halts = candidates
            .rule(c)
            .map_or_else(Vec::new, |rule| halts(&rule, traces));
        let mut counts = vec![Counts::default(); t_max];
        for halt in &halts {
            let at = &mut counts[halt.step as usize];
            at.halted += 1;
            at.gaps += u64::from(halt.loss) * whole;
        }
        Row {
            counts,
            moments: unit_moments(&members, &halts, whole, t_max),
        }
    };
    add_rows(candidates, of_rule, counts, moments);
}

/// Returns the positions of the sequences of each unit.
pub(crate) fn members(traces: &Traces) -> Vec<Vec<usize>> {
    let keys = traces.blocks.iter().flat_map(|block| &block.keys);
    by_key(keys.copied().zip(0..))
}

/// Sums over units at each step: what is new there, or has changed.
fn unit_moments(members: &[Vec<usize>], halts: &[Halt], whole: u64, t_max: usize) -> Vec<Moments> {
    let mut moments = vec![Moments::default(); t_max];
    let mut of_unit = Vec::new();
    for unit in members {
        of_unit.clear();
        of_unit.extend(unit.iter().map(|&i| (halts[i].step, halts[i].loss)));
        of_unit.sort_unstable();
        let (mut halted, mut sum, mut before) = (0, 0_u64, None);
        for &(step, loss) in &of_unit {
            halted += 1;
            sum += u64::from(loss) * whole;
            // Rounded up, as levels are.
            let now = sum.div_ceil(halted) as u8;
            moments[step as usize] += Moments::moved(before, now);
            before = Some(now);
        }
    }
    moments
}

/// Counts a backward walk, as for gaps (`table.rs`). Opening a step only moves to it the
/// sequences that reach its threshold and halted later. For each rule only the difference
/// to the rule before is recorded.
pub(crate) fn count_walk(
    candidates: &Candidates,
    traces: &Traces,
    counts: &mut [Counts],
    moments: &mut [Moments],
) {
    let t_max = candidates.t_max();
    let opening = |c| {
        let threshold = traces.threshold(candidates.opening_threshold(c));
        (candidates.opens(c), threshold)
    };
    let openings: Vec<(usize, Threshold)> = (0..candidates.len()).map(opening).collect();
    let zero = || vec![[0_i64; 4]; (openings.len() + 1) * t_max];
    let walk = |mut moved: Vec<[i64; 4]>, block: &Block| {
        let (at_end, moved_by_rule) = moved.split_at_mut(t_max);
        let mut walk = Walk::at_end(block, at_end);
        let level = fearless_simd::Level::new();
        for (&(t, threshold), moved) in
            std::iter::zip(&openings, moved_by_rule.chunks_exact_mut(t_max))
        {
            if t + 1 < block.steps && threshold.exact < f32::INFINITY {
                dispatch!(level, simd => walk.open(simd, block, t, threshold, moved));
            }
        }
        moved
    };
    let add = |mut left: Vec<[i64; 4]>, right: Vec<[i64; 4]>| {
        for (left, right) in std::iter::zip(&mut left, right) {
            for k in 0..4 {
                left[k] += right[k];
            }
        }
        left
    };
    let moved = match &traces.blocks[..] {
        [only] => walk(zero(), only),
        blocks => blocks.par_iter().fold(zero, walk).reduce(zero, add),
    };
    let (at_end, moved) = moved.split_at(t_max.max(1));
    let mut halted = at_end.to_vec();
    let cells = counts
        .chunks_exact_mut(t_max.max(1))
        .zip(moments.chunks_exact_mut(t_max.max(1)));
    for ((counts, moments), moved) in cells.zip(moved.chunks_exact(t_max.max(1))) {
        for (t, halted) in halted.iter_mut().enumerate() {
            for k in 0..4 {
                halted[k] += moved[t][k];
            }
            let [units, sums @ ..] = *halted;
            counts[t] += Counts {
                halted: units as u64,
                gaps: sums[0] as u64,
            };
            moments[t] += Moments {
                units: units as u64,
                sums,
            };
        }
    }
}

/// Where each sequence of a block halts, and its loss there.
struct Walk {
    step: Vec<SimdArray<u32>>,
    level: Vec<SimdArray<u8>>,
}

/// One, and the powers of a level.
#[inline(always)]
fn one(level: u8) -> [i64; 4] {
    let x = i64::from(level);
    [1, x, x * x, x * x * x]
}

impl Walk {
    fn at_end(block: &Block, halted: &mut [[i64; 4]]) -> Self {
        let mut level = vec![[0; SIMD_WIDTH]; block.words()];
        for i in 0..block.len {
            let last = block.last(i) as usize;
            let found = block.loss(last, i);
            level[i / SIMD_WIDTH][i % SIMD_WIDTH] = found;
            let one = one(found);
            for k in 0..4 {
                halted[last][k] += one[k];
            }
        }
        Self {
            step: block.last.clone(),
            level,
        }
    }

    /// Moves to step `t` all that halt later and whose score reaches the threshold.
    /// Compiled once for each instruction set that a CPU may have.
    #[inline(always)]
    fn open<S: Simd>(
        &mut self,
        simd: S,
        block: &Block,
        t: usize,
        threshold: Threshold,
        moved: &mut [[i64; 4]],
    ) {
        let scores = block.scores(t);
        let mut arrived = [0_i64; 4];
        for word in 0..block.words() {
            let later = if block.equal_lengths {
                block.valid(word)
            } else {
                SimdNumber::at_least(simd, &block.last[word], t as u32 + 1)
            };
            let moves = later & scores.reach(simd, word, threshold);
            if moves == 0 {
                continue;
            }
            let (step, level) = (&mut self.step[word], &mut self.level[word]);
            let Some(now) = block.levels(t, word) else {
                continue;
            };
            for i in ones(moves) {
                let (before, after) = (one(level[i]), one(now[i]));
                let from = &mut moved[step[i] as usize];
                for k in 0..4 {
                    from[k] -= before[k];
                    arrived[k] += after[k];
                }
                step[i] = t as u32;
                level[i] = now[i];
            }
        }
        for k in 0..4 {
            moved[t][k] += arrived[k];
        }
    }
}
