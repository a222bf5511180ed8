//! Whether a rule in use still keeps its promise.

use std::collections::HashMap;

use haltwise::monitor::{self, BLOCK, Pending, Running, Watch};
use haltwise::plan::Delta;
use pyo3::prelude::*;

use crate::arrays::Arrays;
use crate::failure::value_error;
use crate::rule::Rule;

/// The test of a rule's promise, by audits that are told apart by their ids.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Monitor {
    rule: Py<Rule>,
    inner: monitor::Monitor,
    running: HashMap<String, Running>,
    pending: HashMap<String, Pending>,
}

#[pymethods]
impl Monitor {
    #[new]
    fn new(rule: Py<Rule>, delta: f64) -> PyResult<Self> {
        let delta = Delta::try_from(delta).map_err(value_error)?;
        let groups = rule.get().0.groups().len();
        let watch = Watch::of(&rule.get().0, delta).ok_or_else(|| {
            value_error(
                "there is no promise to watch: the rule was screened only, or is about another \
                 loss than gaps and disagreements",
            )
        })?;
        let watch = watch.in_groups(groups);
        Ok(Self {
            rule,
            inner: monitor::Monitor::new(watch),
            running: HashMap::new(),
            pending: HashMap::new(),
        })
    }

    /// Audits of which all is known, in the order in which they began.
    fn add(&mut self, py: Python<'_>, traces: Arrays<'_>) -> PyResult<()> {
        let views = traces.views()?;
        let (rule, inner) = (&self.rule.get().0, &mut self.inner);
        py.detach(|| {
            views.visit(&mut |trace| {
                let found = monitor::audit(rule, trace).map_err(|e| e.to_string())?;
                let running = inner.begin(inner.audits() / BLOCK, found.group);
                let (pending, _alarm) = inner.halt(running, found.step);
                if let Some(loss) = found.loss {
                    inner.settle(pending, loss);
                }
                Ok(())
            })
        })?;
        Ok(())
    }

    /// An audited stream begins.
    fn begin(&mut self, id: String) -> PyResult<()> {
        if self.running.contains_key(&id) || self.pending.contains_key(&id) {
            return Err(value_error(format_args!(
                "the audit {id:?} has begun before"
            )));
        }
        let running = self.inner.begin(self.inner.audits() / BLOCK, 0);
        self.running.insert(id, running);
        Ok(())
    }

    /// An audited stream halts at step `t`, counted from 1.
    fn halt(&mut self, id: &str, t: u32) -> PyResult<()> {
        let running = self.running.remove(id).ok_or_else(|| {
            value_error(format_args!(
                "no audit {id:?} is running; say that it begins first"
            ))
        })?;
        let (pending, _) = self.inner.halt(running, t);
        self.pending.insert(id.to_owned(), pending);
        Ok(())
    }

    /// It is known whether halting cost a right answer.
    fn settle(&mut self, id: &str, gap: bool) -> PyResult<()> {
        let pending = self.pending.remove(id).ok_or_else(|| {
            value_error(format_args!(
                "no audit {id:?} has halted and is not settled"
            ))
        })?;
        self.inner.settle(pending, gap);
        Ok(())
    }

    /// The ids whose outcome would tell the most, the most informative first.
    fn labels_wanted(&self) -> Vec<String> {
        let (ids, pending): (Vec<&String>, Vec<&Pending>) = self.pending.iter().unzip();
        let worth = self.inner.worth(pending);
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by(|&a, &b| worth[b].total_cmp(&worth[a]).then(ids[a].cmp(ids[b])));
        order.into_iter().map(|i| ids[i].clone()).collect()
    }

    /// What is known now, as JSON.
    fn verdict(&self) -> PyResult<String> {
        serde_json::to_string(&self.inner.verdict()).map_err(value_error)
    }

    /// Whether an alarm was raised.
    fn alarm(&self) -> bool {
        self.inner.alarm().is_some()
    }

    /// The evidence against the promise.
    fn e_value(&self) -> f64 {
        self.inner.e_value()
    }
}
