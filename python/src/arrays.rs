//! NumPy arrays as sequences, without a copy of contiguous rows.
//!
//! Arrays of any float or integer type are read in place. A row goes through a
//! buffer if it is not contiguous, or its type differs from the heart's. Rows then
//! pass the same checks as those of a file.

use std::ops::{BitAnd, BitOr, Range};

use half::f16;
use haltwise::Sequence;
use haltwise::corridor::{CalibrateError, Fold};
use haltwise::traces::{About, Key, Numbers, Trace};
use haltwise_io::{Take, fold_given, visit_given};
use numpy::ndarray::{ArrayView, ArrayView1, ArrayView2, Axis, Dimension, Ix1, Ix2, Ix3};
use numpy::{PyReadonlyArray, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::failure::{Failure, check_signals, value_error};

/// How many rows pass between two checks for signals.
const ROWS_BETWEEN_SIGNALS: usize = 4096;

/// The attributes of a `haltwise.Traces`.
#[derive(FromPyObject)]
pub(crate) struct Arrays<'py> {
    /// -1 if a label is missing.
    labels: PyReadonlyArray1<'py, i64>,
    predictions: Option<Integers<'py>>,
    scores: Option<Floats<'py, Ix2>>,
    probs: Option<Floats<'py, Ix3>>,
    lengths: Option<PyReadonlyArray1<'py, u32>>,
    ids: Option<Vec<String>>,
    /// What a regression predicted, and the truth.
    numbers: Option<Floats<'py, Ix2>>,
    truth: Option<PyReadonlyArray1<'py, f32>>,
    losses: Option<Floats<'py, Ix2>>,
    groups: Option<Vec<String>>,
    units: Option<Vec<String>>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    costs: Option<Floats<'py, Ix2>>,
}

/// Floats of any width.
pub(crate) enum Floats<'py, D: Dimension> {
    F32(PyReadonlyArray<'py, f32, D>),
    F64(PyReadonlyArray<'py, f64, D>),
    F16(PyReadonlyArray<'py, f16, D>),
}

/// Integers of any width, and booleans.
#[derive(FromPyObject)]
pub(crate) enum Integers<'py> {
    I64(PyReadonlyArray2<'py, i64>),
    I32(PyReadonlyArray2<'py, i32>),
    I16(PyReadonlyArray2<'py, i16>),
    I8(PyReadonlyArray2<'py, i8>),
    U64(PyReadonlyArray2<'py, u64>),
    U32(PyReadonlyArray2<'py, u32>),
    U16(PyReadonlyArray2<'py, u16>),
    U8(PyReadonlyArray2<'py, u8>),
    Bool(PyReadonlyArray2<'py, bool>),
}

/// The same arrays, readable without the interpreter.
pub(crate) struct Views<'a> {
    labels: ArrayView1<'a, i64>,
    predictions: Option<IntegersView<'a>>,
    scores: Option<FloatsView<'a, Ix2>>,
    probs: Option<FloatsView<'a, Ix3>>,
    lengths: Option<ArrayView1<'a, u32>>,
    ids: Option<&'a [String]>,
    numbers: Option<FloatsView<'a, Ix2>>,
    truth: Option<ArrayView1<'a, f32>>,
    losses: Option<FloatsView<'a, Ix2>>,
    groups: Option<&'a [String]>,
    units: Option<&'a [String]>,
    weights: Option<ArrayView1<'a, f64>>,
    costs: Option<FloatsView<'a, Ix2>>,
    steps: usize,
}

pub(crate) enum FloatsView<'a, D: Dimension> {
    F32(ArrayView<'a, f32, D>),
    F64(ArrayView<'a, f64, D>),
    F16(ArrayView<'a, f16, D>),
}

enum IntegersView<'a> {
    I64(ArrayView2<'a, i64>),
    I32(ArrayView2<'a, i32>),
    I16(ArrayView2<'a, i16>),
    I8(ArrayView2<'a, i8>),
    U64(ArrayView2<'a, u64>),
    U32(ArrayView2<'a, u32>),
    U16(ArrayView2<'a, u16>),
    U8(ArrayView2<'a, u8>),
    Bool(ArrayView2<'a, bool>),
}

// Not derived: the derived code would also require the dimension to come from Python.
impl<'py, D: Dimension> FromPyObject<'_, 'py> for Floats<'py, D> {
    type Error = PyErr;

    fn extract(array: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = array.extract() {
            return Ok(Self::F32(array));
        }
        if let Ok(array) = array.extract() {
            return Ok(Self::F64(array));
        }
        Ok(Self::F16(array.extract()?))
    }
}

impl<D: Dimension> Floats<'_, D> {
    pub(crate) fn view(&self) -> FloatsView<'_, D> {
        match self {
            Self::F32(array) => FloatsView::F32(array.as_array()),
            Self::F64(array) => FloatsView::F64(array.as_array()),
            Self::F16(array) => FloatsView::F16(array.as_array()),
        }
    }
}

impl Integers<'_> {
    fn view(&self) -> IntegersView<'_> {
        match self {
            Self::I64(array) => IntegersView::I64(array.as_array()),
            Self::I32(array) => IntegersView::I32(array.as_array()),
            Self::I16(array) => IntegersView::I16(array.as_array()),
            Self::I8(array) => IntegersView::I8(array.as_array()),
            Self::U64(array) => IntegersView::U64(array.as_array()),
            Self::U32(array) => IntegersView::U32(array.as_array()),
            Self::U16(array) => IntegersView::U16(array.as_array()),
            Self::U8(array) => IntegersView::U8(array.as_array()),
            Self::Bool(array) => IntegersView::Bool(array.as_array()),
        }
    }
}

impl<D: Dimension> FloatsView<'_, D> {
    pub(crate) fn shape(&self) -> &[usize] {
        match self {
            Self::F32(view) => view.shape(),
            Self::F64(view) => view.shape(),
            Self::F16(view) => view.shape(),
        }
    }
}

impl FloatsView<'_, Ix1> {
    pub(crate) fn to_vec(&self) -> Vec<f32> {
        match self {
            Self::F32(view) => view.to_vec(),
            Self::F64(view) => view.iter().map(|&v| v as f32).collect(),
            Self::F16(view) => view.iter().map(|v| v.to_f32()).collect(),
        }
    }
}

impl FloatsView<'_, Ix2> {
    /// The first `steps` numbers of a row: in place if possible, else in the
    /// buffer.
    pub(crate) fn row<'b>(&'b self, i: usize, steps: usize, buffer: &'b mut Vec<f32>) -> &'b [f32] {
        buffer.clear();
        match self {
            Self::F32(view) => match view.row(i).to_slice() {
                Some(row) => return &row[..steps],
                None => buffer.extend(view.row(i).iter().take(steps)),
            },
            Self::F64(view) => buffer.extend(view.row(i).iter().take(steps).map(|&v| v as f32)),
            Self::F16(view) => {
                buffer.extend(view.row(i).iter().take(steps).map(|v| v.to_f32()));
            }
        }
        buffer
    }
}

impl FloatsView<'_, Ix3> {
    /// The numbers of the first `steps` steps of a row, copied.
    fn row_into(&self, i: usize, steps: usize, buffer: &mut Vec<f32>) {
        fn copy<T: Copy>(
            view: &ArrayView<'_, T, Ix3>,
            i: usize,
            steps: usize,
            buffer: &mut Vec<f32>,
            to_f32: impl Fn(T) -> f32,
        ) {
            let row = view.index_axis(Axis(0), i);
            buffer.clear();
            for step in row.outer_iter().take(steps) {
                buffer.extend(step.iter().map(|&v| to_f32(v)));
            }
        }
        match self {
            Self::F32(view) => copy(view, i, steps, buffer, |v| v),
            Self::F64(view) => copy(view, i, steps, buffer, |v| v as f32),
            Self::F16(view) => copy(view, i, steps, buffer, f16::to_f32),
        }
    }
}

/// Runs a function over the view, whatever its type.
macro_rules! over_integers {
    ($self:expr, $view:ident => $body:expr) => {
        match $self {
            IntegersView::I64($view) => $body,
            IntegersView::I32($view) => $body,
            IntegersView::I16($view) => $body,
            IntegersView::I8($view) => $body,
            IntegersView::U64($view) => $body,
            IntegersView::U32($view) => $body,
            IntegersView::U16($view) => $body,
            IntegersView::U8($view) => $body,
            IntegersView::Bool($view) => $body,
        }
    };
}

impl IntegersView<'_> {
    fn shape(&self) -> &[usize] {
        over_integers!(self, view => view.shape())
    }

    /// The first `steps` classes of a row: in place where they can be, else in the buffer. An
    /// error is the place of one that is none.
    fn row<'b>(
        &'b self,
        i: usize,
        steps: usize,
        buffer: &'b mut Vec<u32>,
    ) -> Result<&'b [u32], String> {
        if let Self::U32(view) = self
            && let Some(row) = view.row(i).to_slice()
        {
            return Ok(&row[..steps]);
        }
        let found = over_integers!(self, view => {
            let row = view.row(i);
            match row.to_slice() {
                Some(row) => classes(&row[..steps], buffer),
                None => {
                    let row: Vec<_> = row.iter().take(steps).copied().collect();
                    classes(&row, buffer)
                }
            }
        });
        match found {
            Ok(()) => Ok(buffer),
            Err((t, found)) => Err(format!(
                "row {}, predictions, step {}: {found} is not a class; classes are integers \
                 from 0 to {}",
                i + 1,
                t + 1,
                u32::MAX
            )),
        }
    }
}

/// An integer that may be a class.
trait Integer: Copy + Default + PartialEq + Into<i128>
where
    Self: BitAnd<Output = Self> + BitOr<Output = Self>,
{
    /// The bits that a class does not have.
    const MORE: Self;

    /// Its lowest 32 bits.
    fn class(self) -> u32;
}

macro_rules! integer {
    ($($type:ty: $more:expr;)*) => {$(
        impl Integer for $type {
            const MORE: Self = $more;

            #[inline(always)]
            fn class(self) -> u32 {
                self as u32
            }
        }
    )*};
}

integer! {
    i64: !0xffff_ffff;
    i32: i32::MIN;
    i16: i16::MIN;
    i8: i8::MIN;
    u64: !0xffff_ffff;
    u32: 0;
    u16: 0;
    u8: 0;
    bool: false;
}

/// Numbers as classes; an error is the first that is none, and its place.
fn classes<T: Integer>(numbers: &[T], buffer: &mut Vec<u32>) -> Result<(), (usize, i128)> {
    buffer.resize(numbers.len(), 0);
    let mut more = T::default();
    // No early exit, so that the loop runs as wide as the processor does.
    for (class, &number) in std::iter::zip(&mut *buffer, numbers) {
        *class = number.class();
        more = more | (number & T::MORE);
    }
    if more == T::default() {
        return Ok(());
    }
    let mut numbers = numbers.iter().map(|&number| number.into()).enumerate();
    match numbers.find(|(_, number)| u32::try_from(*number).is_err()) {
        Some(found) => Err(found),
        None => Ok(()),
    }
}

impl Arrays<'_> {
    /// The arrays without Python. Refuses shapes that do not fit together.
    pub(crate) fn views(&self) -> PyResult<Views<'_>> {
        let mut views = Views {
            labels: self.labels.as_array(),
            predictions: self.predictions.as_ref().map(Integers::view),
            scores: self.scores.as_ref().map(Floats::view),
            probs: self.probs.as_ref().map(Floats::view),
            lengths: self.lengths.as_ref().map(|array| array.as_array()),
            ids: self.ids.as_deref(),
            numbers: self.numbers.as_ref().map(Floats::view),
            truth: self.truth.as_ref().map(|array| array.as_array()),
            losses: self.losses.as_ref().map(Floats::view),
            groups: self.groups.as_deref(),
            units: self.units.as_deref(),
            weights: self.weights.as_ref().map(|array| array.as_array()),
            costs: self.costs.as_ref().map(Floats::view),
            steps: 0,
        };
        views.steps = views.check_shapes().map_err(value_error)?;
        Ok(views)
    }
}

impl Views<'_> {
    /// Returns the number of steps.
    fn check_shapes(&self) -> Result<usize, String> {
        let rows = self.labels.len();
        let texts = |texts: Option<&[String]>| texts.map(|texts| [texts.len()]);
        let (ids, groups, units) = (texts(self.ids), texts(self.groups), texts(self.units));
        let named: [(&str, Option<&[usize]>); 11] = [
            ("predictions", self.predictions.as_ref().map(|v| v.shape())),
            ("scores", self.scores.as_ref().map(|v| v.shape())),
            ("probs", self.probs.as_ref().map(|v| v.shape())),
            ("predictions", self.numbers.as_ref().map(|v| v.shape())),
            ("losses", self.losses.as_ref().map(|v| v.shape())),
            ("cost", self.costs.as_ref().map(|v| v.shape())),
            ("lengths", self.lengths.as_ref().map(|v| v.shape())),
            ("ids", ids.as_ref().map(|n| &n[..])),
            ("by", groups.as_ref().map(|n| &n[..])),
            ("unit", units.as_ref().map(|n| &n[..])),
            ("weight", self.weights.as_ref().map(|v| v.shape())),
        ];
        let mut steps: Option<(&str, usize)> = None;
        for (name, shape) in named {
            let Some(shape) = shape else { continue };
            if shape[0] != rows {
                return Err(match name {
                    "ids" => format!("{rows} labels but {} ids", shape[0]),
                    _ => format!(
                        "{rows} labels but {} rows of {name}; each sequence needs one of each",
                        shape[0]
                    ),
                });
            }
            let Some(&here) = shape.get(1) else { continue };
            match steps {
                Some((other, there)) if there != here => {
                    return Err(format!(
                        "{name} has {here} steps but {other} has {there}; each step needs one of \
                         each"
                    ));
                }
                _ => steps = Some((name, here)),
            }
        }
        let steps = steps.map_or(0, |(_, steps)| steps);
        let lengths = self.lengths.iter().flat_map(|lengths| lengths.iter());
        for (i, &length) in lengths.enumerate() {
            if length as usize > steps {
                return Err(format!(
                    "row {}, lengths: {length} is more than the {steps} steps of the arrays",
                    i + 1
                ));
            }
        }
        Ok(steps)
    }

    /// How many steps a row has.
    fn length(&self, i: usize) -> usize {
        let lengths = self.lengths.as_ref();
        lengths.map_or(self.steps, |lengths| lengths[i] as usize)
    }

    /// Shows the rows to a visitor, checked and complete.
    pub(crate) fn visit(
        &self,
        visit: &mut dyn FnMut(&Trace<'_>) -> Result<(), String>,
    ) -> Result<(), Failure> {
        let rows = self.labels.len();
        visit_given(
            |take| {
                for first in (0..rows).step_by(ROWS_BETWEEN_SIGNALS) {
                    check_signals()?;
                    self.feed(first..rows.min(first + ROWS_BETWEEN_SIGNALS), take)?;
                }
                Ok(())
            },
            visit,
        )
    }

    /// Shows them, each with its row, to visitors on all cores.
    pub(crate) fn visit_all<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, u64, &Trace<'_>) -> Result<(), String> + Sync,
    ) -> Result<Vec<S>, Failure> {
        let mut going_on = || Ok(check_signals()?);
        let feed = |rows, take: &mut Take<'_>| self.feed(rows, take);
        fold_given(self.labels.len(), &mut going_on, start, feed, visit)
    }

    fn feed(&self, rows: Range<usize>, take: &mut Take<'_>) -> Result<(), Failure> {
        let (mut classes, mut scores, mut probs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut numbers, mut losses, mut costs) = (Vec::new(), Vec::new(), Vec::new());
        for i in rows {
            let label = self.labels[i];
            let steps = self.length(i);
            let predictions = match &self.predictions {
                Some(view) => Some(view.row(i, steps, &mut classes)?),
                None => None,
            };
            if let Some(view) = &self.probs {
                view.row_into(i, steps, &mut probs);
            }
            take(Sequence {
                id: self.ids.map(|ids| ids[i].as_str()),
                label: u32::try_from(label).ok(),
                predictions,
                scores: self
                    .scores
                    .as_ref()
                    .map(|view| view.row(i, steps, &mut scores)),
                probs: self
                    .probs
                    .as_ref()
                    .map(|view| (&probs[..], view.shape()[2])),
                numbers: self.numbers.as_ref().and_then(|view| {
                    Some(Numbers {
                        predictions: view.row(i, steps, &mut numbers),
                        label: self.truth.as_ref()?[i],
                    })
                }),
                losses: self
                    .losses
                    .as_ref()
                    .map(|view| view.row(i, steps, &mut losses)),
                class_names: None,
                about: About {
                    group: self.groups.map(|groups| groups[i].as_str()),
                    unit: self.units.map(|units| units[i].as_str()),
                    weight: self.weights.as_ref().map(|weights| weights[i]),
                    costs: self
                        .costs
                        .as_ref()
                        .map(|view| view.row(i, steps, &mut costs)),
                },
            })?;
        }
        Ok(())
    }
}

impl Fold for Views<'_> {
    type Error = Failure;

    fn refuse(&self, error: CalibrateError) -> Failure {
        Failure::Value(error.to_string())
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, Failure> {
        self.visit_all(start, |state, position, trace| {
            let key = Key::new(trace.id(), position);
            visit(state, key, trace).map_err(|e| e.to_string())
        })
    }
}
