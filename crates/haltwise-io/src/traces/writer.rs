//! Writes traces, one sequence at a time.

use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use haltwise::Sequence;
use haltwise::traces::{Checker, Trace};

#[cfg(feature = "columnar")]
use super::batch::ColumnarWriter;
use super::npz::NpzWriter;
use super::{Columns, Format, csv, jsonl};
use crate::error::{Cause, Error, Result};
use crate::write::{WholeFile, cannot_write, failed, folder_of};

/// The meaning of a row of a Parquet or Arrow file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// A row is a sequence; predictions, scores and probabilities are lists.
    #[default]
    PerSequence,
    /// A row is a step. Probabilities cannot be stored.
    PerStep,
}

/// Options for writing traces.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// The layout, for Parquet and Arrow. CSV always has a row per step; the others always
    /// have a row per sequence.
    pub layout: Layout,
    /// Metadata to store with the traces: in Parquet's and Arrow's metadata, and in NPZ as a
    /// JSON object in the string `metadata`. JSONL and CSV cannot hold them.
    pub metadata: Vec<(String, String)>,
    /// The columns for groups, units, weights and costs; those without a name here are not
    /// written.
    pub columns: Columns,
}

/// Writes traces to a file, one sequence at a time, in the format of the file's extension.
///
/// The file appears under its name when [`finish`](Self::finish) succeeds. Until then, an
/// existing file of that name is untouched.
///
/// ```
/// use haltwise::Sequence;
/// use haltwise_io::{TraceWriter, WriteOptions};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("traces.parquet");
/// let mut writer = TraceWriter::create(&path, WriteOptions::default())?;
/// writer.write(Sequence {
///     id: Some("a"),
///     label: Some(1),
///     predictions: Some(&[0, 1, 1]),
///     scores: Some(&[0.2, 0.6, 0.9]),
///     ..Sequence::default()
/// })?;
/// writer.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    options: WriteOptions,
    format: Format,
    checker: Checker,
    first: Option<Shape>,
    state: State,
}

/// The fields of the first sequence; all sequences must have them, and they are written for
/// each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) id: bool,
    /// How many classes `probs` has, if it is there.
    pub(super) classes: Option<usize>,
    scores_given: bool,
    /// Whether there are predictions of classes.
    pub(super) predicts: bool,
    /// Whether predictions and labels are numbers.
    pub(super) numbers: bool,
    pub(super) losses: bool,
    pub(super) group: bool,
    pub(super) unit: bool,
    pub(super) weight: bool,
    pub(super) costs: bool,
}

/// A value with a column of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    Group,
    Unit,
    Weight,
    Costs,
}

#[derive(Debug)]
enum State {
    Empty(WholeFile),
    Writing(Encoder<BufWriter<WholeFile>>),
    Failed,
}

impl TraceWriter {
    /// Starts a file.
    pub fn create(path: impl AsRef<Path>, options: WriteOptions) -> Result<Self> {
        let path = path.as_ref();
        let format = Format::of(path)?;
        if path
            .extension()
            .is_some_and(|e| e.eq_ignore_ascii_case("gz"))
        {
            return Err(cannot_write(
                path,
                "it would be packed; leave .gz away and pack it after",
            ));
        }
        let names = options.columns.check_writable();
        names.map_err(|e| cannot_write(path, e))?;
        Ok(Self {
            path: path.to_path_buf(),
            options,
            format,
            checker: Checker::new(),
            first: None,
            state: State::Empty(WholeFile::create(path)?),
        })
    }

    /// Adds one sequence. After an error nothing more can be written.
    pub fn write(&mut self, sequence: Sequence<'_>) -> Result<()> {
        let row = self.checker.check(sequence);
        let row = &row.map_err(|e| cannot_write(&self.path, e))?;
        let shape = Shape::of(row, &self.options.columns);
        if *self.first.get_or_insert(shape) != shape {
            return Err(cannot_write(
                &self.path,
                "some sequences have ids, scores, probabilities, losses or columns that others lack",
            ));
        }
        let mut encoder = match std::mem::replace(&mut self.state, State::Failed) {
            State::Writing(encoder) => encoder,
            State::Failed => return Err(failed_before(&self.path)),
            State::Empty(file) => {
                let out = BufWriter::with_capacity(1 << 20, file);
                let folder = folder_of(&self.path);
                Encoder::new(out, self.format, folder, shape, &self.options)
                    .map_err(|e| failed(&self.path, e))?
            }
        };
        let written = encoder.write(row, shape, &self.options.columns);
        written.map_err(|e| failed(&self.path, e))?;
        self.state = State::Writing(encoder);
        Ok(())
    }

    /// Completes the file and puts it in its place.
    pub fn finish(self) -> Result<()> {
        match self.state {
            State::Empty(_) => Err(cannot_write(&self.path, "there is no sequence to write")),
            State::Failed => Err(failed_before(&self.path)),
            State::Writing(encoder) => encoder
                .finish()
                .map_err(|e| failed(&self.path, e))?
                .into_inner()
                .map_err(|e| failed(&self.path, e.into_error()))?
                .commit(),
        }
    }
}

fn failed_before(path: &Path) -> Error {
    cannot_write(path, "writing failed before")
}

impl Shape {
    fn of(row: &Trace<'_>, columns: &Columns) -> Self {
        let about = row.about();
        Self {
            id: row.id().is_some(),
            classes: row.probs().map(|_| row.classes()),
            scores_given: row.given_scores().is_some(),
            predicts: row.predicts(),
            numbers: row.numbers().is_some(),
            losses: row.losses().is_some(),
            group: about.group.is_some() && columns.group_column().is_some(),
            // Groups may be the units; then the column is already there.
            unit: about.unit.is_some() && columns.unit.is_some() && columns.unit != columns.group,
            weight: about.weight.is_some() && columns.weight.is_some(),
            costs: about.costs.is_some() && columns.costs.is_some(),
        }
    }

    /// Whether scores are left out because they follow from `probs`. If they were written,
    /// they would be read as given scores.
    pub(super) fn scores_follow(self) -> bool {
        self.classes.is_some() && !self.scores_given
    }

    /// Whether there are predictions, of classes or of numbers.
    pub(super) fn has_predictions(self) -> bool {
        self.predicts || self.numbers
    }

    /// The columns with names of their own, in the order they are written.
    pub(super) fn named(self, columns: &Columns) -> impl Iterator<Item = (Named, &str)> {
        let all = [
            (Named::Group, self.group, columns.group_column()),
            (Named::Unit, self.unit, columns.unit.as_deref()),
            (Named::Weight, self.weight, columns.weight.as_deref()),
            (Named::Costs, self.costs, columns.costs.as_deref()),
        ];
        all.into_iter()
            .filter_map(|(what, written, name)| Some((what, name.filter(|_| written)?)))
    }
}

/// Turns sequences into the bytes of a format.
enum Encoder<W: Write + Seek + Send> {
    Npz(Box<NpzWriter<W>>),
    #[cfg(feature = "columnar")]
    Columnar(Box<ColumnarWriter<W>>),
    Jsonl(W),
    Csv(Box<::csv::Writer<W>>, u64),
}

impl<W: Write + Seek + Send> std::fmt::Debug for Encoder<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

pub(super) type Encoded<T> = std::result::Result<T, Cause>;

impl<W: Write + Seek + Send> Encoder<W> {
    fn new(
        out: W,
        format: Format,
        folder: &Path,
        shape: Shape,
        options: &WriteOptions,
    ) -> Encoded<Self> {
        Ok(match format {
            Format::Npz => {
                let writer = NpzWriter::new(out, folder, shape, options);
                Self::Npz(Box::new(writer?))
            }
            #[cfg(feature = "columnar")]
            Format::Parquet | Format::Arrow => {
                Self::Columnar(Box::new(ColumnarWriter::new(out, format, shape, options)?))
            }
            #[cfg(not(feature = "columnar"))]
            Format::Parquet | Format::Arrow => return Err(super::NO_COLUMNS.into()),
            Format::Jsonl => Self::Jsonl(out),
            Format::Csv => {
                let mut writer = ::csv::Writer::from_writer(out);
                csv::write_header(&mut writer, shape, &options.columns)?;
                Self::Csv(Box::new(writer), 0)
            }
        })
    }

    fn write(&mut self, row: &Trace<'_>, shape: Shape, columns: &Columns) -> Encoded<()> {
        match self {
            Self::Npz(writer) => Ok(writer.write(row)?),
            Self::Jsonl(out) => Ok(jsonl::write(out, row, shape, columns)?),
            Self::Csv(writer, rows) => {
                *rows += 1;
                let id = id_or_position(row, *rows);
                Ok(csv::write(writer, &id, row, shape)?)
            }
            #[cfg(feature = "columnar")]
            Self::Columnar(writer) => writer.write(row),
        }
    }

    fn finish(self) -> Encoded<W> {
        match self {
            Self::Npz(writer) => Ok(writer.finish()?),
            Self::Jsonl(out) => Ok(out),
            Self::Csv(writer, _) => Ok(writer.into_inner().map_err(|e| e.into_error())?),
            #[cfg(feature = "columnar")]
            Self::Columnar(writer) => writer.finish(),
        }
    }
}

/// A row per step needs an id: the position, counted from 1, if a sequence has none.
pub(super) fn id_or_position(row: &Trace<'_>, position: u64) -> String {
    row.id().map_or_else(|| position.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::io::{self, Cursor, SeekFrom};

    use super::*;

    /// A disk with this many bytes of room.
    struct Disk {
        inner: Cursor<Vec<u8>>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.inner.get_ref().len() + bytes.len() > self.room {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.inner.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Seek for Disk {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            self.inner.seek(to)
        }
    }

    fn write_to(room: usize, format: Format) -> Encoded<usize> {
        let disk = Disk {
            inner: Cursor::default(),
            room,
        };
        let scores: Vec<f32> = (0..500).map(|t| t as f32 / 501.0).collect();
        let mut checker = Checker::new();
        let sequence = Sequence {
            label: Some(3),
            predictions: Some(&[3; 500]),
            scores: Some(&scores),
            ..Sequence::default()
        };
        let row = checker.check(sequence).map_err(|e| e.to_string())?;
        let options = WriteOptions::default();
        let shape = Shape::of(&row, &options.columns);
        let folder = std::env::temp_dir();
        let mut encoder = Encoder::new(disk, format, &folder, shape, &options)?;
        for _ in 0..20 {
            encoder.write(&row, shape, &options.columns)?;
        }
        let disk = encoder.finish()?;
        Ok(disk.inner.into_inner().len())
    }

    #[test]
    fn a_full_disk_is_reported_wherever_it_fills_up() {
        for format in Format::ALL {
            let needed = write_to(usize::MAX, format).unwrap();
            for room in [0, 1, needed / 2, needed - 1] {
                let error = failed(Path::new("t"), write_to(room, format).unwrap_err());
                let message = error.to_string();
                assert!(
                    message.contains("no storage space"),
                    "{format:?}: {message}"
                );
                assert_eq!(error.kind(), crate::ErrorKind::Output);
                assert!(std::error::Error::source(&error).is_some());
            }
        }
    }
}
