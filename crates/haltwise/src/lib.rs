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
mod pvalue;
mod rule;
mod screen;
pub mod simulate;
mod stream;
mod trace;

pub use calibrate::{CalibrateError, Calibration};
pub use candidates::{AtNever, Candidates};
pub use certify::{Certified, Promise, Test, certify, halted_needed};
pub use evaluate::{CONFIDENCE, EvaluateError, Evaluation, StepResult, evaluate, halt_steps};
pub use evidence::{Counts, Evidence, EvidenceError};
pub use grid::{Grid, GridError};
pub use level::{Alpha, Delta, LevelError};
pub use loss::gap;
pub use pvalue::{binomial_tail, clopper_pearson};
pub use rule::{
    Classifier, Expected, Method, Rule, RuleError, SetRecord, Split, ThresholdError, Thresholds,
};
pub use screen::screen;
pub use stream::{Decision, Stream};
pub use trace::{
    Certifying, Fingerprint, MAX_STEPS, Score, ScoreSource, Screening, TraceError, Traces,
    TracesBuilder,
};
