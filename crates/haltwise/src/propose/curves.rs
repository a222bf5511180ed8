//! The search for cheap threshold curves, and the families built from the best one.

use std::collections::HashMap;

use haltwise_stream::probability;
use libm::log as ln;
use rayon::prelude::*;

use super::budget::{Budgets, LEVELS, Limited, STRICT_LEVELS};
use super::families::ScoredSource;
use super::fit::FEW;
use super::views::{Group, View};
use crate::data::outputs::Outputs;
use crate::data::score::ScoreSource;
use crate::data::traces::Traces;
use crate::numbers::counts::Counts;
use crate::numbers::thresholds::Thresholds;
use crate::tables::halting::halts_of_block;
use crate::tables::table::count_rule;
use crate::testing::fixed_sequence::Promise;

/// If the gap is promised on average, curves before the strictest are this much higher, in
/// log-odds, than the curve after them.
const STRICTER: [f64; 3] = [0.5, 1.0, 2.0];

/// This many curves are bolder than any that is expected to pass.
const BOLDER_LEVELS: usize = 6;

/// How many rules a walk has before it reaches the step where its curve opens.
const WALK_LINKS: u32 = 10;

/// The sizes of the steps from one curve of a family to the next.
const FINE: [f64; 3] = [0.5, 0.25, 0.12];

/// How many rules there are between two curves of a family, including the first curve.
const PER_LINK: usize = 4;

/// The price of a gap over budget, in units of its standard deviation.
const OVER_BUDGET: f64 = 5.0;

/// The price of a curve that is not flat.
const NOT_FLAT: f64 = 0.002;

/// Returns how many halt at each step under thresholds, and what they lose.
fn halted_at(traces: &Traces, curve: &[f32]) -> Vec<Counts> {
    let thresholds = traces.thresholds(curve);
    if traces.measure().binary {
        let mut packed = vec![0; curve.len()];
        for block in &traces.blocks {
            count_rule(block, &thresholds, &mut packed);
        }
        return packed.into_iter().map(Counts::unpack).collect();
    }
    let mut counts = vec![Counts::default(); curve.len()];
    for block in &traces.blocks {
        for halt in halts_of_block(&thresholds, block) {
            counts[halt.step as usize].halted += 1;
            counts[halt.step as usize].gaps += u64::from(halt.loss);
        }
    }
    counts
}

/// The step where a curve opens, the log-odds at its knots, and its price.
#[derive(Debug, Clone)]
pub(super) struct Start {
    pub(super) opens: usize,
    pub(super) knots: Vec<f64>,
    pub(super) value: f64,
}

/// The fitting traces, and what curves are screened for.
pub(super) struct Screen<'v> {
    pub(super) source: &'v ScoreSource,
    /// A series of falling thresholds, each for all steps, in log-odds, if the score was
    /// made for that.
    pub(super) falling: &'v [f64],
    pub(super) promise: Promise,
    groups: Vec<Screened<'v>>,
    /// The total cost up to each step.
    pub(super) costs: Option<&'v [f64]>,
    pub(super) t_max: usize,
    /// The logarithm of each step, counted from 1.
    pub(super) logs: Vec<f64>,
    /// The number of fitting traces.
    pub(super) len: usize,
    /// Certifying traces per fitting trace.
    pub(super) scale: f64,
}

/// The fitting traces of a group.
struct Screened<'v> {
    traces: Traces,
    levels: &'v Budgets,
    scale: f64,
}

impl<'v> Screen<'v> {
    pub(super) fn new(
        outputs: &Outputs,
        view: &'v View,
        judged: &'v ScoredSource,
        costs: Option<&'v [f64]>,
    ) -> Self {
        let ScoredSource {
            source,
            scores,
            falling,
        } = judged;
        let screened = |group: &'v Group| {
            let members = as_they_halt(&group.members, scores);
            let traces = outputs.with_scores(source.clone(), view.measure, members, |i| &scores[i]);
            Screened {
                scale: group.levels.certifying as f64 / traces.len().max(1) as f64,
                levels: &group.levels,
                traces,
            }
        };
        let groups: Vec<Screened<'_>> = view.groups.iter().map(screened).collect();
        let len: usize = groups.iter().map(|group| group.traces.len()).sum();
        let certifying: usize = groups.iter().map(|group| group.levels.certifying).sum();
        Self {
            source,
            falling,
            promise: view.promise,
            costs,
            t_max: outputs.t_max(),
            logs: logs_of_steps(outputs.t_max()),
            len,
            scale: certifying as f64 / len.max(1) as f64,
            groups,
        }
    }

    /// The thresholds of a curve.
    fn curve(&self, opens: usize, knots: &[f64]) -> Vec<f32> {
        let mut thresholds = vec![f32::INFINITY; self.t_max];
        let (from, to) = (self.logs[opens], self.logs[self.t_max - 1]);
        let links = (knots.len() - 1) as f64;
        for (t, threshold) in thresholds.iter_mut().enumerate().skip(opens) {
            let along = match to > from && links > 0.0 {
                true => (self.logs[t] - from) / (to - from) * links,
                false => 0.0,
            };
            let k = (along as usize).min(knots.len().saturating_sub(2));
            let next = knots[(k + 1).min(knots.len() - 1)];
            *threshold = probability(knots[k] + (next - knots[k]) * (along - k as f64));
        }
        thresholds
    }

    /// The price of a curve: its mean halt time or cost, and a penalty if it is over budget
    /// in any group.
    fn value(&self, opens: usize, knots: &[f64], limit: &Limited) -> f64 {
        let curve = self.curve(opens, knots);
        let (mut spent, mut worst) = (0.0, 0.0_f64);
        let (tested_from, not_flat) = match self.promise {
            Promise::Conditional => (opens, NOT_FLAT),
            // Only the sum of all steps is tested.
            Promise::Marginal => (self.t_max - 1, NOT_FLAT / 4.0),
        };
        for group in &self.groups {
            let limit = limit.of(group.levels, self.scale);
            let mut halted_by = Counts::default();
            let unit = group.traces.measure().unit() as f64;
            for (t, at) in halted_at(&group.traces, &curve).into_iter().enumerate() {
                halted_by += at;
                let price = self.costs.map_or((t + 1) as f64, |costs| costs[t]);
                spent += price * at.halted as f64;
                if t < tested_from {
                    continue;
                }
                let halted = group.scale * halted_by.halted as f64;
                let gaps = halted_by.gaps as f64 / unit;
                let gaps = group.scale * (gaps + limit.caution * (gaps + 1.0).sqrt());
                worst = worst.max((gaps - limit.gaps(halted)) / (halted + 1.0).sqrt());
            }
        }
        let most = self.costs.map_or(self.t_max as f64, |c| c[self.t_max - 1]);
        let mean = spent / self.len as f64 / most;
        let bends: f64 = knots.windows(2).map(|k| (k[1] - k[0]).powi(2)).sum();
        mean + OVER_BUDGET * worst + not_flat * bends
    }

    /// The best curve that opens at a step.
    fn start(&self, opens: usize) -> Start {
        let wanted = if self.len < FEW { 2 } else { 4 };
        let left = self.t_max.saturating_sub(opens + 1);
        let n = wanted.min(left).max(1);
        let mut search = self.search(opens, &Limited::Bold(0));
        let mut flat = |level: i32| search.start(vec![f64::from(level) / 4.0; n]);
        // Tries even odds down to a thousandth.
        let mut best = flat(-4);
        for other in (-3..28).map(flat) {
            if other.value < best.value {
                best = other;
            }
        }
        search.descend(best.knots, &[1.0, 0.5, 0.25, 0.12], 6)
    }

    /// A search among the curves that open at a step.
    fn search<'s>(&'s self, opens: usize, limit: &'s Limited) -> Search<'s, 'v> {
        Search {
            screen: self,
            opens,
            limit,
            known: HashMap::new(),
        }
    }

    /// The best curve near another one that opens at the same step.
    fn descend(&self, start: &Start, limit: &Limited) -> Start {
        let mut search = self.search(start.opens, limit);
        search.descend(start.knots.clone(), &FINE, 3)
    }

    /// Finds the best step to open at: on a coarse grid, then around the best one there.
    pub(super) fn best_start(&self) -> Start {
        if !self.falling.is_empty() {
            let mut search = self.search(0, &Limited::Bold(0));
            let flat = self.falling.iter().map(|&knot| search.start(vec![knot]));
            let flat: Vec<Start> = flat.collect();
            return flat[cheapest(&flat)].clone();
        }
        let grid = start_steps(self.t_max);
        let tried = |steps: Vec<usize>| -> Vec<Start> {
            let starts = steps.into_par_iter().map(|opens| self.start(opens));
            starts.collect()
        };
        let coarse = tried(grid.clone());
        let i = cheapest(&coarse);
        let fine = tried(around(&grid, i));
        let mut best = coarse[i].clone();
        if let Some(finer) = fine.get(cheapest(&fine))
            && finer.value < best.value
        {
            best = finer.clone();
        }
        best
    }

    /// The rules around a curve, in the order of their tests.
    pub(super) fn family(&self, start: &Start, order: Order) -> Vec<Thresholds> {
        let mut rules = match order {
            Order::Boldness => self.ever_bolder(start),
            Order::Walk => self.walk(start),
            Order::Falling => self
                .falling
                .iter()
                .map(|&knot| self.curve(0, &[knot]))
                .collect(),
        };
        // A rule equal to the one before needs no second test.
        rules.dedup();
        rules.into_iter().map(Thresholds::from_valid).collect()
    }

    /// Orders curves from the strictest to the boldest, with some between each two.
    fn ever_bolder(&self, start: &Start) -> Vec<Vec<f32>> {
        let descend = |from: &Start, limit| self.descend(from, &limit);
        let mut chain = vec![start.clone()];
        for i in (0..STRICT_LEVELS.len()).rev() {
            chain.insert(0, descend(&chain[0], Limited::Strict(i)));
        }
        if self.promise == Promise::Marginal {
            // For the average over all, a rule passes if it halts hardly any sequence.
            for stricter in STRICTER {
                let knots = chain[0].knots.iter().map(|knot| knot + stricter);
                let knots = knots.collect();
                chain.insert(0, Start { knots, ..chain[0] });
            }
        }
        for i in 1..LEVELS.len() {
            chain.push(descend(&chain[chain.len() - 1], Limited::Bold(i)));
        }
        // In case the fitting traces were too hard: also open from an earlier step on.
        let grid = start_steps(self.t_max);
        for i in 0..BOLDER_LEVELS {
            let last = &chain[chain.len() - 1];
            let mut next = descend(last, Limited::Bolder(i));
            if let Some(&opens) = grid.iter().rev().find(|&&step| step < last.opens) {
                let earlier = Start {
                    opens,
                    ..next.clone()
                };
                let earlier = descend(&earlier, Limited::Bolder(i));
                if earlier.value < next.value {
                    next = earlier;
                }
            }
            chain.push(next);
        }
        let mut rules = Vec::new();
        for pair in chain.windows(2) {
            rules.push(self.curve(pair[0].opens, &pair[0].knots));
            for i in (1..PER_LINK).take_while(|_| pair[0].opens == pair[1].opens) {
                let share = i as f64 / PER_LINK as f64;
                let between = std::iter::zip(&pair[0].knots, &pair[1].knots)
                    .map(|(a, b)| a + (b - a) * share);
                let knots: Vec<f64> = between.collect();
                rules.push(self.curve(pair[0].opens, &knots));
            }
        }
        rules.extend(chain.last().map(|last| self.curve(last.opens, &last.knots)));
        rules
    }

    /// One curve, a little bolder than the reference, that opens at earlier and earlier
    /// steps; before it opens, its threshold is as high as there.
    ///
    /// In the other family, if the first rule fails, all fail. It may be too bold, or so
    /// strict that too few halt. Here the first rule is safe, and each later rule only adds
    /// halts before those of the last.
    fn walk(&self, start: &Start) -> Vec<Vec<f32>> {
        let Start { opens, knots, .. } = self.descend(start, &Limited::Bold(1));
        let mut curve = self.curve(opens, &knots);
        let height = curve[opens];
        curve[..opens].fill(height);
        let (from, to) = (self.logs[opens], self.logs[self.t_max - 1]);
        let links = f64::from(WALK_LINKS);
        let after = (1..WALK_LINKS).rev().map(|k| {
            let along = from + (to - from) * f64::from(k) / links;
            (libm::exp(along) as usize).clamp(opens, self.t_max - 1)
        });
        let before = std::iter::successors(Some(opens), |&opens| match opens {
            0 => None,
            _ => Some((opens as f64 / 1.1) as usize),
        });
        let rule = |opens: usize| {
            let mut rule = curve.clone();
            rule[..opens].fill(f32::INFINITY);
            rule
        };
        after.chain(before).map(rule).collect()
    }
}

/// A search for cheap curves.
struct Search<'s, 'v> {
    screen: &'s Screen<'v>,
    opens: usize,
    limit: &'s Limited,
    /// The price of every curve that was looked at, by the bits of its knots. A quarter of
    /// all looks are at curves that were seen before.
    known: HashMap<Vec<u64>, f64>,
}

impl Search<'_, '_> {
    /// Returns a curve with its price.
    fn start(&mut self, knots: Vec<f64>) -> Start {
        let bits = knots.iter().map(|knot| knot.to_bits()).collect();
        let price = || self.screen.value(self.opens, &knots, self.limit);
        let value = *self.known.entry(bits).or_insert_with(price);
        Start {
            opens: self.opens,
            knots,
            value,
        }
    }

    /// Goes from one curve to cheaper and cheaper ones. It moves one knot, all knots, or
    /// two neighbours against each other, up or down, in steps of falling size.
    fn descend(&mut self, knots: Vec<f64>, sizes: &[f64], sweeps: usize) -> Start {
        let n = knots.len();
        let mut directions: Vec<Vec<f64>> = Vec::new();
        let unit = |at: usize| (0..n).map(|i| f64::from(i == at)).collect::<Vec<_>>();
        directions.extend((0..n).map(unit));
        if n > 1 {
            directions.push(vec![1.0; n]);
        }
        for j in 1..n {
            let mut against = unit(j - 1);
            against[j] = -1.0;
            directions.push(against);
        }
        let mut best = self.start(knots);
        for &size in sizes {
            for _ in 0..sweeps {
                let before = best.value;
                for direction in &directions {
                    for sign in [size, -size] {
                        while self.improve(&mut best, direction, sign) {}
                    }
                }
                if best.value == before {
                    break;
                }
            }
        }
        best
    }

    fn improve(&mut self, best: &mut Start, direction: &[f64], by: f64) -> bool {
        let moved = std::iter::zip(&best.knots, direction).map(|(k, d)| k + by * d);
        let moved = self.start(moved.collect());
        let better = moved.value < best.value - 1e-9;
        if better {
            *best = moved;
        }
        better
    }
}

/// Sorts sequences so that those that halt at about the same step are neighbours. This is
/// estimated without a curve: by the step at which their scores first reach the level that
/// three quarters of them ever reach. No count depends on the order, but words of sequences
/// that halt together are counted faster.
fn as_they_halt(members: &[usize], scores: &[Vec<f32>]) -> Vec<usize> {
    let highest = |&i: &usize| scores[i].iter().copied().fold(0.0, f32::max);
    let mut heights: Vec<f32> = members.iter().map(highest).collect();
    heights.sort_unstable_by(f32::total_cmp);
    let high = heights.get(heights.len() / 4).copied().unwrap_or(0.0);
    let first = |&i: &usize| scores[i].iter().position(|&score| score >= high);
    let mut members = members.to_vec();
    members.sort_by_cached_key(|i| first(i).unwrap_or(usize::MAX));
    members
}

fn logs_of_steps(t_max: usize) -> Vec<f64> {
    (1..=t_max).map(|t| ln(t as f64)).collect()
}

/// The order of the rules in a family.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Bolder and bolder curves.
    Boldness,
    /// One curve that opens at earlier and earlier steps.
    Walk,
    /// One threshold for all steps, lower and lower.
    Falling,
}

/// The place of the cheapest start (the first of equals).
fn cheapest(starts: &[Start]) -> usize {
    let mut best = 0;
    for (i, start) in starts.iter().enumerate() {
        if start.value < starts[best].value {
            best = i;
        }
    }
    best
}

/// Returns up to three steps on either side of a step of the grid, before the next one.
fn around(grid: &[usize], i: usize) -> Vec<usize> {
    let before = if i > 0 { grid[i - 1] } else { grid[i] };
    let after = grid.get(i + 1).copied().unwrap_or(grid[i]);
    let between = |from: usize, to: usize| (1..4).map(move |k| from + (to - from) * k / 4);
    let steps = between(before, grid[i]).chain(between(grid[i], after));
    let mut steps: Vec<usize> = steps.filter(|step| !grid.contains(step)).collect();
    steps.dedup();
    steps
}

/// The (0-based) steps at which curves try to open; later steps are further apart.
fn start_steps(t_max: usize) -> Vec<usize> {
    let before = (0.6 * t_max as f64 - 1.0).max(1.0);
    let mut steps = vec![0];
    while let Some(&last) = steps.last() {
        let next = (last + 1).max((1.35 * last as f64 + 0.5) as usize);
        if next as f64 >= before {
            break;
        }
        steps.push(next);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_goes_through_its_knots_and_never_halts_before_it_opens() {
        let source = ScoreSource::Confidence;
        let screen = Screen {
            source: &source,
            falling: &[],
            promise: Promise::Conditional,
            groups: Vec::new(),
            costs: None,
            t_max: 16,
            logs: logs_of_steps(16),
            len: 1,
            scale: 1.0,
        };
        let curve = screen.curve(3, &[2.0, 0.0, 1.0]);
        assert!(curve[..3].iter().all(|&t| t == f32::INFINITY));
        assert_eq!(curve[3], probability(2.0));
        assert_eq!(curve[7], probability(0.0), "half way, by the logarithm");
        assert_eq!(curve[15], probability(1.0));
        assert_eq!(screen.curve(0, &[1.5]), [probability(1.5); 16]);
    }

    #[test]
    fn who_halts_at_about_the_same_step_stands_together() {
        let scores = [[0.1, 0.9], [0.9, 0.9], [0.2, 0.1], [0.3, 0.8], [0.8, 0.2]];
        let scores = scores.map(|scores| scores.to_vec());
        // Three quarters of the sequences reach 0.8: two at once, two at the second step.
        assert_eq!(as_they_halt(&[0, 1, 2, 3, 4], &scores), [1, 4, 0, 3, 2]);
        assert_eq!(as_they_halt(&[3, 1], &scores), [1, 3]);
        assert_eq!(as_they_halt(&[], &scores), [0; 0]);
    }

    #[test]
    fn starts_are_tried_closely_first() {
        assert_eq!(start_steps(1), [0]);
        assert_eq!(start_steps(8), [0, 1, 2, 3]);
        let grid = start_steps(46);
        assert_eq!(grid[5..], [5, 7, 9, 12, 16, 22]);
        assert_eq!(around(&grid, 9), [13, 14, 15, 17, 19, 20]);
        assert_eq!(around(&grid, 0), [0; 0]);
    }
}
