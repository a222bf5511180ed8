//! What a rule does to traces: accuracy early and late, halt times, and the
//! gap among the sequences halted by each step.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bets::{self, Moments};
use crate::counts::{Counts, is_zero};
use crate::halt::{Halt, halts};
use crate::identity::{Fingerprint, Key, by_key};
use crate::levels::unit_moments;
use crate::loss::{Loss, Measure, TOP};
use crate::pvalue::clopper_pearson;
use crate::rule::Rule;
use crate::sequence::{SequenceError, Trace};
use crate::terms::{Cost, Terms};
use crate::thresholds::Thresholds;
use crate::trace::{Traces, TracesBuilder};
use haltwise_stream::StepError;

/// The confidence of the intervals around every gap.
pub const CONFIDENCE: f64 = 0.95;

/// The shares of earliest sequences for which the gap is reported.
const EARLIEST: [&str; 2] = ["0.2", "0.5"];

/// Why a rule cannot be applied to traces.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// There is nothing to evaluate.
    #[error("there are no traces")]
    Empty,
    /// A sequence has more steps than the rule.
    #[error(
        "a sequence has {found} steps, but the rule was calibrated for {t_max} at the most; \
         calibrate on traces of that length"
    )]
    TooLong {
        /// The steps of the longest sequence.
        found: usize,
        /// The rule's.
        t_max: usize,
    },
    /// A sequence lacks what the rule's promise is about.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
    /// A step has no score of the kind that the rule judges.
    #[error(transparent)]
    Score(#[from] StepError),
    /// The traces were binned on a grid that lacks one of the thresholds.
    #[error("the traces were binned on a grid that does not have the threshold {0}")]
    OffGrid(f32),
}

/// One step of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The step, counted from 1.
    pub t: usize,
    /// How many sequences halted at it.
    pub halted: u64,
    /// How many sequences halted by it; where they come in units, how many units
    /// had any that did.
    pub halted_by: u64,
    /// The gap among those, or their mean loss; `None` if there are none.
    pub gap_by: Option<f64>,
    /// A 95% interval of it, exact for gaps.
    pub gap_by_interval: (f64, f64),
}

/// How often predictions were right, among the sequences that have a label.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// The accuracy of the full predictions.
    #[serde(rename = "late_accuracy")]
    pub late: f64,
    /// Its standard error.
    #[serde(rename = "late_accuracy_se")]
    pub late_se: f64,
    /// The accuracy of the early predictions.
    #[serde(rename = "early_accuracy")]
    pub early: f64,
    /// Its standard error.
    #[serde(rename = "early_accuracy_se")]
    pub early_se: f64,
}

/// What reading cost, on average.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CostResult {
    /// Until the sequences halted.
    pub mean: f64,
    /// To their ends.
    pub full: f64,
}

/// What a rule did to the sequences of a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    /// The group.
    pub group: String,
    /// How many sequences.
    pub n: usize,
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// The share with a gap, or the mean loss.
    pub gap: f64,
    /// A 95% interval of it.
    pub gap_interval: (f64, f64),
    /// Step by step.
    pub by_step: Vec<StepResult>,
}

/// What a rule did to a set of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// How many sequences.
    pub n: usize,
    /// The rule's number of steps; those of the longest sequence where the rule
    /// [reads on](Rule::reads_on) and that has more.
    pub t_max: usize,
    /// How often predictions were right; `None` without labels.
    #[serde(flatten)]
    pub accuracy: Option<Accuracy>,
    /// The mean of halt step / t_max.
    pub t_avg: f64,
    /// Its standard error.
    pub t_avg_se: f64,
    /// The steps read as a share of all steps there were; equals `t_avg` where
    /// every sequence has `t_max` steps.
    pub steps_read: f64,
    /// The share of all sequences with a gap; of another loss, its mean.
    pub gap: f64,
    /// Its standard error.
    pub gap_se: f64,
    /// A 95% interval of it, exact for gaps.
    pub gap_interval: (f64, f64),
    /// The gap among the share of sequences that halted first (ties by input
    /// order); `None` where that share is less than one sequence.
    pub gap_earliest: BTreeMap<String, Option<f64>>,
    /// 95% intervals of those gaps, as if the sequences had been picked without
    /// looking at their halt steps.
    pub gap_earliest_interval: BTreeMap<String, (f64, f64)>,
    /// How many sequences have no label, and say nothing about the gap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unlabelled: usize,
    /// How many more there were that the rule's weights leave out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub thinned: usize,
    /// What reading cost, where the rule minimises that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CostResult>,
    /// The same for each group that the rule promises something.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_group: Vec<GroupResult>,
    /// Step by step.
    pub by_step: Vec<StepResult>,
}

/// The step, counted from 1, at which each sequence halts, in input order.
pub fn halt_steps(thresholds: &Thresholds, traces: &Traces) -> Result<Vec<u32>, EvaluateError> {
    check(thresholds, false, traces)?;
    Ok(halts(thresholds, traces)
        .iter()
        .map(|halt| halt.step + 1)
        .collect())
}

/// Refuses sequences that are longer than the rule, unless it reads on, and
/// scores that were binned on a grid without its thresholds.
fn check(thresholds: &Thresholds, reads_on: bool, traces: &Traces) -> Result<(), EvaluateError> {
    if traces.t_max() > thresholds.t_max() && !reads_on {
        return Err(EvaluateError::TooLong {
            found: traces.t_max(),
            t_max: thresholds.t_max(),
        });
    }
    let off = |v: &&f32| traces.grid().is_some_and(|grid| !grid.holds(**v));
    match thresholds.values().iter().find(off) {
        Some(&off) => Err(EvaluateError::OffGrid(off)),
        None => Ok(()),
    }
}

/// Applies thresholds to traces and measures what happened.
pub fn evaluate(thresholds: &Thresholds, traces: &Traces) -> Result<Evaluation, EvaluateError> {
    let mut evaluator = Evaluator::new(thresholds.clone());
    evaluator.add(traces)?;
    evaluator.finish()
}

/// Evaluates traces that come in parts, and keeps some bytes of each.
#[derive(Debug)]
pub struct Evaluator {
    thresholds: Thresholds,
    /// Whether a sequence that has more steps is read to its end, or refused.
    reads_on: bool,
    /// The steps of the rule, or of the longest sequence that has more.
    t_max: usize,
    /// What the rule promises.
    terms: Terms,
    seed: u64,
    measure: Measure,
    /// Where each sequence halts, in the order they came.
    halts: Vec<Halt>,
    /// How many steps they have in all.
    available: usize,
    /// The positions of those without a label.
    unlabelled: Vec<usize>,
    thinned: usize,
    /// The groups by name, and the group of each sequence.
    groups: BTreeMap<String, u32>,
    group: Vec<u32>,
    /// The unit of each sequence.
    units: Vec<Key>,
    /// Sequences whose steps are still to be judged, and what each has spent by
    /// each of its steps.
    block: TracesBuilder,
    spent: Vec<Vec<f64>>,
    /// What was spent in all, early and in full, in millionths.
    total: Option<[u128; 2]>,
}

/// Costs are added up as whole numbers, so that no order of adding matters.
const MILLIONTHS: f64 = 1e6;

impl Evaluator {
    /// Nothing evaluated yet. Sequences that have more steps than there are
    /// thresholds will be refused.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            t_max: thresholds.t_max(),
            thresholds,
            reads_on: false,
            terms: Terms::default(),
            seed: 0,
            measure: Measure::default(),
            halts: Vec::new(),
            available: 0,
            unlabelled: Vec::new(),
            thinned: 0,
            groups: BTreeMap::new(),
            group: Vec::new(),
            units: Vec::new(),
            block: Traces::builder(),
            spent: Vec::new(),
            total: None,
        }
    }

    /// The same for a rule, which [may read on](Rule::reads_on) where it has no
    /// threshold any more, and which may promise other things than a gap.
    pub fn for_rule(rule: &Rule) -> Self {
        let who = rule.admission();
        let measure = Measure::of(who.terms.loss);
        Self {
            reads_on: rule.reads_on(),
            terms: who.terms.clone(),
            seed: who.seed,
            measure,
            block: Traces::builder()
                .source(rule.source().clone())
                .measured(measure),
            ..Self::new(rule.thresholds().clone())
        }
    }

    /// Applies the rule to one more sequence, scored as it demands, and returns
    /// its fingerprint; `None` where the rule's weights leave it out. Columns that
    /// the sequence lacks are done without.
    pub fn push(
        &mut self,
        key: Key,
        trace: &Trace<'_>,
    ) -> Result<Option<Fingerprint>, EvaluateError> {
        let (found, t_max) = (trace.len(), self.thresholds.t_max());
        if found > t_max && !self.reads_on {
            return Err(EvaluateError::TooLong { found, t_max });
        }
        let about = trace.about();
        let lenient = Terms {
            weight: self.terms.weight.clone().filter(|_| about.weight.is_some()),
            loss: self.terms.loss,
            ..Terms::default()
        };
        if lenient.admit(self.seed, key, trace)?.is_none() {
            self.thinned += 1;
            return Ok(None);
        }
        let print = self.block.add(key, trace)?;
        let place = self.halts.len() + self.block.len() - 1;
        if trace.label().is_none() {
            self.unlabelled.push(place);
        }
        if let Some(group) = self.terms.group(trace) {
            let next = self.groups.len() as u32;
            let group = *self.groups.entry(group.into_owned()).or_insert(next);
            self.group.push(group);
        }
        if let (Some(unit), true) = (about.unit, self.terms.unit.is_some()) {
            self.units.push(Key::new(Some(unit), 0));
        }
        if let Some(spent) = self.spent_by(trace) {
            self.spent.push(spent);
        }
        if let Some(block) = self.block.take_block() {
            self.judge(&block)?;
        }
        Ok(Some(print))
    }

    /// What a sequence has spent by each of its steps, where costs are known.
    fn spent_by(&self, trace: &Trace<'_>) -> Option<Vec<f64>> {
        Some(match self.terms.cost.as_ref()? {
            Cost::Steps(costs) => Cost::spent(Cost::of_steps(costs, trace.len())),
            Cost::Column(_) => Cost::spent(trace.about().costs?.iter().copied().map(f64::from)),
        })
    }

    /// Applies the thresholds to more traces.
    pub fn add(&mut self, traces: &Traces) -> Result<(), EvaluateError> {
        self.judge_rest()?;
        self.judge(traces)
    }

    fn judge(&mut self, traces: &Traces) -> Result<(), EvaluateError> {
        check(&self.thresholds, self.reads_on, traces)?;
        self.t_max = self.t_max.max(traces.t_max());
        let mut halts = halts(&self.thresholds, traces);
        let spent = std::mem::take(&mut self.spent);
        if spent.len() == halts.len() && !spent.is_empty() {
            let total = self.total.get_or_insert_default();
            for (halt, spent) in std::iter::zip(&halts, &spent) {
                let millionths = |cost: f64| (cost * MILLIONTHS).round() as u128;
                total[0] += millionths(spent[halt.step as usize]);
                total[1] += millionths(spent.last().copied().unwrap_or(0.0));
            }
        }
        self.halts.append(&mut halts);
        self.available += traces.lengths().sum::<usize>();
        Ok(())
    }

    fn judge_rest(&mut self) -> Result<(), EvaluateError> {
        let fresh = self.block.like();
        let rest = std::mem::replace(&mut self.block, fresh).finish();
        match rest.is_empty() {
            true => Ok(()),
            false => self.judge(&rest),
        }
    }

    /// Adds what was evaluated with the same rule elsewhere, behind what is here.
    pub fn append(&mut self, mut later: Self) -> Result<(), EvaluateError> {
        self.judge_rest()?;
        later.judge_rest()?;
        let before = self.halts.len();
        self.t_max = self.t_max.max(later.t_max);
        self.halts.append(&mut later.halts);
        self.available += later.available;
        let unlabelled = later.unlabelled.into_iter().map(|i| before + i);
        self.unlabelled.extend(unlabelled);
        self.thinned += later.thinned;
        self.units.append(&mut later.units);
        let mut names: Vec<(String, u32)> = later.groups.into_iter().collect();
        names.sort_by_key(|(_, place)| *place);
        let mut places = Vec::new();
        for (name, _) in names {
            let next = self.groups.len() as u32;
            places.push(*self.groups.entry(name).or_insert(next));
        }
        let group = later.group.iter().map(|&g| places[g as usize]);
        self.group.extend(group);
        if let Some(more) = later.total {
            let total = self.total.get_or_insert_default();
            (total[0], total[1]) = (total[0] + more[0], total[1] + more[1]);
        }
        Ok(())
    }

    /// What happened to all of them.
    pub fn finish(mut self) -> Result<Evaluation, EvaluateError> {
        self.judge_rest()?;
        let (halts, t_max) = (&self.halts, self.t_max);
        if halts.is_empty() {
            return Err(EvaluateError::Empty);
        }
        let n = halts.len();
        let has_label =
            |i: usize| self.unlabelled.is_empty() || self.unlabelled.binary_search(&i).is_err();
        // Of the gap, only those with a label say anything.
        let judged = |i: usize| self.measure.loss != Loss::Gap || has_label(i);
        let labelled = n - self.unlabelled.len();
        let mut at_step = vec![Counts::default(); t_max];
        for halt in halts {
            at_step[halt.step as usize] += Counts::unpack(Counts::one(halt.loss > 0));
        }
        // Who has no label is never right.
        let share = |right: fn(&Halt) -> bool| {
            let hits = halts.iter().filter(|h| right(h)).count();
            hits as f64 / labelled as f64
        };
        let predicts = self.measure.loss.is_binary();
        let accuracy = (labelled > 0 && predicts).then(|| {
            let (late, early) = (share(|h| h.full_is_right), share(|h| h.early_is_right));
            Accuracy {
                late,
                late_se: standard_error(late, labelled),
                early,
                early_se: standard_error(early, labelled),
            }
        });
        let (t_avg, t_avg_se) = mean_time(&at_step);
        let all = self.measured(&judged);
        let earliest = EARLIEST.map(|share| (share, self.earliest(&judged, share)));
        let read: u64 = halts.iter().map(|h| u64::from(h.step) + 1).sum();
        let by_group = self.groups.iter().filter(|_| self.group.len() == n);
        let by_group = by_group.map(|(name, &place)| {
            let own = |i: usize| self.group[i] == place;
            let steps = (0..n)
                .filter(|&i| own(i))
                .map(|i| u64::from(halts[i].step) + 1);
            let (count, sum) = steps.fold((0, 0), |(n, sum), step| (n + 1, sum + step));
            let measured = self.measured(&|i| own(i) && judged(i));
            GroupResult {
                group: name.clone(),
                n: count,
                t_avg: sum as f64 / count as f64 / t_max as f64,
                gap: measured.gap,
                gap_interval: measured.interval,
                by_step: measured.by_step,
            }
        });
        let mean = |millionths: u128| millionths as f64 / MILLIONTHS / n as f64;
        Ok(Evaluation {
            n,
            t_max,
            accuracy,
            t_avg,
            t_avg_se,
            steps_read: read as f64 / self.available as f64,
            gap: all.gap,
            gap_se: all.se,
            gap_interval: all.interval,
            gap_earliest: earliest.map(|(q, c)| (q.into(), c.0)).into(),
            gap_earliest_interval: earliest.map(|(q, c)| (q.into(), c.1)).into(),
            unlabelled: self.unlabelled.len(),
            thinned: self.thinned,
            cost: self.total.map(|[early, full]| CostResult {
                mean: mean(early),
                full: mean(full),
            }),
            by_group: by_group.collect(),
            by_step: all.by_step,
        })
    }

    /// The losses of some sequences, step by step.
    fn measured(&self, member: &dyn Fn(usize) -> bool) -> Measured {
        let binary = self.measure.binary && self.units.len() != self.halts.len();
        let mut at_step = vec![Counts::default(); self.t_max];
        for (_, halt) in self.members(member) {
            at_step[halt.step as usize] += Counts::unpack(Counts::one(halt.loss > 0));
        }
        if binary {
            let total = at_step.iter().fold(Counts::default(), |mut sum, &at| {
                sum += at;
                sum
            });
            let gap = total.gap().unwrap_or(0.0);
            return Measured {
                gap,
                se: standard_error(gap, total.halted as usize),
                interval: interval(total),
                by_step: by_step(&at_step),
            };
        }
        let moments = self.moments(member);
        let mut sum = Moments::default();
        let result = |(t, &at): (usize, &Moments)| {
            sum += at;
            StepResult {
                t: t + 1,
                halted: at_step[t].halted,
                halted_by: sum.units,
                gap_by: sum.mean(),
                gap_by_interval: bets::interval(sum, CONFIDENCE),
            }
        };
        let by_step: Vec<StepResult> = moments.iter().enumerate().map(result).collect();
        let (units, top) = (sum.units.max(1) as f64, f64::from(TOP));
        let gap = sum.mean().unwrap_or(0.0);
        let variance = (sum.sums[1] as f64 / units / top / top - gap * gap).max(0.0);
        Measured {
            gap,
            se: (variance / units).sqrt(),
            interval: by_step
                .last()
                .map_or((0.0, 1.0), |last| last.gap_by_interval),
            by_step,
        }
    }

    /// The sums of losses at each step, over sequences or units.
    fn moments(&self, member: &dyn Fn(usize) -> bool) -> Vec<Moments> {
        let whole = TOP / self.measure.unit() as u8;
        if self.units.len() != self.halts.len() {
            let mut moments = vec![Moments::default(); self.t_max];
            for (_, halt) in self.members(member) {
                moments[halt.step as usize] += Moments::one(halt.loss * whole);
            }
            return moments;
        }
        let members = self.members(member);
        let units = by_key(members.map(|(i, _)| (self.units[i], i)));
        unit_moments(&units, &self.halts, u64::from(whole), self.t_max)
    }

    /// The mean loss of the ⌊share·n⌋ sequences that halted first, ties by input
    /// order, and an interval of it.
    fn earliest(&self, judged: &dyn Fn(usize) -> bool, share: &str) -> (Option<f64>, (f64, f64)) {
        let share: f64 = share.parse().unwrap_or(0.0);
        let mut at_step = vec![0_u64; self.t_max];
        for (_, halt) in self.members(judged) {
            at_step[halt.step as usize] += 1;
        }
        let mut left = (share * at_step.iter().sum::<u64>() as f64) as u64;
        // All who halt before some step, and of those who halt there the first.
        let step = at_step.iter().position(|&halted| {
            let all = halted <= left;
            left -= if all { halted } else { 0 };
            !all
        });
        let step = step.unwrap_or(self.t_max) as u32;
        let (mut counts, mut sum) = (Counts::default(), Moments::default());
        for (_, halt) in self.members(judged) {
            if halt.step > step || halt.step == step && left == 0 {
                continue;
            }
            left -= u64::from(halt.step == step);
            counts += Counts::unpack(Counts::one(halt.loss > 0));
            sum += Moments::one(halt.loss);
        }
        match self.measure.binary {
            true => (counts.gap(), interval(counts)),
            false => (sum.mean(), bets::interval(sum, CONFIDENCE)),
        }
    }

    /// Some sequences, and where they halt.
    fn members(&self, member: &dyn Fn(usize) -> bool) -> impl Iterator<Item = (usize, Halt)> {
        let halts = self.halts.iter().copied().enumerate();
        halts.filter(move |(i, _)| member(*i))
    }
}

/// The losses of some sequences.
struct Measured {
    gap: f64,
    se: f64,
    interval: (f64, f64),
    by_step: Vec<StepResult>,
}

/// The exact interval of the share of gaps.
fn interval(counts: Counts) -> (f64, f64) {
    clopper_pearson(counts.gaps, counts.halted, CONFIDENCE)
}

/// The standard error of a share: √(p(1 − p)/n).
fn standard_error(share: f64, n: usize) -> f64 {
    (share * (1.0 - share) / n as f64).sqrt()
}

/// The mean of halt step / t_max and its standard error, from the counts: sums
/// of whole numbers, so the same for any order of the sequences.
fn mean_time(at_step: &[Counts]) -> (f64, f64) {
    let (mut n, mut sum) = (0, 0_u64);
    for (t, at) in at_step.iter().enumerate() {
        n += at.halted;
        sum += (t as u64 + 1) * at.halted;
    }
    let mean = sum as f64 / n as f64;
    let squares: f64 = at_step
        .iter()
        .enumerate()
        .map(|(t, at)| at.halted as f64 * ((t + 1) as f64 - mean).powi(2))
        .sum();
    let variance = squares / n.saturating_sub(1).max(1) as f64;
    let t_max = at_step.len() as f64;
    (mean / t_max, (variance / n as f64).sqrt() / t_max)
}

fn by_step(at_step: &[Counts]) -> Vec<StepResult> {
    let mut halted_by = Counts::default();
    let result = |(t, &at): (usize, &Counts)| {
        halted_by += at;
        StepResult {
            t: t + 1,
            halted: at.halted,
            halted_by: halted_by.halted,
            gap_by: halted_by.gap(),
            gap_by_interval: interval(halted_by),
        }
    };
    at_step.iter().enumerate().map(result).collect()
}
