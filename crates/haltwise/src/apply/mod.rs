//! What a rule does: to traces, to live streams, to votes; and whether its promise still holds.

pub mod evaluate;
pub mod monitor;
pub mod stream;
pub mod votes;
