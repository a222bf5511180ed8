//! The results of a rule on traces: accuracy early and late, halt times, and the gap among
//! the sequences halted by each step.

use std::collections::BTreeMap;

use crate::data::identity::{Fingerprint, Key, by_key};
use crate::data::loss::{Loss, Measure, TOP, gap};
use crate::data::score::ScoreSource;
use crate::data::sequence::Trace;
use crate::data::terms::{Cost, LABEL, Terms};
use crate::data::traces::Traces;
use crate::data::unit_weights::UnitWeights;
use crate::numbers::binomial::clopper_pearson;
use crate::numbers::counts::Counts;
use crate::numbers::thresholds::Thresholds;
use crate::rule::Rule;
use crate::tables::halting::{Halt, halts};
use haltwise_stream::{GroupStanding, StepError};

mod passes;
mod results;
mod spread;

pub use passes::{EvaluateWarning, Evaluated, Stretches};
pub use results::{
    Accuracy, CalibratedOn, CostResult, EvaluateError, Evaluation, GroupResult, StepResult,
};
use spread::{Sums, mean_time, standard_error, standard_error_by_unit};

/// The confidence of the intervals around every gap.
pub const CONFIDENCE: f64 = 0.95;

/// The shares of earliest sequences for which the gap is reported.
const EARLIEST: [&str; 2] = ["0.2", "0.5"];

/// Returns the step, counted from 1, at which each sequence halts, in input order.
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

/// Evaluates traces that come one by one or in parts, and keeps some bytes of each.
#[derive(Debug)]
pub struct Evaluator {
    thresholds: Thresholds,
    /// Whether a sequence with more steps than the rule is read to its end rather than
    /// refused.
    reads_on: bool,
    /// The groups that the rule halts, if its promise is by group, and whether those are only
    /// some.
    halting: Vec<String>,
    some_groups: bool,
    /// The number of steps of the rule, or of the longest sequence if that has more.
    t_max: usize,
    /// The promise of the rule.
    terms: Terms,
    seed: u64,
    measure: Measure,
    /// The halt of each sequence, in the order they came.
    halts: Vec<Halt>,
    /// How many steps the sequences have in all.
    available: usize,
    /// The positions of the sequences without a label.
    unlabelled: Vec<usize>,
    thinned: usize,
    /// How many sequences have a weight, and how many have costs.
    weighted: usize,
    costed: usize,
    /// The groups by name, and the group of each sequence that has one.
    groups: BTreeMap<String, u32>,
    group: Vec<Option<u32>>,
    /// The unit of each sequence.
    units: Vec<Key>,
    unit_weights: UnitWeights,
    /// The loss of each sequence; empty where losses are 0 or 1.
    losses: Vec<f64>,
    /// The total cost in millionths: until sequences halted, and of reading them in full.
    total: Option<[u128; 2]>,
    /// How many class probabilities a step must have, if known.
    classes: Option<usize>,
    /// The score that is judged.
    source: ScoreSource,
    /// Buffers that are reused: the levels of one sequence, and the bytes of its
    /// fingerprint.
    levels: Vec<u8>,
    bytes: Vec<u8>,
}

/// Costs are added as whole numbers, so the order of adding does not matter.
const MILLIONTHS: f64 = 1e6;

impl Evaluator {
    /// Starts with nothing evaluated. Refuses sequences with more steps than there are
    /// thresholds.
    pub fn new(thresholds: Thresholds) -> Self {
        Self {
            t_max: thresholds.t_max(),
            thresholds,
            reads_on: false,
            halting: Vec::new(),
            some_groups: false,
            terms: Terms::default(),
            seed: 0,
            measure: Measure::default(),
            halts: Vec::new(),
            available: 0,
            unlabelled: Vec::new(),
            thinned: 0,
            weighted: 0,
            costed: 0,
            groups: BTreeMap::new(),
            group: Vec::new(),
            units: Vec::new(),
            unit_weights: UnitWeights::default(),
            losses: Vec::new(),
            total: None,
            classes: None,
            source: ScoreSource::default(),
            levels: Vec::new(),
            bytes: Vec::new(),
        }
    }

    /// Does the same for a rule. A rule [may read on](Rule::reads_on) past its last
    /// threshold, and may promise something other than a gap.
    pub fn for_rule(rule: &Rule) -> Self {
        let who = rule.admission();
        let measure = Measure::of(who.terms.loss);
        Self {
            reads_on: rule.reads_on(),
            halting: rule.halting_groups().to_vec(),
            some_groups: rule.halts_in().is_some(),
            terms: who.terms.clone(),
            seed: who.seed,
            measure,
            classes: rule.classes(),
            source: rule.source().clone(),
            ..Self::new(rule.thresholds().clone())
        }
    }

    /// Applies the rule to one more sequence and returns the sequence's fingerprint, or
    /// `None` if the rule's weights leave it out. The sequence is scored as the rule
    /// demands. A column may be missing if all sequences lack it.
    pub fn push(
        &mut self,
        key: Key,
        trace: &Trace<'_>,
    ) -> Result<Option<Fingerprint>, EvaluateError> {
        let (found, t_max) = (trace.len(), self.thresholds.t_max());
        if found > t_max && !self.reads_on {
            return Err(EvaluateError::TooLong { found, t_max });
        }
        if let Some(expected) = self.classes.filter(|_| trace.probs().is_some())
            && trace.classes() != expected
        {
            let found = trace.classes();
            return Err(StepError::Classes { found, expected }.into());
        }
        let about = trace.about();
        let lenient = Terms {
            // A unit is taken whole or left out whole.
            unit: self.terms.unit.clone().filter(|_| about.unit.is_some()),
            weight: self.terms.weight.clone().filter(|_| about.weight.is_some()),
            loss: self.terms.loss,
            ..Terms::default()
        };
        self.weighted += usize::from(lenient.weight.is_some());
        self.unit_weights.check(&lenient, trace)?;
        if lenient.admit(self.seed, key, trace)?.is_none() {
            self.thinned += 1;
            return Ok(None);
        }
        let halt = self.halt(trace)?;
        let print = trace.fingerprint(&mut self.bytes);
        if trace.label().is_none() {
            self.unlabelled.push(self.halts.len());
        }
        if self.terms.by.is_some() {
            let next = self.groups.len() as u32;
            let group = self.terms.group(trace);
            let place = group.map(|name| *self.groups.entry(name.into_owned()).or_insert(next));
            self.group.push(place);
        }
        if let (Some(unit), true) = (about.unit, self.terms.unit.is_some()) {
            self.units.push(Key::new(Some(unit), 0));
        }
        if let Some(spent) = self.spent_by(trace) {
            self.costed += 1;
            let millionths =
                |cost: Option<&f64>| (cost.copied().unwrap_or(0.0) * MILLIONTHS).round() as u128;
            let total = self.total.get_or_insert_default();
            total[0] += millionths(spent.get(halt.step as usize));
            total[1] += millionths(spent.last());
        }
        if let Some(values) = self.measure.loss.values(trace) {
            self.losses.extend(values.get(halt.step as usize));
        }
        self.t_max = self.t_max.max(found);
        self.available += found;
        self.halts.push(halt);
        Ok(Some(print))
    }

    /// Finds where a sequence halts, and what that costs.
    fn halt(&mut self, trace: &Trace<'_>) -> Result<Halt, EvaluateError> {
        let reached = if !self.may_halt(trace) {
            None
        } else if self.source == trace.source() {
            self.thresholds.first_reached(trace.scores())
        } else {
            self.source.first_reached(&self.thresholds, trace.steps())?
        };
        let last = trace.len() - 1;
        let step = reached.unwrap_or(last);
        let is_right = |t: usize| {
            trace
                .label()
                .is_some_and(|label| trace.predictions()[t] == label)
        };
        let (early_is_right, full_is_right) = (is_right(step), is_right(last));
        let loss = match self.measure.loss {
            Loss::Gap => u8::from(gap(full_is_right, early_is_right)),
            loss => {
                loss.levels(trace, &mut self.levels);
                self.levels
                    .get(step)
                    .map_or(0, |&level| self.measure.counted(level))
            }
        };
        Ok(Halt {
            step: step as u32,
            early_is_right,
            full_is_right,
            loss,
        })
    }

    /// Whether the rule may halt a sequence of this group before its end.
    fn may_halt(&self, trace: &Trace<'_>) -> bool {
        if self.halting.is_empty() {
            return true;
        }
        let group = self.terms.group(trace);
        let halting = self.halting.iter().map(String::as_str);
        GroupStanding::of(group.as_deref(), halting).may_halt(self.some_groups)
    }

    /// Returns the cost of a sequence up to each of its steps, if costs are known.
    fn spent_by(&self, trace: &Trace<'_>) -> Option<Vec<f64>> {
        Some(match self.terms.cost.as_ref()? {
            Cost::Steps(costs) => Cost::spent(Cost::of_steps(costs, trace.len())),
            Cost::Column(_) => Cost::spent(trace.about().costs?.iter().copied().map(f64::from)),
        })
    }

    /// Applies the thresholds to more traces.
    pub fn add(&mut self, traces: &Traces) -> Result<(), EvaluateError> {
        check(&self.thresholds, self.reads_on, traces)?;
        self.t_max = self.t_max.max(traces.t_max());
        let mut halts = halts(&self.thresholds, traces);
        if !self.measure.binary {
            let level = |halt: &Halt| f64::from(halt.loss) / f64::from(TOP);
            self.losses.extend(halts.iter().map(level));
        }
        self.halts.append(&mut halts);
        self.available += traces.lengths().sum::<usize>();
        Ok(())
    }

    /// Appends what another evaluator measured with the same rule.
    pub fn append(&mut self, mut later: Self) -> Result<(), EvaluateError> {
        let before = self.halts.len();
        self.t_max = self.t_max.max(later.t_max);
        self.halts.append(&mut later.halts);
        self.available += later.available;
        let unlabelled = later.unlabelled.into_iter().map(|i| before + i);
        self.unlabelled.extend(unlabelled);
        self.thinned += later.thinned;
        self.weighted += later.weighted;
        self.costed += later.costed;
        self.losses.append(&mut later.losses);
        self.units.append(&mut later.units);
        if !self.unit_weights.add(later.unit_weights) {
            return Err(EvaluateError::UnevenUnit);
        }
        let mut names: Vec<(String, u32)> = later.groups.into_iter().collect();
        names.sort_by_key(|(_, place)| *place);
        let mut places = Vec::new();
        for (name, _) in names {
            let next = self.groups.len() as u32;
            places.push(*self.groups.entry(name).or_insert(next));
        }
        let place = |group: u32| places[group as usize];
        let group = later.group.iter().map(|group| group.map(place));
        self.group.extend(group);
        if let Some(more) = later.total {
            let total = self.total.get_or_insert_default();
            (total[0], total[1]) = (total[0] + more[0], total[1] + more[1]);
        }
        Ok(())
    }

    /// Summarises all sequences.
    pub fn finish(self) -> Result<Evaluation, EvaluateError> {
        let (halts, t_max) = (&self.halts, self.t_max);
        if halts.is_empty() {
            return Err(EvaluateError::Empty);
        }
        self.check_columns()?;
        let n = halts.len();
        let has_label =
            |i: usize| self.unlabelled.is_empty() || self.unlabelled.binary_search(&i).is_err();
        // Only labelled sequences say anything about the gap.
        let judged = |i: usize| self.measure.loss != Loss::Gap || has_label(i);
        let labelled = n - self.unlabelled.len();
        let mut at_step = vec![Counts::default(); t_max];
        for halt in halts {
            at_step[halt.step as usize] += Counts::unpack(Counts::one(halt.loss > 0));
        }
        let units = self
            .has_units()
            .then(|| by_key(self.units.iter().copied().zip(0..n)));
        // A sequence without a label is never counted as right.
        let share = |right: fn(&Halt) -> bool| {
            let hits = halts.iter().filter(|h| right(h)).count();
            let share = hits as f64 / labelled as f64;
            let error = match &units {
                None => standard_error(share, labelled),
                Some(units) => {
                    let of = |i: usize| has_label(i).then(|| f64::from(right(&halts[i])));
                    standard_error_by_unit(units, of)
                }
            };
            (share, error)
        };
        let predicts = self.measure.loss.is_binary();
        let accuracy = (labelled > 0 && predicts).then(|| {
            let (late, late_se) = share(|h| h.full_is_right);
            let (early, early_se) = share(|h| h.early_is_right);
            Accuracy {
                late,
                late_se,
                early,
                early_se,
            }
        });
        let (t_avg, mut t_avg_se) = mean_time(&at_step);
        if let Some(units) = &units {
            let time = |i: usize| Some(f64::from(halts[i].step + 1) / t_max as f64);
            t_avg_se = standard_error_by_unit(units, time);
        }
        let all = self.measured(&judged);
        let earliest = EARLIEST.map(|share| (share, self.earliest(&judged, share)));
        let read: u64 = halts.iter().map(|h| u64::from(h.step) + 1).sum();
        let by_group = self.groups.iter().filter(|_| self.group.len() == n);
        let by_group = by_group.map(|(name, &place)| {
            let own = |i: usize| self.group[i] == Some(place);
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
            calibrated_on: None,
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

    /// Refuses a column that only some sequences have: without it for all, nothing can be
    /// said about those that the promise covers. A true class may be missing. The promise
    /// by class is then judged on the other sequences.
    fn check_columns(&self) -> Result<(), EvaluateError> {
        let n = self.halts.len();
        let by = self.terms.by.as_deref().filter(|&by| by != LABEL);
        let weight = self.terms.weight.as_ref().map(|weight| &*weight.column);
        let grouped = self.group.iter().flatten().count();
        let columns = [
            (by, grouped, n),
            (self.terms.unit.as_deref(), self.units.len(), n),
            (weight, self.weighted, n + self.thinned),
            (self.terms.cost_column(), self.costed, n),
        ];
        for (column, having, all) in columns {
            if let Some(column) = column
                && (1..all).contains(&having)
            {
                let (column, without) = (column.to_owned(), all - having);
                return Err(EvaluateError::SomeLack {
                    column,
                    without,
                    all,
                });
            }
        }
        Ok(())
    }

    /// Whether the sequences come in units, each of which counts once.
    fn has_units(&self) -> bool {
        self.units.len() == self.halts.len()
    }

    /// The losses of some sequences, step by step.
    fn measured(&self, member: &dyn Fn(usize) -> bool) -> Measured {
        let binary = self.measure.binary && !self.has_units();
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
        let mut sum = Sums::default();
        let result = |(t, &at): (usize, &Sums)| {
            sum += at;
            StepResult {
                t: t + 1,
                halted: at_step[t].halted,
                halted_by: sum.units(),
                gap_by: sum.mean(),
                gap_by_interval: sum.interval(),
            }
        };
        let by_step: Vec<StepResult> = self.sums(member).iter().enumerate().map(result).collect();
        Measured {
            gap: sum.mean().unwrap_or(0.0),
            se: sum.standard_error(),
            interval: by_step
                .last()
                .map_or((0.0, 1.0), |last| last.gap_by_interval),
            by_step,
        }
    }

    /// The loss of a sequence.
    fn loss(&self, i: usize) -> f64 {
        let counted = || f64::from(u8::from(self.halts[i].loss > 0));
        self.losses.get(i).copied().unwrap_or_else(counted)
    }

    /// Sums losses at each step, over sequences or units. Each sum holds only what is new
    /// at the step or has changed there.
    fn sums(&self, member: &dyn Fn(usize) -> bool) -> Vec<Sums> {
        let mut sums = vec![Sums::default(); self.t_max];
        if !self.has_units() {
            for (i, halt) in self.members(member) {
                sums[halt.step as usize] += Sums::moved(None, self.loss(i));
            }
            return sums;
        }
        let members = self.members(member);
        for unit in by_key(members.map(|(i, _)| (self.units[i], i))) {
            let halt = |&i: &usize| (self.halts[i].step, self.loss(i));
            let mut of_unit: Vec<(u32, f64)> = unit.iter().map(halt).collect();
            of_unit.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let (mut halted, mut lost, mut before) = (0.0, 0.0, None);
            for (step, loss) in of_unit {
                halted += 1.0;
                lost += loss;
                let now = lost / halted;
                sums[step as usize] += Sums::moved(before, now);
                before = Some(now);
            }
        }
        sums
    }

    /// Computes the mean loss of the ⌊share·n⌋ sequences that halted first (ties by input
    /// order), and an interval for it. If there are units, it is a mean over the units
    /// that have any of these sequences, because the sequences of one unit are dependent.
    fn earliest(&self, judged: &dyn Fn(usize) -> bool, share: &str) -> (Option<f64>, (f64, f64)) {
        let share: f64 = share.parse().unwrap_or(0.0);
        let mut at_step = vec![0_u64; self.t_max];
        for (_, halt) in self.members(judged) {
            at_step[halt.step as usize] += 1;
        }
        let mut left = (share * at_step.iter().sum::<u64>() as f64) as u64;
        // All that halt before some step, and the first of those that halt at it.
        let step = at_step.iter().position(|&halted| {
            let all = halted <= left;
            left -= if all { halted } else { 0 };
            !all
        });
        let step = step.unwrap_or(self.t_max) as u32;
        let mut first = vec![false; self.halts.len()];
        let mut counts = Counts::default();
        for (i, halt) in self.members(judged) {
            if halt.step > step || halt.step == step && left == 0 {
                continue;
            }
            left -= u64::from(halt.step == step);
            first[i] = true;
            counts += Counts::unpack(Counts::one(halt.loss > 0));
        }
        if self.measure.binary && !self.has_units() {
            return (counts.gap(), interval(counts));
        }
        let mut sum = Sums::default();
        for at in self.sums(&|i| first[i]) {
            sum += at;
        }
        (sum.mean(), sum.interval())
    }

    /// Some sequences, and where each halts.
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
