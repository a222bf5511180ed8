//! Ordered families of candidate rules, and the counts of what each does to traces.

pub(crate) mod by_level;
pub(crate) mod candidates;
pub(crate) mod error;
pub(crate) mod halting;
pub(crate) mod moments;
pub(crate) mod table;
