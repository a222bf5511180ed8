//! Where every reader hands in its sequences: the checks that hold for all
//! formats, made once.

use haltwise::{OVERSHOOT, SUM_TOLERANCE};

use super::classes::Classes;
use super::ids::Ids;
use super::{TraceRow, Visit};
use crate::problem::{Problem, quoted};

/// How many bytes pass between two reports of progress.
const REPORT_EVERY: u64 = 1 << 20;

/// One sequence as it stands in a file.
#[derive(Debug, Default)]
pub(super) struct Sequence<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) label: u32,
    pub(super) predictions: Option<&'a [u32]>,
    pub(super) scores: Option<&'a [f32]>,
    pub(super) probs: Option<Probs<'a>>,
}

/// Class probabilities, step after step.
#[derive(Debug)]
pub(super) struct Probs<'a> {
    pub(super) values: &'a mut [f32],
    /// How many there are per step.
    pub(super) classes: usize,
}

/// Takes sequences from readers, checks them and shows them to the visitor.
pub(super) struct Intake<'v> {
    pub(super) classes: Classes,
    visit: &'v mut Visit<'v>,
    seen: &'v mut Ids,
    scores_given: Option<bool>,
    taken_before_file: u64,
    taken: u64,
    progress: Progress<'v>,
    best_class: Vec<u32>,
    best_prob: Vec<f32>,
}

impl<'v> Intake<'v> {
    pub(super) fn new(
        seen: &'v mut Ids,
        visit: &'v mut Visit<'v>,
        report: &'v mut dyn FnMut(u64, u64),
        total: u64,
    ) -> Self {
        Self {
            classes: Classes::default(),
            visit,
            seen,
            scores_given: None,
            taken_before_file: 0,
            taken: 0,
            progress: Progress {
                report,
                total,
                before_file: 0,
                file: 0,
                reported: 0,
            },
            best_class: Vec::new(),
            best_prob: Vec::new(),
        }
    }

    pub(super) fn start_file(&mut self, size: u64) {
        self.taken_before_file = self.taken;
        self.progress.file = size;
    }

    pub(super) fn end_file(&mut self) -> Result<(), Problem> {
        if self.taken == self.taken_before_file {
            return Err(Problem::new("there is no sequence in it"));
        }
        self.progress.end_file();
        Ok(())
    }

    /// Whether scores are given, as far as it was seen.
    pub(super) fn scores_given(&self) -> Option<bool> {
        self.scores_given
    }

    /// The size of the file under way in bytes.
    pub(super) fn file_size(&self) -> u64 {
        self.progress.file
    }

    /// Reports how much of the file under way is done, in any unit.
    pub(super) fn done(&mut self, done: u64, of: u64) {
        self.progress.done(done, of);
    }

    /// Takes one sequence. Problems say at which step, not in which row: that
    /// the reader knows.
    pub(super) fn take(&mut self, sequence: Sequence<'_>) -> Result<(), Problem> {
        if let Some(id) = sequence.id {
            self.unseen(id)?;
        }
        self.one_source(&sequence)?;
        let probs: Option<&[f32]> = match sequence.probs {
            Some(probs) => {
                self.take_probs(&probs, sequence.label, sequence.predictions)?;
                clamp(probs.values);
                Some(probs.values)
            }
            None => None,
        };
        let predictions = sequence.predictions.unwrap_or(&self.best_class);
        let scores = sequence.scores.unwrap_or(&self.best_prob);
        check_lengths(
            predictions.len(),
            scores.len(),
            probs.map(|_| self.best_prob.len()),
        )?;
        check_scores(scores)?;
        self.taken += 1;
        (self.visit)(&TraceRow {
            id: sequence.id,
            label: sequence.label,
            predictions,
            scores,
            probs,
            scores_given: self.scores_given.unwrap_or_default(),
        })
        .map_err(Problem::new)
    }

    fn unseen(&mut self, id: &str) -> Result<(), Problem> {
        if self.seen.insert(id) {
            return Ok(());
        }
        Err(Problem::new(format_args!(
            "the id {} was met before; a sequence may count only once, \
             so drop the repeat or give it an id of its own",
            quoted(id)
        )))
    }

    fn one_source(&mut self, sequence: &Sequence<'_>) -> Result<(), Problem> {
        let given = sequence.scores.is_some();
        if !given && sequence.probs.is_none() {
            return Err(Problem::format(
                "it has neither `scores` nor `probs`; give one of them",
            ));
        }
        if sequence.predictions.is_none() && sequence.probs.is_none() {
            return Err(Problem::format(
                "it has neither `predictions` nor `probs`; give one of them",
            ));
        }
        if *self.scores_given.get_or_insert(given) == given {
            return Ok(());
        }
        Err(mixed_sources())
    }

    /// Checks the probabilities and finds the largest of each step.
    fn take_probs(
        &mut self,
        probs: &Probs<'_>,
        label: u32,
        predictions: Option<&[u32]>,
    ) -> Result<(), Problem> {
        if probs.classes == 0 {
            return Err(Problem::new("there are no classes in it").at("probs"));
        }
        if self.classes.are_names() {
            return Err(Problem::conflict(
                "classes have names here, so it is not known which probability is whose; \
                 number the labels and predictions from 0 in the order of `probs`",
            )
            .at("probs"));
        }
        in_range(label, probs.classes).map_err(|p| p.at("label"))?;
        for (t, &class) in predictions.unwrap_or_default().iter().enumerate() {
            in_range(class, probs.classes)
                .map_err(|p| p.at(format_args!("step {}", t + 1)).at("predictions"))?;
        }
        self.best_class.clear();
        self.best_prob.clear();
        for (t, step) in probs.values.chunks_exact(probs.classes).enumerate() {
            let (class, prob) =
                largest(step).map_err(|p| p.at(format_args!("step {}", t + 1)).at("probs"))?;
            self.best_class.push(class);
            self.best_prob.push(prob.min(1.0));
        }
        Ok(())
    }
}

pub(super) fn mixed_sources() -> Problem {
    Problem::conflict(
        "some sequences come with `scores` and some with `probs` alone; \
         one rule needs scores of one kind, so give `scores` for all or for none",
    )
}

/// The largest probability of a step and its class, the first of equals.
fn largest(step: &[f32]) -> Result<(u32, f32), Problem> {
    let (mut class, mut best, mut sum, mut lowest) = (0, f32::NEG_INFINITY, 0.0, 0.0_f32);
    for (k, &prob) in step.iter().enumerate() {
        if prob > best {
            (class, best) = (k, prob);
        }
        sum += prob;
        lowest = lowest.min(prob);
    }
    // NaN and infinities end up in the sum, and make it fail this test.
    let sums_to_one = (sum - 1.0).abs() <= SUM_TOLERANCE;
    if sums_to_one && lowest >= -OVERSHOOT && best <= 1.0 + OVERSHOOT {
        return Ok((class as u32, best));
    }
    Err(not_probabilities(step, sum))
}

fn not_probabilities(step: &[f32], sum: f32) -> Problem {
    if let Some(value) = step.iter().find(|p| !p.is_finite()) {
        return Problem::new(format_args!("{value} is not a probability"));
    }
    let inside = -OVERSHOOT..=1.0 + OVERSHOOT;
    let Some(value) = step.iter().find(|p| !inside.contains(*p)) else {
        return Problem::new(format_args!(
            "the probabilities sum to {sum}, not to 1; normalise them (softmax over the classes)"
        ));
    };
    if step.iter().all(|&p| p <= 0.0) {
        return Problem::new(format_args!(
            "{value} is not a probability; these look like log-probabilities: apply exp"
        ));
    }
    Problem::new(format_args!(
        "{value} is not a probability; these look like logits: apply softmax"
    ))
}

/// Moves what rounding left outside [0, 1] onto its border.
fn clamp(probs: &mut [f32]) {
    for prob in probs {
        *prob = prob.clamp(0.0, 1.0);
    }
}

fn in_range(class: u32, classes: usize) -> Result<(), Problem> {
    if (class as usize) < classes {
        return Ok(());
    }
    Err(Problem::new(format_args!(
        "class {class} is out of range: `probs` has {classes} classes, 0 to {}; \
         classes are counted from 0",
        classes - 1
    )))
}

fn check_lengths(predictions: usize, scores: usize, probs: Option<usize>) -> Result<(), Problem> {
    if predictions != scores || probs.is_some_and(|n| n != scores) {
        let probs = probs.map_or_else(String::new, |n| format!(" and {n} steps of probs"));
        return Err(Problem::conflict(format_args!(
            "{predictions} predictions but {scores} scores{probs}; each step needs one of each"
        )));
    }
    if scores == 0 {
        return Err(Problem::new("the sequence has no steps; leave it out"));
    }
    Ok(())
}

fn check_scores(scores: &[f32]) -> Result<(), Problem> {
    let sound = |s: &f32| (0.0..=1.0).contains(s);
    // Two passes: the first has no early exit, and counts in a number as wide
    // as a score, so it runs as wide as the processor does.
    let unsound: u32 = scores.iter().map(|s| u32::from(!sound(s))).sum();
    if unsound == 0 {
        return Ok(());
    }
    let t = scores.iter().position(|s| !sound(s)).unwrap_or_default();
    Err(bad_score(scores[t])
        .at(format_args!("step {}", t + 1))
        .at("scores"))
}

/// Checks one score.
pub(super) fn check_score(score: f32) -> Result<(), Problem> {
    match (0.0..=1.0).contains(&score) {
        true => Ok(()),
        false => Err(bad_score(score)),
    }
}

fn bad_score(score: f32) -> Problem {
    let remedy = match score.is_nan() {
        true => "fill it in, or cut the sequence before it",
        false => "rescale the scores, for example with a sigmoid",
    };
    Problem::new(format_args!(
        "the score {score} is not a number in [0, 1]; {remedy}"
    ))
}

/// Tells the caller how far reading has come, in bytes of all files.
struct Progress<'v> {
    report: &'v mut dyn FnMut(u64, u64),
    total: u64,
    before_file: u64,
    file: u64,
    reported: u64,
}

impl Progress<'_> {
    fn done(&mut self, done: u64, of: u64) {
        let share = u128::from(self.file) * u128::from(done.min(of)) / u128::from(of.max(1));
        let now = self.before_file + share as u64;
        if now >= self.reported + REPORT_EVERY {
            self.reported = now;
            (self.report)(now, self.total);
        }
    }

    fn end_file(&mut self) {
        self.before_file += self.file;
        self.reported = self.before_file;
        (self.report)(self.before_file, self.total);
    }
}
