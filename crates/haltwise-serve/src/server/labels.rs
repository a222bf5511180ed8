//! Labels of audited streams.

use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::body::BodyPieces;
use super::find_rule;
use super::problem::{Problem, fault_problem, store_problem};
use crate::error::Error;
use crate::fault::Fault;
use crate::lines::Lines;
use crate::served_rule::ServedRule;
use crate::served_rules::ServedRules;

/// How many refused labels an answer describes; the others it counts.
const MOST_REFUSED: usize = 100;

/// What came of labels.
#[derive(Default)]
struct LabelResults {
    taken: u64,
    /// How many records must be on the disk before this is told.
    after: u64,
    refused: u64,
    /// The first of those that were refused, with their lines.
    faults: Vec<(u64, Fault)>,
}

impl LabelResults {
    fn take(
        &mut self,
        served: &ServedRule,
        lines: &[Result<&[u8], Fault>],
        first: u64,
    ) -> Result<(), Error> {
        for (number, line) in (first..).zip(lines) {
            let labelled = match line {
                Ok([]) => continue,
                Ok(line) => {
                    let (labelled, answers) = served.label(line)?;
                    self.after = self.after.max(answers.after);
                    labelled
                }
                Err(fault) => Err(fault.clone()),
            };
            match labelled {
                Ok(()) => self.taken += 1,
                Err(fault) => {
                    self.refused += 1;
                    if self.faults.len() < MOST_REFUSED {
                        self.faults.push((number, fault));
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&self) -> Result<Response, Problem> {
        if let ([(_, only)], 0) = (&self.faults[..], self.taken) {
            return Err(fault_problem(only));
        }
        let faults = self.faults.iter();
        let said: Vec<Value> = faults
            .filter_map(|(number, fault)| serde_json::from_str(&fault.json(Some(*number))).ok())
            .collect();
        let untold = self.refused - self.faults.len() as u64;
        Ok(
            Json(json!({"labels": self.taken, "refused": said, "more_refused": untold}))
                .into_response(),
        )
    }
}

/// Labels are taken as they come: no body is ever in memory as a whole.
pub(super) async fn labels(
    State(rules): State<ServedRules>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let served = find_rule(&rules, &name)?;
    let mut labelled = LabelResults::default();
    let mut pieces = BodyPieces::of(request, &rules.unfinished);
    let mut lines = Lines::new(rules.max_line);
    while let Some(piece) = pieces.next().await? {
        let taken = lines.push(&piece, |l, n| labelled.take(&served, l, n));
        pieces.wait_for_line(&lines, taken.is_some())?;
        taken.transpose().map_err(|e| store_problem(&e))?;
    }
    let taken = lines.finish(|l, n| labelled.take(&served, l, n));
    taken.transpose().map_err(|e| store_problem(&e))?;
    served
        .durable(labelled.after)
        .await
        .map_err(|e| store_problem(&e))?;
    labelled.answer()
}
