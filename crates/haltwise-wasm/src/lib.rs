#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calibrate;
mod rule;
mod traces;

pub use calibrate::{Calibrated, calibrate, evaluate, on_progress, report, results};
pub use rule::{Rule, Stream, replay};
pub use traces::Traces;

/// A result with a message for users as its error.
type Result<T> = std::result::Result<T, wasm_bindgen::JsError>;

fn error(what: impl ToString) -> wasm_bindgen::JsError {
    wasm_bindgen::JsError::new(&what.to_string())
}
