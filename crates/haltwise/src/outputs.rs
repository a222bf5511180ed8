//! All that a classifier said about a set of sequences.
//!
//! [`Traces`](crate::trace::Traces) hold one score per step. A score that is to
//! be learned or chosen needs more: the class probabilities and the predictions
//! themselves. They are kept here, sequence by sequence, until it is known which
//! score is wanted.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use crate::gap_score::Features;
use crate::identity::{Fingerprint, Key, SetRecord};
use crate::score::ScoreSource;
use crate::sequence::{Checker, Sequence, SequenceError, Trace};
use crate::step::{Step, StepError};
use crate::trace::Traces;

/// What a classifier said about a set of sequences.
///
/// Not `Clone` on purpose, as [`Traces`] are not.
#[derive(Debug, Default)]
pub struct Outputs {
    t_max: usize,
    /// Class probabilities per step; 0 where there are none.
    classes: usize,
    /// Whether scores came with the steps.
    scored: bool,
    /// Behind the last step of each sequence.
    ends: Vec<usize>,
    predictions: Vec<u32>,
    labels: Vec<u32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    ids: Vec<Option<Box<str>>>,
    keys: Vec<Key>,
    prints: Vec<Fingerprint>,
}

impl Outputs {
    /// None yet.
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

    /// Class probabilities per step; 0 where there are none.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// The score that is there without computing: the one that was given, else
    /// the largest probability.
    pub fn plain_source(&self) -> ScoreSource {
        if self.scored {
            ScoreSource::Confidence
        } else {
            ScoreSource::MaxProbability
        }
    }

    /// How many there are, and their fingerprint.
    pub fn record(&self) -> SetRecord {
        self.prints.iter().copied().map(SetRecord::one).sum()
    }

    /// Adds one sequence. On an error nothing is added.
    pub fn push(&mut self, sequence: Sequence<'_>) -> Result<(), SequenceError> {
        let key = Key::new(sequence.id, self.len() as u64);
        self.add(key, &Checker::new().check(sequence)?)
    }

    /// Adds one sequence under its key: where it is picked from a larger set,
    /// its position is not the one it has here.
    pub fn add(&mut self, key: Key, trace: &Trace<'_>) -> Result<(), SequenceError> {
        let (classes, given) = (trace.classes(), trace.given_scores());
        if self.is_empty() {
            (self.classes, self.scored) = (classes, given.is_some());
        }
        if (self.classes, self.scored) != (classes, given.is_some()) {
            return Err(SequenceError::unlike());
        }
        self.predictions.extend_from_slice(trace.predictions());
        self.labels.push(trace.label());
        self.scores.extend_from_slice(given.unwrap_or_default());
        self.probs
            .extend_from_slice(trace.probs().unwrap_or_default());
        self.keys.push(key);
        self.prints.push(trace.fingerprint(&mut Vec::new()));
        self.ends.push(self.predictions.len());
        self.t_max = self.t_max.max(trace.len());
        self.ids.push(trace.id().map(Into::into));
        Ok(())
    }

    /// Where the steps of a sequence stand.
    fn span(&self, i: usize) -> std::ops::Range<usize> {
        i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]
    }

    /// The key of a sequence.
    pub(crate) fn key(&self, i: usize) -> Key {
        self.keys[i]
    }

    /// The fingerprint of a sequence.
    pub(crate) fn fingerprint(&self, i: usize) -> Fingerprint {
        self.prints[i]
    }

    /// Both, and whether it has an id.
    pub(crate) fn identity(&self, i: usize) -> (Key, Fingerprint, bool) {
        (self.keys[i], self.prints[i], self.ids[i].is_some())
    }

    /// The steps of a sequence.
    pub(crate) fn steps(&self, i: usize) -> impl Iterator<Item = Step<'_>> {
        self.span(i).map(|s| Step {
            prediction: Some(self.predictions[s]),
            score: self.scored.then(|| self.scores[s]),
            probs: (self.classes > 0)
                .then(|| &self.probs[s * self.classes..(s + 1) * self.classes]),
        })
    }

    /// The sequence as it was given.
    pub(crate) fn given(&self, i: usize) -> Sequence<'_> {
        let span = self.span(i);
        let probs = span.start * self.classes..span.end * self.classes;
        Sequence {
            id: self.ids[i].as_deref(),
            label: self.labels[i],
            predictions: Some(&self.predictions[span.clone()]),
            scores: self.scored.then(|| &self.scores[span]),
            probs: (self.classes > 0).then(|| (&self.probs[probs], self.classes)),
        }
    }

    /// Whether each prediction of a sequence was right.
    pub(crate) fn right(&self, i: usize) -> impl ExactSizeIterator<Item = bool> + Clone {
        let label = self.labels[i];
        self.predictions[self.span(i)]
            .iter()
            .map(move |&p| p == label)
    }

    /// What a learned score can look at here.
    pub(crate) fn features(&self) -> Features {
        Features {
            uses_score: self.scored,
            classes: self.classes,
            t_max: self.t_max,
        }
    }

    /// The sequences at these positions, in this order; positions past the end
    /// are left out.
    pub fn select(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let mut part = Self {
            classes: self.classes,
            scored: self.scored,
            ..Self::default()
        };
        for i in indices.into_iter().filter(|&i| i < self.len()) {
            let span = self.span(i);
            part.t_max = part.t_max.max(span.len());
            part.predictions
                .extend_from_slice(&self.predictions[span.clone()]);
            part.labels.push(self.labels[i]);
            if self.scored {
                part.scores.extend_from_slice(&self.scores[span.clone()]);
            }
            let probs = span.start * self.classes..span.end * self.classes;
            part.probs.extend_from_slice(&self.probs[probs]);
            part.ids.push(self.ids[i].clone());
            part.keys.push(self.keys[i]);
            part.prints.push(self.prints[i]);
            part.ends.push(part.predictions.len());
        }
        part
    }

    /// As many sequences as asked for, drawn with replacement; each draw counts
    /// as a sequence of its own.
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

    /// The traces with scores of this kind.
    pub fn traces(&self, source: &ScoreSource) -> Result<Traces, StepError> {
        let scores: Vec<Vec<f32>> = (0..self.len())
            .into_par_iter()
            .map(|i| source.scores(self.steps(i)))
            .collect::<Result<_, _>>()?;
        Ok(self.with_scores(source.clone(), |i| &scores[i]))
    }

    /// The traces with scores that were computed elsewhere.
    pub(crate) fn with_scores<'a>(
        &self,
        source: ScoreSource,
        scores: impl Fn(usize) -> &'a [f32],
    ) -> Traces {
        let mut builder = Traces::builder().source(source);
        for i in 0..self.len() {
            builder.append(self.keys[i], Some(self.prints[i]), scores(i), self.right(i));
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
                label: 1,
                predictions: Some(&[1, 0, 0][..steps]),
                scores: None,
                probs: Some((&probs[..2 * steps], 2)),
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
            assert_eq!(outputs.traces(&source).unwrap().record(), outputs.record());
        }
        assert_ne!(outputs.select(0..4).record(), outputs.record());
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
