//! Why a server cannot start or go on.

use std::path::Path;

/// What went wrong, with its file, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

impl Error {
    pub(crate) fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }

    pub(crate) fn file(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self(format!("{}: {problem}", path.display()))
    }
}

impl From<haltwise_log::Error> for Error {
    fn from(error: haltwise_log::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<haltwise_io::Error> for Error {
    fn from(error: haltwise_io::Error) -> Self {
        Self(error.to_string())
    }
}
