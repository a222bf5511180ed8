//! A rule: applied to arrays, evaluated, stored.

use haltwise::corridor::Counts;
use haltwise::evaluate::Evaluator;
use haltwise::plan::Delta;
use haltwise::rule::halted_needed;
use haltwise::score::{Score, ScoreSource};
use haltwise::traces::{Key, SetRecord};
use haltwise::{Decision, State};
use haltwise_io::{parse_rule, rule_json, write_rule};
use haltwise_report::words;
use numpy::ndarray::Ix2;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

use crate::arrays::{Arrays, Floats, FloatsView};
use crate::evidence::name_of;
use crate::failure::{Failure, unwritten, value_error};

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
    #[pyo3(signature = (scores, lengths))]
    fn halt<'py>(
        &self,
        py: Python<'py>,
        scores: Floats<'py, Ix2>,
        lengths: Option<PyReadonlyArray1<'py, u32>>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        if matches!(self.0.source(), ScoreSource::Gap(_)) {
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
        let length = |i: usize| {
            lengths
                .as_ref()
                .map_or(steps, |lengths| lengths[i] as usize)
        };
        let halts = py.detach(|| {
            let mut buffer = Vec::new();
            (0..rows)
                .map(|i| self.halt_row(&scores, i, length(i), &mut buffer))
                .collect::<Result<Vec<i64>, String>>()
        });
        Ok(halts.map_err(value_error)?.into_pyarray(py))
    }

    /// The same for the classifier's outputs; the rule computes its score from them.
    fn halt_traces<'py>(
        &self,
        py: Python<'py>,
        traces: Arrays<'py>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let views = traces.views()?;
        let mut halts = Vec::new();
        py.detach(|| {
            views.visit(&mut |row| {
                self.check_length(row.len())?;
                let mut state = State::new();
                for step in row.steps() {
                    let decision = self.0.observe(&mut state, &step);
                    if decision.map_err(|e| e.to_string())? != Decision::Continue {
                        break;
                    }
                }
                halts.push(i64::from(state.steps()));
                Ok(())
            })
        })?;
        Ok(halts.into_pyarray(py))
    }

    /// The promise, in words.
    fn describe(&self) -> String {
        words::promise(&self.0)
    }

    /// The name of the score that the rule judges.
    fn score(&self) -> &'static str {
        name_of(self.0.source())
    }

    /// What the rule does to traces, as JSON; whether it was made from these very
    /// traces, so that the results flatter it; and if not, how many of the sequences
    /// that it remembers are among them.
    fn evaluate(&self, py: Python<'_>, traces: Arrays<'_>) -> PyResult<(String, bool, u64)> {
        let views = traces.views()?;
        let rule = &self.0;
        let (evaluation, set, remembered) = py.detach(|| {
            let mut evaluator = Evaluator::for_rule(rule);
            let (mut set, mut remembered, mut position) = (SetRecord::default(), 0, 0);
            views
                .visit(&mut |trace| {
                    let key = Key::new(trace.id(), position);
                    position += 1;
                    let print = evaluator.push(key, trace).map_err(|e| e.to_string())?;
                    if let Some(print) = print {
                        set += SetRecord::one(print);
                        remembered += u64::from(rule.remembers(print));
                    }
                    Ok(())
                })
                .map_err(|failure| {
                    failure.within(&format!(
                        "the rule judges a score that is {}",
                        rule.source()
                    ))
                })?;
            let evaluation = evaluator.finish();
            let evaluation = evaluation.map_err(|e| Failure::Value(e.to_string()))?;
            Ok::<_, Failure>((evaluation, set, remembered))
        })?;
        let json = serde_json::to_string(&evaluation).map_err(value_error)?;
        Ok((json, rule.made_from(set), remembered))
    }

    /// About how many halted sequences the failed test would need to pass. `None` if no
    /// test failed, or no number is enough.
    fn halted_needed(&self) -> Option<u64> {
        let failed = self.0.trail().last().filter(|test| !test.rejected)?;
        let seen = Counts {
            halted: failed.halted,
            gaps: failed.gaps,
        };
        // Each family is tested at its share of δ.
        let share = self.0.families().last().map_or(1.0, |family| family.share);
        let level = Delta::try_from(self.0.delta().get() * share).ok()?;
        halted_needed(seen, self.0.alpha(), level)
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

    fn halt_row(
        &self,
        scores: &FloatsView<'_, Ix2>,
        i: usize,
        steps: usize,
        buffer: &mut Vec<f32>,
    ) -> Result<i64, String> {
        let length = self.check_length(steps);
        length.map_err(|e| format!("row {}: {e}", i + 1))?;
        let mut state = State::new();
        for (t, &score) in scores.row(i, steps, buffer).iter().enumerate() {
            let score = Score::try_from(score)
                .map_err(|e| format!("row {}, step {}: {e}", i + 1, t + 1))?;
            if self.0.observe_score(&mut state, score) != Decision::Continue {
                break;
            }
        }
        Ok(i64::from(state.steps()))
    }
}
