//! The lines that `decide` and the server read: one JSON object each, about one
//! stream.

use std::borrow::Cow;

use haltwise::score::{ScoreSource, StepError};
use haltwise::stream::Refusal;
use haltwise::{Rule, Step};
use serde::Deserialize;
use serde_json::error::Category;
use serde_json::value::RawValue;

/// At most 60 characters of a text that may be of any length, and a mark if there
/// are more.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// The most bytes of a class, a group or a unit as it stands in a line. They are kept for as long
/// as a stream waits for its label.
const MOST_NAME: usize = 4096;

/// Refuses a name that is too long to be kept.
fn check_name(what: &str, raw: &str) -> Result<(), String> {
    if raw.len() > MOST_NAME {
        let found = raw.len();
        return Err(format!(
            "the {what} has {found} bytes; at most {MOST_NAME} are possible"
        ));
    }
    Ok(())
}

/// The fields of a line of input, as they stand there.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    score: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    probs: Option<&'a RawValue>,
    #[serde(borrow)]
    prediction: Option<&'a RawValue>,
    #[serde(borrow)]
    group: Option<&'a RawValue>,
    #[serde(borrow)]
    unit: Option<&'a RawValue>,
    #[serde(borrow)]
    t: Option<&'a RawValue>,
    #[serde(borrow)]
    end: Option<&'a RawValue>,
}

/// Whatever stands there, `null` included: a step with an unusable score is a
/// step all the same.
fn present<'a, D: serde::Deserializer<'a>>(value: D) -> Result<Option<&'a RawValue>, D::Error> {
    Deserialize::deserialize(value).map(Some)
}

/// One line about one stream: a step, that it is over, or both.
#[derive(Debug)]
pub struct Line<'a> {
    /// The id as it is echoed and compared: a JSON string or number.
    pub id: Cow<'a, str>,
    score: Option<&'a RawValue>,
    probs: Option<&'a RawValue>,
    prediction: Option<&'a RawValue>,
    group: Option<&'a RawValue>,
    unit: Option<&'a RawValue>,
    /// The step, counted from 1, where it is said.
    pub t: Option<u64>,
    /// Whether the stream is over after it.
    pub end: bool,
}

impl<'a> Line<'a> {
    /// Reads a line.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        // A list of the fields' values would be taken as well.
        if !line.starts_with(b"{") {
            return Err("it is no JSON object, such as {\"id\": \"a\", \"score\": 0.93}".into());
        }
        let fields: Fields<'a> = serde_json::from_slice(line).map_err(|e| {
            let what = match e.classify() {
                Category::Eof => "it breaks off",
                Category::Data => "a field comes twice",
                Category::Syntax | Category::Io => "it cannot be read on",
            };
            format!(
                "it is no sound JSON object: {what} at column {}",
                e.column()
            )
        })?;
        let id = fields.id.ok_or("it has no \"id\"")?;
        for (what, name) in [
            ("prediction", fields.prediction),
            ("group", fields.group),
            ("unit", fields.unit),
        ] {
            name.map_or(Ok(()), |name| check_name(what, name.get()))?;
        }
        let t = |raw: &RawValue| match raw.get().parse() {
            Ok(t) if t > 0 => Ok(t),
            _ => Err(format!(
                "\"t\" is {}, and not a step, counted from 1",
                shortened(raw.get())
            )),
        };
        let end = match fields.end.map(RawValue::get) {
            None | Some("false") => false,
            Some("true") => true,
            Some(raw) => {
                return Err(format!(
                    "\"end\" is {}, and neither true nor false",
                    shortened(raw)
                ));
            }
        };
        Ok(Self {
            id: stream_id(id.get())?,
            score: fields.score,
            probs: fields.probs,
            prediction: fields.prediction,
            group: fields.group,
            unit: fields.unit,
            t: fields.t.map(t).transpose()?,
            end,
        })
    }

    /// Whether it is a step, not only word that the stream is over.
    pub fn has_step(&self) -> bool {
        self.score.is_some() || self.probs.is_some()
    }

    /// What the classifier said, as far as the rule looks at it; the class
    /// probabilities are kept in `probs`.
    pub fn step<'p>(&self, rule: &Rule, probs: &'p mut Vec<f32>) -> Result<Step<'p>, String> {
        let score = self.score.map(|raw| {
            let parsed = raw.get().parse::<f32>();
            parsed.map_err(|_| format!("the score {} is not a number", shortened(raw.get())))
        });
        let score = score.transpose()?;
        let takes_probs = *rule.source() != ScoreSource::Confidence || rule.classes().is_some();
        let given = self.probs.filter(|_| takes_probs);
        if let Some(raw) = given {
            *probs = serde_json::from_str(raw.get()).map_err(|_| {
                format!(
                    "\"probs\" is {}, and not a list of numbers",
                    shortened(raw.get())
                )
            })?;
        }
        let learned = rule.source().learned().is_some();
        let prediction = self.prediction.filter(|_| learned);
        Ok(Step {
            prediction: prediction.map(|raw| class(raw.get())).transpose()?,
            score,
            probs: given.map(|_| &probs[..]),
        })
    }

    /// The score, where one is said that is a number.
    pub(crate) fn score_said(&self) -> Option<f32> {
        self.score?
            .get()
            .parse()
            .ok()
            .filter(|s: &f32| s.is_finite())
    }

    /// The class probabilities, where they are said and are numbers.
    pub(crate) fn probs_said(&self) -> Option<Vec<f32>> {
        serde_json::from_str(self.probs?.get()).ok()
    }

    /// The predicted class, as JSON, where it is said.
    pub(crate) fn prediction_said(&self) -> Option<String> {
        let class = json_class(self.prediction?.get());
        class.ok().map(Cow::into_owned)
    }

    /// The group that its stream belongs to, where it is said.
    pub fn group_said(&self) -> Option<Cow<'a, str>> {
        self.group.and_then(name)
    }

    /// The unit that its stream is of, where it is said.
    pub(crate) fn unit_said(&self) -> Option<Cow<'a, str>> {
        self.unit.and_then(name)
    }

    /// Why its step has no score.
    pub fn words(&self, error: StepError) -> String {
        match (error, self.prediction) {
            // As it was given: a name has no number.
            (StepError::Prediction { classes, .. }, Some(given)) => format!(
                "the prediction {} is none of the {classes} classes, counted from 0",
                shortened(given.get())
            ),
            (error, _) => error.to_string(),
        }
    }

    /// Why its stream does not take it.
    pub fn refused(&self, refusal: &Refusal) -> String {
        let id = shortened(&self.id);
        match refusal {
            Refusal::Nothing => "neither a \"score\" nor \"probs\" nor \"end\": true".into(),
            Refusal::NoRoom { .. } => format!("stream {id}: {refusal}; raise --max-streams"),
            _ => format!("stream {id}: {refusal}"),
        }
    }
}

/// A name: a string, or a number as it is written.
fn name(raw: &RawValue) -> Option<Cow<'_, str>> {
    let raw = raw.get();
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str::<String>(raw).ok().map(Cow::Owned),
        b'-' | b'0'..=b'9' => Some(raw.into()),
        _ => None,
    }
}

/// A predicted class as a number. A name becomes one that only tells it from
/// others, which is all a score without class probabilities looks at; it is none
/// that a class has.
fn class(raw: &str) -> Result<u32, String> {
    if !raw.starts_with(['"', '-']) && !raw.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(format!(
            "the prediction {} is neither a number nor a string",
            shortened(raw)
        ));
    }
    // What stands in quotes is a name, as in trace files.
    let named = || xxhash_rust::xxh3::xxh3_64(raw.as_bytes()) as u32 | 1 << 31;
    Ok(raw.parse().unwrap_or_else(|_| named()))
}

/// A class as JSON: a number or a string, in the one way to write it.
pub(crate) fn json_class(raw: &str) -> Result<Cow<'_, str>, String> {
    check_name("class", raw)?;
    let what = |_| {
        format!(
            "the class {} is neither a number nor a string",
            shortened(raw)
        )
    };
    stream_id(raw).map_err(what)
}

/// The id of a line as it is echoed and compared: a JSON string or number.
pub(crate) fn stream_id(raw: &str) -> Result<Cow<'_, str>, String> {
    match raw.as_bytes().first() {
        // Two ways to write a string are one id.
        Some(b'"') if raw.contains('\\') => {
            let text: String = serde_json::from_str(raw)
                .map_err(|_| format!("the id {} is no text that can be read", shortened(raw)))?;
            serde_json::to_string(&text)
                .map(Into::into)
                .map_err(|e| e.to_string())
        }
        Some(b'"' | b'-' | b'0'..=b'9') => Ok(raw.into()),
        _ => Err(format!(
            "the id {} is neither a string nor a number",
            shortened(raw)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_kept_have_a_bound() {
        for field in ["prediction", "group", "unit"] {
            let line = |n: usize| format!(r#"{{"id": 1, "{field}": "{}"}}"#, "x".repeat(n));
            Line::parse(line(MOST_NAME - 2).as_bytes()).unwrap();
            let refused = Line::parse(line(MOST_NAME - 1).as_bytes()).unwrap_err();
            assert!(
                refused.contains(&format!("the {field} has 4097 bytes")),
                "{refused}"
            );
        }
        assert!(json_class(&"1".repeat(MOST_NAME)).is_ok());
        assert!(json_class(&"1".repeat(MOST_NAME + 1)).is_err());
    }

    #[test]
    fn text_of_any_length_is_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(1000)), format!("{}…", "é".repeat(60)));
    }
}
