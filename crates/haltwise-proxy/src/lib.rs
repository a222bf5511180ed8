#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod body;
mod keys;
mod metrics;
mod openapi;
mod outcome;
mod pending_reply;
mod reported_request;
mod server;
mod settings;
mod unpromised;
mod upstream;
mod vote_request;
mod voted_reply;

pub use keys::Key;
pub use metrics::Totals;
pub use server::Proxy;
pub use settings::{Options, ProxyError, for_votes};
