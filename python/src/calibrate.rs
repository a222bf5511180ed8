//! From traces to a rule.

use haltwise::{
    Alpha, AtNever, CalibrateError, Calibration, Certifying, Delta, Grid, Screening, Split, Traces,
};
use pyo3::prelude::*;

use crate::arrays::Arrays;
use crate::failure::{Failure, value_error};
use crate::rule::Rule;

/// What to calibrate for, from plain numbers and words.
pub(crate) fn calibration(
    alpha: f64,
    delta: f64,
    grid_step: f64,
    at_never: &str,
) -> PyResult<Calibration> {
    Ok(Calibration {
        alpha: Alpha::try_from(alpha).map_err(value_error)?,
        delta: Delta::try_from(delta).map_err(value_error)?,
        grid: Grid::try_from(grid_step).map_err(value_error)?,
        at_never: at_never_of(at_never)?,
    })
}

pub(crate) fn at_never_of(word: &str) -> PyResult<AtNever> {
    match word {
        "skip" => Ok(AtNever::Skip),
        "stop" => Ok(AtNever::Stop),
        _ => Err(value_error(format_args!(
            "at_never must be 'skip' or 'stop', but {word:?} was given"
        ))),
    }
}

/// How a rule is found, checked before anything is read.
enum Method {
    Marginal,
    ScreenOnly,
    Conditional(Parts),
}

/// Where the screening traces come from.
enum Parts {
    Split(Split),
    Given,
}

/// Finds a rule. `screen` are other traces to screen on; without them the
/// traces are split by `screen_fraction` and `seed`.
#[pyfunction]
#[pyo3(signature = (traces, screen, *, method, alpha, delta, grid_step, at_never, screen_fraction, seed))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn calibrate(
    py: Python<'_>,
    traces: Arrays<'_>,
    screen: Option<Arrays<'_>>,
    method: &str,
    alpha: f64,
    delta: f64,
    grid_step: f64,
    at_never: &str,
    screen_fraction: Option<f64>,
    seed: Option<u64>,
) -> PyResult<Rule> {
    let calibration = calibration(alpha, delta, grid_step, at_never)?;
    let method = method_of(method, screen.is_some(), screen_fraction, seed)?;
    let views = traces.views()?;
    let screen = screen.as_ref().map(Arrays::views).transpose()?;
    let rule = py.detach(|| {
        let traces = views.traces()?;
        let screening = screen.map(|views| views.traces()).transpose()?;
        find(&calibration, method, traces, screening).map_err(Failure::Value)
    })?;
    Ok(Rule(rule))
}

fn method_of(
    method: &str,
    screen: bool,
    screen_fraction: Option<f64>,
    seed: Option<u64>,
) -> PyResult<Method> {
    let splits = screen_fraction.is_some() || seed.is_some();
    match method {
        "conditional" if screen && splits => Err(value_error(
            "screen_fraction and seed split the traces, which screen makes needless; give one or \
             the other",
        )),
        "conditional" if screen => Ok(Method::Conditional(Parts::Given)),
        "conditional" => {
            let screen_fraction = screen_fraction.unwrap_or(0.5);
            if !(screen_fraction > 0.0 && screen_fraction < 1.0) {
                return Err(value_error(format_args!(
                    "screen_fraction must lie strictly between 0 and 1, but {screen_fraction} \
                     was given"
                )));
            }
            let seed = seed.unwrap_or(0);
            Ok(Method::Conditional(Parts::Split(Split {
                screen_fraction,
                seed,
            })))
        }
        "marginal" | "screen-only" if screen || splits => Err(value_error(
            "screen, screen_fraction and seed go with the method 'conditional' only: the other \
             methods use all traces for one thing",
        )),
        "marginal" => Ok(Method::Marginal),
        "screen-only" => Ok(Method::ScreenOnly),
        _ => Err(value_error(format_args!(
            "method must be 'conditional', 'marginal' or 'screen-only', but {method:?} was given"
        ))),
    }
}

fn find(
    calibration: &Calibration,
    method: Method,
    traces: Traces,
    screening: Option<Traces>,
) -> Result<haltwise::Rule, String> {
    let rule = match (method, screening) {
        (Method::Marginal, _) => calibration.marginal(&Certifying::new(traces)),
        (Method::ScreenOnly, _) => calibration.screen_only(&Screening::new(traces)),
        (Method::Conditional(Parts::Split(split)), _) => {
            let total = traces.len();
            let (screening, certifying) = traces.split(split.screen_fraction, split.seed);
            let rule = calibration.conditional(&screening, &certifying);
            return match rule {
                Ok(rule) => Ok(rule.with_split(split)),
                Err(e @ CalibrateError::Empty(_)) => {
                    Err(format!("{total} traces are too few to split in two: {e}"))
                }
                Err(e) => Err(e.to_string()),
            };
        }
        (Method::Conditional(Parts::Given), screening) => {
            let screening = screening.unwrap_or_else(|| Traces::builder().finish());
            if screening.fingerprint() == traces.fingerprint() {
                return Err(
                    "the screening and certifying traces are the same, which voids the \
                            guarantee"
                        .into(),
                );
            }
            calibration.conditional(&Screening::new(screening), &Certifying::new(traces))
        }
    };
    rule.map_err(|e| e.to_string())
}
