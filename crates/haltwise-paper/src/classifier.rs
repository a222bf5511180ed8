//! Trained classifiers over series: what they say about every prefix, written as traces.

mod network;
mod prefix;

use std::ffi::OsStr;
use std::path::Path;

use haltwise_io::read_model_texts;
use haltwise_io::series::SeriesSet;
use haltwise_lstm::Device;
use haltwise_series::Series;

pub use network::write_traces;
pub use prefix::write_out_of_sample;

/// A trained classifier of either kind.
#[derive(Debug)]
pub enum Model {
    /// The two-head LSTM. Its steps are time points.
    Network(Box<haltwise_lstm::Model>),
    /// The prefix classifier. Its steps are checkpoints.
    Prefix(haltwise_prefix::Model),
}

/// A set as the classifiers read it: series after series, none of them padded.
pub fn series_of(set: &SeriesSet) -> Result<Series<'_>, haltwise_series::Error> {
    Series::packed(set.values(), set.starts(), set.features())
}

/// What came of scoring.
#[derive(Debug)]
pub struct Written {
    /// How many full predictions are right.
    pub right: usize,
    /// The GPU that was used, where one was.
    pub gpu: Option<String>,
    /// Why the CPU took over from the GPU, where it did.
    pub gpu_failed: Option<String>,
}

/// The name under which a prefix classifier's file holds all but its numbers.
const PREFIX: &str = "haltwise-prefix";

impl Model {
    /// Reads a model. The texts in the file tell its kind.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let pickled =
            |name: &OsStr| name.eq_ignore_ascii_case("pt") || name.eq_ignore_ascii_case("pth");
        let texts = match path.extension().is_some_and(pickled) {
            true => None,
            false => read_model_texts(path)?,
        };
        Ok(
            match texts.is_some_and(|texts| texts.contains_key(PREFIX)) {
                true => Self::Prefix(haltwise_prefix::Model::load(path)?),
                false => Self::Network(Box::new(haltwise_lstm::Model::load(path)?)),
            },
        )
    }

    /// The name of each class; `None` if the file has no names, as PyTorch's have none.
    pub fn class_names(&self) -> Option<&[String]> {
        match self {
            Self::Network(model) => model.training().map(|_| model.classes()),
            Self::Prefix(model) => Some(model.classes()),
        }
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        match self {
            Self::Network(model) => model.shape().classes,
            Self::Prefix(model) => model.classes().len(),
        }
    }

    /// The number of steps in the trace of a series with this many time points.
    pub fn steps(&self, points: usize) -> usize {
        match self {
            Self::Network(_) => points,
            Self::Prefix(model) => model.reached(points),
        }
    }

    /// The bytes that scoring takes besides the series, the longest of which has this many points.
    pub fn working_memory(&self, longest: usize) -> u64 {
        match self {
            Self::Network(model) => model.working_memory(longest),
            Self::Prefix(model) => prefix::working_memory(model, longest),
        }
    }

    /// The approximate share of the series that trained the model, value for value; `None` if that is
    /// not known.
    pub fn seen_share(&self, set: &SeriesSet) -> anyhow::Result<Option<f64>> {
        Ok(match self {
            Self::Network(model) => {
                let series = series_of(set)?;
                model
                    .training()
                    .and_then(|training| training.seen_share(&series))
            }
            Self::Prefix(model) => model.training().seen_share(&series_of(set)?),
        })
    }

    /// Writes one trace per series. `places` are those of the series in the whole dataset.
    pub fn write_traces(
        &self,
        set: &SeriesSet,
        places: &[usize],
        output: &Path,
        with_probs: bool,
        device: Device,
    ) -> anyhow::Result<Written> {
        match self {
            Self::Network(model) => {
                write_traces(model, set, places, output, with_probs, device, |_| {})
            }
            Self::Prefix(model) => {
                let right = prefix::write_answers(model, set, places, output, with_probs)?;
                Ok(Written {
                    right,
                    gpu: None,
                    gpu_failed: None,
                })
            }
        }
    }
}
