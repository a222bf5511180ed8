//! From traces to a rule: makes a plan of options and a source of arrays. The heart
//! does the rest.

use haltwise::corridor::{Calibrated, Remark};
use haltwise::forecast::{Forecast, enough, forecast as predict};
use haltwise::plan::{AtNever, LossWord, ScoreWord, ScreenBy, Word};
use haltwise::rule::Promise;
use haltwise::terms::Cost;
use haltwise::traces::Key;
use haltwise::{Ask, Given, Method, Outputs, Plan};
use pyo3::prelude::*;

use crate::arrays::Arrays;
use crate::failure::{Failure, value_error};
use crate::rule::Rule;

/// The options of a calibration, in Python's words.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    method: Option<String>,
    promise: Option<String>,
    score: Option<String>,
    alpha: Option<f64>,
    delta: Option<f64>,
    fit_fraction: Option<f64>,
    screen_fraction: Option<f64>,
    seed: Option<u64>,
    grid_step: Option<f64>,
    at_never: Option<String>,
    screen_by: Option<String>,
    loss: Option<String>,
    scale: Option<f64>,
    by: Option<String>,
    unit: Option<String>,
    weight: Option<String>,
    weight_bound: Option<f64>,
    /// The name of a column, or a cost per step.
    cost: Option<Costs>,
    looks: Option<Vec<u64>>,
}

#[derive(FromPyObject)]
enum Costs {
    Column(String),
    Steps(Vec<f64>),
}

impl Options {
    /// The plan. `fit` and `screen` say whether other traces are given for these.
    pub(crate) fn plan(&self, fit: bool, screen: bool) -> PyResult<Plan> {
        fn word<T: Word>(word: &Option<String>) -> PyResult<Option<T>> {
            let of = word.as_deref().map(T::of);
            of.transpose().map_err(value_error)
        }
        Plan::new(Ask {
            method: word::<Method>(&self.method)?,
            promise: word::<Promise>(&self.promise)?,
            alpha: self.alpha,
            delta: self.delta,
            score: word::<ScoreWord>(&self.score)?,
            fit,
            fit_fraction: self.fit_fraction,
            screen,
            screen_fraction: self.screen_fraction,
            seed: self.seed,
            grid_step: self.grid_step,
            at_never: word::<AtNever>(&self.at_never)?,
            screen_by: word::<ScreenBy>(&self.screen_by)?,
            loss: word::<LossWord>(&self.loss)?,
            scale: self.scale,
            by: self.by.clone(),
            unit: self.unit.clone(),
            weight: self.weight.clone(),
            weight_bound: self.weight_bound,
            cost: self.cost.as_ref().map(|costs| match costs {
                Costs::Column(name) => Cost::Column(name.clone()),
                Costs::Steps(steps) => Cost::Steps(steps.clone()),
            }),
            looks: self.looks.clone().unwrap_or_default(),
        })
        .map_err(value_error)
    }
}

/// A rule, and remarks about its calibration.
pub(crate) type Found = (Rule, Vec<(bool, String)>);

/// Remarks in words. Each says whether it is about identical sequences: users who know that
/// theirs differ can ignore it.
pub(crate) fn found(calibrated: Calibrated) -> Found {
    let remarks = calibrated.remarks.iter();
    let told = remarks.map(|remark| (matches!(remark, Remark::Alike(_)), remark.to_string()));
    (Rule(calibrated.rule), told.collect())
}

/// Finds a rule. `fit` and `screen` are other traces to fit to and to screen on. Without
/// them the traces are split.
#[pyfunction]
pub(crate) fn calibrate(
    py: Python<'_>,
    traces: Arrays<'_>,
    fit: Option<Arrays<'_>>,
    screen: Option<Arrays<'_>>,
    options: Options,
) -> PyResult<Found> {
    let plan = options.plan(fit.is_some(), screen.is_some())?;
    let traces = traces.views()?;
    let fit = fit.as_ref().map(Arrays::views).transpose()?;
    let screen = screen.as_ref().map(Arrays::views).transpose()?;
    let calibrated = py.detach(|| {
        plan.calibrate(Given {
            traces: &traces,
            fit: fit.as_ref(),
            screen: screen.as_ref(),
            classifier: None,
        })
    })?;
    Ok(found(calibrated))
}

/// Predicts what calibrating on these numbers of traces would give, as JSON.
#[pyfunction]
pub(crate) fn forecast(
    py: Python<'_>,
    traces: Arrays<'_>,
    sizes: Vec<u64>,
    seed: u64,
    options: Options,
) -> PyResult<String> {
    let plan = options.plan(false, false)?;
    let views = traces.views()?;
    let found = py.detach(|| {
        let mut pilot = Outputs::new();
        views.visit(&mut |trace| {
            let key = Key::new(trace.id(), pilot.len() as u64);
            pilot.add(key, trace).map_err(|e| e.to_string())
        })?;
        let going_on = || Python::attach(|py| py.check_signals().is_ok());
        let found = predict(&plan, &pilot, &sizes, seed, going_on);
        found.map_err(|e| Failure::Value(e.to_string()))
    })?;
    #[derive(serde::Serialize)]
    struct Found {
        sizes: Vec<Forecast>,
        enough: Option<u64>,
    }
    let enough = enough(&found);
    serde_json::to_string(&Found {
        sizes: found,
        enough,
    })
    .map_err(value_error)
}
