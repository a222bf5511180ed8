#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod npy;
mod npz;
mod problem;
mod rule_file;
pub mod series;
mod traces;
mod write;
pub use error::{Error, Result};
pub use npz::{Integers, read_integers};
pub use rule_file::{parse_rule, read_rule, rule_json, write_rule};
pub use traces::{
    Format, Layout, TraceRow, TraceWriter, Visit, WriteOptions, read_metadata, read_outputs,
    read_scored, read_traces, visit_bytes, visit_traces,
};
pub use write::write_whole;
