//! Proposing candidate rules (the screening of the method `adaptive`).
//!
//! A rule is a threshold curve: log-odds that are linear in the logarithm of
//! the step between a few knots, "never" before a first step. On the fitting
//! traces the curve is sought that halts earliest on average while, by every
//! step, the gaps stay within the budget that the test on the certifying traces
//! will grant: how many gaps among so many halted still give a p-value below
//! δ's share. From that curve a family is spun: stricter ones before it, bolder
//! ones behind it, in the order in which they will be tested.
//!
//! All of this is a heuristic and may look at the fitting traces as it likes.
//! The guarantee comes from certifying, which asks only that the score, the
//! families, their order and their shares of δ were fixed without the
//! certifying traces; see `docs/validity.md`.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::candidates::{Candidates, FamilyKind};
use crate::fit::{FEW, fit};
use crate::gap_score::probability;
use crate::level::{Alpha, Delta};
use crate::parts::Fitting;
use crate::plan::ScoreWord;
use crate::pvalue::binomial_tail;
use crate::score::ScoreSource;
use crate::step::StepError;
use crate::table::{Counts, count_rule};
use crate::thresholds::Thresholds;
use crate::trace::Traces;

/// The shares of δ: the best curves, and those that open later. Where none do,
/// the best curves have both.
const SHARES: [f64; 2] = [0.5, 0.25];

/// The clock's share of δ. It is a constant: fitting traces may help to certify
/// the clock, so that nothing about it, its level least of all, may depend on
/// them.
const CLOCK_SHARE: f64 = 0.25;

/// The p-values that a family's curves are screened for, in units of the best
/// family's level: the first is the reference, the others are ever bolder.
const LEVELS: [f64; 4] = [0.5, 2.0, 8.0, 50.0];

/// The same for the cautious curves before the reference, which are held to it
/// once half of all have halted: that is where bolder ones tend to fail.
const STRICT_LEVELS: [f64; 3] = [1e-3, 1e-2, 1e-1];

/// Rules between two curves of a family, the first curve included.
const PER_LINK: usize = 3;

/// The price of a gap over budget, in units of its standard deviation.
const OVER_BUDGET: f64 = 5.0;

/// The price of a curve that is not flat.
const NOT_FLAT: f64 = 0.002;

/// Counts are raised by so many standard deviations: the certifying traces may
/// be less kind than the fitting ones.
const CAUTION: f64 = 0.7;

/// So many more for the cautious curves, from the one next to the reference on,
/// and so many less for the bold ones, where a thousand times as many certify
/// as fit; where as many do, nothing. Many traces tell a gap just above α from
/// one just below, which the fitting traces cannot.
const MORE_CAUTION: [f64; 3] = [0.7, 1.4, 2.1];

/// Up to this step the clock may strike at each; after it, at ever fewer.
const CLOCK_STEPS: usize = 384;

/// Candidates and their share of δ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Family {
    pub(crate) kind: FamilyKind,
    pub(crate) share: f64,
    pub(crate) candidates: Candidates,
}

/// Fits a score and proposes candidates for certifying on so many traces of up
/// to so many steps.
///
/// Of the certifying traces only their number and the longest length are used,
/// which say nothing about gaps; curves never halt at steps that no fitting trace
/// has.
pub(crate) fn propose(
    fitting: &Fitting,
    wanted: Option<ScoreWord>,
    certifying: usize,
    t_max: usize,
    alpha: Alpha,
    delta: Delta,
) -> Result<(ScoreSource, Vec<Family>), StepError> {
    let outputs = fitting.outputs();
    let fixed = wanted.and_then(ScoreWord::plain);
    let learned = match fixed {
        Some(_) => None,
        None => fit(fitting, alpha)?,
    };
    let plain_source = fixed.unwrap_or_else(|| outputs.plain_source());
    let levels = Levels::new(certifying, alpha, delta);
    let screened = |traces: Traces| {
        let starts = Screen::new(&traces, &levels).best_starts();
        (traces, starts)
    };
    let plain = || outputs.traces(&plain_source).map(screened);
    let (traces, starts) = match learned {
        None => plain()?,
        Some(learned) => {
            let source = ScoreSource::Gap(Box::new(learned.score));
            let learned = screened(outputs.with_scores(source, |i| &learned.held_out[i]));
            if wanted.is_some() {
                learned
            } else {
                let plain = plain()?;
                let earlier = learned.1[0].value < plain.1[0].value;
                if earlier { learned } else { plain }
            }
        }
    };
    let screen = Screen::new(&traces, &levels);
    let longest = t_max.max(traces.t_max());
    let extended = |rules: Vec<Thresholds>| {
        Candidates::list(rules.into_iter().map(|rule| rule.extended(longest)))
    };
    let shares = match starts.len() {
        1 => vec![SHARES.iter().sum()],
        _ => SHARES.to_vec(),
    };
    let mut families: Vec<Family> = starts
        .into_par_iter()
        .zip(shares)
        .map(|(start, share)| Family {
            kind: FamilyKind::Curves,
            share,
            candidates: extended(screen.family(start)),
        })
        .collect();
    let clock = clock(longest);
    if !clock.is_empty() {
        families.push(Family {
            kind: FamilyKind::Clock,
            share: CLOCK_SHARE,
            candidates: extended(clock),
        });
    }
    Ok((traces.source().clone(), families))
}

/// Everyone halts at one step, from the last but one back.
///
/// The family does not depend on the data, although it begins at the longest
/// sequence: a rule that would open later halts no one early, has no gap and so
/// the least p-value there can be; it passes whenever any other would.
fn clock(t_max: usize) -> Vec<Thresholds> {
    let after = |&step: &usize| Some(step + 1 + step.saturating_sub(CLOCK_STEPS) / 64);
    let steps = std::iter::successors(Some(0), after);
    let steps: Vec<usize> = steps.take_while(|step| step + 1 < t_max).collect();
    steps
        .into_iter()
        .rev()
        .map(|opens| {
            let mut thresholds = vec![0.0; t_max];
            thresholds[..opens].fill(f32::INFINITY);
            Thresholds::from_valid(thresholds)
        })
        .collect()
}

/// For a p-value: how many gaps among so many halted give it.
struct Budget {
    /// Numbers of halted, rising, and the gaps; between two of them, linear.
    knots: Vec<(f64, f64)>,
}

impl Budget {
    /// Up to this many halted there is a knot at each number.
    const DENSE: u64 = 256;

    fn new(most: usize, level: f64, alpha: Alpha) -> Self {
        let alpha = alpha.get();
        // So many halted without a gap are just enough.
        let enough = level.ln() / (1.0 - alpha).ln();
        let tail = |gaps: u64, halted: u64| binomial_tail(gaps, halted, alpha);
        let mut knots = vec![(0.0, -1.0)];
        // How many gap counts pass: 0 to `passing` − 1.
        let (mut passing, mut halted) = (0_u64, 0_u64);
        while halted <= most as u64 {
            halted += 1 + halted.saturating_sub(Self::DENSE) / 64;
            passing = first_failing(passing, |gaps| tail(gaps, halted) <= level);
            let gaps = match passing.checked_sub(1) {
                None => halted as f64 / enough - 1.0,
                Some(last) => {
                    // Between the last count that passes and the next, by the
                    // logarithm of the p-value.
                    let log = |gaps| tail(gaps, halted).max(1e-300).ln();
                    let (below, above) = (log(last), log(passing));
                    last as f64 + (level.ln() - below) / (above - below).max(1e-9)
                }
            };
            knots.push((halted as f64, gaps));
        }
        Self { knots }
    }

    fn gaps(&self, halted: f64) -> f64 {
        let after = self.knots.partition_point(|&(m, _)| m <= halted);
        let after = after.clamp(1, self.knots.len() - 1);
        let ((m, gaps), (next_m, next_gaps)) = (self.knots[after - 1], self.knots[after]);
        gaps + (next_gaps - gaps) * (halted - m) / (next_m - m)
    }
}

/// The first number, from one on, that does not pass, where none after it does:
/// by ever larger strides, then between the last two. A tail costs O(√n), and
/// with millions of halted the next number is tens of thousands away.
fn first_failing(from: u64, passes: impl Fn(u64) -> bool) -> u64 {
    if !passes(from) {
        return from;
    }
    let (mut passing, mut stride) = (from, 1);
    while passes(passing + stride) {
        passing += stride;
        stride *= 2;
    }
    while stride > 1 {
        stride /= 2;
        if passes(passing + stride) {
            passing += stride;
        }
    }
    passing + 1
}

/// A budget that is another's until so many have halted, and the caution with
/// which it is kept to.
struct Limit<'l> {
    early: &'l Budget,
    late: &'l Budget,
    from: f64,
    caution: f64,
}

impl Limit<'_> {
    fn gaps(&self, halted: f64) -> f64 {
        match halted < self.from {
            true => self.early.gaps(halted),
            false => self.late.gaps(halted),
        }
    }
}

/// The budgets of all levels.
struct Levels {
    certifying: usize,
    budgets: [Budget; LEVELS.len()],
    strict: [Budget; STRICT_LEVELS.len()],
}

impl Levels {
    fn new(certifying: usize, alpha: Alpha, delta: Delta) -> Self {
        let budget = |level: f64| {
            let level = (delta.get() * SHARES[0] * level).min(0.5);
            Budget::new(certifying, level, alpha)
        };
        Self {
            certifying,
            budgets: LEVELS.map(budget),
            strict: STRICT_LEVELS.map(budget),
        }
    }

    fn reference(&self) -> Limit<'_> {
        self.bold(0, 1.0)
    }

    /// The limit of a bold curve, or of the reference, where so many certify
    /// for each that fits.
    fn bold(&self, i: usize, scale: f64) -> Limit<'_> {
        let less = i.checked_sub(1).map_or(0.0, |i| MORE_CAUTION[i]);
        Limit {
            early: &self.budgets[i],
            late: &self.budgets[i],
            from: 0.0,
            caution: CAUTION - many(scale) * less,
        }
    }

    /// The limit of a cautious curve, where so many certify for each that fits.
    fn strict(&self, i: usize, scale: f64) -> Limit<'_> {
        let more = MORE_CAUTION[STRICT_LEVELS.len() - 1 - i];
        Limit {
            early: &self.budgets[0],
            late: &self.strict[i],
            from: 0.5 * self.certifying as f64,
            caution: CAUTION + many(scale) * more,
        }
    }
}

/// Whether many certify for each that fits: 0 if one does, 1 if a thousand do.
fn many(scale: f64) -> f64 {
    (scale.log10() / 3.0).clamp(0.0, 1.0)
}

/// Where a curve opens, the log-odds at its knots, and its price.
#[derive(Debug, Clone)]
struct Start {
    opens: usize,
    knots: Vec<f64>,
    value: f64,
}

/// The fitting traces, and what curves are screened for.
struct Screen<'t> {
    traces: &'t Traces,
    levels: &'t Levels,
    t_max: usize,
    /// Certifying traces per fitting trace.
    scale: f64,
}

impl<'t> Screen<'t> {
    fn new(traces: &'t Traces, levels: &'t Levels) -> Self {
        Self {
            traces,
            levels,
            t_max: traces.t_max(),
            scale: levels.certifying as f64 / traces.len() as f64,
        }
    }

    /// The thresholds of a curve.
    fn curve(&self, opens: usize, knots: &[f64]) -> Vec<f32> {
        let mut thresholds = vec![f32::INFINITY; self.t_max];
        let (from, to) = (((opens + 1) as f64).ln(), (self.t_max as f64).ln());
        let links = (knots.len() - 1) as f64;
        for (t, threshold) in thresholds.iter_mut().enumerate().skip(opens) {
            let along = match to > from && links > 0.0 {
                true => (((t + 1) as f64).ln() - from) / (to - from) * links,
                false => 0.0,
            };
            let k = (along as usize).min(knots.len().saturating_sub(2));
            let next = knots[(k + 1).min(knots.len() - 1)];
            *threshold = probability(knots[k] + (next - knots[k]) * (along - k as f64));
        }
        thresholds
    }

    /// The price of a curve: its mean halt time, and a penalty where it is over
    /// budget.
    fn value(&self, opens: usize, knots: &[f64], limit: &Limit<'_>) -> f64 {
        let thresholds = self.traces.thresholds(&self.curve(opens, knots));
        let mut packed = vec![0; self.t_max];
        for block in &self.traces.blocks {
            count_rule(block, &thresholds, &mut packed);
        }
        let (mut halted_by, mut steps, mut worst) = (Counts::default(), 0.0, 0.0_f64);
        for (t, &packed) in packed.iter().enumerate() {
            let at = Counts::unpack(packed);
            halted_by += at;
            steps += (t + 1) as f64 * at.halted as f64;
            if t < opens {
                continue;
            }
            let halted = self.scale * halted_by.halted as f64;
            let gaps = halted_by.gaps as f64;
            let gaps = self.scale * (gaps + limit.caution * (gaps + 1.0).sqrt());
            worst = worst.max((gaps - limit.gaps(halted)) / (halted + 1.0).sqrt());
        }
        let mean = steps / self.traces.len() as f64 / self.t_max as f64;
        let bends: f64 = knots.windows(2).map(|k| (k[1] - k[0]).powi(2)).sum();
        mean + OVER_BUDGET * worst + NOT_FLAT * bends
    }

    /// Goes from one curve to ever cheaper ones: a knot, all knots, or two
    /// neighbours against each other, up or down, in steps of falling size.
    fn descend(&self, mut start: Start, limit: &Limit<'_>, sizes: &[f64], sweeps: usize) -> Start {
        let n = start.knots.len();
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
        start.value = self.value(start.opens, &start.knots, limit);
        for &size in sizes {
            for _ in 0..sweeps {
                let before = start.value;
                for direction in &directions {
                    for sign in [size, -size] {
                        while self.improve(&mut start, direction, sign, limit) {}
                    }
                }
                if start.value == before {
                    break;
                }
            }
        }
        start
    }

    fn improve(&self, start: &mut Start, direction: &[f64], by: f64, limit: &Limit<'_>) -> bool {
        let moved = std::iter::zip(&start.knots, direction).map(|(k, d)| k + by * d);
        let knots: Vec<f64> = moved.collect();
        let value = self.value(start.opens, &knots, limit);
        let better = value < start.value - 1e-9;
        if better {
            (start.knots, start.value) = (knots, value);
        }
        better
    }

    /// The best curve that opens at a step.
    fn start(&self, opens: usize) -> Start {
        let wanted = if self.traces.len() < FEW { 2 } else { 4 };
        let left = self.t_max.saturating_sub(opens + 1);
        let n = wanted.min(left).max(1);
        let limit = self.levels.reference();
        let flat = |level: i32| {
            let knots = vec![f64::from(level) / 4.0; n];
            let value = self.value(opens, &knots, &limit);
            Start {
                opens,
                knots,
                value,
            }
        };
        // From even odds down to a thousandth.
        let mut best = flat(-4);
        for other in (-3..28).map(flat) {
            if other.value < best.value {
                best = other;
            }
        }
        self.descend(best, &limit, &[1.0, 0.5, 0.25, 0.12], 6)
    }

    /// The best step to open at, sought on a coarse grid and then around its
    /// best; and the next later one of the grid, should the best prove too bold.
    fn best_starts(&self) -> Vec<Start> {
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
        let later = coarse.into_iter().find(|start| start.opens > best.opens);
        std::iter::once(best).chain(later).collect()
    }

    /// The rules around a curve, in the order of their tests: from the
    /// strictest to the boldest, some between each two.
    fn family(&self, start: Start) -> Vec<Thresholds> {
        let sizes = [0.5, 0.25, 0.12];
        let mut chain = vec![start.clone()];
        for i in (0..STRICT_LEVELS.len()).rev() {
            let stricter = self.descend(
                chain[0].clone(),
                &self.levels.strict(i, self.scale),
                &sizes,
                3,
            );
            chain.insert(0, stricter);
        }
        let mut last = start;
        for i in 1..LEVELS.len() {
            last = self.descend(last, &self.levels.bold(i, self.scale), &sizes, 3);
            chain.push(last.clone());
        }
        let mut rules = Vec::new();
        for pair in chain.windows(2) {
            for i in 0..PER_LINK {
                let share = i as f64 / PER_LINK as f64;
                let between = std::iter::zip(&pair[0].knots, &pair[1].knots)
                    .map(|(a, b)| a + (b - a) * share);
                let knots: Vec<f64> = between.collect();
                rules.push(self.curve(last.opens, &knots));
            }
        }
        rules.push(self.curve(last.opens, &last.knots));
        // What does not differ from the rule before needs no second test.
        rules.dedup();
        rules.into_iter().map(Thresholds::from_valid).collect()
    }
}

/// The place of the cheapest, the first of equals.
fn cheapest(starts: &[Start]) -> usize {
    let mut best = 0;
    for (i, start) in starts.iter().enumerate() {
        if start.value < starts[best].value {
            best = i;
        }
    }
    best
}

/// Up to three steps on either side of a step of the grid, before the next.
fn around(grid: &[usize], i: usize) -> Vec<usize> {
    let before = if i > 0 { grid[i - 1] } else { grid[i] };
    let after = grid.get(i + 1).copied().unwrap_or(grid[i]);
    let between = |from: usize, to: usize| (1..4).map(move |k| from + (to - from) * k / 4);
    let steps = between(before, grid[i]).chain(between(grid[i], after));
    let mut steps: Vec<usize> = steps.filter(|step| !grid.contains(step)).collect();
    steps.dedup();
    steps
}

/// The (0-based) steps at which curves are tried to open, further apart the
/// later they are.
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
    fn the_first_failing_number_is_found_from_anywhere_before_it() {
        for last in 0..70_u64 {
            for from in 0..=last + 1 {
                assert_eq!(first_failing(from, |n| n <= last), last + 1);
            }
        }
    }

    #[test]
    fn a_budget_is_what_the_test_will_grant() {
        let (level, alpha) = (0.005, Alpha::default());
        let budget = Budget::new(3000, level, alpha);
        for halted in [10, 60, 300, 1000, 3000] {
            let gaps = budget.gaps(halted as f64);
            let (floor, ceiling) = (gaps.floor(), gaps.ceil());
            if floor >= 0.0 && halted <= 256 {
                assert!(binomial_tail(floor as u64, halted, 0.1) <= level);
            }
            // Beyond the dense part, interpolating may be off by a little.
            let slack = if halted <= 256 { 0 } else { 1 };
            assert!(binomial_tail(ceiling.max(0.0) as u64 + slack, halted, 0.1) > level);
        }
        assert!(budget.gaps(40.0) < 0.0, "too few to pass at all");
    }

    #[test]
    fn a_curve_goes_through_its_knots_and_never_halts_before_it_opens() {
        let mut builder = Traces::builder();
        builder.push(None, &0, &[0; 16], &[0.5; 16]).unwrap();
        let traces = builder.finish();
        let levels = Levels::new(100, Alpha::default(), Delta::default());
        let screen = Screen::new(&traces, &levels);
        let curve = screen.curve(3, &[2.0, 0.0, 1.0]);
        assert!(curve[..3].iter().all(|&t| t == f32::INFINITY));
        assert_eq!(curve[3], probability(2.0));
        assert_eq!(curve[7], probability(0.0), "half way, by the logarithm");
        assert_eq!(curve[15], probability(1.0));
        assert_eq!(screen.curve(0, &[1.5]), [probability(1.5); 16]);
    }

    #[test]
    fn the_clock_goes_back_from_the_last_step_but_one() {
        let rules = clock(4);
        assert_eq!(rules.len(), 3);
        let never = f32::INFINITY;
        assert_eq!(rules[0].values(), [never, never, 0.0, 0.0]);
        assert_eq!(rules[2].values(), [0.0; 4]);
        assert!(clock(5000).len() < 2 * CLOCK_STEPS);
        // Longer sequences only add rules in front.
        let (few, many) = (clock(900), clock(1000));
        let opens = |rule: &Thresholds| rule.opens().unwrap();
        let many: Vec<usize> = many.iter().map(opens).collect();
        assert!(many.ends_with(&few.iter().map(opens).collect::<Vec<_>>()));
        assert!(clock(1).is_empty());
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
