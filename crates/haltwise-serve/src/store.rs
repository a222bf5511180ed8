//! The folder of a rule: its log, and the traces of audited streams.
//!
//! ```text
//! NAME/audits-00000007.parquet   labelled audits, as `calibrate` takes them
//! NAME/_log-00000008             what happened since; begins with all that still matters
//! NAME/_before-1/                audits from before the alarm of the first rule
//! ```
//!
//! A log is *rotated* now and then: labelled audits go into a trace file, what
//! still matters into a new log, and the old one is removed, in this order. A
//! server that is killed in between does the same again, under the same names.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use haltwise::Rule;
use haltwise::monitor::Monitor;
use haltwise_io::{CLASSIFIER, Columns, Format, TraceWriter, WriteOptions, visit_bytes};
use haltwise_log::{Committer, Log};
use tokio::sync::watch;

use crate::desk::{COSTS, Desk, Out, Settings, digest};
use crate::error::Error;

const HEADER: &str = r#"{"format":"haltwise-store-1"}"#;

/// How many records of all logs are on the disk, or why no more will be.
pub(crate) type Committed = Result<u64, String>;

/// The open store of one rule.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    number: u64,
    /// Gone once all is stored.
    committer: Option<Committer>,
    /// How many records were appended to logs before this one.
    before: u64,
    committed: watch::Sender<Committed>,
    /// How many bytes were appended to this log.
    bytes: u64,
}

/// A log of this many bytes is long: reading it back takes a good part of a second.
const LONG: u64 = 32 << 20;

impl Store {
    /// Opens a store or begins one, and brings back what it knows. `now` is in
    /// milliseconds since 1970.
    pub(crate) fn open(
        folder: &Path,
        rule: Rule,
        json: String,
        settings: Settings,
        now: u64,
        seed: u64,
    ) -> Result<(Self, Desk), Error> {
        let failed = |e: std::io::Error| Error::file(folder, e);
        fs::create_dir_all(folder).map_err(failed)?;
        let number = logs(folder)?.last().copied().unwrap_or(1);
        let given = digest(&json);
        let mut desk = Desk::new(rule.clone(), json.clone(), settings, seed);
        desk.set_clock(now);
        let mut closed = false;
        let path = log_path(folder, number);
        let (log, opened) = Log::open(&path, HEADER, &mut |record| {
            closed = desk.replay(record)?;
            Ok(())
        })?;
        if opened.records > 0 && !closed {
            desk.forget_running();
            desk.be_careful(now);
        }
        let (committed, _) = watch::channel(Ok(0));
        let mut store = Self {
            folder: folder.to_path_buf(),
            number,
            committer: None,
            before: 0,
            committed,
            bytes: 0,
        };
        store.start(log);
        if !desk.knows(&given) {
            let mut out = Out::default();
            desk.renew(rule, json, Some(given), &mut out)
                .map_err(|fault| {
                    Error::file(
                        folder,
                        format!(
                            "the store is of another rule, and this one cannot take its place: {}; \
                             {}, or name another store",
                            fault.error, fault.remedy
                        ),
                    )
                })?;
            store.append(&out.records)?;
        }
        // From a log that begins with all of it, nothing is read twice.
        store.rotate(&mut desk)?;
        Ok((store, desk))
    }

    fn start(&mut self, log: Log) {
        let (before, committed) = (self.before, self.committed.clone());
        self.committer = Some(Committer::new(log, move |done| {
            let _before = committed.send_replace(match done {
                Ok(records) => Ok(before + records),
                Err(failed) => Err(failed.to_string()),
            });
        }));
    }

    /// Hears of what is committed.
    pub(crate) fn committed(&self) -> watch::Receiver<Committed> {
        self.committed.subscribe()
    }

    /// Appends records, and returns how many must be committed for them to be on
    /// the disk.
    pub(crate) fn append(&mut self, records: &[String]) -> Result<u64, Error> {
        let Some(committer) = &self.committer else {
            return Err(Error::file(&self.folder, "the store is closed"));
        };
        let mut last = committer.appended();
        for record in records {
            self.bytes += record.len() as u64 + 1;
            last = committer
                .append(record)
                .map_err(|e| Error::file(&self.folder, e))?;
        }
        Ok(self.before + last)
    }

    /// Whether the log is long enough for a new one.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes > LONG
    }

    /// Puts labelled audits into a trace file, and what still matters into a new
    /// log.
    pub(crate) fn rotate(&mut self, desk: &mut Desk) -> Result<(), Error> {
        self.file_traces(desk)?;
        self.renew_log(desk, false)
    }

    /// Stores all, open streams too.
    pub(crate) fn close(&mut self, desk: &mut Desk) -> Result<(), Error> {
        self.file_traces(desk)?;
        self.renew_log(desk, true)?;
        if let Some(committer) = self.committer.take() {
            committer
                .close()
                .map_err(|e| Error::file(&self.folder, e))?;
        }
        Ok(())
    }

    /// Goes on with a new log that begins with the state of the desk. Where that
    /// cannot be, nothing is committed any more, and whoever waits is told.
    fn renew_log(&mut self, desk: &Desk, closing: bool) -> Result<(), Error> {
        let renewed = self.try_renew_log(desk, closing);
        if let (Err(error), None) = (&renewed, &self.committer) {
            let _before = self.committed.send_replace(Err(error.to_string()));
        }
        renewed
    }

    fn try_renew_log(&mut self, desk: &Desk, closing: bool) -> Result<(), Error> {
        if let Some(committer) = self.committer.take() {
            self.before += committer.appended();
            committer
                .close()
                .map_err(|e| Error::file(&self.folder, e))?;
        }
        let next = self.number + 1;
        let path = log_path(&self.folder, next);
        let beside = path.with_extension("new");
        let failed = |e: std::io::Error| Error::file(&path, e);
        // What a server that was killed here left behind.
        match fs::remove_file(&beside) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let (mut log, _) = Log::open(&beside, HEADER, &mut |_| Ok(()))?;
        let state = desk.state(closing);
        log.append(state.iter().map(String::as_str))?;
        log.sync()?;
        fs::rename(&beside, &path).map_err(failed)?;
        sync_folder(&self.folder)?;
        fs::remove_file(log_path(&self.folder, self.number)).map_err(failed)?;
        self.number = next;
        self.bytes = 0;
        self.start(log);
        Ok(())
    }

    /// Writes the labelled audits that are in no trace file yet. After an alarm,
    /// those from before it are set apart: it is the later ones that the next rule
    /// is to be calibrated on.
    fn file_traces(&mut self, desk: &mut Desk) -> Result<(), Error> {
        let (done, alarm) = desk.to_file();
        let rule = Arc::clone(desk.rule());
        let count = done.len();
        let (before, since): (Vec<_>, Vec<_>) = done
            .iter()
            .partition(|(began, _)| alarm.is_some_and(|alarm| *began < alarm));
        if let Some(alarm) = alarm {
            let apart = self.folder.join(format!("_before-{alarm}"));
            self.set_apart(&apart)?;
            self.write_traces(&apart, &before, &rule)?;
        }
        self.write_traces(&self.folder, &since, &rule)?;
        desk.filed(count);
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
        fs::create_dir_all(&making).map_err(failed)?;
        for file in files {
            let to = making.join(file.file_name().unwrap_or_default());
            fs::rename(&file, to).map_err(failed)?;
        }
        fs::rename(&making, apart).map_err(failed)
    }

    fn write_traces(
        &self,
        folder: &Path,
        traces: &[&(u64, String)],
        rule: &Rule,
    ) -> Result<(), Error> {
        if traces.is_empty() {
            return Ok(());
        }
        let lines: String = traces.iter().map(|(_, line)| format!("{line}\n")).collect();
        let name = format!("audits-{:08}", self.number);
        let parquet = folder.join(format!("{name}.parquet"));
        let columns = Columns {
            group: rule.terms().by.clone(),
            costs: Some(rule.terms().cost_column().unwrap_or(COSTS).to_owned()),
            ..Columns::default()
        }
        .where_there();
        let classifier = rule.classifier();
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
        if names.is_ok_and(|names| names.is_empty() || classifier.is_some()) {
            writer.finish()?;
            return Ok(());
        }
        // Also where not all are of one kind: nothing is lost, and whoever reads
        // the file is told what is wrong with it.
        let path = folder.join(format!("{name}.jsonl"));
        let beside = folder.join(format!("_{name}.new"));
        let failed = |e: std::io::Error| Error::file(&path, e);
        let mut file = File::create(&beside).map_err(failed)?;
        file.write_all(lines.as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        fs::rename(&beside, &path).map_err(failed)
    }
}

/// What the store of a server knows, while that may be writing it.
#[derive(Debug)]
pub struct Stored {
    /// The monitor of the rule that is in use there.
    pub monitor: Monitor,
    /// The ids most worth a label.
    pub labels_wanted: Vec<serde_json::Value>,
}

impl Stored {
    /// Reads the store in a folder, or in its folder of this name. `None` if there
    /// is none; one of another rule than that of this file is refused.
    pub fn read(folder: &Path, name: &str, rule: &Rule, json: &str) -> Result<Option<Self>, Error> {
        let inner = folder.join(name);
        let Some(folder) = [folder, &inner].into_iter().find(|f| is_store(f)) else {
            return Ok(None);
        };
        let desk = read(folder, rule)?;
        if digest(desk.rule_json()) != digest(json) {
            return Err(Error::file(
                folder,
                "another rule is in use there; name the one that the server has now, or ask the \
                 server for it",
            ));
        }
        let labels_wanted = desk.labels_wanted();
        let monitor = desk.monitor().cloned().ok_or_else(|| {
            Error::file(
                folder,
                "the rule there promises nothing, so nothing is watched",
            )
        })?;
        Ok(Some(Self {
            monitor,
            labels_wanted,
        }))
    }
}

/// The desk of a store, as far as its log tells.
fn read(folder: &Path, rule: &Rule) -> Result<Desk, Error> {
    // What a log begins with has the settings that matter.
    let settings = Settings::default();
    // A log that is rotated away meanwhile is followed by another.
    for _ in 0..10 {
        let Some(&number) = logs(folder)?.last() else {
            return Err(Error::file(folder, "there is no store in it"));
        };
        let mut desk = Desk::new(rule.clone(), String::new(), settings, 0);
        let path = log_path(folder, number);
        match Log::read(&path, &mut |record| desk.replay(record).map(drop)) {
            Ok(header) if header == HEADER => return Ok(desk),
            Ok(_) => return Err(Error::file(&path, "it is no log of a store")),
            Err(_) if !path.exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::file(folder, "its log is rotated all the time"))
}

/// Whether a folder is a store.
fn is_store(folder: &Path) -> bool {
    folder.is_dir() && logs(folder).is_ok_and(|logs| !logs.is_empty())
}

fn log_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("_log-{number:08}"))
}

/// The numbers of the logs in a folder.
fn logs(folder: &Path) -> Result<Vec<u64>, Error> {
    let mut numbers = Vec::new();
    for name in names(folder)? {
        if let Some(number) = name.strip_prefix("_log-") {
            numbers.extend(number.parse::<u64>());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The trace files in a folder.
fn trace_names(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut names = names(folder)?;
    names.retain(|name| name.starts_with("audits-"));
    names.sort();
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let failed = |e: std::io::Error| Error::file(folder, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(
            entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    Ok(names)
}

/// A file that was renamed is only there once its folder says so.
fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|e| Error::file(folder, e))
}
