//! A problem on its way up: what is wrong, and where in the file.

use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use crate::error::Error;

/// What is wrong, with the place as far as it is known yet: each level that
/// the problem passes through puts its own place in front.
#[derive(Debug)]
pub(crate) struct Problem {
    place: String,
    what: String,
}

impl Problem {
    pub(crate) fn new(what: impl Display) -> Self {
        Self {
            place: String::new(),
            what: what.to_string(),
        }
    }

    /// A file that cannot be opened or read.
    pub(crate) fn unreadable(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::new("there is no such file"),
            io::ErrorKind::PermissionDenied => {
                Self::new("it may not be read: permission denied; ask its owner for read access")
            }
            _ => Self::new(format_args!("cannot read it: {error}")),
        }
    }

    /// Says where, seen from outside.
    pub(crate) fn at(mut self, place: impl Display) -> Self {
        self.place = match self.place.as_str() {
            "" => place.to_string(),
            inner => format!("{place}, {inner}"),
        };
        self
    }

    pub(crate) fn in_file(self, path: &Path) -> Error {
        let error = Error::new(path, self.what);
        match self.place.as_str() {
            "" => error,
            place => error.at(place),
        }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.what),
            place => write!(f, "{place}: {}", self.what),
        }
    }
}

/// What a check says.
pub(crate) type Checked<T = ()> = Result<T, Problem>;
