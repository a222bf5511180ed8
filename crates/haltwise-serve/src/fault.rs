//! The error of a line, and its remedy.

use serde::Serialize;

/// Why a line was not used, or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) error: String,
    pub(crate) remedy: &'static str,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// It is not what a line must be.
    Unusable,
    /// The stream must begin again.
    BeginAgain,
    /// There is no room.
    Full,
    /// The line names something that does not exist.
    NotFound,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, error: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            error: error.into(),
            remedy,
            kind,
        }
    }

    /// As a line of output.
    pub(crate) fn json(&self, line: Option<u64>) -> String {
        #[derive(Serialize)]
        struct Said<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<u64>,
            error: &'a str,
            remedy: &'a str,
        }
        let said = Said {
            line,
            error: &self.error,
            remedy: self.remedy,
        };
        serde_json::to_string(&said).unwrap_or_default()
    }
}
