#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod audit_trace;
mod clock;
mod connections;
mod error;
mod exposition;
mod fault;
mod keeper;
mod line;
mod lines;
mod log_record;
mod metrics;
mod mqtt;
mod private;
mod reported_stream;
mod rule_state;
mod same_origin;
mod served_rule;
mod served_rules;
mod server;
mod server_log;
mod status;
mod store;
mod store_lock;
mod tasks;
mod unfinished;
mod unlabelled_audits;

pub use access::{Role, Tokens};
pub use connections::{ConnectionLimits, Connections, Tls};
pub use error::Error;
pub use exposition::{Counter, Exposition, Family, Histogram, Labels};
pub use keeper::{KeeperTask, Renewal};
pub use line::Line;
pub use log_record::Totals;
pub use mqtt::Mqtt;
pub use reported_stream::ReportedStream;
pub use rule_state::{OnAlarm, Settings};
pub use served_rule::ServedRule;
pub use served_rules::{
    LabelForm, OPENAPI, RuleCheck, RuleToServe, ServedRules, WAIT_FOR_STORE, WatchOptions,
};
pub use server::{Options, serve};
pub use server_log::{FailureReason, LogForm, LogRequests, RequestId, ServerLog};
pub use status::Status;
pub use store::{Retention, StoredMonitor};
