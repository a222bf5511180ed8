#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod trace;
pub use trace::{
    Certifying, Fingerprint, MAX_STEPS, Score, ScoreSource, Screening, TraceError, Traces,
    TracesBuilder,
};
