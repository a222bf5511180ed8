//! One sequence: as given, and as checked and completed.

use crate::data::identity::Fingerprint;
use crate::data::score::ScoreSource;
use haltwise_stream::Step;

/// The longest sequence supported.
pub const MAX_STEPS: usize = (1 << 24) - 1;

/// One sequence as given: what a classifier said at each step, by predictions and scores,
/// by class probabilities, or both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence<'a> {
    /// Its id, if it has one.
    pub id: Option<&'a str>,
    /// The true class, if known.
    pub label: Option<u32>,
    /// The predicted class at each step; by default the most probable one. Not needed if
    /// there are `numbers` or `losses`.
    pub predictions: Option<&'a [u32]>,
    /// The score at each step; by default the largest probability.
    pub scores: Option<&'a [f32]>,
    /// The class probabilities, step after step, and how many a step has.
    pub probs: Option<(&'a [f32], usize)>,
    /// Predicted numbers, if the classifier is a regression.
    pub numbers: Option<Numbers<'a>>,
    /// What stopping at each step would cost, in [0, 1], in any sense of cost.
    pub losses: Option<&'a [f32]>,
    /// The names of the label and of the full prediction, if classes have names. The numbers of
    /// named classes may differ from file to file.
    pub class_names: Option<[&'a str; 2]>,
    /// Other data about it.
    pub about: About<'a>,
}

/// The output of a regression: a number at each step, and the true one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers<'a> {
    /// The predicted number at each step.
    pub predictions: &'a [f32],
    /// The true number.
    pub label: f32,
}

/// Data about a sequence besides the classifier's output: the values of the columns that a
/// promise may name.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct About<'a> {
    /// The group it belongs to, such as a hospital or a device.
    pub group: Option<&'a str>,
    /// The unit it was drawn with, such as a patient, a driver or a document.
    pub unit: Option<&'a str>,
    /// How much more often it would occur where the rule will be used.
    pub weight: Option<f64>,
    /// What reading each step costs.
    pub costs: Option<&'a [f32]>,
}

/// One sequence, checked and complete: at every step a prediction and a score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trace<'a> {
    pub(crate) id: Option<&'a str>,
    pub(crate) label: Option<u32>,
    pub(crate) predictions: &'a [u32],
    pub(crate) scores: &'a [f32],
    pub(crate) scores_given: bool,
    pub(crate) probs: Option<&'a [f32]>,
    pub(crate) classes: usize,
    /// Whether there are predictions of classes; if not, `predictions` means nothing.
    pub(crate) predicts: bool,
    pub(crate) numbers: Option<Numbers<'a>>,
    pub(crate) losses: Option<&'a [f32]>,
    pub(crate) class_names: Option<[&'a str; 2]>,
    pub(crate) about: About<'a>,
}

impl<'a> Trace<'a> {
    /// Its id, if it has one.
    pub fn id(&self) -> Option<&'a str> {
        self.id
    }

    /// The true class, if known. Classes with names in a file are numbered in the order of
    /// first appearance.
    pub fn label(&self) -> Option<u32> {
        self.label
    }

    /// Whether it has predictions of classes.
    pub fn predicts(&self) -> bool {
        self.predicts
    }

    /// The predicted numbers, if there are any.
    pub fn numbers(&self) -> Option<Numbers<'a>> {
        self.numbers
    }

    /// What stopping at each step would cost, if given.
    pub fn losses(&self) -> Option<&'a [f32]> {
        self.losses
    }

    /// Other data about it.
    pub fn about(&self) -> About<'a> {
        self.about
    }

    /// The predicted class at each step; all 0 if there are none.
    pub fn predictions(&self) -> &'a [u32] {
        self.predictions
    }

    /// The score at each step, in [0, 1]: the given one, else the largest probability.
    pub fn scores(&self) -> &'a [f32] {
        self.scores
    }

    /// The score at each step, if scores were given.
    pub fn given_scores(&self) -> Option<&'a [f32]> {
        self.scores_given.then_some(self.scores)
    }

    /// The class probabilities, step after step, in [0, 1], if there are any.
    pub fn probs(&self) -> Option<&'a [f32]> {
        self.probs
    }

    /// Class probabilities per step; 0 if there are none.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many steps it has: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// How its [`scores`](Self::scores) were computed.
    pub fn source(&self) -> ScoreSource {
        if self.scores_given {
            ScoreSource::Confidence
        } else {
            ScoreSource::MaxProbability
        }
    }

    /// What the classifier said, step by step.
    pub fn steps(&self) -> impl Iterator<Item = Step<'a>> {
        let (trace, k) = (*self, self.classes);
        (0..trace.scores.len()).map(move |t| Step {
            prediction: trace.predicts.then(|| trace.predictions[t]),
            score: trace.scores_given.then(|| trace.scores[t]),
            probs: trace.probs.map(|probs| &probs[t * k..(t + 1) * k]),
        })
    }

    /// Whether each prediction was right; without a label, nothing is known.
    pub(crate) fn right(&self) -> impl Iterator<Item = bool> + 'a {
        let label = self.label;
        self.predictions.iter().map(move |&p| label == Some(p))
    }

    /// Whether each prediction differs from the last.
    pub(crate) fn disagrees(&self) -> impl Iterator<Item = bool> + 'a {
        let full = self.predictions.last().copied();
        self.predictions.iter().map(move |&p| full != Some(p))
    }

    /// The sequence in its given form.
    pub fn given(&self) -> Sequence<'a> {
        Sequence {
            id: self.id,
            label: self.label,
            predictions: self.predicts.then_some(self.predictions),
            scores: self.given_scores(),
            probs: self.probs.map(|probs| (probs, self.classes)),
            numbers: self.numbers,
            losses: self.losses,
            class_names: self.class_names,
            about: self.about,
        }
    }

    /// The digest of the sequence, whichever score will be judged. `bytes` is a work
    /// buffer.
    pub fn fingerprint(&self, bytes: &mut Vec<u8>) -> Fingerprint {
        if self.label.is_some() && self.numbers.is_none() && self.losses.is_none() {
            return Fingerprint::of_sequence(self.scores, self.right(), bytes);
        }
        // Without labels, sequences are told apart by where predictions change. The digest
        // begins with a byte that a labelled sequence never has.
        let right = self.right().map(u8::from);
        let told = match self.label {
            Some(_) => Vec::from_iter(right),
            None => std::iter::once(2)
                .chain(self.disagrees().map(u8::from))
                .collect(),
        };
        let numbers = self
            .numbers
            .iter()
            .flat_map(|n| n.predictions.iter().chain([&n.label]));
        let values = numbers.chain(self.losses.unwrap_or_default());
        let more = values.flat_map(|v| v.to_le_bytes());
        Fingerprint::of_bytes(self.scores, told.into_iter().chain(more), bytes)
    }
}
