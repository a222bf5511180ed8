//! Replaces `gpu.rs` in builds without GPUs.

use crate::device::Device;
use crate::error::{Error, Result};
use crate::heads::LossSums;
use crate::normalise::Normalisation;
use crate::score::Scores;
use crate::shape::Shape;
use crate::train::{Labelled, State, TrainOptions};
use haltwise_series::Series;
use std::ops::Range;

/// A type without values.
#[derive(Debug)]
pub(crate) enum GpuEngine {}

#[allow(dead_code)] // nobody reads it
pub(crate) struct Pass<'a> {
    pub(crate) data: &'a Labelled<'a>,
    pub(crate) rows: &'a [usize],
    pub(crate) validation: &'a Labelled<'a>,
    pub(crate) validation_rows: &'a [usize],
    pub(crate) normalisation: &'a Normalisation,
    pub(crate) options: &'a TrainOptions,
}

impl GpuEngine {
    pub(crate) fn choose(device: Device, _: &Shape) -> Result<(Option<Self>, Option<Error>)> {
        match device {
            Device::Auto | Device::Cpu => Ok((None, None)),
            Device::Cuda(ordinal) => Err(Error::Gpu {
                ordinal,
                source: "this program was built without the feature `cuda`".into(),
            }),
        }
    }

    pub(crate) fn name(&self) -> &str {
        match *self {}
    }

    pub(crate) fn load(&mut self, _: &[f32]) -> Result<()> {
        match *self {}
    }

    pub(crate) fn epoch(&mut self, _: &Pass<'_>, _: &mut State) -> Result<(f64, LossSums)> {
        match *self {}
    }

    pub(crate) fn together(&self, _: usize, _: usize) -> usize {
        match *self {}
    }

    pub(crate) fn start(
        &mut self,
        _: &Series<'_>,
        _: Range<usize>,
        _: &Normalisation,
    ) -> Result<Started> {
        match *self {}
    }

    pub(crate) fn finish(&self, _: Started, _: &Series<'_>) -> Result<Scores> {
        match *self {}
    }
}

#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) rows: Range<usize>,
}
