//! The methods on every split, and how t_avg depends on α.

use haltwise::{
    Alpha, Calibration, Candidates, Certifying, Evidence, Fitting, Grid, Method, Outputs, Proposal,
    ProposalEvidence, Rule, ScoreChoice, Screening, Thresholds, Traces, evaluate, halt_steps,
};
use haltwise_report::{MethodResults, SplitResult, SweepCurve, SweepPoint};
use rayon::prelude::*;

use super::Plan;
use super::progress::Progress;
use super::splits::{Split, Splits};
use crate::calibrate::FIT_FRACTION;

/// In the order of the table.
pub(super) const NAMES: [&str; 4] = ["marginal", "conditional", "adaptive", "screening alone"];

const METHODS: [Method; 4] = [
    Method::Marginal,
    Method::Conditional,
    Method::Adaptive,
    Method::ScreenOnly,
];

/// So many of them, the first, are swept over α: those that promise something.
const SWEPT: usize = 3;

/// What was found on a dataset.
pub(super) struct Found {
    pub(super) methods: Vec<MethodResults>,
    pub(super) sweep: Vec<SweepCurve>,
    /// The mean of the first step without a gap / t_max: who knew the future
    /// could halt there, and no one can halt earlier at no loss.
    pub(super) oracle: f64,
}

/// What one split gave.
struct OfSplit {
    results: [SplitResult; 4],
    /// For each α of the sweep, t_avg of the methods that are swept.
    sweep: Vec<[f64; SWEPT]>,
}

/// A dataset's traces, and what the adaptive method does with them.
struct Dataset<'d> {
    outputs: &'d Outputs,
    /// With the scores that they have.
    traces: Traces,
    fitting: Option<&'d Fitting>,
    certifying: usize,
}

/// What the adaptive method fixes before it sees a split, where there are
/// traces to fit to: a proposal, and all traces with its score.
struct Proposed {
    proposal: Proposal,
    traces: Traces,
}

/// Runs all splits on all cores. A split's results depend on nothing but the
/// split, and they are put together in order: any thread count gives the same.
pub(super) fn run(
    plan: &Plan,
    outputs: &Outputs,
    fitting: Option<&Fitting>,
    splits: &Splits,
    progress: &Progress,
) -> anyhow::Result<Found> {
    progress.stage("split", splits.len());
    let dataset = Dataset {
        outputs,
        traces: outputs.traces(&outputs.plain_source())?,
        fitting,
        certifying: splits.split(0).calibration.len(),
    };
    let with_alpha = |alpha| Calibration {
        alpha,
        ..plan.calibration.clone()
    };
    let alphas = match plan.sweep {
        true => alphas()?,
        false => Vec::new(),
    };
    let calibrations: Vec<Calibration> = alphas.iter().map(|&alpha| with_alpha(alpha)).collect();
    let own = dataset.propose(&plan.calibration)?;
    let swept: Vec<Option<Proposed>> = calibrations
        .par_iter()
        .map(|calibration| dataset.propose(calibration))
        .collect::<anyhow::Result<_>>()?;
    let found = (0..splits.len()).into_par_iter().map(|s| {
        let parts = Parts::new(
            &dataset,
            splits.split(s),
            s as u64,
            plan.calibration.grid.clone(),
        )?;
        let results = parts.results(&plan.calibration, own.as_ref())?;
        let sweep = std::iter::zip(&calibrations, &swept)
            .map(|(calibration, proposed)| parts.t_avgs(calibration, proposed.as_ref()))
            .collect::<anyhow::Result<_>>()?;
        progress.advance(1);
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

impl Dataset<'_> {
    /// `None` where the adaptive method has to set traces of each split aside.
    fn propose(&self, calibration: &Calibration) -> anyhow::Result<Option<Proposed>> {
        let Some(fitting) = self.fitting else {
            return Ok(None);
        };
        let (n, t_max) = (self.certifying, self.outputs.t_max());
        let proposal = calibration.propose(fitting, &ScoreChoice::Better, n, t_max)?;
        let traces = self.outputs.traces(proposal.source())?;
        Ok(Some(Proposed { proposal, traces }))
    }
}

/// One split of a dataset.
struct Parts<'d> {
    dataset: &'d Dataset<'d>,
    split: Split<'d>,
    seed: u64,
    test: Traces,
    screening: Screening,
    certifying: Certifying,
    /// The evidence for one threshold does not depend on α: gathered once, it
    /// serves the whole sweep.
    one_threshold: Evidence,
}

impl<'d> Parts<'d> {
    fn new(
        dataset: &'d Dataset<'d>,
        split: Split<'d>,
        seed: u64,
        grid: Grid,
    ) -> anyhow::Result<Self> {
        let part = |positions: &[usize]| dataset.traces.select(positions.iter().copied());
        let both = Certifying::new(part(split.calibration));
        let candidates = Candidates::one_threshold(grid, both.traces().t_max());
        Ok(Self {
            test: part(split.test),
            screening: Screening::new(part(split.screening)),
            certifying: Certifying::new(part(split.certifying)),
            one_threshold: Evidence::collect(candidates, &both)?,
            dataset,
            split,
            seed,
        })
    }

    fn results(
        &self,
        calibration: &Calibration,
        proposed: Option<&Proposed>,
    ) -> anyhow::Result<[SplitResult; 4]> {
        let measured = |rule: &Rule, test: &Traces| -> anyhow::Result<SplitResult> {
            Ok((&evaluate(&self.over(rule)?, test)?).into())
        };
        let (adaptive, adaptive_test) = self.adaptive(calibration, proposed)?;
        Ok([
            measured(&self.marginal(calibration)?, &self.test)?,
            measured(&self.conditional(calibration)?, &self.test)?,
            measured(&adaptive, &adaptive_test)?,
            measured(&calibration.screen_only(&self.screening)?, &self.test)?,
        ])
    }

    fn t_avgs(
        &self,
        calibration: &Calibration,
        proposed: Option<&Proposed>,
    ) -> anyhow::Result<[f64; SWEPT]> {
        let (adaptive, adaptive_test) = self.adaptive(calibration, proposed)?;
        Ok([
            t_avg(&self.over(&self.marginal(calibration)?)?, &self.test)?,
            t_avg(&self.over(&self.conditional(calibration)?)?, &self.test)?,
            t_avg(&self.over(&adaptive)?, &adaptive_test)?,
        ])
    }

    fn marginal(&self, calibration: &Calibration) -> anyhow::Result<Rule> {
        Ok(calibration.from_evidence(&self.one_threshold, None)?)
    }

    fn conditional(&self, calibration: &Calibration) -> anyhow::Result<Rule> {
        Ok(calibration.conditional(&self.screening, &self.certifying)?)
    }

    /// The adaptive rule, and the test part with the score it judges. It needs
    /// no screening part: all of the calibration part certifies, less what has
    /// to be set aside where there is nothing else to fit to.
    fn adaptive(
        &self,
        calibration: &Calibration,
        proposed: Option<&Proposed>,
    ) -> anyhow::Result<(Rule, Traces)> {
        let positions = |part: &'d [usize]| part.iter().copied();
        if let Some(Proposed { proposal, traces }) = proposed {
            let certifying = Certifying::new(traces.select(positions(self.split.calibration)));
            let evidence = ProposalEvidence::collect(proposal, &certifying)?;
            let rule = calibration.certify_proposal(proposal, &evidence, None);
            return Ok((rule, traces.select(positions(self.split.test))));
        }
        let outputs = self.dataset.outputs;
        let given = outputs.select(positions(self.split.calibration));
        let rule =
            calibration.adaptive_split(given, &ScoreChoice::Better, FIT_FRACTION, self.seed)?;
        let test = outputs.select(positions(self.split.test));
        let test = test.traces(rule.source())?;
        Ok((rule, test))
    }

    /// A rule's thresholds for all steps that there are: where the longest
    /// sequence is not in the calibration part, the rule never halts at the
    /// steps it did not see.
    fn over(&self, rule: &Rule) -> anyhow::Result<Thresholds> {
        let mut values = rule.thresholds().values().to_vec();
        values.resize(self.dataset.traces.t_max().max(values.len()), f32::INFINITY);
        Ok(Thresholds::new(values)?)
    }
}

/// The mean of halt step / t_max, without all else that an evaluation measures.
fn t_avg(thresholds: &Thresholds, test: &Traces) -> anyhow::Result<f64> {
    let steps = halt_steps(thresholds, test)?;
    let sum: u64 = steps.iter().map(|&t| u64::from(t)).sum();
    Ok(sum as f64 / steps.len() as f64 / thresholds.t_max() as f64)
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
    let method = |(name, method): (&str, Method)| MethodResults {
        name: name.to_owned(),
        method,
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
        let (t_avg, standard_error) = mean_and_error(found.iter().map(|s| s.sweep[a][method]));
        SweepPoint {
            alpha: alphas[a].get(),
            t_avg,
            standard_error,
        }
    };
    let curve = |method: usize| SweepCurve {
        method: NAMES[method].to_owned(),
        points: (0..alphas.len()).map(|a| point(a, method)).collect(),
    };
    (0..SWEPT).map(curve).collect()
}

fn mean_and_error(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let squares: f64 = values.map(|v| (v - mean).powi(2)).sum();
    let variance = if n > 1.0 { squares / (n - 1.0) } else { 0.0 };
    (mean, (variance / n).sqrt())
}
