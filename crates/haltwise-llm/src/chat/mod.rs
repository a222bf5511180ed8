//! Requests for chat completions: what can be seen of their prompts, and files of them.

mod messages;
mod recorded;
mod shape;

pub use messages::Messages;
pub use recorded::{ChatRequest, read_requests};
pub use shape::{PromptDifference, PromptPart, PromptShape};

/// Fields of a request that leave its prompt as it is, or that the voter sets.
pub const USUAL_FIELDS: [&str; 13] = [
    "model",
    "messages",
    "stream",
    "stream_options",
    "temperature",
    "top_p",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "seed",
    "user",
    "metadata",
    "store",
];

/// Fields of requests for something else than one answer in words.
pub const OTHER_KINDS: [&str; 8] = [
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "logprobs",
    "modalities",
    "audio",
    "prediction",
];

/// Fields that cannot be kept while a model thinks: they are about the answer, or end the thought.
pub const NOT_FOR_THOUGHTS: [&str; 2] = ["response_format", "stop"];
