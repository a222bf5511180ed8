//! A rule: applied to arrays, evaluated, stored.

use haltwise::{Counts, Decision, Score, Stream, Traces, halted_needed};
use haltwise_io::{parse_rule, rule_json, write_rule};
use numpy::ndarray::Ix2;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::PathBuf;

use crate::arrays::{self, Arrays, Floats, FloatsView};
use crate::failure::{os_error, value_error};

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
        write_rule(&path, &self.0).map_err(os_error)
    }

    /// One threshold per step, ∞ for never.
    fn thresholds<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.0.thresholds().values().to_vec().into_pyarray(py)
    }

    /// Whether any sequence is halted before its end.
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
                    "row {}, lengths: {} is not one of 1 to {steps}",
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

    /// What the rule does to traces, as JSON; and whether it was made from
    /// these very traces, so that the results flatter it.
    fn evaluate(&self, py: Python<'_>, traces: Arrays<'_>) -> PyResult<(String, bool)> {
        let traces = arrays::traces(py, &traces)?;
        if traces.source() != self.0.source() {
            return Err(value_error(format_args!(
                "the rule judges a score that is {}, but the score of these traces is {}",
                self.0.source(),
                traces.source()
            )));
        }
        let evaluation = py
            .detach(|| haltwise::evaluate(self.0.thresholds(), &traces))
            .map_err(value_error)?;
        let json = serde_json::to_string(&evaluation).map_err(value_error)?;
        Ok((json, self.made_from(&traces)))
    }

    /// About how many sequences must have halted for the test that failed to
    /// pass; `None` where none failed or no number would do.
    fn halted_needed(&self) -> Option<u64> {
        let failed = self.0.trail().last().filter(|test| !test.rejected)?;
        let seen = Counts {
            halted: failed.halted,
            gaps: failed.gaps,
        };
        halted_needed(seen, self.0.alpha(), self.0.delta())
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>,)> {
        Ok((PyBytes::new(py, self.json()?.as_bytes()),))
    }
}

impl Rule {
    fn made_from(&self, traces: &Traces) -> bool {
        let sets = [self.0.screened_on(), self.0.certified_on()];
        let [screened, certified] = sets.map(|set| set.map(|s| s.fingerprint));
        // The two halves of a split, and both together: fingerprints add.
        let both = screened.zip(certified).map(|(a, b)| a + b);
        [screened, certified, both].contains(&Some(traces.fingerprint()))
    }

    fn halt_row(
        &self,
        scores: &FloatsView<'_, Ix2>,
        i: usize,
        steps: usize,
        buffer: &mut Vec<f32>,
    ) -> Result<i64, String> {
        let t_max = self.0.t_max();
        if steps > t_max {
            return Err(format!(
                "row {}: the sequence has {steps} steps, but the rule was calibrated for {t_max} \
                 at the most; calibrate on traces of that length",
                i + 1
            ));
        }
        let mut stream = Stream::new(&self.0);
        for (t, &score) in scores.row(i, steps, buffer).iter().enumerate() {
            let score = Score::try_from(score)
                .map_err(|e| format!("row {}, step {}: {e}", i + 1, t + 1))?;
            if stream.observe(score) == Decision::Halt {
                break;
            }
        }
        Ok(i64::from(stream.steps()))
    }
}
