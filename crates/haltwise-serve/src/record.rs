//! What the log of a store has: all that happened to its rule and its audits.

use haltwise::monitor::{Monitor, Pending, Running};
use haltwise::stream::{Reason, State};
use serde::{Deserialize, Serialize};

use crate::kept::Kept;

/// One record.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Record {
    /// An audited stream begins; `at` in milliseconds since 1970.
    Begin {
        id: String,
        at: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// A stream halts at step `t`, counted from 1.
    Halt {
        id: String,
        t: u32,
        reason: Reason,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        audit: bool,
    },
    /// An audited stream came to its end.
    Audited { id: String, kept: Kept },
    /// An audited stream will never come to its end.
    Lost { id: String },
    /// The true class of an audited stream, as JSON.
    Label { id: String, label: String },
    /// An alarm was raised.
    Alarm { at: u64 },
    /// Another rule came in; `given` is the digest of the file it was started with.
    Rule {
        renewal: u32,
        given: String,
        rule: String,
    },
    /// The beginning of a log that goes on from one before it.
    State {
        renewal: u32,
        given: Vec<String>,
        rule: String,
        monitor: Box<Option<Monitor>>,
        alarm_at: Option<u64>,
        totals: Totals,
    },
    /// An audited stream that is under way.
    Live { id: String, live: Live },
    /// An audited stream that is over and has no label.
    Waiting { id: String, waiting: Waiting },
    /// An audited stream with its label, which is in no trace file yet.
    Done { began: u64, trace: String },
    /// An open stream, of the rule now or of an older one.
    Open { id: String, state: State },
    /// All was stored; what was open is open when it goes on.
    Closed,
}

/// Records of what cannot be copied.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Borrowed<'a> {
    Live { id: &'a str, live: &'a Live },
    Waiting { id: &'a str, waiting: &'a Waiting },
}

/// What is known of an audited stream that is under way.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Live {
    pub(crate) began: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) running: Option<Running>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<Pending>,
    /// Where it halted, counted from 1; 0 while it runs.
    #[serde(default)]
    pub(crate) t: u32,
    #[serde(default)]
    pub(crate) kept: Kept,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) label: Option<String>,
}

/// An audited stream that is over and has no label.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Waiting {
    pub(crate) began: u64,
    /// What the monitor waits for, unless early and full prediction agree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<Pending>,
    pub(crate) kept: Kept,
}

/// What happened so far, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Steps that came.
    pub observations: u64,
    /// Streams that began.
    pub streams: u64,
    /// Streams that halted before their end.
    pub halted: u64,
    /// Steps that were not read, as far as it is known how many there were.
    pub steps_saved: u64,
    /// Streams that came to their end.
    pub ended: u64,
    /// Streams that were audited to their end.
    pub audited: u64,
    /// Labels that came.
    pub labels: u64,
    /// Lines that could not be used.
    pub faults: u64,
    /// Streams that were closed because they said nothing.
    pub idle: u64,
}
