//! The gap score: the probability, learned from traces, that stopping here
//! costs nothing.
//!
//! What the guarantee counts is the early prediction wrong *and* the full one
//! right. A classifier's confidence says how likely the early prediction is
//! right; a sequence that it will get wrong anyway looks unsafe to it, but costs
//! nothing to stop. So a logistic regression is fitted to the gap itself, on
//! what can be known at a step: how sure the classifier is and was, for how
//! long it has said the same, how late it is.
//!
//! A step's features need the step itself and a few numbers carried from the
//! steps before ([`Memory`]), so a live stream is scored by the very code that
//! scored the traces.

use serde::{Deserialize, Serialize};

use crate::step::{Step, StepError};

/// Weight of the newest step in what is smoothed over time.
const NEWEST: f64 = 0.3;

/// With more classes than this, the features that count by class are left out:
/// too many weights for the traces one has.
const MOST_CLASSES: usize = 32;

/// Features of score, prediction and time.
const OF_SCORE: usize = 11;

/// Features of the class probabilities together.
const OF_PROBS: usize = 9;

/// What a learned score looks at, and the weight of each.
///
/// The fields are what a live stream needs, so they travel in the rule file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct GapScore {
    features: Features,
    /// One per feature; the larger the sum, the safer it is to stop.
    weights: Vec<f64>,
    /// What is added to the sum.
    intercept: f64,
}

/// A learned score as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Whether the step's own score is used; else the largest probability
    /// stands in for it.
    uses_score: bool,
    /// How many class probabilities a step has; 0 where they are not used.
    classes: usize,
    /// The step that counts as the end.
    t_max: usize,
    /// Whether classes are predicted.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    predicts: bool,
    weights: Vec<f64>,
    intercept: f64,
}

fn yes() -> bool {
    true
}

fn is_yes(predicts: &bool) -> bool {
    *predicts
}

impl TryFrom<Record> for GapScore {
    type Error = String;

    fn try_from(record: Record) -> Result<Self, String> {
        let features = Features {
            uses_score: record.uses_score,
            classes: record.classes,
            t_max: record.t_max,
            predicts: record.predicts,
        };
        if !features.uses_score && features.classes == 0 {
            return Err("the learned score looks at nothing".into());
        }
        if features.t_max == 0 || record.weights.len() != features.len() {
            return Err(format!(
                "the learned score has {} weights for {} features",
                record.weights.len(),
                features.len()
            ));
        }
        let finite = |numbers: &[f64]| numbers.iter().all(|w| w.is_finite());
        if !finite(&record.weights) || !finite(&[record.intercept]) {
            return Err("a weight of the learned score is not a number".into());
        }
        Ok(Self::new(features, record.weights, record.intercept))
    }
}

impl From<GapScore> for Record {
    fn from(score: GapScore) -> Self {
        Self {
            uses_score: score.features.uses_score,
            classes: score.features.classes,
            t_max: score.features.t_max,
            predicts: score.features.predicts,
            weights: score.weights,
            intercept: score.intercept,
        }
    }
}

impl GapScore {
    pub(crate) fn new(features: Features, weights: Vec<f64>, intercept: f64) -> Self {
        Self {
            features,
            weights,
            intercept,
        }
    }

    /// Appends the bytes of its numbers.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.features.uses_score));
        if !self.features.predicts {
            out.push(u8::MAX);
        }
        for number in [self.features.classes, self.features.t_max] {
            out.extend((number as u64).to_le_bytes());
        }
        let numbers = self.weights.iter().chain([&self.intercept]);
        out.extend(numbers.flat_map(|number| number.to_le_bytes()));
    }

    /// Its part of the text that the first version of the rule file took its
    /// seal from.
    pub(crate) fn first_text(&self) -> String {
        let Features {
            uses_score,
            classes,
            t_max,
            ..
        } = self.features;
        format!(
            "GapScore {{ features: Features {{ uses_score: {uses_score}, classes: {classes}, \
             t_max: {t_max} }}, weights: {:?}, intercept: {:?} }}",
            self.weights, self.intercept
        )
    }

    /// How many class probabilities it needs at a step; 0 if it needs none.
    pub fn classes(&self) -> usize {
        self.features.classes
    }

    /// Whether it needs the score that comes with a step.
    pub fn uses_score(&self) -> bool {
        self.features.uses_score
    }

    /// The score of step `t` (0-based), after the steps that `memory` saw.
    pub(crate) fn observe(
        &self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory,
    ) -> Result<f32, StepError> {
        Ok(probability(self.log_odds(step, t, memory)?))
    }

    /// The same as log-odds.
    pub(crate) fn log_odds(
        &self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory,
    ) -> Result<f64, StepError> {
        let mut sum = self.intercept;
        let mut weights = self.weights.iter();
        self.features.observe(step, t, memory, &mut |x| {
            sum += weights.next().map_or(0.0, |w| w * x);
        })?;
        Ok(sum)
    }
}

/// The probability of which `log_odds` are the log-odds.
pub(crate) fn probability(log_odds: f64) -> f32 {
    (1.0 / (1.0 + (-log_odds).exp())) as f32
}

/// The log-odds of a probability, kept finite.
pub(crate) fn log_odds(p: f64) -> f64 {
    let p = p.clamp(1e-6, 1.0 - 1e-6);
    (p / (1.0 - p)).ln()
}

/// What is carried from step to step of one sequence: a handful of numbers, and
/// two per class where class probabilities are used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// Whether a step was seen yet.
    begun: bool,
    prediction: u32,
    /// For how many steps the prediction has been the same.
    run: u32,
    /// How often it changed.
    changes: u32,
    /// The log-odds of the confidence: smoothed, and the highest so far.
    smoothed: f64,
    highest: f64,
    /// How much the probabilities have been moving.
    drift: f64,
    /// The last probabilities, then the smoothed ones.
    probs: Vec<f32>,
}

/// What is computed from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) uses_score: bool,
    pub(crate) classes: usize,
    pub(crate) t_max: usize,
    /// Whether classes are predicted; else all steps count as one class.
    pub(crate) predicts: bool,
}

impl Features {
    /// How many there are.
    pub(crate) fn len(self) -> usize {
        let by_class = if self.by_class() { 2 * self.classes } else { 0 };
        OF_SCORE + if self.classes > 0 { OF_PROBS } else { 0 } + by_class
    }

    fn by_class(self) -> bool {
        self.classes <= MOST_CLASSES
    }

    /// Hands out the features of step `t` (0-based), one after the other. On an
    /// error nothing is remembered of the step.
    pub(crate) fn observe(
        self,
        step: &Step<'_>,
        t: usize,
        memory: &mut Memory,
        out: &mut impl FnMut(f64),
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
        // As long as it was, unless it was stored and comes back another.
        if ![0, 2 * self.classes].contains(&memory.probs.len()) {
            return Err(StepError::OtherRule);
        }

        let odds = log_odds(f64::from(confidence));
        memory.take(prediction, odds);
        let when = (t + 1) as f64 / self.t_max as f64;
        let run = f64::from(memory.run).ln();
        let smoothed = memory.smoothed;
        let of_score: [f64; OF_SCORE] = [
            odds,
            run,
            f64::from(memory.changes).ln_1p(),
            memory.highest,
            smoothed,
            when,
            ((t + 1) as f64).ln(),
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
        memory.take_probs(probs);
        let spread: f64 = probs
            .iter()
            .map(|&p| f64::from(p.clamp(0.0, 1.0)))
            .map(|p| -p * (p + 1e-9).ln())
            .sum();
        let smoothed = probs.len() + prediction as usize;
        let smoothed = memory.probs.get(smoothed).copied().unwrap_or(0.0);
        let top_odds = log_odds(first);
        let of_probs: [f64; OF_PROBS] = [
            top_odds,
            first - second,
            spread,
            memory.drift,
            f64::from(smoothed),
            (first + 1e-6).ln() - (second + 1e-6).ln(),
            when * top_odds,
            when * spread,
            when * (first - second),
        ];
        of_probs.into_iter().for_each(&mut *out);
        if self.by_class() {
            let is = |k: u32| if k == prediction { 1.0 } else { 0.0 };
            (0..self.classes as u32).map(is).for_each(&mut *out);
            let logs = probs.iter().map(|&p| f64::from(p.clamp(0.0, 1.0)));
            logs.map(|p| (p + 1e-3).ln()).for_each(&mut *out);
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

impl Memory {
    fn take(&mut self, prediction: u32, odds: f64) {
        if !self.begun {
            *self = Self {
                begun: true,
                prediction,
                run: 1,
                smoothed: odds,
                highest: odds,
                ..Self::default()
            };
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

    fn take_probs(&mut self, probs: &[f32]) {
        // As the readers of files do with what rounding left outside.
        let probs = || probs.iter().map(|p| p.clamp(0.0, 1.0));
        if self.probs.is_empty() {
            self.probs = probs().chain(probs()).collect();
            return;
        }
        let (last, smoothed) = self.probs.split_at_mut(probs().len());
        let moved: f64 = std::iter::zip(probs(), &*last)
            .map(|(now, before)| f64::from((now - before).abs()))
            .sum();
        self.drift = (1.0 - NEWEST) * self.drift + NEWEST * moved;
        for (smoothed, now) in std::iter::zip(smoothed, probs()) {
            *smoothed = (1.0 - NEWEST as f32) * *smoothed + NEWEST as f32 * now;
        }
        for (last, now) in std::iter::zip(last, probs()) {
            *last = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Features = Features {
        uses_score: true,
        classes: 3,
        t_max: 4,
        predicts: true,
    };

    fn features(features: Features, steps: &[Step<'_>]) -> Result<Vec<Vec<f64>>, StepError> {
        let mut memory = Memory::default();
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
        assert!(all.iter().all(|found| found.len() == BOTH.len()));
        let third = &all[2];
        let three = 3f64.ln();
        assert_eq!(third[0], 0.0, "even odds");
        assert_eq!(third[1], 0.0, "the prediction is new");
        assert_eq!(third[2], 2f64.ln(), "it changed once");
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
    fn a_stored_score_that_does_not_fit_itself_is_refused() {
        let score = GapScore::new(BOTH, vec![0.5; BOTH.len()], -1.0);
        let json = serde_json::to_value(&score).unwrap();
        let back: GapScore = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(back, score);
        let mut short = json.clone();
        short["weights"].as_array_mut().unwrap().pop();
        assert!(serde_json::from_value::<GapScore>(short).is_err());
        let mut more = json;
        more["classes"] = 4.into();
        assert!(serde_json::from_value::<GapScore>(more).is_err());
    }
}
