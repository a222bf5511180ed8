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

/// Whether the group of a stream is one that a rule halts.
///
/// A rule that was certified group by group may have passed in some groups only. It reads the
/// streams of all others to their ends, also those of groups that it has never seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum GroupStanding {
    /// Nobody said which group the stream belongs to. A rule that halts in some groups only
    /// reads it to its end; any other rule may halt it.
    #[default]
    Unnamed,
    /// The rule halts its group.
    Halts,
    /// The rule does not halt its group, or has never seen it.
    ReadToEnd,
}

impl GroupStanding {
    /// The standing of a stream of this group if a rule halts `halting` groups.
    pub fn of<'n>(group: Option<&str>, halting: impl IntoIterator<Item = &'n str>) -> Self {
        match group {
            None => Self::Unnamed,
            Some(group) if halting.into_iter().any(|known| known == group) => Self::Halts,
            Some(_) => Self::ReadToEnd,
        }
    }

    /// Whether a rule, which halts in `some_groups` only or in all, may halt such a stream
    /// before its end.
    #[inline]
    pub fn may_halt(self, some_groups: bool) -> bool {
        match self {
            Self::Unnamed => !some_groups,
            Self::Halts => true,
            Self::ReadToEnd => false,
        }
    }
}

/// How far one sequence has come. Show its steps to the rule one by one with
/// [`Rule::observe`](crate::Rule::observe). It takes eight bytes. A halted stream stays
/// halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    steps: u32,
    reason: Option<Reason>,
    standing: GroupStanding,
}

impl State {
    /// Starts a stream without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// A stream that has had this many steps, and halted for this reason.
    pub fn at(steps: u32, reason: Option<Reason>) -> Self {
        Self {
            steps,
            reason,
            ..Self::default()
        }
    }

    /// The same, with the standing of the stream's group.
    pub fn with_standing(self, standing: GroupStanding) -> Self {
        Self { standing, ..self }
    }

    /// The standing of the stream's group.
    pub fn standing(&self) -> GroupStanding {
        self.standing
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
