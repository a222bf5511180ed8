//! A run: several workers ask, and every answer is in the journal before the worker asks for
//! the next one. A run that was killed goes on from there.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

use crate::journal::Journal;
use crate::questions::Question;
use crate::reply::Tokens;

/// How far a run is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Answers in the journal, including those of earlier runs.
    pub answered: usize,
    /// Answers when the run is complete.
    pub total: usize,
    /// Answers of earlier runs.
    pub earlier: usize,
    /// Tokens of the prompts of this run.
    pub tokens: Tokens,
    /// Tokens generated in this run; 0 where an answer is a single token.
    pub generated: u64,
}

/// The journal of a run, shared by its workers, and how far the run is.
pub(crate) struct Run<'s> {
    state: Mutex<(Journal, Progress)>,
    show: &'s (dyn Fn(Progress) + Sync),
}

impl<'s> Run<'s> {
    /// A run that goes on after the answers of earlier ones.
    pub(crate) fn resume(
        journal: Journal,
        earlier: usize,
        total: usize,
        show: &'s (dyn Fn(Progress) + Sync),
    ) -> Self {
        let progress = Progress {
            answered: earlier,
            total,
            earlier,
            ..Progress::default()
        };
        show(progress);
        let state = Mutex::new((journal, progress));
        Self { state, show }
    }

    /// Writes an entry with this many answers to the journal.
    pub(crate) fn add(
        &self,
        entry: &impl Serialize,
        answers: usize,
        sent: Tokens,
        generated: u64,
    ) -> crate::Result<()> {
        let mut state = locked(&self.state);
        let (journal, progress) = &mut *state;
        journal.add(entry)?;
        progress.answered += answers;
        progress.tokens += sent;
        progress.generated += generated;
        (self.show)(*progress);
        Ok(())
    }

    /// Everything in the journal, as the next run would read it.
    pub(crate) fn entries<E: DeserializeOwned>(&self) -> crate::Result<Vec<E>> {
        locked(&self.state).0.entries()
    }
}

/// What a digest covers of questions: all that a prompt can show.
pub(crate) fn shown(questions: &[Question]) -> Vec<Value> {
    let shown = |q: &Question| match &q.request {
        Some(request) => json!([q.id, request.fields()]),
        None => json!([q.id, &*q.document, q.question, q.options]),
    };
    questions.iter().map(shown).collect()
}

/// A digest of all that the answers of a run depend on.
pub(crate) fn digest(all: &Value) -> String {
    format!("{:032x}", xxh3_128(all.to_string().as_bytes()))
}

/// Does something for each of `n` things, a few at a time and in order. After a
/// failure, no new one starts; those under way finish.
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

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
