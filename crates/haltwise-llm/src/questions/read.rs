//! Lines of a file become questions, whichever format they are in.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::formats::{
    DocumentLine, FreeLabel, FreeLine, Id, LEvalLine, OptionLabel, QualityArticle, QualityLine,
    QualityQuestion,
};
use super::lettered::{first_letter, lettered_options};
use super::{Parsed, Question, read_text};
use crate::letters::OPTIONS;

/// Reads the questions in a text. Those that are free need neither a document nor options.
/// `beside` is the folder of the file that the text is from.
pub(super) fn parse(
    text: &str,
    documents: Option<&Path>,
    beside: Option<&Path>,
    is_free: bool,
) -> Parsed<Vec<Question>> {
    let mut reader = LineReader {
        is_free,
        documents,
        beside,
        texts: HashMap::new(),
        ids: HashSet::new(),
        questions: Vec::new(),
    };
    for (number, line) in text.lines().enumerate() {
        if !line.trim().is_empty() {
            let added = reader.add_line(line, number + 1);
            added.map_err(|e| format!("line {}: {e}", number + 1))?;
        }
    }
    if reader.questions.is_empty() {
        return Err("there is no question in it".into());
    }
    Ok(reader.questions)
}

/// Collects the questions of a file, line by line.
struct LineReader<'a> {
    /// Whether questions need neither a document nor options.
    is_free: bool,
    documents: Option<&'a Path>,
    /// The folder that the questions are in.
    beside: Option<&'a Path>,
    texts: HashMap<String, Arc<str>>,
    ids: HashSet<String>,
    questions: Vec<Question>,
}

impl LineReader<'_> {
    fn add_line(&mut self, line: &str, number: usize) -> Parsed<()> {
        let fields: Map<String, Value> =
            serde_json::from_str(line).map_err(|e| format!("it is no JSON object: {e}"))?;
        let has = |name: &str| fields.contains_key(name);
        if has("article") && has("questions") {
            self.add_article(parsed(fields)?, number)
        } else if has("article") && has("question") {
            self.add_article_question(parsed(fields)?, number)
        } else if has("instructions") && has("input") {
            self.add_l_eval(parsed(fields)?, number)
        } else if self.is_free && has("question") {
            self.add_free(parsed(fields)?, number)
        } else if has("document") {
            self.add_about_document(parsed(fields)?, number)
        } else if self.is_free {
            Err("it has no \"question\"".into())
        } else {
            Err(
                "it has neither \"document\" (ours) nor \"article\" (QuALITY) nor \
                 \"instructions\" and \"input\" (L-Eval)"
                    .into(),
            )
        }
    }

    fn add_article(&mut self, article: QualityArticle, number: usize) -> Parsed<()> {
        let text = self.shared(&article.article)?;
        let name = article.set_unique_id.unwrap_or_else(|| number.to_string());
        for (i, question) in article.questions.into_iter().enumerate() {
            // Only the later releases name the questions.
            let id = question.question_unique_id.clone();
            let id = id.unwrap_or_else(|| format!("{name}_{}", i + 1));
            self.add_quality(id, &text, question)?;
        }
        Ok(())
    }

    fn add_article_question(&mut self, line: QualityLine, number: usize) -> Parsed<()> {
        let text = self.shared(&line.article)?;
        let id = line.question.question_unique_id.clone();
        self.add_quality(
            id.unwrap_or_else(|| number.to_string()),
            &text,
            line.question,
        )
    }

    fn add_quality(&mut self, id: String, text: &Arc<str>, q: QualityQuestion) -> Parsed<()> {
        // Counted from 1; the test split has none.
        let label = match q.gold_label {
            None => None,
            Some(label) => Some(
                label
                    .checked_sub(1)
                    .ok_or("gold_label is 0; it counts from 1")?,
            ),
        };
        self.add(id, text, &q.question, q.options, label)
    }

    fn add_l_eval(&mut self, line: LEvalLine, number: usize) -> Parsed<()> {
        let text = self.shared(&line.input)?;
        if !line.outputs.is_empty() && line.outputs.len() != line.instructions.len() {
            return Err(format!(
                "{} instructions but {} outputs",
                line.instructions.len(),
                line.outputs.len()
            ));
        }
        for (i, instruction) in line.instructions.iter().enumerate() {
            let (question, options) = lettered_options(instruction);
            let label = match line.outputs.get(i) {
                None => None,
                Some(output) => Some(first_letter(output).ok_or_else(|| {
                    format!("the output {output:?} does not begin with the letter of an option")
                })?),
            };
            self.add(
                format!("{number}_{}", i + 1),
                &text,
                question,
                options,
                label,
            )?;
        }
        Ok(())
    }

    fn add_about_document(&mut self, line: DocumentLine, number: usize) -> Parsed<()> {
        let text = self.document(&line.document)?;
        let label = match line.label {
            None => None,
            Some(OptionLabel::Position(label)) => Some(label),
            Some(OptionLabel::Option(label)) => {
                let place = line.options.iter().position(|option| *option == label);
                Some(place.ok_or_else(|| format!("the label {label:?} is none of the options"))?)
            }
        };
        let id = line.id.map_or(number.to_string(), Id::text);
        self.add(id, &text, &line.question, line.options, label)
    }

    /// A question with or without a document, with or without options.
    fn add_free(&mut self, line: FreeLine, number: usize) -> Parsed<()> {
        let id = line.id.map_or(number.to_string(), Id::text);
        if line.question.trim().is_empty() {
            return Err(format!("the question {id} is empty"));
        }
        let document = match &line.document {
            None => "".into(),
            Some(document) => self.document(document)?,
        };
        if !line.options.is_empty() {
            let label = match line.label {
                None => None,
                Some(label) => Some(label.place(&line.options)?),
            };
            return self.add(id, &document, &line.question, line.options, label);
        }
        if !self.ids.insert(id.clone()) {
            return Err(format!("the id {id} occurs twice"));
        }
        self.questions.push(Question {
            id,
            document,
            question: line.question.trim().to_owned(),
            options: Vec::new(),
            label: None,
            answer: line.label.map(FreeLabel::text),
            request: None,
        });
        Ok(())
    }

    /// A document as a line of ours has it: its text, or the name of a file.
    fn document(&mut self, document: &str) -> Parsed<Arc<str>> {
        match self.documents {
            None if is_file_name(document, self.beside) => Err(format!(
                "its document is {document:?}, the name of a file and not a text; say in which \
                 folder the file is, with --documents FOLDER"
            )),
            None => self.shared(document),
            Some(folder) => {
                if !stays_inside(document) {
                    return Err(format!(
                        "its document is {document:?}, which leads out of the folder {}; name \
                         files that are in it, without \"..\"",
                        folder.display()
                    ));
                }
                let file = folder.join(document);
                let text =
                    read_text(&file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
                self.shared(&text)
            }
        }
    }

    /// A document's text, the same for all questions about it.
    fn shared(&mut self, text: &str) -> Parsed<Arc<str>> {
        let text = text.trim();
        if text.is_empty() {
            return Err("the document is empty".into());
        }
        if let Some(known) = self.texts.get(text) {
            return Ok(Arc::clone(known));
        }
        let shared: Arc<str> = text.into();
        self.texts.insert(text.to_owned(), Arc::clone(&shared));
        Ok(shared)
    }

    fn add(
        &mut self,
        id: String,
        document: &Arc<str>,
        question: &str,
        options: Vec<String>,
        label: Option<usize>,
    ) -> Parsed<()> {
        if !OPTIONS.contains(&options.len()) {
            return Err(format!(
                "the question {id} has {} options; {} to {} can be asked",
                options.len(),
                OPTIONS.start(),
                OPTIONS.end()
            ));
        }
        if let Some(label) = label.filter(|&label| label >= options.len()) {
            return Err(format!(
                "the label of the question {id} is {label}, of {} options counted from 0",
                options.len()
            ));
        }
        if !self.ids.insert(id.clone()) {
            return Err(format!("the id {id} occurs twice"));
        }
        self.questions.push(Question {
            id,
            document: Arc::clone(document),
            question: question.trim().to_owned(),
            options: options
                .iter()
                .map(|option| option.trim().to_owned())
                .collect(),
            label,
            answer: None,
            request: None,
        });
        Ok(())
    }
}

fn parsed<T: serde::de::DeserializeOwned>(fields: Map<String, Value>) -> Parsed<T> {
    serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())
}

/// Whether a document looks like a file's name: a word with an extension, or the name of
/// a file that exists.
fn is_file_name(document: &str, beside: Option<&Path>) -> bool {
    let name = document.trim();
    // No system has longer names, and a text is soon longer.
    if name.len() > 255 || name.contains(['\n', '\r', '\0']) {
        return false;
    }
    let is_there = || beside.is_some_and(|folder| folder.join(name).is_file());
    (!name.contains(char::is_whitespace) && has_extension(name)) || is_there()
}

/// Whether a word ends like "a.txt" or "a.mp3", and not like "3.14".
fn has_extension(word: &str) -> bool {
    let extension = Path::new(word).extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| {
        (1..=8).contains(&e.len())
            && e.bytes().all(|b| b.is_ascii_alphanumeric())
            && e.bytes().any(|b| b.is_ascii_alphabetic())
    })
}

/// Whether a name is that of something in a folder, whatever the folder.
fn stays_inside(name: &str) -> bool {
    Path::new(name)
        .components()
        .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}
