//! What went wrong with a file: which one, where in it, and what to do.

use std::error::Error as StdError;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// The result of reading or writing a file.
pub type Result<T> = std::result::Result<T, Error>;

/// What another library said, as the source of an error of ours.
pub(crate) type Cause = Box<dyn StdError + Send + Sync>;

/// A file that could not be read or written.
///
/// Its message names the file, the place in it, the problem and, where there
/// is one, the remedy: `traces.csv: line 7, column score: NaN is not …`. It
/// says what its [`source`](std::error::Error::source) says, where there is
/// one; programs tell errors apart by their [`kind`](Self::kind).
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    place: Option<String>,
    problem: String,
    kind: ErrorKind,
    source: Option<Cause>,
}

/// What kind of thing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file, folder or dataset.
    NotFound,
    /// It may not be read or written.
    Permission,
    /// It cannot be read for another reason of the operating system's.
    Io,
    /// It is not the kind of file that it should be, or a damaged one.
    Format,
    /// A value in it is wrong.
    Data,
    /// Things that do not go together: in the file, or it and others.
    Conflict,
    /// It is sound, but nothing here reads or writes its like.
    Unsupported,
    /// It would take more memory than it may.
    TooLarge,
    /// It cannot be written, other than for lack of a folder or permission.
    Output,
}

impl ErrorKind {
    /// Why a file could not be read, in words.
    pub(crate) fn of_reading(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::NotFound,
            io::ErrorKind::PermissionDenied => Self::Permission,
            // Decoders say so of content.
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput => Self::Format,
            _ => Self::Io,
        }
    }
}

impl Error {
    /// A problem with a file as a whole: a wrong value, unless
    /// [`of_kind`](Self::of_kind) says otherwise.
    pub fn new(path: impl AsRef<Path>, problem: impl fmt::Display) -> Self {
        Self {
            path: path.as_ref().to_path_buf(),
            place: None,
            problem: problem.to_string(),
            kind: ErrorKind::Data,
            source: None,
        }
    }

    /// Says where in the file the problem is.
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.place = Some(place.to_string());
        self
    }

    /// Says what kind of problem it is.
    pub fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Says what caused it; its words are in the problem's already.
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same problem with the file under another name: the one it has for
    /// whoever gave it, say.
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
