//! From traces to a rule: makes a plan of options and a source of arrays. The heart
//! does the rest.

use haltwise::corridor::{Calibrated, Warning};
use haltwise::forecast::{Forecast, enough, forecast as predict};
use haltwise::plan::{PlanError, Value};
use haltwise::traces::Key;
use haltwise::{Ask, Inputs, Outputs, Plan};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::Arrays;
use crate::failure::{Failure, value_error};
use crate::rule::Rule;

/// Options by the names of the heart's list. `None` asks for the default.
pub(crate) struct Options(Ask);

impl<'py> FromPyObject<'_, 'py> for Options {
    type Error = PyErr;

    fn extract(options: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let mut ask = Ask::default();
        for (name, value) in options.cast::<PyDict>()?.iter() {
            if !value.is_none() {
                let name: String = name.extract()?;
                ask.set(&name, worth(&value)?).map_err(refused)?;
            }
        }
        Ok(Self(ask))
    }
}

/// A value of Python, whatever option it is for.
fn worth(value: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(text) = value.extract() {
        return Ok(Value::Text(text));
    }
    if let Ok(number) = value.extract() {
        return Ok(Value::Count(number));
    }
    if let Ok(number) = value.extract() {
        return Ok(Value::Number(number));
    }
    let several = value.try_iter()?;
    several
        .map(|value| worth(&value?))
        .collect::<PyResult<_>>()
        .map(Value::List)
}

/// An option that there is none of, or that is of another kind, is a `TypeError`.
fn refused(error: PlanError) -> PyErr {
    if error.is_of_type() {
        return PyTypeError::new_err(error.to_string());
    }
    value_error(error)
}

impl Options {
    /// The plan. `fit` and `screen` say whether other traces are given for these.
    pub(crate) fn plan(&self, fit: bool, screen: bool) -> PyResult<Plan> {
        Plan::new(Ask {
            fit,
            screen,
            ..self.0.clone()
        })
        .map_err(refused)
    }
}

/// Refuses options that do not go together, as calibrating with them would.
#[pyfunction]
pub(crate) fn check_options(options: Options) -> PyResult<()> {
    options.plan(false, false).map(|_| ())
}

/// A rule, and warnings about its calibration.
pub(crate) type Found = (Rule, Vec<(bool, String)>);

/// Warnings in words. Each says whether it is about identical sequences: users who know that
/// theirs differ can ignore it.
pub(crate) fn found(calibrated: Calibrated) -> Found {
    let warnings = calibrated.warnings.iter();
    let warnings =
        warnings.map(|warning| (matches!(warning, Warning::Alike(_)), warning.to_string()));
    (Rule(calibrated.rule), warnings.collect())
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
        plan.calibrate(Inputs {
            fit: fit.as_ref(),
            screen: screen.as_ref(),
            ..Inputs::one(&traces)
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
