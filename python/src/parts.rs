//! Traces that lie on many machines: what is fixed on one, counted on all and
//! certified on one again. Between them travels JSON.

use haltwise::{
    Alpha, Calibration, Delta, Fitting, Grid, Key, ProposalEvidence, ScoreSource, Screening,
    SetAside, Split,
};
use haltwise_io::{Format, visit_bytes};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::arrays::Arrays;
use crate::calibrate::{Wanted, at_never_of};
use crate::failure::value_error;
use crate::rule::Rule;

/// Where each id falls in the draw of a seed.
#[pyfunction]
pub(crate) fn draws(py: Python<'_>, ids: Vec<String>, seed: u64) -> Bound<'_, PyArray1<u64>> {
    let draw = |id: &String| Key::new(Some(id), 0).draw(seed);
    let draws: Vec<u64> = ids.iter().map(draw).collect();
    draws.into_pyarray(py)
}

/// The draws below this number are so large a share of all.
#[pyfunction]
pub(crate) fn draws_below(share: f64) -> u64 {
    SetAside::share(share, 0).below
}

/// The most sequences that are fitted to.
#[pyfunction]
pub(crate) fn most_fitting() -> usize {
    Fitting::MOST
}

/// What is fixed before certifying, from the sequences that were set aside:
/// those of `sequences` whose draw is below a number. As JSON.
#[pyfunction]
#[pyo3(signature = (
    set_aside, *, method, score, alpha, delta, grid_step, at_never, share, seed, below, sequences,
    t_max,
))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn screen(
    py: Python<'_>,
    set_aside: Option<Arrays<'_>>,
    method: &str,
    score: Option<&str>,
    alpha: f64,
    delta: f64,
    grid_step: f64,
    at_never: &str,
    share: f64,
    seed: u64,
    below: u64,
    sequences: usize,
    t_max: usize,
) -> PyResult<String> {
    let calibration = Calibration {
        alpha: Alpha::try_from(alpha).map_err(value_error)?,
        delta: Delta::try_from(delta).map_err(value_error)?,
        grid: Grid::try_from(grid_step).map_err(value_error)?,
        at_never: at_never_of(at_never)?,
    };
    let wanted = Wanted::of(score)?;
    let views = set_aside.as_ref().map(Arrays::views).transpose()?;
    let mut split = Split {
        seed,
        ..Split::default()
    };
    let screened = match (method, views) {
        ("marginal", _) => {
            let Wanted::Plain(source) = wanted else {
                return Err(value_error("the marginal method needs a plain score"));
            };
            let screened = calibration.screened_marginal(t_max, source);
            return serde_json::to_string(&screened).map_err(value_error);
        }
        ("conditional", Some(views)) => {
            let source: Option<ScoreSource> = match wanted {
                Wanted::Plain(source) => Some(source),
                _ => None,
            };
            split.screen_fraction = Some(share);
            let traces = py.detach(|| views.traces(source.as_ref()))?;
            let screening = Screening::new(traces);
            py.detach(|| calibration.screened_conditional(&screening, t_max))
        }
        ("adaptive", Some(views)) => {
            split.fit_fraction = Some(share);
            let fitting = Fitting::new(py.detach(|| views.outputs())?);
            let certifying = sequences.saturating_sub(fitting.outputs().len());
            let choice = wanted.choice();
            py.detach(|| calibration.screened_adaptive(&fitting, &choice, certifying, t_max))
        }
        _ => {
            return Err(value_error(
                "method must be adaptive, conditional or marginal",
            ));
        }
    };
    let screened = screened.map_err(value_error)?;
    let screened = screened.with_split(split, SetAside { seed, below });
    serde_json::to_string(&screened).map_err(value_error)
}

/// What one machine counted.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    /// How many sequences it has seen, set aside or not.
    sequences: u64,
    evidence: ProposalEvidence,
}

/// Evidence under way.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Gathering {
    inner: Option<haltwise_io::Gathering>,
    sequences: u64,
}

#[pymethods]
impl Gathering {
    #[new]
    fn new(screened: &str) -> PyResult<Self> {
        let screened = serde_json::from_str(screened).map_err(value_error)?;
        let inner = haltwise_io::Gathering::new(screened).map_err(value_error)?;
        Ok(Self {
            inner: Some(inner),
            sequences: 0,
        })
    }

    /// Counts the rows of an Arrow stream.
    fn add(&mut self, py: Python<'_>, arrow: &[u8]) -> PyResult<()> {
        let Some(inner) = &mut self.inner else {
            return Err(value_error("it is finished"));
        };
        let sequences = &mut self.sequences;
        py.detach(|| {
            visit_bytes("the batch", Format::Arrow, arrow, &mut |row| {
                if row.id.is_none() {
                    return Err("a sequence needs an id".into());
                }
                *sequences += 1;
                inner.visit(Key::new(row.id, 0), row).map(|_print| ())
            })
        })
        .map(|_class_names| ())
        .map_err(value_error)
    }

    /// What was counted, as JSON.
    fn finish(&mut self) -> PyResult<String> {
        let Some(inner) = self.inner.take() else {
            return Err(value_error("it is finished"));
        };
        let part = Part {
            sequences: self.sequences,
            evidence: inner.finish().map_err(value_error)?,
        };
        serde_json::to_string(&part).map_err(value_error)
    }
}

/// Certifies the sum of parts, which must have seen so many sequences.
#[pyfunction]
pub(crate) fn certify(screened: &str, parts: Vec<String>, sequences: u64) -> PyResult<Rule> {
    let screened: haltwise::Screened = serde_json::from_str(screened).map_err(value_error)?;
    let mut evidence = screened.no_evidence().map_err(value_error)?;
    let mut seen = 0_u64;
    for part in &parts {
        let part: Part = serde_json::from_str(part).map_err(value_error)?;
        evidence.add(&part.evidence).map_err(value_error)?;
        seen = seen.saturating_add(part.sequences);
    }
    if seen != sequences {
        return Err(value_error(format_args!(
            "{seen} sequences were counted, but there are {sequences}; did the data change \
             meanwhile?"
        )));
    }
    screened.certify(&evidence).map(Rule).map_err(value_error)
}
