//! What a client asks for, and whether it can be voted on.

use axum::body::Bytes;
use serde_json::{Map, Value};

use crate::settings::Settings;

/// A request that is voted on.
#[derive(Debug)]
pub(crate) struct Ask {
    fields: Map<String, Value>,
    seed: Option<u64>,
    pub(crate) stream: bool,
    /// Whether a stream ends with what was used.
    pub(crate) include_usage: bool,
    /// Whether the request is like those that the rule was calibrated on, as far as
    /// can be seen.
    pub(crate) promised: bool,
}

/// Fields that change nothing about the votes, or are set here.
const USUAL: [&str; 13] = [
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
const OTHERWISE: [&str; 8] = [
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "logprobs",
    "modalities",
    "audio",
    "prediction",
];

impl Ask {
    /// The request that is to be voted on; `None` where it is to be passed through:
    /// it is for another model, or for something else than one answer in words, or
    /// is none at all, which the server may say better.
    pub(crate) fn new(body: &Bytes, settings: &Settings) -> Option<Self> {
        let mut fields: Map<String, Value> = serde_json::from_slice(body).ok()?;
        let other_model = fields.get("model").and_then(Value::as_str) != Some(&settings.model);
        let set = |name: &&str| {
            let value = fields.get(*name);
            value.is_some_and(|v| !v.is_null() && *v != Value::Bool(false))
        };
        let several = fields
            .get("n")
            .and_then(Value::as_u64)
            .is_some_and(|n| n != 1);
        if other_model || several || OTHERWISE.iter().any(set) {
            return None;
        }
        let messages = fields.get("messages")?.as_array()?;
        let alone = messages.len() == 1 && messages[0]["role"] == "user";
        let usual = fields.keys().all(|name| USUAL.contains(&name.as_str()));
        let most = ["max_tokens", "max_completion_tokens"];
        let most = most.iter().find_map(|name| fields.get(*name)?.as_u64());
        let as_many = most.is_none_or(|most| most == settings.max_tokens);
        let stream = fields.get("stream") == Some(&Value::Bool(true));
        let options = fields.get("stream_options");
        let include_usage = options.is_some_and(|o| o["include_usage"] == true);
        let seed = fields.get("seed").and_then(Value::as_u64);
        for name in ["stream", "stream_options", "n"] {
            fields.remove(name);
        }
        // Votes are sampled as the rule's were: at another temperature it promises
        // nothing, and at 0, which many clients send, there is but one vote.
        fields.insert("temperature".into(), settings.temperature.into());
        match settings.top_p {
            Some(top_p) => fields.insert("top_p".into(), top_p.into()),
            None => fields.remove("top_p"),
        };
        if most.is_none() {
            fields.insert("max_tokens".into(), settings.max_tokens.into());
        }
        Some(Self {
            fields,
            seed,
            stream,
            include_usage,
            promised: settings.promises && alone && usual && as_many,
        })
    }

    /// The request for a vote, counted from 0. Where the client gave a seed, each
    /// vote has its own.
    pub(crate) fn vote(&self, number: usize) -> Bytes {
        let mut fields = self.fields.clone();
        if let Some(seed) = self.seed {
            let seed = seed.wrapping_add(number as u64) & 0x7fff_ffff;
            fields.insert("seed".into(), seed.into());
        }
        Value::Object(fields).to_string().into()
    }
}
