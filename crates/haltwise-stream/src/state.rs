//! How far a stream has come, and what to do with it.

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
    /// It came to its own end.
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

/// How far one sequence has come, to be shown to its rule step by step:
/// [`Rule::observe`](crate::Rule::observe). Eight bytes. Once halted it stays
/// halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    steps: u32,
    reason: Option<Reason>,
}

impl State {
    /// A stream of which no step was seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stream that had come so far, and halted for this reason.
    pub fn at(steps: u32, reason: Option<Reason>) -> Self {
        Self { steps, reason }
    }

    /// How many steps were seen until it halted, or so far; no more are counted
    /// than a `u32` holds.
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

    /// The stream is over. Returns why it halted: at its end, unless it had
    /// halted before.
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
