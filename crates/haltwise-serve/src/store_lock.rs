//! One server per store: a lock file that its server holds until the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haltwise_log::FileId;

use crate::error::Error;
use crate::private;

/// The name of the lock file. Readers of a store do not look at it.
const NAME: &str = "_lock";

/// How long to sleep between two attempts.
pub(crate) const PAUSE: Duration = Duration::from_millis(50);

/// The lock of a store's folder. The system lets it go when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct StoreLock {
    #[expect(dead_code, reason = "an open file holds the lock")]
    open: File,
    file: FileId,
    path: PathBuf,
}

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
            Ok(()) => Ok(Some(Self {
                file: FileId::of(&file).map_err(failed)?,
                open: file,
                path,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(failed(e)),
        }
    }

    /// Makes sure that every process that wants the folder finds it locked. If someone removed
    /// the lock file, this makes and locks another one.
    pub(crate) fn renew(&mut self, folder: &Path) -> Result<(), Error> {
        if self.file.is_at(&self.path) {
            return Ok(());
        }
        *self = Self::try_new(folder)?.ok_or_else(|| {
            Error::file(
                folder,
                "another server has locked this store, whose lock file was removed; stop one of \
                 the two servers",
            )
        })?;
        Ok(())
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
                None if self.began.elapsed() < self.limit => {
                    // A waiting process holds nothing: two that wait would each hold the lock
                    // that the other one wants.
                    self.locks.clear();
                    return Ok(Some(folder));
                }
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

    #[test]
    fn who_waits_for_one_of_several_stores_holds_none_of_them() {
        let folder = tempfile::tempdir().unwrap();
        let (a, b) = (folder.path().join("a"), folder.path().join("b"));
        let serving = StoreLock::try_new(&b).unwrap().unwrap();
        let limit = Duration::from_secs(60);
        let mut one = Attempt::new(vec![a.clone(), b.clone()], limit);
        let mut other = Attempt::new(vec![b.clone(), a], limit);
        assert_eq!(one.advance().unwrap(), Some(b.as_path()));
        drop(serving);
        assert_eq!(other.advance().unwrap(), None);
        assert_eq!(other.into_locks().len(), 2);
        assert_eq!(one.advance().unwrap(), None);
    }

    #[test]
    #[cfg(unix)]
    fn a_lock_file_that_was_removed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let mut lock = StoreLock::try_new(path).unwrap().unwrap();
        lock.renew(path).unwrap();
        std::fs::remove_file(path.join(NAME)).unwrap();
        lock.renew(path).unwrap();
        assert!(StoreLock::try_new(path).unwrap().is_none());
        // Another server comes in between.
        std::fs::remove_file(path.join(NAME)).unwrap();
        let other = StoreLock::try_new(path).unwrap().unwrap();
        let message = lock.renew(path).unwrap_err().to_string();
        assert!(message.contains("another server has locked"), "{message}");
        drop(other);
        lock.renew(path).unwrap();
        assert!(StoreLock::try_new(path).unwrap().is_none());
    }
}
