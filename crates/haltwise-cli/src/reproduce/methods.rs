//! The three methods on every split, and how t_avg depends on α.

use haltwise::{
    Alpha, Calibration, Candidates, Certifying, Evidence, Promise, Rule, Screening, Thresholds,
    Traces, evaluate, halt_steps,
};
use haltwise_report::{MethodResults, SplitResult, SweepCurve, SweepPoint};
use rayon::prelude::*;

use super::Plan;
use super::progress::Progress;
use super::splits::{Split, Splits};

const MARGINAL: &str = "marginal";
const CONDITIONAL: &str = "conditional";
const SCREEN_ONLY: &str = "screening alone";

/// What one split gave.
struct OfSplit {
    /// Marginal, conditional, screening alone.
    results: [SplitResult; 3],
    /// For each α of the sweep, t_avg of the marginal and the conditional rule.
    sweep: Vec<[f64; 2]>,
}

/// Runs all splits on all cores. A split's results depend on nothing but the
/// split, and they are put together in order: any thread count gives the same.
pub(super) fn run(
    plan: &Plan,
    traces: &Traces,
    splits: &Splits,
    progress: &Progress,
) -> anyhow::Result<(Vec<MethodResults>, Vec<SweepCurve>)> {
    progress.stage("split", splits.len());
    let alphas = match plan.sweep {
        true => alphas()?,
        false => Vec::new(),
    };
    let found = (0..splits.len()).into_par_iter().map(|s| {
        let of_split = of_split(&plan.calibration, &alphas, traces, splits.split(s));
        progress.advance(1);
        of_split
    });
    let found: Vec<OfSplit> = found.collect::<anyhow::Result<_>>()?;
    let sweep = match alphas.is_empty() {
        true => Vec::new(),
        false => sweep(&alphas, &found),
    };
    Ok((methods(found), sweep))
}

/// The paper's range: 1%, 2%, … 20%.
fn alphas() -> anyhow::Result<Vec<Alpha>> {
    let alpha = |percent: u32| Alpha::try_from(f64::from(percent) / 100.0);
    Ok((1..=20).map(alpha).collect::<Result<_, _>>()?)
}

fn of_split(
    calibration: &Calibration,
    alphas: &[Alpha],
    traces: &Traces,
    split: Split<'_>,
) -> anyhow::Result<OfSplit> {
    let part = |positions: &[usize]| traces.select(positions.iter().copied());
    let test = part(split.test);
    let screening = Screening::new(part(split.screening));
    let certifying = Certifying::new(part(split.certifying));
    let both = Certifying::new(part(split.calibration));
    let t_max = traces.t_max();
    let measured = |rule: Rule| -> anyhow::Result<SplitResult> {
        Ok((&evaluate(&over(&rule, t_max)?, &test)?).into())
    };

    // The evidence for one threshold does not depend on α: gathered once, it
    // serves the whole sweep.
    let candidates = Candidates::one_threshold(calibration.grid.clone(), both.traces().t_max());
    let evidence = Evidence::collect(candidates, &both)?;
    let marginal = |c: &Calibration| c.from_evidence(&evidence, None);
    let results = [
        measured(marginal(calibration)?)?,
        measured(calibration.conditional(&screening, &certifying)?)?,
        measured(calibration.screen_only(&screening)?)?,
    ];
    let t_avgs = |&alpha: &Alpha| {
        let calibration = Calibration {
            alpha,
            ..calibration.clone()
        };
        let conditional = calibration.conditional(&screening, &certifying)?;
        Ok([
            t_avg(&over(&marginal(&calibration)?, t_max)?, &test)?,
            t_avg(&over(&conditional, t_max)?, &test)?,
        ])
    };
    let sweep = alphas.iter().map(t_avgs).collect::<anyhow::Result<_>>()?;
    Ok(OfSplit { results, sweep })
}

/// A rule's thresholds for all steps that there are: where the longest sequence
/// is not in the calibration part, the rule never halts at the steps it did not
/// see.
fn over(rule: &Rule, t_max: usize) -> anyhow::Result<Thresholds> {
    let mut values = rule.thresholds().values().to_vec();
    values.resize(t_max.max(values.len()), f32::INFINITY);
    Ok(Thresholds::new(values)?)
}

/// The mean of halt step / t_max, without all else that an evaluation measures.
fn t_avg(thresholds: &Thresholds, test: &Traces) -> anyhow::Result<f64> {
    let steps = halt_steps(thresholds, test)?;
    let sum: u64 = steps.iter().map(|&t| u64::from(t)).sum();
    Ok(sum as f64 / steps.len() as f64 / thresholds.t_max() as f64)
}

fn methods(found: Vec<OfSplit>) -> Vec<MethodResults> {
    let method = |name: &str, promise| MethodResults {
        name: name.to_owned(),
        promise,
        splits: Vec::with_capacity(found.len()),
    };
    let mut methods = [
        method(MARGINAL, Some(Promise::Marginal)),
        method(CONDITIONAL, Some(Promise::Conditional)),
        method(SCREEN_ONLY, None),
    ];
    for of_split in found {
        for (method, result) in methods.iter_mut().zip(of_split.results) {
            method.splits.push(result);
        }
    }
    methods.into()
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
    let curve = |(method, name): (usize, &str)| SweepCurve {
        method: name.to_owned(),
        points: (0..alphas.len()).map(|a| point(a, method)).collect(),
    };
    [(1, CONDITIONAL), (0, MARGINAL)].map(curve).into()
}

fn mean_and_error(values: impl ExactSizeIterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.clone().sum::<f64>() / n;
    let squares: f64 = values.map(|v| (v - mean).powi(2)).sum();
    let variance = if n > 1.0 { squares / (n - 1.0) } else { 0.0 };
    (mean, (variance / n).sqrt())
}
