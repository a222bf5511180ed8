//! A trained network and the record of its training.

use crate::error::{Error, Result};
use crate::normalise::Normalisation;
use crate::shape::Shape;
use haltwise_series::{Random, Series, seen};
use serde::{Deserialize, Serialize};

/// How a model was trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainingRecord {
    /// The options it was trained with.
    pub options: crate::train::TrainOptions,
    /// The number of sequences it was trained on.
    pub trained_on: usize,
    /// The number of sequences that chose the best epoch.
    pub validated_on: usize,
    /// The number of epochs run.
    pub epochs: usize,
    /// The epoch whose weights were kept, from 1; 0 if none was completed.
    pub best_epoch: usize,
    /// Its loss on the validation part.
    pub validation_loss: Option<f64>,
    /// Its full accuracy on the validation part.
    pub validation_accuracy: Option<f64>,
    /// The version of this crate.
    pub version: String,
    /// Sorted hashes of the sequences it was trained on or that chose the best epoch; if
    /// there are many, only the smallest.
    #[serde(default)]
    pub seen: Vec<u64>,
}

impl TrainingRecord {
    /// The approximate share of these sequences that training has seen with exactly the
    /// same values; `None` if that is not known.
    pub fn seen_share(&self, series: &Series<'_>) -> Option<f64> {
        seen::share_of(&self.seen, series)
    }
}

/// The two-head LSTM.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    shape: Shape,
    parameters: Vec<f32>,
    classes: Vec<String>,
    normalisation: Normalisation,
    training: Option<TrainingRecord>,
}

impl Model {
    /// A model from its parts. `parameters` are in the order of [`Shape`]: per
    /// layer PyTorch's `weight_ih`, `weight_hh` and the sum of its two biases,
    /// then per head its weight and its bias.
    pub fn new(
        shape: Shape,
        parameters: Vec<f32>,
        classes: Vec<String>,
        normalisation: Normalisation,
        training: Option<TrainingRecord>,
    ) -> Result<Self> {
        shape.check()?;
        if parameters.len() != shape.parameters() {
            return Err(Error::Size(format!(
                "{} parameters for a network of {}",
                parameters.len(),
                shape.parameters()
            )));
        }
        if classes.len() != shape.classes {
            return Err(Error::Size(format!(
                "{} class names for {} classes",
                classes.len(),
                shape.classes
            )));
        }
        normalisation.check(shape.features)?;
        for tensor in shape.tensors() {
            let values = &parameters[tensor.range()];
            if let Some(position) = values.iter().position(|v| !v.is_finite()) {
                return Err(Error::TensorNotFinite {
                    name: tensor.name,
                    position,
                    value: values[position],
                });
            }
        }
        Ok(Model {
            shape,
            parameters,
            classes,
            normalisation,
            training,
        })
    }

    /// The sizes of the network.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// All weights, in the order of [`Model::new`].
    pub fn parameters(&self) -> &[f32] {
        &self.parameters
    }

    /// The name of each class.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// Names the classes, in the order of the labels. External checkpoints have no names.
    pub fn name_classes(&mut self, names: Vec<String>) -> Result<()> {
        if names.len() != self.shape.classes {
            return Err(Error::Size(format!(
                "{} names for {} classes",
                names.len(),
                self.shape.classes
            )));
        }
        self.classes = names;
        Ok(())
    }

    /// The scaling of the inputs before the network sees them.
    pub fn normalisation(&self) -> &Normalisation {
        &self.normalisation
    }

    /// How the model was trained, if known.
    pub fn training(&self) -> Option<&TrainingRecord> {
        self.training.as_ref()
    }
}

/// Initial weights, drawn as in PyTorch: uniform on ±1/√H. A merged bias is the sum of two
/// such draws.
pub(crate) fn initial_parameters(shape: &Shape, seed: u64) -> Vec<f32> {
    let bound = 1.0 / (shape.hidden as f32).sqrt();
    let mut random = Random::new(seed, 0);
    let mut parameters = Vec::with_capacity(shape.parameters());
    for tensor in shape.tensors() {
        for _ in tensor.range() {
            let second = if tensor.merged {
                random.symmetric(bound)
            } else {
                0.0
            };
            parameters.push(random.symmetric(bound) + second);
        }
    }
    parameters
}
