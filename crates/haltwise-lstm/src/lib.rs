#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod adam;
mod backward;
mod block;
mod checkpoint;
mod device;
mod engine;
mod error;
mod forward;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
mod heads;
mod kernel;
mod model;
mod normalise;
mod pack;
mod pickle;
#[cfg(test)]
mod reference;
mod resume;
mod score;
mod shape;
mod simd;
mod train;

pub use device::Device;
pub use error::{Error, Result};
pub use haltwise_series::Series;
pub use model::{Model, TrainingRecord};
pub use normalise::Normalisation;
pub use score::{ScoreStream, Scores};
pub use shape::Shape;
pub use train::{Epoch, Labelled, TrainOptions, Trainer};
