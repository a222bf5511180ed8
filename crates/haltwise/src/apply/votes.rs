//! Votes: a language model is asked the same question several times, and the
//! answer it gives most often is taken. One vote is one step.
//!
//! After each vote there is a leader, which is the prediction, and a score: the
//! probability that this leader is still the leader when all votes are in.
//!
//! # The score
//!
//! Votes are independent draws from one unknown distribution over an unknown number of
//! answers. So they are exchangeable, and Hoppe's urn is the simplest exchangeable law for
//! them. After `t` votes, the next one repeats an answer that has `c` votes with
//! probability `c / (t + θ)`, and is a new answer with probability `θ / (t + θ)`. This is
//! the predictive law of a Dirichlet process with concentration `θ`. Here `θ` is 1: all
//! unseen answers together weigh as much as one vote.
//!
//! Given counts `c₁ … c_k` after `t` votes, the chance that the next `n` votes
//! add `x₁ … x_k` to them and make new groups of sizes `y₁, y₂, …` depends on
//! sizes alone: it is `∏ rise(c_j, x_j) · w(y) / rise(t + θ, n)` where `rise(c, x)` is
//! `C(c + x − 1, x)` and `w` sums to the coefficients of `exp(θ Σ zʲ/j)`. So the
//! chance that the leader keeps its lead is a sum over how many votes it gets,
//! of a product of power series that are cut off where another answer would
//! overtake it. That is what [`Tally::vote`] computes, exactly.
//!
//! The guarantee does not rest on any of this: a rule is certified on traces
//! whatever their score, and the score only decides how early it halts.

mod ballot;

use haltwise_stream::Step;

pub use ballot::{Ballot, BallotError};

/// The most votes on a question. The time to compute the score grows with the fourth power
/// at worst (milliseconds at this many).
pub const MOST_VOTES: usize = 100;

/// The weight of answers that were not given yet, in votes.
const UNSEEN: f64 = 1.0;

/// Why a vote cannot be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VoteError {
    /// This many votes cannot be counted.
    #[error("{0} votes on a question; 1 to {MOST_VOTES} can be counted")]
    Many(usize),
    /// All votes are in.
    #[error("all {0} votes are in already")]
    Over(usize),
}

/// Counts the votes on one question.
///
/// ```
/// use haltwise::votes::Tally;
///
/// let mut tally = Tally::new(5)?;
/// tally.vote("42")?;
/// tally.vote("")?; // no answer
/// let standing = tally.vote("42")?;
/// assert_eq!((tally.leader(), standing.votes, standing.cast), (Some("42"), 2, 3));
/// assert!(standing.score > 0.9);
/// # Ok::<(), haltwise::votes::VoteError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    of: usize,
    /// The answers in the order they first came, and their votes.
    answers: Vec<(String, u32)>,
    /// Votes without an answer.
    blank: u32,
}

/// The state of the vote.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Standing {
    /// The leader as a class: 0 while there is no answer, else the place of the answer,
    /// counted from 1 in the order of first appearance.
    pub prediction: u32,
    /// The probability that it still leads when all votes are in.
    pub score: f32,
    /// How many votes the leader has.
    pub votes: u32,
    /// How many votes were cast.
    pub cast: u32,
    /// How many different answers there are.
    pub distinct: u32,
    /// By how many votes it leads.
    pub margin: u32,
}

impl Standing {
    /// The share of the votes cast that the leader has.
    pub fn agreement(&self) -> f64 {
        f64::from(self.votes) / f64::from(self.cast.max(1))
    }

    /// The step that a rule is shown.
    pub fn step(&self) -> Step<'static> {
        Step {
            prediction: Some(self.prediction),
            score: Some(self.score),
            probs: None,
        }
    }
}

impl Tally {
    /// Starts a question with this many votes, none of them cast.
    pub fn new(of: usize) -> Result<Self, VoteError> {
        match (1..=MOST_VOTES).contains(&of) {
            true => Ok(Self {
                of,
                answers: Vec::new(),
                blank: 0,
            }),
            false => Err(VoteError::Many(of)),
        }
    }

    /// Counts a vote. An empty answer counts as a vote, but leads only if nobody answers.
    pub fn vote(&mut self, answer: &str) -> Result<Standing, VoteError> {
        if self.cast() as usize == self.of {
            return Err(VoteError::Over(self.of));
        }
        let known = self.answers.iter_mut().find(|(known, _)| known == answer);
        match known {
            _ if answer.is_empty() => self.blank += 1,
            Some((_, votes)) => *votes += 1,
            None => self.answers.push((answer.to_owned(), 1)),
        }
        Ok(self.standing())
    }

    /// Returns the answer with the most votes; among equals, the one that came first.
    pub fn leader(&self) -> Option<&str> {
        self.first().map(|place| self.answers[place].0.as_str())
    }

    /// Returns the state of the vote.
    pub fn standing(&self) -> Standing {
        let first = self.first();
        let votes = |place: usize| self.answers[place].1;
        let others = (0..self.answers.len()).filter(|place| Some(*place) != first);
        let second = others.map(votes).max().unwrap_or(0);
        let leads = first.map_or(self.blank, votes);
        Standing {
            prediction: first.map_or(0, |place| place as u32 + 1),
            score: self.stays(first) as f32,
            votes: leads,
            cast: self.cast(),
            distinct: self.answers.len() as u32,
            margin: leads - second,
        }
    }

    /// Returns the class of an answer: 0 for no answer, its place from 1 if it was given,
    /// and otherwise a class that no vote can have.
    pub fn class(&self, answer: &str) -> u32 {
        let place = self.answers.iter().position(|(known, _)| known == answer);
        match place {
            _ if answer.is_empty() => 0,
            Some(place) => place as u32 + 1,
            None => self.of as u32 + 1,
        }
    }

    fn cast(&self) -> u32 {
        self.blank + self.answers.iter().map(|(_, votes)| votes).sum::<u32>()
    }

    fn first(&self) -> Option<usize> {
        let places = (0..self.answers.len()).rev();
        places.max_by_key(|&place| self.answers[place].1)
    }

    /// Computes the probability that the leader stays the leader.
    fn stays(&self, leader: Option<usize>) -> f64 {
        let left = self.of - self.cast() as usize;
        let all = rises(f64::from(self.cast()) + UNSEEN, left)[left];
        let Some(leader) = leader else {
            return rises(f64::from(self.blank), left)[left] / all;
        };
        let leads = self.answers[leader].1;
        let gains = rises(f64::from(leads), left);
        let kept: f64 = (0..=left)
            .map(|gain| gains[gain] * self.held(leader, leads as usize + gain, left - gain))
            .sum();
        // Rounding must not raise it above 1.
        (kept / all).clamp(0.0, 1.0)
    }

    /// The weight of all ways in which `left` votes go to other answers, none of which then
    /// beats a leader with `reached` votes.
    fn held(&self, leader: usize, reached: usize, left: usize) -> f64 {
        // Answers that cannot overtake the leader any more need not be told apart.
        let mut free = self.blank;
        let mut rivals = Vec::new();
        for (place, (_, votes)) in self.answers.iter().enumerate() {
            // Among equals, the answer that came first leads.
            let ties = usize::from(place < leader);
            let most = reached.checked_sub(*votes as usize + ties);
            match most {
                _ if place == leader => {}
                None => return 0.0,
                Some(most) if most >= left => free += votes,
                Some(most) => rivals.push((*votes, most)),
            }
        }
        let mut ways = rises(f64::from(free), left);
        for (votes, most) in rivals {
            ways = product(&ways, &rises(f64::from(votes), most));
        }
        let new = new_answers(reached, left);
        (0..=left).map(|n| ways[n] * new[left - n]).sum()
    }
}

/// A question's votes as a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct VoteTrace {
    /// The class of the right answer; the last prediction if none is known.
    pub label: u32,
    /// The leader after each vote.
    pub predictions: Vec<u32>,
    /// The probability that the leader stays the leader.
    pub scores: Vec<f32>,
    /// The state of the vote at the end.
    pub last: Standing,
}

impl VoteTrace {
    /// Builds the trace of all votes on a question. Without a right answer, a loss means
    /// disagreement with the majority of all votes.
    pub fn new<'a>(
        answers: impl ExactSizeIterator<Item = &'a str>,
        right: Option<&str>,
    ) -> Result<Self, VoteError> {
        let mut tally = Tally::new(answers.len())?;
        let standings = answers.map(|answer| tally.vote(answer));
        let standings: Vec<Standing> = standings.collect::<Result<_, _>>()?;
        let last = tally.standing();
        Ok(Self {
            label: right.map_or(last.prediction, |right| tally.class(right)),
            predictions: standings.iter().map(|s| s.prediction).collect(),
            scores: standings.iter().map(|s| s.score).collect(),
            last,
        })
    }
}

/// Returns `C(c + x − 1, x)` for every `x` up to `most`: the weights of `x` more votes for
/// an answer that has `c`.
fn rises(c: f64, most: usize) -> Vec<f64> {
    let mut weight = 1.0;
    let mut weights = vec![weight];
    for x in 0..most {
        weight *= (c + x as f64) / (x + 1) as f64;
        weights.push(weight);
    }
    weights
}

/// The weights of this many votes for new answers, none of which gets more than
/// `most`: the coefficients of `exp(θ Σ zʲ/j)` over `j ≤ most`, from its derivative.
fn new_answers(most: usize, votes: usize) -> Vec<f64> {
    let mut weights = vec![1.0];
    for n in 1..=votes {
        let before: f64 = weights[n - most.min(n)..].iter().sum();
        weights.push(UNSEEN * before / n as f64);
    }
    weights
}

/// Returns the product of two power series, to the length of the first.
fn product(a: &[f64], b: &[f64]) -> Vec<f64> {
    let coefficient = |n: usize| (0..=n.min(b.len() - 1)).map(|i| b[i] * a[n - i]).sum();
    (0..a.len()).map(coefficient).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(of: usize, answers: &[&str]) -> Tally {
        let mut tally = Tally::new(of).unwrap();
        for answer in answers {
            tally.vote(answer).unwrap();
        }
        tally
    }

    /// The score by its definition: the urn, vote by vote.
    fn by_urn(tally: &Tally, leader: Option<&str>) -> f64 {
        let cast = tally.cast();
        if cast as usize == tally.of {
            return f64::from(u8::from(tally.leader() == leader));
        }
        let weight = f64::from(cast) + UNSEEN;
        let after = |answer: &str| {
            let mut next = tally.clone();
            next.vote(answer).unwrap();
            by_urn(&next, leader)
        };
        let seen = tally
            .answers
            .iter()
            .map(|(answer, n)| f64::from(*n) * after(answer));
        let seen: f64 = seen.sum::<f64>() + f64::from(tally.blank) * after("");
        (seen + UNSEEN * after(&format!("new {cast}"))) / weight
    }

    #[test]
    fn the_leader_is_the_one_with_most_votes_and_of_equals_the_first() {
        let standing = |answers: &[&str]| tally(5, answers).standing();
        let told = |s: Standing| (s.prediction, s.votes, s.cast, s.distinct, s.margin);
        assert_eq!(told(standing(&["a"])), (1, 1, 1, 1, 1));
        assert_eq!(told(standing(&["a", "b"])), (1, 1, 2, 2, 0));
        assert_eq!(told(standing(&["a", "b", "b"])), (2, 2, 3, 2, 1));
        assert_eq!(tally(5, &["a", "b", "b"]).leader(), Some("b"));
        assert_eq!(standing(&["a", "b", "b", ""]).agreement(), 0.5);
    }

    #[test]
    fn no_answer_leads_only_where_nobody_answers() {
        let nobody = tally(4, &["", "", ""]);
        assert_eq!((nobody.leader(), nobody.standing().prediction), (None, 0));
        let one = tally(4, &["", "", "", "a"]);
        assert_eq!((one.leader(), one.standing().score), (Some("a"), 1.0));
    }

    #[test]
    fn what_is_settled_is_certain() {
        for settled in [&["a"; 5][..], &["a", "a", "a"], &["a", "b", "a", "a"]] {
            assert_eq!(tally(5, settled).standing().score, 1.0, "{settled:?}");
        }
        // A draw would do for the one that came first, and not for the second.
        assert_eq!(tally(4, &["a", "a", "b"]).standing().score, 1.0);
        assert!(tally(4, &["b", "a", "a"]).standing().score < 1.0);
    }

    #[test]
    fn classes_are_places_and_a_right_answer_that_nobody_gave_is_none_of_them() {
        let votes = ["7", "", "8", "8"];
        let class = |right| VoteTrace::new(votes.into_iter(), right).unwrap().label;
        assert_eq!([Some("7"), Some("8"), Some("9")].map(class), [1, 2, 5]);
        // Without one it is the majority.
        assert_eq!(class(None), 2);
        let trace = VoteTrace::new(votes.into_iter(), None).unwrap();
        assert_eq!(trace.predictions, [1, 1, 1, 2]);
        assert_eq!(trace.scores[3], 1.0);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        assert_eq!(Tally::new(0), Err(VoteError::Many(0)));
        assert_eq!(Tally::new(101), Err(VoteError::Many(101)));
        assert_eq!(tally(1, &["a"]).vote("a"), Err(VoteError::Over(1)));
    }

    #[test]
    fn a_hundred_different_answers_are_counted() {
        let answers: Vec<String> = (0..MOST_VOTES).map(|i| i.to_string()).collect();
        let trace = VoteTrace::new(answers.iter().map(String::as_str), None).unwrap();
        assert!(trace.scores.iter().all(|s| (0.0..=1.0).contains(s)));
        assert_eq!(trace.scores[MOST_VOTES - 1], 1.0);
    }

    proptest! {
        #[test]
        fn the_score_is_the_urns(
            votes in prop::collection::vec(0_usize..4, 1..5), left in 0_usize..5
        ) {
            let answers: Vec<&str> = votes.iter().map(|&v| ["", "a", "b", "c"][v]).collect();
            let tally = tally(answers.len() + left, &answers);
            let expected = by_urn(&tally, tally.leader());
            let found = f64::from(tally.standing().score);
            prop_assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
}
