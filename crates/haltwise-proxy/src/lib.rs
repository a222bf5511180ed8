#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod ask;
mod audit;
mod server;
mod settings;
mod upstream;
mod voted;

pub use server::{Proxy, Totals};
pub use settings::{Options, ProxyError, label_form};
