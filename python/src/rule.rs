//! A rule: applied to arrays, evaluated, stored.

use haltwise::Decision;
use haltwise::evaluate::Stretches;
use haltwise::plan::Word;
use haltwise_io::{in_stretches, parse_rule, rule_json, write_rule};
use haltwise_report::words;
use numpy::ndarray::Ix2;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ops::Range;
use std::path::PathBuf;

use crate::arrays::{Arrays, Floats};
use crate::failure::{Failure, check_signals, unwritten, value_error};

#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Rule(pub(crate) haltwise::Rule);

#[pymethods]
impl Rule {
    /// Reads the bytes of a rule file.
    #[new]
    fn new(bytes: &[u8]) -> PyResult<Self> {
        parse_rule(bytes).map(Self).map_err(value_error)
    }

    /// The text of a rule file.
    fn json(&self) -> PyResult<String> {
        rule_json(&self.0).map_err(value_error)
    }

    /// Writes a rule file, whole or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        write_rule(&path, &self.0).map_err(unwritten)
    }

    /// One threshold per step, ∞ for never.
    fn thresholds<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.0.thresholds().values().to_vec().into_pyarray(py)
    }

    /// Whether the rule ever halts a sequence before its end.
    fn halts_early(&self) -> bool {
        self.0.halts_early()
    }

    /// The step, counted from 1, at which each row of scores halts.
    #[pyo3(signature = (scores, lengths, groups = None))]
    fn halt<'py>(
        &self,
        py: Python<'py>,
        scores: Floats<'py, Ix2>,
        lengths: Option<PyReadonlyArray1<'py, u32>>,
        groups: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        if self.0.source().learned().is_some() {
            return Err(value_error(
                "the rule judges a learned score, which is computed from the class probabilities \
                 (or predictions) and the scores it was fitted to; give those",
            ));
        }
        let scores = scores.view();
        let lengths = lengths.as_ref().map(|lengths| lengths.as_array());
        let (rows, steps) = (scores.shape()[0], scores.shape()[1]);
        if let Some(lengths) = &lengths {
            if lengths.len() != rows {
                let found = lengths.len();
                return Err(value_error(format_args!(
                    "{rows} rows of scores but {found} lengths"
                )));
            }
            if let Some(i) = lengths.iter().position(|&l| l == 0 || l as usize > steps) {
                return Err(value_error(format_args!(
                    "row {}, lengths: {} is not between 1 and {steps}",
                    i + 1,
                    lengths[i]
                )));
            }
        }
        if let Some(groups) = groups.as_ref().filter(|groups| groups.len() != rows) {
            let found = groups.len();
            return Err(value_error(format_args!(
                "{rows} rows of scores but {found} groups"
            )));
        }
        let group = |i: usize| groups.as_ref().map(|groups| &*groups[i]);
        let length = |i: usize| {
            lengths
                .as_ref()
                .map_or(steps, |lengths| lengths[i] as usize)
        };
        let of_rows = |halts: &mut Vec<(usize, Vec<i64>)>, rows: Range<usize>| {
            let (start, mut buffer) = (rows.start, Vec::new());
            let halt = |i| self.halt_row(i, group(i), scores.row(i, length(i), &mut buffer));
            let found = rows.map(halt).collect::<Result<_, Failure>>()?;
            halts.push((start, found));
            Ok::<(), Failure>(())
        };
        let mut going_on = || Ok(check_signals()?);
        let found = py.detach(|| in_stretches(rows, &mut going_on, Vec::new, of_rows))?;
        let mut found = found.concat();
        found.sort_unstable_by_key(|(start, _)| *start);
        let halts: Vec<i64> = found.into_iter().flat_map(|(_, halts)| halts).collect();
        Ok(halts.into_pyarray(py))
    }

    /// The same for the classifier's outputs; the rule computes its score from them.
    fn halt_traces<'py>(
        &self,
        py: Python<'py>,
        traces: Arrays<'py>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let views = traces.views()?;
        let halted = py.detach(|| {
            views.visit_all(Vec::new, |halts, position, row| {
                self.check_length(row.len())?;
                let mut state = self.0.begin_of(row);
                for step in row.steps() {
                    let decision = self.0.observe(&mut state, &step);
                    if decision.map_err(|e| e.to_string())? != Decision::Continue {
                        break;
                    }
                }
                halts.push((position, i64::from(state.steps())));
                Ok(())
            })
        })?;
        let mut halts = vec![0; halted.iter().map(Vec::len).sum()];
        for (position, step) in halted.into_iter().flatten() {
            halts[position as usize] = step;
        }
        Ok(halts.into_pyarray(py))
    }

    /// What to say about a stream of this group that is read to its end although nobody asked
    /// for that.
    #[pyo3(signature = (group))]
    fn unexpected_group(&self, group: Option<&str>) -> Option<String> {
        self.0.unexpected_group(group)
    }

    /// The promise, in words.
    fn describe(&self) -> String {
        words::promise(&self.0)
    }

    /// The name of the score that the rule judges.
    fn score(&self) -> &'static str {
        self.0.source().kind().word()
    }

    /// What the rule does to traces, as JSON, and what the user should check.
    fn evaluate(&self, py: Python<'_>, traces: Arrays<'_>) -> PyResult<(String, Vec<String>)> {
        let views = traces.views()?;
        let rule = &self.0;
        let found = py.detach(|| {
            let seen = views.visit_all(
                || Stretches::new(rule),
                |seen, position, trace| seen.push(position, trace).map_err(|e| e.to_string()),
            );
            let seen = seen.map_err(|failure| {
                failure.within(&format!(
                    "the rule judges a score that is {}",
                    rule.source()
                ))
            })?;
            Stretches::finish(rule, seen).map_err(|e| Failure::Value(e.to_string()))
        })?;
        let json = serde_json::to_string(&found.evaluation).map_err(value_error)?;
        let warnings = found.warnings.iter().map(ToString::to_string);
        Ok((json, warnings.collect()))
    }

    /// Why no more was certified, and what would help. `None` if no test failed.
    fn shortfall(&self) -> Option<String> {
        words::shortfall(&self.0)
    }

    /// What the rule saves and costs on the certifying traces, in words.
    fn expectation(&self) -> String {
        words::expectation(&self.0)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>,)> {
        Ok((PyBytes::new(py, self.json()?.as_bytes()),))
    }
}

impl Rule {
    fn check_length(&self, steps: usize) -> Result<(), String> {
        let t_max = self.0.t_max();
        if steps <= t_max || self.0.reads_on() {
            return Ok(());
        }
        Err(format!(
            "the sequence has {steps} steps, but the rule was calibrated for {t_max} at the most; \
             calibrate on traces of that length"
        ))
    }

    fn halt_row(&self, i: usize, group: Option<&str>, scores: &[f32]) -> Result<i64, Failure> {
        let length = self.check_length(scores.len());
        length.map_err(|e| format!("row {}: {e}", i + 1))?;
        let halt = self.0.halt_step(group, scores);
        let step = halt.map_err(|(t, e)| format!("row {}, step {t}: {e}", i + 1))?;
        Ok(step as i64)
    }
}
