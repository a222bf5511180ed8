//! Errors, which name the place and the remedy.

use std::path::PathBuf;

/// The result of functions that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model could not be trained, used, saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that is no series.
    #[error(transparent)]
    Series(#[from] haltwise_series::Error),
    /// A label outside the classes.
    #[error("sequence {sequence} has label {label}, but there are {classes} classes (labels 0 to {})", classes - 1)]
    Label {
        /// Its index, from 0.
        sequence: usize,
        /// Its label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// Fewer than two classes.
    #[error("a classifier needs at least two classes, and there are {classes}")]
    OneClass {
        /// The number of classes.
        classes: usize,
    },
    /// Every training label is the same.
    #[error(
        "all {sequences} training sequences have label {label}: there is nothing to tell apart"
    )]
    OneLabel {
        /// How many sequences there are.
        sequences: usize,
        /// The one label.
        label: u32,
    },
    /// Slices whose sizes are inconsistent.
    #[error("{0}")]
    Size(String),
    /// An impossible network.
    #[error("{0}")]
    Shape(String),
    /// A training option out of its range.
    #[error("{0}")]
    Option(String),
    /// The loss stopped being a number.
    #[error(
        "the loss became {loss} in epoch {epoch}: normalise the inputs or lower the learning rate"
    )]
    Diverged {
        /// The epoch, from 1.
        epoch: usize,
        /// The loss.
        loss: f64,
    },
    /// Invalid content of a model file.
    #[error("{0}")]
    Format(String),
    /// A file that cannot be read as a model.
    #[error(
        "it is not a model, or a damaged one ({0}); a model is a file that `haltwise train` \
         wrote, a safetensors file with PyTorch's names, or a .pt state dict"
    )]
    NotAModel(String),
    /// The file lacks a tensor that the network needs.
    #[error("tensor {name} is missing: the file has {found}")]
    MissingTensor {
        /// The tensor.
        name: String,
        /// The tensors there are.
        found: String,
    },
    /// A tensor whose size does not match the others.
    #[error("tensor {name} has shape {found:?}, expected {expected}")]
    TensorShape {
        /// The tensor.
        name: String,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it should have.
        expected: String,
    },
    /// A NaN or an infinity among the weights.
    #[error(
        "tensor {name} holds {value} at position {position}: the training that wrote it diverged"
    )]
    TensorNotFinite {
        /// The tensor.
        name: String,
        /// The position in it, counted row by row from 0.
        position: usize,
        /// The value found.
        value: f32,
    },
    /// A pickle that needs something other than tensors.
    #[error(
        "the pickle asks for {global}, which is not part of a plain state dict: refused. \
         Save the model with torch.save(model.state_dict(), path)"
    )]
    ForbiddenGlobal {
        /// The Python object it names.
        global: String,
    },
    /// An unknown device.
    #[error("{0:?} is no device: give auto, cpu, cuda or cuda:N, N counted from 0")]
    Device(String),
    /// A GPU that cannot be used, or that failed.
    #[error("cuda:{ordinal} cannot be used: {source}. The device `cpu` does without it")]
    Gpu {
        /// Its number, from 0.
        ordinal: usize,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// There is no training state to resume.
    #[error(
        "there is nothing to resume at {}: no run was interrupted there; leave out --resume \
         to start one", path.display()
    )]
    NothingToResume {
        /// Its expected place.
        path: PathBuf,
    },
    /// A training state of another run.
    #[error("this training state belongs to another run: {0}")]
    OtherRun(String),
    /// Any of the above, in a file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Its fault.
        source: Box<Error>,
    },
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Its message.
        source: std::io::Error,
    },
}

impl Error {
    /// The same error, with the file that it is about.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        Error::File {
            path: path.to_owned(),
            source: Box::new(self),
        }
    }
}
