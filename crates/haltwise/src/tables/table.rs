//! The counts that certifying reads, for one family of candidates: per rule and step, how
//! many sequences halted there, and how many of those had a gap. If losses are levels, or
//! sequences come in units, the table also holds the sums that bets need (`by_level.rs`).
//!
//! Counts of disjoint sets of traces add up to the counts of their union, so
//! they can be gathered in parts, anywhere, and certified without the traces.

use fearless_simd::{Simd, dispatch};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::data::loss::TOP;
use crate::data::score_rows::{Row, Threshold};
use crate::data::traces::{Block, Traces};
use crate::numbers::counts::{Counts, add_counts};
use crate::numbers::grid::Grid;
use crate::numbers::simd::{SIMD_WIDTH, SimdArray, SimdNumber, mask, ones};
use crate::numbers::thresholds::Thresholds;
use crate::tables::by_level;
use crate::tables::candidates::{Candidates, Family};
use crate::tables::error::EvidenceError;
use crate::tables::halting::halts;
use crate::tables::moments::Moments;

/// The counts for an ordered family of candidates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredTable", into = "StoredTable")]
pub(crate) struct Table {
    rules: usize,
    t_max: usize,
    sequences: u64,
    /// One row of `t_max` counts per candidate: halted at each step.
    counts: Vec<Counts>,
    /// The same for the sums that bets need; empty if none are needed.
    moments: Vec<Moments>,
}

/// The kind of what is counted: sequences with losses of 0 and 1, sequences with levels, or
/// units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tallied {
    Bits,
    Levels,
    Units,
}

/// The most counts that are kept: a backward walk over 8,192 steps, one
/// gibibyte.
pub(super) const MOST_CELLS: usize = 1 << 26;

/// More sequences than any set has: data that claim more are damaged. The bound limits the
/// time of a p-value and keeps sums of counts from overflowing.
pub(crate) const MOST_SEQUENCES: u64 = 1 << 40;

impl Table {
    /// Starts with no counts.
    pub(crate) fn none(candidates: &Candidates, tallied: Tallied) -> Result<Self, EvidenceError> {
        let (rules, t_max) = (candidates.len(), candidates.t_max());
        let cells = rules.saturating_mul(t_max);
        if cells > MOST_CELLS {
            return Err(EvidenceError::TooManyCells { rules, t_max });
        }
        Ok(Self {
            rules,
            t_max,
            sequences: 0,
            counts: vec![Counts::default(); cells],
            moments: match tallied {
                Tallied::Bits => Vec::new(),
                Tallied::Levels | Tallied::Units => vec![Moments::default(); cells],
            },
        })
    }

    /// Counts more traces, which must differ from those counted before. On an error nothing
    /// is counted. Costs O(n·T) for one threshold or a backward walk, whatever the number
    /// of candidates.
    pub(crate) fn count(
        &mut self,
        candidates: &Candidates,
        traces: &Traces,
        tallied: Tallied,
    ) -> Result<(), EvidenceError> {
        check(candidates, traces)?;
        let counts = &mut self.counts[..];
        let moments = &mut self.moments[..];
        match candidates.family() {
            _ if tallied == Tallied::Units => {
                by_level::count_units(candidates, traces, counts, moments)
            }
            Family::Backward(..) if tallied == Tallied::Levels => {
                by_level::count_walk(candidates, traces, counts, moments);
            }
            _ if tallied == Tallied::Levels => {
                by_level::count_each(candidates, traces, counts, moments);
            }
            Family::OneThreshold(grid, t_max) => add_blocks(traces, counts, |block, counts| {
                count_staircases(block, grid, *t_max, counts);
            }),
            Family::Backward(..) => count_walk(candidates, traces, counts),
            Family::List(rules) => add_blocks(traces, counts, |block, counts| {
                count_each(block, rules, traces, counts);
            }),
        }
        self.sequences += traces.len() as u64;
        Ok(())
    }

    /// Counts many parts of one set, given by positions: for repeated experiments with
    /// overlapping parts. Each candidate is applied to the set once, whatever the number of
    /// parts.
    pub(crate) fn count_parts(
        candidates: &Candidates,
        traces: &Traces,
        parts: &[&[usize]],
    ) -> Result<Vec<Self>, EvidenceError> {
        let tallied = match traces.measure().binary {
            true => Tallied::Bits,
            false => Tallied::Levels,
        };
        if tallied == Tallied::Levels {
            let of_part = |part: &&[usize]| {
                let mut table = Self::none(candidates, tallied)?;
                let part = traces.select(part.iter().copied());
                table.count(candidates, &part, tallied)?;
                Ok(table)
            };
            return parts.iter().map(of_part).collect();
        }
        let none = Self::none(candidates, tallied)?;
        check(candidates, traces)?;
        let (cells, t_max) = (none.counts.len(), none.t_max);
        let mut counts = vec![vec![0_u64; cells]; parts.len()];
        for (c, rule) in (0..).map_while(|c| Some((c, candidates.rule(c)?))) {
            let halts = halts(&rule, traces);
            let add = |(part, counts): (&&[usize], &mut Vec<u64>)| {
                let row = &mut counts[c * t_max..(c + 1) * t_max];
                for halt in part.iter().filter_map(|&i| halts.get(i)) {
                    row[halt.step as usize] += Counts::one(halt.loss > 0);
                }
            };
            parts.par_iter().zip(&mut counts).for_each(add);
        }
        let table = |(part, counts): (&&[usize], Vec<u64>)| Self {
            sequences: part.iter().filter(|&&i| i < traces.len()).count() as u64,
            counts: counts.into_iter().map(Counts::unpack).collect(),
            ..none.clone()
        };
        Ok(std::iter::zip(parts, counts).map(table).collect())
    }

    /// Whether these could be the counts of such candidates.
    pub(crate) fn is_for(&self, candidates: &Candidates, tallied: Tallied) -> bool {
        (self.rules, self.t_max) == (candidates.len(), candidates.t_max())
            && self.moments.is_empty() == (tallied == Tallied::Bits)
    }

    /// The sums at each step for candidate `c` (counted from 0); empty if none are kept.
    pub(crate) fn moments_at(&self, c: usize) -> &[Moments] {
        self.moments
            .get(c * self.t_max..(c + 1) * self.t_max)
            .unwrap_or_default()
    }

    /// Adds the counts of other traces for the same candidates.
    pub(crate) fn add(&mut self, other: &Self) -> Result<(), EvidenceError> {
        let shape = |table: &Self| (table.rules, table.t_max, table.moments.len());
        if shape(self) != shape(other) {
            return Err(EvidenceError::OtherProposal);
        }
        add_counts(&mut self.counts, &other.counts);
        for (mine, &other) in std::iter::zip(&mut self.moments, &other.moments) {
            *mine += other;
        }
        self.sequences += other.sequences;
        Ok(())
    }

    /// How many sequences were counted.
    pub(crate) fn sequences(&self) -> u64 {
        self.sequences
    }

    /// The counts of each candidate, step by step.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &[Counts]> {
        (0..self.rules).map(|c| self.halted_at(c))
    }

    /// The counts at each step for candidate `c` (counted from 0); empty past the last
    /// candidate.
    pub(crate) fn halted_at(&self, c: usize) -> &[Counts] {
        self.counts
            .get(c * self.t_max..(c + 1) * self.t_max)
            .unwrap_or_default()
    }
}

/// Refuses traces that cannot be counted for these candidates.
fn check(candidates: &Candidates, traces: &Traces) -> Result<(), EvidenceError> {
    let (found, t_max) = (traces.t_max(), candidates.t_max());
    if found > t_max {
        return Err(EvidenceError::TooLong { found, t_max });
    }
    match traces.grid() {
        Some(grid) if !candidates.on(grid) => Err(EvidenceError::OffGrid),
        _ => Ok(()),
    }
}

/// Counts every block and adds the results.
fn add_blocks(
    traces: &Traces,
    counts: &mut [Counts],
    count: impl Fn(&Block, &mut [Counts]) + Sync + Send,
) {
    if let [only] = &traces.blocks[..] {
        return count(only, counts);
    }
    let cells = counts.len();
    let zero = || vec![Counts::default(); cells];
    let count = |mut counts: Vec<Counts>, block: &Block| {
        count(block, &mut counts);
        counts
    };
    let sum = |mut left: Vec<Counts>, right: Vec<Counts>| {
        add_counts(&mut left, &right);
        left
    };
    add_counts(counts, &traces.sum_blocks(zero, count, sum));
}

/// Counts one threshold for all steps. Under threshold `k`, a sequence halts at the first
/// step whose score reaches bin `k`, so its halt step is a staircase made by its running
/// maximum. Each time that maximum climbs, from bin `from` to bin `to`, the step is the
/// halt step of all thresholds in `from + 1..=to`. Marking the two ends of that range, and
/// taking suffix sums afterwards, counts them all.
fn count_staircases(block: &Block, grid: &Grid, t_max: usize, counts: &mut [Counts]) {
    match block.scores(0) {
        Row::Exact(_) => {
            let mut edges = grid.thresholds().to_vec();
            edges.push(f32::INFINITY);
            let row = |t| match block.scores(t) {
                Row::Exact(row) => row,
                Row::Binned(_) => &[],
            };
            climb(block, &edges, row, |score| grid.bin(score), t_max, counts);
        }
        Row::Binned(_) => {
            let edges: Vec<u8> = (0..=grid.thresholds().len()).map(|k| k as u8).collect();
            let row = |t| match block.scores(t) {
                Row::Binned(row) => row,
                Row::Exact(_) => &[],
            };
            climb(block, &edges, row, usize::from, t_max, counts);
        }
    }
}

/// Counts staircases over scores of either kind. `edges` are the thresholds, followed by
/// one that no score reaches.
fn climb<'a, S: Copy + PartialOrd + 'a>(
    block: &Block,
    edges: &[S],
    row: impl Fn(usize) -> &'a [SimdArray<S>],
    bin: impl Fn(S) -> usize,
    t_max: usize,
    counts: &mut [Counts],
) {
    let top = edges.len() - 2;
    let mut marks = vec![0_u64; top + 1];
    // The threshold that each sequence must reach next to climb, and its index, which is
    // also the number of thresholds it has reached.
    let mut next: Vec<SimdArray<S>> = vec![[edges[0]; SIMD_WIDTH]; block.words()];
    let mut reached: Vec<SimdArray<u16>> = vec![[0; SIMD_WIDTH]; block.words()];
    for t in 0..block.steps {
        marks.fill(0);
        for (word, scores) in row(t).iter().enumerate() {
            let (next, reached) = (&mut next[word], &mut reached[word]);
            // At its own end a sequence halts under every threshold.
            let ends = block.ends(word, t);
            let climbs = mask(|i| scores[i] >= next[i]) & block.valid(word);
            let gaps = block.gaps(t, word);
            for i in ones(climbs | ends) {
                let to = match ends >> i & 1 {
                    0 => bin(scores[i]),
                    _ => top,
                };
                let one = Counts::one(gaps >> i & 1 == 1);
                let from = usize::from(reached[i]);
                if from <= to {
                    marks[to] = marks[to].wrapping_add(one);
                    if let Some(below) = from.checked_sub(1) {
                        marks[below] = marks[below].wrapping_sub(one);
                    }
                }
                reached[i] = to as u16 + 1;
                next[i] = edges[to + 1];
            }
        }
        // Candidate c is the c-th threshold from the top.
        let mut above = 0_u64;
        for (c, &mark) in marks.iter().rev().enumerate() {
            above = above.wrapping_add(mark);
            counts[c * t_max + t] += Counts::unpack(above);
        }
    }
}

/// Counts any rules, one after the other.
fn count_each(block: &Block, rules: &[Thresholds], traces: &Traces, counts: &mut [Counts]) {
    let t_max = rules.first().map_or(1, Thresholds::t_max);
    for (rule, counts) in std::iter::zip(rules, counts.chunks_exact_mut(t_max)) {
        let mut packed = vec![0; counts.len()];
        count_rule(block, &traces.thresholds(rule.values()), &mut packed);
        for (total, packed) in std::iter::zip(counts, packed) {
            *total += Counts::unpack(packed);
        }
    }
}

/// Adds what halts at each step under one rule, packed as by [`Counts::one`].
pub(crate) fn count_rule(block: &Block, thresholds: &[Threshold], packed: &mut [u64]) {
    let level = fearless_simd::Level::new();
    dispatch!(level, simd => count_rule_in(simd, block, thresholds, packed));
}

/// Compiled once for each instruction set that a CPU may have.
#[inline(always)]
fn count_rule_in<S: Simd>(simd: S, block: &Block, thresholds: &[Threshold], packed: &mut [u64]) {
    // Before the rule opens, only those at their own end can halt.
    let opens = match block.equal_lengths {
        true => thresholds.iter().position(|v| v.exact < f32::INFINITY),
        false => Some(0),
    };
    let opens = opens.unwrap_or(block.steps).min(block.steps - 1);
    for word in 0..block.words() {
        let mut running = block.valid(word);
        for t in opens..block.steps {
            let reached = match block.may_reach(t, word, thresholds[t]) {
                true => block.scores(t).reach_of(simd, word, thresholds[t], running),
                false => 0,
            };
            let halts = running & (reached | block.ends(word, t));
            packed[t] += pack(halts, block.gaps(t, word));
            running &= !halts;
            if running == 0 {
                break;
            }
        }
    }
}

/// Counts a backward walk. A rule only lowers thresholds of the one before it, so a
/// sequence can only move to an earlier halt step, and only to the step that was lowered.
/// So it is enough to look at that step. The whole walk reads each score once, and records
/// for each rule only how its counts differ from those of the rule before.
fn count_walk(candidates: &Candidates, traces: &Traces, counts: &mut [Counts]) {
    let t_max = candidates.t_max();
    let opening = |c| Opening {
        t: candidates.opens(c),
        threshold: traces.threshold(candidates.opening_threshold(c)),
    };
    let openings: Vec<Opening> = (0..candidates.len()).map(opening).collect();
    // The counts of the rule that never halts early, followed by all differences.
    let zero = || vec![0_u64; (openings.len() + 1) * t_max];
    let walk = |mut moved: Vec<u64>, block: &Block| {
        Halts::at_end(block, &mut moved).walk(block, &openings, &mut moved, t_max);
        moved
    };
    let add = |mut left: Vec<u64>, right: Vec<u64>| {
        for (left, right) in std::iter::zip(&mut left, right) {
            *left = left.wrapping_add(right);
        }
        left
    };
    for blocks in traces.blocks.chunks(MOST_BLOCKS) {
        let moved = match blocks {
            [only] => walk(zero(), only),
            _ => blocks.par_iter().fold(zero, walk).reduce(zero, add),
        };
        let (at_end, moved) = moved.split_at(t_max);
        let mut halted = at_end.to_vec();
        let rules = moved.chunks_exact(t_max);
        for (counts, moved) in std::iter::zip(counts.chunks_exact_mut(t_max), rules) {
            for ((total, halted), &moved) in counts.iter_mut().zip(&mut halted).zip(moved) {
                *halted = halted.wrapping_add(moved);
                *total += Counts::unpack(*halted);
            }
        }
    }
}

/// The most blocks whose sequences 32 bits can count.
pub(crate) const MOST_BLOCKS: usize = 1 << 19;

/// How many steps are compared with their thresholds at a time: long runs of
/// memory are read faster than short ones.
const AHEAD: usize = 8;

/// One rule of a backward walk: the step it opens.
struct Opening {
    t: usize,
    threshold: Threshold,
}

/// Where each sequence of a block halts under the current rule.
struct Halts {
    /// The step opened last.
    latest_step: usize,
    /// The sequences that halt there.
    at_latest: Vec<u64>,
    /// The halt step of each other sequence.
    step: Vec<SimdArray<u32>>,
    /// Whether there is a gap at a sequence's halt step.
    gap: Vec<u64>,
}

impl Halts {
    /// Starts with every sequence at its own last step. There is no gap there, but there
    /// may be another loss.
    fn at_end(block: &Block, halted: &mut [u64]) -> Self {
        let last = block.steps - 1;
        let mut gap = vec![0; block.words()];
        if block.costs_at_end() {
            for i in 0..block.len {
                let lost = block.loss(block.last(i) as usize, i) > 0;
                halted[block.last(i) as usize] += Counts::one(lost);
                gap[i / SIMD_WIDTH] |= u64::from(lost) << (i % SIMD_WIDTH);
            }
        } else if block.equal_lengths {
            halted[last] += block.len as u64 * Counts::one(false);
        } else {
            for i in 0..block.len {
                halted[block.last(i) as usize] += Counts::one(false);
            }
        }
        Self {
            latest_step: last,
            at_latest: (0..block.words()).map(|w| block.ends(w, last)).collect(),
            step: block.last.clone(),
            gap,
        }
    }

    /// Opens one step after the other, and records which sequences move.
    fn walk(mut self, block: &Block, openings: &[Opening], moved: &mut [u64], t_max: usize) {
        let level = fearless_simd::Level::new();
        let mut reached = vec![0; AHEAD * block.words()];
        let rules = moved[t_max..].chunks_mut(AHEAD * t_max);
        for (openings, moved) in std::iter::zip(openings.chunks(AHEAD), rules) {
            dispatch!(level, simd => reach(simd, block, openings, &mut reached));
            let rules = moved.chunks_exact_mut(t_max);
            let reached = reached.chunks_exact(block.words());
            for ((opening, moved), reached) in openings.iter().zip(rules).zip(reached) {
                // At its last step every sequence halts anyway.
                if opening.t + 1 < block.steps && opening.threshold.exact < f32::INFINITY {
                    dispatch!(level, simd => self.move_to(simd, block, opening.t, reached, moved));
                }
            }
        }
    }

    /// Moves to step `t` all that halt later and whose score reaches the
    /// threshold.
    ///
    /// Most come from the step opened before, often all 64 of a word: those
    /// are counted at once, and only the others one by one.
    ///
    /// Compiled once for each instruction set that a CPU may have.
    #[inline(always)]
    fn move_to<S: Simd>(
        &mut self,
        simd: S,
        block: &Block,
        t: usize,
        reached: &[u64],
        moved: &mut [u64],
    ) {
        let latest = std::mem::replace(&mut self.latest_step, t);
        let (mut arrived, mut left) = (0_u64, 0_u64);
        let words = self.at_latest.iter_mut().zip(&mut self.gap);
        let words = words.zip(std::iter::zip(&mut self.step, reached));
        for (word, ((at_latest, gap), (step, &reached))) in words.enumerate() {
            // Steps are opened from the last back, so a sequence that has not ended halts
            // later.
            let later = if block.equal_lengths {
                block.valid(word)
            } else {
                SimdNumber::at_least(simd, &block.last[word], t as u32 + 1)
            };
            let moves = reached & later;
            left += pack(moves & *at_latest, *gap);
            let with_gap = moves & *gap;
            for i in ones(moves ^ *at_latest) {
                // A sequence that moves is subtracted from where it was; a sequence that
                // stays is at the latest step from now on. Both take the same path, without
                // a branch: a sequence that stays subtracts nothing, and the step of one
                // that moves is not read before it stays in its turn.
                let from = &mut moved[step[i] as usize];
                *from = from.wrapping_sub((moves >> i & 1) | (with_gap >> i & 1) << 32);
                step[i] = latest as u32;
            }
            let gaps = block.gaps(t, word);
            arrived += pack(moves, gaps);
            *gap = *gap & !moves | gaps & moves;
            *at_latest = moves;
        }
        moved[latest] = moved[latest].wrapping_sub(left);
        moved[t] = moved[t].wrapping_add(arrived);
    }
}

/// Finds which sequences reach each of some thresholds, from the last threshold back, as
/// they lie in memory. Compiled once for each instruction set that a CPU may have.
#[inline(always)]
fn reach<S: Simd>(simd: S, block: &Block, openings: &[Opening], reached: &mut [u64]) {
    let rows = reached.chunks_exact_mut(block.words());
    for (opening, reached) in openings.iter().zip(rows).rev() {
        if opening.t < block.steps {
            let scores = block.scores(opening.t);
            scores.reach_all(simd, opening.threshold, reached);
        }
    }
}

/// Packed counts of the sequences in a word and of their gaps.
#[inline(always)]
fn pack(sequences: u64, gaps: u64) -> u64 {
    u64::from(sequences.count_ones()) | u64::from((sequences & gaps).count_ones()) << 32
}

/// The stored form of the counts.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTable {
    t_max: usize,
    sequences: u64,
    halted: Vec<Vec<u64>>,
    gaps: Vec<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    moments: Vec<Moments>,
}

impl From<Table> for StoredTable {
    fn from(table: Table) -> Self {
        let rows = |count: fn(&Counts) -> u64| {
            let row = |row: &[Counts]| row.iter().map(count).collect();
            table.rows().map(row).collect()
        };
        Self {
            t_max: table.t_max,
            sequences: table.sequences,
            halted: rows(|c| c.halted),
            gaps: rows(|c| c.gaps),
            moments: table.moments,
        }
    }
}

impl TryFrom<StoredTable> for Table {
    type Error = EvidenceError;

    /// Every sequence halts exactly once under every candidate, and there are no more gaps
    /// than halts. A table that breaks this is not evidence.
    fn try_from(stored: StoredTable) -> Result<Self, EvidenceError> {
        let damaged = |what| Err(EvidenceError::Damaged(what));
        let (rules, t_max) = (stored.halted.len(), stored.t_max);
        let shaped =
            |table: &[Vec<u64>]| table.len() == rules && table.iter().all(|row| row.len() == t_max);
        if !shaped(&stored.halted) || !shaped(&stored.gaps) {
            return damaged("a table has the wrong shape");
        }
        if stored.sequences > MOST_SEQUENCES {
            return damaged("there are more sequences than can be");
        }
        let whole = match stored.moments.is_empty() {
            true => 1,
            false => u64::from(TOP),
        };
        if !stored.moments.is_empty() && stored.moments.len() != rules * t_max {
            return damaged("a table has the wrong shape");
        }
        for row in stored.moments.chunks(t_max.max(1)) {
            let mut sum = Moments::default();
            for &moments in row {
                sum += moments;
                if !sum.are_possible() || sum.units > stored.sequences {
                    return damaged("sums of losses contradict each other");
                }
            }
        }
        let mut counts = Vec::new();
        for (halted, gaps) in std::iter::zip(&stored.halted, &stored.gaps) {
            let total = halted.iter().try_fold(0_u64, |sum, &h| sum.checked_add(h));
            if total != Some(stored.sequences) {
                return damaged("a candidate's counts do not add up to the number of sequences");
            }
            for (&halted, &gaps) in std::iter::zip(halted, gaps) {
                if gaps / whole > halted {
                    return damaged("there are more gaps than halted sequences");
                }
                counts.push(Counts { halted, gaps });
            }
        }
        Ok(Self {
            rules,
            t_max,
            sequences: stored.sequences,
            counts,
            moments: stored.moments,
        })
    }
}
