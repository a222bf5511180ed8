//! From traces to a rule: options become a plan, arrays a source, and the heart
//! does the rest.

use haltwise::corridor::Calibrated;
use haltwise::plan::{AtNever, ScoreWord, ScreenBy, Word};
use haltwise::{Ask, Given, Method, Plan};
use pyo3::prelude::*;

use crate::arrays::Arrays;
use crate::failure::value_error;
use crate::rule::Rule;

/// What is asked for, in Python's words.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    method: Option<String>,
    score: Option<String>,
    alpha: Option<f64>,
    delta: Option<f64>,
    fit_fraction: Option<f64>,
    screen_fraction: Option<f64>,
    seed: Option<u64>,
    grid_step: Option<f64>,
    at_never: Option<String>,
    screen_by: Option<String>,
}

impl Options {
    /// The plan; `fit` and `screen`: whether other traces are given for it.
    pub(crate) fn plan(&self, fit: bool, screen: bool) -> PyResult<Plan> {
        fn word<T: Word>(word: &Option<String>) -> PyResult<Option<T>> {
            let of = word.as_deref().map(T::of);
            of.transpose().map_err(value_error)
        }
        Plan::new(Ask {
            method: word::<Method>(&self.method)?,
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
        })
        .map_err(value_error)
    }
}

/// A rule, and what should be known about how it came about.
pub(crate) fn found(calibrated: Calibrated) -> (Rule, Vec<String>) {
    let remarks = calibrated.remarks.iter().map(ToString::to_string);
    (Rule(calibrated.rule), remarks.collect())
}

/// Finds a rule. `fit` and `screen` are other traces to fit to and to screen
/// on; without them the traces are split.
#[pyfunction]
pub(crate) fn calibrate(
    py: Python<'_>,
    traces: Arrays<'_>,
    fit: Option<Arrays<'_>>,
    screen: Option<Arrays<'_>>,
    options: Options,
) -> PyResult<(Rule, Vec<String>)> {
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
