//! Errors with files: which file, which place in it, and what to do.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of reading or writing a file.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of another library, as the source of our error.
pub(crate) type Cause = Box<dyn StdError + Send + Sync>;

/// A file that could not be read or written.
///
/// Its message names the file, the place in it, the problem and the remedy, if there is
/// one: `traces.csv: line 7, column score: NaN is not …`. It includes the message of its
/// [`source`](std::error::Error::source), if there is one. Programs tell errors apart by
/// their [`kind`](Self::kind).
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    place: Option<String>,
    problem: String,
    kind: ErrorKind,
    source: Option<Cause>,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file, folder or dataset.
    NotFound,
    /// It may not be read or written.
    Permission,
    /// It cannot be read for another reason given by the operating system.
    Io,
    /// It is not the right kind of file, or is damaged.
    Format,
    /// A value in it is wrong.
    Data,
    /// Two things conflict: in the file, or between files.
    Conflict,
    /// It is sound, but not supported here.
    Unsupported,
    /// It would take more memory than allowed.
    TooLarge,
    /// It cannot be written, for a reason other than a missing folder or permission.
    Output,
}

impl ErrorKind {
    /// Why a file could not be read, in words.
    pub(crate) fn of_reading(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::Permission,
            // Decoders report damaged content this way.
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput => Self::Format,
            _ => Self::Io,
        }
    }
}

impl Error {
    /// A problem with a file as a whole. It counts as a wrong value, unless
    /// [`of_kind`](Self::of_kind) sets another kind.
    pub fn new(path: impl AsRef<Path>, problem: impl fmt::Display) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            place: None,
            problem: problem.to_string(),
            kind: ErrorKind::Data,
            source: None,
        }
    }

    /// Sets where in the file the problem is.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = Some(place.to_string());
        self
    }

    /// Sets the kind of problem.
    pub fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the cause; the problem already includes its message.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same problem with another name for the file, such as the name the user gave.
    pub fn with_path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = path.as_ref().to_path_buf();
        self
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kind of problem.
    pub fn kind(&self) -> ErrorKind {
        self.kind
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

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
