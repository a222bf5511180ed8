//! Questions from the files they come in: about documents, with options to choose
//! from; or free ones, to vote on.

mod formats;
mod lettered;
mod read;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::chat::ChatRequest;
use crate::error::Error;
use formats::FreeLabel;

/// A question about a document, with the options to choose from.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What the file calls it; unique in the file.
    pub id: String,
    /// The document. Questions about the same text share it. Empty where a free
    /// question is about none.
    pub document: Arc<str>,
    /// The text of the question.
    pub question: String,
    /// 2 to 26 answers; none where a free question has none to choose from.
    pub options: Vec<String>,
    /// The right one, counted from 0, where it is known.
    pub label: Option<usize>,
    /// The right answer to a question without options, where it is known.
    pub answer: Option<String>,
    /// The recorded request that asks it, instead of a template.
    pub request: Option<ChatRequest>,
}

/// A value read from a line, or the fault of the line.
type Parsed<T> = std::result::Result<T, String>;

/// Reads the questions of a JSONL file: QuALITY's (an article and its questions
/// per line, or one of its questions), L-Eval's, or ours. With `documents`, a folder,
/// the `document` of a line of ours is the name of a file in it. Without, it is the
/// text, and what looks like the name of a file is refused.
pub fn read_questions(path: &Path, documents: Option<&Path>) -> crate::Result<Vec<Question>> {
    read_file(path, documents, false)
}

/// The same for questions to vote on: they need neither a document nor options,
/// and the label of a question without options is the right answer itself.
pub fn read_free_questions(path: &Path, documents: Option<&Path>) -> crate::Result<Vec<Question>> {
    read_file(path, documents, true)
}

/// Reads the questions in the text of a file.
pub fn parse_questions(
    text: &str,
    documents: Option<&Path>,
) -> std::result::Result<Vec<Question>, String> {
    read::parse(text, documents, None, false)
}

fn read_file(path: &Path, documents: Option<&Path>, is_free: bool) -> crate::Result<Vec<Question>> {
    let text =
        read_text(path).map_err(|e| Error::file(path, format_args!("cannot read it: {e}")))?;
    read::parse(&text, documents, path.parent(), is_free).map_err(|e| Error::file(path, e))
}

/// The right answer to a question without options, as a line has it.
pub(crate) fn answer_label(label: Value) -> Parsed<String> {
    let label: FreeLabel = serde_json::from_value(label).map_err(|e| e.to_string())?;
    Ok(label.text())
}

/// The text of a file, or why there is none.
pub(crate) fn read_text(path: &Path) -> Parsed<String> {
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; save it as UTF-8".into())
}

/// Shuffles the options of every question by the seed and the question's id. If the right
/// one always came first, a model that favours the letter A would look clever.
pub fn shuffle_options(questions: &mut [Question], seed: u64) {
    for question in questions {
        let draw = |i: &usize| xxh3_64_with_seed(format!("{i}:{}", question.id).as_bytes(), seed);
        let mut order: Vec<usize> = (0..question.options.len()).collect();
        order.sort_by_key(draw);
        question.label = question
            .label
            .and_then(|label| order.iter().position(|&i| i == label));
        question.options = order.iter().map(|&i| question.options[i].clone()).collect();
    }
}
