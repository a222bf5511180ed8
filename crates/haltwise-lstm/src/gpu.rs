//! A network on a GPU, for the batches of training and scoring.

use crate::adam::corrected;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::heads::LossSums;
use crate::normalise::Normalisation;
use crate::score::Scores;
use crate::shape::Shape;
use crate::train::{Labelled, State, TrainOptions, prefixes_of};
use haltwise_cuda::{Batch, Gpu, Layout, Network, Scoring, Sizes};
use haltwise_series::Series;
use std::ops::Range;

/// A network on a GPU.
#[derive(Debug)]
pub(crate) struct GpuEngine {
    network: Network,
    shape: Shape,
    ordinal: usize,
    name: String,
}

/// The data of an epoch.
pub(crate) struct Pass<'a> {
    pub(crate) data: &'a Labelled<'a>,
    pub(crate) rows: &'a [usize],
    pub(crate) validation: &'a Labelled<'a>,
    pub(crate) validation_rows: &'a [usize],
    pub(crate) normalisation: &'a Normalisation,
    pub(crate) options: &'a TrainOptions,
}

pub(crate) fn layout(shape: &Shape) -> haltwise_cuda::Result<Layout> {
    Layout::new(Sizes {
        features: shape.features,
        hidden: shape.hidden,
        layers: shape.layers,
        classes: shape.classes,
        single_heads: shape.outputs() - shape.classes,
    })
}

impl GpuEngine {
    /// The GPU that `device` means for a network; `None` means the CPU. If [`Device::Auto`]
    /// does not use an existing GPU, the error says why.
    pub(crate) fn choose(device: Device, shape: &Shape) -> Result<(Option<Self>, Option<Error>)> {
        use haltwise_cuda::Error::{NoDriver, NoSuchGpu, TooLarge};
        let opened = match device {
            Device::Cuda(ordinal) => {
                let engine = Self::open(ordinal, shape).map_err(|e| failure(ordinal, e))?;
                return Ok((Some(engine), None));
            }
            Device::Auto if Device::worth_a_gpu(shape) => Self::open(0, shape),
            Device::Auto | Device::Cpu => return Ok((None, None)),
        };
        match opened {
            Ok(engine) => Ok((Some(engine), None)),
            Err(NoDriver | NoSuchGpu { .. } | TooLarge(_)) => Ok((None, None)),
            Err(error) => Ok((None, Some(failure(0, error)))),
        }
    }

    fn open(ordinal: usize, shape: &Shape) -> haltwise_cuda::Result<Self> {
        let layout = layout(shape)?;
        let gpu = Gpu::open(ordinal)?;
        let name = format!("{} (cuda:{ordinal})", gpu.name());
        Ok(GpuEngine {
            network: Network::new(gpu, layout)?,
            shape: *shape,
            ordinal,
            name,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Loads the weights of a model.
    pub(crate) fn load(&mut self, parameters: &[f32]) -> Result<()> {
        let loaded = self.network.set_parameters(parameters);
        loaded.map_err(|e| failure(self.ordinal, e))
    }

    /// Trains on all rows, then computes the loss of the validation part. The state changes
    /// only if the whole epoch succeeds.
    pub(crate) fn epoch(&mut self, pass: &Pass<'_>, state: &mut State) -> Result<(f64, LossSums)> {
        self.try_epoch(pass, state)
            .map_err(|e| failure(self.ordinal, e))
    }

    fn try_epoch(
        &mut self,
        pass: &Pass<'_>,
        state: &mut State,
    ) -> haltwise_cuda::Result<(f64, LossSums)> {
        let options = pass.options;
        let network = &mut self.network;
        network.set_parameters(&state.parameters)?;
        network.set_moments(&state.adam.first, &state.adam.second)?;
        network.take_loss()?;
        let mut steps = state.adam.steps;
        for rows in pass.rows.chunks(options.batch) {
            let weight = 1.0 / prefixes_of(&pass.data.series, rows) as f32;
            let longest = pass.data.series.steps();
            let together = network.capacity(rows.len(), longest, true).max(1);
            for (i, rows) in rows.chunks(together).enumerate() {
                let batch = fill(network, pass.data, rows, pass.normalisation, true)?;
                network.learn(&batch, options.gamma, weight, i > 0)?;
            }
            steps += 1;
            let (rate, scale) = corrected(options.learning_rate, steps);
            network.step(rate, scale)?;
        }
        let (loss, _) = network.take_loss()?;
        let (count, longest) = (pass.validation_rows.len(), pass.validation.series.steps());
        let together = network.capacity(count, longest, false).max(1);
        for rows in pass.validation_rows.chunks(together) {
            let batch = fill(network, pass.validation, rows, pass.normalisation, false)?;
            network.evaluate(&batch, options.gamma)?;
        }
        let (validation_loss, right) = network.take_loss()?;
        let mut adam = state.adam.clone();
        let mut parameters = vec![0.0; state.parameters.len()];
        network.parameters(&mut parameters)?;
        network.moments(&mut adam.first, &mut adam.second)?;
        adam.steps = steps;
        state.adam = adam;
        state.parameters = parameters;
        let sums = LossSums {
            loss: validation_loss,
            right,
        };
        Ok((loss, sums))
    }

    /// How many of `sequences` sequences of up to `steps` steps are scored together.
    pub(crate) fn together(&self, sequences: usize, steps: usize) -> usize {
        self.network.capacity(sequences, steps, false).max(1)
    }

    /// Starts to score every prefix of the sequences `rows`. At most two may be in
    /// progress.
    pub(crate) fn start(
        &mut self,
        series: &Series<'_>,
        rows: Range<usize>,
        normalisation: &Normalisation,
    ) -> Result<Started> {
        let mut start = || {
            let mut batch = self.network.batch(rows.len(), series.steps(), false)?;
            place(&mut batch, series, normalisation, |p| (rows.start + p, 0));
            self.network.start_scoring(&batch)
        };
        let scoring = start().map_err(|e| failure(self.ordinal, e))?;
        Ok(Started { rows, scoring })
    }

    /// Returns the outputs of the network for every prefix of the sequences that were
    /// started.
    pub(crate) fn finish(&self, started: Started, series: &Series<'_>) -> Result<Scores> {
        let Started { rows, scoring } = started;
        let scored = self.network.finish_scoring(scoring);
        let scored = scored.map_err(|e| failure(self.ordinal, e))?;
        Ok(Scores {
            first: rows.start,
            lengths: rows.map(|r| series.length(r)).collect(),
            steps: series.steps(),
            classes: self.shape.classes,
            probabilities: scored.probabilities,
            predictions: scored.predictions.iter().map(|&p| p as u32).collect(),
            confidence: scored.confidence,
            gap: scored.gap,
        })
    }
}

/// Sequences that are being scored.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) rows: Range<usize>,
    scoring: Scoring,
}

fn failure(ordinal: usize, error: haltwise_cuda::Error) -> Error {
    Error::Gpu {
        ordinal,
        source: error.into(),
    }
}

/// Puts the sequences `rows` into the GPU's layout, with as many steps as the longest has.
fn fill(
    network: &Network,
    data: &Labelled<'_>,
    rows: &[usize],
    normalisation: &Normalisation,
    backward: bool,
) -> haltwise_cuda::Result<Batch> {
    let steps = rows.iter().map(|&r| data.series.length(r)).max();
    let mut batch = network.batch(rows.len(), steps.unwrap_or(0), backward)?;
    place(&mut batch, &data.series, normalisation, |p| {
        (rows[p], data.labels[rows[p]])
    });
    Ok(batch)
}

/// Puts sequences into a batch: `of(place)` is the row and the label of each.
fn place(
    batch: &mut Batch,
    series: &Series<'_>,
    normalisation: &Normalisation,
    of: impl Fn(usize) -> (usize, u32),
) {
    let features = series.features();
    let length = |place: usize| {
        let (row, label) = of(place);
        (series.length(row), label)
    };
    batch.set(length, |place, step, feature| {
        let values = series.sequence(of(place).0);
        normalisation.apply(feature, values[step * features + feature])
    });
}

#[cfg(test)]
mod tests;
