//! Applying a rule: to traces, to live streams, to votes; and testing whether its promise
//! still holds.

pub mod evaluate;
pub mod monitor;
pub mod stream;
pub mod votes;
