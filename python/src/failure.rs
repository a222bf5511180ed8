//! Errors as the exceptions that Python users expect.

use std::fmt::Display;

use haltwise_io::ErrorKind;
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;

/// Work that failed while the interpreter was released: in Rust, or in Python that Rust called.
pub(crate) enum Failure {
    Value(String),
    Python(PyErr),
}

impl Failure {
    /// Puts the place of a wrong value before the message.
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

/// A wrong value, with the message of the Rust side.
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

/// Python's own exception for a file that does not exist or may not be opened.
fn by_kind(error: &haltwise_io::Error) -> Option<PyErr> {
    match error.kind() {
        ErrorKind::NotFound => Some(PyFileNotFoundError::new_err(error.to_string())),
        ErrorKind::Permission => Some(PyPermissionError::new_err(error.to_string())),
        _ => None,
    }
}

/// Handles Ctrl-C and other signals during long work.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}
