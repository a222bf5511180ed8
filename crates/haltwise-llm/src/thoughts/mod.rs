//! Thoughts: a reasoning model thinks in steps, and after each is asked for its answer so far.

mod chat_prompt;
mod probing;
mod thinker;
mod thinking;

pub use probing::Probing;
pub use thinker::{OpenThought, Probe, Thinker};
pub use thinking::{Thinking, ThoughtStep};
