#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
pub mod series;
mod write;
pub use error::{Error, Result};
pub use write::write_whole;
