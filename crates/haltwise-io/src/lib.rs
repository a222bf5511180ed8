#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Some parts are used only for files larger than memory.
#![cfg_attr(not(feature = "columnar"), allow(dead_code))]

mod document;
mod error;
mod evidence_file;
mod export;
#[cfg(feature = "columnar")]
mod files;
mod memory;
mod model_file;
mod npy;
mod npz;
mod problem;
mod proposal_file;
mod rule_file;
pub mod series;
mod stretches;
mod traces;
mod write;
pub use error::{Error, ErrorKind, Result};
pub use evidence_file::{EvidencePart, Input, certify_parts, read_evidence, write_evidence};
pub use export::{ExportError, ExportTo, LiveRule, export_rule, parse_live_rule};
#[cfg(feature = "columnar")]
pub use files::{Files, LEAST_MEMORY, Needed};
pub use memory::MEMORY;
pub use model_file::{ModelTexts, model_texts, read_model_texts, with_model_texts};
pub use npz::{Integers, read_integers};
pub use proposal_file::{read_proposal, write_proposal};
pub use rule_file::{
    RULE_IN_MODEL, parse_rule, parse_rule_text, read_rule, read_rule_text, rule_json, write_rule,
};
pub use stretches::in_stretches;
pub use traces::{
    CLASSIFIER, Columns, Format, Layout, Snapshot, Take, TraceWriter, Visit, WriteOptions,
    fold_given, metadata_of_bytes, read_metadata, read_outputs, read_traces, read_traces_seeing,
    trace_files, visit_bytes, visit_given, visit_traces,
};
#[cfg(feature = "columnar")]
pub use traces::{Extent, Place, fold_traces};
pub use write::{check_writable, write_whole};
