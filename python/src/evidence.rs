//! Candidates and evidence: fixed in one place, counted anywhere, added up and
//! certified.

use haltwise::corridor::Source;
use haltwise::plan::Word;
use haltwise::traces::{MAX_STEPS, Survey};
use haltwise::{Inputs, Proposal, ToCertify};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arrays::Arrays;
use crate::calibrate::Options;
use crate::failure::value_error;
use crate::rule::Rule;

/// Candidate rules, the levels of their tests, and the record of a rule made from
/// them.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Candidates(Proposal);

#[pymethods]
impl Candidates {
    /// One threshold for all steps, from 1 down to 0.
    #[staticmethod]
    fn one_threshold(t_max: usize, options: Options) -> PyResult<Self> {
        check_steps(t_max)?;
        let survey = Survey {
            longest: t_max,
            scores_given: true,
            ..Survey::default()
        };
        let proposal = options.plan(false, false)?.fix(None, &survey);
        proposal.map(Self).map_err(value_error)
    }

    /// The candidates that these traces fit or screen. About `certifying` other
    /// traces of up to `t_max` steps will certify them.
    #[staticmethod]
    fn fixed_by(
        py: Python<'_>,
        traces: Arrays<'_>,
        t_max: Option<usize>,
        certifying: Option<u64>,
        options: Options,
    ) -> PyResult<Self> {
        if let Some(t_max) = t_max {
            check_steps(t_max)?;
        }
        let plan = options.plan(false, false)?;
        let views = traces.views()?;
        let given = Inputs::one(&views).to_certify(ToCertify {
            t_max: t_max.unwrap_or(0),
            sequences: certifying,
        });
        let (proposal, _warnings) = py.detach(|| plan.propose(given))?;
        Ok(Self(proposal))
    }

    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let candidates: Self = serde_json::from_str(json).map_err(value_error)?;
        check_steps(candidates.0.t_max())?;
        Ok(candidates)
    }

    fn json(&self) -> PyResult<String> {
        serde_json::to_string(self).map_err(value_error)
    }

    /// The terms of the promise, as in a rule file.
    fn terms(&self) -> PyResult<String> {
        serde_json::to_string(self.0.plan().terms()).map_err(value_error)
    }

    /// How the rules were found.
    fn method(&self) -> &'static str {
        self.0.plan().method().word()
    }

    /// The thresholds of each rule, in the order of the tests.
    fn thresholds<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyArray1<f32>>> {
        let rules = self.0.thresholds();
        rules
            .map(|rule| rule.values().to_vec().into_pyarray(py))
            .collect()
    }

    fn __getnewargs__(&self) -> PyResult<(String,)> {
        Ok((self.json()?,))
    }
}

/// Refuses more steps than a sequence may have, before they take memory.
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
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    candidates: Candidates,
    evidence: haltwise::Evidence,
}

#[pymethods]
impl Evidence {
    #[staticmethod]
    fn collect(py: Python<'_>, candidates: &Candidates, certifying: Arrays<'_>) -> PyResult<Self> {
        let views = certifying.views()?;
        let evidence = py.detach(|| views.count(&candidates.0))?;
        candidates.0.check_part(&evidence).map_err(value_error)?;
        Ok(Self {
            candidates: candidates.clone(),
            evidence,
        })
    }

    /// The sum of both.
    fn add(&self, other: &Self) -> PyResult<Self> {
        let mut sum = self.clone();
        sum.evidence.add(&other.evidence).map_err(value_error)?;
        Ok(sum)
    }

    /// Certifies the counts, at the levels of the candidates.
    fn certify(&self) -> PyResult<Rule> {
        let rule = self.candidates.0.certify(&self.evidence);
        rule.map(Rule).map_err(value_error)
    }

    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let evidence: Self = serde_json::from_str(json).map_err(value_error)?;
        let checked = evidence.candidates.0.check_part(&evidence.evidence);
        checked.map_err(value_error)?;
        Ok(evidence)
    }

    fn json(&self) -> PyResult<String> {
        serde_json::to_string(self).map_err(value_error)
    }

    fn sequences(&self) -> u64 {
        self.evidence.sequences()
    }

    /// How many sequences are identical to one that the candidates were made from.
    fn alike(&self) -> u64 {
        self.evidence.alike()
    }

    fn candidates(&self) -> Candidates {
        self.candidates.clone()
    }

    /// Per candidate and step: how many halted, and how many of those had a gap.
    fn counts(&self) -> [Vec<Vec<u64>>; 2] {
        self.evidence.counts()
    }

    fn __getnewargs__(&self) -> PyResult<(String,)> {
        Ok((self.json()?,))
    }
}
