//! Committing in groups: many threads append, one writes, and a visit to the disk
//! serves all that came in during the one before.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::file::{Log, check, is_in_place, join};
use crate::file_id::FileId;

/// How long the writer pauses after a write that failed: at first, and at the most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The reason why records are not on the disk yet. The writer tries again until they are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// A write failed. It is tried again.
    #[error(
        "the log cannot be written: {0}; make room if the disk is full; then it goes on by itself"
    )]
    Write(String),
    /// The thread that writes died, which is a mistake in this program.
    #[error("the log cannot be written: the thread that writes it died; start the program again")]
    Died,
}

/// Appends records to a log from any thread.
///
/// The committer tries a failed write again, with pauses, until there is room or it is
/// closed. It commits records in their order. They wait in memory meanwhile, so call
/// [`ready`](Self::ready) before appending.
pub struct Committer {
    shared: Arc<Shared>,
    path: PathBuf,
    id: FileId,
    /// Gives nothing back if it died.
    thread: Option<JoinHandle<Option<Log>>>,
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
    /// Why the last write failed, until one succeeds.
    failed: Option<Failed>,
    closing: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a while, or until the log is to be closed.
    fn pause(&self, pause: Duration) {
        let waited = self
            .work
            .wait_timeout_while(self.state(), pause, |state| !state.closing);
        drop(waited);
    }
}

impl Committer {
    /// Starts the thread that writes. After each write it calls `committed` with how
    /// many records are on the disk, or with why those that wait are not.
    pub fn new(
        log: Log,
        committed: impl Fn(Result<u64, &Failed>, Duration) + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let (path, id) = (log.path().to_path_buf(), log.id());
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || work_or_tell(&shared, log, &committed)
        });
        Self {
            shared,
            path,
            id,
            thread: Some(thread),
        }
    }

    /// Appends a record, and returns its number, counted from 1. It is on the disk
    /// once this many are committed.
    pub fn append(&self, record: &str) -> Result<u64, Error> {
        check(&self.path, record)?;
        let mut state = self.shared.state();
        join(&mut state.waiting, record);
        state.appended += 1;
        let number = state.appended;
        drop(state);
        self.shared.work.notify_one();
        Ok(number)
    }

    /// Whether the last write succeeded.
    pub fn ready(&self) -> Result<(), Failed> {
        self.shared.state().failed.clone().map_or(Ok(()), Err)
    }

    /// Whether the log is still at its path. Otherwise later readers would miss new records.
    pub fn in_place(&self) -> Result<(), Error> {
        is_in_place(self.id, &self.path)
    }

    /// Waits until a record is on the disk, or a write fails. A record that waits then
    /// may still be committed.
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

    /// Commits what waits, and gives the log back. Fails if what waits cannot be written
    /// now.
    pub fn close(mut self) -> Result<Log, Failed> {
        let log = self.join();
        let state = self.shared.state();
        match (&state.failed, log) {
            (None, Some(log)) => Ok(log),
            (failed, _) => Err(failed.clone().unwrap_or(Failed::Died)),
        }
    }

    fn join(&mut self) -> Option<Log> {
        self.shared.state().closing = true;
        self.shared.work.notify_one();
        self.thread.take()?.join().ok()?
    }
}

impl Drop for Committer {
    /// Commits what waits.
    fn drop(&mut self) {
        self.join();
    }
}

/// Writes until no more will come. If that panics, everyone who waits is told: nothing that
/// waits will ever be on the disk.
fn work_or_tell(
    shared: &Shared,
    log: Log,
    committed: &dyn Fn(Result<u64, &Failed>, Duration),
) -> Option<Log> {
    let worked = catch_unwind(AssertUnwindSafe(|| work(shared, log, committed)));
    if worked.is_err() {
        shared.state().failed = Some(Failed::Died);
        shared.done.notify_all();
        // It may be what panicked.
        let tell = || committed(Err(&Failed::Died), Duration::ZERO);
        drop(catch_unwind(AssertUnwindSafe(tell)));
    }
    worked.ok()
}

/// Writes until no more will come.
fn work(shared: &Shared, mut log: Log, committed: &dyn Fn(Result<u64, &Failed>, Duration)) -> Log {
    // Records that are being written, and how many there are up to the last of them.
    let (mut batch, mut upto) = (String::new(), 0);
    let mut pause = FIRST_PAUSE;
    loop {
        let mut state = shared.state();
        if batch.is_empty() {
            while state.waiting.is_empty() && !state.closing {
                state = shared
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            if state.waiting.is_empty() {
                return log;
            }
            std::mem::swap(&mut batch, &mut state.waiting);
            upto = state.appended;
        }
        drop(state);
        let begun = Instant::now();
        let written = log.append_joined(&batch).and_then(|()| log.sync());
        let took = begun.elapsed();
        let mut state = shared.state();
        state.failed = written.err().map(|error| Failed::Write(error.to_string()));
        if state.failed.is_none() {
            state.committed = upto;
        }
        let (failed, closing) = (state.failed.clone(), state.closing);
        drop(state);
        shared.done.notify_all();
        committed(failed.as_ref().map_or(Ok(upto), Err), took);
        if failed.is_none() {
            batch.clear();
            pause = FIRST_PAUSE;
        } else if closing {
            return log;
        } else {
            shared.pause(pause);
            pause = (2 * pause).min(LONGEST_PAUSE);
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
        let committer = Committer::new(log, |_, _| {});
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
    #[cfg(unix)]
    fn nothing_is_acknowledged_while_the_log_is_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (path, elsewhere) = (folder.path().join("log"), folder.path().join("moved"));
        let (log, _) = Log::open(&path, "{}", &mut |_| Ok(())).unwrap();
        let committer = Committer::new(log, |_, _| {});
        let write = |record: &str| committer.wait(committer.append(record).unwrap());
        write("before").unwrap();
        std::fs::rename(&path, &elsewhere).unwrap();
        assert!(committer.in_place().is_err());
        let message = write("meanwhile").unwrap_err().to_string();
        assert!(
            message.contains("log: it was moved or removed"),
            "{message}"
        );
        // Another server begins a log there, which is left alone.
        drop(Log::open(&path, "{}", &mut |_| Ok(())).unwrap());
        assert!(write("still").is_err());
        std::fs::rename(&elsewhere, &path).unwrap();
        committer.in_place().unwrap();
        while committer.ready().is_err() {
            std::thread::yield_now();
        }
        write("after").unwrap();
        drop(committer);
        let mut records = Vec::new();
        Log::read(&path, &mut |record| {
            records.push(record.to_owned());
            Ok(())
        })
        .unwrap();
        assert_eq!(records, ["before", "meanwhile", "still", "after"]);
    }

    #[test]
    fn the_death_of_the_writer_is_told_to_all_who_wait() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, _) = Log::open(&path, "{}", &mut |_| Ok(())).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let committer = Committer::new(log, move |done, _| {
            if let Err(failed) = done {
                tell.send(failed.clone()).unwrap();
            }
            assert_ne!(done, Ok(1), "the writer dies of this");
        });
        committer.wait(committer.append("first").unwrap()).unwrap();
        let patience = Duration::from_secs(60);
        assert_eq!(told.recv_timeout(patience), Ok(Failed::Died));
        assert_eq!(committer.ready(), Err(Failed::Died));
        let waits = committer.append("second").unwrap();
        assert_eq!(committer.wait(waits), Err(Failed::Died));
        assert_eq!(committer.close().unwrap_err(), Failed::Died);
    }

    #[test]
    fn what_waits_is_committed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, _) = Log::open(&path, "{}", &mut |_| Ok(())).unwrap();
        let committer = Committer::new(log, |_, _| {});
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
