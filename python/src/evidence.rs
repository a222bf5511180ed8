//! Evidence: gathered anywhere, added up, certified.

use haltwise::{
    Alpha, AtNever, Calibration, Certifying, Counts, Delta, Fitting, Grid, MAX_STEPS, Proposal,
    ProposalEvidence, ScoreSource, ScreenBy, Screening, SetRecord, Thresholds,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arrays::{Arrays, Views};
use crate::calibrate::{Wanted, at_never_of, refuse_same};
use crate::failure::{Failure, value_error};
use crate::rule::Rule;

/// Candidate rules, and what the record of a rule made from them will say.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Candidates(Rules);

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Rules {
    /// Of one of the paper's methods.
    Walk {
        origin: Origin,
        candidates: haltwise::Candidates,
    },
    /// Of the adaptive method.
    Proposal { levels: Levels, proposal: Proposal },
}

/// Where the candidates of a walk come from.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Origin {
    grid_step: Grid,
    at_never: AtNever,
    screened_on: Option<SetRecord>,
}

/// What was proposed for.
#[derive(Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Levels {
    alpha: Alpha,
    delta: Delta,
}

impl Levels {
    fn of(alpha: f64, delta: f64) -> PyResult<Self> {
        Ok(Self {
            alpha: Alpha::try_from(alpha).map_err(value_error)?,
            delta: Delta::try_from(delta).map_err(value_error)?,
        })
    }
}

#[pymethods]
impl Candidates {
    /// One threshold for all steps, from 1 down to 0.
    #[staticmethod]
    fn one_threshold(t_max: usize, grid_step: f64) -> PyResult<Self> {
        check_steps(t_max)?;
        let grid = Grid::try_from(grid_step).map_err(value_error)?;
        Ok(Self(Rules::Walk {
            candidates: haltwise::Candidates::one_threshold(grid.clone(), t_max),
            origin: Origin {
                grid_step: grid,
                at_never: AtNever::default(),
                screened_on: None,
            },
        }))
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
        let views = screening.views()?;
        let traces = py.detach(|| views.traces(None))?;
        if traces.is_empty() {
            return Err(value_error("there are no screening traces"));
        }
        let screened_on = SetRecord::of(&traces);
        let screened = py.detach(|| {
            let screening = Screening::new(traces);
            haltwise::screen(&screening, alpha, Delta::default(), &grid, ScreenBy::Risk)
        });
        let mut values = screened.values().to_vec();
        let t_max = t_max.unwrap_or(0).max(values.len());
        check_steps(t_max)?;
        values.resize(t_max, f32::INFINITY);
        let screened = Thresholds::new(values).map_err(value_error)?;
        Ok(Self(Rules::Walk {
            candidates: haltwise::Candidates::backward(&screened, at_never),
            origin: Origin {
                grid_step: grid,
                at_never,
                screened_on: Some(screened_on),
            },
        }))
    }

    /// What the adaptive method will certify on so many traces of up to so
    /// many steps, fixed by these traces.
    #[staticmethod]
    fn adaptive(
        py: Python<'_>,
        fitting: Arrays<'_>,
        certifying: usize,
        alpha: f64,
        delta: f64,
        score: Option<&str>,
        t_max: Option<usize>,
    ) -> PyResult<Self> {
        let levels = Levels::of(alpha, delta)?;
        let choice = Wanted::of(score)?.choice();
        let views = fitting.views()?;
        let proposal = py.detach(|| {
            let fitting = views.outputs()?;
            let t_max = t_max.unwrap_or(0).max(fitting.t_max());
            let fitting = Fitting::new(fitting);
            let proposed = calibration(levels).propose(&fitting, &choice, certifying, t_max);
            proposed.map_err(|e| Failure::Value(e.to_string()))
        })?;
        Ok(Self(Rules::Proposal { levels, proposal }))
    }

    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let candidates: Self = serde_json::from_str(json).map_err(value_error)?;
        if let Rules::Walk { candidates, .. } = &candidates.0 {
            check_steps(candidates.t_max())?;
        }
        Ok(candidates)
    }

    fn json(&self) -> PyResult<String> {
        serde_json::to_string(self).map_err(value_error)
    }

    /// The thresholds of each rule, in the order of the tests; only a walk's
    /// are listed.
    fn thresholds<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyArray1<f32>>> {
        let Rules::Walk { candidates, .. } = &self.0 else {
            return Vec::new();
        };
        let rules = (0..candidates.len()).filter_map(|c| candidates.rule(c));
        rules
            .map(|rule| rule.values().to_vec().into_pyarray(py))
            .collect()
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

fn calibration(levels: Levels) -> Calibration {
    Calibration {
        alpha: levels.alpha,
        delta: levels.delta,
        ..Calibration::default()
    }
}

/// Counts for candidates.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    candidates: Candidates,
    sequences: u64,
    counts: Counted,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Counted {
    Walk(haltwise::Evidence),
    Proposal(ProposalEvidence),
}

#[pymethods]
impl Evidence {
    #[staticmethod]
    fn collect(py: Python<'_>, candidates: &Candidates, certifying: Arrays<'_>) -> PyResult<Self> {
        let views = certifying.views()?;
        Ok(py.detach(|| Self::count(candidates.clone(), &views))?)
    }

    /// The evidence of both.
    fn add(&self, other: &Self) -> PyResult<Self> {
        if self.candidates != other.candidates {
            return Err(value_error(haltwise::EvidenceError::OtherCandidates));
        }
        let mut sum = self.clone();
        match (&mut sum.counts, &other.counts) {
            (Counted::Walk(sum), Counted::Walk(other)) => sum.add(other),
            (Counted::Proposal(sum), Counted::Proposal(other)) => sum.add(other),
            _ => Err(haltwise::EvidenceError::OtherCandidates),
        }
        .map_err(value_error)?;
        sum.sequences += other.sequences;
        Ok(sum)
    }

    /// Certifies what was counted; candidates that were proposed for levels
    /// are certified at those.
    fn certify(&self, alpha: f64, delta: f64) -> PyResult<Rule> {
        let levels = Levels::of(alpha, delta)?;
        match (&self.candidates.0, &self.counts) {
            (Rules::Walk { origin, .. }, Counted::Walk(evidence)) => {
                let calibration = Calibration {
                    grid: origin.grid_step.clone(),
                    at_never: origin.at_never,
                    ..calibration(levels)
                };
                let rule = calibration.from_evidence(evidence, origin.screened_on);
                rule.map(Rule).map_err(value_error)
            }
            (
                Rules::Proposal {
                    levels: for_levels,
                    proposal,
                },
                Counted::Proposal(evidence),
            ) => {
                if *for_levels != levels {
                    return Err(value_error(format_args!(
                        "the candidates were proposed for alpha {} and delta {}; certify at those",
                        for_levels.alpha.get(),
                        for_levels.delta.get()
                    )));
                }
                let rule = calibration(levels).certify_proposal(proposal, evidence, None);
                Ok(Rule(rule.map_err(value_error)?))
            }
            _ => Err(value_error(
                "the evidence is damaged: its candidates are of another kind",
            )),
        }
    }

    #[new]
    fn new(json: &str) -> PyResult<Self> {
        let evidence: Self = serde_json::from_str(json).map_err(value_error)?;
        let agrees = match (&evidence.candidates.0, &evidence.counts) {
            (Rules::Walk { candidates, .. }, Counted::Walk(counts)) => {
                counts.candidates() == candidates && counts.sequences() == evidence.sequences
            }
            (Rules::Proposal { .. }, Counted::Proposal(_)) => true,
            _ => false,
        };
        match agrees {
            true => Ok(evidence),
            false => Err(value_error(
                "the evidence is damaged: its counts are of other candidates",
            )),
        }
    }

    fn json(&self) -> PyResult<String> {
        serde_json::to_string(self).map_err(value_error)
    }

    fn sequences(&self) -> u64 {
        self.sequences
    }

    fn candidates(&self) -> Candidates {
        self.candidates.clone()
    }

    /// Per candidate of a walk and step: who halted, and who of those had a gap.
    fn counts(&self) -> [Vec<Vec<u64>>; 2] {
        let Counted::Walk(evidence) = &self.counts else {
            return [Vec::new(), Vec::new()];
        };
        let table = |of: fn(&Counts) -> u64| -> Vec<Vec<u64>> {
            let rules = 0..evidence.candidates().len();
            rules
                .map(|c| evidence.halted_at(c).iter().map(of).collect())
                .collect()
        };
        [table(|c| c.halted), table(|c| c.gaps)]
    }

    fn __getnewargs__(&self) -> PyResult<(String,)> {
        Ok((self.json()?,))
    }
}

impl Evidence {
    fn count(candidates: Candidates, views: &Views<'_>) -> Result<Self, Failure> {
        let score = match &candidates.0 {
            Rules::Walk { .. } => None,
            Rules::Proposal { proposal, .. } => Some(proposal.source()),
        };
        let traces = views.traces(score)?;
        let sequences = traces.len() as u64;
        let counts = match &candidates.0 {
            Rules::Walk { origin, candidates } => {
                let screened_on = origin.screened_on.map(|set| set.fingerprint);
                refuse_same(screened_on == Some(traces.fingerprint()))?;
                let certifying = Certifying::new(traces);
                haltwise::Evidence::collect(candidates.clone(), &certifying).map(Counted::Walk)
            }
            Rules::Proposal { proposal, .. } => {
                ProposalEvidence::collect(proposal, &Certifying::new(traces)).map(Counted::Proposal)
            }
        };
        Ok(Self {
            counts: counts.map_err(|e| e.to_string())?,
            sequences,
            candidates,
        })
    }
}

/// The score's name, as it is asked for.
pub(crate) fn name_of(score: &ScoreSource) -> &'static str {
    match score {
        ScoreSource::Confidence => "confidence",
        ScoreSource::MaxProbability => "max-probability",
        ScoreSource::Margin => "margin",
        ScoreSource::Gap(_) => "gap",
    }
}
