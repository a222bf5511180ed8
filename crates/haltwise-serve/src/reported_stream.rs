//! Streams whose steps a program takes itself, such as votes on a request: it asks
//! the rule, and tells the served rule where a stream began, halted and ended.

use std::sync::Arc;

use haltwise::Rule;
use haltwise::stream::Reason;

use crate::audit_trace::AuditTrace;
use crate::error::Error;
use crate::served_rule::ServedRule;

/// A stream that is told of. One that is dropped before its end was lost: it
/// counts as one without a loss.
#[derive(Debug)]
pub struct ReportedStream {
    served: Arc<ServedRule>,
    id: String,
    rule: Arc<Rule>,
    reads_on: bool,
    audit: bool,
    trace: AuditTrace,
    ended: bool,
}

impl ReportedStream {
    /// A stream begins: now, in the order of all.
    pub fn begin(served: &Arc<ServedRule>) -> Result<Self, Error> {
        let (((id, audit), rule, reads_on), _) = served.change(|state, now, effects| {
            let begun = state.begin_reported(now, effects);
            (begun, Arc::clone(state.rule()), state.reading_on())
        })?;
        Ok(Self {
            served: Arc::clone(served),
            id,
            rule,
            reads_on,
            audit,
            trace: AuditTrace::default(),
            ended: false,
        })
    }

    /// Its id, under which its label will come.
    pub fn id(&self) -> &str {
        self.id.trim_matches('"')
    }

    /// The rule that it began with. It ends with it, whichever is in use then.
    pub fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    /// Whether the rule is not asked because of an alarm.
    pub fn reads_on(&self) -> bool {
        self.reads_on
    }

    /// Whether it is to be read to its end, wherever it halts.
    pub fn is_audited(&self) -> bool {
        self.audit
    }

    /// It takes a step, which matters where it is audited: what is predicted, in words,
    /// with which score, at what cost.
    pub fn step(&mut self, prediction: &str, score: f32, cost: f32) {
        let prediction = serde_json::Value::from(prediction).to_string();
        self.trace.add(prediction, score, cost);
    }

    /// It halts at step `t`, counted from 1. Done when that is on the disk, where it is
    /// audited: what happened to another is a count and no more, and not waited for as
    /// long as the disk takes all.
    pub async fn halt(&mut self, t: u32, reason: Reason) -> Result<(), Error> {
        let (id, rule) = (self.id.as_str(), &self.rule);
        let halted = self
            .served
            .change(|state, now, effects| state.halt_reported(now, id, t, reason, rule, effects));
        let (is_audited, answers) = halted?;
        // Audits of a rule end when another takes its place.
        self.audit = is_audited;
        self.trace.halt();
        if self.audit && reason != Reason::Threshold {
            self.end()?;
        }
        match self.audit {
            true => self.served.durable(answers.after).await,
            false => self.served.ready().map_err(Error::new),
        }
    }

    /// It was read to its end.
    pub fn end(&mut self) -> Result<(), Error> {
        self.ended = true;
        let trace = std::mem::take(&mut self.trace);
        let id = self.id.as_str();
        let ended = self
            .served
            .note(|state, now, effects| state.end_reported(now, id, trace, effects));
        ended.map(drop)
    }
}

impl Drop for ReportedStream {
    fn drop(&mut self) {
        if self.audit && !self.ended {
            let id = self.id.as_str();
            // Once the store is closed, nothing is under way any more.
            let _lost = self
                .served
                .note(|state, _, effects| state.lose_audit(id, effects));
        }
    }
}
