//! Requests that fail: what is wrong, and what to do about it.

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::error::Error;
use crate::fault::{Fault, FaultKind};

/// A mistake, and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    error: String,
    remedy: String,
}

impl Problem {
    fn json(&self) -> Value {
        json!({"error": self.error, "remedy": self.remedy})
    }

    /// As a line among answers.
    pub(super) fn line(&self) -> String {
        format!("{}\n", self.json())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self.json())).into_response()
    }
}

pub(crate) fn problem(status: StatusCode, error: &str, remedy: &str) -> Problem {
    Problem {
        status,
        error: error.into(),
        remedy: remedy.into(),
    }
}

pub(super) fn fault_problem(fault: &Fault) -> Problem {
    let status = match fault.kind {
        FaultKind::Unusable => StatusCode::UNPROCESSABLE_ENTITY,
        FaultKind::BeginAgain => StatusCode::CONFLICT,
        FaultKind::Full => StatusCode::SERVICE_UNAVAILABLE,
        FaultKind::NotFound => StatusCode::NOT_FOUND,
    };
    problem(status, &fault.error, fault.remedy)
}

/// The store cannot be written.
pub(super) fn store_problem(error: &Error) -> Problem {
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        &error.to_string(),
        "send it again with its \"t\" when /ready says so: a step that was taken does not count \
         twice; whoever runs the server must make room",
    )
}

pub(super) fn last_line(error: &Error) -> Bytes {
    let said = json!({
        "error": error.to_string(),
        "remedy": "send it again with its \"t\" when /ready says so: a step that was taken does \
                   not count twice",
    });
    format!("{said}\n").into()
}
