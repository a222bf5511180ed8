#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod board;
mod desk;
mod error;
mod kept;
mod line;
mod lines;
mod metrics;
mod mqtt;
mod record;
mod server;
mod store;

pub use desk::{OnAlarm, Settings, Status};
pub use error::Error;
pub use line::Line;
pub use mqtt::Mqtt;
pub use record::Totals;
pub use server::{Notice, Options, Served, serve};
pub use store::Stored;
