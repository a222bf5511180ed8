//! Committing in groups: many threads append, one writes, and a visit to the disk
//! serves all that came in during the one before.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::Error;
use crate::file::{Log, check, join};

/// Why nothing can be committed any more. What was committed before is safe; what
/// was not may or may not be there when the log is opened again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the log cannot be written, so nothing is taken any more: {0}; make room and start again")]
pub struct Failed(String);

/// Appends records to a log from any thread.
///
/// When a write fails nothing more is taken: what a program has done since the
/// last commit is then ahead of what it would know after a restart.
pub struct Committer {
    shared: Arc<Shared>,
    path: PathBuf,
    thread: Option<JoinHandle<Log>>,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committer")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to write, or no more will come.
    work: Condvar,
    /// More is committed, or has failed.
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// The records that wait, joined.
    waiting: String,
    /// How many were appended, and how many of those are on the disk.
    appended: u64,
    committed: u64,
    failed: Option<Failed>,
    closing: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Committer {
    /// Starts the thread that writes. After each commit it calls `committed` with
    /// how many records are on the disk, or with why no more will be.
    pub fn new(log: Log, committed: impl Fn(Result<u64, &Failed>) + Send + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let path = log.path().to_path_buf();
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || work(&shared, log, &committed)
        });
        Self {
            shared,
            path,
            thread: Some(thread),
        }
    }

    /// Appends a record, and returns its number, counted from 1. It is on the disk
    /// once this many are committed.
    pub fn append(&self, record: &str) -> Result<u64, AppendError> {
        check(&self.path, record)?;
        let mut state = self.shared.state();
        if let Some(failed) = &state.failed {
            return Err(failed.clone().into());
        }
        join(&mut state.waiting, record);
        state.appended += 1;
        let number = state.appended;
        drop(state);
        self.shared.work.notify_one();
        Ok(number)
    }

    /// Waits until a record is on the disk.
    pub fn wait(&self, number: u64) -> Result<(), Failed> {
        let mut state = self.shared.state();
        loop {
            if state.committed >= number {
                return Ok(());
            }
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            state = self
                .shared
                .done
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many records were appended.
    pub fn appended(&self) -> u64 {
        self.shared.state().appended
    }

    /// Commits what waits, and gives the log back.
    pub fn close(mut self) -> Result<Log, Failed> {
        let log = self.join();
        let state = self.shared.state();
        match (&state.failed, log) {
            (None, Some(log)) => Ok(log),
            (failed, _) => Err(failed
                .clone()
                .unwrap_or_else(|| Failed("its writer has ended".into()))),
        }
    }

    fn join(&mut self) -> Option<Log> {
        self.shared.state().closing = true;
        self.shared.work.notify_one();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Committer {
    /// Commits what waits.
    fn drop(&mut self) {
        self.join();
    }
}

/// Why a record was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// Nothing can be committed any more.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// It cannot be written.
    #[error(transparent)]
    Record(#[from] Error),
}

/// Writes until no more will come.
fn work(shared: &Shared, mut log: Log, committed: &dyn Fn(Result<u64, &Failed>)) -> Log {
    let mut batch = String::new();
    loop {
        let mut state = shared.state();
        while state.waiting.is_empty() && !state.closing {
            state = shared
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.waiting.is_empty() || state.failed.is_some() {
            return log;
        }
        batch.clear();
        std::mem::swap(&mut batch, &mut state.waiting);
        let upto = state.appended;
        drop(state);
        let written = log.append_joined(&batch).and_then(|()| log.sync());
        let mut state = shared.state();
        match written {
            Ok(()) => state.committed = upto,
            Err(error) => state.failed = Some(Failed(error.to_string())),
        }
        let failed = state.failed.clone();
        drop(state);
        shared.done.notify_all();
        match failed {
            None => committed(Ok(upto)),
            Some(failed) => {
                committed(Err(&failed));
                return log;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_share_visits_to_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, _) = Log::open(&path, "{}", &mut |_| Ok(())).unwrap();
        let committer = Committer::new(log, |_| {});
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let committer = &committer;
                scope.spawn(move || {
                    for i in 0..50 {
                        let number = committer.append(&format!("{thread} {i}")).unwrap();
                        committer.wait(number).unwrap();
                    }
                });
            }
        });
        let log = committer.close().unwrap();
        assert_eq!(log.bytes(), std::fs::metadata(&path).unwrap().len());
        let mut next = [0; 8];
        Log::read(&path, &mut |record| {
            let (thread, i) = record.split_once(' ').unwrap();
            let thread: usize = thread.parse().unwrap();
            assert_eq!(i, next[thread].to_string());
            next[thread] += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(next, [50; 8]);
        let lines = std::fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines < 400, "{lines} commits for 400 records");
    }

    #[test]
    fn what_waits_is_committed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, _) = Log::open(&path, "{}", &mut |_| Ok(())).unwrap();
        let committer = Committer::new(log, |_| {});
        assert!(committer.append("a\nb").is_err());
        (0..1000).for_each(|i| drop(committer.append(&i.to_string())));
        drop(committer);
        let mut seen = 0;
        Log::read(&path, &mut |_| {
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, 1000);
    }
}
