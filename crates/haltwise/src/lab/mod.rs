//! What more traces would buy, and processes whose true gaps are known.

pub mod forecast;
pub mod simulate;
pub(crate) mod synthetic;
