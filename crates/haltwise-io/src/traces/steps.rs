//! Sequences that come one step per row, in any order.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use haltwise::Sequence;
use haltwise::traces::{About, MAX_STEPS, Numbers, check_score};
use xxhash_rust::xxh3::xxh3_128;

use super::intake::{Intake, unsound};
use crate::memory::Memory;
use crate::problem::{Checked, Problem, quoted};

/// The memory of a step in the lists of its sequence, which double as they grow: a score, a
/// prediction, and the values that few files have.
pub(super) const BYTES_PER_STEP: u64 = 2 * 8;
const BYTES_OF_MORE: u64 = 2 * 12;

/// The memory of a step that came before one that precedes it.
const BYTES_PER_EARLY: u64 = 2 * size_of::<Early>() as u64;

/// The memory of a sequence in addition to its steps.
const BYTES_PER_SEQUENCE: u64 = 2 * (size_of::<Open>() + size_of::<More>() + 48) as u64;

/// What the memory is for, in messages.
const WAITING: &str = "to wait for all rows of each sequence, which may be anywhere in the file,";

/// One row of a file that has a row per step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) id: &'a str,
    /// Counted from 1.
    pub(super) t: u64,
    pub(super) whole: Whole<'a>,
    pub(super) values: Values,
}

/// The data of a row about its whole sequence: the same in all its rows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Whole<'a> {
    pub(super) label: Option<u32>,
    /// The true number of a regression.
    pub(super) number: Option<f32>,
    pub(super) group: Option<&'a str>,
    pub(super) unit: Option<&'a str>,
    pub(super) weight: Option<f64>,
}

/// The data of a row about its step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Values {
    pub(super) score: f32,
    pub(super) prediction: Option<u32>,
    /// The prediction of a regression.
    pub(super) number: Option<f32>,
    pub(super) loss: Option<f32>,
    pub(super) cost: Option<f32>,
}

/// Collects steps into sequences until the file ends: 8 bytes per step, and 4 for each
/// further column of it.
///
/// Rows of different sequences may interleave, so no sequence is known to be complete
/// before the end.
#[derive(Debug)]
pub(super) struct Steps {
    /// The file's word for a row: "row" or "line".
    row_word: &'static str,
    sequences: Vec<Open>,
    by_id: HashMap<u128, usize>,
    /// The sequence of the previous row; most rows have the same as the one before.
    current: usize,
}

#[derive(Debug)]
struct Open {
    id: Box<str>,
    label: Option<u32>,
    /// Steps 1, 2, …, as far as they came in order.
    predictions: Vec<u32>,
    scores: Vec<f32>,
    /// Data that few files have.
    more: Option<Box<More>>,
    /// Steps that came before one that precedes them.
    early: Vec<Early>,
}

#[derive(Debug, Default)]
struct More {
    number: Option<f32>,
    group: Option<Box<str>>,
    unit: Option<Box<str>>,
    weight: Option<f64>,
    numbers: Vec<f32>,
    losses: Vec<f32>,
    costs: Vec<f32>,
}

impl More {
    /// The field in which another row differs.
    fn differs(&self, whole: &Whole<'_>) -> Option<&'static str> {
        // Compared by bits, because NaN is equal to nothing; it is refused at the end.
        if self.number.map(f32::to_bits) != whole.number.map(f32::to_bits) {
            Some("label")
        } else if self.group.as_deref() != whole.group {
            Some("group")
        } else if self.unit.as_deref() != whole.unit {
            Some("unit")
        } else if self.weight.map(f64::to_bits) != whole.weight.map(f64::to_bits) {
            Some("weight")
        } else {
            None
        }
    }
}

#[derive(Debug)]
struct Early {
    t: u64,
    row: u64,
    values: Values,
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
    pub(super) fn add(&mut self, row: u64, step: Step<'_>, memory: &mut Memory) -> Checked {
        check_score(step.values.score).map_err(|e| unsound(e).at("score"))?;
        if step.t == 0 || step.t > MAX_STEPS as u64 {
            return Err(Problem::new(format_args!(
                "{} is not a step; steps are counted from 1 to {MAX_STEPS}",
                step.t
            ))
            .at("t"));
        }
        let open = self.open(&step, memory)?;
        open.check(&step)?;
        open.add(row, step, memory)
    }

    fn open(&mut self, step: &Step<'_>, memory: &mut Memory) -> Checked<&mut Open> {
        let same = self
            .sequences
            .get(self.current)
            .is_some_and(|open| *open.id == *step.id);
        if !same {
            self.current = match self.by_id.entry(xxh3_128(step.id.as_bytes())) {
                Entry::Occupied(found) => *found.get(),
                Entry::Vacant(free) => {
                    memory.take(WAITING, BYTES_PER_SEQUENCE + step.id.len() as u64)?;
                    self.sequences.push(Open::new(step));
                    *free.insert(self.sequences.len() - 1)
                }
            };
        }
        Ok(&mut self.sequences[self.current])
    }

    /// Delivers all sequences, in the order of their first rows, and frees each one at
    /// once.
    pub(super) fn finish(self, intake: &mut Intake<'_>) -> Checked {
        for mut open in self.sequences {
            open.settle().map_err(|(row, problem)| match row {
                Some(row) => problem.at(format_args!("{} {row}", self.row_word)),
                None => problem,
            })?;
            intake
                .take(open.sequence())
                .map_err(|p| p.at(format_args!("id {}", quoted(&open.id))))?;
        }
        Ok(())
    }
}

impl Open {
    fn new(step: &Step<'_>) -> Self {
        let Whole { label, .. } = step.whole;
        let plain = Whole {
            label,
            ..Whole::default()
        };
        let Values { loss, cost, .. } = step.values;
        let more = step.whole != plain || loss.is_some() || cost.is_some();
        Self {
            id: step.id.into(),
            label,
            predictions: Vec::new(),
            scores: Vec::new(),
            more: more.then(|| {
                Box::new(More {
                    number: step.whole.number,
                    group: step.whole.group.map(Into::into),
                    unit: step.whole.unit.map(Into::into),
                    weight: step.whole.weight,
                    ..More::default()
                })
            }),
            early: Vec::new(),
        }
    }

    /// Refuses a row that contradicts the first row of its sequence.
    fn check(&self, step: &Step<'_>) -> Checked {
        let same_label = self.label == step.whole.label;
        let what = match &self.more {
            None if same_label => return Ok(()),
            Some(more) if same_label => match more.differs(&step.whole) {
                Some(what) => what,
                None => return Ok(()),
            },
            _ => "label",
        };
        Err(Problem::conflict(format_args!(
            "the {what} of {} is another one in an earlier row; \
             a sequence has one {what}, the same at all its steps",
            quoted(step.id)
        ))
        .at(what))
    }

    fn add(&mut self, row: u64, step: Step<'_>, memory: &mut Memory) -> Checked {
        let next = self.scores.len() as u64 + 1;
        if step.t < next {
            return Err(self.twice(step.t));
        }
        if step.t == next {
            let more = if self.more.is_some() {
                BYTES_OF_MORE
            } else {
                0
            };
            memory.take(WAITING, BYTES_PER_STEP + more)?;
            self.push(step.values);
        } else {
            memory.take(WAITING, BYTES_PER_EARLY)?;
            self.early.push(Early {
                t: step.t,
                row,
                values: step.values,
            });
        }
        Ok(())
    }

    fn push(&mut self, values: Values) {
        self.scores.push(values.score);
        self.predictions.extend(values.prediction);
        if let Some(more) = &mut self.more {
            more.numbers.extend(values.number);
            more.losses.extend(values.loss);
            more.costs.extend(values.cost);
        }
    }

    /// Moves the steps that came early to their places.
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
            self.push(early.values);
        }
        Ok(())
    }

    /// The complete sequence.
    fn sequence(&self) -> Sequence<'_> {
        fn some<T>(values: &[T]) -> Option<&[T]> {
            (!values.is_empty()).then_some(values)
        }
        let more = self.more.as_deref();
        Sequence {
            id: Some(&self.id),
            label: self.label,
            predictions: some(&self.predictions),
            scores: Some(&self.scores),
            probs: None,
            numbers: more.and_then(|m| {
                Some(Numbers {
                    predictions: &m.numbers,
                    label: m.number?,
                })
            }),
            losses: more.and_then(|m| some(&m.losses)),
            class_names: None,
            about: more.map_or_else(About::default, |m| About {
                group: m.group.as_deref(),
                unit: m.unit.as_deref(),
                weight: m.weight,
                costs: some(&m.costs),
            }),
        }
    }

    fn twice(&self, t: u64) -> Problem {
        Problem::new(format_args!(
            "step {t} of {} is there twice; keep one of the two",
            quoted(&self.id)
        ))
    }
}
