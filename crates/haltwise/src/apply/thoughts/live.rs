//! A live thought: it ends when a rule trusts its answer.

use haltwise_stream::StepError;

use super::{Thought, ThoughtError};
use crate::apply::stream::{Decision, Reason, State};
use crate::rule::Rule;

/// Why a live thought cannot go on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LiveThoughtError {
    /// The probe cannot be counted.
    #[error(transparent)]
    Thought(#[from] ThoughtError),
    /// The rule cannot judge thoughts.
    #[error("the rule is not for thoughts: {0}")]
    Rule(#[from] StepError),
}

/// A thought that goes on until its end, or until a rule ends it.
#[derive(Debug, Clone)]
pub struct LiveThought<'a> {
    rule: &'a Rule,
    state: State,
    thought: Thought,
    /// Whether it goes on to its end, whatever the rule says.
    to_the_end: bool,
}

impl<'a> LiveThought<'a> {
    /// Starts a thought.
    pub fn new(rule: &'a Rule) -> Self {
        Self {
            rule,
            state: State::new(),
            thought: Thought::new(),
            to_the_end: false,
        }
    }

    /// Starts a thought that goes on to its end. The rule is not asked.
    pub fn to_the_end(rule: &'a Rule) -> Self {
        Self {
            to_the_end: true,
            ..Self::new(rule)
        }
    }

    /// Whether the rule can still end the thought. If not, only the probe at its end is needed.
    pub fn can_halt(&self) -> bool {
        let seen = self.state.steps() as usize;
        let left = self.rule.thresholds().values().get(seen..);
        let is_open = left.unwrap_or_default().iter().any(|v| v.is_finite());
        let may = self.rule.may_halt(None) && !self.to_the_end;
        is_open && may && !self.state.halted()
    }

    /// Counts a probe, and returns why the thought can end after it, if it can. A thought with more
    /// steps than the rule has goes on to its own end, where it loses nothing.
    pub fn probe(&mut self, answer: &str) -> Result<Option<Reason>, LiveThoughtError> {
        let standing = self.thought.probe(answer)?;
        if self.to_the_end {
            return Ok(None);
        }
        let decision = self.rule.observe(&mut self.state, &standing.step())?;
        let reached = decision == Decision::Halt(Reason::Threshold);
        Ok(reached.then_some(Reason::Threshold))
    }

    /// Counts the probe at the end of the whole thought.
    pub fn end(&mut self, answer: &str) -> Result<Reason, LiveThoughtError> {
        self.thought.probe(answer)?;
        Ok(Reason::End)
    }

    /// The answer of the last probe, if it gave one.
    pub fn answer(&self) -> Option<&str> {
        self.thought.answer()
    }

    /// The probes that were counted.
    pub fn thought(&self) -> &Thought {
        &self.thought
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apply::stream::tests::rule_for;
    use crate::apply::thoughts::MOST_PROBES;

    #[test]
    fn a_thought_ends_when_its_answer_has_stood_for_long_enough() {
        let rule = rule_for(
            &json!("confidence"),
            &[None, Some(0.6), Some(0.6), Some(0.6), None],
        );
        let mut thought = LiveThought::new(&rule);
        for answer in ["7", "8", ""] {
            assert_eq!(thought.probe(answer), Ok(None));
        }
        assert!(thought.can_halt());
        assert_eq!(thought.probe("7"), Ok(Some(Reason::Threshold)));
        assert_eq!(thought.answer(), Some("7"));
        assert!(!thought.can_halt());
    }

    #[test]
    fn past_the_last_threshold_only_the_end_is_asked_for() {
        let rule = rule_for(&json!("confidence"), &[Some(0.9), None, None]);
        let mut thought = LiveThought::new(&rule);
        assert!(thought.can_halt());
        assert_eq!(thought.probe("7"), Ok(None));
        assert!(!thought.can_halt());
        assert_eq!(thought.end("8"), Ok(Reason::End));
        assert_eq!(thought.answer(), Some("8"));
    }

    #[test]
    fn a_thought_with_more_steps_than_the_rule_goes_on_to_its_end() {
        let rule = rule_for(&json!("confidence"), &[None, Some(0.9)]);
        let mut thought = LiveThought::new(&rule);
        for answer in ["7", "8", "8"] {
            assert_eq!(thought.probe(answer), Ok(None));
        }
        assert!(!thought.can_halt());
        assert_eq!(thought.end("8"), Ok(Reason::End));
    }

    #[test]
    fn to_the_end_the_rule_is_not_asked() {
        let rule = rule_for(&json!("confidence"), &[Some(0.0), Some(0.0)]);
        let mut thought = LiveThought::to_the_end(&rule);
        assert!(!thought.can_halt());
        assert_eq!(thought.probe("7"), Ok(None));
        assert_eq!(thought.end("8"), Ok(Reason::End));
    }

    #[test]
    fn a_rule_that_is_not_for_thoughts_is_refused_and_so_are_too_many_probes() {
        let weights = vec![0.0; 11 + 9 + 6];
        let learned = json!({"gap": {"uses_score": true, "classes": 3, "t_max": 2,
            "weights": weights, "intercept": 0.0}});
        let of_probs = rule_for(&learned, &[Some(0.5), None]);
        let refused = LiveThought::new(&of_probs).probe("a").unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.starts_with("the rule is not for thoughts: "),
            "{refused}"
        );

        let rule = rule_for(&json!("confidence"), &[None]);
        let mut thought = LiveThought::to_the_end(&rule);
        for _ in 0..MOST_PROBES {
            thought.probe("").unwrap();
        }
        let refused = LiveThoughtError::Thought(ThoughtError::Many);
        assert_eq!(thought.probe(""), Err(refused));
    }
}
