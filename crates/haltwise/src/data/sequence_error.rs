//! Errors of a sequence: what is wrong, where, and what to do.

use std::fmt;

use super::sequence::MAX_STEPS;

/// An error of a sequence, and its place.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceError {
    field: Option<&'static str>,
    /// Counted from 1.
    step: Option<usize>,
    fault: Fault,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Fault {
    #[error("it has neither `scores` nor `probs`; give one of them")]
    NoScores,
    #[error("it has neither `predictions` nor `probs`; give one of them")]
    NoPredictions,
    #[error(
        "some sequences come with `scores` and some with `probs` alone; one rule needs scores of \
         one kind, so give `scores` for all or for none"
    )]
    MixedSources,
    #[error(
        "scores, or class probabilities, or the number of classes differ from the sequences before"
    )]
    Unlike,
    #[error("there are no classes in it")]
    NoClasses,
    #[error(
        "class {class} is out of range: `probs` has {classes} classes, 0 to {}; classes are \
         counted from 0", .classes - 1
    )]
    Class { class: u32, classes: usize },
    #[error("{0} is not a probability")]
    NotFinite(f32),
    #[error("{0} is not a probability; these look like log-probabilities: apply exp")]
    Logarithm(f32),
    #[error("{0} is not a probability; these look like logits: apply softmax")]
    Logit(f32),
    #[error("the probabilities sum to {0}, not to 1; normalise them (softmax over the classes)")]
    Sum(f32),
    #[error(
        "{predictions} predictions but {scores} scores{}; each step needs one of each",
        .probs.map_or_else(String::new, |n| format!(" and {n} steps of probs"))
    )]
    Lengths {
        predictions: usize,
        scores: usize,
        probs: Option<usize>,
    },
    #[error("{found} class probabilities cannot be shared evenly by steps of {classes}")]
    Uneven { found: usize, classes: usize },
    #[error("the sequence has no steps; leave it out")]
    NoSteps,
    #[error("the sequence has {0} steps; at most {max} are supported", max = MAX_STEPS)]
    TooLong(usize),
    #[error("the score {0} is not a number in [0, 1]; {remedy}", remedy = score_remedy(*.0))]
    Score(f32),
    #[error("it has no label; the loss gap by group `label` needs every label")]
    NoLabel,
    #[error("it has no {0}; each sequence needs one")]
    NoColumn(String),
    #[error("{0} is not a loss in [0, 1]; scale the losses, or clip them")]
    Loss(f32),
    #[error("{0} is not a number that can be predicted or true")]
    Number(f32),
    #[error("{0} is not a cost: costs are finite and at least 0")]
    Cost(f32),
    #[error("{0} is not a weight: weights are finite and at least 0")]
    NotWeight(f64),
    #[error(
        "its weight {weight} is above the bound {bound}; give a bound that no weight exceeds, fixed \
         before looking at the traces"
    )]
    HeavyWeight { weight: f64, bound: f64 },
    #[error(
        "sequences of the unit `{unit}` have the weights {before} and {weight}; a unit is taken whole \
         or left out whole, so give all of its sequences one weight"
    )]
    UnevenUnit {
        unit: String,
        before: f64,
        weight: f64,
    },
    #[error("{found} values for {steps} steps; each step needs one")]
    PerStep { found: usize, steps: usize },
    #[error("these sets cannot be joined: their scores were computed or binned in different ways")]
    OtherKind,
}

fn score_remedy(score: f32) -> &'static str {
    if score.is_nan() {
        "fill it in, or cut the sequence before it"
    } else {
        "rescale the scores, for example with a sigmoid"
    }
}

impl Fault {
    pub(super) fn at(self, field: &'static str, step: Option<usize>) -> SequenceError {
        SequenceError {
            field: Some(field),
            step,
            fault: self,
        }
    }
}

impl From<Fault> for SequenceError {
    fn from(fault: Fault) -> Self {
        Self {
            field: None,
            step: None,
            fault,
        }
    }
}

impl SequenceError {
    /// Two sets have scores of different kinds or on different grids.
    pub(crate) fn other_kind() -> Self {
        Fault::OtherKind.into()
    }

    /// The sequence is not of the same kind as those before it.
    pub(crate) fn unlike() -> Self {
        Fault::Unlike.into()
    }

    /// The sequence has no value in a column that the promise needs.
    pub(crate) fn no_column(column: &str) -> Self {
        Fault::NoColumn(format!("`{column}`")).into()
    }

    /// The sequence has no label.
    pub(crate) fn no_label() -> Self {
        Fault::NoLabel.into()
    }

    /// The weight is above the bound.
    pub(crate) fn heavy(weight: f64, bound: f64) -> Self {
        Fault::HeavyWeight { weight, bound }.into()
    }

    /// The weight differs from that of another sequence of the unit.
    pub(crate) fn uneven_unit(unit: &str, before: f64, weight: f64) -> Self {
        let unit = unit.to_owned();
        Fault::UnevenUnit {
            unit,
            before,
            weight,
        }
        .into()
    }

    /// Some sequences have scores and others have none.
    pub fn mixed_sources() -> Self {
        Fault::MixedSources.into()
    }

    /// Whether two fields conflict, although each may be sound.
    pub fn is_conflict(&self) -> bool {
        use Fault::{Lengths, MixedSources, OtherKind, PerStep, Uneven, Unlike};
        let fault = &self.fault;
        matches!(
            fault,
            Lengths { .. } | MixedSources | OtherKind | PerStep { .. } | Uneven { .. } | Unlike
        )
    }

    /// Whether a field is missing.
    pub fn is_lack(&self) -> bool {
        let fault = &self.fault;
        matches!(
            fault,
            Fault::NoScores | Fault::NoPredictions | Fault::NoColumn(_) | Fault::NoLabel
        )
    }

    /// The place in the sequence: its field and step, as far as they are known.
    pub fn place(&self) -> Option<String> {
        let step = self.step.map(|t| format!("step {t}"));
        let places: Vec<String> = self
            .field
            .map(str::to_owned)
            .into_iter()
            .chain(step)
            .collect();
        (!places.is_empty()).then(|| places.join(", "))
    }

    /// The error, and what to do about it.
    pub fn problem(&self) -> String {
        self.fault.to_string()
    }
}

impl fmt::Display for SequenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place() {
            Some(place) => write!(f, "{place}: {}", self.fault),
            None => write!(f, "{}", self.fault),
        }
    }
}

impl std::error::Error for SequenceError {}
