//! What a client asks for, and whether it can be voted on.

use std::collections::BTreeMap;
use std::fmt;

use axum::body::Bytes;
use haltwise::Rule;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::body::{PartedBody, Share};
use crate::outcome::{Difference, Outcome, Purpose};
use crate::settings::Voting;

/// The most fields of a request that is voted on.
const MOST_FIELDS: usize = 256;

/// A request that is voted on.
#[derive(Debug)]
pub(crate) struct VoteRequest {
    /// The request without its seed and its last brace: all votes share it.
    start: Bytes,
    seed: Option<u64>,
    pub(crate) stream: bool,
    /// Whether a stream ends with what was used.
    pub(crate) include_usage: bool,
    /// Why the rule promises nothing about the request, as far as can be seen.
    difference: Option<Difference>,
    /// Its share of the memory for bodies.
    _share: Option<Share>,
}

/// The fields of a request as they stand: to parse what is in them could take many times the
/// memory.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = BTreeMap<String, &'de RawValue>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a request")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = BTreeMap::new();
                while let Some((name, value)) = map.next_entry()? {
                    fields.insert(name, value);
                    if fields.len() > MOST_FIELDS {
                        return Err(de::Error::custom("it has too many fields"));
                    }
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(All).map(Self)
    }
}

impl Fields<'_> {
    /// What a field holds, if it is of this type.
    fn read<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.0.get(name)?.get()).ok()
    }

    /// Whether a field says anything.
    fn has(&self, name: &str) -> bool {
        let value = self.0.get(name).map(|value| value.get());
        value.is_some_and(|value| value != "null" && value != "false")
    }

    /// The fields with others in their place, without the brace at the end.
    fn written(&self, others: &BTreeMap<&str, Option<Value>>) -> Result<Bytes, serde_json::Error> {
        let mut text = b"{".to_vec();
        let rest = self.0.iter();
        for (name, value) in rest.filter(|(name, _)| !others.contains_key(name.as_str())) {
            write(&mut text, name, value)?;
        }
        for (name, value) in others {
            if let Some(value) = value {
                write(&mut text, name, value)?;
            }
        }
        Ok(text.into())
    }
}

/// Writes a field after those that are there.
fn write(text: &mut Vec<u8>, name: &str, value: &impl Serialize) -> Result<(), serde_json::Error> {
    if text.len() > 1 {
        text.push(b',');
    }
    serde_json::to_writer(&mut *text, name)?;
    text.push(b':');
    serde_json::to_writer(text, value)
}

/// How many messages there are, and whose the first is.
#[derive(Default)]
struct Messages {
    count: usize,
    is_first_of_user: bool,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<std::borrow::Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for Messages {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Messages;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Messages, A::Error> {
                let mut messages = Messages::default();
                if let Some(first) = all.next_element::<Message<'de>>()? {
                    messages.is_first_of_user = first.role.as_deref() == Some("user");
                    messages.count = 1;
                }
                while all.next_element::<IgnoredAny>()?.is_some() {
                    messages.count += 1;
                }
                Ok(messages)
            }
        }

        deserializer.deserialize_seq(All)
    }
}

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: bool,
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

impl VoteRequest {
    /// The request that is to be voted on, or what it is for if it is to be passed through.
    pub(crate) fn new(body: &Bytes, voting: &Voting, rule: &Rule) -> Result<Self, Purpose> {
        let fields: Fields<'_> = serde_json::from_slice(body).map_err(|_| Purpose::Unknown)?;
        if fields.read::<String>("model").as_ref() != Some(&voting.model) {
            return Err(Purpose::OtherModel);
        }
        if fields.read::<u64>("n").is_some_and(|n| n != 1) {
            return Err(Purpose::Choices);
        }
        if OTHERWISE.iter().any(|name| fields.has(name)) {
            return Err(Purpose::Kind);
        }
        let messages: Messages = fields.read("messages").ok_or(Purpose::Unknown)?;
        let alone = messages.count == 1 && messages.is_first_of_user;
        let usual = fields.0.keys().all(|name| USUAL.contains(&name.as_str()));
        let most = ["max_tokens", "max_completion_tokens"];
        let most = most.iter().find_map(|name| fields.read::<u64>(name));
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
        let options: Option<StreamOptions> = fields.read("stream_options");
        let seed: Option<u64> = fields.read("seed");
        // Votes are sampled as the rule's were: at another temperature it promises
        // nothing, and at 0, which many clients send, there is but one vote.
        let mut others = BTreeMap::from([
            ("stream", None),
            ("stream_options", None),
            ("n", None),
            ("temperature", Some(voting.temperature.into())),
            ("top_p", voting.top_p.map(Value::from)),
        ]);
        if most.is_none() {
            others.insert("max_tokens", Some(voting.max_tokens.into()));
        }
        if seed.is_some() {
            others.insert("seed", None);
        }
        Ok(Self {
            start: fields.written(&others).map_err(|_| Purpose::Unknown)?,
            seed,
            stream: fields.read("stream") == Some(true),
            include_usage: options.is_some_and(|options| options.include_usage),
            difference,
            _share: None,
        })
    }

    /// The same with its share of the memory for bodies, for as long as it is there.
    pub(crate) fn holding(self, share: Option<Share>) -> Self {
        Self {
            _share: share,
            ..self
        }
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

    /// The request for a vote, counted from 0. If the client gave a seed, each vote
    /// has its own.
    pub(crate) fn vote(&self, number: usize) -> PartedBody {
        let end = match self.seed {
            Some(seed) => {
                let seed = seed.wrapping_add(number as u64) & 0x7fff_ffff;
                format!(",\"seed\":{seed}}}")
            }
            None => "}".to_owned(),
        };
        PartedBody::new([self.start.clone(), end.into()])
    }
}
