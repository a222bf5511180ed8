//! Evidence: gathered anywhere, added up, certified.

use haltwise::{
    Alpha, AtNever, Calibration, Certifying, Delta, Grid, MAX_STEPS, Screening, SetRecord,
    Thresholds,
};
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arrays::{self, Arrays};
use crate::calibrate::at_never_of;
use crate::failure::value_error;
use crate::rule::Rule;

/// Candidate rules, and what the record of a rule made from them will say.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Candidates {
    grid_step: Grid,
    at_never: AtNever,
    screened_on: Option<SetRecord>,
    candidates: haltwise::Candidates,
}

#[pymethods]
impl Candidates {
    /// One threshold for all steps, from 1 down to 0.
    #[staticmethod]
    fn one_threshold(t_max: usize, grid_step: f64) -> PyResult<Self> {
        check_steps(t_max)?;
        let grid = Grid::try_from(grid_step).map_err(value_error)?;
        Ok(Self {
            candidates: haltwise::Candidates::one_threshold(grid.clone(), t_max),
            grid_step: grid,
            at_never: AtNever::default(),
            screened_on: None,
        })
    }

    /// The thresholds screened from traces, revealed from the last step back,
    /// for sequences of up to `t_max` steps.
    #[staticmethod]
    fn backward(
        py: Python<'_>,
        screening: Arrays<'_>,
        alpha: f64,
        grid_step: f64,
        at_never: &str,
        t_max: Option<usize>,
    ) -> PyResult<Self> {
        let alpha = Alpha::try_from(alpha).map_err(value_error)?;
        let grid = Grid::try_from(grid_step).map_err(value_error)?;
        let at_never = at_never_of(at_never)?;
        let traces = arrays::traces(py, &screening)?;
        if traces.is_empty() {
            return Err(value_error("there are no screening traces"));
        }
        let screened_on = SetRecord {
            sequences: traces.len() as u64,
            fingerprint: traces.fingerprint(),
        };
        let screened = py.detach(|| haltwise::screen(&Screening::new(traces), alpha, &grid));
        let mut values = screened.values().to_vec();
        let t_max = t_max.unwrap_or(0).max(values.len());
        check_steps(t_max)?;
        values.resize(t_max, f32::INFINITY);
        let screened = Thresholds::new(values).map_err(value_error)?;
        Ok(Self {
            candidates: haltwise::Candidates::backward(&screened, at_never),
            grid_step: grid,
            at_never,
            screened_on: Some(screened_on),
        })
    }

    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let candidates: Self = serde_json::from_str(json).map_err(value_error)?;
        check_steps(candidates.candidates.t_max())?;
        Ok(candidates)
    }

    fn json(&self) -> PyResult<String> {
        serde_json::to_string(self).map_err(value_error)
    }

    fn t_max(&self) -> usize {
        self.candidates.t_max()
    }

    fn __len__(&self) -> usize {
        self.candidates.len()
    }

    /// The thresholds of the rule in place `c`, counted from 0.
    fn thresholds<'py>(&self, py: Python<'py>, c: usize) -> Option<Bound<'py, PyArray1<f32>>> {
        let rule = self.candidates.rule(c)?;
        Some(rule.values().to_vec().into_pyarray(py))
    }

    fn __getnewargs__(&self) -> PyResult<(String,)> {
        Ok((self.json()?,))
    }
}

/// Refuses more steps than any sequence may have, before they take memory.
fn check_steps(t_max: usize) -> PyResult<()> {
    if (1..=MAX_STEPS).contains(&t_max) {
        return Ok(());
    }
    Err(value_error(format_args!(
        "t_max must lie between 1 and {MAX_STEPS}, but {t_max} was given"
    )))
}

/// Counts for candidates.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    grid_step: Grid,
    at_never: AtNever,
    screened_on: Option<SetRecord>,
    evidence: haltwise::Evidence,
}

#[pymethods]
impl Evidence {
    #[staticmethod]
    fn collect(py: Python<'_>, candidates: &Candidates, certifying: Arrays<'_>) -> PyResult<Self> {
        let traces = arrays::traces(py, &certifying)?;
        if candidates.screened_on.map(|set| set.fingerprint) == Some(traces.fingerprint()) {
            return Err(value_error(
                "the screening and certifying traces are the same, which voids the guarantee",
            ));
        }
        let rules = candidates.candidates.clone();
        let evidence = py
            .detach(|| haltwise::Evidence::collect(rules, &Certifying::new(traces)))
            .map_err(value_error)?;
        Ok(Self {
            grid_step: candidates.grid_step.clone(),
            at_never: candidates.at_never,
            screened_on: candidates.screened_on,
            evidence,
        })
    }

    /// The evidence of both.
    fn add(&self, other: &Self) -> PyResult<Self> {
        let mut evidence = self.evidence.clone();
        evidence.add(&other.evidence).map_err(value_error)?;
        Ok(Self {
            grid_step: self.grid_step.clone(),
            evidence,
            ..*self
        })
    }

    /// Certifies what was counted.
    fn certify(&self, alpha: f64, delta: f64) -> PyResult<Rule> {
        let calibration = Calibration {
            alpha: Alpha::try_from(alpha).map_err(value_error)?,
            delta: Delta::try_from(delta).map_err(value_error)?,
            grid: self.grid_step.clone(),
            at_never: self.at_never,
        };
        calibration
            .from_evidence(&self.evidence, self.screened_on)
            .map(Rule)
            .map_err(value_error)
    }

    #[new]
    fn new(json: &str) -> PyResult<Self> {
        serde_json::from_str(json).map_err(value_error)
    }

    fn json(&self) -> PyResult<String> {
        serde_json::to_string(self).map_err(value_error)
    }

    fn sequences(&self) -> u64 {
        self.evidence.sequences()
    }

    fn fingerprint(&self) -> String {
        self.evidence.fingerprint().to_string()
    }

    fn candidates(&self) -> Candidates {
        Candidates {
            grid_step: self.grid_step.clone(),
            at_never: self.at_never,
            screened_on: self.screened_on,
            candidates: self.evidence.candidates().clone(),
        }
    }

    /// Per candidate and step: who halted, and who of those had a gap.
    fn counts<'py>(&self, py: Python<'py>) -> PyResult<[Bound<'py, PyArray2<u64>>; 2]> {
        let table = |of: fn(&haltwise::Counts) -> u64| {
            let rules = 0..self.evidence.candidates().len();
            let rows: Vec<Vec<u64>> = rules
                .map(|c| self.evidence.halted_at(c).iter().map(of).collect())
                .collect();
            PyArray2::from_vec2(py, &rows).map_err(value_error)
        };
        Ok([table(|c| c.halted)?, table(|c| c.gaps)?])
    }

    fn __getnewargs__(&self) -> PyResult<(String,)> {
        Ok((self.json()?,))
    }
}
