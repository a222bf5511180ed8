//! Trace files, and Arrow's bytes from other libraries.

use std::path::PathBuf;

use haltwise::traces::Trace;
use haltwise_io::{Format, Layout, TraceWriter, WriteOptions, visit_bytes, visit_traces};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyArrayMethods};
use pyo3::exceptions::PyMemoryError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::Arrays;
use crate::failure::{Failure, unread, unwritten};

/// Rows as they come, one after the other.
#[derive(Default)]
struct Columns {
    labels: Vec<u32>,
    predictions: Vec<u32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    lengths: Vec<u32>,
    ids: Vec<String>,
    /// Whether the scores were given, or follow from the probabilities.
    scores_given: bool,
    /// How many probabilities a step has.
    classes: Option<usize>,
}

impl Columns {
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
        self.labels.push(row.label());
        self.predictions.extend_from_slice(row.predictions());
        self.scores.extend_from_slice(row.scores());
        self.probs
            .extend_from_slice(row.probs().unwrap_or_default());
        self.lengths.push(row.len() as u32);
        self.ids.extend(row.id().map(str::to_string));
        Ok(())
    }

    /// The arguments of a `haltwise.Traces`.
    fn into_arguments(self, py: Python<'_>, classes: Vec<String>) -> PyResult<Bound<'_, PyDict>> {
        let arguments = PyDict::new(py);
        let (n, t_max) = (self.labels.len(), longest(&self.lengths));
        let width = self.classes.unwrap_or(0);
        let predictions = padded(self.predictions, &self.lengths, 1)?;
        let predictions: Bound<'_, PyArray1<u32>> = predictions.into_pyarray(py);
        let predictions: Bound<'_, PyArray2<u32>> = predictions.reshape([n, t_max])?;
        arguments.set_item("predictions", predictions)?;
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
        arguments.set_item("labels", self.labels.into_pyarray(py))?;
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

/// Reads trace files as one set; `progress` is told bytes done and bytes in all.
#[pyfunction]
pub(crate) fn read_traces(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let mut columns = Columns::default();
    let read = py.detach(|| {
        // What Python raised while being told, Ctrl-C first of all.
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
            None => columns.add(row),
        };
        let read = visit_traces(&paths, &mut tell, &mut visit);
        match raised.into_inner() {
            Some(error) => Err(Failure::Python(error)),
            None => read.map_err(|e| Failure::Python(unread(e))),
        }
    });
    columns.into_arguments(py, read?)
}

/// Reads an Arrow stream that is in memory. `name` stands for it in messages.
#[pyfunction]
pub(crate) fn read_arrow<'py>(
    py: Python<'py>,
    name: &str,
    bytes: &[u8],
) -> PyResult<Bound<'py, PyDict>> {
    let mut columns = Columns::default();
    let read = py.detach(|| visit_bytes(name, Format::Arrow, bytes, &mut |row| columns.add(row)));
    columns.into_arguments(py, read.map_err(unread)?)
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
