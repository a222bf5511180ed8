//! A fitted model.

use crate::answers::Answers;
use crate::error::{Error, Result};
use crate::record::TrainingRecord;
use crate::series::Series;
use crate::stream::Stream;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A classifier that answers for every prefix of a series. Copies share their memory.
#[derive(Clone, Debug)]
pub struct Model(pub(crate) Arc<Parts>);

#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) classes: Vec<String>,
    pub(crate) checkpoints: Vec<usize>,
    pub(crate) channels: usize,
    pub(crate) prior: Vec<f32>,
    pub(crate) training: TrainingRecord,
}

impl Model {
    /// The name of each class, in the order of the labels.
    pub fn classes(&self) -> &[String] {
        &self.0.classes
    }

    /// The numbers of time points after which the model answers.
    pub fn checkpoints(&self) -> &[usize] {
        &self.0.checkpoints
    }

    /// The numbers per time point.
    pub fn channels(&self) -> usize {
        self.0.channels
    }

    /// How the model was fitted, with its out-of-sample accuracy.
    pub fn training(&self) -> &TrainingRecord {
        &self.0.training
    }

    /// What the model says about each series at each checkpoint, on all cores of rayon's pool.
    pub fn answers(&self, series: &Series<'_>) -> Result<Answers> {
        self.answers_to(series, 0..series.len())
    }

    /// The same for some of the series, so that the answers about many fit into memory.
    pub fn answers_to(&self, series: &Series<'_>, rows: Range<usize>) -> Result<Answers> {
        if series.channels() != self.channels() {
            return Err(Error::Size(format!(
                "the series have {} channels, but the model was fitted to {}",
                series.channels(),
                self.channels()
            )));
        }
        let each = self.checkpoints().len();
        Ok(Answers {
            probabilities: self.0.prior.repeat(each * rows.len()),
            reached: rows
                .map(|i| self.reached(series.length(i)) as u32)
                .collect(),
            checkpoints: each,
            classes: self.classes().len(),
        })
    }

    /// How many checkpoints a series of this length reaches.
    pub fn reached(&self, length: usize) -> usize {
        self.checkpoints().partition_point(|&c| c <= length)
    }

    /// A series that arrives time point by time point.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// The model as the content of a safetensors file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        Err(Error::Format("not yet".into()))
    }

    /// Reads what [`Model::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Err(Error::NotAModel(format!("{} bytes", bytes.len())))
    }

    /// Writes the model. The file is written next to the target and then moved onto it, so
    /// that a reader never sees half a file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        Err(Error::Format("not yet".into()).in_file(path.as_ref()))
    }

    /// Reads a model from a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Err(Error::Format("not yet".into()).in_file(path.as_ref()))
    }
}
