#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calibrate;
mod candidates;
mod certify;
mod evaluate;
mod evidence;
mod fit;
mod gap_score;
mod grid;
mod lanes;
mod level;
mod logistic;
mod loss;
mod outputs;
mod propose;
mod pvalue;
mod rule;
mod score;
mod scores;
mod screen;
mod screened;
pub mod simulate;
mod stream;
mod trace;
mod walk;

pub use calibrate::{CalibrateError, Calibration, ProposalEvidence};
pub use candidates::{AtNever, Candidates};
pub use certify::{Certified, Promise, Test, certify, halted_needed};
pub use evaluate::{
    CONFIDENCE, EvaluateError, Evaluation, Evaluator, StepResult, evaluate, halt_steps,
};
pub use evidence::{Counts, Evidence, EvidenceError};
pub use gap_score::{GapScore, Memory};
pub use grid::{Grid, GridError};
pub use level::{Alpha, Delta, LevelError};
pub use loss::gap;
pub use outputs::{Fitting, Outputs, Sequence};
pub use propose::{FamilyKind, Proposal, ScoreChoice};
pub use pvalue::{binomial_tail, clopper_pearson};
pub use rule::{
    Classifier, Expected, FamilyRecord, Method, Rule, RuleError, SetRecord, Split, ThresholdError,
    Thresholds,
};
pub use score::{OVERSHOOT, SUM_TOLERANCE, Score, ScoreSource, Step, StepError};
pub use screen::{ScreenBy, screen};
pub use screened::{Screened, ScreenedError, SetAside};
pub use stream::{Decision, Stream};
pub use trace::{
    Certifying, Fingerprint, Key, MAX_STEPS, Screening, TraceError, Traces, TracesBuilder,
};
