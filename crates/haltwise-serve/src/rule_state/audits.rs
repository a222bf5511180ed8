//! Audited streams, from their begin to the label that settles them.

use haltwise::Rule;
use haltwise::monitor::{Alarm, UnitKey};

use super::lines::answer;
use super::{COSTS, Effects, RuleState};
use crate::audit_trace::{AuditTrace, Names};
use crate::fault::{Fault, FaultKind};
use crate::line::{Line, json_class};
use crate::log_record::{Halt, LogRecord, RunningAudit, UnlabelledAudit};

/// Monitors of all servers count by the same calendar: blocks of ten minutes.
pub(super) const CALENDAR: u64 = 600_000;

/// How long a unit lasts, in blocks: a day from the start of its first stream. A stream that
/// begins later does not count.
pub(super) const UNIT_LASTS: u64 = 144;

/// The most bytes for running audits. When they take more, some are thinned. When that saves too
/// little, those that grow or begin are given up.
pub(super) const MOST_RUNNING: usize = 64 << 20;

/// Thinning looks at all running audits, so it must save this many bytes to be worth it.
const WORTH_THINNING: usize = MOST_RUNNING / 8;

/// The most bytes for audits that wait for a trace file. A log that is a quarter as long as this
/// is rotated, so there are more only if that fails.
pub(crate) const MOST_UNFILED: usize = 128 << 20;

impl RuleState {
    /// An audited stream begins. `of` is its group and its unit.
    pub(super) fn begin_audit(
        &mut self,
        id: &str,
        now: u64,
        of: (Option<String>, Option<String>),
        effects: &mut Effects,
    ) {
        let (group, unit) = of.clone();
        effects.record(&LogRecord::Begin {
            id: id.to_owned(),
            at: now,
            group,
            unit,
        });
        self.apply_begin(id, now, of, effects);
    }

    /// A stream halts.
    pub(super) fn halt_stream(
        &mut self,
        rule: &Rule,
        now: u64,
        mut halt: Halt,
        effects: &mut Effects,
    ) {
        // Audited streams are read to their end.
        if halt.early && !halt.audit && !rule.reads_on() {
            halt.saved = (rule.t_max() as u64).saturating_sub(halt.t.into());
        }
        let go_on = halt.audit && halt.early;
        let answer = answer(&halt.id, halt.t.into(), halt.reason, go_on);
        effects
            .events
            .push(format!("{{\"halt\":{}}}", answer.trim_end()));
        effects.answers += &answer;
        let record = LogRecord::Halt(halt);
        effects.record(&record);
        if let LogRecord::Halt(halt) = record {
            self.apply_halt(&halt, now, effects);
        }
    }

    /// An audited stream is over if it says so, or has all the steps there are.
    pub(super) fn finish_audit_if_over(
        &mut self,
        rule: &Rule,
        now: u64,
        line: &Line<'_>,
        effects: &mut Effects,
    ) {
        let id = &*line.id;
        let Some(audit) = self.running.get(id) else {
            return;
        };
        let t_max = rule.t_max();
        let last = !rule.reads_on() && (audit.trace.len() >= t_max || audit.t as usize >= t_max);
        if audit.t == 0 || !line.end && !last {
            return;
        }
        let steps = audit.trace.len();
        let early = (audit.t as usize) < steps;
        let trace = audit.trace.clone();
        self.finish_audit(id, trace, now, effects);
        if early {
            effects.answers += &format!("{{\"id\":{id},\"t\":{steps},\"audited\":true}}\n");
        }
    }

    /// An audited stream came to its end.
    pub(super) fn finish_audit(
        &mut self,
        id: &str,
        trace: AuditTrace,
        now: u64,
        effects: &mut Effects,
    ) {
        let record = LogRecord::Audited {
            id: id.to_owned(),
            kept: trace,
        };
        effects.record(&record);
        if let LogRecord::Audited { kept: trace, .. } = record {
            self.apply_audited(id, trace, now, effects);
        }
    }

    /// The true class of an audited stream.
    pub(crate) fn label(
        &mut self,
        now: u64,
        id: &str,
        label: &str,
        effects: &mut Effects,
    ) -> Result<(), Fault> {
        let label = json_class(label)
            .map_err(|e| Fault::new(FaultKind::Unusable, e, "give \"label\" as predictions are"))?;
        if !self.running.contains_key(id) && !self.unlabelled.contains(id) {
            let problem = format!("no audited stream {id} waits for a label");
            return Err(Fault::new(
                FaultKind::NotFound,
                problem,
                "label audited streams only, each once; see labels/wanted",
            ));
        }
        effects.record(&LogRecord::Label {
            id: id.to_owned(),
            label: label.clone().into_owned(),
        });
        self.apply_label(id, &label, now, effects);
        Ok(())
    }

    /// A running audit will never come to its end.
    pub(crate) fn lose_audit(&mut self, id: &str, effects: &mut Effects) {
        if self.apply_lost(id) {
            effects.record(&LogRecord::Lost { id: id.to_owned() });
        }
    }

    /// Adds the step of a line to the trace of its stream, if it is audited.
    pub(super) fn add_to_trace(&mut self, line: &Line<'_>, effects: &mut Effects) {
        let id = &*line.id;
        self.change_running(id, |audit| audit.trace.push(line));
        if self.running_bytes <= MOST_RUNNING {
            return;
        }
        self.thin_running();
        if self.running_bytes > MOST_RUNNING {
            // Without a trace it counts as harmless.
            self.totals.thinned += 1;
            self.lose_audit(id, effects);
        }
    }

    /// Changes a running audit, if there is one of this id.
    fn change_running(&mut self, id: &str, change: impl FnOnce(&mut RunningAudit)) {
        if let Some(audit) = self.running.get_mut(id) {
            self.running_bytes -= audit.bytes(id);
            self.whole_bytes -= audit.trace.whole_bytes();
            change(audit);
            self.running_bytes += audit.bytes(id);
            self.whole_bytes += audit.trace.whole_bytes();
        }
    }

    /// Counts the bytes of running audits anew.
    pub(super) fn weigh_running(&mut self) {
        let all = self.running.iter();
        self.running_bytes = all.map(|(id, audit)| audit.bytes(id)).sum();
        let all = self.running.values();
        self.whole_bytes = all.map(|audit| audit.trace.whole_bytes()).sum();
    }

    /// Thins traces of running audits, unless that would save too little.
    fn thin_running(&mut self) {
        if self.whole_bytes < WORTH_THINNING {
            return;
        }
        for (id, audit) in &mut self.running {
            // By a quarter, so that not every step thins some.
            if self.running_bytes <= MOST_RUNNING / 4 * 3 {
                break;
            }
            if !audit.trace.is_thin() {
                self.running_bytes -= audit.bytes(id);
                self.whole_bytes -= audit.trace.whole_bytes();
                audit.trace.thin();
                self.running_bytes += audit.bytes(id);
                self.totals.thinned += 1;
            }
        }
    }

    // The functions that follow do the same live and when the log is read back.

    pub(super) fn apply_begin(
        &mut self,
        id: &str,
        at: u64,
        of: (Option<String>, Option<String>),
        effects: &mut Effects,
    ) {
        let (group, unit) = of;
        let groups = self.rule.halting_groups();
        let place = groups.iter().position(|g| Some(g) == group.as_ref());
        // Past the groups, if an older log does not say which: such a stream is unwatched.
        let (block, place) = (at / CALENDAR, place.unwrap_or(groups.len()));
        let mut alarm = None;
        let running = self.monitor.as_mut().and_then(|monitor| match &unit {
            None => monitor.begin(block, place),
            Some(unit) => {
                let before = block.saturating_sub(UNIT_LASTS);
                if before > self.units_closed {
                    self.units_closed = before;
                    alarm = monitor.close_units(before);
                }
                monitor.begin_of_unit(block, place, UnitKey::new(unit))
            }
        });
        let audit = RunningAudit {
            began: at,
            running,
            trace: AuditTrace::new(group, unit),
            ..RunningAudit::default()
        };
        self.put_running(id, audit);
        self.latest = self.latest.max(at);
        self.alarm(alarm, at, effects);
    }

    /// Forgets a running audit. Returns whether there was one.
    pub(super) fn apply_lost(&mut self, id: &str) -> bool {
        self.take_running(id).is_some()
    }

    pub(super) fn put_running(&mut self, id: &str, audit: RunningAudit) {
        self.take_running(id);
        self.running_bytes += audit.bytes(id);
        self.whole_bytes += audit.trace.whole_bytes();
        self.running.insert(id.into(), audit);
    }

    fn take_running(&mut self, id: &str) -> Option<RunningAudit> {
        let audit = self.running.remove(id)?;
        self.running_bytes -= audit.bytes(id);
        self.whole_bytes -= audit.trace.whole_bytes();
        Some(audit)
    }

    pub(super) fn apply_halt(&mut self, halt: &Halt, now: u64, effects: &mut Effects) {
        self.totals.halted += u64::from(halt.early);
        self.totals.ended += u64::from(!halt.early);
        self.totals.steps_saved = self.totals.steps_saved.saturating_add(halt.saved);
        let last = self.halted_at.len().checked_sub(1);
        if let Some(last) = last.filter(|_| !halt.older) {
            self.halted_at[(halt.t as usize).saturating_sub(1).min(last)] += 1;
        }
        let Some(audit) = self.running.get_mut(&*halt.id).filter(|_| halt.audit) else {
            return;
        };
        audit.t = halt.t;
        audit.trace.halt();
        if let (Some(monitor), Some(running)) = (&mut self.monitor, audit.running.take()) {
            let (pending, alarm) = monitor.halt(running, halt.t);
            audit.pending = Some(pending);
            self.alarm(alarm, now, effects);
        }
    }

    /// An audited stream is over, with this trace.
    pub(super) fn apply_audited(
        &mut self,
        id: &str,
        trace: AuditTrace,
        now: u64,
        effects: &mut Effects,
    ) {
        let Some(audit) = self.take_running(id) else {
            return;
        };
        self.totals.audited += 1;
        let label = audit.label;
        let mut unlabelled = UnlabelledAudit {
            began: audit.began,
            pending: audit.pending,
            trace,
        };
        let of = self.rule.terms().loss;
        if let Some(loss) = unlabelled.trace.loss(None, of) {
            self.settle(&mut unlabelled, loss, now, effects);
        }
        // The promise is about predictions alone, so no label is needed.
        if !of.needs_label() && label.is_none() {
            self.queue_for_file(id, None, &unlabelled);
            return;
        }
        self.totals.thinned += self.unlabelled.insert(id, unlabelled);
        if let Some(label) = label {
            self.apply_label(id, &label, now, effects);
        }
    }

    pub(super) fn apply_label(&mut self, id: &str, label: &str, now: u64, effects: &mut Effects) {
        self.totals.labels += 1;
        if self.running.contains_key(id) {
            self.change_running(id, |audit| audit.label = Some(label.to_owned()));
            return;
        }
        let Some(mut unlabelled) = self.unlabelled.remove(id) else {
            return;
        };
        if let Some(loss) = unlabelled.trace.loss(Some(label), self.rule.terms().loss) {
            self.settle(&mut unlabelled, loss, now, effects);
        }
        self.queue_for_file(id, Some(label), &unlabelled);
    }

    /// Puts an audit in line for the next trace file.
    fn queue_for_file(&mut self, id: &str, label: Option<&str>, unlabelled: &UnlabelledAudit) {
        let names = Names {
            group: self.rule.terms().by.as_deref(),
            unit: self.rule.terms().unit.as_deref(),
            costs: Some(self.rule.terms().cost_column().unwrap_or(COSTS)),
        };
        if let Some(trace) = unlabelled.trace.line(id, label, names) {
            self.push_unfiled(unlabelled.began, trace);
        }
    }

    pub(super) fn push_unfiled(&mut self, began: u64, trace: String) {
        self.unfiled_bytes += unfiled_bytes(&trace);
        self.unfiled.push((began, trace));
    }

    /// About how many bytes the audits take that are in no trace file yet.
    pub(crate) fn unfiled_bytes(&self) -> usize {
        self.unfiled_bytes
    }

    fn settle(
        &mut self,
        unlabelled: &mut UnlabelledAudit,
        loss: bool,
        now: u64,
        effects: &mut Effects,
    ) {
        if let (Some(monitor), Some(pending)) = (&mut self.monitor, unlabelled.pending.take()) {
            let alarm = monitor.settle(pending, loss);
            self.alarm(alarm, now, effects);
        }
    }

    fn alarm(&mut self, alarm: Option<Alarm>, now: u64, effects: &mut Effects) {
        let Some(alarm) = alarm else { return };
        self.alarm_at = Some(now);
        effects.record(&LogRecord::Alarm { at: now });
        if let Ok(alarm) = serde_json::to_string(&alarm) {
            effects.events.push(format!("{{\"alarm\":{alarm}}}"));
        }
    }

    /// The labelled audits that are in no trace file yet: when they began, and the line.
    pub(crate) fn unfiled_audits(&self) -> &[(u64, String)] {
        &self.unfiled
    }

    /// Removes the first ones, this many, which a trace file has now. Returns them for
    /// [`Self::put_back`], should the log fail to say so.
    pub(crate) fn take_unfiled(&mut self, traces: usize) -> Vec<(u64, String)> {
        let filed: Vec<_> = self
            .unfiled
            .drain(..traces.min(self.unfiled.len()))
            .collect();
        self.unfiled_bytes -= bytes_of(&filed);
        filed
    }

    /// Takes back audits, because the next log could not be written.
    pub(crate) fn put_back(&mut self, filed: Vec<(u64, String)>) {
        self.unfiled_bytes += bytes_of(&filed);
        self.unfiled.splice(..0, filed);
    }

    /// Drops audits that began before a time and still wait for a label.
    pub(crate) fn drop_unlabelled_before(&mut self, began: u64) {
        self.unlabelled.drop_before(began);
    }
}

/// About how many bytes a line takes that waits for a trace file.
fn unfiled_bytes(trace: &str) -> usize {
    size_of::<(u64, String)>() + trace.len()
}

fn bytes_of(unfiled: &[(u64, String)]) -> usize {
    unfiled.iter().map(|(_, trace)| unfiled_bytes(trace)).sum()
}
