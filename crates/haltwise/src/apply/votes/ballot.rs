//! A ballot: votes on one question, until a rule says that they are enough.

use super::{Standing, Tally, VoteError};
use crate::apply::stream::{Decision, Reason, State};
use crate::rule::Rule;
use haltwise_stream::StepError;

/// Why a ballot cannot go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BallotError {
    /// The vote cannot be counted.
    #[error(transparent)]
    Vote(#[from] VoteError),
    /// The rule cannot judge votes.
    #[error("the rule is not for votes: {0}")]
    Rule(#[from] StepError),
}

/// The votes on a live question.
#[derive(Debug, Clone)]
pub struct Ballot<'a> {
    rule: &'a Rule,
    state: State,
    tally: Tally,
    answers: Vec<String>,
    /// Whether all votes are cast, whatever the rule says.
    to_the_end: bool,
}

impl<'a> Ballot<'a> {
    /// Starts a ballot of as many votes as the rule was calibrated on.
    pub fn new(rule: &'a Rule) -> Result<Self, BallotError> {
        Ok(Self {
            rule,
            state: State::new(),
            tally: Tally::new(rule.t_max())?,
            answers: Vec::new(),
            to_the_end: false,
        })
    }

    /// Starts a ballot that casts all votes and does not ask the rule.
    pub fn to_the_end(rule: &'a Rule) -> Result<Self, BallotError> {
        Ok(Self {
            to_the_end: true,
            ..Self::new(rule)?
        })
    }

    /// Returns how many votes must be cast before the rule can next stop. You can ask for
    /// all of these at once, and none is wasted. 0 once the rule has stopped.
    pub fn wanted(&self) -> usize {
        if self.state.halted() {
            return 0;
        }
        let left = self.rule.thresholds().values();
        let left = left.get(self.answers.len()..).unwrap_or_default();
        let open = left.iter().position(|threshold| threshold.is_finite());
        let open = open.filter(|_| self.rule.may_halt(None) && !self.to_the_end);
        open.map_or(left.len(), |place| place + 1)
    }

    /// Counts a vote, and returns why it was the last one needed, if it was. Later votes
    /// are not counted.
    pub fn vote(&mut self, answer: &str) -> Result<Option<Reason>, BallotError> {
        if let Some(reason) = self.state.reason() {
            return Ok(Some(reason));
        }
        let standing = self.tally.vote(answer)?;
        self.answers.push(answer.to_owned());
        let decision = match self.to_the_end {
            true => Decision::Continue,
            false => self.rule.observe(&mut self.state, &standing.step())?,
        };
        Ok(match decision {
            Decision::Halt(reason) => Some(reason),
            Decision::Continue if self.answers.len() == self.of() => Some(self.state.end()),
            Decision::Continue => None,
        })
    }

    /// The answer that leads.
    pub fn leader(&self) -> Option<&str> {
        self.tally.leader()
    }

    /// Returns the state of the vote.
    pub fn standing(&self) -> Standing {
        self.tally.standing()
    }

    /// Returns the first vote, counted from 0, that gave the leader; the first of all if
    /// nobody answered.
    pub fn chosen(&self) -> usize {
        let leader = self.leader().unwrap_or_default();
        let place = self.answers.iter().position(|answer| answer == leader);
        place.unwrap_or(0)
    }

    /// How many votes there are if all are cast.
    pub fn of(&self) -> usize {
        self.rule.t_max()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apply::stream::tests::rule_for;

    #[test]
    fn a_ballot_stops_where_the_rule_says_and_asks_for_nothing_in_vain() {
        let rule = rule_for(
            &json!("confidence"),
            &[None, None, Some(0.9), None, None, None],
        );
        let mut ballot = Ballot::new(&rule).unwrap();
        assert_eq!((ballot.of(), ballot.wanted()), (6, 3));
        for answer in ["b", "a"] {
            assert_eq!(ballot.vote(answer), Ok(None));
        }
        assert_eq!(ballot.wanted(), 1);
        let mut other = ballot.clone();
        assert_eq!(ballot.vote("c"), Ok(None));
        // It was not sure at the third vote, and no later step is open.
        assert_eq!(ballot.wanted(), 3);
        assert_eq!(ballot.vote("a"), Ok(None));
        assert_eq!(ballot.vote("a"), Ok(None));
        assert_eq!(ballot.vote(""), Ok(Some(Reason::LastStep)));
        assert_eq!(
            (ballot.leader(), ballot.chosen(), ballot.wanted()),
            (Some("a"), 1, 0)
        );
        assert_eq!(ballot.vote("b"), Ok(Some(Reason::LastStep)));

        let rule = rule_for(
            &json!("confidence"),
            &[None, None, Some(0.5), None, None, None],
        );
        other.rule = &rule;
        assert_eq!(other.vote("b"), Ok(Some(Reason::Threshold)));
        assert_eq!((other.leader(), other.wanted()), (Some("b"), 0));
        assert_eq!(other.vote("a"), Ok(Some(Reason::Threshold)));
        assert_eq!((other.standing().votes, other.standing().cast), (2, 3));
    }

    #[test]
    fn to_the_end_all_votes_are_cast() {
        let rule = rule_for(&json!("confidence"), &[Some(0.0), Some(0.0), Some(0.0)]);
        let mut ballot = Ballot::to_the_end(&rule).unwrap();
        assert_eq!(ballot.wanted(), 3);
        assert_eq!((ballot.vote("a"), ballot.vote("b")), (Ok(None), Ok(None)));
        assert_eq!(ballot.wanted(), 1);
        assert_eq!(ballot.vote("b"), Ok(Some(Reason::End)));
        assert_eq!((ballot.leader(), ballot.wanted()), (Some("b"), 0));
    }

    #[test]
    fn a_rule_that_is_not_for_votes_is_refused() {
        let long = rule_for(&json!("confidence"), &[None; 101]);
        assert!(Ballot::new(&long).is_err());
        let weights = vec![0.0; 11 + 9 + 6];
        let learned = json!({"gap": {"uses_score": true, "classes": 3, "t_max": 2,
            "weights": weights, "intercept": 0.0}});
        let of_probs = rule_for(&learned, &[Some(0.5), None]);
        let refused = Ballot::new(&of_probs).unwrap().vote("a").unwrap_err();
        assert!(
            refused
                .to_string()
                .starts_with("the rule is not for votes: "),
            "{refused}"
        );
    }
}
