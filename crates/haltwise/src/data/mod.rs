//! Sequences and sets of them: what is lost by stopping one, for whom a promise holds, and the
//! roles that sets play.

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
pub(crate) mod words;
