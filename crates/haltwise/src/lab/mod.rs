//! Experiments: forecasts of the use of more traces, and processes whose true gaps are
//! known.

pub mod forecast;
pub mod simulate;
pub(crate) mod synthetic;
