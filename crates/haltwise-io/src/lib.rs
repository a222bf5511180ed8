#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod document;
mod error;
mod evidence_file;
mod npy;
mod npz;
mod problem;
mod rule_file;
mod screened_file;
pub mod series;
mod sets;
mod traces;
mod write;
pub use error::{Error, ErrorKind, Result};
pub use evidence_file::{EvidencePart, certify_parts, read_evidence, write_evidence};
pub use npz::{Integers, read_integers};
pub use rule_file::{parse_rule, read_rule, rule_json, write_rule};
pub use screened_file::{read_screened, write_screened};
pub use sets::{Gathering, Input, Seen, SetReader, gather_evidence, read_fitting};
pub use traces::{
    Extent, Format, Given, Layout, Place, Snapshot, Take, TraceRow, TraceWriter, Visit,
    WriteOptions, fold_traces, gather_outputs, gather_scored, gather_traces, read_metadata,
    read_outputs, read_scored, read_traces, read_traces_seeing, trace_files, visit_bytes,
    visit_given, visit_traces,
};
pub use write::{check_writable, write_whole};
