//! A problem on its way up: what is wrong, and where in the file.

use std::fmt::Display;
use std::path::Path;

use crate::error::Error;

/// What is wrong, with the place as far as it is known yet: each level that
/// the problem passes through puts its own place in front.
#[derive(Debug)]
pub(super) struct Problem {
    place: String,
    what: String,
}

impl Problem {
    pub(super) fn new(what: impl Display) -> Self {
        Self {
            place: String::new(),
            what: what.to_string(),
        }
    }

    /// Says where, seen from outside.
    pub(super) fn at(mut self, place: impl Display) -> Self {
        self.place = match self.place.as_str() {
            "" => place.to_string(),
            inner => format!("{place}, {inner}"),
        };
        self
    }

    pub(super) fn in_file(self, path: &Path) -> Error {
        let error = Error::new(path, self.what);
        match self.place.as_str() {
            "" => error,
            place => error.at(place),
        }
    }
}

/// What a check says.
pub(super) type Checked<T = ()> = Result<T, Problem>;
