//! The values of Arrow arrays of any type: numbers, texts, classes, and lists of them.

use std::fmt::Display;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, StringArray, UInt64Array};
use arrow_buffer::{ArrowNativeType, ScalarBuffer};
use arrow_schema::DataType;
use arrow_select::take::take;

use super::classes::Classes;
use crate::problem::Problem;

/// Runs a function over an array of integers of any width; `None` if the array holds
/// something else.
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

/// Appends an array's numbers of any type, as floats of this type.
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
pub(super) type At<T> = Result<T, (usize, Problem)>;

/// The type behind a dictionary.
pub(super) fn plain_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// The type of a list's values.
pub(super) fn item_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(plain_type(item.data_type())),
        _ => None,
    }
}

pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    )
}

/// Replaces a dictionary by its values.
pub(super) fn plain(array: &ArrayRef) -> Result<ArrayRef, Problem> {
    match array.as_any_dictionary_opt() {
        None => Ok(ArrayRef::clone(array)),
        Some(dictionary) => take(dictionary.values(), dictionary.keys(), None)
            .map_err(|e| Problem::format(&e).caused_by(e)),
    }
}

pub(super) fn no_nulls(array: &dyn Array) -> At<()> {
    if array.null_count() == 0 {
        return Ok(());
    }
    let first = (0..array.len()).find(|&i| array.is_null(i));
    Err((
        first.unwrap_or_default(),
        Problem::new("the value is null; fill it in or drop the row"),
    ))
}

/// Appends the array's steps; its type was checked to be integers.
pub(super) fn steps(array: &ArrayRef, out: &mut Vec<u64>) -> At<()> {
    over_integers!(array, step_numbers, out).unwrap_or(Ok(()))
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
pub(super) fn texts(array: &ArrayRef) -> StringArray {
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

/// The labels, some of which may be missing.
pub(super) fn known_labels(array: &ArrayRef, known: &mut Classes) -> At<Vec<Option<u32>>> {
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
pub(super) fn classes(array: &ArrayRef, known: &mut Classes, out: &mut Vec<u32>) -> At<()> {
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

/// Appends the array's numbers in double precision; its type was checked.
pub(super) fn doubles(array: &ArrayRef, out: &mut Vec<f64>) {
    append_numbers!(array, out, f64);
}

/// Appends the array's numbers as floats of 32 bits; its type was checked.
pub(super) fn floats(array: &ArrayRef, out: &mut Vec<f32>) {
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

pub(super) fn at_step((t, problem): (usize, Problem)) -> Problem {
    problem.at(format_args!("step {}", t + 1))
}

/// A column of lists.
pub(super) enum Lists<T: ArrowNativeType> {
    /// The values of all rows, one after the other, and where each row starts.
    Flat(ScalarBuffer<T>, Vec<usize>),
    /// Lists that may lie anywhere, overlap or repeat.
    Scattered(ArrayRef),
}

impl Lists<u32> {
    pub(super) fn classes(lists: ArrayRef, known: &mut Classes) -> At<Self> {
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
    pub(super) fn numbers(lists: ArrayRef) -> At<Self> {
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
    /// Converts the values of all rows at once if they are contiguous: an array per list
    /// would cost more than most lists themselves.
    fn new(lists: ArrayRef, convert: impl FnOnce(&ArrayRef) -> At<ScalarBuffer<T>>) -> At<Self> {
        let Some((values, starts)) = flat(&lists) else {
            return Ok(Self::Scattered(lists));
        };
        // The first wrong value is at this step of this row.
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
    pub(super) fn of_row<'a>(
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

/// The values of consecutive lists, and where each starts; `None` for lists in any other
/// arrangement.
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
pub(super) fn read_probs(lists: &ArrayRef, i: usize, out: &mut Vec<f32>) -> Result<usize, Problem> {
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
