//! What goes wrong, as the exception a Python user expects.

use std::fmt::Display;

use haltwise_io::ErrorKind;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;

/// Work that failed while Python was let go: in Rust, or in something it called.
pub(crate) enum Failure {
    Value(String),
    Python(PyErr),
}

impl Failure {
    /// Says in which matter a value is wrong.
    pub(crate) fn within(self, matter: &str) -> Self {
        match self {
            Self::Value(message) => Self::Value(format!("{matter}: {message}")),
            other => other,
        }
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Value(message)
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Value(message) => PyValueError::new_err(message),
            Failure::Python(error) => error,
        }
    }
}

/// A wrong value, in the words of the Rust side.
pub(crate) fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A file that could not be written.
pub(crate) fn os_error(error: impl Display) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// A trace or rule file that could not be written.
pub(crate) fn unwritten(error: haltwise_io::Error) -> PyErr {
    by_kind(&error).unwrap_or_else(|| os_error(error))
}

/// A trace file that could not be read.
pub(crate) fn unread(error: haltwise_io::Error) -> PyErr {
    by_kind(&error).unwrap_or_else(|| value_error(error))
}

/// The exception that Python has for a file that is not there, or not for us.
fn by_kind(error: &haltwise_io::Error) -> Option<PyErr> {
    match error.kind() {
        ErrorKind::NotFound => Some(PyFileNotFoundError::new_err(error.to_string())),
        ErrorKind::Permission => Some(PyPermissionError::new_err(error.to_string())),
        _ => None,
    }
}

/// Lets Ctrl-C, and other signals, have their say in the middle of long work.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}
