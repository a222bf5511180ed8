//! What a rule did to a stream that was read to its end.

use crate::evaluate::EvaluateError;
use crate::loss::{Loss, gap};
use crate::rule::Rule;
use crate::sequence::Trace;
use crate::stream::{Decision, State};
use haltwise_stream::StepError;

/// Why a trace is no audit of a rule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// It has more steps than the rule.
    #[error(transparent)]
    TooLong(#[from] EvaluateError),
    /// A step has no score of the kind that the rule judges.
    #[error(transparent)]
    Score(#[from] StepError),
    /// It belongs to no group that the rule promises anything.
    #[error(
        "the group {0:?} is none that the rule was certified for; leave its sequences out, or \
         calibrate with them"
    )]
    Group(String),
}

/// What a rule did to a trace: what a [`Monitor`](super::Monitor) wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audited {
    /// The step, counted from 1, at which it halts.
    pub step: u32,
    /// Whether that loses what the rule promises about, a right answer or the
    /// full one; `None` where only a label would tell.
    pub loss: Option<bool>,
    /// The place of its group among the rule's; 0 where there are none.
    pub group: usize,
}

/// Applies a rule to a stream that was read to its end.
pub fn audit(rule: &Rule, trace: &Trace<'_>) -> Result<Audited, AuditError> {
    let (found, t_max) = (trace.len(), rule.t_max());
    if found > t_max && !rule.reads_on() {
        return Err(EvaluateError::TooLong { found, t_max }.into());
    }
    let mut state = State::new();
    for step in trace.steps() {
        if let Decision::Halt(_) = rule.observe(&mut state, &step)? {
            break;
        }
    }
    state.end();
    let said = |t: usize| trace.predictions()[t - 1];
    let (early, full) = (said(state.steps() as usize), said(found));
    let group = match rule.terms().group(trace) {
        None => 0,
        Some(group) => {
            let place = rule.groups().iter().position(|known| *known == *group);
            place.ok_or_else(|| AuditError::Group(group.into_owned()))?
        }
    };
    Ok(Audited {
        step: state.steps(),
        loss: match rule.terms().loss {
            _ if early == full => Some(false),
            Loss::Disagreement => Some(true),
            _ => trace
                .label()
                .map(|label| gap(full == label, early == label)),
        },
        group,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::{Checker, Sequence};
    use crate::stream::tests::rule;

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
            let audited = audit(&rule, &checker.check(sequence).unwrap());
            audited.map(|found| (found.step, found.loss))
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
}
