#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod calibrate;
mod candidates;
mod certify;
mod error;
mod evaluate;
mod evidence;
mod fit;
mod gap_score;
mod grid;
mod halt;
mod identity;
mod lanes;
mod level;
mod logistic;
mod loss;
mod outputs;
mod parts;
mod plan;
mod proposal;
mod propose;
mod pvalue;
mod rule;
mod score;
mod scores;
mod screen;
mod sequence;
pub mod simulate;
mod source;
mod step;
pub mod stream;
mod survey;
mod table;
mod thresholds;
mod trace;
mod verdict;
mod walk;

pub use calibrate::{Calibrated, Given, Remark};
pub use candidates::{AtNever, FamilyKind};
pub use certify::{Promise, Test, halted_needed};
pub use error::CalibrateError;
pub use evaluate::{
    CONFIDENCE, EvaluateError, Evaluation, Evaluator, StepResult, evaluate, halt_steps,
};
pub use evidence::{Counting, Evidence};
pub use gap_score::GapScore;
pub use grid::{Grid, GridError};
pub use identity::{Classifier, Fingerprint, Key, SetAside, SetRecord};
pub use level::{Alpha, Delta, LevelError};
pub use loss::gap;
pub use outputs::Outputs;
pub use parts::{Certifying, Fitting, Screening};
pub use plan::{Ask, Method, Plan, PlanError, ScoreWord, Split, Word};
pub use proposal::{Fixing, Proposal, ProposalError};
pub use pvalue::{binomial_tail, clopper_pearson};
pub use rule::{Expected, FamilyRecord, Lengths, Rule, RuleError};
pub use score::ScoreSource;
pub use screen::ScreenBy;
pub use sequence::{Checker, MAX_STEPS, Sequence, SequenceError, Trace, check_score};
pub use source::{Drawn, Fold, Kept, Room, Share, Source, Wanted};
pub use step::{NotAScore, OVERSHOOT, SUM_TOLERANCE, Score, Step, StepError};
pub use stream::{Decision, Reason, State};
pub use survey::Survey;
pub use table::{Counts, EvidenceError};
pub use thresholds::{ThresholdError, Thresholds};
pub use trace::{Traces, TracesBuilder};
