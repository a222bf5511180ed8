#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod board;
mod boards;
mod clock;
mod connections;
mod desk;
mod error;
mod exposition;
mod kept;
mod line;
mod lines;
mod metrics;
mod mqtt;
mod private;
mod record;
mod same_origin;
mod server;
mod server_log;
mod status;
mod store;
mod store_lock;
mod tasks;
mod told;
mod waiting;

pub use access::{Role, Tokens};
pub use board::Board;
pub use boards::{
    Boards, Keeping, LabelForm, OPENAPI, RuleCheck, Served, WAIT_FOR_STORE, Watching,
};
pub use connections::{ConnectionLimits, Connections, Tls};
pub use desk::{OnAlarm, Settings};
pub use error::Error;
pub use exposition::{Counter, Exposition, Family, Histogram, Labels};
pub use line::Line;
pub use mqtt::Mqtt;
pub use record::Totals;
pub use server::{Options, serve};
pub use server_log::{FailureReason, LogForm, LogRequests, RequestId, ServerLog};
pub use status::Status;
pub use store::{Retention, Stored};
pub use told::Told;
