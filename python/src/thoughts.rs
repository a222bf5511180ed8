//! Thoughts as traces.

use haltwise::thoughts::ThoughtTrace;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::failure::Failure;

type Arrays<'py> = (
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray2<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

/// The scores, predictions, lengths and labels of thoughts. Rows are padded to the longest.
#[pyfunction]
#[pyo3(signature = (answers, labels))]
pub(crate) fn count_thoughts<'py>(
    py: Python<'py>,
    answers: Vec<Vec<String>>,
    labels: Option<Vec<String>>,
) -> PyResult<Arrays<'py>> {
    let n = answers.len();
    let t_max = answers.iter().map(Vec::len).max().unwrap_or(0);
    let (mut scores, mut predictions) = (Vec::new(), Vec::new());
    let (mut lengths, mut classes) = (Vec::new(), Vec::new());
    py.detach(|| {
        for (i, probes) in answers.iter().enumerate() {
            let right = labels.as_ref().and_then(|labels| labels.get(i));
            let probes = probes.iter().map(String::as_str);
            let trace = ThoughtTrace::new(probes, right.map(String::as_str));
            let trace = trace.map_err(|e| Failure::Value(format!("thought {}: {e}", i + 1)))?;
            lengths.push(trace.scores.len() as u32);
            classes.push(trace.label);
            scores.extend(trace.scores);
            predictions.extend(trace.predictions);
            scores.resize((i + 1) * t_max, 0.0);
            predictions.resize((i + 1) * t_max, 0);
        }
        Ok::<_, Failure>(())
    })?;
    Ok((
        scores.into_pyarray(py).reshape([n, t_max])?,
        predictions.into_pyarray(py).reshape([n, t_max])?,
        lengths.into_pyarray(py),
        classes.into_pyarray(py),
    ))
}
