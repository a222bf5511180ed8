#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer;
mod chat;
mod document;
mod error;
mod journal;
mod letters;
mod prompt;
mod questions;
mod reader;
mod reading;
mod reply;
mod run;
mod server;
mod thoughts;
mod votes;

pub use answer::Answer;
pub use chat::{
    ChatRequest, Messages, NOT_FOR_THOUGHTS, OTHER_KINDS, PromptDifference, PromptPart,
    PromptShape, USUAL_FIELDS, read_requests,
};
pub use document::{Split, Unit};
pub use error::{Error, Result};
pub use letters::Letters;
pub use prompt::{CHAT_FORMATS, Template};
pub use questions::{
    Question, parse_questions, read_free_questions, read_questions, shuffle_options,
};
pub use reader::{Asked, Mismatch, Reader, Record};
pub use reading::{Reading, by_document};
pub use reply::Tokens;
pub use run::{Progress, for_each};
pub use server::{ApiKey, Endpoint, LONGEST_WAIT, Server, ServerOptions, base_url, may_pass};
pub use thoughts::{OpenThought, Probe, Probing, Thinker, Thinking, ThoughtStep};
pub use votes::{Extract, Sample, Sampling, Voter, Voting, seed_of};
