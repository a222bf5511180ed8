//! The methods on every split, and how t_avg depends on α.

use haltwise::evaluate::halt_steps;
use haltwise::plan::{Alpha, PlanError};
use haltwise::rule::{Promise, Thresholds};
use haltwise::terms::Loss;
use haltwise::traces::{Fitting, Survey, Traces};
use haltwise::{Ask, Evidence, Inputs, Method, Outputs, Plan, Rule, evaluate};
use rayon::prelude::*;

use super::splits::{Split, Splits};
use super::{Event, Listener, Options};
use crate::experiment::{MethodResults, SplitResult, SweepCurve, SweepPoint, mean_and_error};

/// In the order of the table.
pub(super) const NAMES: [&str; ROWS] = [
    "marginal",
    "conditional",
    "adaptive",
    "adaptive, average",
    "adaptive, no labels",
    "screening alone",
];

/// Each with what it promises.
const METHODS: [(Method, Option<Promise>); ROWS] = [
    (Method::Marginal, Some(Promise::Marginal)),
    (Method::Conditional, Some(Promise::Conditional)),
    (Method::Adaptive, Some(Promise::Conditional)),
    (Method::Adaptive, Some(Promise::Marginal)),
    (Method::Adaptive, Some(Promise::Conditional)),
    (Method::ScreenOnly, None),
];

pub(super) const ROWS: usize = 6;

/// This many of them, the first, are swept over α: those that promise something.
const SWEPT: usize = 3;

/// The results on a dataset.
pub(super) struct Found {
    pub(super) methods: Vec<MethodResults>,
    pub(super) sweep: Vec<SweepCurve>,
    /// The mean of the first step without a gap / t_max: who knew the future
    /// could halt there, and no one can halt earlier at no loss.
    pub(super) oracle: f64,
}

/// What one split gave.
struct OfSplit {
    results: [SplitResult; ROWS],
    /// For each α of the sweep, t_avg of the methods that are swept.
    sweep: Vec<[f64; SWEPT]>,
}

/// A dataset's traces, and what the adaptive method fits to.
struct Dataset<'d> {
    outputs: &'d Outputs,
    /// With the scores that they have.
    traces: Traces,
    fitting: Option<&'d Fitting>,
    splits: &'d Splits,
}

/// An adaptive rule of one split, and how early it halts the test part.
struct Adaptive {
    rule: Rule,
    t_avg: f64,
}

/// Runs all splits on all cores. A split's results depend on nothing but the
/// split, and they are put together in order: any thread count gives the same.
pub(super) fn run(
    options: &Options,
    outputs: &Outputs,
    fitting: Option<&Fitting>,
    splits: &Splits,
    tell: &Listener<'_>,
) -> anyhow::Result<Found> {
    let dataset = Dataset {
        outputs,
        traces: outputs.traces(&outputs.plain_source())?,
        fitting,
        splits,
    };
    let alphas = if options.sweep { alphas()? } else { Vec::new() };
    let own_plans = Plans::new(options, None)?;
    let with_alpha = |alpha: &Alpha| Plans::new(options, Some(*alpha));
    let swept: Vec<Plans> = alphas.iter().map(with_alpha).collect::<Result<_, _>>()?;
    tell(Event::Stage("alpha", swept.len() + 1));
    let adaptive = |plans: &Plans| {
        let found = dataset.adaptive(plans);
        tell(Event::Advanced(1));
        found
    };
    let average = own_plans.asking(|ask| ask.promise = Some(Promise::Marginal));
    let free = own_plans.asking(|ask| ask.loss = Some(Loss::Disagreement));
    let (own, (average, free)) = rayon::join(
        || adaptive(&own_plans),
        || rayon::join(|| dataset.adaptive(&average), || dataset.adaptive(&free)),
    );
    let (own, average, free) = (own?, average?, free?);
    let scored = dataset.scored([&own, &average, &free])?;
    // Two at a time: not all that one does is parallel, but each holds much while it runs.
    let two = |two: &[Plans]| two.par_iter().map(adaptive).collect::<Vec<_>>();
    let adaptive: Vec<Vec<Adaptive>> = swept
        .chunks(2)
        .flat_map(two)
        .collect::<anyhow::Result<_>>()?;
    tell(Event::Stage("split", splits.len()));
    let found = (0..splits.len()).into_par_iter().map(|s| {
        let parts = Parts::new(&dataset, splits.split(s));
        let of_split = [&own, &average, &free].map(|rules| &rules[s].rule);
        let results = parts.results(&own_plans, of_split, &scored)?;
        let sweep = std::iter::zip(&swept, &adaptive)
            .map(|(plans, rules)| parts.t_avgs(plans, &rules[s]))
            .collect::<anyhow::Result<_>>()?;
        tell(Event::Advanced(1));
        Ok(OfSplit { results, sweep })
    });
    let found: Vec<OfSplit> = found.collect::<anyhow::Result<_>>()?;
    Ok(Found {
        sweep: match alphas.is_empty() {
            true => Vec::new(),
            false => sweep(&alphas, &found),
        },
        methods: methods(found),
        oracle: oracle(&dataset.traces),
    })
}

/// The paper's range: 1%, 2%, … 20%.
fn alphas() -> anyhow::Result<Vec<Alpha>> {
    let alpha = |percent: u32| Alpha::try_from(f64::from(percent) / 100.0);
    Ok((1..=20).map(alpha).collect::<Result<_, _>>()?)
}

/// The plan of each method, at one α.
#[derive(Clone)]
struct Plans {
    levels: Ask,
    marginal: Plan,
    conditional: Plan,
    screen_only: Plan,
}

impl Plans {
    fn new(options: &Options, alpha: Option<Alpha>) -> Result<Self, PlanError> {
        let of = |method: Method| options.plan(method, alpha);
        Ok(Self {
            marginal: of(Method::Marginal)?,
            conditional: of(Method::Conditional)?,
            screen_only: of(Method::ScreenOnly)?,
            levels: Ask {
                alpha: alpha.map(Alpha::get).or(options.asked.alpha),
                delta: options.asked.delta,
                ..Ask::default()
            },
        })
    }

    /// The same, asking `adaptive` for something else.
    fn asking(&self, change: impl Fn(&mut Ask)) -> Self {
        let mut plans = self.clone();
        change(&mut plans.levels);
        plans
    }

    /// The adaptive method with other traces to fit to, or a seed to split by.
    fn adaptive(&self, fit: bool, seed: Option<u64>) -> Result<Plan, PlanError> {
        Plan::new(Ask {
            fit,
            seed,
            ..self.levels.clone()
        })
    }
}

impl Dataset<'_> {
    /// The adaptive rule of every split. It needs no screening part: all of the
    /// calibration part certifies, less what has to be set aside where there is
    /// nothing else to fit to.
    fn adaptive(&self, plans: &Plans) -> anyhow::Result<Vec<Adaptive>> {
        let n = self.splits.len();
        let Some(fitting) = self.fitting else {
            let of_split = |s: usize| {
                let given = self.part(self.splits.split(s).calibration);
                let plan = plans.adaptive(false, Some(s as u64))?;
                let rule = plan.calibrate(Inputs::one(&given))?.rule;
                let test = self.part(self.splits.split(s).test);
                let t_avg = t_avg(&self.over(&rule)?, &test.traces(rule.source())?)?;
                Ok(Adaptive { rule, t_avg })
            };
            return (0..n).into_par_iter().map(of_split).collect();
        };
        // Nothing that is proposed depends on the split.
        let certifying: Vec<&[usize]> = (0..n).map(|s| self.splits.split(s).calibration).collect();
        let mut survey = Survey {
            longest: self.outputs.t_max(),
            ..Survey::default()
        };
        survey.set.sequences = certifying.first().map_or(0, |part| part.len()) as u64;
        let proposal = plans.adaptive(true, None)?.fix(Some(fitting), &survey)?;
        let scored = proposal.scored(self.outputs)?;
        let evidence = proposal.count_parts(&scored, &certifying)?;
        let of_split = |(s, evidence): (usize, &Evidence)| {
            let rule = proposal.certify(evidence)?;
            let thresholds = self.over(&rule)?;
            // Without the proposal's own score it is the plain one.
            let scored = scored.iter().find(|set| set.source() == rule.source());
            let traces = scored.unwrap_or(&self.traces);
            let steps = halt_steps(&thresholds, traces)?;
            let test = self.splits.split(s).test.iter().map(|&i| steps[i]);
            let t_avg = mean(test, thresholds.t_max());
            Ok(Adaptive { rule, t_avg })
        };
        evidence.par_iter().enumerate().map(of_split).collect()
    }

    /// All traces with each score that rules of several splits judge.
    fn scored(&self, rules: [&[Adaptive]; 3]) -> anyhow::Result<Vec<Traces>> {
        let mut scored: Vec<Traces> = Vec::new();
        // Fitted to each split anew, no two scores are alike.
        let rules = rules.into_iter().flatten();
        for Adaptive { rule, .. } in rules.filter(|_| self.fitting.is_some()) {
            if scored.iter().all(|set| set.source() != rule.source()) {
                scored.push(self.outputs.traces(rule.source())?);
            }
        }
        Ok(scored)
    }

    fn part(&self, positions: &[usize]) -> Outputs {
        self.outputs.select(positions.iter().copied())
    }

    /// A rule's thresholds for all steps that there are: where the longest
    /// sequence is not in the calibration part, the rule never halts at the
    /// steps it did not see.
    fn over(&self, rule: &Rule) -> anyhow::Result<Thresholds> {
        let mut values = rule.thresholds().values().to_vec();
        values.resize(self.traces.t_max().max(values.len()), f32::INFINITY);
        Ok(Thresholds::new(values)?)
    }
}

/// One split of a dataset.
struct Parts<'d> {
    dataset: &'d Dataset<'d>,
    split: Split<'d>,
    test: Traces,
    screening: Traces,
    certifying: Traces,
    /// Both of them, for the method that needs no screening.
    both: Traces,
}

impl<'d> Parts<'d> {
    fn new(dataset: &'d Dataset<'d>, split: Split<'d>) -> Self {
        let part = |positions: &[usize]| dataset.traces.select(positions.iter().copied());
        Self {
            test: part(split.test),
            screening: part(split.screening),
            certifying: part(split.certifying),
            both: part(split.calibration),
            dataset,
            split,
        }
    }

    fn results(
        &self,
        plans: &Plans,
        adaptive: [&Rule; 3],
        scored: &[Traces],
    ) -> anyhow::Result<[SplitResult; ROWS]> {
        let measured = |rule: &Rule, test: &Traces| -> anyhow::Result<SplitResult> {
            Ok((&evaluate(&self.dataset.over(rule)?, test)?).into())
        };
        // Held to what labels say, whatever it was calibrated with.
        let judged = |rule: &Rule| {
            let all = scored.iter().find(|set| set.source() == rule.source());
            let test = match all {
                Some(all) => all.select(self.split.test.iter().copied()),
                None => self.dataset.part(self.split.test).traces(rule.source())?,
            };
            measured(rule, &test)
        };
        let screened = plans
            .screen_only
            .calibrate(Inputs::one(&self.screening))?
            .rule;
        Ok([
            measured(&self.marginal(plans)?, &self.test)?,
            measured(&self.conditional(plans)?, &self.test)?,
            judged(adaptive[0])?,
            judged(adaptive[1])?,
            judged(adaptive[2])?,
            measured(&screened, &self.test)?,
        ])
    }

    fn t_avgs(&self, plans: &Plans, adaptive: &Adaptive) -> anyhow::Result<[f64; SWEPT]> {
        let of = |rule: Rule| t_avg(&self.dataset.over(&rule)?, &self.test);
        Ok([
            of(self.marginal(plans)?)?,
            of(self.conditional(plans)?)?,
            adaptive.t_avg,
        ])
    }

    fn marginal(&self, plans: &Plans) -> anyhow::Result<Rule> {
        Ok(plans.marginal.calibrate(Inputs::one(&self.both))?.rule)
    }

    fn conditional(&self, plans: &Plans) -> anyhow::Result<Rule> {
        let parts = Inputs::one(&self.certifying).screen(&self.screening);
        Ok(plans.conditional.calibrate(parts)?.rule)
    }
}

/// The mean of halt step / t_max, without all else that an evaluation measures.
fn t_avg(thresholds: &Thresholds, test: &Traces) -> anyhow::Result<f64> {
    let steps = halt_steps(thresholds, test)?;
    Ok(mean(steps.into_iter(), thresholds.t_max()))
}

/// The mean of halt step / t_max.
fn mean(steps: impl ExactSizeIterator<Item = u32>, t_max: usize) -> f64 {
    let n = steps.len() as f64;
    let sum: u64 = steps.map(u64::from).sum();
    sum as f64 / n / t_max as f64
}

/// The mean of the first step without a gap / t_max.
fn oracle(traces: &Traces) -> f64 {
    let sequences = (0..traces.len()).filter_map(|i| traces.correct(i));
    let first = |correct: Vec<bool>| {
        let full = correct.last().is_some_and(|&c| c);
        correct.iter().position(|&c| c || !full).unwrap_or(0) + 1
    };
    let sum: usize = sequences.map(first).sum();
    sum as f64 / traces.len() as f64 / traces.t_max() as f64
}

fn methods(found: Vec<OfSplit>) -> Vec<MethodResults> {
    let method = |(name, (method, promise)): (&str, (Method, Option<Promise>))| MethodResults {
        name: name.to_owned(),
        method,
        promise,
        splits: Vec::with_capacity(found.len()),
    };
    let mut methods: Vec<_> = NAMES.into_iter().zip(METHODS).map(method).collect();
    for of_split in found {
        for (method, result) in methods.iter_mut().zip(of_split.results) {
            method.splits.push(result);
        }
    }
    methods
}

fn sweep(alphas: &[Alpha], found: &[OfSplit]) -> Vec<SweepCurve> {
    let point = |a: usize, method: usize| {
        let (t_avg, standard_error) = mean_and_error(found.iter().map(|s| s.sweep[a][method]))?;
        Some(SweepPoint {
            alpha: alphas[a].get(),
            t_avg,
            standard_error,
        })
    };
    let curve = |method: usize| SweepCurve {
        method: NAMES[method].to_owned(),
        points: (0..alphas.len()).filter_map(|a| point(a, method)).collect(),
    };
    (0..SWEPT).map(curve).collect()
}
