//! What goes wrong, as the exception a Python user expects.

use std::fmt::Display;

use pyo3::exceptions::{PyOSError, PyValueError};
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

/// Lets Ctrl-C, and other signals, have their say in the middle of long work.
pub(crate) fn check_signals() -> PyResult<()> {
    Python::attach(|py| py.check_signals())
}
