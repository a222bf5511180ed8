//! Reads traces on all cores, for consumers that need no order: each thread shows its
//! sequences to a state of its own.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};

use haltwise::traces::{SequenceError, Trace};

use super::columns::Columns;
use super::ids::Ids;
use super::intake::Intake;
use super::parquet::Opened;
use super::{Format, visit_places};
use crate::error::{Error, Result};
use crate::memory::{MEMORY, Memory};
use crate::problem::{Checked, Problem};

/// The place of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which of the files it is in, counted from 0.
    pub file: usize,
    /// Its position among the sequences of all files, counted from 0.
    pub position: u64,
}

/// Shows every sequence of the files to a visitor, and returns the final states of the
/// threads. It uses all cores if the files allow it (Parquet with a row per sequence and
/// numbered classes).
///
/// Each thread starts a state and visits sequences with it: row groups of a file, each in
/// its order, but the row groups of a thread may lie anywhere. So the result of combining
/// all states must not depend on which thread saw which sequence. The files are one set, as
/// for [`visit_traces`](super::visit_traces). Changes to the files during reading are not
/// detected here (see [`Snapshot`](super::Snapshot)). Reading takes no more than
/// [`MEMORY`], which the threads share.
///
/// ```no_run
/// use haltwise_io::{Columns, fold_traces};
///
/// let (files, none) = (["monday.parquet".into()], Columns::default());
/// let longest = fold_traces(&files, &none, &mut |_, _| {}, || 0, |longest, _place, row| {
///     *longest = row.len().max(*longest);
///     Ok(())
/// })?;
/// println!("the longest has {:?} steps", longest.iter().max());
/// # Ok::<(), haltwise_io::Error>(())
/// ```
pub fn fold_traces<S: Send>(
    files: &[PathBuf],
    columns: &Columns,
    progress: &mut dyn FnMut(u64, u64),
    start: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, Place, &Trace<'_>) -> std::result::Result<(), String> + Sync,
) -> Result<Vec<S>> {
    fold_within(MEMORY, files, columns, progress, start, visit)
}

/// Does the same within this much memory.
pub(crate) fn fold_within<S: Send>(
    memory: u64,
    files: &[PathBuf],
    columns: &Columns,
    progress: &mut dyn FnMut(u64, u64),
    start: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, Place, &Trace<'_>) -> std::result::Result<(), String> + Sync,
) -> Result<Vec<S>> {
    super::refuse_twice(files)?;
    let Some(pieces) = pieces(files, columns)? else {
        let mut state = start();
        visit_in_order(files, columns, memory, progress, |place, row| {
            visit(&mut state, place, row)
        })?;
        return Ok(vec![state]);
    };
    let total = pieces.iter().map(|piece| piece.bytes).sum();
    let threads = rayon::current_num_threads().clamp(1, pieces.len());
    let reading = Reading {
        files,
        columns,
        memory: Memory::new(memory).share(threads),
        pieces: &pieces,
        next: AtomicUsize::new(0),
        scores_given: Mutex::new(None),
        failed: Mutex::new(None),
    };
    let (states, ids): (Vec<S>, Vec<Ids>) = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                let (sender, reading, start, visit) = (sender.clone(), &reading, &start, &visit);
                scope.spawn(move || {
                    let (mut state, mut ids) = (start(), Ids::later());
                    let mut visit = |place, row: &Trace<'_>| visit(&mut state, place, row);
                    reading.work(&mut ids, &sender, &mut visit);
                    (state, ids)
                })
            })
            .collect();
        drop(sender);
        let mut done = 0;
        for bytes in receiver {
            done += bytes;
            progress(done, total);
        }
        workers
            .into_iter()
            .map(|worker| {
                worker
                    .join()
                    .unwrap_or_else(|e| std::panic::resume_unwind(e))
            })
            .collect()
    });
    let failed = reading.failed.into_inner();
    if let Some((_, error)) = failed.unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    if Ids::any_twice(ids) {
        // Read once more in order, to confirm the error and its place.
        visit_in_order(files, columns, memory, progress, |_, _| Ok(()))?;
    }
    Ok(states)
}

/// A function of each sequence and its place.
type VisitAt<'a> = dyn FnMut(Place, &Trace<'_>) -> std::result::Result<(), String> + 'a;

/// Shows the sequences in their order, file after file.
fn visit_in_order(
    files: &[PathBuf],
    columns: &Columns,
    memory: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut visit: impl FnMut(Place, &Trace<'_>) -> std::result::Result<(), String>,
) -> Result<()> {
    let mut position = 0;
    visit_places(files, columns, memory, progress, &mut |file, row| {
        let place = Place { file, position };
        position += 1;
        visit(place, row)
    })
    .map(|_class_names| ())
}

/// A part of a file that one thread reads.
struct Piece {
    file: usize,
    opened: Opened,
    group: usize,
    /// The position of its first sequence in all files.
    position: u64,
    bytes: u64,
}

/// The row groups of all files; `None` if some file must be read in order.
fn pieces(files: &[PathBuf], columns: &Columns) -> Result<Option<Vec<Piece>>> {
    let mut pieces = Vec::new();
    let mut position = 0;
    for (file, path) in files.iter().enumerate() {
        if Format::of(path)? != Format::Parquet {
            return Ok(None);
        }
        let in_file = |p: Problem| p.in_file(path);
        let opened = Opened::open(path)?;
        if !opened.groups_stand_alone(columns).map_err(in_file)? {
            return Ok(None);
        }
        if opened.rows() == 0 {
            return Err(in_file(Problem::new("there is no sequence in it")));
        }
        for group in 0..opened.groups() {
            pieces.push(Piece {
                file,
                opened: opened.clone(),
                group,
                position,
                bytes: opened.bytes_of(group),
            });
            position += opened.rows_of(group);
        }
    }
    Ok((!pieces.is_empty()).then_some(pieces))
}

/// The data that the threads share.
struct Reading<'a> {
    files: &'a [PathBuf],
    columns: &'a Columns,
    /// The memory of each thread.
    memory: Memory,
    pieces: &'a [Piece],
    /// The next piece that no thread has started.
    next: AtomicUsize,
    scores_given: Mutex<Option<bool>>,
    /// The first piece that failed, and its error. All earlier pieces were started before
    /// it and are read to their end, so the error is the same whichever thread was faster.
    failed: Mutex<Option<(usize, Error)>>,
}

impl Reading<'_> {
    /// Reads pieces until there are none left, or one has failed.
    fn work(&self, ids: &mut Ids, done: &Sender<u64>, visit: &mut VisitAt<'_>) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(piece) = self.pieces.get(number) else {
                return;
            };
            let Err(problem) = self.read(piece, ids, done, visit) else {
                continue;
            };
            self.next.store(self.pieces.len(), Ordering::Relaxed);
            let error = problem.in_file(&self.files[piece.file]);
            let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
            if failed.as_ref().is_none_or(|&(first, _)| number < first) {
                *failed = Some((number, error));
            }
            return;
        }
    }

    fn read(
        &self,
        piece: &Piece,
        ids: &mut Ids,
        done: &Sender<u64>,
        visit: &mut VisitAt<'_>,
    ) -> Checked {
        let mut position = piece.position;
        let mut visit = |row: &Trace<'_>| {
            let place = Place {
                file: piece.file,
                position,
            };
            position += 1;
            visit(place, row)
        };
        let mut reported = 0;
        let mut report = |now: u64, _| {
            // The receiver may be gone; then nobody needs the report.
            let _ = done.send(now - reported);
            reported = now;
        };
        let mut intake = Intake::new(
            self.columns,
            self.memory,
            ids,
            &mut visit,
            &mut report,
            piece.bytes,
        );
        intake.start_file(piece.bytes);
        let file = File::open(&self.files[piece.file]).map_err(Problem::unreadable)?;
        piece.opened.read(file, vec![piece.group], &mut intake)?;
        intake.end_file()?;
        self.one_source(intake.scores_given())
    }

    /// Within a piece, the intake ensures that scores are of one kind.
    fn one_source(&self, given: Option<bool>) -> Checked {
        let known = self.scores_given.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        match (*known, given) {
            (Some(before), Some(now)) if before != now => {
                Err(super::intake::unsound(SequenceError::mixed_sources()))
            }
            (before, now) => {
                *known = before.or(now);
                Ok(())
            }
        }
    }
}
