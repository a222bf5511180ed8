//! What a rule did to a stream that was read to its end.

use crate::evaluate::EvaluateError;
use crate::loss::gap;
use crate::rule::Rule;
use crate::sequence::Trace;
use crate::step::StepError;
use crate::stream::{Decision, State};

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
}

/// The step, counted from 1, at which a rule halts a trace, and whether that
/// loses a right answer: what a [`Monitor`](super::Monitor) wants to know.
pub fn audit(rule: &Rule, trace: &Trace<'_>) -> Result<(u32, bool), AuditError> {
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
    let right = |t: usize| trace.predictions()[t - 1] == trace.label();
    let loss = gap(right(found), right(state.steps() as usize));
    Ok((state.steps(), loss))
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
                label,
                predictions: Some(predictions),
                scores: Some(scores),
                ..Sequence::default()
            };
            audit(&rule, &checker.check(sequence).unwrap())
        };
        let scores = [0.9, 0.7, 0.5, 0.1];
        assert_eq!(found(1, &[1, 1, 0, 1], &scores), Ok((3, true)));
        assert_eq!(found(0, &[1, 1, 0, 1], &scores), Ok((3, false)));
        assert_eq!(found(2, &[1, 1, 0, 1], &scores), Ok((3, false)));
        // A stream that ends has lost nothing.
        assert_eq!(found(1, &[0, 1], &[0.1, 0.1]), Ok((2, false)));
        assert_eq!(found(1, &[0, 0, 0, 1], &[0.1; 4]), Ok((4, false)));
        let long = found(1, &[0; 5], &[0.1; 5]);
        assert!(matches!(long, Err(AuditError::TooLong(_))));
    }
}
