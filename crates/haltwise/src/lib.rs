#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apply;
mod calibrate;
mod certify;
mod data;
mod lab;
mod numbers;
pub mod plan;
mod propose;
pub mod rule;
mod tables;
mod testing;

pub use apply::evaluate::evaluate;
pub use apply::stream::{Decision, Reason, State};
pub use apply::{evaluate, monitor, stream, thoughts, votes};
pub use calibrate::{Inputs, ToCertify};
pub use certify::evidence::Evidence;
pub use data::outputs::Outputs;
pub use data::sequence::Sequence;
pub use data::{score, terms};
pub use haltwise_stream::Step;
pub use lab::{forecast, simulate};
pub use plan::{Ask, Method, Plan};
pub use propose::proposal::Proposal;
pub use rule::Rule;

/// Sequences and sets of them: how they are checked, scored and identified, and the roles
/// they play.
pub mod traces {
    pub use crate::data::agreement::Doubt;
    pub use crate::data::checker::{Checker, check_score};
    pub use crate::data::identity::{Classifier, Fingerprint, Key, SetAside, SetSummary};
    pub use crate::data::roles::Fitting;
    pub use crate::data::sequence::{About, MAX_STEPS, Numbers, Trace};
    pub use crate::data::sequence_error::SequenceError;
    pub use crate::data::survey::Survey;
    pub use crate::data::traces::{Traces, TracesBuilder};
}

/// The way from sequences to a rule: the sources, the proposal, the evidence, and the
/// errors.
pub mod corridor {
    pub use crate::calibrate::{Calibrated, Warning};
    pub use crate::certify::drawn::{Drawn, Share};
    pub use crate::certify::evidence::Counting;
    pub use crate::certify::source::{Fold, Parts, Room, Source, Wanted};
    pub use crate::data::terms::Admission;
    pub use crate::numbers::counts::Counts;
    pub use crate::propose::error::CalibrateError;
    pub use crate::propose::proposal::ProposalError;
    pub use crate::tables::error::EvidenceError;
}

/// The gap, and the exact binomial tails that its tests and intervals use.
pub mod stats {
    pub use crate::data::loss::gap;
    pub use crate::numbers::binomial::{binomial_tail, clopper_pearson};
    pub use crate::tables::moments::Moments;
}
