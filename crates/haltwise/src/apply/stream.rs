//! Live decisions, one step at a time: the state of one stream, and a table of many.

mod table;

use haltwise_stream as live;
pub use haltwise_stream::{Decision, GroupStanding, Reason};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::gap_score::Memory;
use crate::data::sequence::Trace;
use crate::rule::Rule;
use haltwise_stream::{NotAScore, Score, Step, StepError};

pub use table::{Limits, Message, Missing, Outcome, Refusal, Streams, Taken};

/// How far one sequence has come. Show its steps to the rule one by one with
/// [`Rule::observe`]. The state takes sixteen bytes and, if the score is learned, the
/// score's memory until the stream halts. It can be stored and restored.
///
/// A halted stream stays halted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    now: live::State,
    memory: Option<Box<Memory>>,
}

/// The stored form of a state.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored<M> {
    steps: u32,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "is_unnamed")]
    group: GroupStanding,
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    memory: Option<M>,
}

fn is_unnamed(group: &GroupStanding) -> bool {
    *group == GroupStanding::Unnamed
}

fn none<T>() -> Option<T> {
    None
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let stored = Stored {
            steps: self.steps(),
            reason: self.reason(),
            group: self.now.standing(),
            memory: self.memory.as_ref(),
        };
        stored.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored: Stored<Box<Memory>> = Stored::deserialize(deserializer)?;
        Ok(Self {
            now: live::State::at(stored.steps, stored.reason).with_standing(stored.group),
            memory: stored.memory,
        })
    }
}

impl State {
    /// Starts a stream without steps.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of steps seen so far, or until it halted; at most what a `u32` holds.
    pub fn steps(&self) -> u32 {
        self.now.steps()
    }

    /// Whether it has halted.
    pub fn halted(&self) -> bool {
        self.now.halted()
    }

    /// Why it halted; `None` while it runs.
    pub fn reason(&self) -> Option<Reason> {
        self.now.reason()
    }

    /// Ends the stream. Returns why it halted: at its end, unless it had halted before.
    pub fn end(&mut self) -> Reason {
        self.memory = None;
        self.now.end()
    }

    /// Counts steps that were not seen; none of them can halt the stream.
    #[inline]
    fn pass(&mut self, steps: u32) {
        self.now.pass(steps);
    }
}

impl Rule {
    /// The part of the rule that a live stream needs.
    #[inline]
    pub fn live(&self) -> live::Rule<'_> {
        live::Rule::trusted(
            self.thresholds().values(),
            self.source().live(),
            self.classes(),
            self.reads_on(),
        )
        .in_some_groups(self.halts_in().is_some())
    }

    /// Starts a stream of a group, if that is known. A stream of a group that the rule does
    /// not halt is read to its end; so is one without a group if the rule halts in some
    /// groups only.
    pub fn begin(&self, group: Option<&str>) -> State {
        State {
            now: live::State::new().with_standing(self.standing(group)),
            memory: None,
        }
    }

    /// Starts the stream of a trace, which names its group.
    pub fn begin_of(&self, trace: &Trace<'_>) -> State {
        self.begin(self.terms().group(trace).as_deref())
    }

    /// Whether the group of a stream, if that is known, is one that the rule halts.
    pub fn standing(&self, group: Option<&str>) -> GroupStanding {
        match self.halting_groups() {
            [] => GroupStanding::Unnamed,
            halting => GroupStanding::of(group, halting.iter().map(String::as_str)),
        }
    }

    /// Whether the rule may halt a stream of a group before its end.
    pub fn may_halt(&self, group: Option<&str>) -> bool {
        self.standing(group).may_halt(self.halts_in().is_some())
    }

    /// What to say about a stream that is read to its end although nobody asked for that: its
    /// group was never seen, or it names none.
    pub fn unexpected_group(&self, group: Option<&str>) -> Option<String> {
        let by = self.terms().by.as_deref().unwrap_or_default();
        if self.may_halt(group) {
            return None;
        }
        match group {
            None => Some(format!(
                "it does not name its group, and the rule halts only where {by} is one of {:?}: \
                 it is read to its end",
                self.halting_groups()
            )),
            Some(group) if self.groups().iter().any(|known| known == group) => None,
            Some(group) => Some(format!(
                "the rule was not certified for the group {group:?} of {by}: it is read to its end"
            )),
        }
    }

    /// Shows the next step of a stream to the rule, which computes its score.
    ///
    /// A score without class probabilities is used as it is. It must be of the kind that
    /// the rule judges, unless the rule's score is learned and computed from it. A step
    /// without a usable score is refused and not counted: [`skip`](Self::skip) it. Past
    /// `t_max` no score is looked at.
    pub fn observe(&self, state: &mut State, step: &Step<'_>) -> Result<Decision, StepError> {
        let live = self.live();
        let decision = match self.source().learned() {
            Some(learned) if live.looks_at(&state.now) => {
                let memory = match &mut state.memory {
                    Some(memory) if memory.begun => memory,
                    other => other.insert(Box::new(learned.memory())),
                };
                live.observe(&mut state.now, memory, step)
            }
            _ => live.observe_plain(&mut state.now, step),
        };
        self.forget(state);
        decision
    }

    /// Shows the score of the next step to the rule, computed as
    /// [`source`](Self::source) says. Costs nanoseconds.
    #[inline]
    pub fn observe_score(&self, state: &mut State, score: Score) -> Decision {
        let decision = self.live().observe_score(&mut state.now, score);
        self.forget(state);
        decision
    }

    /// Returns the step, counted from 1, at which a stream with these scores halts, or
    /// ends. The error is the first invalid score and its step; scores after the halt are
    /// not looked at.
    ///
    /// The stream may have more steps than that if the rule [reads on](Self::reads_on). It
    /// belongs to this group, if that is known.
    pub fn halt_step(
        &self,
        group: Option<&str>,
        scores: &[f32],
    ) -> Result<usize, (usize, NotAScore)> {
        let last = match self.reads_on() {
            true => scores.len(),
            false => scores.len().min(self.t_max()),
        };
        if !self.may_halt(group) {
            return Ok(last);
        }
        let Some(t) = self.thresholds().first_reached_or_unsound(&scores[..last]) else {
            return Ok(last);
        };
        let sound = Score::try_from(scores[t]).map_err(|e| (t + 1, e));
        sound.map(|_score| t + 1)
    }

    /// Counts a step without a usable score. It cannot halt the stream, unless it is the
    /// rule's last step.
    pub fn skip(&self, state: &mut State) -> Decision {
        let decision = self.live().skip(&mut state.now);
        self.forget(state);
        decision
    }

    /// Frees the memory of the score once no score is computed any more.
    #[inline]
    fn forget(&self, state: &mut State) {
        if state.memory.is_some() && !self.live().looks_at(&state.now) {
            state.memory = None;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::apply::evaluate::Evaluator;
    use crate::data::traces::Traces;
    use crate::rule::Lengths;

    /// A rule with these thresholds, which promises nothing.
    pub(crate) fn rule_for(score: &Value, thresholds: &[Option<f32>]) -> Rule {
        let rule = json!({
            "method": "screen-only", "promise": null, "alpha": 0.1, "delta": 0.01,
            "score": score, "t_max": thresholds.len(), "thresholds": thresholds,
            "expected": null, "screened_on": null, "certified_on": null, "split": null,
            "trail": [],
        });
        serde_json::from_value(rule).unwrap()
    }

    pub(crate) fn rule(thresholds: &[Option<f32>]) -> Rule {
        rule_for(&json!("confidence"), thresholds)
    }

    /// A learned score of three classes: the log-odds of the given one.
    fn learned() -> Value {
        let mut weights = vec![0.0; 11 + 9 + 6];
        weights[4] = 1.0;
        let (t_max, intercept) = (4, 0.0);
        json!({"gap": {
            "uses_score": true, "classes": 3, "t_max": t_max,
            "weights": weights, "intercept": intercept,
        }})
    }

    fn observe_all(rule: &Rule, scores: &[f32]) -> (Vec<Decision>, State) {
        let mut state = State::new();
        let observe = |&s| rule.observe_score(&mut state, Score::try_from(s).unwrap());
        (scores.iter().map(observe).collect(), state)
    }

    use Decision::{Continue, Halt};

    #[test]
    fn a_stream_halts_where_its_score_reaches_the_threshold_and_stays_halted() {
        let rule = rule(&[None, Some(0.8), Some(0.5), Some(0.0)]);
        let (decisions, mut state) = observe_all(&rule, &[0.9, 0.7, 0.5, 0.1]);
        let halt = Halt(Reason::Threshold);
        assert_eq!(decisions, [Continue, Continue, halt, halt]);
        assert_eq!((state.steps(), state.halted()), (3, true));
        assert_eq!(rule.skip(&mut state), halt);
        assert_eq!(rule.observe(&mut state, &Step::default()), Ok(halt));
        assert_eq!(state.end(), Reason::Threshold);
        assert_eq!(state.steps(), 3);
    }

    #[test]
    fn all_scores_at_once_halt_where_they_do_step_by_step() {
        let unknown = rule(&[None, Some(0.8), None, Some(0.5)]);
        let equal = unknown.clone().with_lengths(Lengths::Equal);
        let unequal = unknown.clone().with_lengths(Lengths::Unequal);
        for scores in [
            &[0.9, 0.8, f32::NAN][..],
            &[0.9, 0.7, 1.0, 0.5],
            &[0.9, 0.7, 1.0, 0.4],
            &[0.9, 0.7, 1.0, 0.4, 1.0, 0.9],
            &[0.1],
        ] {
            for rule in [&unknown, &equal, &unequal] {
                let mut state = State::new();
                for &score in scores {
                    let score = Score::try_from(score).unwrap();
                    if rule.observe_score(&mut state, score) != Continue {
                        break;
                    }
                }
                assert_eq!(rule.halt_step(None, scores), Ok(state.steps() as usize));
            }
        }
        let refused = |scores: &[f32]| unequal.halt_step(None, scores).unwrap_err().0;
        assert_eq!(refused(&[0.9, f32::NAN, 1.0]), 2);
        assert_eq!(refused(&[0.9, 0.1, 0.1, 0.1, 1.5]), 5);
    }

    #[test]
    fn a_stream_that_ends_has_halted() {
        let rule = rule(&[Some(0.9); 3]);
        let (_, mut state) = observe_all(&rule, &[0.1]);
        assert_eq!(
            (state.end(), state.reason()),
            (Reason::End, Some(Reason::End))
        );
        let decision = rule.observe_score(&mut state, Score::try_from(1.0).unwrap());
        assert_eq!((decision, state.steps()), (Halt(Reason::End), 1));
    }

    #[test]
    fn past_the_last_step_nothing_halts_unless_all_lengths_were_equal() {
        let unknown = rule(&[None, Some(0.9)]);
        let equal = unknown.clone().with_lengths(Lengths::Equal);
        for rule in [unknown.clone(), equal] {
            let last = Halt(Reason::LastStep);
            assert_eq!(
                observe_all(&rule, &[0.1, 0.1, 1.0]).0,
                [Continue, last, last]
            );
            assert_eq!(observe_all(&rule, &[0.1, 1.0]).0, [Continue, last]);
            assert!(!rule.reads_on());
        }
        let unequal = unknown.with_lengths(Lengths::Unequal);
        assert!(unequal.reads_on());
        let (decisions, state) = observe_all(&unequal, &[1.0, 0.1, 1.0, 1.0]);
        assert_eq!((decisions, state.steps()), (vec![Continue; 4], 4));
        let halt = Halt(Reason::Threshold);
        assert_eq!(observe_all(&unequal, &[0.1, 0.9]).0, [Continue, halt]);
        // An invalid score does not matter there.
        let mut state = state;
        assert_eq!(unequal.observe(&mut state, &Step::default()), Ok(Continue));
    }

    #[test]
    fn reasons_have_one_word_each() {
        for reason in [Reason::Threshold, Reason::LastStep, Reason::End] {
            assert_eq!(json!(reason), json!(reason.to_string()));
        }
        assert_eq!(Reason::LastStep.to_string(), "last-step");
    }

    #[test]
    fn a_rule_holds_streams_to_its_number_of_classes() {
        let probs = [0.5, 0.25, 0.25];
        for score in ["max-probability", "margin", "confidence"] {
            let rule = rule_for(&json!(score), &[Some(0.9); 3]);
            let step = Step {
                score: Some(0.5),
                probs: Some(&probs),
                ..Step::default()
            };
            for classes in [None, Some(3)] {
                let rule = rule.clone().with_classes(classes);
                assert_eq!(rule.observe(&mut State::new(), &step), Ok(Continue));
            }
            let (rule, mut state) = (rule.with_classes(Some(4)), State::new());
            let (found, expected) = (3, 4);
            let refused = Err(StepError::Classes { found, expected });
            assert_eq!(rule.observe(&mut state, &step), refused, "{score}");
            assert_eq!(state, State::new(), "a refused step is not counted");
        }
    }

    #[test]
    fn a_score_alone_is_taken_as_the_one_that_is_judged() {
        let step = Step {
            score: Some(0.95),
            ..Step::default()
        };
        for score in [
            json!("max-probability"),
            json!("margin"),
            json!("confidence"),
        ] {
            let rule = rule_for(&score, &[Some(0.9); 3]);
            let decision = rule.observe(&mut State::new(), &step);
            assert_eq!(decision, Ok(Halt(Reason::Threshold)), "{score}");
        }
        let rule = rule_for(&learned(), &[Some(0.9); 3]);
        let refused = rule.observe(&mut State::new(), &step);
        assert_eq!(refused, Err(StepError::NoProbs));
    }

    #[test]
    fn only_a_learned_score_remembers_and_only_while_it_is_needed() {
        assert_eq!(size_of::<State>(), 16);
        let probs = [0.5, 0.25, 0.25];
        let step = Step {
            prediction: Some(0),
            score: Some(0.5),
            probs: Some(&probs),
        };
        for score in [json!("confidence"), json!("margin"), learned()] {
            let rule = rule_for(&score, &[Some(0.9), Some(0.9)]);
            for rule in [rule.clone(), rule.with_lengths(Lengths::Unequal)] {
                let mut state = State::new();
                assert_eq!(rule.observe(&mut state, &step), Ok(Continue));
                assert_eq!(state.memory.is_some(), score.is_object());
                rule.observe(&mut state, &step).unwrap();
                assert_eq!(state.memory, None);
            }
        }
    }

    #[test]
    fn a_stored_state_goes_on_where_it_was() {
        let rule = rule_for(&learned(), &[None, None, Some(0.85), Some(0.9)]);
        let probs = [0.5, 0.25, 0.25];
        let step = |score| Step {
            prediction: Some(0),
            score: Some(score),
            probs: Some(&probs),
        };
        let (mut whole, mut stored) = (State::new(), State::new());
        for score in [0.95, 0.95, 0.7, 0.95] {
            let text = serde_json::to_string(&stored).unwrap();
            stored = serde_json::from_str(&text).unwrap();
            let decision = rule.observe(&mut whole, &step(score)).unwrap();
            assert_eq!(rule.observe(&mut stored, &step(score)), Ok(decision));
            assert_eq!(stored, whole);
        }
        // The third step halted it for what the first two had been.
        assert_eq!(
            (whole.steps(), whole.reason()),
            (3, Some(Reason::Threshold))
        );
        assert_eq!(json!(whole), json!({"steps": 3, "reason": "threshold"}));
    }

    #[test]
    fn a_state_of_another_rule_is_refused_or_halts() {
        let probs = [0.5, 0.25, 0.25];
        let step = Step {
            prediction: Some(0),
            score: Some(0.5),
            probs: Some(&probs),
        };
        let rule = rule_for(&learned(), &[Some(0.99); 3]);
        let mut state = State::new();
        rule.observe(&mut state, &step).unwrap();
        let mut stored = json!(state);
        stored["memory"]["run"] = json!(u32::MAX);
        let mut state: State = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(rule.observe(&mut state, &step), Ok(Continue));
        stored["memory"]["probs"] = json!([0.5, 0.5]);
        let mut state: State = serde_json::from_value(stored).unwrap();
        let refused = rule.observe(&mut state, &step);
        assert_eq!(refused, Err(StepError::OtherRule));
        let mut far: State = serde_json::from_value(json!({"steps": u32::MAX})).unwrap();
        let read_on = rule.clone().with_lengths(Lengths::Unequal);
        assert_eq!(read_on.skip(&mut far), Continue);
        assert_eq!(far.steps(), u32::MAX);
        assert_eq!(rule.observe(&mut far, &step), Ok(Halt(Reason::LastStep)));
    }

    proptest! {
        /// One semantics: a sequence halts live where evaluating says it does,
        /// however long it is.
        #[test]
        fn evaluating_and_deciding_live_agree(
            thresholds in prop::collection::vec(prop::option::of(0.0f32..=1.0), 1..6),
            scores in prop::collection::vec(0.0f32..=1.0, 1..12),
            lengths in prop_oneof![Just(None), Just(Some(Lengths::Equal)), Just(Some(Lengths::Unequal))],
        ) {
            let mut rule = rule(&thresholds);
            if let Some(lengths) = lengths {
                rule = rule.with_lengths(lengths);
            }
            let mut traces = Traces::builder();
            let mut predictions = vec![1; scores.len()];
            predictions[scores.len() - 1] = 0;
            traces.push(None, &0, &predictions, &scores).unwrap();
            let mut evaluator = Evaluator::for_rule(&rule);
            let added = evaluator.add(&traces.finish());
            let longer = scores.len() > thresholds.len();
            prop_assert_eq!(added.is_err(), longer && lengths != Some(Lengths::Unequal));
            if added.is_err() {
                return Ok(());
            }
            let found = evaluator.finish().unwrap();
            prop_assert_eq!(found.t_max, scores.len().max(thresholds.len()));
            prop_assert_eq!(found.by_step.len(), found.t_max);
            let (_, mut state) = observe_all(&rule, &scores);
            state.end();
            let halted = found.by_step.iter().find(|step| step.halted > 0).unwrap();
            prop_assert_eq!(halted.t, state.steps() as usize);
            let early = halted.t < scores.len();
            prop_assert_eq!(found.gap, if early { 1.0 } else { 0.0 });
        }
    }
}
