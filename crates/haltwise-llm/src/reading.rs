//! Reading: every question after every part of its document.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::json;
use xxhash_rust::xxh3::xxh3_128;

use crate::answer::Answer;
use crate::error::Error;
use crate::journal::{Entry, Journal};
use crate::questions::Question;
use crate::reader::Reader;
use crate::reply::Tokens;

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

/// How far a reading is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Answers there are, those of earlier runs among them.
    pub answered: usize,
    /// Answers there will be.
    pub total: usize,
    /// Answers of earlier runs.
    pub earlier: usize,
    /// Tokens of the prompts of this run.
    pub tokens: Tokens,
    /// Tokens that were generated in this run, where answers are more than one.
    pub generated: u64,
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
        let state = Mutex::new((
            journal,
            Progress {
                answered: earlier,
                total,
                earlier,
                ..Progress::default()
            },
        ));
        progress(locked(&state).1);
        for_each(self.documents.len(), workers, |d| {
            self.document(d, &answered, &|entry| {
                let mut state = locked(&state);
                state.0.add(&entry)?;
                state.1.answered += 1;
                state.1.tokens += entry.tokens;
                progress(state.1);
                Ok(())
            })
        })?;
        let entries = locked(&state).0.entries()?;
        self.answers(entries)
    }

    /// Asks what is not answered yet about one document.
    fn document(
        &self,
        d: usize,
        answered: &[Vec<bool>],
        keep: &dyn Fn(Entry) -> crate::Result<()>,
    ) -> crate::Result<()> {
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
                keep(Entry {
                    question: q,
                    part,
                    probs: asked.answer.probs,
                    missing: asked.answer.missing,
                    tokens: asked.tokens,
                })?;
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
        let questions: Vec<_> = self
            .questions
            .iter()
            .map(|q| json!([q.id, &*q.document, q.question, q.options]))
            .collect();
        let all = json!([self.reader.record(), questions, self.ends]);
        format!("{:032x}", xxh3_128(all.to_string().as_bytes()))
    }
}

/// Does something for each of `n` things, a few at a time and in order. After a
/// failure nothing new is begun; what is under way is finished.
pub fn for_each<E: Send>(
    n: usize,
    workers: NonZeroUsize,
    work: impl Fn(usize) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..workers.get().min(n) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= n {
                        break;
                    }
                    if let Err(error) = work(i) {
                        failed.store(true, Ordering::Relaxed);
                        locked(&failure).get_or_insert(error);
                    }
                }
            });
        }
    });
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        };
        let questions = ["a", "b", "a", "c", "b"].map(question);
        assert_eq!(by_document(&questions), [vec![0, 2], vec![1, 4], vec![3]]);
    }

    #[test]
    fn after_a_failure_nothing_new_is_begun() {
        let done = AtomicUsize::new(0);
        let workers = NonZeroUsize::MIN;
        let result = for_each(10, workers, |i| {
            done.fetch_add(1, Ordering::Relaxed);
            match i {
                3 => Err(Error::input("three")),
                _ => Ok(()),
            }
        });
        assert_eq!(result, Err(Error::input("three")));
        assert_eq!(done.into_inner(), 4);
    }
}
