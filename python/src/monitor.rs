//! Whether a rule in use still keeps its promise.

use std::collections::HashMap;

use haltwise::monitor::{self, Auditor, Pending, Running, UnitKey, Watch};
use haltwise::plan::Delta;
use haltwise_report::words;
use pyo3::prelude::*;

use crate::arrays::Arrays;
use crate::failure::value_error;
use crate::rule::Rule;

/// The test of a rule's promise. Audits have ids.
#[pyclass(module = "haltwise._core")]
pub(crate) struct Monitor {
    auditor: Auditor,
    inner: monitor::Monitor,
    /// `None` for a stream that cannot count any more in its unit.
    running: HashMap<String, Option<Running>>,
    pending: HashMap<String, Option<Pending>>,
}

#[pymethods]
impl Monitor {
    #[new]
    fn new(rule: Py<Rule>, delta: f64, servers: u32) -> PyResult<Self> {
        let delta = Delta::try_from(delta).map_err(value_error)?;
        let rule = &rule.get().0;
        let watch = Watch::of(rule, delta).ok_or_else(|| {
            value_error(format_args!(
                "there is no promise to watch: {}",
                words::NOT_WATCHED
            ))
        })?;
        Ok(Self {
            auditor: Auditor::new(rule.clone()),
            inner: monitor::Monitor::new(watch.shared_by(servers)),
            running: HashMap::new(),
            pending: HashMap::new(),
        })
    }

    /// Takes complete audits, in the order in which they began.
    fn add(&mut self, py: Python<'_>, traces: Arrays<'_>) -> PyResult<()> {
        let views = traces.views()?;
        let (auditor, inner) = (&mut self.auditor, &mut self.inner);
        py.detach(|| {
            views.visit(&mut |trace| {
                // Sequences that the rule's weights leave out do not count.
                if let Some(found) = auditor.audit(trace).map_err(|e| e.to_string())? {
                    // Without its label, the outcome stays unknown.
                    let _waiting = inner.take(&found);
                }
                Ok(())
            })
        })?;
        Ok(())
    }

    /// An audited stream begins. It needs a group if the promise is by group, and a
    /// unit if the promise is by unit.
    #[pyo3(signature = (id, group=None, unit=None))]
    fn begin(&mut self, id: String, group: Option<&str>, unit: Option<&str>) -> PyResult<()> {
        if self.running.contains_key(&id) || self.pending.contains_key(&id) {
            return Err(value_error(format_args!(
                "the audit {id:?} has begun before"
            )));
        }
        let rule = self.auditor.rule();
        let groups = rule.halting_groups();
        let place = match group {
            _ if groups.is_empty() => 0,
            None => {
                return Err(value_error(format_args!(
                    "the promise is by group: give group=, one of {groups:?}"
                )));
            }
            Some(group) => groups.iter().position(|g| g == group).ok_or_else(|| {
                value_error(if rule.groups().iter().any(|g| g == group) {
                    format!(
                        "the rule reads the group {group:?} to the end, where nothing is lost: leave \
                         its streams out; it halts {groups:?}"
                    )
                } else {
                    format!("the rule promises nothing to the group {group:?}, only to {groups:?}")
                })
            })?,
        };
        let block = self.inner.next_block();
        let running = match unit {
            Some(unit) if self.inner.watch().is_by_unit() => {
                self.inner.begin_of_unit(block, place, UnitKey::new(unit))
            }
            None if self.inner.watch().is_by_unit() => {
                return Err(value_error("the promise is about units: give unit="));
            }
            _ => self.inner.begin(block, place),
        };
        self.running.insert(id, running);
        Ok(())
    }

    /// No more streams begin in the units so far.
    fn close_units(&mut self) {
        self.inner.close_units(u64::MAX);
    }

    /// How many units are not closed.
    fn open_units(&self) -> usize {
        self.inner.open_units()
    }

    /// An audited stream halts at step `t`, counted from 1.
    fn halt(&mut self, id: &str, t: u32) -> PyResult<()> {
        let running = self.running.remove(id).ok_or_else(|| {
            value_error(format_args!(
                "no audit {id:?} is running; say that it begins first"
            ))
        })?;
        let pending = running.map(|running| self.inner.halt(running, t).0);
        self.pending.insert(id.to_owned(), pending);
        Ok(())
    }

    /// Says whether halting cost a right answer.
    fn settle(&mut self, id: &str, gap: bool) -> PyResult<()> {
        let pending = self.pending.remove(id).ok_or_else(|| {
            value_error(format_args!(
                "no audit {id:?} has halted and is not settled"
            ))
        })?;
        if let Some(pending) = pending {
            self.inner.settle(pending, gap);
        }
        Ok(())
    }

    /// The ids whose labels are wanted, the most informative first.
    fn labels_wanted(&self) -> Vec<String> {
        let counting = self.pending.iter();
        let counting = counting.filter_map(|(id, pending)| Some((id, pending.as_ref()?)));
        let (ids, pending): (Vec<&String>, Vec<&Pending>) = counting.unzip();
        let worth = self.inner.worth(pending);
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by(|&a, &b| worth[b].total_cmp(&worth[a]).then(ids[a].cmp(ids[b])));
        order.into_iter().map(|i| ids[i].clone()).collect()
    }

    /// The present verdict, as JSON.
    fn verdict(&self) -> PyResult<String> {
        serde_json::to_string(&self.auditor.verdict(&self.inner)).map_err(value_error)
    }

    /// A doubt whether the labels number the classes as the predictions do.
    fn label_doubt(&self) -> Option<String> {
        let doubt = self.auditor.label_doubt()?;
        Some(format!(
            "{doubt}. With such labels the monitor sees no loss, so this test means nothing"
        ))
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
