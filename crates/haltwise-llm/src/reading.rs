//! Reading: every question after every part of its document.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;

use serde_json::json;

use crate::answer::Answer;
use crate::error::Error;
use crate::journal::{Entry, Journal};
use crate::questions::Question;
use crate::reader::Reader;
use crate::run::{Progress, Run, digest, for_each, shown};

/// All questions of a file, and where the parts of their documents end.
#[derive(Debug)]
pub struct Reading<'a> {
    reader: &'a Reader,
    questions: &'a [Question],
    /// The questions about each document.
    documents: Vec<Vec<usize>>,
    /// The ends of each document's parts.
    ends: Vec<Vec<usize>>,
}

/// The questions about each document, documents in the order they are met.
pub fn by_document(questions: &[Question]) -> Vec<Vec<usize>> {
    let mut places = HashMap::new();
    let mut documents: Vec<Vec<usize>> = Vec::new();
    for (i, question) in questions.iter().enumerate() {
        let place = *places.entry(&question.document).or_insert(documents.len());
        match documents.get_mut(place) {
            Some(document) => document.push(i),
            None => documents.push(vec![i]),
        }
    }
    documents
}

impl<'a> Reading<'a> {
    /// Cuts the documents into parts.
    pub fn new(reader: &'a Reader, questions: &'a [Question]) -> crate::Result<Self> {
        let documents = by_document(questions);
        let mut ends = Vec::new();
        for document in &documents {
            ends.push(reader.part_ends(&questions[document[0]].document)?);
        }
        Ok(Self {
            reader,
            questions,
            documents,
            ends,
        })
    }

    /// The most parts that a document has.
    pub fn most_parts(&self) -> usize {
        self.ends.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// How many documents there are.
    pub fn documents(&self) -> usize {
        self.documents.len()
    }

    /// Asks every question after every part, and returns each question's answers.
    ///
    /// A worker takes a document and asks all its questions after the first
    /// part, then all after the second, and so on: each prompt shares its
    /// beginning with the one before, and the server computes a document once.
    /// Answers go to the journal as they come; those that are there already are
    /// not asked for.
    pub fn run(
        &self,
        journal: &Path,
        workers: NonZeroUsize,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> crate::Result<Vec<Vec<Answer>>> {
        let (journal, entries) = Journal::open::<Entry>(journal, &self.key())?;
        let mut answered: Vec<Vec<bool>> = vec![Vec::new(); self.questions.len()];
        for (document, ends) in std::iter::zip(&self.documents, &self.ends) {
            document
                .iter()
                .for_each(|&q| answered[q] = vec![false; ends.len()]);
        }
        let total = answered.iter().map(Vec::len).sum();
        for entry in &entries {
            let known = answered.get_mut(entry.question);
            if let Some(known) = known.and_then(|parts| parts.get_mut(entry.part)) {
                *known = true;
            }
        }
        let earlier = answered.iter().flatten().filter(|known| **known).count();
        let run = Run::resume(journal, earlier, total, progress);
        for_each(self.documents.len(), workers, |d| {
            self.document(d, &answered, &run)
        })?;
        let entries = run.entries()?;
        self.answers(entries)
    }

    /// Asks what is not answered yet about one document.
    fn document(&self, d: usize, answered: &[Vec<bool>], run: &Run<'_>) -> crate::Result<()> {
        for (part, &end) in self.ends[d].iter().enumerate() {
            for &q in self.documents[d].iter().filter(|&&q| !answered[q][part]) {
                let question = &self.questions[q];
                let asked = self.reader.ask(&question.document[..end], question);
                let asked = asked.map_err(|e| {
                    e.at(format_args!(
                        "question {} after part {}",
                        question.id,
                        part + 1
                    ))
                })?;
                let entry = Entry {
                    question: q,
                    part,
                    probs: asked.answer.probs,
                    missing: asked.answer.missing,
                    tokens: asked.tokens,
                };
                run.add(&entry, 1, entry.tokens, 0)?;
            }
        }
        Ok(())
    }

    /// The answers in the order of the questions, from the journal: what was
    /// answered in this run goes through the same file as what was before.
    fn answers(&self, entries: Vec<Entry>) -> crate::Result<Vec<Vec<Answer>>> {
        let mut found: HashMap<(usize, usize), Answer> = HashMap::new();
        for entry in entries {
            let place = (entry.question, entry.part);
            found.entry(place).or_insert_with(|| entry.into_answer());
        }
        let mut answers = vec![Vec::new(); self.questions.len()];
        for (document, ends) in std::iter::zip(&self.documents, &self.ends) {
            for &q in document {
                let parts = (0..ends.len()).map(|part| found.remove(&(q, part)));
                answers[q] = parts
                    .collect::<Option<_>>()
                    .ok_or_else(|| Error::input("the journal lost answers; run it again"))?;
            }
        }
        Ok(answers)
    }

    /// A digest of all that the answers depend on.
    fn key(&self) -> String {
        digest(&json!([
            self.reader.record(),
            shown(self.questions),
            self.ends
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_about_the_same_text_go_together() {
        let question = |document: &str| Question {
            id: String::new(),
            document: document.into(),
            question: String::new(),
            options: Vec::new(),
            label: None,
            answer: None,
            request: None,
        };
        let questions = ["a", "b", "a", "c", "b"].map(question);
        assert_eq!(by_document(&questions), [vec![0, 2], vec![1, 4], vec![3]]);
    }
}
