#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod traces;
mod write;
pub use error::{Error, Result};
pub use traces::{
    Format, Layout, TraceRow, TraceWriter, Visit, WriteOptions, read_traces, visit_bytes,
    visit_traces,
};
pub use write::write_whole;
