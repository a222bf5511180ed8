//! Writing traces, one sequence at a time.

use std::collections::HashMap;
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, ListArray, RecordBatch, StringArray, UInt32Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use haltwise::Sequence;
use haltwise::traces::{Checker, Trace};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::npz::NpzWriter;
use super::{Format, csv, jsonl};
use crate::error::{Error, Result, Source};
use crate::write::{WholeFile, cannot_write, failed, folder_of};

/// How many values a batch of columns holds before it is written.
const BATCH_VALUES: usize = 1 << 20;

/// How many bytes a row group of a Parquet file holds, about.
const ROW_GROUP_BYTES: usize = 1 << 27;

/// What a row of a Parquet or Arrow file stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// A row is a sequence; predictions, scores and probabilities are lists.
    #[default]
    PerSequence,
    /// A row is a step. There is no place for probabilities.
    PerStep,
}

/// How traces are written.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// The layout, for Parquet and Arrow; CSV always has a row per step, the
    /// others a sequence at a time.
    pub layout: Layout,
    /// Remarks to store with the traces: in Parquet's and Arrow's metadata,
    /// and in NPZ as a JSON object in the string `metadata`. JSONL and CSV
    /// have no place for them.
    pub metadata: Vec<(String, String)>,
}

/// Writes traces to a file, one sequence at a time, in the format that the
/// file's extension stands for.
///
/// The file appears under its name when [`finish`](Self::finish) succeeds, and
/// a file of that name is untouched until then.
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
///     label: 1,
///     predictions: Some(&[0, 1, 1]),
///     scores: Some(&[0.2, 0.6, 0.9]),
///     probs: None,
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

/// What the first sequence had, and all must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    id: bool,
    /// How many classes `probs` has, where there is one.
    classes: Option<usize>,
    scores_given: bool,
    cost: bool,
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
        self.write_row(sequence, None)
    }

    /// The same with what each step costs, as the column `cost`: in Parquet and
    /// Arrow, a row per sequence.
    pub fn write_with_cost(&mut self, sequence: Sequence<'_>, cost: &[f32]) -> Result<()> {
        if !matches!(self.format, Format::Parquet | Format::Arrow)
            || self.options.layout == Layout::PerStep
        {
            return Err(cannot_write(
                &self.path,
                "only Parquet and Arrow, a row per sequence, have a place for costs",
            ));
        }
        if let Some(wrong) = cost.iter().find(|c| !c.is_finite() || **c < 0.0) {
            let problem = format_args!("the cost of a step is {wrong}; give 0 or more");
            return Err(cannot_write(&self.path, problem));
        }
        self.write_row(sequence, Some(cost))
    }

    fn write_row(&mut self, sequence: Sequence<'_>, cost: Option<&[f32]>) -> Result<()> {
        let row = self.checker.check(sequence);
        let row = &row.map_err(|e| cannot_write(&self.path, e))?;
        if let Some(cost) = cost.filter(|cost| cost.len() != row.len()) {
            let problem = format_args!("{} costs for {} steps", cost.len(), row.len());
            return Err(cannot_write(&self.path, problem));
        }
        let shape = Shape {
            cost: cost.is_some(),
            ..Shape::of(row)
        };
        if *self.first.get_or_insert(shape) != shape {
            return Err(cannot_write(
                &self.path,
                "some sequences have ids, scores, probabilities or costs that others lack",
            ));
        }
        let mut encoder = match std::mem::replace(&mut self.state, State::Failed) {
            State::Writing(encoder) => encoder,
            State::Failed => return Err(failed_before(&self.path)),
            State::Empty(file) => {
                let out = BufWriter::with_capacity(1 << 20, file);
                let folder = folder_of(&self.path);
                Encoder::new(out, self.format, folder, row, shape, &self.options)
                    .map_err(|e| failed(&self.path, e))?
            }
        };
        encoder
            .write(row, cost)
            .map_err(|e| failed(&self.path, e))?;
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
    fn of(row: &Trace<'_>) -> Self {
        Self {
            id: row.id().is_some(),
            classes: row.probs().map(|_| row.classes()),
            scores_given: row.given_scores().is_some(),
            cost: false,
        }
    }

    /// Whether scores are left out, because they follow from `probs`. Written
    /// out, they would be taken for given.
    fn scores_follow(self) -> bool {
        self.classes.is_some() && !self.scores_given
    }
}

/// Turns sequences into the bytes of a format.
enum Encoder<W: Write + Seek + Send> {
    Npz(Box<NpzWriter<W>>),
    Parquet(Box<ArrowWriter<W>>, Batch),
    Arrow(Box<FileWriter<W>>, Batch),
    Jsonl(W),
    Csv(Box<::csv::Writer<W>>, u64),
}

impl<W: Write + Seek + Send> std::fmt::Debug for Encoder<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

type Encoded<T> = std::result::Result<T, Source>;

impl<W: Write + Seek + Send> Encoder<W> {
    fn new(
        out: W,
        format: Format,
        folder: &Path,
        first: &Trace<'_>,
        shape: Shape,
        options: &WriteOptions,
    ) -> Encoded<Self> {
        let metadata = &options.metadata;
        Ok(match format {
            Format::Npz => {
                let writer = NpzWriter::new(out, folder, first, metadata.clone());
                Self::Npz(Box::new(writer?))
            }
            Format::Parquet => {
                let batch = Batch::new(shape, options.layout, &[]);
                let properties = Some(parquet_properties(metadata)?);
                let writer = ArrowWriter::try_new(out, Arc::clone(&batch.schema), properties);
                Self::Parquet(Box::new(writer?), batch)
            }
            Format::Arrow => {
                let batch = Batch::new(shape, options.layout, metadata);
                let properties =
                    IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
                let writer = FileWriter::try_new_with_options(out, &batch.schema, properties);
                Self::Arrow(Box::new(writer?), batch)
            }
            Format::Jsonl => Self::Jsonl(out),
            Format::Csv => {
                let mut writer = ::csv::Writer::from_writer(out);
                csv::write_header(&mut writer)?;
                Self::Csv(Box::new(writer), 0)
            }
        })
    }

    fn write(&mut self, row: &Trace<'_>, cost: Option<&[f32]>) -> Encoded<()> {
        match self {
            Self::Npz(writer) => Ok(writer.write(row)?),
            Self::Jsonl(out) => Ok(jsonl::write(out, row)?),
            Self::Csv(writer, rows) => {
                *rows += 1;
                Ok(csv::write(writer, &id_or_position(row, *rows), row)?)
            }
            Self::Parquet(writer, batch) => {
                batch.add(row, cost);
                if batch.is_full() {
                    writer.write(&batch.take()?)?;
                }
                if writer.in_progress_size() > ROW_GROUP_BYTES {
                    writer.flush()?;
                }
                Ok(())
            }
            Self::Arrow(writer, batch) => {
                batch.add(row, cost);
                if batch.is_full() {
                    writer.write(&batch.take()?)?;
                }
                Ok(())
            }
        }
    }

    fn finish(self) -> Encoded<W> {
        match self {
            Self::Npz(writer) => Ok(writer.finish()?),
            Self::Jsonl(out) => Ok(out),
            Self::Csv(writer, _) => Ok(writer.into_inner().map_err(|e| e.into_error())?),
            Self::Parquet(mut writer, mut batch) => {
                writer.write(&batch.take()?)?;
                Ok(writer.into_inner()?)
            }
            Self::Arrow(mut writer, mut batch) => {
                writer.write(&batch.take()?)?;
                Ok(writer.into_inner()?)
            }
        }
    }
}

/// A row per step needs an id: the position, counted from 1, where a sequence
/// has none.
fn id_or_position(row: &Trace<'_>, position: u64) -> String {
    row.id().map_or_else(|| position.to_string(), str::to_owned)
}

fn parquet_properties(metadata: &[(String, String)]) -> Encoded<WriterProperties> {
    let remarks = metadata
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
        .collect();
    let level = ZstdLevel::try_new(1)?;
    Ok(WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_key_value_metadata(Some(remarks))
        .build())
}

/// Columns under way.
struct Batch {
    schema: SchemaRef,
    layout: Layout,
    shape: Shape,
    /// Sequences so far, in all batches.
    position: u64,
    ids: Vec<String>,
    t: Vec<u32>,
    labels: Vec<u32>,
    lengths: Vec<usize>,
    predictions: Vec<u32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    costs: Vec<f32>,
}

impl Batch {
    fn new(shape: Shape, layout: Layout, metadata: &[(String, String)]) -> Self {
        let fields = match layout {
            Layout::PerSequence => sequence_fields(shape),
            Layout::PerStep => vec![
                Field::new("id", DataType::Utf8, false),
                Field::new("t", DataType::UInt32, false),
                Field::new("label", DataType::UInt32, false),
                Field::new("prediction", DataType::UInt32, false),
                Field::new("score", DataType::Float32, false),
            ],
        };
        let remarks: HashMap<_, _> = metadata.iter().cloned().collect();
        Self {
            schema: Arc::new(Schema::new(fields).with_metadata(remarks)),
            layout,
            shape,
            position: 0,
            ids: Vec::new(),
            t: Vec::new(),
            labels: Vec::new(),
            lengths: Vec::new(),
            predictions: Vec::new(),
            scores: Vec::new(),
            probs: Vec::new(),
            costs: Vec::new(),
        }
    }

    fn add(&mut self, row: &Trace<'_>, cost: Option<&[f32]>) {
        self.position += 1;
        self.predictions.extend_from_slice(row.predictions());
        self.scores.extend_from_slice(row.scores());
        match self.layout {
            Layout::PerSequence => {
                self.ids.extend(row.id().map(str::to_owned));
                self.labels.push(row.label());
                self.lengths.push(row.len());
                self.probs
                    .extend_from_slice(row.probs().unwrap_or_default());
                self.costs.extend_from_slice(cost.unwrap_or_default());
            }
            Layout::PerStep => {
                let id = id_or_position(row, self.position);
                for t in 1..=row.len() {
                    self.ids.push(id.clone());
                    self.t.push(t as u32);
                    self.labels.push(row.label());
                }
            }
        }
    }

    fn is_full(&self) -> bool {
        self.scores.len() + self.probs.len() >= BATCH_VALUES
    }

    /// The batch so far; the next one starts.
    fn take(&mut self) -> std::result::Result<RecordBatch, ArrowError> {
        let ids = Arc::new(StringArray::from(std::mem::take(&mut self.ids)));
        let labels = Arc::new(UInt32Array::from(std::mem::take(&mut self.labels)));
        let predictions = Arc::new(UInt32Array::from(std::mem::take(&mut self.predictions)));
        let scores = Arc::new(Float32Array::from(std::mem::take(&mut self.scores)));
        let columns: Vec<ArrayRef> = match self.layout {
            Layout::PerStep => {
                let t = Arc::new(UInt32Array::from(std::mem::take(&mut self.t)));
                vec![ids, t, labels, predictions, scores]
            }
            Layout::PerSequence => {
                let lengths = std::mem::take(&mut self.lengths);
                let mut columns: Vec<ArrayRef> = Vec::new();
                if self.shape.id {
                    columns.push(ids);
                }
                columns.push(labels);
                columns.push(lists(item(DataType::UInt32), &lengths, predictions)?);
                if !self.shape.scores_follow() {
                    columns.push(lists(item(DataType::Float32), &lengths, scores)?);
                }
                if let Some(classes) = self.shape.classes {
                    let values = Float32Array::from(std::mem::take(&mut self.probs));
                    let item = item(DataType::Float32);
                    let steps =
                        FixedSizeListArray::try_new(item, classes as i32, Arc::new(values), None)?;
                    columns.push(lists(step_item(classes), &lengths, Arc::new(steps))?);
                }
                if self.shape.cost {
                    let costs = Arc::new(Float32Array::from(std::mem::take(&mut self.costs)));
                    columns.push(lists(item(DataType::Float32), &lengths, costs)?);
                }
                columns
            }
        };
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

fn sequence_fields(shape: Shape) -> Vec<Field> {
    let list = |name: &str, item| Field::new(name, DataType::List(item), false);
    let mut fields = Vec::new();
    if shape.id {
        fields.push(Field::new("id", DataType::Utf8, false));
    }
    fields.push(Field::new("label", DataType::UInt32, false));
    fields.push(list("predictions", item(DataType::UInt32)));
    if !shape.scores_follow() {
        fields.push(list("scores", item(DataType::Float32)));
    }
    if let Some(classes) = shape.classes {
        fields.push(list("probs", step_item(classes)));
    }
    if shape.cost {
        fields.push(list("cost", item(DataType::Float32)));
    }
    fields
}

/// What a list holds, under the name that Parquet prescribes.
fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", data_type, false))
}

/// What a list of `probs` holds: as many probabilities as there are classes.
fn step_item(classes: usize) -> Arc<Field> {
    item(DataType::FixedSizeList(
        item(DataType::Float32),
        classes as i32,
    ))
}

fn lists(
    item: Arc<Field>,
    lengths: &[usize],
    values: ArrayRef,
) -> std::result::Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    Ok(Arc::new(ListArray::try_new(item, offsets, values, None)?))
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
            label: 3,
            predictions: Some(&[3; 500]),
            scores: Some(&scores),
            ..Sequence::default()
        };
        let row = checker.check(sequence).map_err(|e| e.to_string())?;
        let shape = Shape::of(&row);
        let folder = std::env::temp_dir();
        let options = WriteOptions::default();
        let mut encoder = Encoder::new(disk, format, &folder, &row, shape, &options)?;
        for _ in 0..20 {
            encoder.write(&row, None)?;
        }
        let disk = encoder.finish()?;
        Ok(disk.inner.into_inner().len())
    }

    #[test]
    fn a_full_disk_is_reported_wherever_it_fills_up() {
        use Format::{Arrow, Csv, Jsonl, Npz, Parquet};
        for format in [Npz, Parquet, Arrow, Jsonl, Csv] {
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
