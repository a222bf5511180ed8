#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod commit;
mod error;
mod file;

pub use commit::{AppendError, Committer, Failed};
pub use error::{Error, ErrorKind};
pub use file::{Log, Opened, Read};
