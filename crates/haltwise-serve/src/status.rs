//! The status of a rule. Parts of it take long to compute when many audits wait, so it is
//! copied from the state in parts: no holder of the state walks over all audits.

use std::ops::Deref;

use haltwise::monitor::Verdict;
use serde::Serialize;

use crate::log_record::Totals;
use crate::rule_state::{PART, RuleState};

/// The most ids that are told to want a label.
const MOST_WANTED: usize = 100;

/// The answer to `status`.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Which rule this is, counted from 1: each renewal is one more.
    pub renewal: u32,
    /// Open streams that have not halted.
    pub open: usize,
    /// Streams that have halted and not said that they are over.
    pub halted: usize,
    /// Whether streams are read to their end because of an alarm.
    pub reading_on: bool,
    /// When the alarm was raised, in milliseconds since 1970.
    pub alarm_time: Option<u64>,
    /// The delta that the next rule must be calibrated with, at the most.
    pub next_delta: f64,
    /// How many audited streams wait for a label.
    pub waiting: usize,
    /// What happened so far.
    pub totals: Totals,
    /// How many streams halted at each step, from 1; the last for all after it.
    pub halted_at: Vec<u64>,
    /// What the monitor says; `None` if the rule promises nothing.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// The ids most worth a label.
    pub labels_wanted: Vec<serde_json::Value>,
    /// The groups that are watched, in the order of `worst_group`; none where all
    /// streams are watched together.
    pub groups: Vec<String>,
    /// Whether each stream must say of which unit it is.
    pub by_unit: bool,
    /// What the rule tolerates.
    pub alpha: f64,
    /// The most steps that the rule was calibrated on.
    pub t_max: usize,
    /// After how many steps the rule halts on average, as far as that was measured.
    pub expected_t_avg: Option<f64>,
    /// The e-value at which an alarm is raised; `None` if nothing is watched.
    pub alarm_line: Option<f64>,
}

/// Works out what is told of a state. `hold` gives the state for as long as it takes to look at
/// a part of it.
pub(crate) fn status<D: Deref<Target = RuleState>>(mut hold: impl FnMut() -> D) -> Status {
    let state = hold();
    let (mut status, monitor) = (brief(&state), state.monitor().cloned());
    drop(state);
    let Some(monitor) = monitor else {
        return status;
    };
    let worth = monitor.worth_of_labels();
    let mut wanted: Vec<(Box<str>, f64)> = Vec::new();
    let mut from = Some(0);
    while let Some(age) = from {
        let state = hold();
        let mut audits = state.unlabelled_audits().since(age);
        for (_, id, waiting) in audits.by_ref().take(PART) {
            if let Some(pending) = waiting.pending.as_ref().filter(|_| waiting.wants_label()) {
                wanted.push((id.into(), worth.of(pending)));
            }
        }
        from = audits.next().map(|(age, ..)| age);
    }
    status.verdict = Some(monitor.verdict());
    status.labels_wanted = most_wanted(&wanted);
    status
}

/// What takes no time to tell.
fn brief(state: &RuleState) -> Status {
    let rule = state.rule();
    Status {
        renewal: state.renewal(),
        open: state.open(),
        halted: state.halted(),
        reading_on: state.reading_on(),
        alarm_time: state.alarm_at(),
        next_delta: state.next_delta(),
        waiting: state.unlabelled_audits().len(),
        totals: state.totals(),
        halted_at: state.halted_at().to_vec(),
        verdict: None,
        labels_wanted: Vec::new(),
        groups: rule.halting_groups().to_vec(),
        by_unit: rule.terms().unit.is_some(),
        alpha: rule.alpha().get(),
        t_max: rule.t_max(),
        expected_t_avg: rule.expected().map(|expected| expected.t_avg),
        alarm_line: state.monitor().map(|m| 1.0 / m.watch().delta().get()),
    }
}

/// The ids of those whose label is worth the most.
fn most_wanted(wanted: &[(Box<str>, f64)]) -> Vec<serde_json::Value> {
    // Ties by id, so that the same state says the same.
    let first = |&a: &usize, &b: &usize| {
        let by_id = || wanted[a].0.cmp(&wanted[b].0);
        wanted[b].1.total_cmp(&wanted[a].1).then_with(by_id)
    };
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    if order.len() > MOST_WANTED {
        order.select_nth_unstable_by(MOST_WANTED, first);
        order.truncate(MOST_WANTED);
    }
    order.sort_unstable_by(first);
    let json = |i: usize| serde_json::from_str(&wanted[i].0).unwrap_or_default();
    order.into_iter().map(json).collect()
}
