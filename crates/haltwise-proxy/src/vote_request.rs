//! What a client asks for, and whether it can be voted on.

use std::collections::BTreeMap;
use std::fmt;

use axum::body::Bytes;
use haltwise::Rule;
use haltwise_llm::{
    Messages, NOT_FOR_THOUGHTS, OTHER_KINDS, PromptPart, PromptShape, USUAL_FIELDS,
};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::body::{PartedBody, Share};
use crate::outcome::{Difference, Outcome, Purpose};
use crate::settings::Voting;

/// The most fields of a request that is voted on.
const MOST_FIELDS: usize = 256;

/// The most bytes of fields that go into each step of a thought: to parse them takes memory.
const MOST_OF_OTHERS: usize = 64 << 10;

/// A request that is voted on.
#[derive(Debug)]
pub(crate) struct VoteRequest {
    /// The request without its seed and its last brace: all votes share it.
    start: Bytes,
    seed: Option<u64>,
    /// The model by the name that the client has for it.
    pub(crate) model: String,
    /// The most tokens: of a vote, or of a thought.
    pub(crate) max_tokens: u64,
    /// Whether the client set that limit.
    pub(crate) has_limit: bool,
    /// Fields beside the usual ones, which every step of a thought has; none for votes.
    pub(crate) others: Map<String, Value>,
    pub(crate) stream: bool,
    /// Whether a stream ends with what was used.
    pub(crate) include_usage: bool,
    /// Why the rule promises nothing about the request, as far as can be seen.
    difference: Option<(Difference, String)>,
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

    /// The fields beside the usual ones.
    fn others(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        let all = self.0.iter().map(|(name, json)| (name.as_str(), *json));
        all.filter(|(name, _)| !USUAL_FIELDS.contains(name) && !OTHER_KINDS.contains(name))
    }

    /// The fields that every step of a thought has; `None` where they cannot be kept.
    fn of_thoughts(&self) -> Option<Map<String, Value>> {
        let bytes: usize = self.others().map(|(_, json)| json.get().len()).sum();
        if bytes > MOST_OF_OTHERS || NOT_FOR_THOUGHTS.iter().any(|name| self.has(name)) {
            return None;
        }
        let parsed = self.others().map(|(name, json)| {
            let value = serde_json::from_str(json.get()).ok()?;
            Some((name.to_owned(), value))
        });
        parsed.collect()
    }

    /// How the prompt differs from those that the rule was calibrated on.
    fn difference(
        &self,
        shape: &PromptShape,
        messages: &Messages<'_>,
    ) -> Option<(Difference, String)> {
        let others = self.others().map(|(name, json)| (name, json.get()));
        let found = shape.difference(messages, &others.collect())?;
        let difference = match found.part {
            PromptPart::Messages => Difference::Messages,
            PromptPart::Words => Difference::Words,
            PromptPart::Fields => Difference::Fields,
        };
        Some((difference, found.reason))
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

#[derive(Deserialize)]
struct StreamOptions {
    include_usage: bool,
}

impl VoteRequest {
    /// The request that is to be voted on, or what it is for if it is to be passed through.
    pub(crate) fn new(body: &Bytes, voting: &Voting, rule: &Rule) -> Result<Self, Purpose> {
        let fields: Fields<'_> = serde_json::from_slice(body).map_err(|_| Purpose::Unknown)?;
        let model: Option<String> = fields.read("model");
        let model = model.filter(|model| voting.is_for(model));
        let model = model.ok_or(Purpose::OtherModel)?;
        if fields.read::<u64>("n").is_some_and(|n| n != 1) {
            return Err(Purpose::Choices);
        }
        if OTHER_KINDS.iter().any(|name| fields.has(name)) {
            return Err(Purpose::Kind);
        }
        let others = match voting.probing {
            Some(_) => fields.of_thoughts().ok_or(Purpose::Kind)?,
            None => Map::new(),
        };
        let messages: Messages<'_> = fields.read("messages").ok_or(Purpose::Unknown)?;
        let most = ["max_tokens", "max_completion_tokens"];
        let most = most.iter().find_map(|name| fields.read::<u64>(name));
        let difference = match voting.promised_by(rule) {
            Err(reason) => Some((Difference::Rule, reason.to_owned())),
            Ok(shape) => fields.difference(&shape, &messages).or_else(|| {
                let most = most.filter(|most| *most != voting.max_tokens)?;
                let calibrated = voting.max_tokens;
                let reason =
                    format!("its max_tokens is {most}; the rule was calibrated with {calibrated}");
                Some((Difference::MaxTokens, reason))
            }),
        };
        let options: Option<StreamOptions> = fields.read("stream_options");
        let seed: Option<u64> = fields.read("seed");
        // Votes are sampled as the rule's were: at another temperature it promises
        // nothing, and at 0, which many clients send, there is but one vote.
        let mut sampling = BTreeMap::from([
            ("stream", None),
            ("stream_options", None),
            ("n", None),
            ("temperature", Some(voting.temperature.into())),
            ("top_p", voting.top_p.map(Value::from)),
        ]);
        if most.is_none() {
            sampling.insert("max_tokens", Some(voting.max_tokens.into()));
        }
        if seed.is_some() {
            sampling.insert("seed", None);
        }
        Ok(Self {
            model,
            start: fields.written(&sampling).map_err(|_| Purpose::Unknown)?,
            seed,
            max_tokens: most.unwrap_or(voting.max_tokens),
            has_limit: most.is_some(),
            others,
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

    /// Why the rule promises nothing about it, if it does not: for the metrics and for people.
    pub(crate) fn difference(&self) -> Option<(Difference, &str)> {
        let (difference, reason) = self.difference.as_ref()?;
        Some((*difference, reason))
    }

    /// How it comes out if the votes come in.
    pub(crate) fn outcome(&self) -> Outcome {
        let difference = self.difference().map(|(difference, _)| difference);
        difference.map_or(Outcome::Promised, Outcome::Unpromised)
    }

    /// The seed of a vote or of a step of a thought, counted from 0, if the client gave one.
    pub(crate) fn seed_of(&self, number: u64) -> Option<u64> {
        Some(self.seed?.wrapping_add(number) & 0x7fff_ffff)
    }

    /// The request for a vote, counted from 0. If the client gave a seed, each vote
    /// has its own.
    pub(crate) fn vote(&self, number: usize) -> PartedBody {
        let end = match self.seed_of(number as u64) {
            Some(seed) => format!(",\"seed\":{seed}}}"),
            None => "}".to_owned(),
        };
        PartedBody::new([self.start.clone(), end.into()])
    }
}
