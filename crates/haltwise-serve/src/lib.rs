#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod board;
mod boards;
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
mod told;

pub use board::Board;
pub use boards::{Boards, Keeping, LabelForm, Notice, Served, Watching};
pub use desk::{OnAlarm, Settings, Status};
pub use error::Error;
pub use line::Line;
pub use mqtt::Mqtt;
pub use record::Totals;
pub use server::{Options, serve};
pub use store::Stored;
pub use told::Told;
