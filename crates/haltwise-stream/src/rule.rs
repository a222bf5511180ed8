//! A rule, and what it decides.

use crate::gap_score::Memory;
use crate::score::ScoreKind;
use crate::state::{Decision, Reason, State};
use crate::step::{Score, Step, StepError};
use crate::thresholds::{ThresholdError, check_thresholds};

/// When to halt: the part of a rule that a live stream needs, borrowed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule<'a> {
    thresholds: &'a [f32],
    source: ScoreKind<'a>,
    classes: Option<usize>,
    reads_on: bool,
    some_groups: bool,
}

/// Why numbers are not a rule.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The thresholds are invalid.
    #[error(transparent)]
    Thresholds(#[from] ThresholdError),
    /// The learned score needs another number of classes than a step has.
    #[error("its score was fitted to another number of classes")]
    Classes,
}

impl<'a> Rule<'a> {
    /// A rule with one threshold in [0, 1] per step, or ∞ for never.
    ///
    /// `classes` is how many class probabilities a step has, if known. Past its last step,
    /// a rule that `reads_on` never halts a stream; any other rule halts it there.
    pub fn new(
        thresholds: &'a [f32],
        source: ScoreKind<'a>,
        classes: Option<usize>,
        reads_on: bool,
    ) -> Result<Self, RuleError> {
        check_thresholds(thresholds)?;
        let fitted = match source {
            ScoreKind::Gap(score) => Some(score.features().classes).filter(|&k| k > 0),
            _ => None,
        };
        let known = classes.or(fitted);
        if known == Some(0) || fitted.is_some() && known != fitted {
            return Err(RuleError::Classes);
        }
        Ok(Self::trusted(thresholds, source, classes, reads_on))
    }

    /// Does the same with numbers that were checked before. Unchecked numbers are not
    /// dangerous, but may halt a stream at an unexpected step.
    #[inline]
    pub fn trusted(
        thresholds: &'a [f32],
        source: ScoreKind<'a>,
        classes: Option<usize>,
        reads_on: bool,
    ) -> Self {
        Self {
            thresholds,
            source,
            classes,
            reads_on,
            some_groups: false,
        }
    }

    /// The same rule, if it halts in some groups only or in all. If in some, a stream halts
    /// early only if its state says that its group is among them
    /// ([`State::with_standing`]).
    pub fn in_some_groups(self, some_groups: bool) -> Self {
        Self {
            some_groups,
            ..self
        }
    }

    /// Whether the rule halts in some groups only.
    pub fn some_groups(&self) -> bool {
        self.some_groups
    }

    /// Whether the rule may halt a stream of this standing before its end.
    #[inline]
    pub fn may_halt(&self, state: &State) -> bool {
        state.standing().may_halt(self.some_groups)
    }

    /// The thresholds, ∞ for never.
    pub fn thresholds(&self) -> &'a [f32] {
        self.thresholds
    }

    /// How to compute the score of a step.
    pub fn source(&self) -> ScoreKind<'a> {
        self.source
    }

    /// How many class probabilities a step has, if known.
    pub fn classes(&self) -> Option<usize> {
        self.classes
    }

    /// Whether a stream that is longer than the rule is read to its end.
    pub fn reads_on(&self) -> bool {
        self.reads_on
    }

    /// How many numbers the [memory](Memory) of a stream must have room for; 0 if no score
    /// is learned from probabilities.
    pub fn room(&self) -> usize {
        match self.source {
            ScoreKind::Gap(score) => score.features().room(),
            _ => 0,
        }
    }

    /// Whether the rule still looks at a stream in this state.
    #[inline]
    pub fn looks_at(&self, state: &State) -> bool {
        !state.halted() && (state.steps() as usize) < self.thresholds.len() && self.may_halt(state)
    }

    /// Shows the next step of a stream to the rule, which computes its score.
    ///
    /// A score without class probabilities is used as it is. It must be of the kind that
    /// the rule judges, unless the rule's score is learned and computed from it. A step
    /// without a usable score is refused and not counted: [`skip`](Self::skip) it. Past the
    /// last threshold no score is looked at.
    pub fn observe<P: AsMut<[f32]>>(
        &self,
        state: &mut State,
        memory: &mut Memory<P>,
        step: &Step<'_>,
    ) -> Result<Decision, StepError> {
        self.observe_with(state, step, |t| self.source.score(step, t, memory))
    }

    /// Does the same for a rule whose score is not learned, so that a stream has no memory
    /// except its state.
    pub fn observe_plain(&self, state: &mut State, step: &Step<'_>) -> Result<Decision, StepError> {
        self.observe_with(state, step, |_| self.source.plain_score(step))
    }

    fn observe_with(
        &self,
        state: &mut State,
        step: &Step<'_>,
        score: impl FnOnce(usize) -> Result<Score, StepError>,
    ) -> Result<Decision, StepError> {
        if !self.looks_at(state) {
            return Ok(self.skip(state));
        }
        if let (Some(expected), Some(probs)) = (self.classes, step.probs)
            && probs.len() != expected
        {
            let found = probs.len();
            return Err(StepError::Classes { found, expected });
        }
        let score = match step.score {
            Some(_) if self.source.is_of_probs() && step.probs.is_none() => step.given()?,
            _ => score(state.steps() as usize)?,
        };
        Ok(self.observe_score(state, score))
    }

    /// Shows the score of the next step to the rule, computed as
    /// [`source`](Self::source) says.
    #[inline]
    pub fn observe_score(&self, state: &mut State, score: Score) -> Decision {
        self.step(state, |threshold| score.get() >= threshold)
    }

    /// Counts a step without a usable score. It cannot halt the stream, unless it is the
    /// rule's last step.
    #[inline]
    pub fn skip(&self, state: &mut State) -> Decision {
        self.step(state, |_| false)
    }

    #[inline]
    fn step(&self, state: &mut State, reaches: impl Fn(f32) -> bool) -> Decision {
        if let Some(reason) = state.reason() {
            return Decision::Halt(reason);
        }
        let t = state.steps() as usize;
        state.pass(1);
        let reached = self.may_halt(state) && self.thresholds.get(t).is_some_and(|&v| reaches(v));
        let over = t.saturating_add(1) >= self.thresholds.len();
        if over && !self.reads_on {
            return Decision::Halt(state.halt(Reason::LastStep));
        }
        if reached {
            return Decision::Halt(state.halt(Reason::Threshold));
        }
        Decision::Continue
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::GroupStanding;

    #[test]
    fn what_is_no_rule_is_refused() {
        fn rule(thresholds: &[f32], classes: Option<usize>) -> Result<Rule<'_>, RuleError> {
            Rule::new(thresholds, ScoreKind::Margin, classes, true)
        }
        assert!(rule(&[0.0, 1.0, f32::INFINITY], None).is_ok());
        assert_eq!(rule(&[], None), Err(ThresholdError::Empty.into()));
        for value in [-0.1, 1.1, f32::NEG_INFINITY] {
            let refused = RuleError::Thresholds(ThresholdError::Value { step: 2, value });
            assert_eq!(rule(&[0.5, value], None), Err(refused));
        }
        assert!(rule(&[0.5, f32::NAN], None).is_err());
        assert_eq!(rule(&[0.5], Some(0)), Err(RuleError::Classes));
    }

    #[test]
    fn a_rule_of_some_groups_halts_those_and_reads_all_others_to_the_end() {
        let thresholds = [0.5, 0.5];
        let rule = Rule::new(&thresholds, ScoreKind::Confidence, None, false).unwrap();
        let high = Score::try_from(0.9).unwrap();
        let halts = |rule: &Rule<'_>, group: Option<&str>| {
            let standing = GroupStanding::of(group, ["a", "b"]);
            let mut state = State::new().with_standing(standing);
            let first = rule.observe_score(&mut state, high);
            assert_eq!(
                rule.looks_at(&state),
                first == Decision::Continue && standing.may_halt(rule.some_groups())
            );
            // All lengths were equal, so a stream ends at the last step in any group.
            let last = rule.observe_score(&mut state, high);
            assert!(matches!(last, Decision::Halt(_)));
            first == Decision::Halt(Reason::Threshold)
        };
        let groups = [None, Some("a"), Some("b"), Some("c"), Some("")];
        let of = |rule: Rule<'_>| groups.map(|group| halts(&rule, group));
        assert_eq!(
            of(rule.in_some_groups(true)),
            [false, true, true, false, false]
        );
        assert_eq!(of(rule), [true, true, true, false, false]);
    }

    #[test]
    fn a_state_is_small() {
        assert_eq!(size_of::<State>(), 8);
    }
}
