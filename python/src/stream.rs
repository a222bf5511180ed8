//! One sequence as it arrives.

use haltwise::{Decision, Score};
use pyo3::prelude::*;

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
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (rule, steps = 0, halted = false))]
    fn new(rule: Py<Rule>, steps: u32, halted: bool) -> Self {
        Self {
            rule,
            steps,
            halted,
        }
    }

    /// Takes the score of the next step; true once the stream has halted.
    fn observe(&mut self, score: f32) -> PyResult<bool> {
        let score = Score::try_from(score).map_err(value_error)?;
        Ok(self.step(|stream| stream.observe(score)))
    }

    /// Counts a step whose score is missing: it cannot halt the stream, unless
    /// it is the last.
    fn skip(&mut self) -> bool {
        self.step(|stream| stream.skip())
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

    fn __getnewargs__(&self, py: Python<'_>) -> (Py<Rule>, u32, bool) {
        (self.rule.clone_ref(py), self.steps, self.halted)
    }
}

impl Stream {
    fn step(&mut self, take: impl FnOnce(&mut haltwise::Stream<'_>) -> Decision) -> bool {
        if !self.halted {
            let mut stream = haltwise::Stream::resume(&self.rule.get().0, self.steps);
            self.halted = take(&mut stream) == Decision::Halt;
            self.steps = stream.steps();
        }
        self.halted
    }
}
