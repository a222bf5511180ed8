//! Training: epochs of Adam until the validation loss stops improving.

use crate::adam::Adam;
use crate::block::{Block, Blocks};
use crate::device::Device;
use crate::engine::{Engine, Gradients};
use crate::error::{Error, Result};
use crate::gpu::{GpuEngine, Pass};
use crate::heads::LossSums;
use crate::model::{Model, TrainingRecord, initial_parameters};
use crate::normalise::Normalisation;
use crate::shape::Shape;
use crate::simd::SIMD_WIDTH;
use haltwise_series::seen::hashes_to_keep;
use haltwise_series::{Fnv, Random, Series};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;

/// How to train. The defaults are the paper's, except `normalise`: the paper reads raw
/// values, which suits its datasets, but not badly scaled ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainOptions {
    /// Units per recurrent layer.
    pub hidden: usize,
    /// Recurrent layers.
    pub layers: usize,
    /// Whether to train the third head, which estimates the gap.
    pub gap_head: bool,
    /// The weight γ of the binary losses relative to the cross-entropy.
    pub gamma: f32,
    /// Adam's learning rate.
    pub learning_rate: f64,
    /// Sequences per step.
    pub batch: usize,
    /// Epochs without improvement after which to stop.
    pub patience: usize,
    /// Epochs after which to stop in any case.
    pub max_epochs: usize,
    /// The part of the sequences set aside for validation, if there is no validation set.
    pub validation_fraction: f64,
    /// Whether to scale every feature to mean 0 and deviation 1.
    pub normalise: bool,
    /// Decides the split, the first weights and the order of the sequences.
    pub seed: u64,
}

impl Default for TrainOptions {
    fn default() -> Self {
        TrainOptions {
            hidden: 32,
            layers: 1,
            gap_head: false,
            gamma: 0.2,
            learning_rate: 1e-3,
            batch: 64,
            patience: 30,
            max_epochs: 10_000,
            validation_fraction: 0.125,
            normalise: true,
            seed: 0,
        }
    }
}

impl TrainOptions {
    fn check(&self) -> Result<()> {
        let refuse = |message: &str| Err(Error::Option(message.into()));
        if self.batch == 0 || self.patience == 0 || self.max_epochs == 0 {
            return refuse("batch, patience and max_epochs must each be at least 1");
        }
        if !(self.gamma.is_finite() && self.gamma >= 0.0) {
            return refuse("gamma must be a number of at least 0");
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return refuse("the learning rate must be a positive number");
        }
        if !(self.validation_fraction > 0.0 && self.validation_fraction < 1.0) {
            return refuse("validation_fraction must lie between 0 and 1");
        }
        Ok(())
    }
}

/// Sequences with their labels.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    pub(crate) series: Series<'a>,
    pub(crate) labels: &'a [u32],
}

impl<'a> Labelled<'a> {
    /// One label per sequence.
    pub fn new(series: Series<'a>, labels: &'a [u32]) -> Result<Self> {
        if labels.len() != series.len() {
            return Err(Error::Size(format!(
                "{} labels for {} sequences",
                labels.len(),
                series.len()
            )));
        }
        series.check_complete()?;
        Ok(Labelled { series, labels })
    }

    fn check(&self, classes: usize) -> Result<()> {
        match self.labels.iter().position(|l| *l as usize >= classes) {
            None => Ok(()),
            Some(sequence) => Err(Error::Label {
                sequence,
                label: self.labels[sequence],
                classes,
            }),
        }
    }
}

/// The results of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Epoch {
    /// Its number, from 1.
    pub epoch: usize,
    /// The mean loss per prefix while training.
    pub train_loss: f64,
    /// The mean loss per prefix on the validation part, afterwards.
    pub validation_loss: f64,
    /// The accuracy of the full predictions on the validation part.
    pub validation_accuracy: f64,
    /// Whether this is the best epoch so far.
    pub best: bool,
}

/// Everything that changes while training and that resuming needs.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) parameters: Vec<f32>,
    pub(crate) adam: Adam,
    pub(crate) best_parameters: Vec<f32>,
    pub(crate) best: Option<Epoch>,
    pub(crate) epochs: usize,
}

/// A training run, one epoch at a time.
///
/// ```
/// # use haltwise_lstm::{Labelled, Series, TrainOptions, Trainer};
/// # fn main() -> Result<(), haltwise_lstm::Error> {
/// let values: Vec<f32> = (0..40 * 5).map(|i| (i / 5 % 2) as f32).collect();
/// let labels: Vec<u32> = (0..40).map(|i| i % 2).collect();
/// let data = Labelled::new(Series::new(&values, 5, 1)?, &labels)?;
/// let options = TrainOptions { hidden: 4, max_epochs: 3, ..TrainOptions::default() };
/// let mut trainer = Trainer::new(data, None, vec!["low".into(), "high".into()], options)?;
/// while let Some(epoch) = trainer.epoch()? {
///     println!("{}: {:.3}", epoch.epoch, epoch.validation_loss);
/// }
/// let model = trainer.model()?;
/// # assert_eq!(model.shape().hidden, 4);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Trainer<'a> {
    data: Labelled<'a>,
    validation: Labelled<'a>,
    train_rows: Vec<usize>,
    validation_rows: Vec<usize>,
    classes: Vec<String>,
    normalisation: Normalisation,
    pub(crate) options: TrainOptions,
    pub(crate) shape: Shape,
    pub(crate) state: State,
    /// Hashes of the sequences, for the model to remember.
    seen: Vec<u64>,
    workers: Workers,
    device: Device,
    gpu: Option<GpuEngine>,
    given_up: Option<Error>,
}

impl<'a> Trainer<'a> {
    /// Prepares a run on `data`. Without a `validation` set, a part of the data, drawn by
    /// the seed, is set aside as one.
    pub fn new(
        data: Labelled<'a>,
        validation: Option<Labelled<'a>>,
        classes: Vec<String>,
        options: TrainOptions,
    ) -> Result<Self> {
        options.check()?;
        let shape = Shape {
            features: data.series.features(),
            hidden: options.hidden,
            layers: options.layers,
            classes: classes.len(),
            gap_head: options.gap_head,
        };
        shape.check()?;
        data.check(classes.len())?;
        check_two_labels(data.labels)?;
        if let Some(validation) = &validation {
            validation.check(classes.len())?;
            if validation.series.features() != shape.features {
                return Err(Error::Size(format!(
                    "the validation sequences have {} features, the training sequences {}",
                    validation.series.features(),
                    shape.features
                )));
            }
        }
        let (train_rows, validation_rows) = match &validation {
            Some(set) => (
                (0..data.series.len()).collect(),
                (0..set.series.len()).collect(),
            ),
            None => split(data.series.len(), &options)?,
        };
        let normalisation = if options.normalise {
            Normalisation::measure(&data.series, &train_rows)
        } else {
            Normalisation::identity(shape.features)
        };
        let parameters = initial_parameters(&shape, options.seed);
        let workers = Workers::new(&shape, options.batch.min(train_rows.len()));
        let state = State {
            adam: Adam::new(&shape),
            best_parameters: parameters.clone(),
            parameters,
            best: None,
            epochs: 0,
        };
        let judges = validation.unwrap_or(data);
        let trained = train_rows.iter().map(|&row| data.series.hash(row));
        let validated = validation_rows.iter().map(|&row| judges.series.hash(row));
        let seen = hashes_to_keep(trained.chain(validated));
        Ok(Trainer {
            data,
            validation: judges,
            seen,
            train_rows,
            validation_rows,
            classes,
            normalisation,
            workers,
            options,
            shape,
            state,
            device: Device::Cpu,
            gpu: None,
            given_up: None,
        })
    }

    /// Chooses where to compute; the default is the CPU. The same sequences in the same
    /// order lead to an equally good model, but not to the same bits. With
    /// [`Device::Auto`], if a GPU fails, the CPU repeats the epoch.
    pub fn on(mut self, device: Device) -> Result<Self> {
        self.device = device;
        (self.gpu, self.given_up) = GpuEngine::choose(device, &self.shape)?;
        Ok(self)
    }

    /// The GPU in use, by name; `None` on the CPU.
    pub fn gpu(&self) -> Option<&str> {
        self.gpu.as_ref().map(GpuEngine::name)
    }

    /// Why the GPU was given up, if it was.
    pub fn given_up(&self) -> Option<&Error> {
        self.given_up.as_ref()
    }

    /// Whether the run is over: no improvement for long enough, or too many epochs.
    pub fn finished(&self) -> bool {
        let best = self.state.best.map_or(0, |b| b.epoch);
        let epochs = self.state.epochs;
        epochs >= self.options.max_epochs || epochs - best >= self.options.patience
    }

    /// How many epochs are done.
    pub fn epochs(&self) -> usize {
        self.state.epochs
    }

    /// Runs one epoch; `None` once the run is over.
    pub fn epoch(&mut self) -> Result<Option<Epoch>> {
        if self.finished() {
            return Ok(None);
        }
        // On a worker of the pool, a step does not wake another thread to start.
        let epoch = rayon::scope(|_| self.run_epoch())?;
        Ok(Some(epoch))
    }

    /// Runs epochs until the run is over or `each` says to stop. The best model so far is
    /// kept in both cases.
    pub fn run(&mut self, mut each: impl FnMut(&Epoch) -> ControlFlow<()>) -> Result<()> {
        while let Some(epoch) = self.epoch()? {
            if each(&epoch).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn run_epoch(&mut self) -> Result<Epoch> {
        let number = self.state.epochs + 1;
        let mut rows = self.train_rows.clone();
        Random::new(self.options.seed, 1 + number as u64).shuffle(&mut rows);
        let (loss, sums) = self.pass(&rows)?;
        let prefixes = prefixes_of(&self.data.series, &rows);
        let validation_prefixes = prefixes_of(&self.validation.series, &self.validation_rows);
        let mut epoch = Epoch {
            epoch: number,
            train_loss: loss / prefixes as f64,
            validation_loss: sums.loss / validation_prefixes as f64,
            validation_accuracy: sums.right as f64 / self.validation_rows.len() as f64,
            best: false,
        };
        // Bounded gates can hide an invalid weight from the loss.
        let sound = self.state.parameters.iter().all(|p| p.is_finite());
        if !(sound && epoch.train_loss.is_finite() && epoch.validation_loss.is_finite()) {
            return Err(Error::Diverged {
                epoch: number,
                loss: match sound {
                    true => epoch.train_loss + epoch.validation_loss,
                    false => f64::NAN,
                },
            });
        }
        let state = &mut self.state;
        state.epochs = number;
        if state
            .best
            .is_none_or(|best| epoch.validation_loss < best.validation_loss)
        {
            epoch.best = true;
            state.best = Some(epoch);
            state.best_parameters.clone_from(&state.parameters);
        }
        Ok(epoch)
    }

    /// Trains on all `rows` in order. Returns their summed loss, and that of the validation
    /// part afterwards.
    fn pass(&mut self, rows: &[usize]) -> Result<(f64, LossSums)> {
        if let Some(gpu) = &mut self.gpu {
            let pass = Pass {
                data: &self.data,
                rows,
                validation: &self.validation,
                validation_rows: &self.validation_rows,
                normalisation: &self.normalisation,
                options: &self.options,
            };
            // The state changes only if the whole epoch succeeds.
            match gpu.epoch(&pass, &mut self.state) {
                Err(error) if self.device == Device::Auto => {
                    self.given_up = Some(error);
                    self.gpu = None;
                }
                done => return done,
            }
        }
        let batches = rows.chunks(self.options.batch);
        let loss = batches.map(|batch| self.step(batch)).sum();
        Ok((loss, self.evaluate()))
    }

    /// One step of Adam on the sequences `batch`; returns their summed loss.
    fn step(&mut self, batch: &[usize]) -> f64 {
        let Workers {
            engine,
            blocks,
            by_block,
            gradients,
        } = &mut self.workers;
        let state = &mut self.state;
        let (data, normalisation) = (&self.data, &self.normalisation);
        let gamma = self.options.gamma;
        let weight = 1.0 / prefixes_of(&data.series, batch) as f32;
        engine.load(&state.parameters, true);
        let losses: Vec<f64> = by_block
            .par_iter_mut()
            .zip(batch.par_chunks(SIMD_WIDTH))
            .map(|(sums, rows)| {
                blocks.with(|block| {
                    block.load(&data.series, rows, |r| data.labels[r], normalisation);
                    engine.learn(block, sums, gamma, weight).loss
                })
            })
            .collect();
        // Add in the order of the blocks, whichever thread computed them.
        let (total, others) = by_block[..losses.len()].split_at_mut(1);
        for sums in others {
            total[0].add(sums);
        }
        total[0].write_to(&self.shape, gradients);
        let rate = self.options.learning_rate;
        state.adam.step(&mut state.parameters, gradients, rate);
        losses.iter().sum()
    }

    /// The summed loss on the validation part.
    fn evaluate(&mut self) -> LossSums {
        let (data, normalisation) = (&self.validation, &self.normalisation);
        let gamma = self.options.gamma;
        let Workers { engine, blocks, .. } = &mut self.workers;
        engine.load(&self.state.parameters, false);
        let sums: Vec<LossSums> = self
            .validation_rows
            .par_chunks(SIMD_WIDTH)
            .map(|rows| {
                blocks.with(|block| {
                    block.load(&data.series, rows, |r| data.labels[r], normalisation);
                    engine.evaluate(block, gamma)
                })
            })
            .collect();
        sums.iter().fold(LossSums::default(), |a, b| LossSums {
            loss: a.loss + b.loss,
            right: a.right + b.right,
        })
    }

    /// The approximate memory of an epoch, without the sequences and the weights.
    pub fn working_memory(&self) -> u64 {
        let longest = self.data.series.steps().max(self.validation.series.steps());
        Block::bytes(&self.shape, longest, true) * rayon::current_num_threads() as u64
    }

    /// The best model so far.
    pub fn model(&self) -> Result<Model> {
        let best = self.state.best;
        let record = TrainingRecord {
            options: self.options.clone(),
            trained_on: self.train_rows.len(),
            validated_on: self.validation_rows.len(),
            epochs: self.state.epochs,
            best_epoch: best.map_or(0, |b| b.epoch),
            validation_loss: best.map(|b| b.validation_loss),
            validation_accuracy: best.map(|b| b.validation_accuracy),
            version: env!("CARGO_PKG_VERSION").into(),
            seen: self.seen.clone(),
        };
        Model::new(
            self.shape,
            self.state.best_parameters.clone(),
            self.classes.clone(),
            self.normalisation.clone(),
            Some(record),
        )
    }

    /// A hash of the data set; resuming checks it.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hash = Fnv::default();
        for (set, rows) in [
            (&self.data, &self.train_rows),
            (&self.validation, &self.validation_rows),
        ] {
            for &row in rows {
                hash.add(&set.labels[row].to_le_bytes());
                hash.add(&(set.series.length(row) as u64).to_le_bytes());
                for value in set.series.sequence(row) {
                    hash.add(&value.to_bits().to_le_bytes());
                }
            }
        }
        hash.finish()
    }
}

/// The buffers that the steps reuse.
#[derive(Debug)]
struct Workers {
    engine: Engine,
    blocks: Blocks,
    /// The gradients of every sixteen sequences of a batch.
    by_block: Vec<Gradients>,
    gradients: Vec<f32>,
}

impl Workers {
    fn new(shape: &Shape, batch: usize) -> Self {
        let blocks = batch.div_ceil(SIMD_WIDTH);
        Workers {
            engine: Engine::new(*shape),
            blocks: Blocks::new(*shape),
            by_block: (0..blocks).map(|_| Gradients::new(shape)).collect(),
            gradients: vec![0.0; shape.parameters()],
        }
    }
}

pub(crate) fn prefixes_of(series: &Series<'_>, rows: &[usize]) -> usize {
    rows.iter().map(|&r| series.length(r)).sum()
}

fn check_two_labels(labels: &[u32]) -> Result<()> {
    match labels.iter().all(|l| *l == labels[0]) {
        false => Ok(()),
        true => Err(Error::OneLabel {
            sequences: labels.len(),
            label: labels[0],
        }),
    }
}

/// Rows to train on and rows to validate on, both in increasing order.
fn split(n: usize, options: &TrainOptions) -> Result<(Vec<usize>, Vec<usize>)> {
    if n < 2 {
        return Err(Error::Size(
            "one sequence cannot be split into a training and a validation part: \
             give more, or a validation set"
                .into(),
        ));
    }
    let validation = (n as f64 * options.validation_fraction).round() as usize;
    let mut rows: Vec<usize> = (0..n).collect();
    Random::new(options.seed, 1).shuffle(&mut rows);
    let mut train = rows.split_off(validation.clamp(1, n - 1));
    rows.sort_unstable();
    train.sort_unstable();
    Ok((train, rows))
}
