//! Sequences and sets of them: the losses of stopping them, the terms of a promise, and the
//! roles of sets.

pub(crate) mod checker;
pub(crate) mod gap_score;
pub(crate) mod identity;
pub(crate) mod loss;
pub(crate) mod outputs;
pub(crate) mod roles;
pub mod score;
pub(crate) mod score_rows;
pub(crate) mod sequence;
pub(crate) mod sequence_error;
pub(crate) mod survey;
pub mod terms;
pub(crate) mod traces;
pub(crate) mod unit_weights;
pub(crate) mod words;
