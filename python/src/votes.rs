//! Votes as traces.

use haltwise::votes::VoteTrace;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::failure::{Failure, value_error};

type Arrays<'py> = (
    Bound<'py, PyArray2<f32>>,
    Bound<'py, PyArray2<u32>>,
    Bound<'py, PyArray1<u32>>,
);

/// The scores, predictions and labels of votes. Every question has the same number of votes.
#[pyfunction]
#[pyo3(signature = (answers, labels))]
pub(crate) fn count_votes<'py>(
    py: Python<'py>,
    answers: Vec<Vec<String>>,
    labels: Option<Vec<String>>,
) -> PyResult<Arrays<'py>> {
    let (n, samples) = (answers.len(), answers.first().map_or(0, Vec::len));
    let (mut scores, mut predictions, mut classes) = (Vec::new(), Vec::new(), Vec::new());
    py.detach(|| {
        for (i, votes) in answers.iter().enumerate() {
            let right = labels.as_ref().and_then(|labels| labels.get(i));
            let votes = votes.iter().map(String::as_str);
            let trace = VoteTrace::new(votes, right.map(String::as_str));
            let trace = trace.map_err(|e| Failure::Value(format!("question {}: {e}", i + 1)))?;
            scores.extend(trace.scores);
            predictions.extend(trace.predictions);
            classes.push(trace.label);
        }
        Ok::<_, Failure>(())
    })?;
    if scores.len() != n * samples {
        return Err(value_error(
            "not all questions have the same number of votes",
        ));
    }
    Ok((
        scores.into_pyarray(py).reshape([n, samples])?,
        predictions.into_pyarray(py).reshape([n, samples])?,
        classes.into_pyarray(py),
    ))
}
