//! Audits: what a rule does to streams that were read to their ends.

use super::{Monitor, UnitKey, Verdict};
use crate::apply::evaluate::EvaluateError;
use crate::apply::stream::Decision;
use crate::data::agreement::{Agreement, Doubt};
use crate::data::identity::Key;
use crate::data::sequence::Trace;
use crate::data::sequence_error::SequenceError;
use crate::data::unit_weights::UnitWeights;
use crate::rule::Rule;
use haltwise_stream::StepError;

/// Why a trace cannot be an audit of a rule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The trace has more steps than the rule.
    #[error(transparent)]
    TooLong(#[from] EvaluateError),
    /// A step has no score of the kind that the rule judges.
    #[error(transparent)]
    Score(#[from] StepError),
    /// The trace belongs to a group that the promise does not cover.
    #[error(
        "the rule was not certified for the group {0:?}; leave its sequences out, or calibrate \
         with them"
    )]
    Group(String),
    /// The trace does not say which group it belongs to.
    #[error(
        "it has no {0:?}, and the rule promises something to each; give the column {0:?} that it \
         was calibrated with"
    )]
    NoGroup(String),
    /// The trace does not say which unit it belongs to.
    #[error(
        "it has no {0:?}, and the rule promises something about units; give the column {0:?} that \
         it was calibrated with"
    )]
    NoUnit(String),
    /// The weight of the trace cannot be used.
    #[error(transparent)]
    Weight(#[from] SequenceError),
    /// The trace has a weight and earlier audits have none, or the other way round.
    #[error(
        "some audits have the column {0:?} and some do not; give it for all of them, or for none if \
         all are from where the rule is used"
    )]
    SomeWeights(String),
}

/// The effect of a rule on a trace: the input of a [`Monitor`](super::Monitor).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audited {
    /// The step, counted from 1, at which it halts.
    pub step: u32,
    /// Whether halting lost what the promise is about: a right answer, or the full answer.
    /// `None` if only a label can tell.
    pub loss: Option<bool>,
    /// The place of its group among the [watched groups](crate::Rule::halting_groups); 0 if
    /// there are none.
    pub group: usize,
    /// Its unit, if the promise is about units.
    pub unit: Option<UnitKey>,
}

/// Applies a rule to streams that were read to their ends, in the order in which they
/// began.
#[derive(Debug, Clone)]
pub struct Auditor {
    rule: Rule,
    /// How many streams there were.
    streams: u64,
    /// Whether streams have weights; `None` before the first stream.
    have_weights: Option<bool>,
    unit_weights: UnitWeights,
    /// How labels and predictions agree, where the early answer is the full one.
    agreement: Agreement,
}

impl Auditor {
    /// Starts with no stream.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            streams: 0,
            have_weights: None,
            unit_weights: UnitWeights::default(),
            agreement: Agreement::default(),
        }
    }

    /// The rule.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Applies the rule to the next stream. Returns `None` if the rule's weights leave it
    /// out, or if the rule reads its group to the end: then there is nothing to watch.
    ///
    /// Streams from where the rule is used have no weights: their mix is already the
    /// declared one. Streams of another mix have weights, and are thinned like the
    /// certifying ones.
    pub fn audit(&mut self, trace: &Trace<'_>) -> Result<Option<Audited>, AuditError> {
        let position = self.streams;
        self.streams += 1;
        if !self.is_kept(position, trace)? {
            return Ok(None);
        }
        let Some((found, agree)) = apply(&self.rule, trace)? else {
            return Ok(None);
        };
        // Labels are often asked for only where the answers differ. There the full one may be right
        // less often than chance.
        if agree {
            self.agreement.note(trace);
        }
        Ok(Some(found))
    }

    /// A doubt whether the labels number the classes as the predictions do. With labels that do
    /// not, nothing is ever lost.
    pub fn label_doubt(&self) -> Option<Doubt> {
        self.agreement.refusal()
    }

    /// The verdict of a monitor that was shown these audits. It is never "all clear" while the
    /// labels are doubted.
    pub fn verdict(&self, monitor: &Monitor) -> Verdict {
        let mut verdict = monitor.verdict();
        verdict.all_clear &= self.label_doubt().is_none();
        verdict
    }

    /// Whether the weights keep a stream, or its unit.
    fn is_kept(&mut self, position: u64, trace: &Trace<'_>) -> Result<bool, AuditError> {
        let Some(declared) = &self.rule.terms().weight else {
            return Ok(true);
        };
        let about = trace.about();
        if *self.have_weights.get_or_insert(about.weight.is_some()) != about.weight.is_some() {
            return Err(AuditError::SomeWeights(declared.column.clone()));
        }
        let Some(weight) = about.weight else {
            return Ok(true);
        };
        self.unit_weights.check(self.rule.terms(), trace)?;
        let key = match about.unit.filter(|_| self.rule.terms().unit.is_some()) {
            Some(unit) => Key::new(Some(unit), 0),
            None => Key::new(trace.id(), position),
        };
        Ok(declared.keeps(weight, self.rule.admission().seed(), key)?)
    }
}

/// Applies a rule to a stream. Also says whether the early answer is the full one. `None` if
/// the rule reads its group to the end.
fn apply(rule: &Rule, trace: &Trace<'_>) -> Result<Option<(Audited, bool)>, AuditError> {
    let (found, t_max) = (trace.len(), rule.t_max());
    if found > t_max && !rule.reads_on() {
        return Err(EvaluateError::TooLong { found, t_max }.into());
    }
    let mut state = rule.begin_of(trace);
    for step in trace.steps() {
        if let Decision::Halt(_) = rule.observe(&mut state, &step)? {
            break;
        }
    }
    state.end();
    let said = |t: usize| trace.predictions()[t - 1];
    let (early, full) = (said(state.steps() as usize), said(found));
    let groups = rule.halting_groups();
    let group = match &rule.terms().by {
        Some(column) if !groups.is_empty() => {
            let group = rule.terms().group(trace);
            let group = group.ok_or_else(|| AuditError::NoGroup(column.clone()))?;
            match groups.iter().position(|known| *known == *group) {
                Some(place) => place,
                None if rule.groups().iter().any(|known| *known == *group) => return Ok(None),
                None => return Err(AuditError::Group(group.into_owned())),
            }
        }
        _ => 0,
    };
    let unit = match &rule.terms().unit {
        None => None,
        Some(column) => {
            let name = trace.about().unit;
            let name = name.ok_or_else(|| AuditError::NoUnit(column.clone()))?;
            Some(UnitKey::new(name))
        }
    };
    let audited = Audited {
        step: state.steps(),
        loss: rule
            .terms()
            .loss
            .of_answers(&early, &full, trace.label().as_ref()),
        group,
        unit,
    };
    Ok(Some((audited, early == full)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::monitor::Watch;
    use crate::apply::stream::tests::rule;
    use crate::data::checker::Checker;
    use crate::data::sequence::Sequence;

    #[test]
    fn an_audit_says_where_a_trace_halts_and_whether_that_loses_a_right_answer() {
        let rule = rule(&[None, Some(0.8), Some(0.5), None]);
        let found = |label, predictions: &[u32], scores: &[f32]| {
            let mut checker = Checker::new();
            let sequence = Sequence {
                label: Some(label),
                predictions: Some(predictions),
                scores: Some(scores),
                ..Sequence::default()
            };
            let audited = apply(&rule, &checker.check(sequence).unwrap());
            audited.map(|found| {
                let (found, _) = found.unwrap();
                (found.step, found.loss)
            })
        };
        let scores = [0.9, 0.7, 0.5, 0.1];
        assert_eq!(found(1, &[1, 1, 0, 1], &scores), Ok((3, Some(true))));
        assert_eq!(found(0, &[1, 1, 0, 1], &scores), Ok((3, Some(false))));
        assert_eq!(found(2, &[1, 1, 0, 1], &scores), Ok((3, Some(false))));
        // A stream that ends has lost nothing.
        assert_eq!(found(1, &[0, 1], &[0.1, 0.1]), Ok((2, Some(false))));
        assert_eq!(found(1, &[0, 0, 0, 1], &[0.1; 4]), Ok((4, Some(false))));
        let long = found(1, &[0; 5], &[0.1; 5]);
        assert!(matches!(long, Err(AuditError::TooLong(_))));
    }

    #[test]
    fn labels_that_start_at_1_are_never_all_clear() {
        let rule = rule(&[None, Some(0.8), Some(0.5), None]);
        let verdict = |first: u32| {
            let mut auditor = Auditor::new(rule.clone());
            let watch = Watch::new(Default::default(), Default::default(), vec![2, 3]);
            let (mut monitor, mut checker) = (Monitor::new(watch), Checker::new());
            for i in 0..4000 {
                let sequence = Sequence {
                    label: Some(i % 3 + first),
                    predictions: Some(&[i % 3; 4]),
                    scores: Some(&[0.1, 0.9, 0.9, 0.9]),
                    ..Sequence::default()
                };
                let found = auditor.audit(&checker.check(sequence).unwrap());
                let waiting = monitor.take(&found.unwrap().unwrap());
                assert!(waiting.is_none());
            }
            (auditor.label_doubt().is_some(), auditor.verdict(&monitor))
        };
        let (doubted, verdict_0) = verdict(0);
        assert!(!doubted && verdict_0.all_clear);
        let (doubted, verdict_1) = verdict(1);
        assert!(doubted && !verdict_1.all_clear && !verdict_1.alarm);
    }
}
