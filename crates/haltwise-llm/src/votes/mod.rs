//! Votes: a model is asked the same question several times.

mod extract;
mod normal;
mod sample;
mod voter;
mod voting;

pub use extract::Extract;
pub use sample::{Sample, Sampling};
pub use voter::Voter;
pub use voting::{Voting, seed_of};
