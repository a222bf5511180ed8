#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod error;
mod write;
pub use error::{Error, Result};
pub use write::write_whole;
