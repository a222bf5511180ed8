#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answers;
mod error;
mod file;
mod fit;
mod forest;
mod inputs;
mod kernels;
mod linear;
mod mix;
mod model;
mod options;
mod record;
mod ridge;
mod scale;
mod stream;

pub use answers::Answers;
pub use error::{Error, Result};
pub use fit::{Fitted, Progress, fit, working_memory};
pub use haltwise_series::Series;
pub use model::Model;
pub use options::{Checkpoints, FitOptions};
pub use record::{CheckpointRecord, TrainingRecord};
pub use stream::Stream;
