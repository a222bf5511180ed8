//! Why there can be no rule.

use crate::data::sequence_error::SequenceError;
use crate::tables::error::EvidenceError;
use haltwise_stream::StepError;

/// Why sequences cannot be calibrated on.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrateError {
    /// There are no sequences.
    #[error("there are no {0} traces; give more, or a set of their own for each part")]
    Empty(&'static str),
    /// The set is too small to be split.
    #[error(
        "{n} {are} too few to split in two: there are no {missing} traces; give more, or a set of \
         their own for each part",
        are = if *.n == 1 { "trace is" } else { "traces are" }
    )]
    TooFew {
        /// How many sequences there are.
        n: u64,
        /// The part that would be empty.
        missing: &'static str,
    },
    /// There is nothing to learn a score from.
    #[error(
        "there is no gap in the traces to fit to, so nothing to learn a score from; choose another \
         score"
    )]
    NoGap,
    /// There is no label at all.
    #[error(
        "no sequence has a label, and without one no gap is known; the loss disagreement needs none"
    )]
    NoLabels,
    /// Labels are missing where all are needed.
    #[error(
        "not every sequence has a label; only the method adaptive, without units, can make do \
         with few: choose it, fill the labels in, or choose the loss disagreement, which needs none"
    )]
    FewLabels,
    /// The column to promise by has only one value.
    #[error(
        "all sequences have the same value in the column `{by}`, so a promise by it is the plain \
         one; leave it out, or name another column"
    )]
    OneGroup {
        /// The column.
        by: String,
    },
    /// The column to promise by has too many values.
    #[error(
        "the column `{by}` has more than 1000 values; it looks like an id: name a column of groups"
    )]
    ManyGroups {
        /// The column.
        by: String,
    },
    /// A group is missing from one of the parts.
    #[error(
        "the value {group:?} of `{by}` is not among the {role} traces, so nothing can be proposed \
         for it; merge rare values, or leave its sequences out"
    )]
    LostGroup {
        /// The column.
        by: String,
        /// The value.
        group: String,
        /// The part that it is missing from.
        role: &'static str,
    },
    /// Units do not fit into memory.
    #[error(
        "the sequences of a unit count together, so all must be kept, and they do not fit into the \
         memory allowed; allow more (--memory)"
    )]
    UnitsNeedMemory,
    /// Two sets have different numbers of classes.
    #[error(
        "the traces to {role} have {found} class probabilities per step, those to certify on \
         {expected}; both must come from the same classifier"
    )]
    Classes {
        /// The purpose of the other set.
        role: &'static str,
        /// The number of its classes.
        found: String,
        /// The number of classes of the certifying set.
        expected: String,
    },
    /// The method promises nothing, so there is nothing to certify.
    #[error("the method screen-only makes no promise to certify")]
    NoPromise,
    /// One set would have to fit a score and to screen.
    #[error(
        "the learned score is fitted to other traces than thresholds are screened on: give one \
         set, and it is split, or choose another score"
    )]
    TwoParts,
    /// The evidence cannot be gathered or trusted.
    #[error(transparent)]
    Evidence(#[from] EvidenceError),
    /// A step has no score of the kind that is wanted.
    #[error(transparent)]
    Score(#[from] StepError),
    /// A sequence is unsound.
    #[error(transparent)]
    Sequence(#[from] SequenceError),
}
