//! How a thought is cut into steps, and how the model is asked for its answer after each.

use std::num::NonZeroU32;

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::reader::Record;
use crate::votes::{Extract, Sampling};

/// How a thought is cut into steps and probed.
///
/// A probe closes the thought, begins the answer, and lets the model end it with a few of the
/// likeliest tokens. The thought itself goes on as if nobody had asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probing {
    /// The tokens of thought before each probe.
    pub every: NonZeroU32,
    /// The mark before a thought.
    pub open: String,
    /// The mark behind a thought.
    pub close: String,
    /// The words that begin an answer.
    pub begin: String,
    /// The most tokens that a probe may generate.
    pub probe_tokens: NonZeroU32,
}

impl Probing {
    /// The usual marks, which most reasoning models know.
    pub const MARKS: (&'static str, &'static str) = ("<think>", "</think>");

    /// The usual number of tokens before each probe.
    pub const EVERY: NonZeroU32 = NonZeroU32::MIN.saturating_add(255);

    /// The usual limit of a probe. With it, probes add at most 12 tokens to 256, less than 5%. Numbers
    /// and most formulas are shorter; answers in words need more.
    pub const PROBE_TOKENS: NonZeroU32 = NonZeroU32::MIN.saturating_add(11);

    /// The most tokens of a thought, if nothing else is said.
    pub const MOST_TOKENS: u32 = 16_384;

    /// The prompt with the thought opened. Some models' formats open it already.
    pub fn opened(&self, prompt: &str) -> String {
        match prompt.trim_end().ends_with(self.open.as_str()) {
            true => prompt.to_owned(),
            false => format!("{prompt}{}\n", self.open),
        }
    }

    /// The text with the thought closed.
    pub fn closed(&self, text: &str) -> String {
        format!("{}\n{}\n\n", text.trim_end(), self.close)
    }

    /// The request that lets a text go on, until the mark behind the thought at the most.
    pub fn continuation(&self, text: &str, others: Map<String, Value>) -> Value {
        let mut request = Value::Object(others);
        request["prompt"] = text.into();
        request["stop"] = json!([self.close]);
        request
    }

    /// The request that asks for the answer so far, and how it is sampled.
    pub fn probe(&self, text: &str, extract: &Extract) -> (Value, Sampling) {
        let mut request = json!({"prompt": self.closed(text) + &self.begin});
        if !extract.endings().is_empty() {
            request["stop"] = json!(extract.endings());
        }
        let sampling = Sampling {
            temperature: 0.0,
            top_p: None,
            max_tokens: self.probe_tokens.get(),
        };
        (request, sampling)
    }

    /// The answer of a probe in its normal form, empty where there is none. `letters` are those of
    /// the options, if the question has options.
    pub fn answer(&self, extract: &Extract, said: &str, cut: bool, letters: &[char]) -> String {
        extract.begun_answer(&self.begin, said, cut, letters)
    }

    /// Writes it into what is known about a model that thinks.
    pub(super) fn write(&self, record: &mut Record) {
        let values = [
            self.every.to_string(),
            self.open.clone(),
            self.close.clone(),
            self.begin.clone(),
            self.probe_tokens.to_string(),
        ];
        for (name, value) in std::iter::zip(NAMES, values) {
            record.insert(name.to_owned(), value);
        }
    }

    /// What a record says about it, if the record is about thoughts.
    pub fn read(record: &Record) -> crate::Result<Option<Self>> {
        let Some(every) = record.get("every") else {
            return Ok(None);
        };
        let text = |name: &str| {
            let text = record.get(name).cloned();
            text.ok_or_else(|| Error::input(format_args!("the record of thoughts has no {name:?}")))
        };
        let number = |name: &str, text: &str| {
            text.parse().map_err(|_| {
                let problem = format!("the record of thoughts has {text:?} for {name:?}");
                Error::input(problem)
            })
        };
        Ok(Some(Self {
            every: number("every", every)?,
            open: text("think_open")?,
            close: text("think_close")?,
            begin: text("begin")?,
            probe_tokens: number("probe_tokens", &text("probe_tokens")?)?,
        }))
    }
}

/// What a record calls the parts.
pub(super) const NAMES: [&str; 5] = [
    "every",
    "think_open",
    "think_close",
    "begin",
    "probe_tokens",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Probing {
        let (open, close) = Probing::MARKS;
        Probing {
            every: Probing::EVERY,
            open: open.into(),
            close: close.into(),
            begin: Extract::default().beginning(),
            probe_tokens: Probing::PROBE_TOKENS,
        }
    }

    #[test]
    fn a_thought_is_opened_once_and_closed_on_a_line_of_its_own() {
        let probing = usual();
        assert_eq!(probing.opened("a:"), "a:<think>\n");
        assert_eq!(probing.opened("a:<think>\n"), "a:<think>\n");
        let (request, sampling) = probing.probe("a:<think>\nso ", &Extract::default());
        assert_eq!(
            request["prompt"],
            "a:<think>\nso\n</think>\n\n**Final answer:** \\boxed{"
        );
        assert_eq!(
            (request["stop"][0].as_str(), sampling.temperature),
            (Some("\n"), 0.0)
        );
    }

    #[test]
    fn a_record_brings_it_back_and_a_bad_one_is_named() {
        let mut record = Record::new();
        assert_eq!(Probing::read(&record), Ok(None));
        usual().write(&mut record);
        assert_eq!(Probing::read(&record), Ok(Some(usual())));
        record.insert("probe_tokens".into(), "0".into());
        let error = Probing::read(&record).unwrap_err().to_string();
        assert!(error.contains("\"0\" for \"probe_tokens\""), "{error}");
        record.remove("begin");
        let error = Probing::read(&record).unwrap_err().to_string();
        assert!(error.contains("no \"begin\""), "{error}");
    }
}
