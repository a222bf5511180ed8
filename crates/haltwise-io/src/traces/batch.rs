//! Writes traces as columns: Parquet and Arrow.

use std::collections::HashMap;
use std::io::{Seek, Write};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, ListArray, RecordBatch, StringArray,
    UInt32Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use haltwise::traces::Trace;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::Format;
use super::writer::{Encoded, Layout, Named, Shape, WriteOptions, id_or_position};

/// How many values a batch of columns holds before it is written.
const BATCH_VALUES: usize = 1 << 20;

/// The approximate number of bytes in a row group of a Parquet file.
const ROW_GROUP_BYTES: usize = 1 << 27;

/// Turns sequences into the bytes of Parquet or Arrow.
pub(super) struct ColumnarWriter<W: Write + Seek + Send> {
    writer: Columnar<W>,
    batch: Batch,
}

enum Columnar<W: Write + Seek + Send> {
    Parquet(ArrowWriter<W>),
    Arrow(FileWriter<W>),
}

impl<W: Write + Seek + Send> ColumnarWriter<W> {
    pub(super) fn new(
        out: W,
        format: Format,
        shape: Shape,
        options: &WriteOptions,
    ) -> Encoded<Self> {
        let metadata = &options.metadata;
        if format == Format::Parquet {
            let batch = Batch::new(shape, options, &[]);
            let properties = Some(parquet_properties(metadata)?);
            let writer = ArrowWriter::try_new(out, Arc::clone(&batch.schema), properties)?;
            let writer = Columnar::Parquet(writer);
            return Ok(Self { writer, batch });
        }
        let batch = Batch::new(shape, options, metadata);
        let properties =
            IpcWriteOptions::default().try_with_compression(Some(CompressionType::ZSTD))?;
        let writer = FileWriter::try_new_with_options(out, &batch.schema, properties)?;
        let writer = Columnar::Arrow(writer);
        Ok(Self { writer, batch })
    }

    pub(super) fn write(&mut self, row: &Trace<'_>) -> Encoded<()> {
        self.batch.add(row);
        if self.batch.is_full() {
            self.write_batch()?;
        }
        if let Columnar::Parquet(writer) = &mut self.writer
            && writer.in_progress_size() > ROW_GROUP_BYTES
        {
            writer.flush()?;
        }
        Ok(())
    }

    fn write_batch(&mut self) -> Encoded<()> {
        let batch = self.batch.take()?;
        match &mut self.writer {
            Columnar::Parquet(writer) => writer.write(&batch)?,
            Columnar::Arrow(writer) => writer.write(&batch)?,
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Encoded<W> {
        self.write_batch()?;
        match self.writer {
            Columnar::Parquet(writer) => Ok(writer.into_inner()?),
            Columnar::Arrow(writer) => Ok(writer.into_inner()?),
        }
    }
}

fn parquet_properties(metadata: &[(String, String)]) -> Encoded<WriterProperties> {
    let entries = metadata
        .iter()
        .map(|(key, value)| KeyValue::new(key.clone(), value.clone()))
        .collect();
    let level = ZstdLevel::try_new(1)?;
    Ok(WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_key_value_metadata(Some(entries))
        .build())
}

/// The columns of the current batch.
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
        let entries: HashMap<_, _> = metadata.iter().cloned().collect();
        let fields = fields(shape, options);
        let named = shape.named(&options.columns);
        Self {
            schema: Arc::new(Schema::new(fields).with_metadata(entries)),
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
        // If each row is a step, every row repeats the data about its sequence.
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

    /// Returns the current batch and starts the next one.
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
    // One value per step: a column, or a list in each row.
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
    // A missing label is only known when it comes.
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

/// The items of a list, under the name that Parquet prescribes.
fn item(data_type: DataType) -> Arc<Field> {
    Arc::new(Field::new("element", data_type, false))
}

/// The items of a list of `probs`: as many probabilities as there are classes.
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
