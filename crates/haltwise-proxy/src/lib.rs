#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod completion_stream;
mod keys;
mod metrics;
mod openapi;
mod outcome;
mod pending_reply;
mod reported_request;
mod server;
mod settings;
mod thought;
mod thought_reply;
mod unpromised;
mod upstream;
mod vote_request;
mod voted_reply;

pub use keys::Key;
pub use metrics::Totals;
pub use server::Proxy;
pub use settings::{Options, ProxyError, for_answers};
