//! The place where every reader delivers its sequences. The checks for all formats are made
//! here, once, by the heart.

use haltwise::Sequence;
use haltwise::traces::{Checker, SequenceError};

use super::Visit;
use super::classes::Classes;
use super::columns::Columns;
use super::ids::{BYTES_PER_ID, Ids};
use crate::memory::Memory;
use crate::problem::{Problem, quoted};

/// How many bytes pass between two reports of progress.
const REPORT_EVERY: u64 = 1 << 20;

/// Takes sequences from readers, checks them and shows them to the visitor.
pub(super) struct Intake<'v> {
    pub(super) classes: Classes,
    /// The columns to read in addition to those that every trace has.
    pub(super) columns: &'v Columns,
    /// The memory of readers.
    pub(super) memory: Memory,
    visit: &'v mut Visit<'v>,
    seen: &'v mut Ids,
    checker: Checker,
    taken_before_file: u64,
    taken: u64,
    progress: Progress<'v>,
}

impl<'v> Intake<'v> {
    pub(super) fn new(
        columns: &'v Columns,
        memory: Memory,
        seen: &'v mut Ids,
        visit: &'v mut Visit<'v>,
        report: &'v mut dyn FnMut(u64, u64),
        total: u64,
    ) -> Self {
        Self {
            classes: Classes::default(),
            columns,
            memory,
            visit,
            seen,
            checker: Checker::new(),
            taken_before_file: 0,
            taken: 0,
            progress: Progress {
                report,
                total,
                before_file: 0,
                file: 0,
                reported: 0,
            },
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

    /// Whether scores are given; `None` before the first sequence.
    pub(super) fn scores_given(&self) -> Option<bool> {
        self.checker.scores_given()
    }

    /// The size of the current file in bytes.
    pub(super) fn file_size(&self) -> u64 {
        self.progress.file
    }

    /// Reports how much of the current file is done, in any unit.
    pub(super) fn done(&mut self, done: u64, of: u64) {
        self.progress.done(done, of);
    }

    /// Takes one sequence. A problem names its step, not its row, which the reader adds.
    pub(super) fn take(&mut self, sequence: Sequence<'_>) -> Result<(), Problem> {
        if let Some(id) = sequence.id {
            self.unseen(id)?;
        }
        if sequence.probs.is_some() && self.classes.are_names() {
            return Err(Problem::conflict(
                "classes have names here, so it is not known which probability is whose; \
                 number the labels and predictions from 0 in the order of `probs`",
            )
            .at("probs"));
        }
        let mut about = sequence.about;
        if let (Some(label), true) = (sequence.label, self.columns.by_label()) {
            // Files may contain names in any order, so the same number may mean another
            // class in another file.
            about.group = about.group.or(self.classes.name_of(label));
        }
        not_empty(
            about.group,
            self.columns.group.as_deref().unwrap_or("group"),
        )?;
        not_empty(about.unit, self.columns.unit.as_deref().unwrap_or("unit"))?;
        let last = sequence.predictions.and_then(|steps| steps.last());
        let names = [sequence.label.as_ref(), last].map(|class| self.classes.name_of(*class?));
        let class_names = match names {
            [Some(label), Some(predicted)] => Some([label, predicted]),
            _ => None,
        };
        let sequence = Sequence {
            about,
            class_names,
            ..sequence
        };
        let trace = self.checker.check(sequence).map_err(unsound)?;
        self.taken += 1;
        (self.visit)(&trace).map_err(Problem::new)
    }

    fn unseen(&mut self, id: &str) -> Result<(), Problem> {
        if self.seen.insert(id) {
            return self
                .memory
                .take("to know that no id comes twice", BYTES_PER_ID);
        }
        Err(Problem::new(format_args!(
            "the id {} was met before; a sequence may count only once, \
             so drop the repeat or give it an id of its own",
            quoted(id)
        )))
    }
}

/// Refuses an empty text in a column.
fn not_empty(text: Option<&str>, column: &str) -> Result<(), Problem> {
    match text {
        Some("") => Err(Problem::new(EMPTY).at(column)),
        _ => Ok(()),
    }
}

/// The message for an empty value.
pub(super) const EMPTY: &str = "it is empty; fill it in, or drop the sequence";

/// The problem of a sequence, and its place in it.
pub(super) fn unsound(error: SequenceError) -> Problem {
    let what = error.problem();
    let problem = if error.is_conflict() {
        Problem::conflict(what)
    } else if error.is_lack() {
        Problem::format(what)
    } else {
        Problem::new(what)
    };
    match error.place() {
        Some(place) => problem.at(place),
        None => problem,
    }
}

/// Reports the progress of reading, in bytes of all files.
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
