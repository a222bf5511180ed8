//! Series in arrays, as the classifiers read them.

use haltwise_prefix::Series;
use numpy::{PyReadonlyArray1, PyReadonlyArray3, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::failure::value_error;

/// Series, (n, time points, channels) and padded.
#[derive(FromPyObject)]
pub(crate) struct PaddedSeries<'py> {
    values: PyReadonlyArray3<'py, f32>,
    lengths: Option<PyReadonlyArray1<'py, u32>>,
}

impl PaddedSeries<'_> {
    pub(crate) fn series(&self) -> PyResult<Series<'_>> {
        let shape = self.values.shape();
        let (points, channels) = (shape[1], shape[2]);
        let values = self.values.as_slice().map_err(value_error)?;
        match &self.lengths {
            None => Series::new(values, points, channels),
            Some(lengths) => {
                let lengths = lengths.as_slice().map_err(value_error)?;
                Series::with_lengths(values, points, channels, lengths)
            }
        }
        .map_err(value_error)
    }
}
