//! Outputs: all that a classifier said about a set of sequences, before it is
//! reduced to one score per step.
//!
//! [`Traces`] keep what certifying needs. A score that is learned, or one other
//! than the classifier's own, is computed from more: the class probabilities
//! and the predictions themselves. They are kept here, sequence by sequence,
//! until it is known which score is wanted.

use std::collections::HashSet;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

use crate::gap_score::Features;
use crate::score::{ScoreSource, Step, StepError};
use crate::screened::SetAside;
use crate::trace::{Fingerprint, Key, TraceError, Traces};

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
    correct: Vec<bool>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    keys: Vec<Key>,
    /// How many sequences came without an id.
    nameless: usize,
}

/// One sequence as it is added.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence<'a> {
    /// Its id, where it has one.
    pub id: Option<&'a str>,
    /// The true class.
    pub label: u32,
    /// The predicted class at each step.
    pub predictions: &'a [u32],
    /// The score at each step, where scores are given.
    pub scores: Option<&'a [f32]>,
    /// The class probabilities, step after step, where they are given.
    pub probs: Option<&'a [f32]>,
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
        match self.scored {
            true => ScoreSource::Confidence,
            false => ScoreSource::MaxProbability,
        }
    }

    /// Adds one sequence. On an error nothing is added.
    pub fn push(&mut self, sequence: Sequence<'_>) -> Result<(), TraceError> {
        let key = Key::new(sequence.id, self.len() as u64);
        self.push_with_key(key, sequence)?;
        self.nameless += usize::from(sequence.id.is_none());
        Ok(())
    }

    /// How many sequences are in another set too: the same id, and the same was
    /// said about it. Without ids that cannot be known, and the answer is 0.
    pub fn shared_with(&self, other: &Self) -> usize {
        if self.nameless + other.nameless > 0 {
            return 0;
        }
        let digest = |set: &Self, i: usize| (set.keys[i], set.fingerprint_of(i));
        let known: HashSet<_> = (0..other.len()).map(|i| digest(other, i)).collect();
        let shared = |i: &usize| known.contains(&digest(self, *i));
        (0..self.len()).filter(shared).count()
    }

    /// How many sequences say the same, step for step, as one of another set; 0
    /// where sequences cannot be told apart by what they say.
    pub fn alike(&self, other: &Self) -> usize {
        let all = |set: &Self| (0..set.len()).map(|i| set.fingerprint_of(i)).collect();
        Fingerprint::common(all(self), all(other))
    }

    /// Adds one sequence whose key is known: where it is picked from a larger
    /// set, its position is not the one it has here.
    pub fn push_with_key(&mut self, key: Key, sequence: Sequence<'_>) -> Result<(), TraceError> {
        let steps = sequence.predictions.len();
        let scores = sequence.scores.unwrap_or_default();
        let probs = sequence.probs.unwrap_or_default();
        Traces::check_length(steps)?;
        if sequence.scores.is_some() && scores.len() != steps {
            return Err(TraceError::Lengths {
                predictions: steps,
                scores: scores.len(),
            });
        }
        Traces::check_scores(scores)?;
        let classes = probs.len() / steps;
        if classes * steps != probs.len() {
            return Err(TraceError::Probs {
                found: probs.len(),
                steps,
            });
        }
        if sequence.scores.is_none() && classes == 0 {
            return Err(TraceError::NoScores);
        }
        let scored = sequence.scores.is_some();
        if self.is_empty() {
            (self.classes, self.scored) = (classes, scored);
        }
        if (self.classes, self.scored) != (classes, scored) {
            return Err(TraceError::Unlike);
        }
        let right = sequence.predictions.iter().map(|&p| p == sequence.label);
        self.correct.extend(right);
        self.predictions.extend_from_slice(sequence.predictions);
        self.scores.extend_from_slice(scores);
        self.probs.extend_from_slice(probs);
        self.keys.push(key);
        self.ends.push(self.predictions.len());
        self.t_max = self.t_max.max(steps);
        Ok(())
    }

    /// The digest of what the classifier said, as it stands.
    pub fn fingerprint(&self) -> Fingerprint {
        (0..self.len()).map(|i| self.fingerprint_of(i)).sum()
    }

    fn fingerprint_of(&self, i: usize) -> Fingerprint {
        let span = self.span(i);
        let mut bytes: Vec<u8> = self.correct(i).iter().map(|&c| u8::from(c)).collect();
        // +0.0 turns −0 into 0: equal numbers hash alike.
        let mut add = |numbers: &[f32]| {
            bytes.extend(numbers.iter().flat_map(|x| (x + 0.0).to_le_bytes()));
        };
        add(&self.probs[span.start * self.classes..span.end * self.classes]);
        if self.scored {
            add(&self.scores[span]);
        }
        Fingerprint::of(&bytes)
    }

    /// Where the steps of a sequence stand.
    fn span(&self, i: usize) -> std::ops::Range<usize> {
        i.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[i]
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

    /// Whether each prediction of a sequence was right.
    pub(crate) fn correct(&self, i: usize) -> &[bool] {
        &self.correct[self.span(i)]
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
            part.correct.extend_from_slice(&self.correct[span.clone()]);
            if self.scored {
                part.scores.extend_from_slice(&self.scores[span.clone()]);
            }
            let probs = span.start * self.classes..span.end * self.classes;
            part.probs.extend_from_slice(&self.probs[probs]);
            part.keys.push(self.keys[i]);
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
        }
        drawn
    }

    /// Sets a part aside for fitting.
    ///
    /// As with [`Traces::split`], the draw is by a hash of the seed and the id,
    /// and looks at nothing the guarantee is about. No more than
    /// [`Fitting::MOST`] are set aside, those with the smallest hashes: past
    /// that, a trace is worth more to certifying.
    pub fn split(self, fit_fraction: f64, seed: u64) -> (Fitting, Self) {
        let set_aside = SetAside::share(fit_fraction, seed);
        let draw = |i: usize| (self.keys[i].draw(seed), i);
        let fitted = (0..self.len()).filter(|&i| set_aside.has(self.keys[i]));
        let mut fits: Vec<(u64, usize)> = fitted.map(draw).collect();
        fits.sort_unstable();
        fits.truncate(Fitting::MOST);
        // However few there are, both parts get one.
        if fits.is_empty() && self.len() > 1 {
            fits.extend((0..self.len()).map(draw).min());
        }
        if fits.len() == self.len() && self.len() > 1 {
            fits.pop();
        }
        let mut fit = vec![false; self.len()];
        for &(_, i) in &fits {
            fit[i] = true;
        }
        let rest = self.select((0..self.len()).filter(|&i| !fit[i]));
        let part = self.select(fits.into_iter().map(|(_, i)| i));
        (Fitting::new(part), rest)
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
            let correct = self.correct(i);
            builder.append(self.keys[i], scores(i), correct.iter().copied());
        }
        builder.finish()
    }
}

/// Outputs that may only be fitted to: scores are learned and candidates
/// proposed from here, and certifying never sees them.
#[derive(Debug)]
pub struct Fitting(Outputs);

impl Fitting {
    /// The most sequences that are set aside for fitting.
    pub const MOST: usize = 10_000;

    /// Sets these outputs aside for fitting.
    ///
    /// They are put in an order of their own, so that the result does not
    /// depend on how they were ordered or cut into files.
    pub fn new(outputs: Outputs) -> Self {
        let mut order: Vec<usize> = (0..outputs.len()).collect();
        order.sort_by_key(|&i| outputs.keys[i]);
        Self(outputs.select(order))
    }

    /// The outputs themselves.
    pub fn outputs(&self) -> &Outputs {
        &self.0
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
                predictions: &[1, 0, 0][..steps],
                scores: None,
                probs: Some(&probs[..2 * steps]),
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
    fn the_part_set_aside_does_not_depend_on_the_order() {
        let whole = outputs(300);
        let reversed = whole.select((0..300).rev());
        let (fit, rest) = whole.split(0.3, 4);
        let (again, _) = reversed.split(0.3, 4);
        assert_eq!(fit.outputs().keys, again.outputs().keys);
        assert_eq!(fit.outputs().len() + rest.len(), 300);
        assert!((60..120).contains(&fit.outputs().len()));
        assert!(rest.keys.iter().all(|k| !fit.outputs().keys.contains(k)));
    }

    #[test]
    fn sequences_of_two_sets_are_recognised_by_id_and_content() {
        let (few, many) = (outputs(3), outputs(9));
        assert_eq!(few.shared_with(&many), 3);
        assert_eq!(many.shared_with(&few), 3);
        let mut other = Outputs::new();
        let mut sequence = Sequence {
            id: Some("s0"),
            label: 0,
            predictions: &[1],
            scores: None,
            probs: Some(&[0.25, 0.75]),
        };
        other.push(sequence).unwrap();
        assert_eq!(other.shared_with(&many), 0, "another label");
        sequence.id = None;
        other.push(sequence).unwrap();
        assert_eq!(many.shared_with(&other), 0, "not known");
    }

    #[test]
    fn however_few_both_parts_get_one() {
        for n in 2..6 {
            for fraction in [0.0, 0.01, 0.3, 1.0] {
                let (fit, rest) = outputs(n).split(fraction, 1);
                assert!(!fit.outputs().is_empty() && !rest.is_empty());
                assert_eq!(fit.outputs().len() + rest.len(), n);
            }
        }
    }

    #[test]
    fn sequences_that_do_not_go_together_are_refused() {
        let mut outputs = outputs(2);
        let mut sequence = Sequence {
            predictions: &[0],
            scores: Some(&[0.5]),
            ..Sequence::default()
        };
        assert_eq!(outputs.push(sequence), Err(TraceError::Unlike));
        sequence.scores = None;
        assert_eq!(outputs.push(sequence), Err(TraceError::NoScores));
        sequence.probs = Some(&[0.5, 0.5, 0.5]);
        sequence.predictions = &[0, 0];
        assert!(matches!(
            outputs.push(sequence),
            Err(TraceError::Probs { .. })
        ));
        sequence.predictions = &[];
        assert_eq!(outputs.push(sequence), Err(TraceError::NoSteps));
        assert_eq!(outputs.len(), 2);
    }
}
