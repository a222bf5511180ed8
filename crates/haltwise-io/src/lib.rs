#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod document;
mod error;
mod evidence_file;
mod files;
mod npy;
mod npz;
mod problem;
mod proposal_file;
mod rule_file;
pub mod series;
mod traces;
mod write;
pub use error::{Error, ErrorKind, Result};
pub use evidence_file::{EvidencePart, Input, certify_parts, read_evidence, write_evidence};
pub use files::{Evaluated, Files, LEAST_MEMORY, Needed};
pub use npz::{Integers, read_integers};
pub use proposal_file::{read_proposal, write_proposal};
pub use rule_file::{parse_rule, read_rule, rule_json, write_rule};
pub use traces::{
    CLASSIFIER, Columns, Extent, Format, Layout, Place, Snapshot, Take, TraceWriter, Visit,
    WriteOptions, fold_traces, read_metadata, read_outputs, read_traces, read_traces_seeing,
    trace_files, visit_bytes, visit_given, visit_traces,
};
pub use write::{check_writable, write_whole};
