//! Why no rule can be had.

use crate::sequence::SequenceError;
use crate::step::StepError;
use crate::table::EvidenceError;

/// Why sequences cannot be calibrated on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// There is nothing to work on.
    #[error("there are no {0} traces; give more, or a set of their own for each part")]
    Empty(&'static str),
    /// One set is to be split, and is too small for it.
    #[error(
        "{n} {are} too few to split in two: there are no {missing} traces; give more, or a set of \
         their own for each part",
        are = if *.n == 1 { "trace is" } else { "traces are" }
    )]
    TooFew {
        /// How many there are.
        n: u64,
        /// What part would be empty.
        missing: &'static str,
    },
    /// There is nothing to learn a score from.
    #[error(
        "there is no gap in the traces to fit to, so nothing to learn a score from; choose another \
         score"
    )]
    NoGap,
    /// Two sets do not have as many classes.
    #[error(
        "the traces to {role} have {found} class probabilities per step, those to certify on \
         {expected}; both must come from the same classifier"
    )]
    Classes {
        /// What the other set is for.
        role: &'static str,
        /// How many it has.
        found: String,
        /// How many those to certify on have.
        expected: String,
    },
    /// The method promises nothing, so there is nothing to certify.
    #[error("the method screen-only makes no promise to certify")]
    NoPromise,
    /// One set is to fit a score and to screen, and cannot do both.
    #[error(
        "the learned score is fitted to other traces than thresholds are screened on: give one \
         set, and it is split, or choose another score"
    )]
    TwoParts,
    /// The evidence cannot be gathered or relied on.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// A step has no score of the kind that is wanted.
    #[error(transparent)]
    Score(#[from] StepError),
    /// A sequence is unsound.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
}
