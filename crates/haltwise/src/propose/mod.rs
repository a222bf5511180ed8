//! The proposal: everything that is fixed before certifying, which is the score, the
//! candidate rules, their order and their shares of delta.

mod budget;
mod curves;
pub(crate) mod error;
pub(crate) mod families;
pub(crate) mod fit;
pub(crate) mod logistic;
mod plain;
pub(crate) mod proposal;
pub(crate) mod refine;
pub(crate) mod screen;
pub(crate) mod shares;
mod views;
