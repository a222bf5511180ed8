//! What a client asks for, and whether it can be voted on.

use axum::body::Bytes;
use haltwise::Rule;
use serde_json::{Map, Value};

use crate::outcome::{Difference, Outcome, Purpose};
use crate::settings::Voting;

/// A request that is voted on.
#[derive(Debug)]
pub(crate) struct Ask {
    fields: Map<String, Value>,
    seed: Option<u64>,
    pub(crate) stream: bool,
    /// Whether a stream ends with what was used.
    pub(crate) include_usage: bool,
    /// Why the rule promises nothing about the request, as far as can be seen.
    difference: Option<Difference>,
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
    /// The request that is to be voted on, or what it is for if it is to be passed through.
    pub(crate) fn new(body: &Bytes, voting: &Voting, rule: &Rule) -> Result<Self, Purpose> {
        let mut fields: Map<String, Value> =
            serde_json::from_slice(body).map_err(|_| Purpose::Unknown)?;
        if fields.get("model").and_then(Value::as_str) != Some(&voting.model) {
            return Err(Purpose::OtherModel);
        }
        let set = |name: &&str| {
            let value = fields.get(*name);
            value.is_some_and(|v| !v.is_null() && *v != Value::Bool(false))
        };
        let several = fields
            .get("n")
            .and_then(Value::as_u64)
            .is_some_and(|n| n != 1);
        if several {
            return Err(Purpose::Choices);
        }
        if OTHERWISE.iter().any(set) {
            return Err(Purpose::Kind);
        }
        let messages = fields.get("messages").and_then(Value::as_array);
        let messages = messages.ok_or(Purpose::Unknown)?;
        let alone = messages.len() == 1 && messages[0]["role"] == "user";
        let usual = fields.keys().all(|name| USUAL.contains(&name.as_str()));
        let most = ["max_tokens", "max_completion_tokens"];
        let most = most.iter().find_map(|name| fields.get(*name)?.as_u64());
        let as_many = most.is_none_or(|most| most == voting.max_tokens);
        let difference = if !voting.is_promised_by(rule) {
            Some(Difference::Rule)
        } else if !alone {
            Some(Difference::Messages)
        } else if !as_many {
            Some(Difference::MaxTokens)
        } else if !usual {
            Some(Difference::Fields)
        } else {
            None
        };
        let stream = fields.get("stream") == Some(&Value::Bool(true));
        let options = fields.get("stream_options");
        let include_usage = options.is_some_and(|o| o["include_usage"] == true);
        let seed = fields.get("seed").and_then(Value::as_u64);
        for name in ["stream", "stream_options", "n"] {
            fields.remove(name);
        }
        // Votes are sampled as the rule's were: at another temperature it promises
        // nothing, and at 0, which many clients send, there is but one vote.
        fields.insert("temperature".into(), voting.temperature.into());
        match voting.top_p {
            Some(top_p) => fields.insert("top_p".into(), top_p.into()),
            None => fields.remove("top_p"),
        };
        if most.is_none() {
            fields.insert("max_tokens".into(), voting.max_tokens.into());
        }
        Ok(Self {
            fields,
            seed,
            stream,
            include_usage,
            difference,
        })
    }

    /// Whether the request is like those that the rule was calibrated on, as far as can be
    /// seen.
    pub(crate) fn is_promised(&self) -> bool {
        self.difference.is_none()
    }

    /// How it comes out if the votes come in.
    pub(crate) fn outcome(&self) -> Outcome {
        self.difference
            .map_or(Outcome::Promised, Outcome::Unpromised)
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
