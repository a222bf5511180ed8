//! One sequence: as it is given, and checked and complete. Whatever brings
//! sequences in, a file, an array, a loop in Rust, they pass this one check.

use std::fmt;

use crate::identity::Fingerprint;
use crate::score::ScoreSource;
use haltwise_stream::{OVERSHOOT, SUM_TOLERANCE, Step};

/// The longest sequence supported.
pub const MAX_STEPS: usize = (1 << 24) - 1;

/// One sequence as it is given: what a classifier said at each step, by
/// predictions and scores, by class probabilities, or both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sequence<'a> {
    /// Its id, where it has one.
    pub id: Option<&'a str>,
    /// The true class, where it is known.
    pub label: Option<u32>,
    /// The predicted class at each step; by default the most probable one. Not
    /// needed where there are `numbers` or `losses`.
    pub predictions: Option<&'a [u32]>,
    /// The score at each step; by default the largest probability.
    pub scores: Option<&'a [f32]>,
    /// The class probabilities, step after step, and how many a step has.
    pub probs: Option<(&'a [f32], usize)>,
    /// Predicted numbers, where the classifier is a regression.
    pub numbers: Option<Numbers<'a>>,
    /// What stopping at each step would cost, in [0, 1], whatever that means.
    pub losses: Option<&'a [f32]>,
    /// What else is known about it.
    pub about: About<'a>,
}

/// What a regression said: a number at each step, and the true one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Numbers<'a> {
    /// The predicted number at each step.
    pub predictions: &'a [f32],
    /// The true number.
    pub label: f32,
}

/// What is known about a sequence beside what the classifier said: the values
/// of the columns that a promise may speak of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct About<'a> {
    /// The group it belongs to: a hospital, a device.
    pub group: Option<&'a str>,
    /// The unit it was drawn with: a patient, a driver, a document.
    pub unit: Option<&'a str>,
    /// How much more often it would be met where the rule will be used.
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
    /// Whether there are predictions of classes; else those above mean nothing.
    pub(crate) predicts: bool,
    pub(crate) numbers: Option<Numbers<'a>>,
    pub(crate) losses: Option<&'a [f32]>,
    pub(crate) about: About<'a>,
}

impl<'a> Trace<'a> {
    /// Its id, where it has one.
    pub fn id(&self) -> Option<&'a str> {
        self.id
    }

    /// The true class, where it is known. Classes that have names in a file are
    /// numbered in the order they are met.
    pub fn label(&self) -> Option<u32> {
        self.label
    }

    /// Whether it comes with predictions of classes.
    pub fn predicts(&self) -> bool {
        self.predicts
    }

    /// The predicted numbers, where there are any.
    pub fn numbers(&self) -> Option<Numbers<'a>> {
        self.numbers
    }

    /// What stopping at each step would cost, where that was given.
    pub fn losses(&self) -> Option<&'a [f32]> {
        self.losses
    }

    /// What else is known about it.
    pub fn about(&self) -> About<'a> {
        self.about
    }

    /// The predicted class at each step; all 0 where there are none.
    pub fn predictions(&self) -> &'a [u32] {
        self.predictions
    }

    /// The score at each step, in [0, 1]: the one given, else the largest
    /// probability.
    pub fn scores(&self) -> &'a [f32] {
        self.scores
    }

    /// The score at each step, where scores were given.
    pub fn given_scores(&self) -> Option<&'a [f32]> {
        self.scores_given.then_some(self.scores)
    }

    /// The class probabilities, step after step, in [0, 1], where there are any.
    pub fn probs(&self) -> Option<&'a [f32]> {
        self.probs
    }

    /// Class probabilities per step; 0 where there are none.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many steps it has: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// How its [`scores`](Self::scores) came about.
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

    /// Whether each prediction was right; of none is it known without a label.
    pub(crate) fn right(&self) -> impl Iterator<Item = bool> + 'a {
        let label = self.label;
        self.predictions.iter().map(move |&p| label == Some(p))
    }

    /// Whether each prediction is another than the last.
    pub(crate) fn disagrees(&self) -> impl Iterator<Item = bool> + 'a {
        let full = self.predictions.last().copied();
        self.predictions.iter().map(move |&p| full != Some(p))
    }

    /// The sequence as it could be given again.
    pub fn given(&self) -> Sequence<'a> {
        Sequence {
            id: self.id,
            label: self.label,
            predictions: self.predicts.then_some(self.predictions),
            scores: self.given_scores(),
            probs: self.probs.map(|probs| (probs, self.classes)),
            numbers: self.numbers,
            losses: self.losses,
            about: self.about,
        }
    }

    /// What tells it from others, whichever score will be judged; `bytes` is
    /// used to work in.
    pub fn fingerprint(&self, bytes: &mut Vec<u8>) -> Fingerprint {
        if self.label.is_some() && self.numbers.is_none() && self.losses.is_none() {
            return Fingerprint::of_sequence(self.scores, self.right(), bytes);
        }
        // Without labels, what tells sequences apart is where predictions change
        // their mind; a byte that a labelled sequence never has goes before it.
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

/// What is wrong with a sequence, and where in it.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceError {
    field: Option<&'static str>,
    /// Counted from 1.
    step: Option<usize>,
    fault: Fault,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
enum Fault {
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
    #[error("{found} values for {steps} steps; each step needs one")]
    PerStep { found: usize, steps: usize },
    #[error("sets whose scores came about or were binned in different ways cannot be joined")]
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
    fn at(self, field: &'static str, step: Option<usize>) -> SequenceError {
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
    /// Two sets have scores of different kinds, or on different grids.
    pub(crate) fn other_kind() -> Self {
        Fault::OtherKind.into()
    }

    /// A sequence is not of the kind of those before it.
    pub(crate) fn unlike() -> Self {
        Fault::Unlike.into()
    }

    /// It has no value in a column that the promise speaks of.
    pub(crate) fn no_column(column: &str) -> Self {
        Fault::NoColumn(format!("`{column}`")).into()
    }

    /// It has no label.
    pub(crate) fn no_label() -> Self {
        Fault::NoLabel.into()
    }

    /// Its weight is above the bound.
    pub(crate) fn heavy(weight: f64, bound: f64) -> Self {
        Fault::HeavyWeight { weight, bound }.into()
    }

    /// Some sequences have scores, others have not.
    pub fn mixed_sources() -> Self {
        Fault::MixedSources.into()
    }

    /// Whether things do not go together, each of which may be sound.
    pub fn is_conflict(&self) -> bool {
        use Fault::{Lengths, MixedSources, OtherKind, PerStep, Uneven, Unlike};
        let fault = &self.fault;
        matches!(
            fault,
            Lengths { .. } | MixedSources | OtherKind | PerStep { .. } | Uneven { .. } | Unlike
        )
    }

    /// Whether something is not there at all.
    pub fn is_lack(&self) -> bool {
        let fault = &self.fault;
        matches!(
            fault,
            Fault::NoScores | Fault::NoPredictions | Fault::NoColumn(_) | Fault::NoLabel
        )
    }

    /// Where in the sequence: its field and step, as far as they are known.
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

    /// What is wrong, and what to do about it.
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

/// Checks sequences one by one, and completes each from its probabilities.
#[derive(Debug, Default)]
pub struct Checker {
    scores_given: Option<bool>,
    classes: Vec<u32>,
    largest: Vec<f32>,
    clamped: Vec<f32>,
    /// Predictions for those who have none.
    zeros: Vec<u32>,
}

impl Checker {
    /// No sequence was met yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether scores are given, as far as sequences were met.
    pub fn scores_given(&self) -> Option<bool> {
        self.scores_given
    }

    /// The sequence, complete, if it is sound and of the kind of those before.
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
            about: given.about,
        })
    }

    /// Checks the probabilities and finds the largest of each step. Returns
    /// whether they are as they should be; if rounding left some outside [0, 1],
    /// they are in `clamped`, moved onto its border.
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

/// The largest probability of a step and its class, the first of equals; and
/// the lowest.
fn largest(step: &[f32]) -> Result<(u32, f32, f32), Fault> {
    let (mut class, mut best, mut sum, mut lowest) = (0, f32::NEG_INFINITY, 0.0, 0.0_f32);
    for (k, &prob) in step.iter().enumerate() {
        if prob > best {
            (class, best) = (k, prob);
        }
        sum += prob;
        // Plainer than `min`, which is a call where a processor has no such instruction.
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
    if step.iter().all(|&p| p <= 0.0) {
        return Fault::Logarithm(value);
    }
    Fault::Logit(value)
}

/// Refuses numbers of predictions, scores and steps of probabilities that
/// differ, and lengths that no sequence can have.
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

/// Refuses what is no score.
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

/// Checks what may come beside predictions and scores.
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

/// Checks one score, for those who meet steps one by one.
pub fn check_score(score: f32) -> Result<(), SequenceError> {
    if (0.0..=1.0).contains(&score) {
        return Ok(());
    }
    Err(Fault::Score(score).into())
}

#[cfg(test)]
mod tests {
    use super::*;

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
