//! Streams whose steps are not seen here: the program that runs one asks the rule itself, and
//! reports where the stream began, halted and ended.

use std::sync::Arc;

use haltwise::Rule;
use haltwise::stream::Reason;
use rand::RngExt;

use super::{Effects, RuleState};
use crate::audit_trace::AuditTrace;
use crate::log_record::Halt;

impl RuleState {
    /// A stream begins. Returns its id, as JSON, and whether it is audited.
    pub(crate) fn begin_reported(&mut self, now: u64, effects: &mut Effects) -> (String, bool) {
        let id = format!("\"{:016x}\"", self.rng.random::<u64>());
        self.totals.streams += 1;
        let is_audited = self.draws(None);
        if is_audited {
            self.begin_audit(&id, now, (None, None), effects);
        }
        (id, is_audited)
    }

    /// It halts at step `t`, counted from 1, by the rule that it began with. Returns whether it
    /// is audited.
    pub(crate) fn halt_reported(
        &mut self,
        now: u64,
        id: &str,
        t: u32,
        reason: Reason,
        rule: &Arc<Rule>,
        effects: &mut Effects,
    ) -> bool {
        self.totals.observations += u64::from(t);
        let is_audited = self.running.contains_key(id);
        let halt = Halt {
            id: id.to_owned(),
            t,
            reason,
            audit: is_audited,
            early: reason == Reason::Threshold,
            saved: 0,
            older: !Arc::ptr_eq(rule, &self.rule),
        };
        self.halt_stream(rule, now, halt, effects);
        is_audited
    }

    /// It came to its end, with this trace if it is audited.
    pub(crate) fn end_reported(
        &mut self,
        now: u64,
        id: &str,
        trace: AuditTrace,
        effects: &mut Effects,
    ) {
        if self.running.contains_key(id) {
            self.finish_audit(id, trace, now, effects);
        }
    }
}
