//! The shape of prompts: what all prompts have in common that a rule was calibrated on.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::messages::Messages;
use super::recorded::ChatRequest;
use crate::reader::Record;

/// What the prompts of a calibration have in common, as far as it can be seen: who speaks,
/// how long conversations are, the words around what changes, and other fields.
///
/// A rule's promise is about prompts that are drawn like those. One of another shape is not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PromptShape {
    roles: BTreeSet<String>,
    most_messages: usize,
    system: Frame,
    user: Frame,
    fields: Map<String, Value>,
}

/// The part of a request that differs from the shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptPart {
    /// The roles, and how many messages there are.
    Messages,
    /// The words of the system message, or around the question.
    Words,
    /// Fields that may change the answer.
    Fields,
}

/// How a request differs from the shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptDifference {
    /// Where it differs.
    pub part: PromptPart,
    /// What differs, for people.
    pub reason: String,
}

/// A field that is longer than the rule's by this much cannot be the same, spaces included.
const SPACES: usize = 1 << 16;

const CALIBRATED: &str = "as the prompts do that the rule was calibrated on";

/// What texts have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Frame {
    /// There was none.
    #[default]
    Unseen,
    /// They are all the same.
    Same(String),
    /// They begin and end in the same way.
    Around { begins: String, ends: String },
}

impl Frame {
    /// With one more text.
    fn with(self, text: &str) -> Self {
        let (begins, ends) = match self {
            Self::Unseen => return Self::Same(text.to_owned()),
            Self::Same(same) if same == text => return Self::Same(same),
            Self::Same(same) => {
                let at = common_start(&same, text);
                let ends = common_end(&same[at..], &text[at..]);
                (same[..at].to_owned(), same[same.len() - ends..].to_owned())
            }
            Self::Around { begins, ends } => {
                let at = common_start(&begins, text);
                let kept = common_end(&ends, &text[at..]);
                (
                    begins[..at].to_owned(),
                    ends[ends.len() - kept..].to_owned(),
                )
            }
        };
        Self::Around { begins, ends }
    }

    /// The same with whole words alone: that all questions end in "?" is no frame.
    fn in_words(self) -> Self {
        let Self::Around { begins, ends } = self else {
            return self;
        };
        let after = |(at, c): (usize, char)| at + c.len_utf8();
        let is_space = |(_, c): &(usize, char)| c.is_whitespace();
        let start = begins.char_indices().rev().find(is_space).map_or(0, after);
        let end = ends.char_indices().find(is_space);
        let end = end.map_or(ends.len(), |(at, _)| at);
        Self::Around {
            begins: begins[..start].to_owned(),
            ends: ends[end..].to_owned(),
        }
    }

    /// How a text differs. `shown` texts may be quoted to whoever sent it.
    fn difference(&self, text: &str, what: &str, shown: bool) -> Option<String> {
        let quoted = |words: &str| {
            if shown {
                format!("{:?}", shortened(words))
            } else {
                "the same words".to_owned()
            }
        };
        match self {
            Self::Unseen => None,
            Self::Same(same) => (same != text)
                .then(|| format!("{what} is not the one that the rule was calibrated on")),
            Self::Around { begins, .. } if !text.starts_with(begins.as_str()) => Some(format!(
                "{what} does not begin with {}, {CALIBRATED}",
                quoted(begins)
            )),
            Self::Around { begins, ends } => {
                let holds = text[begins.len()..].ends_with(ends.as_str());
                (!holds).then(|| format!("{what} does not end with {}, {CALIBRATED}", quoted(ends)))
            }
        }
    }

    fn write(&self, name: &str, record: &mut Record) {
        let mut put = |name: String, text: &String| {
            if !text.is_empty() {
                record.insert(name, text.clone());
            }
        };
        match self {
            Self::Unseen => {}
            Self::Same(text) => {
                record.insert(name.to_owned(), text.clone());
            }
            Self::Around { begins, ends } => {
                put(format!("{name}_begins"), begins);
                put(format!("{name}_ends"), ends);
            }
        }
    }

    fn read(name: &str, record: &Record) -> Self {
        if let Some(same) = record.get(name) {
            return Self::Same(same.clone());
        }
        let said = |end: &str| record.get(&format!("{name}_{end}")).cloned();
        match (said("begins"), said("ends")) {
            (None, None) => Self::Unseen,
            (begins, ends) => Self::Around {
                begins: begins.unwrap_or_default(),
                ends: ends.unwrap_or_default(),
            },
        }
    }
}

impl PromptShape {
    /// The shape of recorded requests. Words count as common only as whole words.
    pub fn of_requests<'a>(
        requests: impl IntoIterator<Item = &'a ChatRequest>,
    ) -> crate::Result<Self> {
        let mut shape = Self::default();
        for request in requests {
            shape.add(request)?;
        }
        shape.system = shape.system.in_words();
        shape.user = shape.user.in_words();
        Ok(shape)
    }

    /// The shape of requests that a template made for stand-ins: words are common to the letter.
    pub(crate) fn of_stand_ins(requests: &[ChatRequest]) -> crate::Result<Self> {
        let mut shape = Self::default();
        requests.iter().try_for_each(|request| shape.add(request))?;
        Ok(shape)
    }

    fn add(&mut self, request: &ChatRequest) -> crate::Result<()> {
        let json = request.messages();
        let messages = request.seen(&json)?;
        self.roles.insert(messages.roles());
        self.most_messages = self.most_messages.max(messages.count());
        let frames = [
            (&mut self.system, messages.system()),
            (&mut self.user, messages.user()),
        ];
        for (frame, text) in frames {
            if let Some(text) = text {
                *frame = std::mem::take(frame).with(&text);
            }
        }
        self.fields = request.other_fields();
        Ok(())
    }

    /// Writes the shape into what is known about a voter.
    pub fn write(&self, record: &mut Record) {
        let roles: Vec<&str> = self.roles.iter().map(String::as_str).collect();
        record.insert("messages".into(), roles.join(" | "));
        record.insert("most_messages".into(), self.most_messages.to_string());
        self.system.write("system", record);
        self.user.write("prompt", record);
        if !self.fields.is_empty() {
            let fields = Value::Object(self.fields.clone()).to_string();
            record.insert("fields".into(), fields);
        }
    }

    /// The shape that a record tells of, if it tells of one.
    pub fn read(record: &Record) -> Option<Self> {
        let roles = record.get("messages")?.split(" | ").map(str::to_owned);
        let fields = match record.get("fields") {
            None => Map::new(),
            Some(fields) => serde_json::from_str(fields).ok()?,
        };
        Some(Self {
            roles: roles.collect(),
            most_messages: record.get("most_messages")?.parse().ok()?,
            system: Frame::read("system", record),
            user: Frame::read("prompt", record),
            fields,
        })
    }

    /// The system message that all prompts have, if they do.
    pub fn system(&self) -> Option<&str> {
        match &self.system {
            Frame::Same(text) => Some(text),
            _ => None,
        }
    }

    /// How a request differs from the shape, if it does. `fields` are those beside
    /// [`USUAL_FIELDS`](super::USUAL_FIELDS), each with its JSON.
    pub fn difference(
        &self,
        messages: &Messages<'_>,
        fields: &BTreeMap<&str, &str>,
    ) -> Option<PromptDifference> {
        let because = |part, reason| Some(PromptDifference { part, reason });
        let roles = messages.roles();
        if !messages.are_regular() || !self.roles.contains(&roles) {
            let known: Vec<&str> = self.roles.iter().map(String::as_str).collect();
            let known = known.join("; or ");
            let roles = shortened(&roles);
            let reason = format!("its messages are: {roles}; the rule was calibrated on: {known}");
            return because(PromptPart::Messages, reason);
        }
        if messages.count() > self.most_messages {
            let reason = format!(
                "it has {} messages; the rule was calibrated on at most {}",
                messages.count(),
                self.most_messages
            );
            return because(PromptPart::Messages, reason);
        }
        let texts = [
            // A client must not learn the system message of others.
            (&self.system, messages.system(), "its system message", false),
            (&self.user, messages.user(), "its last message", true),
        ];
        for (frame, text, what, shown) in texts {
            let differs = text.and_then(|text| frame.difference(&text, what, shown));
            if let Some(reason) = differs {
                return because(PromptPart::Words, reason);
            }
        }
        let reason = self.fields_difference(fields)?;
        because(PromptPart::Fields, reason)
    }

    fn fields_difference(&self, fields: &BTreeMap<&str, &str>) -> Option<String> {
        for (name, json) in fields {
            let Some(value) = self.fields.get(*name) else {
                let name = shortened(name);
                return Some(format!(
                    "it has the field {name:?}, which the rule's prompts had not"
                ));
            };
            let is_short = json.len() <= value.to_string().len() + SPACES;
            let same = is_short && serde_json::from_str::<Value>(json).is_ok_and(|v| v == *value);
            if !same {
                return Some(format!(
                    "its field {name:?} is not that of the rule's prompts"
                ));
            }
        }
        let missing = self
            .fields
            .keys()
            .find(|name| !fields.contains_key(name.as_str()))?;
        Some(format!(
            "it has no field {missing:?}, which the rule's prompts had"
        ))
    }
}

/// Words for a message, not all of them if they are many.
fn shortened(words: &str) -> String {
    const MOST: usize = 80;
    match words.char_indices().nth(MOST) {
        None => words.to_owned(),
        Some((at, _)) => format!("{}…", &words[..at]),
    }
}

/// How many bytes two texts begin with in common.
fn common_start(a: &str, b: &str) -> usize {
    let same = a.char_indices().zip(b.chars());
    let last = same.take_while(|((_, a), b)| a == b).last();
    last.map_or(0, |((at, c), _)| at + c.len_utf8())
}

/// How many bytes two texts end with in common.
fn common_end(a: &str, b: &str) -> usize {
    let same = a.chars().rev().zip(b.chars().rev());
    let same = same.take_while(|(a, b)| a == b);
    same.map(|(c, _)| c.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn request(messages: &Value) -> ChatRequest {
        ChatRequest::new(json!({"messages": messages}).as_object().unwrap().clone()).unwrap()
    }

    fn user(text: &str) -> Value {
        json!([{"role": "user", "content": text}])
    }

    fn with_system(system: &str, text: &str) -> Value {
        json!([{"role": "system", "content": system}, {"role": "user", "content": text}])
    }

    /// The shape of these messages, by way of its record.
    fn shape(all: &[Value]) -> PromptShape {
        let requests: Vec<ChatRequest> = all.iter().map(request).collect();
        let shape = PromptShape::of_requests(&requests).unwrap();
        let mut record = Record::new();
        shape.write(&mut record);
        let read = PromptShape::read(&record).unwrap();
        let mut again = Record::new();
        read.write(&mut again);
        assert_eq!(again, record);
        read
    }

    fn why(shape: &PromptShape, messages: &Value, fields: &[(&str, &str)]) -> String {
        let json = messages.to_string();
        let messages = Messages::parse(&json).unwrap();
        let fields = fields.iter().copied().collect();
        let difference = shape.difference(&messages, &fields);
        difference.map_or(String::new(), |difference| difference.reason)
    }

    #[test]
    fn an_instruction_that_all_prompts_end_with_is_part_of_their_shape() {
        let ask = |what: &str| user(&format!("{what}\n\nAnswer in one word."));
        let shape = shape(&[ask("Who?"), ask("What is it?"), ask("Where, and why?")]);
        assert_eq!(why(&shape, &ask("When?"), &[]), "");
        let bare = why(&shape, &user("When?"), &[]);
        assert!(
            bare.contains("does not end with \"\\n\\nAnswer in one word.\""),
            "{bare}"
        );
        let other = why(&shape, &user("When?\n\nAnswer in two words."), &[]);
        assert!(other.contains("does not end with"), "{other}");
    }

    #[test]
    fn marks_that_all_questions_share_are_no_instruction() {
        let shape = shape(&[user("17?"), user("18?"), user("190?")]);
        assert_eq!(why(&shape, &user("How many."), &[]), "");
    }

    #[test]
    fn a_system_message_must_be_the_one_that_was_calibrated_and_is_not_shown() {
        let secret = "The password is swordfish.";
        let shape = shape(&[with_system(secret, "A?"), with_system(secret, "B?")]);
        assert_eq!(shape.system(), Some(secret));
        assert_eq!(why(&shape, &with_system(secret, "C?"), &[]), "");
        for other in [with_system("Be brief.", "C?"), user("C?")] {
            let reason = why(&shape, &other, &[]);
            assert!(
                !reason.is_empty() && !reason.contains("swordfish"),
                "{reason}"
            );
        }
        let dated = |day: u32| with_system(&format!("Today is {day}. Be brief."), "A?");
        let shape = self::shape(&[dated(3), dated(27), dated(31)]);
        assert_eq!(why(&shape, &dated(14), &[]), "");
        let reason = why(&shape, &with_system("Today is 14. Be long.", "A?"), &[]);
        assert!(
            reason.contains("does not end with the same words"),
            "{reason}"
        );
    }

    #[test]
    fn conversations_are_as_long_as_those_that_were_calibrated() {
        let turns = |n: usize| {
            let turn = [
                json!({"role": "user", "content": "a"}),
                json!({"role": "assistant", "content": "b"}),
            ];
            let mut all: Vec<Value> = turn.iter().cycle().take(2 * n).cloned().collect();
            all.push(json!({"role": "user", "content": format!("{n}?")}));
            json!(all)
        };
        let shape = shape(&[turns(0), turns(1), turns(3)]);
        for n in 0..=3 {
            assert_eq!(why(&shape, &turns(n), &[]), "", "{n}");
        }
        assert!(why(&shape, &turns(4), &[]).contains("it has 9 messages"));
        let alone = self::shape(&[user("1"), user("2")]);
        let reason = why(&alone, &turns(1), &[]);
        assert_eq!(
            reason,
            "its messages are: user, assistant, user; the rule was calibrated on: user"
        );
    }

    #[test]
    fn fields_must_be_the_same() {
        let with = |effort: &str| {
            let fields = json!({"messages": user("A?"), "reasoning_effort": effort});
            ChatRequest::new(fields.as_object().unwrap().clone()).unwrap()
        };
        let shape = PromptShape::of_requests(&[with("low")]).unwrap();
        let prompt = user("A?");
        assert_eq!(
            why(&shape, &prompt, &[("reasoning_effort", " \"low\"")]),
            ""
        );
        for (fields, expected) in [
            (&[("reasoning_effort", "\"high\"")][..], "is not that of"),
            (&[], "it has no field \"reasoning_effort\""),
            (
                &[("penalty", "1"), ("reasoning_effort", "\"low\"")],
                "the field \"penalty\"",
            ),
        ] {
            let reason = why(&shape, &prompt, fields);
            assert!(reason.contains(expected), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn every_prompt_of_a_calibration_has_its_shape(
            texts in prop::collection::vec("[ab ?é]{0,6}", 1..6)
        ) {
            let all: Vec<Value> = texts.iter().map(|text| user(text)).collect();
            let shape = shape(&all);
            for messages in &all {
                prop_assert_eq!(why(&shape, messages, &[]), "");
            }
        }
    }
}
