#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calibrate;
mod candidates;
mod certify;
mod evaluate;
mod evidence;
mod grid;
mod lanes;
mod level;
mod loss;
mod proposal;
mod pvalue;
mod rule;
mod scores;
mod screen;
pub mod simulate;
mod stream;
mod trace;
mod walk;

pub use calibrate::{CalibrateError, Calibration};
pub use candidates::{AtNever, Candidates};
pub use certify::{Certified, Promise, Test, certify, halted_needed};
pub use evaluate::{
    CONFIDENCE, EvaluateError, Evaluation, Evaluator, StepResult, evaluate, halt_steps,
};
pub use evidence::{Counts, Evidence, EvidenceError};
pub use grid::{Grid, GridError};
pub use level::{Alpha, Delta, LevelError};
pub use loss::gap;
pub use proposal::{Proposal, ProposalError};
pub use pvalue::{binomial_tail, clopper_pearson};
pub use rule::{Expected, Method, Rule, RuleError, SetRecord, Split, ThresholdError, Thresholds};
pub use screen::screen;
pub use stream::{Decision, Stream};
pub use trace::{
    Certifying, Fingerprint, Key, MAX_STEPS, Score, ScoreSource, Screening, TraceError, Traces,
    TracesBuilder,
};
