//! Columns of Arrow arrays, whatever file they came from, as sequences.

use std::fmt::Display;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray, UInt64Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::{DataType, Schema};
use arrow_select::take::take;

use haltwise::Sequence;
use haltwise::traces::{About, Numbers};

use super::classes::Classes;
use super::columns::{Columns, PER_SEQUENCE, PER_STEP};
use super::intake::Intake;
use super::steps::{Step, Steps, Values, Whole};
use crate::problem::{Checked, Problem, listed};

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

/// Appends an array's numbers, whatever their type, as floats of this one.
macro_rules! append_numbers {
    ($array:expr, $out:expr, $to:ty) => {
        append_numbers!(@each $array, $out, $to,
            Int8 Int8Type, Int16 Int16Type, Int32 Int32Type, Int64 Int64Type,
            UInt8 UInt8Type, UInt16 UInt16Type, UInt32 UInt32Type, UInt64 UInt64Type,
            Float32 Float32Type, Float64 Float64Type)
    };
    (@each $array:expr, $out:expr, $to:ty, $($variant:ident $type:ident),*) => {
        match $array.data_type() {
            DataType::Float16 => {
                let values = $array.as_primitive::<Float16Type>().values();
                $out.extend(values.iter().map(|v| <$to>::from(v.to_f32())));
            }
            $(DataType::$variant => {
                let values = $array.as_primitive::<$type>().values();
                $out.extend(values.iter().map(|&v| v as $to));
            })*
            _ => {}
        }
    };
}

/// A problem with one of an array's values, counted from 0.
type At<T> = Result<T, (usize, Problem)>;

/// Reads batches of either layout.
pub(super) struct Batches {
    layout: Layout,
    /// The positions of the columns that are read; others are left alone.
    needed: Vec<usize>,
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
    numbers: Vec<f32>,
    scores: Vec<f32>,
    probs: Vec<f32>,
    losses: Vec<f32>,
    costs: Vec<f32>,
}

/// What a column holds.
#[derive(Clone, Copy)]
enum Kind {
    Id,
    Step,
    Label,
    Class,
    Float,
    Number,
    /// The name of a group or unit.
    Name,
    Probs,
}

impl Layout {
    /// Told by the columns' names.
    fn of(schema: &Schema) -> Result<Self, Problem> {
        let has = |name: &str| schema.column_with_name(name).is_some();
        let steps = has("id") && has("t") && has("score");
        if steps && (has("prediction") || has("loss")) {
            Ok(Self::PerStep(Steps::new("row")))
        } else if has("probs") || has("scores") && (has("predictions") || has("losses")) {
            Ok(Self::PerSequence(Buffers::default()))
        } else {
            Err(missing(schema))
        }
    }

    /// The columns that are read where they are there, what they hold, and
    /// whether it is lists.
    fn wanted<'c>(&self, columns: &'c Columns) -> Vec<(&'c str, Kind, bool)> {
        let (label, prediction) = match columns.numbers {
            true => (Kind::Number, Kind::Number),
            false => (Kind::Label, Kind::Class),
        };
        let mut wanted = vec![("id", Kind::Id, false), ("label", label, false)];
        let lists = matches!(self, Self::PerSequence(_));
        let losses = if lists {
            wanted.push(("predictions", prediction, true));
            wanted.push(("scores", Kind::Float, true));
            wanted.push(("probs", Kind::Probs, true));
            "losses"
        } else {
            wanted.push(("t", Kind::Step, false));
            wanted.push(("prediction", prediction, false));
            wanted.push(("score", Kind::Float, false));
            "loss"
        };
        wanted.extend(columns.losses.then_some((losses, Kind::Number, lists)));
        let texts = [columns.group_column(), columns.unit.as_deref()];
        wanted.extend(texts.into_iter().flatten().map(|n| (n, Kind::Name, false)));
        wanted.extend(columns.weight.as_deref().map(|n| (n, Kind::Number, false)));
        wanted.extend(columns.costs.as_deref().map(|n| (n, Kind::Number, lists)));
        wanted
    }
}

impl Batches {
    /// Tells the layout by the columns' names, and checks their types.
    pub(super) fn find(schema: &Schema, columns: &Columns) -> Result<Self, Problem> {
        let layout = Layout::of(schema)?;
        let names = match layout {
            Layout::PerSequence(_) => PER_SEQUENCE,
            Layout::PerStep(_) => PER_STEP,
        };
        columns.check(&names, schema.fields().iter().map(|f| f.name().as_str()))?;
        let mut needed = Vec::new();
        for (name, kind, lists) in layout.wanted(columns) {
            if let Some((place, field)) = schema.column_with_name(name) {
                check_type(kind, lists, field.data_type())
                    .map_err(|p| p.at(format_args!("column {name}")))?;
                needed.push(place);
            }
        }
        needed.sort_unstable();
        needed.dedup();
        Ok(Self {
            layout,
            needed,
            rows: 0,
        })
    }

    /// Counts rows from another than the first.
    pub(super) fn after(mut self, rows: u64) -> Self {
        self.rows = rows;
        self
    }

    /// Whether a row of such a file is a step, not a sequence.
    pub(super) fn has_row_per_step(schema: &Schema) -> bool {
        matches!(Layout::of(schema), Ok(Layout::PerStep(_)))
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
        matches!(self.layout, Layout::PerSequence(_)) && !schema.fields().iter().any(named)
    }

    /// The positions of the columns that are read.
    pub(super) fn needed(&self) -> &[usize] {
        &self.needed
    }

    /// Reads the next batch.
    pub(super) fn read(&mut self, batch: &RecordBatch, intake: &mut Intake<'_>) -> Checked {
        let before = self.rows;
        let read = match &mut self.layout {
            Layout::PerSequence(buffers) => read_sequences(batch, buffers, intake),
            Layout::PerStep(steps) => read_steps(batch, before, steps, intake),
        };
        self.rows += batch.num_rows() as u64;
        read.map_err(|(i, p)| p.at(format_args!("row {}", before + i as u64 + 1)))
    }

    /// Ends the file.
    pub(super) fn finish(self, intake: &mut Intake<'_>) -> Checked {
        match self.layout {
            Layout::PerSequence(_) => Ok(()),
            Layout::PerStep(steps) => steps.finish(intake),
        }
    }
}

fn missing(schema: &Schema) -> Problem {
    Problem::format(format_args!(
        "columns are missing; needed are either probs or predictions and scores (one row per \
         sequence), or id, t, prediction and score (one row per step), and label where it is \
         known; found are {}",
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

fn check_type(kind: Kind, lists: bool, data_type: &DataType) -> Checked {
    let plain = plain_type(data_type);
    let value = if lists { item_type(plain) } else { Some(plain) };
    let named = |t: &DataType| t.is_integer() || is_text(t);
    let sound = |t: &DataType| match kind {
        Kind::Id => named(t),
        Kind::Step => t.is_integer(),
        // A column in which no label is known may have no type.
        Kind::Label => named(t) || matches!(t, DataType::Boolean | DataType::Null),
        Kind::Class | Kind::Name => named(t) || *t == DataType::Boolean,
        Kind::Float => t.is_floating(),
        Kind::Number => t.is_floating() || t.is_integer(),
        Kind::Probs => item_type(t).is_some_and(DataType::is_floating),
    };
    if value.is_some_and(sound) {
        return Ok(());
    }
    let values = match kind {
        Kind::Id | Kind::Class => "integers or strings",
        Kind::Label => {
            "integers or strings, null where a label is missing (in pandas: .astype(\"Int64\")),"
        }
        Kind::Step => "integers",
        Kind::Float => "floats",
        Kind::Number => "numbers",
        Kind::Name => "strings, integers or booleans",
        Kind::Probs => "lists (one per step) of lists (one per class) of floats",
    };
    let of = match kind {
        Kind::Probs => "",
        _ if lists => "lists of ",
        _ => "",
    };
    Err(Problem::format(format_args!(
        "its type is {data_type}; {of}{values} are needed"
    )))
}

/// The column of this name, without a dictionary and without nulls.
fn column(batch: &RecordBatch, name: &str) -> At<Option<ArrayRef>> {
    let array = with_nulls(batch, name)?;
    if let Some(array) = &array {
        no_nulls(array).map_err(|(i, p)| (i, p.at(name)))?;
    }
    Ok(array)
}

/// The column of this name, without a dictionary.
fn with_nulls(batch: &RecordBatch, name: &str) -> At<Option<ArrayRef>> {
    let Some(array) = batch.column_by_name(name) else {
        return Ok(None);
    };
    plain(array).map(Some).map_err(|p| (0, p.at(name)))
}

fn needed_column(batch: &RecordBatch, name: &str) -> At<ArrayRef> {
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

/// What the rows of a batch say of their sequences as wholes.
struct Wholes {
    labels: Option<Vec<Option<u32>>>,
    /// The labels of a regression.
    numbers: Option<Vec<f32>>,
    groups: Option<StringArray>,
    units: Option<StringArray>,
    weights: Option<Vec<f64>>,
}

impl Wholes {
    fn read(batch: &RecordBatch, intake: &mut Intake<'_>) -> At<Self> {
        let columns = intake.columns;
        let text = |name: Option<&str>| {
            let array = name.map_or(Ok(None), |name| column(batch, name))?;
            At::Ok(array.map(|array| texts(&array)))
        };
        let (mut labels, mut numbers, mut weights) = (None, None, None);
        if columns.numbers {
            let mut values = Vec::new();
            floats(&needed_column(batch, "label")?, &mut values);
            numbers = Some(values);
        } else if let Some(array) = with_nulls(batch, "label")? {
            let read = known_labels(&array, &mut intake.classes);
            labels = Some(read.map_err(|(i, p)| (i, p.at("label")))?);
        }
        if let Some(name) = &columns.weight
            && let Some(array) = column(batch, name)?
        {
            let mut values = Vec::new();
            append_numbers!(array, values, f64);
            weights = Some(values);
        }
        Ok(Self {
            labels,
            numbers,
            groups: text(columns.group_column())?,
            units: text(columns.unit.as_deref())?,
            weights,
        })
    }

    fn of_row(&self, i: usize) -> Whole<'_> {
        Whole {
            label: self.labels.as_ref().and_then(|labels| labels[i]),
            number: self.numbers.as_ref().map(|numbers| numbers[i]),
            group: self.groups.as_ref().map(|groups| groups.value(i)),
            unit: self.units.as_ref().map(|units| units.value(i)),
            weight: self.weights.as_ref().map(|weights| weights[i]),
        }
    }
}

fn read_sequences(batch: &RecordBatch, buffers: &mut Buffers, intake: &mut Intake<'_>) -> At<()> {
    let columns = intake.columns;
    let ids = column(batch, "id")?.map(|ids| texts(&ids));
    let wholes = Wholes::read(batch, intake)?;
    let lists = |name: &str| {
        let lists = column(batch, name)?.map(Lists::numbers).transpose();
        lists.map_err(|(i, p)| (i, p.at(name)))
    };
    let (mut predictions, mut numbers) = (None, None);
    if columns.numbers {
        numbers = lists("predictions")?;
    } else {
        predictions = column(batch, "predictions")?
            .map(|lists| Lists::classes(lists, &mut intake.classes))
            .transpose()
            .map_err(|(i, p)| (i, p.at("predictions")))?;
    }
    let scores = lists("scores")?;
    let probs = column(batch, "probs")?;
    let asked = |name: Option<&str>| name.map_or(Ok(None), lists);
    let losses = asked(columns.losses.then_some("losses"))?;
    let costs = asked(columns.costs.as_deref())?;
    for i in 0..batch.num_rows() {
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
        let mut per_step = 1;
        if let Some(lists) = &probs {
            per_step = read_probs(lists, i, &mut buffers.probs).map_err(|p| here(p.at("probs")))?;
        }
        let row = wholes.of_row(i);
        let numbers = numbers_of(&numbers, "predictions", i, &mut buffers.numbers)?;
        let cost = columns.costs.as_deref().unwrap_or_default();
        intake
            .take(Sequence {
                id: ids.as_ref().map(|ids| ids.value(i)),
                label: row.label,
                predictions,
                scores: numbers_of(&scores, "scores", i, &mut buffers.scores)?,
                probs: probs.is_some().then_some((&buffers.probs[..], per_step)),
                numbers: numbers.and_then(|predictions| {
                    Some(Numbers {
                        predictions,
                        label: row.number?,
                    })
                }),
                losses: numbers_of(&losses, "losses", i, &mut buffers.losses)?,
                about: About {
                    group: row.group,
                    unit: row.unit,
                    weight: row.weight,
                    costs: numbers_of(&costs, cost, i, &mut buffers.costs)?,
                },
            })
            .map_err(here)?;
    }
    Ok(())
}

/// The numbers of a row, where there are lists of them.
fn numbers_of<'a>(
    lists: &'a Option<Lists<f32>>,
    name: &str,
    i: usize,
    buffer: &'a mut Vec<f32>,
) -> At<Option<&'a [f32]>> {
    let Some(lists) = lists else {
        return Ok(None);
    };
    let row = lists.of_row(i, buffer, |list, out| {
        floats(list, out);
        Ok(())
    });
    row.map(Some).map_err(|p| (i, p.at(name)))
}

fn read_steps(
    batch: &RecordBatch,
    before: u64,
    steps: &mut Steps,
    intake: &mut Intake<'_>,
) -> At<()> {
    let columns = intake.columns;
    let ids = texts(&needed_column(batch, "id")?);
    let mut t = Vec::new();
    over_integers!(&needed_column(batch, "t")?, step_numbers, &mut t).transpose()?;
    let wholes = Wholes::read(batch, intake)?;
    let numbers = |name: Option<&str>| {
        let array = name.map_or(Ok(None), |name| column(batch, name))?;
        At::Ok(array.map(|array| {
            let mut values: Vec<f32> = Vec::new();
            floats(&array, &mut values);
            values
        }))
    };
    let mut predictions = None;
    if let (Some(array), false) = (column(batch, "prediction")?, columns.numbers) {
        let mut values = Vec::new();
        classes(&array, &mut intake.classes, &mut values)
            .map_err(|(i, p)| (i, p.at("prediction")))?;
        predictions = Some(values);
    }
    let mut scores: Vec<f32> = Vec::new();
    floats(&needed_column(batch, "score")?, &mut scores);
    let predicted = numbers(columns.numbers.then_some("prediction"))?;
    let losses = numbers(columns.losses.then_some("loss"))?;
    let costs = numbers(columns.costs.as_deref())?;
    for i in 0..batch.num_rows() {
        let step = Step {
            id: ids.value(i),
            t: t[i],
            whole: wholes.of_row(i),
            values: Values {
                score: scores[i],
                prediction: predictions.as_ref().map(|values| values[i]),
                number: predicted.as_ref().map(|values| values[i]),
                loss: losses.as_ref().map(|values| values[i]),
                cost: costs.as_ref().map(|values| values[i]),
            },
        };
        steps
            .add(before + i as u64 + 1, step, &mut intake.memory)
            .map_err(|p| (i, p))?;
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

/// The array as text; its type was checked to be text, integers or booleans.
fn texts(array: &ArrayRef) -> StringArray {
    match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().values().iter();
            StringArray::from_iter_values(values.map(|bit| if bit { "true" } else { "false" }))
        }
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

/// The labels, of which some may be missing.
fn known_labels(array: &ArrayRef, known: &mut Classes) -> At<Vec<Option<u32>>> {
    let mut numbers = Vec::new();
    let Some(nulls) = array.logical_nulls().filter(|nulls| nulls.null_count() > 0) else {
        classes(array, known, &mut numbers)?;
        return Ok(numbers.into_iter().map(Some).collect());
    };
    let there: Vec<usize> = nulls.valid_indices().collect();
    let indices = UInt64Array::from_iter_values(there.iter().map(|&i| i as u64));
    let values = take(array, &indices, None);
    let values = values.map_err(|e| (0, Problem::format(&e).caused_by(e)))?;
    classes(&values, known, &mut numbers).map_err(|(i, p)| (there[i], p))?;
    let mut labels = vec![None; array.len()];
    for (i, number) in std::iter::zip(there, numbers) {
        labels[i] = Some(number);
    }
    Ok(labels)
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

/// Appends the array's numbers as floats of 32 bits; its type was checked.
fn floats(array: &ArrayRef, out: &mut Vec<f32>) {
    append_numbers!(array, out, f32);
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
    fn numbers(lists: ArrayRef) -> At<Self> {
        Self::new(lists, |values| {
            if let Some(values) = values.as_primitive_opt::<Float32Type>() {
                return Ok(values.values().clone());
            }
            let mut converted = Vec::new();
            floats(values, &mut converted);
            Ok(converted.into())
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
