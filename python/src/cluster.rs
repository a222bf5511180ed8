//! Traces on many machines as a source. Python says how to read them (Spark's
//! `mapInArrow`), and the heart's driver says what to do. The machines exchange JSON.

use std::cell::RefCell;
use std::sync::Arc;

use haltwise::corridor::{
    Admission, CalibrateError, Counting, Drawn, EvidenceError, Fold, Parts, Room, Share, Source,
    Wanted,
};
use haltwise::plan::Grid;
use haltwise::terms::Terms;
use haltwise::traces::{Fitting, Key, SetAside, Survey, Trace};
use haltwise::{Evidence, Inputs, Proposal};
use haltwise_io::{Columns, Format, visit_bytes};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::calibrate::{Found, Options, found};
use crate::failure::{Failure, value_error};

/// Where each id, or each unit, falls in the draw of a seed.
#[pyfunction]
pub(crate) fn draws(py: Python<'_>, ids: Vec<String>, seed: u64) -> Bound<'_, PyArray1<u64>> {
    let draw = |id: &String| Key::new(Some(id), 0).draw(seed);
    let draws: Vec<u64> = ids.iter().map(draw).collect();
    draws.into_pyarray(py)
}

/// The rows of an Arrow stream. Each must have an id, because machines share no
/// positions.
struct Rows<'b>(&'b [u8], Columns);

impl Fold for Rows<'_> {
    type Error = Failure;

    fn refuse(&self, error: CalibrateError) -> Failure {
        Failure::Value(error.to_string())
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, Failure> {
        let mut state = start();
        // No reader accepts a file without rows.
        if !self.0.is_empty() {
            visit_bytes("the frame", Format::Arrow, self.0, &self.1, &mut |trace| {
                let id = trace.id().ok_or("a sequence needs an id")?;
                visit(&mut state, Key::new(Some(id), 0), trace).map_err(|e| e.to_string())
            })
            .map_err(|e| Failure::Value(e.to_string()))?;
        }
        Ok(vec![state])
    }
}

/// What one machine's rows look like, as JSON.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Surveying {
    who: Who,
    found: Survey,
}

/// An admission, as JSON between machines.
#[derive(Serialize, Deserialize)]
struct Who {
    terms: Terms,
    seed: u64,
}

#[pymethods]
impl Surveying {
    #[new]
    fn new(who: &str) -> PyResult<Self> {
        Ok(Self {
            who: serde_json::from_str(who).map_err(value_error)?,
            found: Survey::default(),
        })
    }

    /// Looks at the rows of an Arrow stream.
    fn add(&mut self, py: Python<'_>, arrow: &[u8]) -> PyResult<()> {
        let Who { terms, seed } = &self.who;
        let who = Admission::new(terms, *seed);
        let seen = py.detach(|| Source::survey(&Rows(arrow, Columns::of(terms)), who))?;
        self.found.add(&seen);
        Ok(())
    }

    fn finish(&self) -> PyResult<String> {
        serde_json::to_string(&self.found).map_err(value_error)
    }
}

/// What one machine counts, as JSON.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Gathering(Option<Counting>, Columns);

#[pymethods]
impl Gathering {
    #[new]
    fn new(proposal: &str) -> PyResult<Self> {
        let proposal: Proposal = serde_json::from_str(proposal).map_err(value_error)?;
        let columns = Columns::of(proposal.plan().terms());
        let counting = Counting::new(Arc::new(proposal)).map_err(value_error)?;
        Ok(Self(Some(counting), columns))
    }

    /// Counts the rows of an Arrow stream.
    fn add(&mut self, py: Python<'_>, arrow: &[u8]) -> PyResult<()> {
        let Self(Some(counting), columns) = self else {
            return Err(value_error("it is finished"));
        };
        py.detach(|| {
            visit_bytes("the frame", Format::Arrow, arrow, columns, &mut |trace| {
                let id = trace.id().ok_or("a sequence needs an id")?;
                let counted = counting.visit(Key::new(Some(id), 0), trace);
                counted.map(|_print| ()).map_err(|e| e.to_string())
            })
        })
        .map(|_class_names| ())
        .map_err(value_error)
    }

    fn finish(&mut self) -> PyResult<String> {
        let Some(counting) = self.0.take() else {
            return Err(value_error("it is finished"));
        };
        let evidence = counting.finish().map_err(value_error)?;
        serde_json::to_string(&evidence).map_err(value_error)
    }
}

/// Traces on a cluster: a Python object that reads them.
struct Cluster {
    /// It has `survey(who) -> [JSON]`, `rows(seed, below) -> bytes` and
    /// `count(proposal) -> [JSON]`.
    python: Py<PyAny>,
    columns: Columns,
    survey: RefCell<Option<Survey>>,
}

impl Cluster {
    fn new(python: Py<PyAny>, terms: &Terms) -> Self {
        Self {
            python,
            columns: Columns::of(terms),
            survey: RefCell::new(None),
        }
    }

    fn read<'b>(&self, rows: &'b [u8]) -> Rows<'b> {
        Rows(rows, self.columns.clone())
    }

    /// All sequences whose draws are below a number, and perhaps others.
    fn rows(&self, aside: SetAside) -> Result<Vec<u8>, Failure> {
        Ok(Python::attach(|py| {
            let rows = self
                .python
                .call_method1(py, "rows", (aside.seed, aside.below));
            rows?.extract(py)
        })?)
    }

    fn texts(&self, method: &str, argument: &str) -> Result<Vec<String>, Failure> {
        Ok(Python::attach(|py| {
            let called = self.python.call_method1(py, method, (argument,));
            called?.extract(py)
        })?)
    }
}

fn damaged(e: serde_json::Error) -> Failure {
    Failure::Value(e.to_string())
}

impl Source for Cluster {
    type Error = Failure;

    fn refuse(&self, error: CalibrateError) -> Failure {
        Failure::Value(error.to_string())
    }

    /// Brings only the sequences that screen to the driver.
    fn room(&self, _grid: &Grid) -> Result<Room, Failure> {
        Ok(Room::Share(1.0))
    }

    /// True: Python brings a unit's rows to one machine before they are counted.
    fn counts_units(&self, _grid: &Grid) -> Result<bool, Failure> {
        Ok(true)
    }

    fn survey(&self, who: Admission<'_>) -> Result<Survey, Failure> {
        if let Some(survey) = &*self.survey.borrow() {
            return Ok(survey.clone());
        }
        let mut sum = Survey::default();
        let who = Who {
            terms: who.terms().clone(),
            seed: who.seed(),
        };
        let who = serde_json::to_string(&who).map_err(damaged)?;
        for part in self.texts("survey", &who)? {
            sum.add(&serde_json::from_str(&part).map_err(damaged)?);
        }
        self.survey.replace(Some(sum.clone()));
        Ok(sum)
    }

    fn fitting(&self, wanted: Share<'_>) -> Result<Drawn, Failure> {
        let whole = self.survey(wanted.who)?;
        let n = whole.sequences() as f64;
        let all = SetAside::share(wanted.share.unwrap_or(1.0), wanted.seed);
        // The sequences with the smallest draws; a few more than needed are fetched.
        let most = (Fitting::MOST as f64).min(n);
        let enough = SetAside::share((1.2 * most + 10.0) / n, wanted.seed);
        let few = enough.below < all.below;
        let rows = self.rows(if few { enough } else { all })?;
        let drawn = Drawn::from_part(&self.read(&rows), wanted, Some(whole.clone()))?;
        if !few || drawn.fitting.len() >= Fitting::MOST {
            return Ok(drawn);
        }
        Drawn::from_part(&self.read(&self.rows(all)?), wanted, Some(whole))
    }

    fn parts(&self, wanted: &Wanted<'_>) -> Result<Parts, Failure> {
        let whole = self.survey(wanted.who)?;
        let rows = match wanted.screen {
            Some(screen) => self.rows(screen)?,
            None => Vec::new(),
        };
        Ok(self.read(&rows).parts(wanted)?.of(whole))
    }

    fn count(&self, proposal: &Proposal) -> Result<Evidence, Failure> {
        let json = serde_json::to_string(proposal).map_err(damaged)?;
        let mut sum: Option<Evidence> = None;
        for part in self.texts("count", &json)? {
            let part: Evidence = serde_json::from_str(&part).map_err(damaged)?;
            let refuse = |e: EvidenceError| Failure::Value(e.to_string());
            match &mut sum {
                None => sum = Some(part),
                Some(sum) => sum.add(&part).map_err(refuse)?,
            }
        }
        sum.ok_or_else(|| Failure::Value(EvidenceError::None.to_string()))
    }
}

/// Finds a rule for traces on a cluster. `fit` and `screen` are other traces to fit to
/// and to screen on.
#[pyfunction]
pub(crate) fn calibrate_cluster(
    py: Python<'_>,
    traces: Py<PyAny>,
    fit: Option<Py<PyAny>>,
    screen: Option<Py<PyAny>>,
    options: Options,
) -> PyResult<Found> {
    let plan = options.plan(fit.is_some(), screen.is_some())?;
    let calibrated = py.detach(|| {
        let (traces, fit, screen) = (
            Cluster::new(traces, plan.terms()),
            fit.map(|fit| Cluster::new(fit, plan.terms())),
            screen.map(|screen| Cluster::new(screen, plan.terms())),
        );
        plan.calibrate(Inputs {
            fit: fit.as_ref(),
            screen: screen.as_ref(),
            ..Inputs::one(&traces)
        })
    })?;
    Ok(found(calibrated))
}
