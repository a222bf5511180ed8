//! The next log of a store, while the server writes it beside the one in use.

use std::fs::File;
use std::path::{Path, PathBuf};

use haltwise_log::Log;

use super::HEADER;
use super::files::{beside, log_path, remove_if_there};
use crate::error::Error;
use crate::private;
use crate::rule_state::RuleState;

/// The next log, while it has not taken the place of the one before.
#[derive(Debug)]
pub(crate) struct NextLog {
    pub(super) folder: PathBuf,
    pub(super) number: u64,
    pub(super) records: Vec<String>,
    /// The audits that its records leave out, because a trace file has them.
    pub(super) filed: Vec<(u64, String)>,
}

/// A log that is written, but has no name yet.
#[derive(Debug)]
pub(crate) struct WrittenLog {
    pub(super) log: Log,
    /// Opened before: once the log has its name, nothing may fail for want of a file.
    pub(super) folder: File,
}

impl NextLog {
    /// Copies some of the audits that wait for a label. Returns whether there may be more.
    pub(crate) fn copy_part(&mut self, state: &mut RuleState) -> bool {
        let part = state.copy_unlabelled();
        let is_part = part.is_some();
        self.records.extend(part.into_iter().flatten());
        is_part
    }

    /// Writes it, all of it on the disk. Nobody who holds the state has to wait for that.
    pub(crate) fn write(&self) -> Result<WrittenLog, Error> {
        let path = beside(&log_path(&self.folder, self.number));
        let failed = |e: std::io::Error| Error::file(&path, e);
        let folder = File::open(&self.folder).map_err(failed)?;
        // A server that was killed here, or that had no room, left one behind.
        remove_if_there(&path).map_err(failed)?;
        let written = self.write_to(&path);
        if written.is_err() {
            // It takes the room that the old log needs.
            let _ = remove_if_there(&path);
        }
        Ok(WrittenLog {
            log: written?,
            folder,
        })
    }

    fn write_to(&self, path: &Path) -> Result<Log, Error> {
        let (mut log, _) = Log::open(path, HEADER, &mut |_| Ok(()))?;
        private::restrict(path).map_err(|e| Error::file(path, e))?;
        log.append(self.records.iter().map(String::as_str))?;
        log.sync()?;
        Ok(log)
    }
}
