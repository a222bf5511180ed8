//! Sequences that come one step per row, in any order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use haltwise::Sequence;
use haltwise::traces::{MAX_STEPS, check_score};
use xxhash_rust::xxh3::xxh3_128;

use super::intake::{Intake, unsound};
use crate::problem::{Problem, quoted};

/// One row of a file that has a row per step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) id: &'a str,
    /// Counted from 1.
    pub(super) t: u64,
    pub(super) label: u32,
    pub(super) prediction: u32,
    pub(super) score: f32,
}

/// Collects steps into sequences: 8 bytes per step, until the file ends.
///
/// Rows of different sequences may interleave, so that none is known to be
/// complete before the end.
#[derive(Debug)]
pub(super) struct Steps {
    /// What the file calls a row: "row" or "line".
    row_word: &'static str,
    sequences: Vec<Open>,
    by_id: HashMap<u128, usize>,
    /// The sequence of the row before: the next row mostly has the same.
    current: usize,
}

#[derive(Debug)]
struct Open {
    id: Box<str>,
    label: u32,
    /// Steps 1, 2, … as far as they came in order.
    predictions: Vec<u32>,
    scores: Vec<f32>,
    /// Steps that came before one that precedes them.
    early: Vec<Early>,
}

#[derive(Debug)]
struct Early {
    t: u64,
    row: u64,
    prediction: u32,
    score: f32,
}

impl Steps {
    pub(super) fn new(row_word: &'static str) -> Self {
        Self {
            row_word,
            sequences: Vec::new(),
            by_id: HashMap::new(),
            current: 0,
        }
    }

    /// Adds one step, found in this row.
    pub(super) fn add(&mut self, row: u64, step: Step<'_>) -> Result<(), Problem> {
        check_score(step.score).map_err(|e| unsound(e).at("score"))?;
        if step.t == 0 || step.t > MAX_STEPS as u64 {
            return Err(Problem::new(format_args!(
                "{} is not a step; steps are counted from 1 to {MAX_STEPS}",
                step.t
            ))
            .at("t"));
        }
        let open = self.open(&step);
        if open.label != step.label {
            return Err(Problem::conflict(format_args!(
                "the label of {} is another one in an earlier row; \
                 a sequence has one label, the same at all its steps",
                quoted(step.id)
            ))
            .at("label"));
        }
        open.add(row, step)
    }

    fn open(&mut self, step: &Step<'_>) -> &mut Open {
        let same = self
            .sequences
            .get(self.current)
            .is_some_and(|open| *open.id == *step.id);
        if !same {
            self.current = match self.by_id.entry(xxh3_128(step.id.as_bytes())) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(free) => {
                    self.sequences.push(Open {
                        id: step.id.into(),
                        label: step.label,
                        predictions: Vec::new(),
                        scores: Vec::new(),
                        early: Vec::new(),
                    });
                    *free.insert(self.sequences.len() - 1)
                }
            };
        }
        &mut self.sequences[self.current]
    }

    /// Hands in all sequences, in the order of their first rows, and lets go
    /// of each as soon as it is handed in.
    pub(super) fn finish(self, intake: &mut Intake<'_>) -> Result<(), Problem> {
        for mut open in self.sequences {
            open.settle().map_err(|(row, problem)| match row {
                Some(row) => problem.at(format_args!("{} {row}", self.row_word)),
                None => problem,
            })?;
            intake
                .take(Sequence {
                    id: Some(&open.id),
                    label: open.label,
                    predictions: Some(&open.predictions),
                    scores: Some(&open.scores),
                    probs: None,
                })
                .map_err(|p| p.at(format_args!("id {}", quoted(&open.id))))?;
        }
        Ok(())
    }
}

impl Open {
    fn add(&mut self, row: u64, step: Step<'_>) -> Result<(), Problem> {
        let next = self.scores.len() as u64 + 1;
        if step.t < next {
            return Err(self.twice(step.t));
        }
        if step.t == next {
            self.predictions.push(step.prediction);
            self.scores.push(step.score);
        } else {
            self.early.push(Early {
                t: step.t,
                row,
                prediction: step.prediction,
                score: step.score,
            });
        }
        Ok(())
    }

    /// Puts the steps that came early in their places.
    fn settle(&mut self) -> Result<(), (Option<u64>, Problem)> {
        self.early.sort_by_key(|early| (early.t, early.row));
        for early in std::mem::take(&mut self.early) {
            let next = self.scores.len() as u64 + 1;
            if early.t < next {
                return Err((Some(early.row), self.twice(early.t)));
            }
            if early.t > next {
                return Err((
                    None,
                    Problem::new(format_args!(
                        "step {next} is missing, though there is a step {}; \
                         give every step from 1 to the last",
                        early.t
                    ))
                    .at(format_args!("id {}", quoted(&self.id))),
                ));
            }
            self.predictions.push(early.prediction);
            self.scores.push(early.score);
        }
        Ok(())
    }

    fn twice(&self, t: u64) -> Problem {
        Problem::new(format_args!(
            "step {t} of {} is there twice; keep one of the two",
            quoted(&self.id)
        ))
    }
}
