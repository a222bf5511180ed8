//! The state of a stream, and the decision after a step.

use core::fmt;

/// What to do after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Read on.
    Continue,
    /// Stop here and use the current prediction.
    Halt(Reason),
}

/// Why a stream halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Reason {
    /// Its score reached the threshold.
    Threshold,
    /// The rule has no more steps, and does not [read on](crate::Rule::reads_on).
    LastStep,
    /// The stream came to its own end.
    End,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Threshold => "threshold",
            Self::LastStep => "last-step",
            Self::End => "end",
        })
    }
}

/// How far one sequence has come. Show its steps to the rule one by one with
/// [`Rule::observe`](crate::Rule::observe). It takes eight bytes. A halted stream stays
/// halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    steps: u32,
    reason: Option<Reason>,
}

impl State {
    /// Starts a stream without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stream that has had this many steps, and halted for this reason.
    pub fn at(steps: u32, reason: Option<Reason>) -> Self {
        Self { steps, reason }
    }

    /// The number of steps seen so far, or until it halted; at most what a `u32` holds.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Whether it has halted.
    pub fn halted(&self) -> bool {
        self.reason.is_some()
    }

    /// Why it halted; `None` while it runs.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// Ends the stream. Returns why it halted: at its end, unless it had halted before.
    pub fn end(&mut self) -> Reason {
        match self.reason {
            Some(reason) => reason,
            None => self.halt(Reason::End),
        }
    }

    #[inline]
    pub(crate) fn halt(&mut self, reason: Reason) -> Reason {
        self.reason = Some(reason);
        reason
    }

    /// Counts steps that were not seen; none of them can halt the stream.
    #[inline]
    pub fn pass(&mut self, steps: u32) {
        self.steps = self.steps.saturating_add(steps);
    }
}
