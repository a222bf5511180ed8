//! What the log of a store has: all that happened to its rule and its audits.

use haltwise::monitor::{Monitor, Pending, Running};
use haltwise::stream::{Reason, State};
use serde::{Deserialize, Serialize};

use crate::audit_trace::AuditTrace;

/// One record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum LogRecord {
    /// An audited stream begins; `at` in milliseconds since 1970.
    Begin {
        id: String,
        at: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unit: Option<String>,
    },
    /// A stream halts.
    Halt(Halt),
    /// An audited stream came to its end.
    Audited { id: String, kept: AuditTrace },
    /// An audited stream will never come to its end.
    Lost { id: String },
    /// The true class of an audited stream, as JSON.
    Label { id: String, label: String },
    /// An alarm was raised.
    Alarm { at: u64 },
    /// Another rule came in; `digest` tells it from others.
    Rule {
        renewal: u32,
        #[serde(rename = "given")]
        digest: String,
        rule: String,
    },
    /// The beginning of a log that goes on from one before it.
    State {
        renewal: u32,
        /// The digests of all rules that were ever in use.
        #[serde(rename = "given")]
        digests: Vec<String>,
        /// The digests of those whose alarm was raised.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        alarmed: Vec<String>,
        /// The delta of the first rule.
        #[serde(default)]
        first_delta: Option<f64>,
        rule: String,
        monitor: Box<Option<Monitor>>,
        alarm_at: Option<u64>,
        totals: Totals,
        #[serde(default)]
        halted_at: Vec<u64>,
        #[serde(default)]
        careful_until: u64,
    },
    /// An audited stream that is under way.
    Live { id: String, live: RunningAudit },
    /// An audited stream that is over and has no label.
    Waiting {
        id: String,
        waiting: UnlabelledAudit,
    },
    /// An audited stream with its label, which is in no trace file yet.
    Done { began: u64, trace: String },
    /// A rule that was replaced, while streams that began with it are open.
    Older { renewal: u32, rule: String },
    /// An open stream, of the rule now or of the older one of a renewal.
    Open {
        id: String,
        state: State,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        renewal: Option<u32>,
    },
    /// All was stored; what was open is open when it goes on.
    Closed,
}

/// How a stream halted, and what that adds to the totals.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Halt {
    pub(crate) id: String,
    /// The step, counted from 1.
    pub(crate) t: u32,
    pub(crate) reason: Reason,
    /// Whether it is audited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) audit: bool,
    /// Whether there was more to come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) early: bool,
    /// How many steps need not be read, where that is known.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) saved: u64,
    /// Whether it began with a rule that was replaced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) older: bool,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Records of what cannot be copied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BorrowedRecord<'a> {
    Live {
        id: &'a str,
        live: &'a RunningAudit,
    },
    Waiting {
        id: &'a str,
        waiting: &'a UnlabelledAudit,
    },
}

/// The state of an audited stream that is under way.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunningAudit {
    pub(crate) began: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<Running>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<Pending>,
    /// The step at which it halted, counted from 1; 0 while it runs.
    #[serde(default)]
    pub(crate) t: u32,
    #[serde(default, rename = "kept")]
    pub(crate) trace: AuditTrace,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
}

impl RunningAudit {
    /// About how many bytes of memory it takes, with its id and its place in a table.
    pub(crate) fn bytes(&self, id: &str) -> usize {
        let label = self.label.as_ref().map_or(0, String::len);
        size_of::<(Box<str>, Self)>() * 3 / 2 + id.len() + self.trace.bytes() + label
    }
}

/// An audited stream that is over and has no label.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnlabelledAudit {
    pub(crate) began: u64,
    /// What the monitor waits for, unless early and full prediction agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<Pending>,
    #[serde(rename = "kept")]
    pub(crate) trace: AuditTrace,
}

impl UnlabelledAudit {
    /// About how many bytes of memory it takes. Its id is in two tables.
    pub(crate) fn bytes(&self, id: &str) -> usize {
        let entries = size_of::<(Box<str>, u64, Self)>() + size_of::<(u64, Box<str>)>();
        entries * 3 / 2 + 2 * id.len() + self.trace.bytes()
    }

    /// Whether a label would tell something: it is not known yet what was lost, and both
    /// predictions are.
    pub(crate) fn wants_label(&self) -> bool {
        self.pending.is_some() && self.trace.predicted().is_some()
    }
}

/// What happened so far, counted: since the store began where the log tells of it, and
/// otherwise since the process did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Steps that came, since the process began.
    #[serde(skip_deserializing)]
    pub observations: u64,
    /// Streams that began, since the process did.
    #[serde(skip_deserializing)]
    pub streams: u64,
    /// Streams that halted before their end.
    pub halted: u64,
    /// Steps that were not read, as far as it is known how many there were. Audited
    /// streams are read to their end, and save none.
    pub steps_saved: u64,
    /// Streams that came to their end.
    pub ended: u64,
    /// Streams that were audited to their end.
    pub audited: u64,
    /// Labels that came.
    pub labels: u64,
    /// Lines that could not be used, since the process began.
    #[serde(skip_deserializing)]
    pub faults: u64,
    /// Streams that were closed because they said nothing, since the process began.
    #[serde(skip_deserializing)]
    pub idle: u64,
    /// Audits that make no trace because they would take too much room, since the
    /// process began.
    #[serde(skip_deserializing)]
    pub thinned: u64,
}

impl Totals {
    /// The counts since another moment.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            observations: self.observations - before.observations,
            streams: self.streams - before.streams,
            halted: self.halted - before.halted,
            steps_saved: self.steps_saved - before.steps_saved,
            ended: self.ended - before.ended,
            audited: self.audited - before.audited,
            labels: self.labels - before.labels,
            faults: self.faults - before.faults,
            idle: self.idle - before.idle,
            thinned: self.thinned - before.thinned,
        }
    }
}
