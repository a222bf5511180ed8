//! The one check that every sequence passes, whatever its source: a file, an array, a loop
//! in Rust.

use haltwise_stream::{OVERSHOOT, SUM_TOLERANCE};

use super::sequence::{MAX_STEPS, Numbers, Sequence, Trace};
use super::sequence_error::{Fault, SequenceError};

/// Checks sequences one by one, and completes each from its probabilities.
#[derive(Debug, Default)]
pub struct Checker {
    scores_given: Option<bool>,
    classes: Vec<u32>,
    largest: Vec<f32>,
    clamped: Vec<f32>,
    /// Predictions for sequences that have none.
    zeros: Vec<u32>,
}

impl Checker {
    /// Starts before any sequence.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether sequences come with scores; `None` before the first.
    pub fn scores_given(&self) -> Option<bool> {
        self.scores_given
    }

    /// Returns the completed sequence if it is sound and of the same kind as those before.
    pub fn check<'c>(&'c mut self, given: Sequence<'c>) -> Result<Trace<'c>, SequenceError> {
        let scores_given = given.scores.is_some();
        if !scores_given && given.probs.is_none() {
            return Err(Fault::NoScores.into());
        }
        let predicts = given.predictions.is_some() || given.probs.is_some();
        if !predicts && given.numbers.is_none() && given.losses.is_none() {
            return Err(Fault::NoPredictions.into());
        }
        if *self.scores_given.get_or_insert(scores_given) != scores_given {
            return Err(SequenceError::mixed_sources());
        }
        let (probs, classes) = match given.probs {
            Some((probs, classes)) => (Some(self.check_probs(&given, probs, classes)?), classes),
            None => (None, 0),
        };
        let Self {
            classes: best,
            largest,
            clamped,
            zeros,
            ..
        } = self;
        let scores = given.scores.unwrap_or(largest);
        if !predicts {
            zeros.clear();
            zeros.resize(scores.len(), 0);
        }
        let predictions = match predicts {
            true => given.predictions.unwrap_or(best),
            false => zeros,
        };
        let steps = probs.is_some().then_some(largest.len());
        check_lengths(predictions.len(), scores.len(), steps)?;
        check_scores(scores)?;
        check_more(&given, scores.len())?;
        Ok(Trace {
            id: given.id,
            label: given.label,
            predictions,
            scores,
            scores_given,
            probs: probs.map(|as_given| {
                if as_given {
                    given.probs.map_or(&[][..], |p| p.0)
                } else {
                    clamped
                }
            }),
            classes,
            predicts,
            numbers: given.numbers,
            losses: given.losses,
            class_names: given.class_names,
            about: given.about,
        })
    }

    /// Checks the probabilities and finds the largest of each step. Returns whether all are
    /// in [0, 1]. If rounding left some outside, `clamped` holds them moved to the border.
    fn check_probs(
        &mut self,
        given: &Sequence<'_>,
        probs: &[f32],
        classes: usize,
    ) -> Result<bool, SequenceError> {
        if classes == 0 {
            return Err(Fault::NoClasses.at("probs", None));
        }
        let in_range = |class: u32, field, step| {
            if (class as usize) < classes {
                return Ok(());
            }
            Err(Fault::Class { class, classes }.at(field, step))
        };
        if let Some(label) = given.label {
            in_range(label, "label", None)?;
        }
        for (t, &class) in given.predictions.unwrap_or_default().iter().enumerate() {
            in_range(class, "predictions", Some(t + 1))?;
        }
        if !probs.len().is_multiple_of(classes) {
            let found = probs.len();
            return Err(Fault::Uneven { found, classes }.at("probs", None));
        }
        self.classes.clear();
        self.largest.clear();
        let mut inside = true;
        for (t, step) in probs.chunks_exact(classes).enumerate() {
            let (class, largest, lowest) =
                largest(step).map_err(|fault| fault.at("probs", Some(t + 1)))?;
            inside &= lowest >= 0.0 && largest <= 1.0;
            self.classes.push(class);
            self.largest.push(largest.min(1.0));
        }
        if !inside {
            self.clamped.clear();
            self.clamped.extend(probs.iter().map(|p| p.clamp(0.0, 1.0)));
        }
        Ok(inside)
    }
}

/// The largest probability of a step and its class (the first of equals), and the lowest
/// probability.
fn largest(step: &[f32]) -> Result<(u32, f32, f32), Fault> {
    let (mut class, mut best, mut sum, mut lowest) = (0, f32::NEG_INFINITY, 0.0, 0.0_f32);
    for (k, &prob) in step.iter().enumerate() {
        if prob > best {
            (class, best) = (k, prob);
        }
        sum += prob;
        // Simpler than `min`, which is a call on processors without such an instruction.
        if prob < lowest {
            lowest = prob;
        }
    }
    // NaN and infinities end up in the sum, and make it fail this test.
    let sums_to_one = (sum - 1.0).abs() <= SUM_TOLERANCE;
    if sums_to_one && lowest >= -OVERSHOOT && best <= 1.0 + OVERSHOOT {
        return Ok((class as u32, best, lowest));
    }
    Err(not_probabilities(step, sum))
}

fn not_probabilities(step: &[f32], sum: f32) -> Fault {
    if let Some(&value) = step.iter().find(|p| !p.is_finite()) {
        return Fault::NotFinite(value);
    }
    let inside = -OVERSHOOT..=1.0 + OVERSHOOT;
    let Some(&value) = step.iter().find(|p| !inside.contains(*p)) else {
        return Fault::Sum(sum);
    };
    if step.iter().all(|&p| p >= 0.0) {
        return Fault::Sum(sum);
    }
    if step.iter().all(|&p| p <= 0.0) {
        return Fault::Logarithm(value);
    }
    Fault::Logit(value)
}

/// Refuses predictions, scores and steps of probabilities that differ in number, and
/// lengths that no sequence can have.
pub(crate) fn check_lengths(
    predictions: usize,
    scores: usize,
    probs: Option<usize>,
) -> Result<(), SequenceError> {
    if predictions != scores || probs.is_some_and(|n| n != scores) {
        let fault = Fault::Lengths {
            predictions,
            scores,
            probs,
        };
        return Err(fault.into());
    }
    match scores {
        0 => Err(Fault::NoSteps.into()),
        1..=MAX_STEPS => Ok(()),
        _ => Err(Fault::TooLong(scores).into()),
    }
}

/// Refuses invalid scores.
pub(crate) fn check_scores(scores: &[f32]) -> Result<(), SequenceError> {
    let sound = |s: &f32| (0.0..=1.0).contains(s);
    // Two passes: the first has no early exit, and counts in a number as wide
    // as a score, so that it runs as wide as the processor does.
    let unsound: u32 = scores.iter().map(|s| u32::from(!sound(s))).sum();
    if unsound == 0 {
        return Ok(());
    }
    let t = scores.iter().position(|s| !sound(s)).unwrap_or_default();
    Err(Fault::Score(scores[t]).at("scores", Some(t + 1)))
}

/// Checks the fields other than predictions and scores.
fn check_more(given: &Sequence<'_>, steps: usize) -> Result<(), SequenceError> {
    let per_step = |values: &[f32], field: &'static str| match values.len() == steps {
        true => Ok(()),
        false => {
            let found = values.len();
            Err(Fault::PerStep { found, steps }.at(field, None))
        }
    };
    let first = |values: &[f32], field, sound: fn(&f32) -> bool, fault: fn(f32) -> Fault| {
        let unsound = values.iter().position(|v| !sound(v));
        unsound.map_or(Ok(()), |t| Err(fault(values[t]).at(field, Some(t + 1))))
    };
    if let Some(losses) = given.losses {
        per_step(losses, "losses")?;
        first(losses, "losses", |l| (0.0..=1.0).contains(l), Fault::Loss)?;
    }
    if let Some(costs) = given.about.costs {
        per_step(costs, "cost")?;
        first(costs, "cost", |c| c.is_finite() && *c >= 0.0, Fault::Cost)?;
    }
    if let Some(Numbers { predictions, label }) = given.numbers {
        per_step(predictions, "predictions")?;
        first(predictions, "predictions", |p| p.is_finite(), Fault::Number)?;
        first(&[label], "label", |p| p.is_finite(), Fault::Number)?;
    }
    match given.about.weight {
        Some(weight) if !(weight.is_finite() && weight >= 0.0) => {
            Err(Fault::NotWeight(weight).at("weight", None))
        }
        _ => Ok(()),
    }
}

/// Checks one score, for callers that go step by step.
pub fn check_score(score: f32) -> Result<(), SequenceError> {
    if (0.0..=1.0).contains(&score) {
        return Ok(());
    }
    Err(Fault::Score(score).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::score::ScoreSource;

    fn refused(given: Sequence<'_>) -> String {
        Checker::new().check(given).unwrap_err().to_string()
    }

    #[test]
    fn what_is_missing_is_taken_from_the_probabilities() {
        let mut checker = Checker::new();
        let given = Sequence {
            label: Some(1),
            probs: Some((&[0.6, 0.4, 0.1, 0.9], 2)),
            ..Sequence::default()
        };
        let trace = checker.check(given).unwrap();
        assert_eq!(trace.predictions(), [0, 1]);
        assert_eq!(trace.scores(), [0.6, 0.9]);
        assert_eq!(trace.source(), ScoreSource::MaxProbability);
        assert_eq!(trace.given_scores(), None);
        let again = trace.given();
        assert_eq!((again.scores, again.probs), (None, given.probs));
    }

    #[test]
    fn what_rounding_left_outside_is_moved_onto_the_border() {
        let mut checker = Checker::new();
        let given = Sequence {
            probs: Some((&[1.00005, -0.00005], 2)),
            ..Sequence::default()
        };
        let trace = checker.check(given).unwrap();
        assert_eq!(trace.probs(), Some(&[1.0, 0.0][..]));
        assert_eq!(trace.scores(), [1.0]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place_and_remedy() {
        let nothing = Sequence::default();
        assert!(refused(nothing).contains("neither `scores` nor `probs`"));
        let scores = Sequence {
            predictions: Some(&[0, 0]),
            scores: Some(&[0.5, f32::NAN]),
            ..nothing
        };
        let expected = "scores, step 2: the score NaN is not a number in [0, 1]; fill it in, or \
                        cut the sequence before it";
        assert_eq!(refused(scores), expected);
        let probs = |values| Sequence {
            probs: Some((values, 2)),
            ..nothing
        };
        assert!(refused(probs(&[0.5, 0.5, 3.0, -1.0])).starts_with("probs, step 2: 3 is not"));
        assert!(refused(probs(&[-0.1, -2.0])).contains("apply exp"));
        assert!(refused(probs(&[0.5, 0.4])).contains("sum to 0.9"));
        assert!(refused(probs(&[0.5, 0.5, 0.5])).contains("evenly"));
        let class = Sequence {
            label: Some(2),
            ..probs(&[0.5, 0.5])
        };
        assert!(refused(class).starts_with("label: class 2 is out of range"));
        let empty = Sequence {
            predictions: Some(&[]),
            scores: Some(&[]),
            ..nothing
        };
        assert!(refused(empty).contains("no steps"));
    }

    #[test]
    fn sequences_with_scores_and_without_do_not_mix() {
        let mut checker = Checker::new();
        let scored = Sequence {
            predictions: Some(&[0]),
            scores: Some(&[0.5]),
            ..Sequence::default()
        };
        assert!(checker.check(scored).is_ok());
        let bare = Sequence {
            probs: Some((&[1.0], 1)),
            ..Sequence::default()
        };
        let refused = checker.check(bare).unwrap_err();
        assert_eq!(refused, SequenceError::mixed_sources());
    }
}
