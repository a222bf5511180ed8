//! Questions from the files they come in: about documents, with options to choose
//! from; or free ones, for votes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Component, Path};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::error::Error;
use crate::letters::OPTIONS;

/// A question about a document, with the options to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// What the file calls it; unique in the file.
    pub id: String,
    /// The document. Questions about the same text share it. Empty where a free
    /// question is about none.
    pub document: Arc<str>,
    /// What is asked.
    pub question: String,
    /// 2 to 26 answers; none where a free question has none to choose from.
    pub options: Vec<String>,
    /// The right one, counted from 0, where it is known.
    pub label: Option<usize>,
    /// The right answer to a question without options, where it is known.
    pub answer: Option<String>,
}

/// What is wrong with a line of a file.
type Parsed<T> = std::result::Result<T, String>;

/// Reads the questions of a JSONL file: QuALITY's (an article and its questions
/// per line, or one of its questions), L-Eval's, or ours. Where `documents` names
/// a folder, the `document` of a line of ours is the name of a file in it; else it
/// is the text, and what looks like the name of a file is refused.
pub fn read_questions(path: &Path, documents: Option<&Path>) -> crate::Result<Vec<Question>> {
    let text =
        read_text(path).map_err(|e| Error::file(path, format_args!("cannot read it: {e}")))?;
    parse(&text, documents, path.parent(), false).map_err(|e| Error::file(path, e))
}

/// The same for questions to vote on: neither a document nor options are needed,
/// and the label of a question without options is the right answer itself.
pub fn read_free_questions(path: &Path, documents: Option<&Path>) -> crate::Result<Vec<Question>> {
    let text =
        read_text(path).map_err(|e| Error::file(path, format_args!("cannot read it: {e}")))?;
    parse(&text, documents, path.parent(), true).map_err(|e| Error::file(path, e))
}

/// The text of a file, or why there is none.
fn read_text(path: &Path) -> Parsed<String> {
    let bytes = fs::read(path).map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text; save it as UTF-8".into())
}

/// Reads the questions in the text of a file.
pub fn parse_questions(
    text: &str,
    documents: Option<&Path>,
) -> std::result::Result<Vec<Question>, String> {
    parse(text, documents, None, false)
}

fn parse(
    text: &str,
    documents: Option<&Path>,
    beside: Option<&Path>,
    free: bool,
) -> Parsed<Vec<Question>> {
    let mut intake = Intake {
        free,
        documents,
        beside,
        texts: HashMap::new(),
        ids: HashSet::new(),
        questions: Vec::new(),
    };
    for (number, line) in text.lines().enumerate() {
        if !line.trim().is_empty() {
            let taken = intake.take(line, number + 1);
            taken.map_err(|e| format!("line {}: {e}", number + 1))?;
        }
    }
    match intake.questions.is_empty() {
        true => Err("there is no question in it".into()),
        false => Ok(intake.questions),
    }
}

/// Puts the options of every question in an order drawn from the seed and the
/// question's id: where the right one always comes first, a model that favours
/// the letter A would look clever.
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

struct Intake<'a> {
    /// Whether questions need neither a document nor options.
    free: bool,
    documents: Option<&'a Path>,
    /// The folder that the questions are in.
    beside: Option<&'a Path>,
    texts: HashMap<String, Arc<str>>,
    ids: HashSet<String>,
    questions: Vec<Question>,
}

impl Intake<'_> {
    fn take(&mut self, line: &str, number: usize) -> Parsed<()> {
        let fields: Map<String, Value> =
            serde_json::from_str(line).map_err(|e| format!("it is no JSON object: {e}"))?;
        let has = |name: &str| fields.contains_key(name);
        if has("article") && has("questions") {
            self.quality(parsed(fields)?, number)
        } else if has("article") && has("question") {
            self.quality_question(parsed(fields)?, number)
        } else if has("instructions") && has("input") {
            self.l_eval(parsed(fields)?, number)
        } else if self.free && has("question") {
            self.free(parsed(fields)?, number)
        } else if has("document") {
            self.ours(parsed(fields)?, number)
        } else if self.free {
            Err("it has no \"question\"".into())
        } else {
            Err(
                "it has neither \"document\" (ours) nor \"article\" (QuALITY) nor \
                 \"instructions\" and \"input\" (L-Eval)"
                    .into(),
            )
        }
    }

    fn quality(&mut self, article: QualityArticle, number: usize) -> Parsed<()> {
        let text = self.text(&article.article)?;
        let name = article.set_unique_id.unwrap_or_else(|| number.to_string());
        for (i, question) in article.questions.into_iter().enumerate() {
            // Only the later releases name the questions.
            let id = question.question_unique_id.clone();
            let id = id.unwrap_or_else(|| format!("{name}_{}", i + 1));
            self.quality_one(id, &text, question)?;
        }
        Ok(())
    }

    fn quality_question(&mut self, line: QualityLine, number: usize) -> Parsed<()> {
        let text = self.text(&line.article)?;
        let id = line.question.question_unique_id.clone();
        self.quality_one(
            id.unwrap_or_else(|| number.to_string()),
            &text,
            line.question,
        )
    }

    fn quality_one(&mut self, id: String, text: &Arc<str>, q: QualityQuestion) -> Parsed<()> {
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

    fn l_eval(&mut self, line: LEval, number: usize) -> Parsed<()> {
        let text = self.text(&line.input)?;
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

    fn ours(&mut self, line: Ours, number: usize) -> Parsed<()> {
        let text = self.named(&line.document)?;
        let label = match line.label {
            None => None,
            Some(Label::Position(label)) => Some(label),
            Some(Label::Option(label)) => {
                let place = line.options.iter().position(|option| *option == label);
                Some(place.ok_or_else(|| format!("the label {label:?} is none of the options"))?)
            }
        };
        let id = line.id.map_or(number.to_string(), Id::text);
        self.add(id, &text, &line.question, line.options, label)
    }

    /// A question with or without a document, with or without options.
    fn free(&mut self, line: Free, number: usize) -> Parsed<()> {
        let id = line.id.map_or(number.to_string(), Id::text);
        if line.question.trim().is_empty() {
            return Err(format!("the question {id} is empty"));
        }
        let document = match &line.document {
            None => "".into(),
            Some(document) => self.named(document)?,
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
            answer: line.label.map(Right::text),
        });
        Ok(())
    }

    /// A document as a line of ours has it: its text, or the name of a file.
    fn named(&mut self, document: &str) -> Parsed<Arc<str>> {
        match self.documents {
            None if is_file_name(document, self.beside) => Err(format!(
                "its document is {document:?}, the name of a file and not a text; say in which \
                 folder the file is, with --documents FOLDER"
            )),
            None => self.text(document),
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
                self.text(&text)
            }
        }
    }

    /// A document's text, the same for all questions about it.
    fn text(&mut self, text: &str) -> Parsed<Arc<str>> {
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
        });
        Ok(())
    }
}

fn parsed<T: serde::de::DeserializeOwned>(fields: Map<String, Value>) -> Parsed<T> {
    serde_json::from_value(Value::Object(fields)).map_err(|e| e.to_string())
}

/// Whether a document is rather the name of one: a word with the extension of a
/// file, or a file that is there.
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

/// A line of QuALITY: an article and its questions.
#[derive(Deserialize)]
struct QualityArticle {
    set_unique_id: Option<String>,
    article: String,
    questions: Vec<QualityQuestion>,
}

#[derive(Deserialize)]
struct QualityQuestion {
    question: String,
    question_unique_id: Option<String>,
    options: Vec<String>,
    gold_label: Option<usize>,
}

/// A line of QuALITY with one question, as it is published in tables.
#[derive(Deserialize)]
struct QualityLine {
    article: String,
    #[serde(flatten)]
    question: QualityQuestion,
}

/// A line of L-Eval: an article, its questions with their options in the same
/// text, and their answers.
#[derive(Deserialize)]
struct LEval {
    input: String,
    instructions: Vec<String>,
    #[serde(default)]
    outputs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours {
    id: Option<Id>,
    document: String,
    question: String,
    options: Vec<String>,
    label: Option<Label>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "an id is a string or a number")]
enum Id {
    Number(i64),
    Text(String),
}

impl Id {
    fn text(self) -> String {
        match self {
            Self::Number(id) => id.to_string(),
            Self::Text(id) => id,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Free {
    id: Option<Id>,
    document: Option<String>,
    question: String,
    #[serde(default)]
    options: Vec<String>,
    label: Option<Right>,
}

/// The right answer to a free question: a number, or words.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "a label is the right answer, a string or a number"
)]
enum Right {
    Number(serde_json::Number),
    Text(String),
}

impl Right {
    fn text(self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text,
        }
    }

    /// Which of the options it is: by its place from 0, or by its text.
    fn place(self, options: &[String]) -> Parsed<usize> {
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
enum Label {
    Position(usize),
    Option(String),
}

/// Takes a question and its options apart: lines that begin with (A), or else
/// with A. or A), in the alphabet's order.
fn lettered_options(text: &str) -> (&str, Vec<String>) {
    let in_brackets = option_starts(text, true);
    let starts = match in_brackets.len() >= *OPTIONS.start() {
        true => in_brackets,
        false => option_starts(text, false),
    };
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let options = std::iter::zip(starts.iter().copied(), ends)
        .map(|(start, end)| without_letter(&text[start..end]).trim().to_owned())
        .collect();
    let question = &text[..starts.first().copied().unwrap_or(text.len())];
    (question, options)
}

/// Where the lines of the options begin.
fn option_starts(text: &str, in_brackets: bool) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let brackets = line.trim_start().starts_with('(');
        if brackets == in_brackets && first_letter(line) == Some(starts.len()) {
            starts.push(at);
        }
        at += line.len();
    }
    starts
}

/// Which option's letter a text begins with, from 0.
fn first_letter(text: &str) -> Option<usize> {
    let text = text.trim();
    let bare = text.strip_prefix('(').unwrap_or(text);
    let letter = bare.bytes().next().filter(u8::is_ascii_uppercase)?;
    let after = bare[1..].chars().next();
    let ends = match bare.len() < text.len() {
        true => after == Some(')'),
        false => matches!(after, None | Some('.' | ')' | ':')),
    };
    ends.then(|| usize::from(letter - b'A'))
}

fn without_letter(text: &str) -> &str {
    let text = text.trim_start();
    let bare = text.strip_prefix('(').unwrap_or(text);
    bare.get(2..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Parsed<Vec<Question>> {
        parse_questions(text, None)
    }

    #[test]
    fn every_release_of_quality_is_read() {
        // The first release: no names for questions. The test split: no labels.
        let text = r#"{"article_id": "1", "set_unique_id": "1_A", "batch_num": "2", "writer_id": "9", "source": "G", "title": "T", "year": 1950, "author": "x", "topic": "y", "url": "u", "license": "l", "article": " Once. ", "questions": [{"question": "Who? ", "options": ["a", "b", "c", "d"], "gold_label": 4, "writer_label": 4, "validation": [], "speed_validation": [], "difficult": 1}, {"question": "Why?", "options": ["a", "b", "c", "d"]}]}
{"article_id": "1", "set_unique_id": "1_B", "article": "Once.", "questions": [{"question": "When?", "question_unique_id": "1_B_7", "options": ["a", "b", "c", "d"], "gold_label": 1, "difficult": 0}]}
{"article_id": 1, "article": "Once.", "question": "How?", "question_unique_id": "1_C_1", "options": ["a", "b", "c", "d"], "gold_label": 2}"#;
        let questions = read(text).unwrap();
        let ids: Vec<&str> = questions.iter().map(|q| q.id.as_str()).collect();
        assert_eq!(ids, ["1_A_1", "1_A_2", "1_B_7", "1_C_1"]);
        let labels: Vec<_> = questions.iter().map(|q| q.label).collect();
        assert_eq!(labels, [Some(3), None, Some(0), Some(1)]);
        assert_eq!(
            (&*questions[0].document, questions[0].question.as_str()),
            ("Once.", "Who?")
        );
        assert!(Arc::ptr_eq(&questions[0].document, &questions[3].document));
    }

    #[test]
    fn l_evals_options_are_taken_out_of_the_instruction() {
        let text = r#"{"instructions": ["Who is\nA. Smith?\n\n (A) A man. \n (B) (C) or\nnot \n (C) No", "Why?\nA. a\nB. b"], "outputs": ["(B) (C) or not", "A"], "input": "Once.", "source": "quality", "evaluation": "exam"}"#;
        let questions = read(text).unwrap();
        assert_eq!(questions[0].question, "Who is\nA. Smith?");
        assert_eq!(questions[0].options, ["A man.", "(C) or\nnot", "No"]);
        assert_eq!(questions[1].options, ["a", "b"]);
        assert_eq!(questions[1].label, Some(0));
        assert_eq!(questions[0].id, "1_1");
        assert_eq!(questions[0].label, Some(1));
    }

    #[test]
    fn our_labels_are_positions_or_texts() {
        let text = r#"{"id": "x", "document": "d", "question": "q", "options": ["no", "yes"], "label": "yes"}
{"id": 7, "document": "d", "question": "q", "options": ["no", "yes"], "label": 0}

{"document": "d", "question": "q", "options": ["no", "yes"]}"#;
        let questions = read(text).unwrap();
        let found: Vec<_> = questions.iter().map(|q| (q.id.as_str(), q.label)).collect();
        assert_eq!(found, [("x", Some(1)), ("7", Some(0)), ("4", None)]);
    }

    #[test]
    fn documents_may_be_files_in_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.txt"), "The text.\n").unwrap();
        let path = folder.path().join("q.jsonl");
        let line = |name: &str| {
            format!(r#"{{"document": "{name}", "question": "q", "options": ["a", "b"]}}"#)
        };
        fs::write(&path, line("a.txt")).unwrap();
        let questions = read_questions(&path, Some(folder.path())).unwrap();
        assert_eq!(&*questions[0].document, "The text.");
        fs::write(&path, line("b.txt")).unwrap();
        let error = read_questions(&path, Some(folder.path())).unwrap_err();
        assert!(error.to_string().contains("line 1: cannot read"), "{error}");
    }

    #[test]
    fn names_that_lead_out_of_the_folder_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(folder.path().join("out.txt"), "secret").unwrap();
        fs::write(inner.join("a.txt"), "The text.").unwrap();
        let path = folder.path().join("q.jsonl");
        let read = |name: &str| {
            let line = json!({"document": name, "question": "q", "options": ["a", "b"]});
            fs::write(&path, line.to_string()).unwrap();
            read_questions(&path, Some(&inner)).map_err(|e| e.to_string())
        };
        assert!(read("./a.txt").is_ok());
        let absolute = folder.path().join("out.txt");
        for name in ["../out.txt", "x/../../out.txt", absolute.to_str().unwrap()] {
            let error = read(name).unwrap_err();
            assert!(error.contains("q.jsonl: line 1: "), "{error}");
            assert!(error.contains("leads out of the folder"), "{error}");
        }
    }

    #[test]
    fn names_of_files_are_not_taken_for_texts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.jsonl");
        fs::write(folder.path().join("my lease"), "The text.").unwrap();
        let read = |document: &str| {
            let line = json!({"document": document, "question": "q", "options": ["a", "b"]});
            fs::write(&path, format!("\n{line}")).unwrap();
            read_questions(&path, None).map_err(|e| e.to_string())
        };
        for name in ["l1.txt", "leases/l1.PDF", "my lease"] {
            let error = read(name).unwrap_err();
            assert!(error.contains("q.jsonl: line 2: "), "{error}");
            assert!(error.contains(&format!("{name:?}")), "{error}");
            assert!(error.contains("with --documents FOLDER"), "{error}");
        }
        let long = format!("{}.txt", "x".repeat(300));
        for text in ["Once.", "3.14", "See l1.txt", "my other lease", &long] {
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let good =
            r#"{"id": 1, "document": "d", "question": "q", "options": ["a", "b"], "label": 0}"#;
        for (line, expected) in [
            ("{", "line 2: it is no JSON object"),
            ("{}", "neither \"document\""),
            (good, "line 2: the id 1 occurs twice"),
            (
                r#"{"document": " ", "question": "q", "options": ["a", "b"]}"#,
                "is empty",
            ),
            (
                r#"{"document": "d", "question": "q", "options": ["a"]}"#,
                "1 options; 2 to 26",
            ),
            (
                r#"{"document": "d", "question": "q", "options": ["a", "b"], "label": 2}"#,
                "is 2, of 2",
            ),
            (
                r#"{"document": "d", "question": "q", "options": ["a", "b"], "label": "c"}"#,
                "none of the options",
            ),
            (
                r#"{"document": "d", "question": "q", "options": ["a", "b"], "lable": 1}"#,
                "unknown field `lable`",
            ),
            (
                r#"{"article": "d", "questions": [{"question": "q", "options": ["a", "b"], "gold_label": 0}]}"#,
                "counts from 1",
            ),
            (
                r#"{"input": "d", "instructions": ["q\n(A) a\n(B) b"], "outputs": ["yes"]}"#,
                "does not begin with the letter",
            ),
        ] {
            let error = read(&format!("{good}\n{line}")).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error}");
        }
        assert!(read("\n").unwrap_err().contains("no question"));
    }

    #[test]
    fn free_questions_need_neither_documents_nor_options() {
        let read = |text: &str| parse(text, None, None, true);
        let text = r#"{"id": "a", "question": " How many? ", "label": "1,000"}
{"question": "How many?", "label": 7.5}
{"question": "Which?", "options": ["red", "blue"], "label": "blue"}
{"question": "Which?", "options": ["red", "blue"], "label": 0}
{"document": "d", "question": "Which?", "options": ["red", "blue"]}
{"document": "d", "question": "Why?"}"#;
        let questions = read(text).unwrap();
        let told: Vec<_> = questions
            .iter()
            .map(|q| (q.id.as_str(), q.label, q.answer.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                ("a", None, Some("1,000")),
                ("2", None, Some("7.5")),
                ("3", Some(1), None),
                ("4", Some(0), None),
                ("5", None, None),
                ("6", None, None),
            ]
        );
        assert_eq!(questions[0].question, "How many?");
        for (line, expected) in [
            (r#"{"label": 1}"#, "line 1: it has no \"question\""),
            (r#"{"question": " "}"#, "is empty"),
            (r#"{"question": "q", "lable": 1}"#, "unknown field `lable`"),
            (
                r#"{"question": "q", "label": [1]}"#,
                "a label is the right answer",
            ),
            (
                r#"{"question": "q", "options": ["a", "b"], "label": "c"}"#,
                "none of the options",
            ),
            (
                r#"{"question": "q", "options": ["a", "b"], "label": 2}"#,
                "is 2, of 2",
            ),
            (
                r#"{"question": "q", "options": ["a"]}"#,
                "1 options; 2 to 26",
            ),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{expected:?} is not in {error}");
        }
        assert!(
            read("{\"id\": 1, \"question\": \"q\"}\n{\"id\": 1, \"question\": \"r\"}")
                .unwrap_err()
                .contains("occurs twice")
        );
    }

    #[test]
    fn text_that_is_no_utf_8_is_called_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.jsonl");
        std::fs::write(&path, [0xff]).unwrap();
        let error = read_questions(&path, None).unwrap_err().to_string();
        let expected = "q.jsonl: cannot read it: it is not UTF-8 text; save it as UTF-8";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn shuffling_moves_the_label_with_its_option_and_is_drawn_from_the_seed() {
        let line = |i: usize| {
            format!(
                r#"{{"id": {i}, "document": "d", "question": "q", "options": ["right", "wrong"], "label": 0}}"#
            )
        };
        let text: Vec<String> = (0..200).map(line).collect();
        let questions = read(&text.join("\n")).unwrap();
        let shuffled = |seed| {
            let mut shuffled = questions.clone();
            shuffle_options(&mut shuffled, seed);
            shuffled
        };
        let once = shuffled(1);
        assert!(once.iter().all(|q| q.options[q.label.unwrap()] == "right"));
        let first = once.iter().filter(|q| q.label == Some(0)).count();
        assert!((70..=130).contains(&first), "{first} of 200 come first");
        assert_eq!(once, shuffled(1));
        assert_ne!(once, shuffled(2));
    }
}
