//! Errors, in words that name the place and the remedy.

use std::fmt::Display;
use std::path::Path;

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be used.
    #[error("{file}: {problem}")]
    File {
        /// The file as it was named.
        file: String,
        /// The problem with it.
        problem: String,
    },
    /// A template, a set of letters or a document cannot be used.
    #[error("{0}")]
    Input(String),
    /// The server cannot be used, or said something that cannot be.
    #[error("{server}: {problem}")]
    Server {
        /// The server's address.
        server: String,
        /// The problem with its answer.
        problem: String,
    },
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn file(path: &Path, problem: impl Display) -> Self {
        Self::File {
            file: path.display().to_string(),
            problem: problem.to_string(),
        }
    }

    pub(crate) fn input(problem: impl Display) -> Self {
        Self::Input(problem.to_string())
    }

    /// The same error with the place where it happened in front.
    pub(crate) fn at(self, place: impl Display) -> Self {
        match self {
            Self::File { file, problem } => Self::File {
                file,
                problem: format!("{place}: {problem}"),
            },
            Self::Input(problem) => Self::Input(format!("{place}: {problem}")),
            Self::Server { server, problem } => Self::Server {
                server,
                problem: format!("{place}: {problem}"),
            },
        }
    }
}
