#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod commit;
mod error;
mod file;
mod file_id;
mod folder;
mod tail;

pub use commit::{Committer, Failed};
pub use error::{Error, ErrorKind};
pub use file::{Log, Opened, Read};
pub use file_id::FileId;
pub use folder::sync_folder_of;
pub use tail::{Cause, Dropped};
