//! One server per store: a lock file that its server holds until the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::private;

/// The name of the lock file. Readers of a store do not look at it.
const NAME: &str = "_lock";

/// How long to sleep between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// The lock of a store's folder. The system lets it go when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct StoreLock(#[expect(dead_code, reason = "an open file holds the lock")] File);

impl StoreLock {
    /// Locks a folder, which is made if there is none. `None` if another server has it.
    pub(crate) fn try_new(folder: &Path) -> Result<Option<Self>, Error> {
        private::create_folder(folder).map_err(|e| Error::file(folder, e))?;
        let path = folder.join(NAME);
        let failed = |e: std::io::Error| Error::file(&path, e);
        // The file is never removed: another server may already wait for this one.
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        private::restrict(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }
}

/// Attempts to lock several folders until a time limit.
#[derive(Debug)]
pub(crate) struct Attempt {
    folders: Vec<PathBuf>,
    locks: Vec<StoreLock>,
    began: Instant,
    limit: Duration,
}

impl Attempt {
    pub(crate) fn new(folders: Vec<PathBuf>, limit: Duration) -> Self {
        Self {
            folders,
            locks: Vec::new(),
            began: Instant::now(),
            limit,
        }
    }

    /// Locks as many of the folders as are free, in their order. Returns the folder that is not,
    /// or an error once the time is over.
    pub(crate) fn advance(&mut self) -> Result<Option<&Path>, Error> {
        while let Some(folder) = self.folders.get(self.locks.len()) {
            match StoreLock::try_new(folder)? {
                Some(lock) => self.locks.push(lock),
                None if self.began.elapsed() < self.limit => return Ok(Some(folder)),
                None => return Err(in_use(folder, self.limit)),
            }
        }
        Ok(None)
    }

    /// The locks, once all folders are locked.
    pub(crate) fn into_locks(self) -> Vec<StoreLock> {
        self.locks
    }
}

fn in_use(folder: &Path, waited: Duration) -> Error {
    let seconds = waited.as_secs();
    Error::file(
        folder,
        format!(
            "another server uses this store, and did not end within {seconds} s; stop that \
             server, wait longer with --wait-for-store, or name another folder with --store"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_waits_for_the_first_and_gives_up_at_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store/rule");
        let first = StoreLock::try_new(&path).unwrap().unwrap();
        let mut impatient = Attempt::new(vec![path.clone()], Duration::ZERO);
        let message = impatient.advance().unwrap_err().to_string();
        assert!(message.contains("rule: another server"), "{message}");
        let mut patient = Attempt::new(vec![path.clone()], Duration::from_secs(60));
        assert_eq!(patient.advance().unwrap(), Some(path.as_path()));
        drop(first);
        assert_eq!(patient.advance().unwrap(), None);
        assert_eq!(patient.into_locks().len(), 1);
    }
}
