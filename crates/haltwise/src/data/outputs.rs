//! All that a classifier said about a set of sequences.
//!
//! [`Traces`](crate::data::traces::Traces) hold one score per step. A score that is to be
//! learned or chosen needs more: the class probabilities and the predictions themselves.
//! They are kept here, sequence by sequence, until the score is known.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use crate::data::checker::Checker;
use crate::data::identity::{Fingerprint, Key, SetSummary};
use crate::data::loss::Measure;
use crate::data::score::ScoreSource;
use crate::data::sequence::{About, Numbers, Sequence, Trace};
use crate::data::sequence_error::SequenceError;
use crate::data::traces::Traces;
use haltwise_stream::{Features, Step, StepError};

/// What a classifier said about a set of sequences.
///
/// Not `Clone` on purpose, as [`Traces`] are not.
#[derive(Debug, Default)]
pub struct Outputs {
    t_max: usize,
    /// Class probabilities per step; 0 if there are none.
    classes: usize,
    /// Whether scores came with the steps; if not, `scores` holds the largest
    /// probabilities.
    scored: bool,
    /// The end of each sequence among all steps.
    ends: Vec<usize>,
    /// Whether there are predictions of classes; if not, `predictions` means nothing.
    predicts: bool,
    predictions: Vec<u32>,
    labels: Vec<Option<u32>>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    ids: Vec<Option<Box<str>>>,
    keys: Vec<Key>,
    prints: Vec<Fingerprint>,
    /// The other data of each sequence, if it has any.
    more: Vec<Option<Box<More>>>,
}

/// Data of a sequence besides predictions and scores.
#[derive(Debug, Clone, Default, PartialEq)]
struct More {
    numbers: Option<(Vec<f32>, f32)>,
    losses: Option<Vec<f32>>,
    group: Option<Box<str>>,
    unit: Option<Box<str>>,
    weight: Option<f64>,
    costs: Option<Vec<f32>>,
}

impl More {
    fn of(trace: &Trace<'_>) -> Option<Box<Self>> {
        let about = trace.about();
        let more = Self {
            numbers: trace.numbers().map(|n| (n.predictions.to_vec(), n.label)),
            losses: trace.losses().map(<[f32]>::to_vec),
            group: about.group.map(Into::into),
            unit: about.unit.map(Into::into),
            weight: about.weight,
            costs: about.costs.map(<[f32]>::to_vec),
        };
        (more != Self::default()).then(|| Box::new(more))
    }

    fn numbers(&self) -> Option<Numbers<'_>> {
        let (predictions, label) = self.numbers.as_ref()?;
        Some(Numbers {
            predictions,
            label: *label,
        })
    }

    fn about(&self) -> About<'_> {
        About {
            group: self.group.as_deref(),
            unit: self.unit.as_deref(),
            weight: self.weight,
            costs: self.costs.as_deref(),
        }
    }
}

impl Outputs {
    /// Starts without sequences.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many sequences there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no sequence at all.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The number of steps of the longest sequence.
    pub fn t_max(&self) -> usize {
        self.t_max
    }

    /// Class probabilities per step; 0 if there are none.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The score that needs no computing: the given one, else the largest probability.
    pub fn plain_source(&self) -> ScoreSource {
        if self.scored {
            ScoreSource::Confidence
        } else {
            ScoreSource::MaxProbability
        }
    }

    /// The number of sequences, and their fingerprint.
    pub fn summary(&self) -> SetSummary {
        self.prints.iter().copied().map(SetSummary::one).sum()
    }

    /// Adds one sequence. On an error nothing is added.
    pub fn push(&mut self, sequence: Sequence<'_>) -> Result<(), SequenceError> {
        let key = Key::new(sequence.id, self.len() as u64);
        self.add(key, &Checker::new().check(sequence)?)
    }

    /// Adds one sequence under its key. A sequence picked from a larger set has another
    /// position there than here.
    pub fn add(&mut self, key: Key, trace: &Trace<'_>) -> Result<(), SequenceError> {
        let kind = (trace.classes(), trace.scores_given, trace.predicts());
        if self.is_empty() {
            (self.classes, self.scored, self.predicts) = kind;
        }
        if (self.classes, self.scored, self.predicts) != kind {
            return Err(SequenceError::unlike());
        }
        self.predictions.extend_from_slice(trace.predictions());
        self.labels.push(trace.label());
        self.scores.extend_from_slice(trace.scores());
        self.probs
            .extend_from_slice(trace.probs().unwrap_or_default());
        self.keys.push(key);
        self.prints.push(trace.fingerprint(&mut Vec::new()));
        self.ends.push(self.predictions.len());
        self.t_max = self.t_max.max(trace.len());
        self.ids.push(trace.id().map(Into::into));
        self.more.push(More::of(trace));
        Ok(())
    }

    /// About how many bytes a sequence takes here.
    pub(crate) fn bytes_of(trace: &Trace<'_>) -> u64 {
        let about = trace.about();
        let numbers = 2 + trace.probs().map_or(0, |_| trace.classes());
        let rows = [
            trace.numbers().is_some(),
            trace.losses().is_some(),
            about.costs.is_some(),
        ];
        let numbers = numbers + rows.into_iter().filter(|given| *given).count();
        let texts = [trace.id(), about.group, about.unit];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        (256 + texts + 4 * numbers * trace.len()) as u64
    }

    /// The range of a sequence's steps.
    fn span(&self, i: usize) -> std::ops::Range<usize> {
        i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]
    }

    /// The key that a sequence is split by: that of its unit, or its own.
    pub(crate) fn key(&self, i: usize) -> Key {
        self.keys[i]
    }

    /// The fingerprint of a sequence.
    pub(crate) fn fingerprint(&self, i: usize) -> Fingerprint {
        self.prints[i]
    }

    /// A sequence's own key, its fingerprint, and whether it has an id.
    pub(crate) fn identity(&self, i: usize) -> (Key, Fingerprint, bool) {
        match &self.ids[i] {
            Some(id) => (Key::new(Some(id), 0), self.prints[i], true),
            None => (self.keys[i], self.prints[i], false),
        }
    }

    /// The steps of a sequence.
    pub fn steps(&self, i: usize) -> impl Iterator<Item = Step<'_>> {
        self.span(i).map(|s| Step {
            prediction: self.predicts.then(|| self.predictions[s]),
            score: self.scored.then(|| self.scores[s]),
            probs: (self.classes > 0)
                .then(|| &self.probs[s * self.classes..(s + 1) * self.classes]),
        })
    }

    /// A sequence in its complete form.
    pub fn trace(&self, i: usize) -> Trace<'_> {
        let span = self.span(i);
        let probs = span.start * self.classes..span.end * self.classes;
        let more = self.more[i].as_deref();
        Trace {
            id: self.ids[i].as_deref(),
            label: self.labels[i],
            predictions: &self.predictions[span.clone()],
            scores: &self.scores[span],
            scores_given: self.scored,
            probs: (self.classes > 0).then(|| &self.probs[probs]),
            classes: self.classes,
            predicts: self.predicts,
            numbers: more.and_then(More::numbers),
            losses: more.and_then(|more| more.losses.as_deref()),
            class_names: None,
            about: more.map(More::about).unwrap_or_default(),
        }
    }

    /// How many sequences have a label.
    pub(crate) fn labelled(&self) -> usize {
        self.labels.iter().flatten().count()
    }

    /// Whether a sequence has a label.
    pub(crate) fn is_labelled(&self, i: usize) -> bool {
        self.labels[i].is_some()
    }

    /// The cost of each step of a sequence, if known.
    pub(crate) fn costs(&self, i: usize) -> Option<&[f32]> {
        self.more[i].as_ref()?.costs.as_deref()
    }

    /// The features that a learned score can use here.
    pub(crate) fn features(&self) -> Features {
        Features {
            uses_score: self.scored,
            classes: self.classes,
            t_max: self.t_max,
            predicts: self.predicts,
        }
    }

    /// Picks the sequences at these positions, in this order; positions past the end are
    /// skipped.
    pub fn select(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut part = Self {
            classes: self.classes,
            scored: self.scored,
            predicts: self.predicts,
            ..Self::default()
        };
        for i in indices.into_iter().filter(|&i| i < self.len()) {
            let span = self.span(i);
            part.t_max = part.t_max.max(span.len());
            part.predictions
                .extend_from_slice(&self.predictions[span.clone()]);
            part.labels.push(self.labels[i]);
            part.scores.extend_from_slice(&self.scores[span.clone()]);
            let probs = span.start * self.classes..span.end * self.classes;
            part.probs.extend_from_slice(&self.probs[probs]);
            part.ids.push(self.ids[i].clone());
            part.keys.push(self.keys[i]);
            part.prints.push(self.prints[i]);
            part.more.push(self.more[i].clone());
            part.ends.push(part.predictions.len());
        }
        part
    }

    /// Draws units, given by the positions of their sequences; each draw counts as a unit
    /// of its own.
    pub(crate) fn drawn(&self, units: &[&[usize]]) -> Self {
        let mut drawn = self.select(units.iter().flat_map(|unit| unit.iter().copied()));
        let numbers = (0..units.len()).flat_map(|k| std::iter::repeat_n(k, units[k].len()));
        for (i, unit) in numbers.enumerate() {
            drawn.keys[i] = Key::new(None, i as u64);
            drawn.ids[i] = None;
            if let Some(more) = drawn.more[i].as_mut().filter(|more| more.unit.is_some()) {
                more.unit = Some(unit.to_string().into());
            }
        }
        drawn
    }

    /// Draws this many sequences with replacement; each draw counts as a sequence of its
    /// own.
    pub fn resample(&self, n: usize, seed: u64) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let draws = if self.is_empty() { 0 } else { n };
        let mut drawn = self.select((0..draws).map(|_| rng.random_range(0..self.len())));
        for (i, key) in drawn.keys.iter_mut().enumerate() {
            *key = Key::new(None, i as u64);
            drawn.ids[i] = None;
        }
        drawn
    }

    /// Returns the traces with scores of this kind, and their gaps.
    pub fn traces(&self, source: &ScoreSource) -> Result<Traces, StepError> {
        self.measured(source, Measure::default())
    }

    /// Does the same with losses kept by this measure.
    pub(crate) fn measured(
        &self,
        source: &ScoreSource,
        measure: Measure,
    ) -> Result<Traces, StepError> {
        let scores: Vec<Vec<f32>> = (0..self.len())
            .into_par_iter()
            .map(|i| source.scores(self.steps(i)))
            .collect::<Result<_, _>>()?;
        Ok(self.with_scores(source.clone(), measure, 0..self.len(), |i| &scores[i]))
    }

    /// Returns the traces of some sequences, with scores that were computed elsewhere.
    pub(crate) fn with_scores<'a>(
        &self,
        source: ScoreSource,
        measure: Measure,
        indices: impl IntoIterator<Item = usize>,
        scores: impl Fn(usize) -> &'a [f32],
    ) -> Traces {
        let mut builder = Traces::builder().source(source).measured(measure);
        for i in indices {
            let print = Some(self.prints[i]);
            builder.add_scored(self.keys[i], print, scores(i), &self.trace(i));
        }
        builder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(n: usize) -> Outputs {
        let mut outputs = Outputs::new();
        for i in 0..n {
            let id = format!("s{i}");
            let probs = [0.25, 0.75, 0.625, 0.375, 0.5, 0.5];
            let steps = 1 + i % 3;
            let sequence = Sequence {
                id: Some(&id),
                label: Some(1),
                predictions: Some(&[1, 0, 0][..steps]),
                scores: None,
                probs: Some((&probs[..2 * steps], 2)),
                ..Sequence::default()
            };
            outputs.push(sequence).unwrap();
        }
        outputs
    }

    #[test]
    fn traces_carry_the_score_that_is_asked_for() {
        let outputs = outputs(3);
        let largest = outputs.traces(&ScoreSource::MaxProbability).unwrap();
        assert_eq!(largest.scores(2).unwrap(), [0.75, 0.625, 0.5]);
        assert_eq!(largest.correct(2).unwrap(), [true, false, false]);
        let margin = outputs.traces(&ScoreSource::Margin).unwrap();
        assert_eq!(margin.scores(1).unwrap(), [0.5, 0.25]);
        assert_eq!(
            outputs.traces(&ScoreSource::Confidence).unwrap_err(),
            StepError::NoScore
        );
    }

    #[test]
    fn a_set_has_one_fingerprint_whichever_score_is_judged() {
        let outputs = outputs(5);
        for source in [ScoreSource::MaxProbability, ScoreSource::Margin] {
            assert_eq!(
                outputs.traces(&source).unwrap().summary(),
                outputs.summary()
            );
        }
        assert_ne!(outputs.select(0..4).summary(), outputs.summary());
    }

    #[test]
    fn sequences_that_do_not_go_together_are_refused() {
        let mut outputs = outputs(2);
        let mut sequence = Sequence {
            predictions: Some(&[0]),
            scores: Some(&[0.5]),
            ..Sequence::default()
        };
        assert_eq!(outputs.push(sequence), Err(SequenceError::unlike()));
        sequence.scores = None;
        sequence.probs = Some((&[0.5, 0.25, 0.25], 3));
        assert_eq!(outputs.push(sequence), Err(SequenceError::unlike()));
        assert_eq!(outputs.len(), 2);
    }
}
