//! Columns of Arrow arrays, whatever file they came from, as sequences.

use std::fmt::Display;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::{DataType, Schema};
use arrow_select::take::take;

use haltwise::Sequence;

use super::classes::Classes;
use super::intake::Intake;
use super::steps::{Step, Steps};
use crate::problem::{Problem, listed};

const PER_SEQUENCE: [&str; 5] = ["id", "label", "predictions", "scores", "probs"];
const PER_STEP: [&str; 5] = ["id", "t", "label", "prediction", "score"];

/// Runs a function over an array of integers, whatever their width; `None`
/// where the array holds something else.
macro_rules! over_integers {
    ($array:expr, $function:ident, $($more:expr),*) => {
        match $array.data_type() {
            DataType::Int8 => Some($function::<Int8Type>($array, $($more),*)),
            DataType::Int16 => Some($function::<Int16Type>($array, $($more),*)),
            DataType::Int32 => Some($function::<Int32Type>($array, $($more),*)),
            DataType::Int64 => Some($function::<Int64Type>($array, $($more),*)),
            DataType::UInt8 => Some($function::<UInt8Type>($array, $($more),*)),
            DataType::UInt16 => Some($function::<UInt16Type>($array, $($more),*)),
            DataType::UInt32 => Some($function::<UInt32Type>($array, $($more),*)),
            DataType::UInt64 => Some($function::<UInt64Type>($array, $($more),*)),
            _ => None,
        }
    };
}

/// A problem with one of an array's values, counted from 0.
type At<T> = Result<T, (usize, Problem)>;

/// Reads batches of either layout.
pub(super) struct Columns {
    layout: Layout,
    /// How many rows were read so far.
    rows: u64,
}

enum Layout {
    PerSequence(Buffers),
    PerStep(Steps),
}

/// The values of the row under way, used again for the next.
#[derive(Default)]
struct Buffers {
    predictions: Vec<u32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
}

impl Columns {
    /// Tells the layout by the columns' names, and checks their types.
    pub(super) fn find(schema: &Schema) -> Result<Self, Problem> {
        let has = |name: &str| schema.column_with_name(name).is_some();
        let layout = if PER_STEP.iter().all(|name| has(name)) {
            Layout::PerStep(Steps::new("row"))
        } else if has("label") && (has("probs") || (has("predictions") && has("scores"))) {
            Layout::PerSequence(Buffers::default())
        } else {
            return Err(missing(schema));
        };
        let columns = Self { layout, rows: 0 };
        for field in schema.fields() {
            if columns.names().contains(&field.name().as_str()) {
                check_type(field.name(), field.data_type())
                    .map_err(|p| p.at(format_args!("column {}", field.name())))?;
            }
        }
        Ok(columns)
    }

    /// Counts rows from another than the first.
    pub(super) fn after(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// Whether a row is a step, not a sequence.
    pub(super) fn has_row_per_step(&self) -> bool {
        matches!(self.layout, Layout::PerStep(_))
    }

    /// Whether every row is a sequence that can be read without the rows
    /// before it: not a step, and no class names, which are numbered as they
    /// are met.
    pub(super) fn rows_stand_alone(&self, schema: &Schema) -> bool {
        let named = |field: &arrow_schema::FieldRef| {
            let class = match field.name().as_str() {
                "label" => Some(plain_type(field.data_type())),
                "predictions" => item_type(plain_type(field.data_type())),
                _ => return false,
            };
            class.is_some_and(is_text)
        };
        !self.has_row_per_step() && !schema.fields().iter().any(named)
    }

    fn names(&self) -> &'static [&'static str] {
        match self.layout {
            Layout::PerSequence(_) => &PER_SEQUENCE,
            Layout::PerStep(_) => &PER_STEP,
        }
    }

    /// The positions of the columns that are read; others are left alone.
    pub(super) fn needed(&self, schema: &Schema) -> Vec<usize> {
        let names = self.names();
        let fields = schema.fields().iter().enumerate();
        fields
            .filter(|(_, field)| names.contains(&field.name().as_str()))
            .map(|(place, _)| place)
            .collect()
    }

    /// Reads the next batch.
    pub(super) fn read(
        &mut self,
        batch: &RecordBatch,
        intake: &mut Intake<'_>,
    ) -> Result<(), Problem> {
        let before = self.rows;
        let read = match &mut self.layout {
            Layout::PerSequence(buffers) => read_sequences(batch, buffers, intake),
            Layout::PerStep(steps) => read_steps(batch, before, steps, intake),
        };
        self.rows += batch.num_rows() as u64;
        read.map_err(|(i, p)| p.at(format_args!("row {}", before + i as u64 + 1)))
    }

    /// Ends the file.
    pub(super) fn finish(self, intake: &mut Intake<'_>) -> Result<(), Problem> {
        match self.layout {
            Layout::PerSequence(_) => Ok(()),
            Layout::PerStep(steps) => steps.finish(intake),
        }
    }
}

fn missing(schema: &Schema) -> Problem {
    Problem::format(format_args!(
        "columns are missing; needed are label and either probs or predictions and scores \
         (one row per sequence), or {} (one row per step); found are {}",
        PER_STEP.join(", "),
        listed(schema.fields().iter().map(|f| f.name().as_str()))
    ))
}

/// The type behind a dictionary.
fn plain_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// The type of a list's values.
fn item_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(plain_type(item.data_type())),
        _ => None,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

fn check_type(name: &str, data_type: &DataType) -> Result<(), Problem> {
    let is_float =
        |t: &DataType| matches!(t, DataType::Float16 | DataType::Float32 | DataType::Float64);
    let is_class = |t: &DataType| t.is_integer() || is_text(t) || *t == DataType::Boolean;
    let plain = plain_type(data_type);
    let item = item_type(plain);
    let (sound, wanted) = match name {
        "id" => (plain.is_integer() || is_text(plain), "strings or integers"),
        "t" => (plain.is_integer(), "integers"),
        "label" | "prediction" => (is_class(plain), "integers or strings"),
        "predictions" => (item.is_some_and(is_class), "lists of integers or strings"),
        "score" => (is_float(plain), "floats"),
        "scores" => (item.is_some_and(is_float), "lists of floats"),
        _ => (
            item.and_then(item_type).is_some_and(is_float),
            "lists (one per step) of lists (one per class) of floats",
        ),
    };
    match sound {
        true => Ok(()),
        false => Err(Problem::format(format_args!(
            "its type is {data_type}; {wanted} are needed"
        ))),
    }
}

/// The column of this name, without a dictionary and without nulls.
fn column(batch: &RecordBatch, name: &'static str) -> At<Option<ArrayRef>> {
    let Some(array) = batch.column_by_name(name) else {
        return Ok(None);
    };
    let array = plain(array).map_err(|p| (0, p.at(name)))?;
    no_nulls(&array).map_err(|(i, p)| (i, p.at(name)))?;
    Ok(Some(array))
}

fn needed_column(batch: &RecordBatch, name: &'static str) -> At<ArrayRef> {
    column(batch, name)?.ok_or_else(|| (0, Problem::format("the column is missing").at(name)))
}

/// Replaces a dictionary by what it stands for.
fn plain(array: &ArrayRef) -> Result<ArrayRef, Problem> {
    match array.as_any_dictionary_opt() {
        None => Ok(ArrayRef::clone(array)),
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None)
            .map_err(|e| Problem::format(&e).caused_by(e)),
    }
}

fn no_nulls(array: &dyn Array) -> At<()> {
    if array.null_count() == 0 {
        return Ok(());
    }
    let first = (0..array.len()).find(|&i| array.is_null(i));
    Err((
        first.unwrap_or_default(),
        Problem::new("the value is null; fill it in or drop the row"),
    ))
}

fn read_sequences(batch: &RecordBatch, buffers: &mut Buffers, intake: &mut Intake<'_>) -> At<()> {
    let ids = column(batch, "id")?.map(|ids| texts(&ids));
    let mut labels = Vec::new();
    classes(
        &needed_column(batch, "label")?,
        &mut intake.classes,
        &mut labels,
    )
    .map_err(|(i, p)| (i, p.at("label")))?;
    let predictions = column(batch, "predictions")?
        .map(|lists| Lists::classes(lists, &mut intake.classes))
        .transpose()
        .map_err(|(i, p)| (i, p.at("predictions")))?;
    let scores = column(batch, "scores")?
        .map(Lists::floats)
        .transpose()
        .map_err(|(i, p)| (i, p.at("scores")))?;
    let probs = column(batch, "probs")?;
    for (i, &label) in labels.iter().enumerate() {
        let here = |p: Problem| (i, p);
        let predictions = match &predictions {
            Some(lists) => Some(
                lists
                    .of_row(i, &mut buffers.predictions, |list, out| {
                        classes(list, &mut intake.classes, out).map_err(at_step)
                    })
                    .map_err(|p| here(p.at("predictions")))?,
            ),
            None => None,
        };
        let scores = match &scores {
            Some(lists) => Some(
                lists
                    .of_row(i, &mut buffers.scores, |list, out| {
                        floats(list, out);
                        Ok(())
                    })
                    .map_err(|p| here(p.at("scores")))?,
            ),
            None => None,
        };
        let mut per_step = 1;
        if let Some(lists) = &probs {
            per_step = read_probs(lists, i, &mut buffers.probs).map_err(|p| here(p.at("probs")))?;
        }
        intake
            .take(Sequence {
                id: ids.as_ref().map(|ids| ids.value(i)),
                label,
                predictions,
                scores,
                probs: probs.is_some().then_some((&buffers.probs[..], per_step)),
            })
            .map_err(here)?;
    }
    Ok(())
}

fn read_steps(
    batch: &RecordBatch,
    before: u64,
    steps: &mut Steps,
    intake: &mut Intake<'_>,
) -> At<()> {
    let ids = texts(&needed_column(batch, "id")?);
    let (mut t, mut scores) = (Vec::new(), Vec::new());
    let (mut labels, mut predictions) = (Vec::new(), Vec::new());
    over_integers!(&needed_column(batch, "t")?, step_numbers, &mut t).transpose()?;
    classes(
        &needed_column(batch, "label")?,
        &mut intake.classes,
        &mut labels,
    )
    .map_err(|(i, p)| (i, p.at("label")))?;
    classes(
        &needed_column(batch, "prediction")?,
        &mut intake.classes,
        &mut predictions,
    )
    .map_err(|(i, p)| (i, p.at("prediction")))?;
    floats(&needed_column(batch, "score")?, &mut scores);
    for i in 0..batch.num_rows() {
        let step = Step {
            id: ids.value(i),
            t: t[i],
            label: labels[i],
            prediction: predictions[i],
            score: scores[i],
        };
        steps.add(before + i as u64 + 1, step).map_err(|p| (i, p))?;
    }
    Ok(())
}

fn step_numbers<T: ArrowPrimitiveType>(array: &ArrayRef, out: &mut Vec<u64>) -> At<()>
where
    T::Native: TryInto<u64> + Display,
{
    for (i, &value) in array.as_primitive::<T>().values().iter().enumerate() {
        let bad = |_| {
            let what = format!("{value} is not a step; steps are counted from 1");
            (i, Problem::new(what).at("t"))
        };
        out.push(value.try_into().map_err(bad)?);
    }
    Ok(())
}

/// The array as text; its type was checked to be text or integers.
fn texts(array: &ArrayRef) -> StringArray {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().clone(),
        DataType::LargeUtf8 => StringArray::from_iter(array.as_string::<i64>()),
        DataType::Utf8View => StringArray::from_iter(array.as_string_view()),
        _ => {
            over_integers!(array, digits,).unwrap_or_else(|| StringArray::from(Vec::<&str>::new()))
        }
    }
}

fn digits<T: ArrowPrimitiveType>(array: &ArrayRef) -> StringArray
where
    T::Native: Display,
{
    let values = array.as_primitive::<T>().values();
    StringArray::from_iter_values(values.iter().map(T::Native::to_string))
}

/// Appends the array's classes.
fn classes(array: &ArrayRef, known: &mut Classes, out: &mut Vec<u32>) -> At<()> {
    if let Some(done) = over_integers!(array, class_numbers, known, out) {
        return done;
    }
    if let Some(bits) = array.as_boolean_opt() {
        known.are_numbers().map_err(|p| (0, p))?;
        out.extend(bits.values().iter().map(u32::from));
        return Ok(());
    }
    let names = texts(array);
    for (i, name) in names.iter().enumerate() {
        out.push(known.text(name.unwrap_or_default()).map_err(|p| (i, p))?);
    }
    Ok(())
}

fn class_numbers<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    known: &mut Classes,
    out: &mut Vec<u32>,
) -> At<()>
where
    T::Native: TryInto<u32> + Display,
{
    known.are_numbers().map_err(|p| (0, p))?;
    let values = array.as_primitive::<T>().values();
    let mut bad = None;
    out.extend(values.iter().enumerate().map(|(i, &value)| {
        value.try_into().unwrap_or_else(|_| {
            bad.get_or_insert((i, value));
            0
        })
    }));
    match bad {
        None => Ok(()),
        Some((i, value)) => Err((i, Classes::not_a_class(value))),
    }
}

/// Appends the array's floats; its type was checked.
fn floats(array: &ArrayRef, out: &mut Vec<f32>) {
    match array.data_type() {
        DataType::Float16 => {
            let values = array.as_primitive::<Float16Type>().values();
            out.extend(values.iter().map(|v| v.to_f32()));
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>().values();
            out.extend(values.iter().map(|&v| v as f32));
        }
        _ => {
            if let Some(array) = array.as_primitive_opt::<Float32Type>() {
                out.extend_from_slice(array.values());
            }
        }
    }
}

/// The values of list `i`, without a dictionary and without nulls.
fn list(lists: &dyn Array, i: usize) -> Result<ArrayRef, Problem> {
    let values = match lists.data_type() {
        DataType::List(_) => lists.as_list::<i32>().value(i),
        DataType::LargeList(_) => lists.as_list::<i64>().value(i),
        DataType::FixedSizeList(..) => lists.as_fixed_size_list().value(i),
        DataType::ListView(_) => lists.as_list_view::<i32>().value(i),
        DataType::LargeListView(_) => lists.as_list_view::<i64>().value(i),
        other => {
            return Err(Problem::format(format_args!(
                "its type is {other}, not a list"
            )));
        }
    };
    let values = plain(&values)?;
    no_nulls(&values).map_err(at_step)?;
    Ok(values)
}

fn at_step((t, problem): (usize, Problem)) -> Problem {
    problem.at(format_args!("step {}", t + 1))
}

/// A column of lists.
enum Lists<T: ArrowNativeType> {
    /// The values of all rows, one after the other, and where each row starts.
    Flat(ScalarBuffer<T>, Vec<usize>),
    /// Lists that may lie anywhere, overlap or repeat.
    Scattered(ArrayRef),
}

impl Lists<u32> {
    fn classes(lists: ArrayRef, known: &mut Classes) -> At<Self> {
        Self::new(lists, |values| {
            if let Some(values) = values.as_primitive_opt::<UInt32Type>() {
                known.are_numbers().map_err(|p| (0, p))?;
                return Ok(values.values().clone());
            }
            let mut numbers = Vec::new();
            classes(values, known, &mut numbers)?;
            Ok(numbers.into())
        })
    }
}

impl Lists<f32> {
    fn floats(lists: ArrayRef) -> At<Self> {
        Self::new(lists, |values| {
            if let Some(values) = values.as_primitive_opt::<Float32Type>() {
                return Ok(values.values().clone());
            }
            let mut numbers = Vec::new();
            floats(values, &mut numbers);
            Ok(numbers.into())
        })
    }
}

impl<T: ArrowNativeType> Lists<T> {
    /// Converts the values of all rows at once, where they lie in a row: an
    /// array per list would cost more than most lists themselves.
    fn new(lists: ArrayRef, convert: impl FnOnce(&ArrayRef) -> At<ScalarBuffer<T>>) -> At<Self> {
        let Some((values, starts)) = flat(&lists) else {
            return Ok(Self::Scattered(lists));
        };
        // The first value that is wrong is at this step of this row.
        let place = |(at, problem): (usize, Problem)| {
            let row = starts.partition_point(|&start| start <= at).max(1) - 1;
            let step = at - starts.get(row).copied().unwrap_or_default();
            (row, at_step((step, problem)))
        };
        let values = plain(&values).map_err(|p| (0, p))?;
        no_nulls(&values).map_err(place)?;
        let converted = convert(&values).map_err(place)?;
        Ok(Self::Flat(converted, starts))
    }

    /// The values of row `i`.
    fn of_row<'a>(
        &'a self,
        i: usize,
        buffer: &'a mut Vec<T>,
        convert: impl FnOnce(&ArrayRef, &mut Vec<T>) -> Result<(), Problem>,
    ) -> Result<&'a [T], Problem> {
        match self {
            Self::Flat(values, starts) => Ok(&values[starts[i]..starts[i + 1]]),
            Self::Scattered(lists) => {
                buffer.clear();
                convert(&list(lists, i)?, buffer)?;
                Ok(buffer)
            }
        }
    }
}

/// The values of lists that lie one after the other, and where each starts;
/// `None` for lists that may lie anywhere.
fn flat(lists: &ArrayRef) -> Option<(ArrayRef, Vec<usize>)> {
    fn from_offsets<O: arrow_array::OffsetSizeTrait>(
        lists: &arrow_array::GenericListArray<O>,
    ) -> (ArrayRef, Vec<usize>) {
        let offsets = lists.value_offsets();
        let first = offsets.first().map_or(0, |o| o.as_usize());
        let starts: Vec<usize> = offsets.iter().map(|o| o.as_usize() - first).collect();
        let length = starts.last().copied().unwrap_or_default();
        (lists.values().slice(first, length), starts)
    }
    match lists.data_type() {
        DataType::List(_) => Some(from_offsets(lists.as_list::<i32>())),
        DataType::LargeList(_) => Some(from_offsets(lists.as_list::<i64>())),
        DataType::FixedSizeList(..) => {
            let lists = lists.as_fixed_size_list();
            let width = lists.value_length() as usize;
            let starts = (0..=lists.len()).map(|i| i * width).collect();
            Some((ArrayRef::clone(lists.values()), starts))
        }
        _ => None,
    }
}

/// Reads the probabilities of sequence `i`; returns how many there are per step.
fn read_probs(lists: &ArrayRef, i: usize, out: &mut Vec<f32>) -> Result<usize, Problem> {
    out.clear();
    let steps = list(lists, i)?;
    if let Some(steps) = steps.as_fixed_size_list_opt() {
        no_nulls(steps.values()).map_err(|(_, p)| p)?;
        floats(steps.values(), out);
        return Ok(steps.value_length() as usize);
    }
    let mut classes = 1;
    for t in 0..steps.len() {
        let before = out.len();
        let step = list(&steps, t).map_err(|p| at_step((t, p)))?;
        floats(&step, out);
        let found = out.len() - before;
        if t == 0 {
            classes = found;
        } else if found != classes {
            let what = format!(
                "{found} probabilities, but {classes} at step 1; give one per class at each step"
            );
            return Err(at_step((t, Problem::new(what))));
        }
    }
    Ok(classes)
}
