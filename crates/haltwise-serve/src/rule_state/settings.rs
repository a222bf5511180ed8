//! How a served rule is audited and watched.

use haltwise::plan::Delta;
use haltwise::stream::Limits;

/// What the server does after an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAlarm {
    /// It halts no stream early until there is another rule: that costs time, but no accuracy.
    #[default]
    ReadOn,
    /// It goes on with the rule, and only warns.
    Keep,
}

/// How a served rule is audited and watched.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The share of streams that are audited.
    pub audit: f64,
    /// The probability that a false alarm is ever raised, over all renewals.
    pub delta: Delta,
    /// What the server does after an alarm.
    pub on_alarm: OnAlarm,
    /// The limits of the table of open streams.
    pub limits: Limits,
    /// After how many seconds an idle stream is closed.
    pub idle: u32,
    /// How many servers share the rule's streams, each with a store of its own.
    pub servers: u32,
}

/// The most bytes of a stream's id. A table keeps each for as long as its stream is open, and
/// there may be a million.
const MOST_ID: usize = 256;

impl Default for Settings {
    /// One stream in twenty is audited; a false alarm has probability 1%; idle streams are
    /// closed after an hour; ids have at most 256 bytes.
    fn default() -> Self {
        Self {
            audit: 0.05,
            delta: Delta::default(),
            on_alarm: OnAlarm::default(),
            limits: Limits {
                id: MOST_ID,
                ..Limits::default()
            },
            idle: 3600,
            servers: 1,
        }
    }
}
