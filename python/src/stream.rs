//! One sequence as it arrives.

use haltwise::{Decision, Memory, Score, ScoreSource, Step};
use numpy::ndarray::Ix1;
use pyo3::prelude::*;

use crate::arrays::Floats;
use crate::failure::value_error;
use crate::rule::Rule;

/// One sequence as it arrives, judged by a rule; made by `Rule.stream`. Once
/// halted it stays halted, and the rule's last step always halts.
// The heart's stream borrows its rule; here the rule is kept alive beside the
// counters, from which the stream goes on each time.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Stream {
    rule: Py<Rule>,
    steps: u32,
    halted: bool,
    memory: Memory,
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (rule, steps = 0, halted = false, memory = None))]
    fn new(rule: Py<Rule>, steps: u32, halted: bool, memory: Option<&str>) -> PyResult<Self> {
        let memory = memory.map(serde_json::from_str).transpose();
        Ok(Self {
            rule,
            steps,
            halted,
            memory: memory.map_err(value_error)?.unwrap_or_default(),
        })
    }

    /// Takes what the classifier said at the next step; true once the stream
    /// has halted. A score alone must be the one that the rule judges; a
    /// learned score is computed from the class probabilities and, where it was
    /// fitted to one, the classifier's own score.
    #[pyo3(signature = (score = None, *, probs = None, prediction = None))]
    fn observe(
        &mut self,
        py: Python<'_>,
        score: Option<f32>,
        probs: Option<Floats<'_, Ix1>>,
        prediction: Option<u32>,
    ) -> PyResult<bool> {
        let probs = probs.map(|probs| probs.view().to_vec());
        let step = Step {
            prediction,
            score,
            probs: probs.as_deref(),
        };
        let rule = self.rule.clone_ref(py);
        let learned = matches!(rule.get().0.source(), ScoreSource::Gap(_));
        match score {
            Some(score) if probs.is_none() && !learned => {
                let score = Score::try_from(score).map_err(value_error)?;
                self.step(|stream| Ok(stream.observe(score)))
            }
            _ => self.step(|stream| stream.observe_step(&step).map_err(value_error)),
        }
    }

    /// Counts a step whose score is missing: it cannot halt the stream, unless
    /// it is the last.
    fn skip(&mut self) -> PyResult<bool> {
        self.step(|stream| Ok(stream.skip()))
    }

    /// How many steps were seen until it halted, or so far.
    #[getter]
    fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether it has halted.
    #[getter]
    fn halted(&self) -> bool {
        self.halted
    }

    fn __getnewargs__(&self, py: Python<'_>) -> PyResult<(Py<Rule>, u32, bool, String)> {
        let memory = serde_json::to_string(&self.memory).map_err(value_error)?;
        Ok((self.rule.clone_ref(py), self.steps, self.halted, memory))
    }
}

impl Stream {
    fn step(
        &mut self,
        take: impl FnOnce(&mut haltwise::Stream<'_>) -> PyResult<Decision>,
    ) -> PyResult<bool> {
        if self.halted {
            return Ok(true);
        }
        let memory = std::mem::take(&mut self.memory);
        let rule = &self.rule.get().0;
        let mut stream = haltwise::Stream::resume(rule, self.steps, memory);
        let decision = take(&mut stream);
        self.steps = stream.steps();
        self.memory = stream.into_memory();
        self.halted = decision? == Decision::Halt;
        Ok(self.halted)
    }
}
