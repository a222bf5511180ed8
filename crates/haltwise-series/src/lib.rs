#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod file;
mod random;
pub mod seen;
mod series;

pub use random::{Fnv, Random};
pub use series::{Error, Series};
