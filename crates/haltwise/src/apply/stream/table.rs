//! Many streams at once, by id.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;

use super::{Reason, State};
use crate::rule::Rule;
use haltwise_stream::{Step, StepError};

/// The limits of a table of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most streams that are open at a time.
    pub open: NonZeroUsize,
    /// The most bytes in an id.
    pub id: usize,
}

impl Default for Limits {
    /// A million streams, ids of 4096 bytes.
    fn default() -> Self {
        Self {
            open: NonZeroUsize::MIN.saturating_add(999_999),
            id: 4096,
        }
    }
}

/// A message about one stream: a step, its end, or both.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Message<'a> {
    /// What the classifier said at the step. If the message could not be understood, an
    /// empty step: it counts as a step, but cannot halt the stream.
    pub step: Option<Step<'a>>,
    /// The number of the step, counted from 1; `None` for the next step.
    pub t: Option<u64>,
    /// Whether the stream is over after it.
    pub end: bool,
    /// The group of the stream, if that is known. Only the message that begins a stream
    /// counts: see [`Rule::begin`].
    pub group: Option<&'a str>,
}

/// The result of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The stream had already halted: the message was ignored, except for its end.
    Ignored,
    /// The stream took it.
    Taken(Taken),
}

/// The effect of a message on its stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Taken {
    /// Why the stream halted now; `None` if it goes on.
    pub halted: Option<Reason>,
    /// The number of steps so far.
    pub steps: u32,
    /// The steps that were missing before this one; they were counted.
    pub missing: Option<Missing>,
    /// Why the step has no score; the step still counts.
    pub unusable: Option<StepError>,
}

/// Steps that did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("step {t} came where step {due} was due; those between count")]
pub struct Missing {
    /// The step that was due.
    pub due: u64,
    /// The step that came.
    pub t: u64,
}

/// Why a message was refused; it has changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The message says nothing.
    #[error("there is neither a step nor an end")]
    Nothing,
    /// The message ends a stream that was never seen.
    #[error("it ends, but has no steps")]
    NoSteps,
    /// The step came before.
    #[error("step {t} came where step {due} was due")]
    OutOfOrder {
        /// The step that came.
        t: u64,
        /// The step that was due.
        due: u64,
    },
    /// The step is further than can be counted.
    #[error("step {t} is more than the {most} that a stream may have", most = u32::MAX)]
    TooFar {
        /// The step that came.
        t: u64,
    },
    /// The id is too long to be kept.
    #[error("the id has {found} bytes; at most {most} are possible")]
    LongId {
        /// How many bytes it has.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// The table is full, and no open stream has halted.
    #[error("there is no room for it: {open} streams are open and none has halted")]
    NoRoom {
        /// How many are open.
        open: usize,
    },
}

/// An open stream.
#[derive(Debug)]
struct Open {
    state: State,
    /// When its last message came.
    heard: u32,
}

/// The open streams of one rule, by id.
///
/// Its first step opens a stream, and its end closes it; the id may then be used again.
/// When the table is full, the stream that halted longest ago makes room. Running streams
/// never do.
#[derive(Debug, Default)]
pub struct Streams {
    limits: Limits,
    open: HashMap<Box<str>, Open>,
    /// The current time, in the caller's unit.
    now: u32,
    /// Ids of halted streams, in the order in which they halted; some may be closed.
    halted: VecDeque<Box<str>>,
    /// How many open streams have halted.
    halted_open: usize,
}

impl Streams {
    /// Starts with no open stream.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// How many streams are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no stream is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// How many open streams have not halted.
    pub fn running(&self) -> usize {
        self.open.len() - self.halted_open
    }

    /// The state of a stream, if it is open.
    pub fn get(&self, id: &str) -> Option<&State> {
        self.open.get(id).map(|open| &open.state)
    }

    /// All open streams.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &State)> {
        self.open.iter().map(|(id, open)| (&**id, &open.state))
    }

    /// Restores a stream that was stored; `false` if there is no room for it.
    pub fn restore(&mut self, id: &str, state: State) -> bool {
        let full = self.open.len() >= self.limits.open.get();
        if id.len() > self.limits.id || full && self.make_room().is_none() {
            return false;
        }
        let halted = state.halted();
        let heard = self.now;
        self.forget(id);
        self.open.insert(id.into(), Open { state, heard });
        if halted {
            self.remember(id);
        }
        true
    }

    /// Closes a stream, if it is open.
    pub fn forget(&mut self, id: &str) -> bool {
        let closed = self.open.remove(id);
        let halted = closed.as_ref().is_some_and(|open| open.state.halted());
        self.halted_open -= usize::from(halted);
        closed.is_some()
    }

    /// Sets the time of the messages from now on, in any unit.
    pub fn set_clock(&mut self, now: u32) {
        self.now = now;
    }

    /// The time that was last set.
    pub fn clock(&self) -> u32 {
        self.now
    }

    /// Closes the streams whose last message came before a time, and reports their ids.
    pub fn close_idle(&mut self, before: u32, mut closed: impl FnMut(&str, &State)) {
        let halted_open = &mut self.halted_open;
        self.open.retain(|id, open| {
            let keep = open.heard >= before;
            if !keep {
                *halted_open -= usize::from(open.state.halted());
                closed(id, &open.state);
            }
            keep
        });
    }

    /// Shows a message to its stream, judged by a rule; pass the same rule for all messages
    /// to the table. Messages after the stream halted are ignored until one says that the
    /// stream is over.
    pub fn take(
        &mut self,
        rule: &Rule,
        id: &str,
        message: Message<'_>,
    ) -> Result<Outcome, Refusal> {
        self.take_telling(rule, id, message, |_| {})
    }

    /// Does the same, and reports the id of a stream that was closed to make room.
    pub fn take_telling(
        &mut self,
        rule: &Rule,
        id: &str,
        message: Message<'_>,
        closed: impl FnMut(&str),
    ) -> Result<Outcome, Refusal> {
        let Some(open) = self.open.get_mut(id) else {
            return self.first(rule, id, message, closed);
        };
        message.check(rule, &open.state)?;
        let was_halted = open.state.halted();
        let outcome = message.show(rule, &mut open.state);
        open.heard = self.now;
        if message.end {
            self.open.remove(id);
            self.halted_open -= usize::from(was_halted);
        } else if outcome.halts() {
            self.remember(id);
        }
        Ok(outcome)
    }

    /// The first message of a stream.
    fn first(
        &mut self,
        rule: &Rule,
        id: &str,
        message: Message<'_>,
        mut closed: impl FnMut(&str),
    ) -> Result<Outcome, Refusal> {
        let mut state = rule.begin(message.group);
        message.check(rule, &state)?;
        if message.step.is_none() {
            return Err(Refusal::NoSteps);
        }
        if id.len() > self.limits.id {
            return Err(Refusal::LongId {
                found: id.len(),
                most: self.limits.id,
            });
        }
        if self.open.len() >= self.limits.open.get() {
            let open = self.open.len();
            closed(&self.make_room().ok_or(Refusal::NoRoom { open })?);
        }
        let outcome = message.show(rule, &mut state);
        if !message.end {
            let heard = self.now;
            self.open.insert(id.into(), Open { state, heard });
            if outcome.halts() {
                self.remember(id);
            }
        }
        Ok(outcome)
    }

    /// Closes the stream that halted longest ago, if there is one, and returns its id.
    fn make_room(&mut self) -> Option<Box<str>> {
        while let Some(id) = self.halted.pop_front() {
            if self.open.get(&id).is_some_and(|open| open.state.halted()) {
                self.forget(&id);
                return Some(id);
            }
        }
        None
    }

    /// Records that a stream has halted.
    fn remember(&mut self, id: &str) {
        // Closed streams leave their ids here. They are removed before they outnumber the
        // open ones.
        if self.halted.len() > 2 * self.open.len() + 1024 {
            let open = &self.open;
            self.halted
                .retain(|id| open.get(id).is_some_and(|open| open.state.halted()));
        }
        self.halted_open += 1;
        self.halted.push_back(id.into());
    }
}

impl Message<'_> {
    /// Refuses an empty message, or a step that cannot be the next.
    fn check(&self, rule: &Rule, state: &State) -> Result<(), Refusal> {
        if self.step.is_none() && !self.end {
            return Err(Refusal::Nothing);
        }
        if self.step.is_none() || state.halted() {
            return Ok(());
        }
        let due = u64::from(state.steps()) + 1;
        match self.t.unwrap_or(due) {
            t if t < due => Err(Refusal::OutOfOrder { t, due }),
            t if rule.reads_on() && t > u64::from(u32::MAX) => Err(Refusal::TooFar { t }),
            _ => Ok(()),
        }
    }

    /// Shows the checked message to its stream.
    fn show(&self, rule: &Rule, state: &mut State) -> Outcome {
        if state.halted() {
            return Outcome::Ignored;
        }
        let (mut missing, mut unusable) = (None, None);
        if let Some(step) = &self.step {
            missing = self.pass(rule, state);
            if let Err(error) = rule.observe(state, step) {
                unusable = Some(error);
                rule.skip(state);
            }
        }
        if self.end {
            state.end();
        }
        Outcome::Taken(Taken {
            halted: state.reason(),
            steps: state.steps(),
            missing,
            unusable,
        })
    }

    /// Counts the steps that are missing before this one.
    fn pass(&self, rule: &Rule, state: &mut State) -> Option<Missing> {
        let due = u64::from(state.steps()) + 1;
        let t = self.t.filter(|&t| t > due)?;
        // A rule that halts at its last step halts at that step here too.
        let last = if rule.reads_on() {
            t
        } else {
            t.min((rule.t_max() as u64).max(due))
        };
        state.pass((last - due) as u32);
        Some(Missing { due, t })
    }
}

impl Outcome {
    fn halts(&self) -> bool {
        matches!(self, Self::Taken(taken) if taken.halted.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::stream::tests::rule;
    use crate::rule::Lengths;

    /// A step with a score, where that is one.
    fn step(score: f32) -> Message<'static> {
        let step = Step {
            score: Some(score),
            ..Step::default()
        };
        Message {
            step: Some(step),
            ..Message::default()
        }
    }

    const END: Message<'static> = Message {
        step: None,
        t: None,
        end: true,
        group: None,
    };

    fn at(t: u64, score: f32) -> Message<'static> {
        Message {
            t: Some(t),
            ..step(score)
        }
    }

    fn last(score: f32) -> Message<'static> {
        Message {
            end: true,
            ..step(score)
        }
    }

    fn goes_on(steps: u32) -> Result<Outcome, Refusal> {
        taken(steps, None)
    }

    fn halts(steps: u32, reason: Reason) -> Result<Outcome, Refusal> {
        taken(steps, Some(reason))
    }

    fn taken(steps: u32, halted: Option<Reason>) -> Result<Outcome, Refusal> {
        Ok(Outcome::Taken(Taken {
            halted,
            steps,
            missing: None,
            unusable: None,
        }))
    }

    fn streams(open: usize) -> Streams {
        Streams::new(Limits {
            open: NonZeroUsize::new(open).unwrap(),
            id: 8,
        })
    }

    const IGNORED: Result<Outcome, Refusal> = Ok(Outcome::Ignored);

    #[test]
    fn each_id_is_a_stream_of_its_own() {
        let (rule, mut streams) = (rule(&[None, Some(0.9), Some(0.9)]), streams(9));
        assert_eq!(streams.take(&rule, "a", step(1.0)), goes_on(1));
        assert_eq!(streams.take(&rule, "b", step(0.1)), goes_on(1));
        assert_eq!(
            streams.take(&rule, "a", step(1.0)),
            halts(2, Reason::Threshold)
        );
        assert_eq!(streams.take(&rule, "a", step(1.0)), IGNORED);
        assert_eq!(streams.take(&rule, "a", step(f32::NAN)), IGNORED);
        assert_eq!(streams.take(&rule, "a", at(1, 0.5)), IGNORED);
        assert_eq!(streams.take(&rule, "b", last(0.1)), halts(2, Reason::End));
        assert_eq!(streams.len(), 1);
        // Both ids may be used again once their streams are over.
        assert_eq!(streams.take(&rule, "b", step(0.1)), goes_on(1));
        assert_eq!(streams.take(&rule, "a", END), IGNORED);
        assert_eq!(streams.take(&rule, "a", last(0.1)), halts(1, Reason::End));
        assert_eq!(streams.take(&rule, "b", END), halts(1, Reason::End));
        assert!(streams.is_empty());
    }

    #[test]
    fn what_says_nothing_or_cannot_be_next_changes_nothing() {
        let (rule, mut streams) = (rule(&[None; 5]), streams(9));
        let nothing = Message::default();
        assert_eq!(streams.take(&rule, "a", nothing), Err(Refusal::Nothing));
        assert_eq!(streams.take(&rule, "a", END), Err(Refusal::NoSteps));
        let (t, due) = (0, 1);
        let refused = Err(Refusal::OutOfOrder { t, due });
        assert_eq!(streams.take(&rule, "a", at(0, 0.5)), refused);
        assert!(streams.is_empty());
        assert_eq!(streams.take(&rule, "a", at(1, 0.5)), goes_on(1));
        let (t, due) = (1, 2);
        let refused = Err(Refusal::OutOfOrder { t, due });
        assert_eq!(streams.take(&rule, "a", at(1, 0.5)), refused);
        assert_eq!(streams.take(&rule, "a", nothing), Err(Refusal::Nothing));
        assert_eq!(streams.take(&rule, "a", at(2, 0.5)), goes_on(2));
    }

    #[test]
    fn missing_and_unusable_steps_count_and_are_told() {
        let (rule, mut streams) = (rule(&[None, None, None, Some(0.9), None]), streams(9));
        let outcome = |steps, halted, missing: Option<(u64, u64)>, unusable| {
            Ok(Outcome::Taken(Taken {
                halted,
                steps,
                missing: missing.map(|(due, t)| Missing { due, t }),
                unusable,
            }))
        };
        let unscored = Message {
            step: Some(Step::default()),
            ..Message::default()
        };
        let no_score = Some(StepError::NoScore);
        let found = streams.take(&rule, "a", unscored);
        assert_eq!(found, outcome(1, None, None, no_score.clone()));
        let found = streams.take(&rule, "a", at(4, 0.9));
        assert_eq!(
            found,
            outcome(4, Some(Reason::Threshold), Some((2, 4)), None)
        );
        // Both at once, further than the rule goes: its last step all the same.
        let found = streams.take(
            &rule,
            "b",
            Message {
                t: Some(1 << 40),
                ..unscored
            },
        );
        let (last, missing) = (Some(Reason::LastStep), Some((1, 1 << 40)));
        assert_eq!(found, outcome(5, last, missing, no_score.clone()));

        let read_on = rule.with_lengths(Lengths::Unequal);
        let found = streams.take(&read_on, "c", at(99, 1.0));
        assert_eq!(found, outcome(99, None, Some((1, 99)), None));
        let far = u64::from(u32::MAX);
        let found = streams.take(&read_on, "c", at(far + 1, 1.0));
        assert_eq!(found, Err(Refusal::TooFar { t: far + 1 }));
        let found = streams.take(&read_on, "c", at(far, 1.0));
        assert_eq!(found, outcome(u32::MAX, None, Some((100, far)), None));
        let found = streams.take(&read_on, "c", step(1.0));
        assert_eq!(found, Err(Refusal::TooFar { t: far + 1 }));
        assert_eq!(
            streams.take(&read_on, "c", END),
            halts(u32::MAX, Reason::End)
        );
    }

    #[test]
    fn the_longest_halted_make_room_and_running_ones_never_do() {
        let (rule, mut streams) = (rule(&[Some(0.9), None]), streams(2));
        for id in ["a", "b"] {
            assert_eq!(
                streams.take(&rule, id, step(1.0)),
                halts(1, Reason::Threshold)
            );
        }
        assert_eq!(streams.take(&rule, "c", step(0.1)), goes_on(1));
        assert_eq!(streams.take(&rule, "b", step(1.0)), IGNORED, "a made room");
        assert_eq!(streams.take(&rule, "d", step(0.1)), goes_on(1));
        let full = Err(Refusal::NoRoom { open: 2 });
        for id in ["a", "b"] {
            assert_eq!(streams.take(&rule, id, step(1.0)), full);
            assert_eq!(streams.take(&rule, id, last(1.0)), full);
        }
        assert_eq!(streams.take(&rule, "c", END), halts(1, Reason::End));
        assert_eq!(streams.take(&rule, "a", step(0.1)), goes_on(1));
        assert_eq!(streams.len(), 2);
    }

    #[test]
    fn ids_that_are_too_long_are_not_kept() {
        let (rule, mut streams) = (rule(&[None; 2]), streams(2));
        assert_eq!(streams.take(&rule, "12345678", step(0.1)), goes_on(1));
        let (found, most) = (9, 8);
        let refused = Err(Refusal::LongId { found, most });
        assert_eq!(streams.take(&rule, "123456789", step(0.1)), refused);
        assert_eq!(streams.len(), 1);
    }

    #[test]
    fn the_ids_of_closed_streams_are_swept() {
        let (rule, mut streams) = (rule(&[Some(0.0), None]), streams(4));
        for i in 0..10_000 {
            let id = i.to_string();
            assert_eq!(
                streams.take(&rule, &id, step(0.1)),
                halts(1, Reason::Threshold)
            );
            assert_eq!(streams.take(&rule, &id, END), IGNORED);
        }
        assert!(streams.is_empty());
        assert!(streams.halted.len() < 1100, "{}", streams.halted.len());
    }

    #[test]
    fn streams_that_say_nothing_are_closed_and_stored_ones_go_on() {
        let (rule, mut streams) = (rule(&[None, None, Some(0.5)]), streams(2));
        assert_eq!(streams.take(&rule, "a", step(0.1)), goes_on(1));
        streams.set_clock(7);
        assert_eq!(streams.take(&rule, "b", step(0.1)), goes_on(1));
        let mut closed = Vec::new();
        streams.close_idle(7, |id, state| closed.push((id.to_owned(), state.steps())));
        assert_eq!(closed, [("a".to_owned(), 1)]);
        let state = streams.get("b").unwrap().clone();
        assert!(streams.restore("c", state.clone()));
        assert!(!streams.restore("d", state), "there is no room");
        assert_eq!(streams.take(&rule, "c", step(0.1)), goes_on(2));
        assert!(streams.forget("c") && !streams.forget("c"));
        assert_eq!(streams.iter().map(|(id, _)| id).collect::<Vec<_>>(), ["b"]);
    }
}
