//! The gap score: the probability, learned from traces, that stopping here costs nothing.
//!
//! A gap means that the early prediction is wrong *and* the full one right. A classifier's
//! confidence says how likely the early prediction is right. A sequence that the classifier
//! will get wrong anyway looks unsafe to it, but costs nothing to stop. So a logistic
//! regression is fitted to the gap itself, on what is known at a step: how sure the
//! classifier is and was, for how long its prediction has been the same, how late it is.
//!
//! A step's features need the step itself and a few numbers carried from earlier steps
//! ([`Memory`]). So the same code scores live streams and traces.

use libm::{exp, log1p as ln_1p};

use crate::ln::ln;
use crate::step::{Step, StepError};

/// Weight of the newest step in values that are smoothed over time.
const NEWEST: f64 = 0.3;

/// With more classes than this, the features per class are left out, because they would
/// need too many weights for the usual number of traces.
const MOST_CLASSES: usize = 32;

/// Features of score, prediction and time.
const OF_SCORE: usize = 11;

/// Features of the class probabilities together.
const OF_PROBS: usize = 9;

/// The features of a learned score, and their weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GapScore<'a> {
    features: Features,
    /// One per feature; the larger the sum, the safer it is to stop.
    weights: &'a [f64],
    /// The constant of the sum.
    intercept: f64,
}

/// Why numbers are not a learned score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GapScoreError {
    /// The score has no features.
    #[error("the learned score has no features")]
    Nothing,
    /// The number of weights is not the number of features.
    #[error("the learned score has {found} weights for {expected} features")]
    Weights {
        /// How many weights there are.
        found: usize,
        /// How many features.
        expected: usize,
    },
    /// A weight is infinite or not a number.
    #[error("a weight of the learned score is not a number")]
    NotANumber,
}

impl<'a> GapScore<'a> {
    /// A score with a weight for each feature.
    pub fn new(
        features: Features,
        weights: &'a [f64],
        intercept: f64,
    ) -> Result<Self, GapScoreError> {
        if !features.uses_score && features.classes == 0 {
            return Err(GapScoreError::Nothing);
        }
        let (found, expected) = (weights.len(), features.count());
        if features.t_max == 0 || found != expected {
            return Err(GapScoreError::Weights { found, expected });
        }
        if !intercept.is_finite() || !weights.iter().all(|w| w.is_finite()) {
            return Err(GapScoreError::NotANumber);
        }
        Ok(Self::trusted(features, weights, intercept))
    }

    /// Does the same with numbers that were checked before.
    #[inline]
    pub fn trusted(features: Features, weights: &'a [f64], intercept: f64) -> Self {
        Self {
            features,
            weights,
            intercept,
        }
    }

    /// The features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// The weight of each feature.
    pub fn weights(&self) -> &'a [f64] {
        self.weights
    }

    /// The constant of the weighted sum.
    pub fn intercept(&self) -> f64 {
        self.intercept
    }

    /// The score of step `t` (0-based), after the steps that `memory` saw.
    pub fn observe<P: AsMut<[f32]>>(
        &self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory<P>,
    ) -> Result<f32, StepError> {
        Ok(probability(self.log_odds(step, t, memory)?))
    }

    /// The same as log-odds.
    pub fn log_odds<P: AsMut<[f32]>>(
        &self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory<P>,
    ) -> Result<f64, StepError> {
        let mut sum = self.intercept;
        let mut weights = self.weights.iter();
        self.features.observe(step, t, memory, &mut |x| {
            sum += weights.next().map_or(0.0, |w| w * x);
        })?;
        Ok(sum)
    }
}

/// The probability with these log-odds.
pub fn probability(log_odds: f64) -> f32 {
    (1.0 / (1.0 + exp(-log_odds))) as f32
}

/// The log-odds of a probability, kept finite.
pub fn log_odds(p: f64) -> f64 {
    let p = p.clamp(1e-6, 1.0 - 1e-6);
    let [log] = ln([p / (1.0 - p)]);
    log
}

/// The values carried from step to step of one sequence: a few numbers, and two per class
/// if class probabilities are used, in memory that the caller provides.
#[derive(Debug, Clone, Copy, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Memory<P> {
    /// Whether there was a step.
    pub begun: bool,
    /// The last prediction.
    pub prediction: u32,
    /// For how many steps it has been the same.
    pub run: u32,
    /// How often it changed.
    pub changes: u32,
    /// The log-odds of the confidence, smoothed.
    pub smoothed: f64,
    /// The highest log-odds so far.
    pub highest: f64,
    /// How much the probabilities have been moving.
    pub drift: f64,
    /// The last probabilities, then the smoothed ones.
    pub probs: P,
}

impl<P> Memory<P> {
    /// The memory before the first step of a sequence. `probs` has room for as many numbers
    /// as [`Features::room`] says; their values do not matter.
    pub fn new(probs: P) -> Self {
        Self {
            begun: false,
            prediction: 0,
            run: 0,
            changes: 0,
            smoothed: 0.0,
            highest: 0.0,
            drift: 0.0,
            probs,
        }
    }
}

/// The values computed from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Whether the step's own score is used; if not, the largest probability replaces it.
    pub uses_score: bool,
    /// How many class probabilities a step has; 0 if they are not used.
    pub classes: usize,
    /// The step that counts as the end.
    pub t_max: usize,
    /// Whether classes are predicted; if not, all steps count as one class.
    pub predicts: bool,
}

impl Features {
    /// How many there are.
    pub fn count(self) -> usize {
        let by_class = if self.by_class() { 2 * self.classes } else { 0 };
        OF_SCORE + if self.classes > 0 { OF_PROBS } else { 0 } + by_class
    }

    /// How many numbers a [`Memory`] must have room for.
    pub fn room(self) -> usize {
        self.classes.saturating_mul(2)
    }

    fn by_class(self) -> bool {
        self.classes <= MOST_CLASSES
    }

    /// Passes on the features of step `t` (0-based), one after the other. On an error the
    /// memory does not change.
    pub fn observe<P: AsMut<[f32]>>(
        self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory<P>,
        out: &mut impl FnMut(f64),
    ) -> Result<(), StepError> {
        self.see(step, t, memory, Some(out))
    }

    /// Remembers a step without computing its features, which is much less work.
    pub fn pass<P: AsMut<[f32]>>(
        self,
        step: &Step<'_>,
        memory: &mut Memory<P>,
    ) -> Result<(), StepError> {
        self.see(step, 0, memory, None::<&mut fn(f64)>)
    }

    #[inline]
    fn see<P: AsMut<[f32]>>(
        self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory<P>,
        out: Option<&mut impl FnMut(f64)>,
    ) -> Result<(), StepError> {
        let probs = match self.classes {
            0 => None,
            _ => Some(self.checked(step)?),
        };
        let largest = probs.map(Step::largest_two);
        let confidence = match (self.uses_score, largest) {
            (false, Some((_, first, _))) => first,
            _ => step.given()?.get(),
        };
        let prediction = step.prediction.or(largest.map(|(class, ..)| class));
        let prediction = match self.predicts {
            true => prediction.ok_or(StepError::NoPrediction)?,
            false => 0,
        };
        if self.classes > 0 && prediction as usize >= self.classes {
            return Err(StepError::Prediction {
                found: prediction,
                classes: self.classes,
            });
        }
        // The length differs only if the memory was made or stored for another rule.
        if memory.probs.as_mut().len() != self.room() {
            return Err(StepError::OtherRule);
        }

        let odds = log_odds(f64::from(confidence));
        let first_step = !memory.begun;
        memory.take(prediction, odds);
        if let Some(probs) = probs {
            memory.take_probs(probs, first_step);
        }
        let Some(out) = out else {
            return Ok(());
        };
        let now = t as f64 + 1.0;
        let when = now / self.t_max as f64;
        let [run, ln_now] = ln([f64::from(memory.run), now]);
        let smoothed = memory.smoothed;
        let of_score: [f64; OF_SCORE] = [
            odds,
            run,
            ln_1p(f64::from(memory.changes)),
            memory.highest,
            smoothed,
            when,
            ln_now,
            odds - smoothed,
            when * odds,
            when * run,
            when * smoothed,
        ];
        of_score.into_iter().for_each(&mut *out);

        let (Some(probs), Some((_, first, second))) = (probs, largest) else {
            return Ok(());
        };
        let (first, second) = (f64::from(first), f64::from(second));
        let clamped = |p: &f32| f64::from(p.clamp(0.0, 1.0));
        let (mut spread, mut logs) = (0.0, [[0.0; 2]; MOST_CLASSES]);
        for probs in probs.chunks(MOST_CLASSES) {
            for (logs, p) in logs.iter_mut().zip(probs.iter().map(clamped)) {
                *logs = ln([p + 1e-9, p + 1e-3]);
            }
            for (logs, p) in logs.iter().zip(probs.iter().map(clamped)) {
                spread -= p * logs[0];
            }
        }
        let [of_first, of_second] = ln([first + 1e-6, second + 1e-6]);
        let (_, smoothed) = memory.halves();
        let smoothed = smoothed.get(prediction as usize).copied().unwrap_or(0.0);
        // Without a score of its own, the largest probability is the confidence.
        let top_odds = match self.uses_score {
            true => log_odds(first),
            false => odds,
        };
        let of_probs: [f64; OF_PROBS] = [
            top_odds,
            first - second,
            spread,
            memory.drift,
            f64::from(smoothed),
            of_first - of_second,
            when * top_odds,
            when * spread,
            when * (first - second),
        ];
        of_probs.into_iter().for_each(&mut *out);
        if self.by_class() {
            let is = |k: u32| if k == prediction { 1.0 } else { 0.0 };
            (0..self.classes as u32).map(is).for_each(&mut *out);
            let logs = logs.iter().take(self.classes);
            logs.for_each(|&[_, log]| out(log));
        }
        Ok(())
    }

    fn checked<'a>(self, step: &Step<'a>) -> Result<&'a [f32], StepError> {
        let probs = step.sound_probs()?;
        match probs.len() == self.classes {
            true => Ok(probs),
            false => Err(StepError::Classes {
                found: probs.len(),
                expected: self.classes,
            }),
        }
    }
}

impl<P> Memory<P> {
    fn take(&mut self, prediction: u32, odds: f64) {
        if !self.begun {
            self.begun = true;
            (self.prediction, self.run, self.changes) = (prediction, 1, 0);
            (self.smoothed, self.highest, self.drift) = (odds, odds, 0.0);
            return;
        }
        if prediction == self.prediction {
            self.run = self.run.saturating_add(1);
        } else {
            (self.prediction, self.run) = (prediction, 1);
            self.changes = self.changes.saturating_add(1);
        }
        self.smoothed = (1.0 - NEWEST) * self.smoothed + NEWEST * odds;
        self.highest = self.highest.max(odds);
    }
}

impl<P: AsMut<[f32]>> Memory<P> {
    /// The last probabilities, and the smoothed ones.
    fn halves(&mut self) -> (&mut [f32], &mut [f32]) {
        let probs = self.probs.as_mut();
        let half = probs.len() / 2;
        probs.split_at_mut_checked(half).unwrap_or_default()
    }

    fn take_probs(&mut self, probs: &[f32], first_step: bool) {
        // Clamps what rounding left outside, as the readers of files do.
        let probs = || probs.iter().map(|p| p.clamp(0.0, 1.0));
        let (last, smoothed) = self.halves();
        if first_step {
            for ((last, smoothed), now) in last.iter_mut().zip(smoothed).zip(probs()) {
                (*last, *smoothed) = (now, now);
            }
            return;
        }
        let moved: f64 = core::iter::zip(probs(), &*last)
            .map(|(now, before)| f64::from((now - before).abs()))
            .sum();
        for (smoothed, now) in core::iter::zip(smoothed, probs()) {
            *smoothed = (1.0 - NEWEST as f32) * *smoothed + NEWEST as f32 * now;
        }
        for (last, now) in core::iter::zip(last, probs()) {
            *last = now;
        }
        self.drift = (1.0 - NEWEST) * self.drift + NEWEST * moved;
    }
}

#[cfg(test)]
mod tests {
    use std::{vec, vec::Vec};

    use super::*;

    const BOTH: Features = Features {
        uses_score: true,
        classes: 3,
        t_max: 4,
        predicts: true,
    };

    fn features(features: Features, steps: &[Step<'_>]) -> Result<Vec<Vec<f64>>, StepError> {
        let mut memory = Memory::new(vec![0.0; features.room()]);
        let of_step = |(t, step): (usize, &Step<'_>)| {
            let mut found = Vec::new();
            features.observe(step, t, &mut memory, &mut |x| found.push(x))?;
            Ok(found)
        };
        steps.iter().enumerate().map(of_step).collect()
    }

    fn step(prediction: u32, score: f32, probs: &[f32]) -> Step<'_> {
        Step {
            prediction: Some(prediction),
            score: Some(score),
            probs: Some(probs),
        }
    }

    #[test]
    fn features_know_the_steps_before_and_none_after() {
        let (a, b) = ([0.5, 0.3, 0.2], [0.1, 0.8, 0.1]);
        let steps = [
            step(0, 0.5, &a),
            step(0, 0.75, &a),
            step(1, 0.5, &b),
            step(1, 0.25, &b),
        ];
        let all = features(BOTH, &steps).unwrap();
        for t in 1..=steps.len() {
            assert_eq!(features(BOTH, &steps[..t]).unwrap(), all[..t]);
        }
        assert!(all.iter().all(|found| found.len() == BOTH.count()));
        let third = &all[2];
        let three = libm::log(3.0);
        assert_eq!(third[0], 0.0, "even odds");
        assert_eq!(third[1], 0.0, "the prediction is new");
        assert_eq!(third[2], libm::log(2.0), "it changed once");
        assert!((third[3] - three).abs() < 1e-12, "the highest odds were 3");
        assert!((third[4] - 0.7 * 0.3 * three).abs() < 1e-12, "smoothed");
        assert_eq!(third[5], 0.75);
        assert!((third[14] - 0.3 * 1.0).abs() < 1e-6, "moved by 1");
        assert_eq!(third[20..23], [0.0, 1.0, 0.0]);
    }

    #[test]
    fn without_a_score_the_largest_probability_stands_in() {
        let only_probs = Features {
            uses_score: false,
            ..BOTH
        };
        let probs = [0.5, 0.25, 0.25];
        let given = features(BOTH, &[step(0, 0.5, &probs)]).unwrap();
        let bare = Step {
            probs: Some(&probs),
            ..Step::default()
        };
        assert_eq!(features(only_probs, &[bare]).unwrap(), given);
    }

    #[test]
    fn a_score_alone_needs_the_prediction() {
        let only_score = Features { classes: 0, ..BOTH };
        let mut step = Step {
            score: Some(0.5),
            ..Step::default()
        };
        assert_eq!(features(only_score, &[step]), Err(StepError::NoPrediction));
        step.prediction = Some(7);
        assert_eq!(features(only_score, &[step]).unwrap()[0].len(), OF_SCORE);
        let probs = [0.5, 0.5];
        step.probs = Some(&probs);
        assert!(matches!(
            features(BOTH, &[step]),
            Err(StepError::Classes { found: 2, .. })
        ));
    }

    #[test]
    fn what_rounding_left_outside_counts_as_on_the_border() {
        let (inside, outside) = ([1.0, 0.0, 0.0], [1.00009, -0.00009, 0.0]);
        let of = |probs| features(BOTH, &[step(0, 0.5, probs), step(0, 0.5, probs)]).unwrap();
        assert_eq!(of(&outside), of(&inside));
    }

    #[test]
    fn a_class_that_does_not_exist_is_refused() {
        let probs = [0.5, 0.25, 0.25];
        let refused = features(BOTH, &[step(3, 0.5, &probs)]);
        assert!(matches!(
            refused,
            Err(StepError::Prediction { found: 3, .. })
        ));
    }

    #[test]
    fn a_memory_of_another_size_is_refused() {
        let probs = [0.5, 0.25, 0.25];
        for room in [0, 4, 8] {
            let mut memory = Memory::new(vec![0.0; room]);
            let refused = BOTH.observe(&step(0, 0.5, &probs), 0, &mut memory, &mut |_| {});
            assert_eq!(refused, Err(StepError::OtherRule), "{room}");
        }
    }

    #[test]
    fn what_does_not_fit_itself_is_no_score() {
        let weights = vec![0.5; BOTH.count()];
        assert!(GapScore::new(BOTH, &weights, -1.0).is_ok());
        let (found, expected) = (25, 26);
        let refused = GapScore::new(BOTH, &weights[1..], -1.0);
        assert_eq!(refused, Err(GapScoreError::Weights { found, expected }));
        let refused = GapScore::new(BOTH, &weights, f64::NAN);
        assert_eq!(refused, Err(GapScoreError::NotANumber));
        let nothing = Features {
            uses_score: false,
            classes: 0,
            ..BOTH
        };
        let refused = GapScore::new(nothing, &weights, 0.0);
        assert_eq!(refused, Err(GapScoreError::Nothing));
    }
}
