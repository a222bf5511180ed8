//! Reasons to refuse counts.

use super::table::MOST_CELLS;
use crate::data::score::ScoreSource;

/// Why traces cannot be counted, or counts cannot be trusted.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The counts were gathered for different proposals.
    #[error("the evidence was gathered for other candidate rules, or at other levels")]
    OtherProposal,
    /// The traces have another score than the candidates judge.
    #[error("the scores were computed in another way: {found}, not {expected}")]
    OtherScore {
        /// The score of the traces.
        found: String,
        /// The score that the candidates judge.
        expected: String,
    },
    /// A sequence has more steps than the candidates have thresholds.
    #[error("a sequence has {found} steps, but the candidate rules are for {t_max} at the most")]
    TooLong {
        /// The steps of the longest sequence.
        found: usize,
        /// The steps the candidates are for.
        t_max: usize,
    },
    /// The traces were binned on a grid that lacks a candidate's threshold.
    #[error("the traces were binned on a grid that does not have the candidates' thresholds")]
    OffGrid,
    /// The table of counts would not fit into memory.
    #[error(
        "{rules} candidate rules of {t_max} steps need more counts than are kept (at most \
         {MOST_CELLS}); take every tenth step, say"
    )]
    TooManyCells {
        /// How many candidates there are.
        rules: usize,
        /// The steps of each.
        t_max: usize,
    },
    /// The counts contradict each other.
    #[error("the evidence is damaged: {0}")]
    Damaged(&'static str),
    /// There is no evidence.
    #[error("there are no certifying traces; give more, or a set of their own for each part")]
    None,
    /// The candidates were made from exactly the sequences that were counted.
    #[error(
        "the candidates were made from these very traces, which voids the guarantee; gather \
         evidence from others, or give one set, and it is split"
    )]
    Same,
    /// Some counted sequences had been fitted to or screened on.
    #[error(
        "{0} of the sequences to certify on, with the same ids, {is} also among those that the \
         candidates were made from, which voids the guarantee; drop them from one, or give one \
         set, and it is split", is = if *.0 == 1 { "is" } else { "are" }
    )]
    Shared(u64),
    /// Some sequences were shown more than once.
    #[error(
        "{0} or more sequences come twice, under the same ids and with the same content, but each \
         may count only once; leave them out of one of the parts"
    )]
    Twice(u64),
    /// The candidates were made from other sequences than those left out.
    #[error(
        "the sequences left out are not those that the candidates were made from, so some of \
         those may have been counted, which voids the guarantee; {remedy}"
    )]
    Leak {
        /// What to do about it.
        remedy: &'static str,
    },
    /// Not all sequences that were read while screening were counted.
    #[error(
        "the evidence is of {found} sequences, but {expected} were read while screening; give \
         every part, and each once"
    )]
    Incomplete {
        /// How many were counted or left out.
        found: u64,
        /// How many there are.
        expected: u64,
    },
    /// There are fewer sequences than at the first planned look.
    #[error(
        "the first look is planned after {first} sequences, and {found} are there; count more of \
         them before certifying"
    )]
    BeforeLooks {
        /// How many were counted or left out.
        found: u64,
        /// How many there must be.
        first: u64,
    },
    /// A unit was counted in two parts.
    #[error(
        "sequences of one unit were counted in different parts, where each counts as one; keep the \
         sequences of a unit together"
    )]
    CutUnit,
    /// Sequences of one unit have different weights.
    #[error(
        "sequences of one unit have different weights; a unit is taken whole or left out whole, so \
         give all of its sequences one weight"
    )]
    UnevenUnit,
    /// A group was not known when the candidates were made.
    #[error(
        "the group {0:?} was not there when the candidates were made, so nothing can be promised \
         for it; merge rare groups, or leave its sequences out"
    )]
    NewGroup(String),
    /// A sequence has no label, and the gap of every sequence is counted.
    #[error(
        "a sequence has no label, so its gap is unknown, and these candidates need all labels. Add \
         the label, or propose again: with --loss disagreement, which needs no labels, or with \
         --method adaptive from sequences of which a random part has labels"
    )]
    Unlabelled,
    /// The traces lack a column that the terms need.
    #[error(
        "these traces keep scores and gaps only; for other losses, groups, units or weights give \
         the sequences themselves"
    )]
    NoTerms,
    /// As many sequences as were read, but different ones.
    #[error("the traces are not those that were read while screening; screen again")]
    Changed,
}

impl EvidenceError {
    pub(crate) fn other_score(found: &ScoreSource, expected: &ScoreSource) -> Self {
        // Two learned scores can have the same description and differ.
        let are_learned = [found, expected].iter().all(|s| s.learned().is_some());
        let expected = if are_learned {
            "another such fit".into()
        } else {
            expected.to_string()
        };
        Self::OtherScore {
            found: found.to_string(),
            expected,
        }
    }
}
