//! One sequence as it arrives.

use haltwise::{Decision, Reason, State, Step};
use numpy::ndarray::Ix1;
use pyo3::prelude::*;

use crate::arrays::Floats;
use crate::failure::value_error;
use crate::rule::Rule;

/// One sequence as it arrives, judged by a rule. `Rule.stream` makes it. A halted
/// stream stays halted. If all sequences that the rule was calibrated on had one
/// length, the stream halts there. Otherwise, past the longest of them, it is read
/// to its end.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Stream {
    rule: Py<Rule>,
    state: State,
}

#[pymethods]
impl Stream {
    #[new]
    #[pyo3(signature = (rule, state = None, group = None))]
    fn new(rule: Py<Rule>, state: Option<&str>, group: Option<&str>) -> PyResult<Self> {
        let state = match state {
            Some(state) => serde_json::from_str(state).map_err(value_error)?,
            None => rule.get().0.begin(group),
        };
        Ok(Self { rule, state })
    }

    /// Takes what the classifier said at the next step. Returns whether the stream
    /// has halted. If you give a score alone, it must be the score that the rule
    /// judges. A learned score is computed from the class probabilities and, if it
    /// was fitted to one, the classifier's own score.
    #[pyo3(signature = (score = None, *, probs = None, prediction = None))]
    fn observe(
        &mut self,
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
        let decision = self.rule.get().0.observe(&mut self.state, &step);
        Ok(decision.map_err(value_error)? != Decision::Continue)
    }

    /// Counts a step without a score. It cannot halt the stream, unless the rule
    /// halts all streams there.
    fn skip(&mut self) -> bool {
        self.rule.get().0.skip(&mut self.state) != Decision::Continue
    }

    /// Ends the stream. Returns why it halted, as `reason` does.
    fn end(&mut self) -> String {
        self.state.end().to_string()
    }

    /// How many steps the stream has seen, up to its halt.
    #[getter]
    fn steps(&self) -> u32 {
        self.state.steps()
    }

    /// Whether it has halted.
    #[getter]
    fn halted(&self) -> bool {
        self.state.halted()
    }

    /// Why it halted: "threshold" (its score reached the threshold), "last-step" (the
    /// rule has no more steps) or "end". None while it runs.
    #[getter]
    fn reason(&self) -> Option<String> {
        self.state.reason().as_ref().map(Reason::to_string)
    }

    fn __getnewargs__(&self, py: Python<'_>) -> PyResult<(Py<Rule>, String)> {
        let state = serde_json::to_string(&self.state).map_err(value_error)?;
        Ok((self.rule.clone_ref(py), state))
    }
}
