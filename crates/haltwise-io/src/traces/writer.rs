//! Writing traces, one sequence at a time.

use std::collections::HashMap;
use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, ListArray, RecordBatch, StringArray,
    UInt32Array,
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
use super::{Columns, Format, csv, jsonl};
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
    /// The columns for groups, units, weights and costs: what has no name here
    /// is not written.
    pub columns: Columns,
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

/// What the first sequence had, and all must have, and is written of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) id: bool,
    /// How many classes `probs` has, where there is one.
    pub(super) classes: Option<usize>,
    scores_given: bool,
    /// Whether there are predictions of classes.
    pub(super) predicts: bool,
    /// Whether predictions and labels are numbers.
    numbers: bool,
    pub(super) losses: bool,
    pub(super) group: bool,
    pub(super) unit: bool,
    pub(super) weight: bool,
    pub(super) costs: bool,
}

/// What is written in a column with a name of its own.
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
            // Groups may be the units: then they are there already.
            unit: about.unit.is_some() && columns.unit.is_some() && columns.unit != columns.group,
            weight: about.weight.is_some() && columns.weight.is_some(),
            costs: about.costs.is_some() && columns.costs.is_some(),
        }
    }

    /// Whether scores are left out, because they follow from `probs`. Written
    /// out, they would be taken for given.
    pub(super) fn scores_follow(self) -> bool {
        self.classes.is_some() && !self.scores_given
    }

    /// Whether there are predictions, be it of classes or of numbers.
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
    Parquet(Box<ArrowWriter<W>>, Box<Batch>),
    Arrow(Box<FileWriter<W>>, Box<Batch>),
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
        shape: Shape,
        options: &WriteOptions,
    ) -> Encoded<Self> {
        let metadata = &options.metadata;
        Ok(match format {
            Format::Npz => {
                let writer = NpzWriter::new(out, folder, shape, options);
                Self::Npz(Box::new(writer?))
            }
            Format::Parquet => {
                let batch = Box::new(Batch::new(shape, options, &[]));
                let properties = Some(parquet_properties(metadata)?);
                let writer = ArrowWriter::try_new(out, Arc::clone(&batch.schema), properties);
                Self::Parquet(Box::new(writer?), batch)
            }
            Format::Arrow => {
                let batch = Box::new(Batch::new(shape, options, metadata));
                let properties =
                    IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
                let writer = FileWriter::try_new_with_options(out, &batch.schema, properties);
                Self::Arrow(Box::new(writer?), batch)
            }
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
            Self::Parquet(writer, batch) => {
                batch.add(row);
                if batch.is_full() {
                    writer.write(&batch.take()?)?;
                }
                if writer.in_progress_size() > ROW_GROUP_BYTES {
                    writer.flush()?;
                }
                Ok(())
            }
            Self::Arrow(writer, batch) => {
                batch.add(row);
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
    /// Columns with names of their own.
    named: Vec<Named>,
    /// Sequences so far, in all batches.
    position: u64,
    ids: Vec<String>,
    t: Vec<u32>,
    labels: Vec<Option<u32>>,
    true_numbers: Vec<f32>,
    lengths: Vec<usize>,
    predictions: Vec<u32>,
    numbers: Vec<f32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    losses: Vec<f32>,
    groups: Vec<String>,
    units: Vec<String>,
    weights: Vec<f64>,
    costs: Vec<f32>,
}

impl Batch {
    fn new(shape: Shape, options: &WriteOptions, metadata: &[(String, String)]) -> Self {
        let remarks: HashMap<_, _> = metadata.iter().cloned().collect();
        let fields = fields(shape, options);
        let named = shape.named(&options.columns);
        Self {
            schema: Arc::new(Schema::new(fields).with_metadata(remarks)),
            layout: options.layout,
            shape,
            named: named.map(|(what, _)| what).collect(),
            position: 0,
            ids: Vec::new(),
            t: Vec::new(),
            labels: Vec::new(),
            true_numbers: Vec::new(),
            lengths: Vec::new(),
            predictions: Vec::new(),
            numbers: Vec::new(),
            scores: Vec::new(),
            probs: Vec::new(),
            losses: Vec::new(),
            groups: Vec::new(),
            units: Vec::new(),
            weights: Vec::new(),
            costs: Vec::new(),
        }
    }

    fn add(&mut self, row: &Trace<'_>) {
        self.position += 1;
        self.scores.extend_from_slice(row.scores());
        self.losses
            .extend_from_slice(row.losses().unwrap_or_default());
        // Where a row is a step, each says all about its sequence.
        let (rows, id) = match self.layout {
            Layout::PerSequence => {
                self.lengths.push(row.len());
                self.probs
                    .extend_from_slice(row.probs().unwrap_or_default());
                (1, row.id().map(str::to_owned))
            }
            Layout::PerStep => {
                self.t.extend(1..=row.len() as u32);
                (row.len(), Some(id_or_position(row, self.position)))
            }
        };
        self.ids
            .extend(id.into_iter().flat_map(|id| std::iter::repeat_n(id, rows)));
        match row.numbers() {
            Some(numbers) => {
                self.numbers.extend_from_slice(numbers.predictions);
                self.true_numbers
                    .extend(std::iter::repeat_n(numbers.label, rows));
            }
            None => {
                self.predictions.extend_from_slice(row.predictions());
                self.labels.extend(std::iter::repeat_n(row.label(), rows));
            }
        }
        let about = row.about();
        let copies = |text: Option<&str>| {
            let text = text.unwrap_or_default().to_owned();
            std::iter::repeat_n(text, rows)
        };
        for what in &self.named {
            match what {
                Named::Group => self.groups.extend(copies(about.group)),
                Named::Unit => self.units.extend(copies(about.unit)),
                Named::Weight => {
                    let weight = about.weight.unwrap_or_default();
                    self.weights.extend(std::iter::repeat_n(weight, rows));
                }
                Named::Costs => self
                    .costs
                    .extend_from_slice(about.costs.unwrap_or_default()),
            }
        }
    }

    fn is_full(&self) -> bool {
        self.scores.len() + self.probs.len() >= BATCH_VALUES
    }

    /// The batch so far; the next one starts.
    fn take(&mut self) -> std::result::Result<RecordBatch, ArrowError> {
        let (shape, layout) = (self.shape, self.layout);
        let lengths = std::mem::take(&mut self.lengths);
        let per_step = |values: ArrayRef| match layout {
            Layout::PerStep => Ok(values),
            Layout::PerSequence => lists(item(values.data_type().clone()), &lengths, values),
        };
        let mut columns: Vec<ArrayRef> = Vec::new();
        if shape.id || layout == Layout::PerStep {
            let ids = std::mem::take(&mut self.ids);
            columns.push(Arc::new(StringArray::from(ids)));
        }
        if layout == Layout::PerStep {
            columns.push(Arc::new(UInt32Array::from(std::mem::take(&mut self.t))));
        }
        let labels = std::mem::take(&mut self.labels);
        columns.push(match shape.numbers {
            true => floats(&mut self.true_numbers),
            false => Arc::new(UInt32Array::from(labels)),
        });
        let predictions = std::mem::take(&mut self.predictions);
        if shape.numbers {
            columns.push(per_step(floats(&mut self.numbers))?);
        } else if shape.predicts {
            columns.push(per_step(Arc::new(UInt32Array::from(predictions)))?);
        }
        let scores = floats(&mut self.scores);
        if !shape.scores_follow() || layout == Layout::PerStep {
            columns.push(per_step(scores)?);
        }
        if let (Some(classes), Layout::PerSequence) = (shape.classes, layout) {
            let values = floats(&mut self.probs);
            let item = item(DataType::Float32);
            let steps = FixedSizeListArray::try_new(item, classes as i32, values, None)?;
            columns.push(lists(step_item(classes), &lengths, Arc::new(steps))?);
        }
        if shape.losses {
            columns.push(per_step(floats(&mut self.losses))?);
        }
        for what in &self.named {
            columns.push(match what {
                Named::Group => texts(&mut self.groups),
                Named::Unit => texts(&mut self.units),
                Named::Weight => {
                    let weights = std::mem::take(&mut self.weights);
                    Arc::new(Float64Array::from(weights))
                }
                Named::Costs => per_step(floats(&mut self.costs))?,
            });
        }
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
    }
}

fn floats(values: &mut Vec<f32>) -> ArrayRef {
    Arc::new(Float32Array::from(std::mem::take(values)))
}

fn texts(values: &mut Vec<String>) -> ArrayRef {
    Arc::new(StringArray::from(std::mem::take(values)))
}

/// The columns, in the order they are written.
fn fields(shape: Shape, options: &WriteOptions) -> Vec<Field> {
    let is_step = options.layout == Layout::PerStep;
    let field = |name: &str, data_type| Field::new(name, data_type, false);
    // One value per step: a column of them, or a list in each row.
    let per_step = |name: &str, step: &str, data_type: DataType| match is_step {
        true => field(step, data_type),
        false => field(name, DataType::List(item(data_type))),
    };
    let class = match shape.numbers {
        true => DataType::Float32,
        false => DataType::UInt32,
    };
    let mut fields = Vec::new();
    if shape.id || is_step {
        fields.push(field("id", DataType::Utf8));
    }
    if is_step {
        fields.push(field("t", DataType::UInt32));
    }
    // That a label is missing is not known before it comes.
    fields.push(Field::new("label", class.clone(), !shape.numbers));
    if shape.has_predictions() {
        fields.push(per_step("predictions", "prediction", class));
    }
    if !shape.scores_follow() || is_step {
        fields.push(per_step("scores", "score", DataType::Float32));
    }
    if let (Some(classes), false) = (shape.classes, is_step) {
        fields.push(field("probs", DataType::List(step_item(classes))));
    }
    if shape.losses {
        fields.push(per_step("losses", "loss", DataType::Float32));
    }
    let named = shape.named(&options.columns);
    fields.extend(named.map(|(what, name)| match what {
        Named::Group | Named::Unit => field(name, DataType::Utf8),
        Named::Weight => field(name, DataType::Float64),
        Named::Costs => per_step(name, name, DataType::Float32),
    }));
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
