#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

mod error;
#[allow(unsafe_code)] // the driver's interface; each use says why it is sound
mod launch;
mod layout;
mod network;

pub use error::{Error, Result};
pub use launch::{Gpu, Moment};
pub use layout::{LARGEST_HIDDEN, Layout, Sizes};
pub use network::{Batch, Network, Scored, Scoring};

/// The kernels as the driver takes them; `make kernels` builds them from `kernels/lstm.cu`.
pub(crate) const PTX: &str = include_str!("../kernels/lstm.ptx");
