//! The lines of the formats that questions come in.

use serde::Deserialize;

use super::Parsed;

/// A line of QuALITY: an article and its questions.
#[derive(Deserialize)]
pub(super) struct QualityArticle {
    pub(super) set_unique_id: Option<String>,
    pub(super) article: String,
    pub(super) questions: Vec<QualityQuestion>,
}

#[derive(Deserialize)]
pub(super) struct QualityQuestion {
    pub(super) question: String,
    pub(super) question_unique_id: Option<String>,
    pub(super) options: Vec<String>,
    pub(super) gold_label: Option<usize>,
}

/// A line of QuALITY with one question, as it is published in tables.
#[derive(Deserialize)]
pub(super) struct QualityLine {
    pub(super) article: String,
    #[serde(flatten)]
    pub(super) question: QualityQuestion,
}

/// A line of L-Eval: an article, its questions with their options in the same
/// text, and their answers.
#[derive(Deserialize)]
pub(super) struct LEvalLine {
    pub(super) input: String,
    pub(super) instructions: Vec<String>,
    #[serde(default)]
    pub(super) outputs: Vec<String>,
}

/// A line of ours: a question about a document.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DocumentLine {
    pub(super) id: Option<Id>,
    pub(super) document: String,
    pub(super) question: String,
    pub(super) options: Vec<String>,
    pub(super) label: Option<OptionLabel>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an id is a string or a number")]
pub(super) enum Id {
    Number(i64),
    Text(String),
}

impl Id {
    pub(super) fn text(self) -> String {
        match self {
            Self::Number(id) => id.to_string(),
            Self::Text(id) => id,
        }
    }
}

/// A line of ours: a question to vote on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FreeLine {
    pub(super) id: Option<Id>,
    pub(super) document: Option<String>,
    pub(super) question: String,
    #[serde(default)]
    pub(super) options: Vec<String>,
    pub(super) label: Option<FreeLabel>,
}

/// The right answer to a free question: a number, or words.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a label is the right answer, a string or a number"
)]
pub(super) enum FreeLabel {
    Number(serde_json::Number),
    Text(String),
}

impl FreeLabel {
    pub(super) fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }

    /// Which of the options it is: by its place from 0, or by its text.
    pub(super) fn place(self, options: &[String]) -> Parsed<usize> {
        let place = match &self {
            Self::Number(place) => place.as_u64().map(|place| place as usize),
            Self::Text(text) => options.iter().position(|option| option == text),
        };
        place.ok_or_else(|| format!("the label {:?} is none of the options", self.text()))
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a label is the place of the right option, counted from 0, or its text"
)]
pub(super) enum OptionLabel {
    Position(usize),
    Option(String),
}
