//! Trace files: reads and writes the outputs of a classifier.
//!
//! Every reader passes its sequences, one at a time, to one [`Intake`], which has them
//! checked and passes them on as a [`Trace`]. Only the current row is in memory, so a file
//! may be larger than memory. The exception is the layout of one row per step, where a
//! sequence is only known to be complete at the end of the file.

#[cfg(feature = "columnar")]
mod arrays;
#[cfg(feature = "columnar")]
mod arrow;
#[cfg(feature = "columnar")]
mod batch;
#[cfg(feature = "columnar")]
mod batches;
mod classes;
mod columns;
mod csv;
#[cfg(feature = "columnar")]
mod extent;
mod files;
#[cfg(feature = "columnar")]
mod fold;
mod format;
mod gather;
mod ids;
mod intake;
mod jsonl;
mod metadata;
mod npz;
#[cfg(feature = "columnar")]
mod parquet;
mod steps;
mod text;
mod writer;

use std::cell::Cell;
use std::collections::HashSet;
use std::fs;
use std::io::Cursor;
use std::path::Path;

#[cfg(feature = "columnar")]
use ::parquet::file::reader::ChunkReader;
use haltwise::Outputs;
use haltwise::traces::{Key, Trace, Traces, TracesBuilder};

use crate::error::{Error, ErrorKind, Result};
use crate::memory::{MEMORY, Memory};
use crate::problem::Problem;
pub use columns::Columns;
#[cfg(feature = "columnar")]
pub use extent::Extent;
pub use files::{Snapshot, trace_files};
#[cfg(feature = "columnar")]
pub(crate) use fold::fold_within;
#[cfg(feature = "columnar")]
pub use fold::{Place, fold_traces};
pub use format::Format;
use format::{read_file, read_format};
pub use gather::{Take, fold_given, visit_given};
use ids::Ids;
use intake::Intake;
pub use metadata::{CLASSIFIER, metadata_of_bytes, read_metadata};
pub use writer::{Layout, TraceWriter, WriteOptions};

/// The message of a build without them.
#[cfg(not(feature = "columnar"))]
const NO_COLUMNS: &str = "this build knows neither Parquet nor Arrow";

/// Any type, because no reader needs chunks.
#[cfg(not(feature = "columnar"))]
trait ChunkReader {}

#[cfg(not(feature = "columnar"))]
impl<T> ChunkReader for T {}

/// What a visitor does with a sequence. Its error becomes an error that names the place in
/// the file.
pub type Visit<'a> = dyn FnMut(&Trace<'_>) -> std::result::Result<(), String> + 'a;

/// Reads files into one set of traces, in the order given.
///
/// `progress` is called from time to time with how many bytes of how many are done.
///
/// ```no_run
/// let traces = haltwise_io::read_traces(&["monday.npz", "tuesday.npz"], &mut |_, _| {})?;
/// println!("{} sequences, the longest has {} steps", traces.len(), traces.t_max());
/// # Ok::<(), haltwise_io::Error>(())
/// ```
pub fn read_traces<P: AsRef<Path>>(
    paths: &[P],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Traces> {
    read_traces_seeing(paths, &Columns::default(), MEMORY, progress, &mut |_| {})
}

/// Does the same within this much memory. Also shows each sequence as it came to `see`,
/// with the values of these columns.
pub fn read_traces_seeing<P: AsRef<Path>>(
    paths: &[P],
    columns: &Columns,
    memory: u64,
    progress: &mut dyn FnMut(u64, u64),
    see: &mut dyn FnMut(&Trace<'_>),
) -> Result<Traces> {
    let mut builder = None;
    let mut kept = Memory::new(memory / 2);
    visit_places(paths, columns, memory / 2, progress, &mut |_, row| {
        see(row);
        keep(&mut kept, row, 2)?;
        add(&mut builder, row)
    })?;
    Ok(builder.unwrap_or_default().finish())
}

/// Reserves the memory for a sequence, at a number of values for each of its steps.
fn keep(memory: &mut Memory, trace: &Trace<'_>, numbers: usize) -> std::result::Result<(), String> {
    // Sequences of unequal length are padded, to twice their size at most.
    let bytes = 64 + 8 * numbers as u64 * trace.len() as u64;
    let taken = memory.take("to keep the traces", bytes);
    taken.map_err(|problem| problem.to_string())
}

fn add(builder: &mut Option<TracesBuilder>, trace: &Trace<'_>) -> std::result::Result<(), String> {
    let builder = builder.get_or_insert_with(|| Traces::builder().source(trace.source()));
    let key = Key::new(trace.id(), builder.len() as u64);
    builder.add(key, trace).map_err(|e| e.to_string())?;
    Ok(())
}

/// Reads everything in the files, including class probabilities, so that a score can be
/// chosen or learned. Refuses files that need more than half of [`MEMORY`] for that.
pub fn read_outputs<P: AsRef<Path>>(
    paths: &[P],
    columns: &Columns,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Outputs> {
    let mut outputs = Outputs::new();
    let mut kept = Memory::new(MEMORY / 2);
    visit_places(paths, columns, MEMORY / 2, progress, &mut |_, trace| {
        keep(&mut kept, trace, 2 + trace.classes())?;
        let key = Key::new(trace.id(), outputs.len() as u64);
        outputs.add(key, trace).map_err(|e| e.to_string())
    })?;
    Ok(outputs)
}

/// Shows every sequence of the files to a visitor, in the order given.
///
/// The files are one set: an id may occur once in all of them, class names mean the same in
/// each, and either all scores are given or none is. Each must have the `columns`; others
/// are ignored. Rows may have been visited when an error is found: discard the results.
///
/// Reading takes no more than [`MEMORY`]; the memory of the visitor is not counted.
///
/// Returns the names of the classes in the order of their numbers; none if classes are
/// numbers in the files.
pub fn visit_traces<P: AsRef<Path>>(
    paths: &[P],
    columns: &Columns,
    progress: &mut dyn FnMut(u64, u64),
    visit: &mut Visit<'_>,
) -> Result<Vec<String>> {
    visit_places(paths, columns, MEMORY, progress, &mut |_, row| visit(row))
}

/// Does the same within this much memory, with the number of the file, counted from 0.
fn visit_places<P: AsRef<Path>>(
    paths: &[P],
    columns: &Columns,
    memory: u64,
    progress: &mut dyn FnMut(u64, u64),
    visit: &mut dyn FnMut(usize, &Trace<'_>) -> std::result::Result<(), String>,
) -> Result<Vec<String>> {
    refuse_twice(paths)?;
    let sizes = paths
        .iter()
        .map(|path| size(path.as_ref()))
        .collect::<Result<Vec<_>>>()?;
    let total = sizes.iter().sum();
    let (mut ids, number) = (Ids::now(), Cell::new(0));
    let mut visit = |row: &Trace<'_>| visit(number.get(), row);
    let mut intake = Intake::new(
        columns,
        Memory::new(memory),
        &mut ids,
        &mut visit,
        progress,
        total,
    );
    for (i, (path, size)) in std::iter::zip(paths, sizes).enumerate() {
        let path = path.as_ref();
        let (format, file) = Format::open(path)?;
        number.set(i);
        intake.start_file(size);
        read_file(path, format, file, &mut intake)
            .and_then(|()| intake.end_file())
            .map_err(|problem| problem.in_file(path))?;
    }
    Ok(intake.classes.into_names())
}

/// Refuses a file that is named twice: its sequences would count twice, and a
/// guarantee that rests on the counts would be void.
fn refuse_twice<P: AsRef<Path>>(paths: &[P]) -> Result<()> {
    let mut seen = HashSet::new();
    for path in paths {
        let path = path.as_ref();
        let place = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if !seen.insert(place) {
            let twice = Error::new(path, "it is named twice; name every file once");
            return Err(twice.of_kind(ErrorKind::Conflict));
        }
    }
    Ok(())
}

/// Shows every sequence of a file in memory to a visitor, and returns the names of its
/// classes. Messages call the file `name`.
pub fn visit_bytes(
    name: &str,
    format: Format,
    bytes: &[u8],
    columns: &Columns,
    visit: &mut Visit<'_>,
) -> Result<Vec<String>> {
    let mut ignore = |_, _| {};
    let mut ids = Ids::now();
    let (memory, size) = (Memory::new(MEMORY), bytes.len() as u64);
    let mut intake = Intake::new(columns, memory, &mut ids, visit, &mut ignore, size);
    intake.start_file(size);
    let open = || Ok(Cursor::new(bytes));
    let shared = || Ok(bytes::Bytes::copy_from_slice(bytes));
    format
        .refuse_another(bytes)
        .and_then(|()| read_format(format, &open, shared, &mut intake))
        .and_then(|()| intake.end_file())
        .map_err(|problem| problem.in_file(Path::new(name)))?;
    Ok(intake.classes.into_names())
}

/// The size of a file that can be read.
fn size(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).map_err(|e| Problem::unreadable(e).in_file(path))?;
    if found.is_dir() {
        let folder = Error::new(path, "it is a folder; name the files in it");
        return Err(folder.of_kind(ErrorKind::Io));
    }
    Ok(found.len())
}
