//! The faults of a log.

use std::fmt;
use std::path::{Path, PathBuf};

/// What kind of thing went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused to open, read or write it.
    Io(std::io::Error),
    /// Another program writes it.
    Locked,
    /// It is a file, but no log.
    NoLog,
    /// It is a log, with another header: this one.
    OtherHeader(String),
    /// A line, counted from 1, is damaged, and others come after it.
    Damaged(u64),
    /// A record, on a line counted from 1, was refused by its reader.
    Refused(u64, String),
    /// It was moved or removed while it was written.
    Misplaced,
    /// A record has a control character in it, and cannot be written.
    ControlCharacter,
}

/// Why a log cannot be used.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    kind: ErrorKind,
}

impl Error {
    pub(crate) fn new(path: &Path, kind: ErrorKind) -> Self {
        Self {
            path: path.to_path_buf(),
            kind,
        }
    }

    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::new(path, ErrorKind::Io(error))
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path.display())?;
        match &self.kind {
            ErrorKind::Io(error) => write!(f, "{error}"),
            ErrorKind::Locked => {
                f.write_str("another program is writing it; wait until that has ended")
            }
            ErrorKind::NoLog => f.write_str("it is there, but is no log of this kind"),
            ErrorKind::OtherHeader(_) => f.write_str("it was begun for something else"),
            ErrorKind::Damaged(line) => write!(
                f,
                "line {line} is damaged, and the log was left as it is; what it said is lost: \
                 remove that line to go on without it"
            ),
            ErrorKind::Refused(line, problem) => write!(f, "line {line}: {problem}"),
            ErrorKind::Misplaced => {
                f.write_str("it was moved or removed while this program wrote it; put it back")
            }
            ErrorKind::ControlCharacter => {
                f.write_str("a record with a control character cannot be written")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            ErrorKind::Io(error) => Some(error),
            _ => None,
        }
    }
}
