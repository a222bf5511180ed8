#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod ask;
mod audit;
mod body;
mod keys;
mod metrics;
mod openapi;
mod outcome;
mod server;
mod settings;
mod upstream;
mod voted;
mod waiting;

pub use keys::Key;
pub use metrics::Totals;
pub use server::Proxy;
pub use settings::{Options, ProxyError, for_votes};
