//! Trace files as a source of sequences. They are read as often as needed. Sequences are
//! kept if they fit into memory, and otherwise counted and not kept.

use std::cell::{Cell, RefCell};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haltwise::corridor::{CalibrateError, Counting, EvidenceError, Fold, Room};
use haltwise::evaluate::{Evaluated, Stretches};
use haltwise::plan::Grid;
use haltwise::traces::{Key, SetSummary, Trace};
use haltwise::{Proposal, Rule};

use crate::error::{Error, Result};
use crate::evidence_file::{EvidencePart, Input};
use crate::traces::{Columns, Extent, Place, Snapshot, fold_within};

/// Called from time to time with how many bytes of how many are done.
type Progress<'p> = &'p mut dyn FnMut(u64, u64);

/// Trace files, read as one set. They are refused if they change while they are used.
pub struct Files<'p> {
    snapshot: Snapshot,
    columns: Columns,
    memory: u64,
    /// How much of the sequences may be kept, once that is known.
    keeping: Cell<Option<Keeping>>,
    /// The estimated content, once that is known.
    extent: Cell<Option<Extent>>,
    progress: RefCell<Progress<'p>>,
}

/// The number of steps whose sequences fit into memory.
#[derive(Debug, Clone, Copy)]
struct Keeping {
    bytes: u64,
    /// The limit, counted as by [`weight`].
    most: u64,
    /// Whether all sequences fit.
    all: bool,
}

/// The size of sequences in memory, in steps. Besides its steps, a sequence takes at most as much
/// memory as six steps.
fn weight(extent: Extent) -> u64 {
    extent.steps.saturating_add(6 * extent.sequences)
}

/// How many sequences or steps a thread reads before it reports them.
const TELL_EVERY: u64 = 256;
const TELL_STEPS: u64 = 1 << 20;

/// The state of a thread, and how many sequences it has not reported yet.
struct Counted<S> {
    state: S,
    sequences: u64,
    steps: u64,
}

impl std::fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files")
            .field("snapshot", &self.snapshot)
            .field("columns", &self.columns)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}

/// Buffers and tables take this much memory for any input.
pub const LEAST_MEMORY: u64 = 256 << 20;

/// How much there is, and how much memory keeping it would take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needed {
    /// The approximate number of sequences and steps.
    pub extent: Extent,
    /// The bytes that keeping all of it would take.
    pub bytes: u64,
    /// How much may be kept.
    pub room: Room,
}

impl<'p> Files<'p> {
    /// The files that these paths stand for (see [`trace_files`](crate::trace_files)). At
    /// most as many sequences are kept as fit into this many bytes.
    pub fn new<P: AsRef<Path>>(paths: &[P], memory: u64, progress: Progress<'p>) -> Result<Self> {
        Ok(Self {
            snapshot: Snapshot::new(paths)?,
            columns: Columns::default(),
            memory,
            keeping: Cell::new(None),
            extent: Cell::new(None),
            progress: RefCell::new(progress),
        })
    }

    /// Also reads these columns.
    pub fn with(mut self, columns: Columns) -> Self {
        self.columns = columns;
        self
    }

    /// The files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.snapshot.files()
    }

    /// Estimates what keeping the traces would take.
    pub fn needed(&self, grid: &Grid) -> Result<Needed> {
        let extent = match self.extent.get() {
            Some(extent) => extent,
            None => Extent::of(&self.files())?,
        };
        self.extent.set(Some(extent));
        let bits = bits_per_step(grid);
        let kept = bytes_to_keep(extent, bits);
        let fixed = LEAST_MEMORY + extent.reading;
        let bytes = fixed + kept;
        let room = match self.memory.checked_sub(fixed) {
            _ if bytes <= self.memory => Room::All,
            None | Some(0) => {
                let problem = format!(
                    "to know that no id comes twice takes {} bytes, more than the memory to stay \
                     within; allow more, or cut the traces into parts (see haltwise evidence)",
                    fixed
                );
                return Err(Error::new(self.first(), problem));
            }
            Some(left) => Room::Share(left as f64 / kept as f64),
        };
        let left = self.memory.saturating_sub(fixed);
        let (share, keeping) = match room {
            // Half of the remaining memory, or more; the rest may be used to read.
            Room::All => (1.0, kept.max(left / 2)),
            Room::Share(share) => (share, left),
        };
        // Sequences of unequal length are padded, to twice their size at most.
        let fitting = (keeping as f64 / share * 8.0 / (2 * bits) as f64) as u64;
        self.keeping.set(Some(Keeping {
            bytes: keeping,
            most: fitting.max(weight(extent)),
            all: room == Room::All,
        }));
        Ok(Needed {
            extent,
            bytes,
            room,
        })
    }

    fn first(&self) -> PathBuf {
        self.files().into_iter().next().unwrap_or_default()
    }

    /// Shows every sequence to the state of the thread that read it.
    fn visit<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Place, &Trace<'_>) -> std::result::Result<(), String> + Sync,
    ) -> Result<Vec<S>> {
        let mut progress = self.progress.borrow_mut();
        let kept = self.keeping.get().map_or(0, |keeping| keeping.bytes);
        let states = fold_within(
            self.memory.saturating_sub(kept),
            &self.files(),
            &self.columns,
            &mut **progress,
            start,
            visit,
        )?;
        self.snapshot.check_unchanged()?;
        Ok(states)
    }

    /// Gathers the evidence of the files for a proposal that was made elsewhere, as a part
    /// of a sum.
    pub fn evidence(&self, proposal: &Proposal) -> Result<EvidencePart> {
        let refuse = |e: EvidenceError| Error::new(self.first(), e);
        let shared = Arc::new(proposal.clone());
        let files = self.files();
        let start = || {
            let inputs = vec![SetSummary::default(); files.len()];
            (inputs, Counting::new(Arc::clone(&shared)))
        };
        let states = self.visit(start, |(inputs, counting), place, trace| {
            let counting = counting.as_mut().map_err(|e| e.to_string())?;
            let print = counting
                .visit(key(place, trace), trace)
                .map_err(|e| e.to_string())?;
            inputs[place.file] += print.map(SetSummary::one).unwrap_or_default();
            Ok(())
        })?;
        let mut sums = vec![SetSummary::default(); files.len()];
        let mut counted = Vec::new();
        for (inputs, counting) in states {
            for (sum, input) in std::iter::zip(&mut sums, inputs) {
                *sum += input;
            }
            counted.push(counting);
        }
        let evidence = Counting::sum(counted).map_err(refuse)?;
        let input = |(path, set): (&PathBuf, SetSummary)| Input {
            file: path.display().to_string(),
            sequences: set.sequences,
            fingerprint: set.fingerprint,
        };
        let inputs = std::iter::zip(&files, sums).map(input).collect();
        EvidencePart::new(proposal.clone(), inputs, evidence)
            .map_err(|e| Error::new(self.first(), e))
    }

    /// Evaluates a rule on the sequences, and keeps none of them.
    pub fn evaluate(&self, rule: &Rule) -> Result<Evaluated> {
        let states = self.visit(
            || Stretches::new(rule),
            |seen, place, trace| seen.push(place.position, trace).map_err(|e| e.to_string()),
        )?;
        Stretches::finish(rule, states).map_err(|e| Error::new(self.first(), e))
    }
}

/// The key that a sequence is split by.
fn key(place: Place, trace: &Trace<'_>) -> Key {
    Key::new(trace.id(), place.position)
}

impl Fold for Files<'_> {
    type Error = Error;

    fn refuse(&self, error: CalibrateError) -> Error {
        Error::new(self.first(), error)
    }

    fn room(&self, grid: &Grid) -> Result<Room> {
        Ok(self.needed(grid)?.room)
    }

    /// Parsing costs more than memory: what is reserved for what is kept may hold them, unless
    /// predictions and scores alone would not fit.
    fn may_hold(&self) -> u64 {
        let room = self.keeping.get().filter(|keeping| keeping.all);
        let (room, extent) = (room.map_or(0, |keeping| keeping.bytes), self.extent.get());
        let least = extent.map_or(0, |extent| 16 * (extent.steps + 16 * extent.sequences));
        if least <= room { room } else { 0 }
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> std::result::Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>> {
        let Some(keeping) = self.keeping.get() else {
            return self.visit(start, |state, place, trace| {
                visit(state, key(place, trace), trace).map_err(|e| e.to_string())
            });
        };
        // The amount was estimated from the size of the files, which may be packed.
        let (sequences, steps) = (AtomicU64::new(0), AtomicU64::new(0));
        let tell = |counted: &mut Counted<S>| {
            let add = |sum: &AtomicU64, more: &mut u64| {
                let more = mem::take(more);
                sum.fetch_add(more, Ordering::Relaxed) + more
            };
            let extent = Extent {
                sequences: add(&sequences, &mut counted.sequences),
                steps: add(&steps, &mut counted.steps),
                reading: 0,
            };
            weight(extent) <= keeping.most
        };
        let start = || Counted {
            state: start(),
            sequences: 0,
            steps: 0,
        };
        let states = self.visit(start, |counted, place, trace| {
            counted.sequences += 1;
            counted.steps += trace.len() as u64;
            let is_due = counted.sequences == TELL_EVERY || counted.steps > TELL_STEPS;
            if is_due && !tell(counted) {
                return Err(PACKED.into());
            }
            visit(&mut counted.state, key(place, trace), trace).map_err(|e| e.to_string())
        })?;
        Ok(states.into_iter().map(|counted| counted.state).collect())
    }
}

/// The message for files that unpack to much more than their size.
const PACKED: &str = "the traces up to here already take more memory than may be used; the file \
    is packed, so this was not known before: allow more memory, or write it as Parquet";

/// The bits needed to keep a step: a byte per score if the grid allows it, and a bit per
/// prediction.
fn bits_per_step(grid: &Grid) -> u64 {
    match grid.thresholds().len() {
        ..=255 => 8 + 1,
        _ => 32 + 1,
    }
}

/// The bytes needed to keep traces.
fn bytes_to_keep(extent: Extent, bits_per_step: u64) -> u64 {
    // Sequences of unequal length are padded, to twice their size at most. If all are
    // equally long, this divides.
    let filled = match extent.steps % extent.sequences.max(1) {
        0 => extent.steps,
        _ => 2 * extent.steps,
    };
    // A length and a key per sequence.
    filled.saturating_mul(bits_per_step) / 8 + 12 * extent.sequences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_billion_steps_take_little_more_than_a_byte_each() {
        let extent = Extent {
            sequences: 10_000_000,
            steps: 1_000_000_000,
            reading: 0,
        };
        let gibibytes =
            |grid: &Grid| bytes_to_keep(extent, bits_per_step(grid)) as f64 / f64::from(1 << 30);
        assert!((1.1..1.3).contains(&gibibytes(&Grid::default())));
        assert!(gibibytes(&Grid::new(0.001).unwrap()) > 3.0);
    }
}
