//! What went wrong with a file: which one, where in it, and what to do.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of reading or writing a file.
pub type Result<T> = std::result::Result<T, Error>;

/// A file that could not be read or written.
///
/// Its message names the file, the place in it, the problem and, where there
/// is one, the remedy: `traces.csv: line 7, column score: NaN is not …`.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    place: Option<String>,
    problem: String,
}

impl Error {
    /// A problem with a file as a whole.
    pub fn new(path: impl AsRef<Path>, problem: impl fmt::Display) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            place: None,
            problem: problem.to_string(),
        }
    }

    /// Says where in the file the problem is.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = Some(place.to_string());
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Error {}
