//! The tests: exact binomial tests, bets, and candidates in a fixed order.

pub(crate) mod betting;
pub(crate) mod fixed_sequence;
