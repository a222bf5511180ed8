//! Trace files, and Arrow's bytes from other libraries.

use std::path::PathBuf;

use haltwise::terms::LABEL;
use haltwise::traces::Trace;
use haltwise_io::{Columns, Format, Layout, TraceWriter, WriteOptions, visit_bytes, visit_traces};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::Arrays;
use crate::failure::{Failure, unread, unwritten};

/// Further columns to read, in Python's words.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Asked {
    by: Option<String>,
    unit: Option<String>,
    weight: Option<String>,
    cost: Option<String>,
    losses: bool,
    regression: bool,
}

impl Asked {
    fn columns(&self) -> Columns {
        Columns {
            group: self.by.clone(),
            unit: self.unit.clone(),
            weight: self.weight.clone(),
            costs: self.cost.clone(),
            losses: self.losses,
            numbers: self.regression,
            ..Columns::default()
        }
    }
}

/// Rows as they come, one after the other.
#[derive(Default)]
struct Gathered {
    /// -1 if a label is missing.
    labels: Vec<i64>,
    /// Whether classes are predicted.
    predicts: bool,
    numbers: Vec<f32>,
    truth: Vec<f32>,
    losses: Vec<f32>,
    groups: Vec<String>,
    units: Vec<String>,
    weights: Vec<f64>,
    costs: Vec<f32>,
    predictions: Vec<u32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    lengths: Vec<u32>,
    ids: Vec<String>,
    /// Whether the scores were given, or were computed from the probabilities.
    scores_given: bool,
    /// How many probabilities a step has.
    classes: Option<usize>,
}

impl Gathered {
    fn add(&mut self, row: &Trace<'_>) -> Result<(), String> {
        let classes = row.classes();
        match self.classes {
            Some(before) if before != classes => {
                return Err(format!(
                    "there are {classes} probabilities per step, but {before} in the rows before"
                ));
            }
            _ => self.classes = Some(classes),
        }
        self.scores_given = row.given_scores().is_some();
        self.labels.push(row.label().map_or(-1, i64::from));
        self.predicts = row.predicts();
        if let Some(numbers) = row.numbers() {
            self.numbers.extend_from_slice(numbers.predictions);
            self.truth.push(numbers.label);
        }
        self.losses
            .extend_from_slice(row.losses().unwrap_or_default());
        let about = row.about();
        self.groups.extend(about.group.map(str::to_owned));
        self.units.extend(about.unit.map(str::to_owned));
        self.weights.extend(about.weight);
        self.costs
            .extend_from_slice(about.costs.unwrap_or_default());
        self.predictions.extend_from_slice(row.predictions());
        self.scores.extend_from_slice(row.scores());
        self.probs
            .extend_from_slice(row.probs().unwrap_or_default());
        self.lengths.push(row.len() as u32);
        self.ids.extend(row.id().map(str::to_string));
        Ok(())
    }

    /// The arguments for a `haltwise.Traces`.
    fn into_arguments<'py>(
        self,
        py: Python<'py>,
        classes: Vec<String>,
        asked: &Asked,
    ) -> PyResult<Bound<'py, PyDict>> {
        let arguments = PyDict::new(py);
        let (n, t_max) = (self.labels.len(), longest(&self.lengths));
        let width = self.classes.unwrap_or(0);
        if self.predicts {
            let predictions = padded(self.predictions, &self.lengths, 1)?;
            let predictions: Bound<'_, PyArray1<u32>> = predictions.into_pyarray(py);
            let predictions: Bound<'_, PyArray2<u32>> = predictions.reshape([n, t_max])?;
            arguments.set_item("predictions", predictions)?;
        }
        let per_step = |values: Vec<f32>| -> PyResult<Bound<'py, PyArray2<f32>>> {
            let values = padded(values, &self.lengths, 1)?.into_pyarray(py);
            values.reshape([n, t_max])
        };
        if asked.regression {
            arguments.set_item("predictions", per_step(self.numbers)?)?;
            arguments.set_item("regression", true)?;
        }
        if asked.losses {
            arguments.set_item("losses", per_step(self.losses)?)?;
        }
        let columns = PyDict::new(py);
        if let Some(name) = asked.by.as_ref().filter(|name| *name != LABEL) {
            columns.set_item(name, self.groups)?;
        }
        if let Some(name) = &asked.unit {
            columns.set_item(name, self.units)?;
        }
        if let Some(name) = &asked.weight {
            columns.set_item(name, self.weights.into_pyarray(py))?;
        }
        if let Some(name) = &asked.cost {
            columns.set_item(name, per_step(self.costs)?)?;
        }
        arguments.set_item("columns", columns)?;
        if self.scores_given || width == 0 {
            let scores = padded(self.scores, &self.lengths, 1)?.into_pyarray(py);
            let scores: Bound<'_, PyArray2<f32>> = scores.reshape([n, t_max])?;
            arguments.set_item("scores", scores)?;
        }
        if width > 0 {
            let probs = padded(self.probs, &self.lengths, width)?.into_pyarray(py);
            let probs: Bound<'_, PyArray3<f32>> = probs.reshape([n, t_max, width])?;
            arguments.set_item("probs", probs)?;
        }
        if self.lengths.iter().any(|&l| l as usize != t_max) {
            arguments.set_item("lengths", self.lengths.into_pyarray(py))?;
        }
        if !self.ids.is_empty() {
            arguments.set_item("ids", self.ids)?;
        }
        if !classes.is_empty() {
            arguments.set_item("classes", classes)?;
        }
        if asked.regression {
            arguments.set_item("labels", self.truth.into_pyarray(py))?;
        } else if self.labels.iter().any(|&label| label >= 0) {
            arguments.set_item("labels", self.labels.into_pyarray(py))?;
        }
        Ok(arguments)
    }
}

fn longest(lengths: &[u32]) -> usize {
    lengths.iter().copied().max().unwrap_or(0) as usize
}

/// Rows of `width` values per step, each filled up with zeros to the longest.
fn padded<T: Copy + Default>(values: Vec<T>, lengths: &[u32], width: usize) -> PyResult<Vec<T>> {
    let row = longest(lengths) * width;
    if lengths.len() * row == values.len() {
        return Ok(values);
    }
    let mut all = Vec::new();
    let cells = lengths.len().saturating_mul(row);
    all.try_reserve_exact(cells).map_err(|_| {
        PyMemoryError::new_err(format!(
            "{} sequences padded to the longest, {} steps, do not fit into memory",
            lengths.len(),
            longest(lengths)
        ))
    })?;
    let mut rest = &values[..];
    for (i, &length) in lengths.iter().enumerate() {
        let (sequence, after) = rest.split_at(length as usize * width);
        all.extend_from_slice(sequence);
        all.resize((i + 1) * row, T::default());
        rest = after;
    }
    Ok(all)
}

/// Reads trace files as one set. `progress` gets the bytes done and the bytes in all.
#[pyfunction]
pub(crate) fn read_traces(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    asked: Asked,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let (mut gathered, columns) = (Gathered::default(), asked.columns());
    let read = py.detach(|| {
        // An exception that Python raised in `progress`, such as Ctrl-C.
        let raised = std::cell::RefCell::new(None);
        let mut tell = |done: u64, total: u64| {
            let told = Python::attach(|py| {
                py.check_signals()?;
                match &progress {
                    Some(progress) => progress.call1(py, (done, total)).map(drop),
                    None => Ok(()),
                }
            });
            if let Err(error) = told {
                raised.replace(Some(error));
            }
        };
        let mut visit = |row: &Trace<'_>| match &*raised.borrow() {
            Some(_) => Err("interrupted".to_string()),
            None => gathered.add(row),
        };
        let read = visit_traces(&paths, &columns, &mut tell, &mut visit);
        match raised.into_inner() {
            Some(error) => Err(Failure::Python(error)),
            None => read.map_err(|e| Failure::Python(unread(e))),
        }
    });
    gathered.into_arguments(py, read?, &asked)
}

/// Reads an Arrow stream in memory. Messages call it `name`.
#[pyfunction]
pub(crate) fn read_arrow<'py>(
    py: Python<'py>,
    name: &str,
    bytes: &[u8],
    asked: Asked,
) -> PyResult<Bound<'py, PyDict>> {
    let (mut gathered, columns) = (Gathered::default(), asked.columns());
    let read = py.detach(|| {
        let mut add = |row: &Trace<'_>| gathered.add(row);
        visit_bytes(name, Format::Arrow, bytes, &columns, &mut add)
    });
    gathered.into_arguments(py, read.map_err(unread)?, &asked)
}

/// Writes a trace file, whole or not at all.
#[pyfunction]
pub(crate) fn write_traces(
    py: Python<'_>,
    path: PathBuf,
    traces: Arrays<'_>,
    per_step: bool,
) -> PyResult<()> {
    let views = traces.views()?;
    let layout = match per_step {
        true => Layout::PerStep,
        false => Layout::PerSequence,
    };
    let options = WriteOptions {
        layout,
        ..WriteOptions::default()
    };
    py.detach(|| {
        let mut writer = TraceWriter::create(&path, options).map_err(unwritten)?;
        views.visit(&mut |row| writer.write(row.given()).map_err(|e| e.to_string()))?;
        writer.finish().map_err(unwritten)?;
        Ok(())
    })
}
