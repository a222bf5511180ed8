//! Errors, which name the place and the remedy.

use std::path::PathBuf;

/// The result of functions that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model could not be fitted, used, saved or loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Something that is no series.
    #[error(transparent)]
    Series(#[from] haltwise_series::Error),
    /// A label outside the classes.
    #[error("series {series} has label {label}, but there are {classes} classes (labels 0 to {})", classes - 1)]
    Label {
        /// Its index, from 0.
        series: usize,
        /// Its label.
        label: u32,
        /// The number of classes.
        classes: usize,
    },
    /// Every training label is the same.
    #[error("all {series} training series have label {label}: there is nothing to tell apart")]
    OneLabel {
        /// How many series there are.
        series: usize,
        /// The one label.
        label: u32,
    },
    /// Slices whose sizes are inconsistent.
    #[error("{0}")]
    Size(String),
    /// An option out of its range.
    #[error("{0}")]
    Option(String),
    /// The model is larger than one may be.
    #[error("{0}")]
    TooLarge(String),
    /// Fitting was stopped by its caller.
    #[error("fitting was stopped")]
    Stopped,
    /// Invalid content of a model file.
    #[error("{0}")]
    Format(String),
    /// A file that cannot be read as a model.
    #[error(
        "it is not a prefix model, or a damaged one ({0}); give a file that `haltwise train` wrote"
    )]
    NotAModel(String),
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
