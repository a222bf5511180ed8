//! The messages of a request, as they stand: who speaks, and the texts that frame the prompt.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// The most speakers in a row that are told apart, repeated turns aside.
const MOST_ROLES: usize = 16;

/// The name of messages that alternate in no pattern that a rule could be about.
const IRREGULAR: &str = "irregular";

/// The messages of a request. The texts stay where they are: a request may be long.
#[derive(Debug, Default)]
pub struct Messages<'a> {
    /// The roles in order; repeated turns are written once.
    roles: Vec<String>,
    count: usize,
    system: Option<&'a RawValue>,
    user: Option<&'a RawValue>,
}

impl<'a> Messages<'a> {
    /// The messages in a JSON text, if they are a list of objects.
    pub fn parse(json: &'a str) -> Option<Self> {
        serde_json::from_str(json).ok()
    }

    /// The roles in order, such as "system, user". Repeated turns are written once, so a
    /// conversation of any length is "user, assistant, user". What a message
    /// holds besides one text follows its role: "user+image_url".
    pub fn roles(&self) -> String {
        if self.roles.len() > MOST_ROLES {
            return IRREGULAR.to_owned();
        }
        self.roles.join(", ")
    }

    /// Whether the turns follow a pattern.
    pub fn are_regular(&self) -> bool {
        self.roles.len() <= MOST_ROLES
    }

    /// How many messages there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The text of the system message, if the request begins with one.
    pub fn system(&self) -> Option<Cow<'a, str>> {
        self.system.and_then(text)
    }

    /// The text of the last message, if it is the user's.
    pub fn user(&self) -> Option<Cow<'a, str>> {
        self.user.and_then(text)
    }

    fn add(&mut self, message: &Message<'a>) {
        self.count += 1;
        let role = message.role.as_str();
        if self.count == 1 && matches!(role, "system" | "developer") {
            self.system = message.content;
        }
        self.user = message.content.filter(|_| role == "user");
        if self.roles.len() > MOST_ROLES {
            return;
        }
        self.roles.push(message.name());
        if let [.., a, b, c, d] = &self.roles[..]
            && (a, b) == (c, d)
        {
            self.roles.truncate(self.roles.len() - 2);
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Messages<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Messages<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("messages")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let mut messages = Messages::default();
                while let Some(message) = all.next_element()? {
                    messages.add(&message);
                }
                Ok(messages)
            }
        }

        deserializer.deserialize_seq(All)
    }
}

/// One message.
struct Message<'a> {
    role: String,
    content: Option<&'a RawValue>,
    /// Other fields that say something, such as the tools that were called.
    others: BTreeSet<String>,
}

impl Message<'_> {
    /// Its role, and what it holds besides one text.
    fn name(&self) -> String {
        let mut name = self.role.clone();
        for other in self.content.map_or(vec!["nothing".to_owned()], kinds) {
            name = name + "+" + &other;
        }
        for other in &self.others {
            name = name + "+" + other;
        }
        name
    }
}

impl<'de> Deserialize<'de> for Message<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct One;

        impl<'de> Visitor<'de> for One {
            type Value = Message<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a message")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut message = Message {
                    role: String::new(),
                    content: None,
                    others: BTreeSet::new(),
                };
                while let Some(name) = map.next_key::<String>()? {
                    match name.as_str() {
                        "role" => message.role = map.next_value()?,
                        "content" => message.content = Some(map.next_value()?),
                        _ => {
                            let value: &RawValue = map.next_value()?;
                            let says = !matches!(value.get(), "null" | "[]" | "{}" | "\"\"");
                            if says && message.others.len() < MOST_ROLES {
                                message.others.insert(name);
                            }
                        }
                    }
                }
                Ok(message)
            }
        }

        deserializer.deserialize_map(One)
    }
}

/// What a content holds besides one text.
fn kinds(content: &RawValue) -> Vec<String> {
    let json = content.get();
    match json.as_bytes().first() {
        Some(b'"') => Vec::new(),
        Some(b'[') => match serde_json::from_str::<Parts<'_>>(json) {
            Ok(parts) if parts.texts.len() == 1 => parts.others.into_iter().collect(),
            Ok(parts) => {
                let texts = if parts.texts.is_empty() {
                    "nothing"
                } else {
                    "texts"
                };
                parts.others.into_iter().chain([texts.into()]).collect()
            }
            Err(_) => vec!["other".into()],
        },
        _ => vec!["nothing".into()],
    }
}

/// The text of a content.
fn text(content: &RawValue) -> Option<Cow<'_, str>> {
    let json = content.get();
    if let Ok(Text(text)) = serde_json::from_str(json) {
        return Some(text);
    }
    let mut texts = serde_json::from_str::<Parts<'_>>(json).ok()?.texts;
    Some(match texts.len() {
        1 => texts.swap_remove(0),
        _ => texts.concat().into(),
    })
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A content in parts.
struct Parts<'a> {
    texts: Vec<Cow<'a, str>>,
    /// The kinds of the others.
    others: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

impl<'de> Deserialize<'de> for Parts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Parts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the parts of a message")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
                let (mut texts, mut others) = (Vec::new(), BTreeSet::new());
                while let Some(part) = all.next_element::<Part<'de>>()? {
                    match (part.kind.as_str(), part.text) {
                        ("text", Some(text)) => texts.push(text),
                        _ if others.len() < MOST_ROLES => {
                            others.insert(part.kind);
                        }
                        _ => {}
                    }
                }
                Ok(Parts { texts, others })
            }
        }

        deserializer.deserialize_seq(All)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn roles(messages: &Value) -> String {
        Messages::parse(&messages.to_string()).unwrap().roles()
    }

    fn said(role: &str) -> Value {
        json!({"role": role, "content": "x"})
    }

    #[test]
    fn turns_are_written_once_however_long_a_conversation_is() {
        let conversation = |turns: usize, system: bool| {
            let mut all: Vec<Value> = Vec::from_iter(system.then(|| said("system")));
            for _ in 1..turns {
                all.extend([said("user"), said("assistant")]);
            }
            all.push(said("user"));
            roles(&json!(all))
        };
        assert_eq!(conversation(1, false), "user");
        assert_eq!(conversation(1, true), "system, user");
        for turns in [2, 3, 9] {
            assert_eq!(conversation(turns, false), "user, assistant, user");
            assert_eq!(
                conversation(turns, true),
                "system, user, assistant, user",
                "{turns}"
            );
        }
        assert_ne!(
            conversation(2, false),
            roles(&json!([said("user"), said("assistant")]))
        );
        let odd: Vec<Value> = (0..40).map(|i| said(&format!("role {i}"))).collect();
        let all = json!(odd).to_string();
        let messages = Messages::parse(&all).unwrap();
        assert!(!messages.are_regular());
        assert_eq!(
            (messages.roles().as_str(), messages.count()),
            ("irregular", 40)
        );
    }

    #[test]
    fn what_a_message_holds_besides_one_text_is_part_of_its_name() {
        let image = json!({"type": "image_url", "image_url": {"url": "data:"}});
        let text = |text: &str| json!({"type": "text", "text": text});
        for (message, expected) in [
            (json!({"role": "user", "content": [text("a")]}), "user"),
            (
                json!({"role": "user", "content": [text("a"), text("b")]}),
                "user+texts",
            ),
            (
                json!({"role": "user", "content": [text("a"), image]}),
                "user+image_url",
            ),
            (
                json!({"role": "assistant", "content": null, "tool_calls": [1], "refusal": null}),
                "assistant+nothing+tool_calls",
            ),
            (
                json!({"role": "user", "content": "a", "name": "Ann"}),
                "user+name",
            ),
            (json!({"role": "user", "content": 7}), "user+nothing"),
        ] {
            assert_eq!(roles(&json!([message])), expected);
        }
        assert!(Messages::parse("[1]").is_none());
        assert!(Messages::parse("\"none\"").is_none());
    }

    #[test]
    fn the_texts_are_those_of_the_first_system_message_and_of_the_last_user() {
        let all = json!([
            {"role": "system", "content": "Be \"brief\"."},
            {"role": "user", "content": "One?"},
            {"role": "assistant", "content": "1"},
            {"role": "user", "content": [{"type": "text", "text": "Two?\n"}]},
        ])
        .to_string();
        let messages = Messages::parse(&all).unwrap();
        assert_eq!(messages.system().as_deref(), Some("Be \"brief\"."));
        assert_eq!(messages.user().as_deref(), Some("Two?\n"));
        let all = json!([said("user"), said("assistant")]).to_string();
        let messages = Messages::parse(&all).unwrap();
        assert_eq!((messages.system(), messages.user()), (None, None));
    }
}
