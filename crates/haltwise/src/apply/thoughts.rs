//! Thoughts as traces: a reasoning model thinks about a question, and is asked for its answer
//! again and again while it thinks. One such probe is one step.
//!
//! After each probe the prediction is the answer that it gave. The answer of the whole thought
//! is the last one, so the full prediction is the answer after thinking to the end.
//!
//! # The score
//!
//! An answer that `c` probes have given so far scores `c / (c + 1)`. No answer scores 0. The count
//! goes on where an answer comes back after another one. On recorded thoughts one threshold for this
//! count reads slightly fewer tokens than one for the usual count, of equal answers in a row
//! (`docs/thinking.md`), because that one begins again at every slip of a probe. The learned score
//! sees both, and the step.
//!
//! The guarantee does not rest on the score. It only decides how early a rule halts.

mod live;

use haltwise_stream::Step;

pub use live::{LiveThought, LiveThoughtError};

/// The most probes of a thought.
pub const MOST_PROBES: usize = 4096;

/// Why a probe cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThoughtError {
    /// A thought without an answer at its end.
    #[error("a thought has no probe; give at least its answer at the end")]
    None,
    /// More probes than can be counted.
    #[error("a thought has more than {MOST_PROBES} probes; ask less often")]
    Many,
}

/// Follows the answers of one thought.
///
/// ```
/// use haltwise::thoughts::Thought;
///
/// let mut thought = Thought::new();
/// thought.probe("")?; // no answer yet
/// thought.probe("42")?;
/// thought.probe("41")?;
/// let standing = thought.probe("42")?;
/// assert_eq!((thought.answer(), standing.times), (Some("42"), 2));
/// # Ok::<(), haltwise::thoughts::ThoughtError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thought {
    /// The answers in the order they first came, and how many probes gave each.
    answers: Vec<(String, u32)>,
    /// The class of the last answer.
    now: u32,
    probes: usize,
}

/// The state of a thought after a probe.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// The answer as a class: 0 for none, else its place, counted from 1 in the order of first
    /// appearance.
    pub prediction: u32,
    /// How safe it looks to stop.
    pub score: f32,
    /// How many probes have given the answer; 0 if there is none.
    pub times: u32,
}

impl Standing {
    /// The step that a rule is shown.
    pub fn step(&self) -> Step<'static> {
        Step {
            prediction: Some(self.prediction),
            score: Some(self.score),
            probs: None,
        }
    }
}

impl Thought {
    /// A thought that has not been probed.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a probe. An empty answer is none.
    pub fn probe(&mut self, answer: &str) -> Result<Standing, ThoughtError> {
        if self.probes >= MOST_PROBES {
            return Err(ThoughtError::Many);
        }
        self.now = self.class_of(answer).unwrap_or_else(|| {
            self.answers.push((answer.to_owned(), 0));
            self.answers.len() as u32
        });
        self.probes += 1;
        if let Some(place) = self.place() {
            self.answers[place].1 += 1;
        }
        Ok(self.standing())
    }

    /// The state after the last probe.
    pub fn standing(&self) -> Standing {
        let times = self.place().map_or(0, |place| self.answers[place].1);
        Standing {
            prediction: self.now,
            score: times as f32 / (times as f32 + 1.0),
            times,
        }
    }

    /// The answer of the last probe, if it gave one.
    pub fn answer(&self) -> Option<&str> {
        self.place().map(|place| self.answers[place].0.as_str())
    }

    /// The place of the last answer.
    fn place(&self) -> Option<usize> {
        (self.now as usize).checked_sub(1)
    }

    /// The class of an answer, if some probe gave it.
    fn class_of(&self, answer: &str) -> Option<u32> {
        if answer.is_empty() {
            return Some(0);
        }
        let place = self.answers.iter().position(|(known, _)| known == answer);
        place.map(|place| place as u32 + 1)
    }
}

/// A thought as a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct ThoughtTrace {
    /// The class of the right answer; the last prediction if none is known.
    pub label: u32,
    /// The answer after each probe.
    pub predictions: Vec<u32>,
    /// How safe stopping looks after each probe.
    pub scores: Vec<f32>,
}

impl ThoughtTrace {
    /// Builds the trace of the answers to all probes, the last of them the answer of the whole
    /// thought. Without a right answer, a loss means disagreement with that one.
    pub fn new<'a>(
        answers: impl IntoIterator<Item = &'a str>,
        right: Option<&str>,
    ) -> Result<Self, ThoughtError> {
        let mut thought = Thought::new();
        let standings = answers.into_iter().map(|answer| thought.probe(answer));
        let standings: Vec<Standing> = standings.collect::<Result<_, _>>()?;
        let last = standings.last().ok_or(ThoughtError::None)?.prediction;
        // A right answer that no probe gave is a class of its own.
        let unseen = thought.answers.len() as u32 + 1;
        Ok(Self {
            label: right.map_or(last, |right| thought.class_of(right).unwrap_or(unseen)),
            predictions: standings.iter().map(|s| s.prediction).collect(),
            scores: standings.iter().map(|s| s.score).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(answers: &[&str], right: Option<&str>) -> ThoughtTrace {
        ThoughtTrace::new(answers.iter().copied(), right).unwrap()
    }

    #[test]
    fn the_score_counts_the_probes_that_gave_the_answer() {
        let found = trace(&["", "", "7", "7", "8", "7", ""], None);
        assert_eq!(found.predictions, [0, 0, 1, 1, 2, 1, 0]);
        let [one, two, three] = [1.0 / 2.0, 2.0 / 3.0, 3.0 / 4.0];
        assert_eq!(found.scores, [0.0, 0.0, one, two, one, three, 0.0]);
    }

    #[test]
    fn the_answer_is_that_of_the_last_probe() {
        let mut thought = Thought::new();
        let mut after = |answer| {
            thought.probe(answer).unwrap();
            thought.answer().map(str::to_owned)
        };
        assert_eq!(after("41").as_deref(), Some("41"));
        assert_eq!(after("42").as_deref(), Some("42"));
        assert_eq!(after(""), None);
    }

    #[test]
    fn the_right_answer_is_a_class_and_without_one_it_is_that_of_the_end() {
        let label = |right| trace(&["7", "", "8"], right).label;
        let rights = [Some("7"), Some("8"), Some("9"), None];
        assert_eq!(rights.map(label), [1, 2, 3, 2]);
        assert_eq!(trace(&["7", ""], None).label, 0);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let none = ThoughtTrace::new([], None);
        assert_eq!(none, Err(ThoughtError::None));
        let many = ThoughtTrace::new(vec!["a"; MOST_PROBES + 1], None);
        assert_eq!(many, Err(ThoughtError::Many));
        let most = trace(&vec!["a"; MOST_PROBES], None);
        assert!(most.scores.iter().all(|score| (0.0..1.0).contains(score)));
    }
}
