//! Applying a rule: to traces, to live streams, to votes and thoughts; and testing whether its promise
//! still holds.

pub mod evaluate;
pub mod monitor;
pub mod stream;
pub mod thoughts;
pub mod votes;
