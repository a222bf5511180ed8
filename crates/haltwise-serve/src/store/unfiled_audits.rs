//! Labelled audits on their way into trace files.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haltwise::Rule;
use haltwise_io::{CLASSIFIER, Columns, Format, TraceWriter, WriteOptions, visit_bytes};

use super::files::{remove_if_there, trace_folders, trace_names};
use super::{DAY, Retention};
use crate::error::Error;
use crate::private;
use crate::rule_state::COSTS;

/// Labelled audits that are in no trace file yet.
#[derive(Debug)]
pub(crate) struct UnfiledAudits {
    pub(super) folder: PathBuf,
    pub(super) retention: Retention,
    /// The time by the server's own clock, in milliseconds since 1970.
    pub(super) now: u64,
    pub(super) number: u64,
    /// When each began, and its line.
    pub(super) audits: Vec<(u64, String)>,
    pub(super) alarm: Option<u64>,
    pub(super) rule: Arc<Rule>,
}

impl UnfiledAudits {
    pub(crate) fn len(&self) -> usize {
        self.audits.len()
    }

    /// Writes them, and removes files that are not to be kept any longer. After an alarm,
    /// those from before it are set apart: it is the later ones that the next rule is to be
    /// calibrated on.
    pub(crate) fn file(&self) -> Result<(), Error> {
        let (before, since): (Vec<_>, Vec<_>) = self
            .audits
            .iter()
            .partition(|(began, _)| self.alarm.is_some_and(|alarm| *began < alarm));
        if let Some(alarm) = self.alarm {
            let apart = self.folder.join(format!("_before-{alarm}"));
            self.set_apart(&apart)?;
            self.write(&apart, &before)?;
        }
        self.write(&self.folder, &since)?;
        self.remove_old_traces()
    }

    /// Removes the trace files that are not to be kept any longer, the oldest first.
    fn remove_old_traces(&self) -> Result<(), Error> {
        let Retention { days, bytes } = self.retention;
        if days.is_none() && bytes.is_none() {
            return Ok(());
        }
        let failed = |e: std::io::Error| Error::file(&self.folder, e);
        let mut files = Vec::new();
        for folder in trace_folders(&self.folder)? {
            for path in trace_names(&folder)? {
                let about = fs::metadata(&path).map_err(failed)?;
                files.push((about.modified().map_err(failed)?, about.len(), path));
            }
        }
        files.sort();
        // The earlier of two clocks: no file is removed because the machine's jumped ahead. Files
        // have their times from that one, so that it also counts if it went back.
        let now = SystemTime::now().min(UNIX_EPOCH + Duration::from_millis(self.now));
        let kept_for = days.map(|days| Duration::from_millis(u64::from(days) * DAY));
        let oldest = kept_for.and_then(|kept_for| now.checked_sub(kept_for));
        let mut all: u64 = files.iter().map(|(_, length, _)| length).sum();
        for (modified, length, path) in files {
            let is_old = oldest.is_some_and(|oldest| modified < oldest);
            if !is_old && bytes.is_none_or(|bytes| all <= bytes) {
                break;
            }
            fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
            all -= length;
        }
        Ok(())
    }

    /// Moves the trace files of before an alarm, once.
    fn set_apart(&self, apart: &Path) -> Result<(), Error> {
        if apart.is_dir() {
            return Ok(());
        }
        let failed = |e: std::io::Error| Error::file(apart, e);
        let files: Vec<PathBuf> = trace_names(&self.folder)?;
        // The folder comes into being with all files in it.
        let making = self.folder.join("_before.new");
        private::create_folder(&making).map_err(failed)?;
        for file in files {
            let to = making.join(file.file_name().unwrap_or_default());
            fs::rename(&file, to).map_err(failed)?;
        }
        fs::rename(&making, apart).map_err(failed)
    }

    fn write(&self, folder: &Path, traces: &[&(u64, String)]) -> Result<(), Error> {
        if traces.is_empty() {
            return Ok(());
        }
        let lines: String = traces.iter().map(|(_, line)| format!("{line}\n")).collect();
        let name = format!("audits-{:08}", self.number);
        let parquet = folder.join(format!("{name}.parquet"));
        let jsonl = folder.join(format!("{name}.jsonl"));
        let terms = self.rule.terms();
        let columns = Columns {
            group: terms.by.clone(),
            unit: terms.unit.clone(),
            costs: Some(terms.cost_column().unwrap_or(COSTS).to_owned()),
            ..Columns::default()
        }
        .where_there();
        let classifier = self.rule.classifier();
        let metadata = classifier.and_then(|c| serde_json::to_string(c).ok());
        let options = WriteOptions {
            columns: columns.clone(),
            metadata: metadata
                .map(|c| (CLASSIFIER.into(), c))
                .into_iter()
                .collect(),
            ..WriteOptions::default()
        };
        let mut writer = TraceWriter::create(&parquet, options)?;
        let names = visit_bytes(
            &name,
            Format::Jsonl,
            lines.as_bytes(),
            &columns,
            &mut |trace| writer.write(trace.given()).map_err(|e| e.to_string()),
        );
        // Class names have a place in JSON Lines only, and what says whose traces they
        // are in Parquet only. Answers of a language model, as many as there are
        // questions, need no names.
        let (path, other) = if names.is_ok_and(|n| n.is_empty() || classifier.is_some()) {
            writer.finish()?;
            (parquet, jsonl)
        } else {
            // Also where not all are of one kind: nothing is lost, and whoever reads
            // the file is told what is wrong with it.
            let beside = folder.join(format!("_{name}.new"));
            write_whole(&beside, lines.as_bytes())
                .and_then(|()| fs::rename(&beside, &jsonl))
                .map_err(|e| Error::file(&jsonl, e))?;
            (jsonl, parquet)
        };
        // An earlier attempt may have written fewer of them, in the other format.
        private::restrict(&path)
            .and_then(|()| remove_if_there(&other))
            .map_err(|e| Error::file(&path, e))?;
        haltwise_log::sync_folder_of(&path).map_err(|e| Error::file(&path, e))
    }
}

fn write_whole(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).open(path)?;
    private::restrict(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a trace file stays for two days that is this many days old by the machine's clock,
    /// if the server's clock is this many days ahead of that.
    fn is_kept(age: u32, ahead: i64) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audits-00000001.parquet");
        let file = fs::File::create(&path).unwrap();
        let machine = SystemTime::now();
        file.set_modified(machine - age * Duration::from_millis(DAY))
            .unwrap();
        let machine = machine.duration_since(UNIX_EPOCH).unwrap().as_millis() as u64;
        let (rule, _) = crate::rule_state::tests::rule(0.01);
        let unfiled = UnfiledAudits {
            folder: folder.path().to_path_buf(),
            retention: Retention {
                days: Some(2),
                bytes: None,
            },
            now: machine.saturating_add_signed(ahead * DAY as i64),
            number: 2,
            audits: Vec::new(),
            alarm: None,
            rule: Arc::new(rule),
        };
        unfiled.file().unwrap();
        path.exists()
    }

    #[test]
    fn a_clock_that_jumps_removes_no_trace_file() {
        assert!(is_kept(1, 0) && !is_kept(3, 0));
        // The machine's clock jumped 115 days ahead: by it, all files are older.
        assert!(is_kept(116, -115) && !is_kept(118, -115));
        // It went back: by it, all files are younger.
        assert!(is_kept(0, 115) && !is_kept(3, 115));
    }
}
