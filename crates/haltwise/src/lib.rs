#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bets;
mod calibrate;
mod candidates;
mod certify;
mod counts;
mod error;
pub mod evaluate;
mod evidence;
mod fit;
pub mod forecast;
mod gap_score;
mod grid;
mod halt;
mod identity;
mod lanes;
mod level;
mod levels;
mod logistic;
mod loss;
pub mod monitor;
mod outputs;
mod parts;
pub mod plan;
mod proposal;
mod propose;
mod pvalue;
pub mod rule;
pub mod score;
mod score_rows;
mod screen;
mod sequence;
pub mod simulate;
mod source;
mod stand_in;
mod stopping;
pub mod stream;
mod survey;
mod table;
pub mod terms;
mod thresholds;
mod trace;
mod verdict;
pub mod votes;

pub use calibrate::Given;
pub use evaluate::evaluate;
pub use evidence::Evidence;
pub use haltwise_stream::Step;
pub use outputs::Outputs;
pub use plan::{Ask, Method, Plan};
pub use proposal::Proposal;
pub use rule::Rule;
pub use sequence::Sequence;
pub use stream::{Decision, Reason, State};

/// Sequences and sets of them: checked, scored, told apart, and the roles they
/// play.
pub mod traces {
    pub use crate::identity::{Classifier, Fingerprint, Key, SetAside, SetRecord};
    pub use crate::parts::{Certifying, Fitting, Screening};
    pub use crate::sequence::{
        About, Checker, MAX_STEPS, Numbers, SequenceError, Trace, check_score,
    };
    pub use crate::survey::Survey;
    pub use crate::trace::{Traces, TracesBuilder};
}

/// The way from sequences to a rule: where they come from, what is fixed, what is
/// counted, what can go wrong.
pub mod corridor {
    pub use crate::calibrate::{Calibrated, Remark};
    pub use crate::counts::Counts;
    pub use crate::error::CalibrateError;
    pub use crate::evidence::Counting;
    pub use crate::proposal::{Fixing, ProposalError};
    pub use crate::source::{Drawn, Fold, Kept, Room, Share, Source, Wanted};
    pub use crate::table::EvidenceError;
    pub use crate::terms::Admission;
}

/// The gap, and the exact binomial tails that its tests and intervals rest on.
pub mod stats {
    pub use crate::bets::Moments;
    pub use crate::loss::gap;
    pub use crate::pvalue::{binomial_tail, clopper_pearson};
}
