//! Recorded requests: bodies of `/v1/chat/completions`, one per line.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map, Value};

use super::{Messages, OTHER_KINDS, USUAL_FIELDS};
use crate::error::Error;
use crate::questions::{Question, answer_label, read_text};

/// A recorded request: its messages, and all that may change its answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    fields: Map<String, Value>,
    /// The most tokens that it asked for.
    pub max_tokens: Option<u32>,
}

impl ChatRequest {
    /// A request with these fields. What a voter sets is left out.
    pub fn new(mut fields: Map<String, Value>) -> Result<Self, String> {
        let says = |name: &&&str| {
            let value = fields.get(**name);
            value.is_some_and(|value| !value.is_null() && *value != false)
        };
        if let Some(name) = OTHER_KINDS.iter().find(says) {
            return Err(format!(
                "it has {name:?}; the proxy passes such requests on without votes, so leave them out"
            ));
        }
        let most = ["max_tokens", "max_completion_tokens"];
        let max_tokens = most.iter().find_map(|name| fields.get(*name)?.as_u64());
        let max_tokens = max_tokens.map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        fields.retain(|name, _| name == "messages" || !USUAL_FIELDS.contains(&name.as_str()));
        for name in OTHER_KINDS {
            fields.remove(name);
        }
        let request = Self { fields, max_tokens };
        let json = request.messages();
        let messages = request.seen(&json).map_err(|e| e.to_string())?;
        if messages.user().is_none() {
            return Err("its last message is not a user's text".into());
        }
        Ok(request)
    }

    /// One message of a user, after that of the system if there is one.
    pub(crate) fn of_texts(system: Option<&str>, user: &str) -> Self {
        let message =
            |(role, text): (&str, &str)| serde_json::json!({"role": role, "content": text});
        let system = system.map(|text| ("system", text));
        let messages: Vec<Value> = system
            .into_iter()
            .chain([("user", user)])
            .map(message)
            .collect();
        let mut fields = Map::new();
        fields.insert("messages".into(), messages.into());
        Self {
            fields,
            max_tokens: None,
        }
    }

    /// The fields to send.
    pub(crate) fn fields(&self) -> &Map<String, Value> {
        &self.fields
    }

    /// Its messages as JSON.
    pub(crate) fn messages(&self) -> String {
        self.fields
            .get("messages")
            .unwrap_or(&Value::Null)
            .to_string()
    }

    /// Its messages, as far as they can be read.
    pub(crate) fn seen<'a>(&self, json: &'a str) -> crate::Result<Messages<'a>> {
        let wrong = |what: &str| Error::input(format_args!("its \"messages\" are {what}"));
        let messages = Messages::parse(json).ok_or_else(|| wrong("no list of messages"))?;
        if !messages.are_regular() {
            return Err(wrong("of too many different kinds to compare others with"));
        }
        Ok(messages)
    }

    /// The fields beside the usual ones.
    pub(crate) fn other_fields(&self) -> Map<String, Value> {
        let mut others = self.fields.clone();
        others.remove("messages");
        others
    }
}

/// Reads recorded requests: one body of `/v1/chat/completions` per line, with an `id` and a
/// `label` if there are any; or one line of a batch file, with `custom_id` and `body`.
///
/// All must have the same fields besides their messages, because a rule is about one set of them.
pub fn read_requests(path: &Path) -> crate::Result<Vec<Question>> {
    let text =
        read_text(path).map_err(|e| Error::file(path, format_args!("cannot read it: {e}")))?;
    parse(&text).map_err(|e| Error::file(path, e))
}

fn parse(text: &str) -> Result<Vec<Question>, String> {
    let (mut questions, mut ids): (Vec<Question>, HashSet<String>) = Default::default();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        let at = |e: String| format!("line {}: {e}", number + 1);
        let (question, request) = recorded(line, number + 1).map_err(at)?;
        if !ids.insert(question.id.clone()) {
            return Err(at(format!("the id {} occurs twice", question.id)));
        }
        let first = questions.first().and_then(|first| first.request.as_ref());
        let (here, there) = (request.other_fields(), first.map(ChatRequest::other_fields));
        if let Some(there) = there.filter(|there| *there != here) {
            let name = here
                .iter()
                .find(|(name, value)| there.get(*name) != Some(value));
            let name = name.map(|(name, _)| name);
            let name = name.or_else(|| there.keys().find(|name| !here.contains_key(*name)));
            return Err(at(format!(
                "its field {:?} is not that of the requests before; calibrate a rule for each",
                name.map_or("", String::as_str)
            )));
        }
        questions.push(Question {
            request: Some(request),
            ..question
        });
    }
    if questions.is_empty() {
        return Err("there is no request in it".into());
    }
    Ok(questions)
}

/// A line: who it is and what it asks.
fn recorded(line: &str, number: usize) -> Result<(Question, ChatRequest), String> {
    let mut fields: Map<String, Value> =
        serde_json::from_str(line).map_err(|e| format!("it is no JSON object: {e}"))?;
    let mut id = fields.remove("id").or_else(|| fields.remove("custom_id"));
    let mut label = fields.remove("label");
    if let Some(Value::Object(mut body)) = fields.remove("body") {
        id = id.or_else(|| body.remove("id"));
        label = label.or_else(|| body.remove("label"));
        fields = body;
    }
    let id = match id.unwrap_or(number.into()) {
        Value::String(id) => id,
        Value::Number(id) => id.to_string(),
        _ => return Err("its id is neither a string nor a number".into()),
    };
    let question = Question {
        id,
        document: "".into(),
        question: String::new(),
        options: Vec::new(),
        label: None,
        answer: label
            .filter(|label| !label.is_null())
            .map(answer_label)
            .transpose()?,
        request: None,
    };
    Ok((question, ChatRequest::new(fields)?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_keeps_what_may_change_its_answer_and_nothing_that_the_voter_sets() {
        let line = json!({"id": 7, "label": 391, "model": "m", "temperature": 0.2, "stream": true,
            "max_tokens": 300, "response_format": {"type": "json_object"}, "tools": null,
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]});
        let batch = json!({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": "u"}],
                "response_format": {"type": "json_object"}}});
        let read = parse(&format!("{line}\n\n{batch}\n")).unwrap();
        let ids: Vec<&str> = read.iter().map(|q| q.id.as_str()).collect();
        assert_eq!(ids, ["7", "a"]);
        let first = read[0].request.as_ref().unwrap();
        let names: Vec<&String> = first.fields().keys().collect();
        assert_eq!(names, ["messages", "response_format"]);
        assert_eq!(first.max_tokens, Some(300));
        assert_eq!(read[0].answer.as_deref(), Some("391"));
        assert_eq!(read[1].answer, None);
    }

    #[test]
    fn lines_that_cannot_be_voted_on_are_named_with_a_remedy() {
        let user = json!([{"role": "user", "content": "u"}]);
        let line = |more: Value| {
            let mut line = json!({"messages": user});
            let fields = more.as_object().unwrap().clone();
            line.as_object_mut().unwrap().extend(fields);
            line.to_string()
        };
        let plain = line(json!({}));
        for (text, expected) in [
            (line(json!({"tools": [1]})), "line 1: it has \"tools\""),
            (line(json!({"messages": "u"})), "no list of messages"),
            (
                line(json!({"messages": [{"role": "assistant", "content": "u"}]})),
                "its last message is not a user's text",
            ),
            (
                format!("{plain}\n{}", line(json!({"effort": 1}))),
                "line 2: its field \"effort\" is not that",
            ),
            (
                format!("{}\n{plain}", line(json!({"effort": 1}))),
                "line 2: its field \"effort\" is not that",
            ),
            (line(json!({"label": [1]})), "a label is the right answer"),
            (format!("{}\n{0}", line(json!({"id": "a"}))), "occurs twice"),
            ("\n".into(), "there is no request in it"),
            ("[]".into(), "line 1: it is no JSON object"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
