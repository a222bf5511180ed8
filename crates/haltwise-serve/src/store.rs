//! The folder of a rule: its log, and the traces of audited streams.
//!
//! ```text
//! NAME/audits-00000007.parquet   labelled audits, as `calibrate` takes them
//! NAME/_log-00000008             what happened since; begins with all that still matters
//! NAME/_before-1/                audits from before the alarm of the first rule
//! NAME/_lock                     locked by the server that writes here, for as long as it lives
//! ```
//!
//! A log is *rotated* now and then: labelled audits go into a trace file, what
//! still matters into a new log, and the old one is removed, in this order. A
//! server that is killed in between does the same again, under the same names.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use haltwise::Rule;
use haltwise::monitor::Monitor;
use haltwise_io::{CLASSIFIER, Columns, Format, TraceWriter, WriteOptions, visit_bytes};
use haltwise_log::{Cause, Committer, Dropped, Log};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::desk::{COSTS, Desk, Out, Settings, digest};
use crate::error::Error;
use crate::exposition::{Histogram, SECONDS};
use crate::private;
use crate::status::status;
use crate::store_lock::StoreLock;

const HEADER: &str = r#"{"format":"haltwise-store-1"}"#;

/// How the names of trace files begin that are not complete.
const UNFINISHED: &str = ".haltwise-";

/// How far all logs are on the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Committed {
    /// How many records are.
    pub(crate) records: u64,
    /// Why those that wait are not, until they can be written.
    pub(crate) problem: Option<String>,
}

/// How long audits are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// For how many days; those that still wait for a label are dropped then, too.
    pub days: Option<u32>,
    /// How many bytes of trace files, of the newest.
    pub bytes: Option<u64>,
}

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) settings: Settings,
    pub(crate) retention: Retention,
    /// Whether the rule takes the place of another that is in use.
    pub(crate) replace: bool,
    pub(crate) seed: u64,
}

/// What a store counts since the process began.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Writes that failed.
    pub(crate) errors: AtomicU64,
    /// Records that were lost by damage.
    pub(crate) lost: AtomicU64,
    /// How long commits took.
    pub(crate) commits: Histogram,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            errors: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            commits: Histogram::new(&SECONDS),
        }
    }
}

/// The open store of one rule.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    retention: Retention,
    number: u64,
    /// Gone once all is stored.
    committer: Option<Committer>,
    /// How many records were appended to logs before this one.
    before: u64,
    committed: watch::Sender<Committed>,
    counts: Arc<Counts>,
    /// How many bytes this log began with, and how many were appended since.
    first_bytes: u64,
    bytes: u64,
    /// What was appended since a draft of the next log was made, while there is one.
    since_draft: Option<Vec<String>>,
    /// Whether the folder is no longer at its path, so that nothing may be written there.
    is_misplaced: bool,
    /// Held through rotations and until the store is dropped, which is after it was closed.
    lock: StoreLock,
}

/// A log of this many bytes is long: reading it back takes a good part of a second.
const LONG: u64 = 32 << 20;

/// What comes of opening a store.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) store: Store,
    pub(crate) desk: Desk,
    pub(crate) clock: Clock,
    /// What whoever runs the server should know.
    pub(crate) notices: Vec<String>,
}

impl Store {
    /// Opens a store or begins one, and brings back what it knows. `lock` is that of its
    /// folder.
    pub(crate) fn open(
        folder: &Path,
        lock: StoreLock,
        rule: Rule,
        json: String,
        how: Opening,
    ) -> Result<Opened, Error> {
        remove_unfinished(folder)?;
        let number = logs(folder)?.last().copied().unwrap_or(1);
        let mut desk = Desk::new(rule.clone(), json.clone(), how.settings, how.seed);
        let mut closed = true;
        let path = log_path(folder, number);
        let (log, opened) = Log::open(&path, HEADER, &mut |record| {
            closed = desk.replay(record)?;
            Ok(())
        })?;
        private::restrict(&path).map_err(|e| Error::file(&path, e))?;
        let is_new = opened.records == 0;
        let clock = Clock::set(desk.latest());
        desk.resumed(clock.now(), is_new || closed);
        let (committed, _) = watch::channel(Committed::default());
        let mut store = Self {
            folder: folder.to_path_buf(),
            retention: how.retention,
            number,
            committer: None,
            before: 0,
            committed,
            counts: Arc::default(),
            first_bytes: 0,
            bytes: 0,
            since_draft: None,
            is_misplaced: false,
            lock,
        };
        let mut notices = Vec::new();
        if let Some(dropped) = opened.dropped.filter(|d| d.cause == Cause::Damaged) {
            notices.push(store.is_damaged(&path, &dropped));
        }
        store.start(log);
        notices.push(store.choose_rule(&mut desk, is_new, rule, json, how.replace)?);
        // From a log that begins with all of it, nothing is read twice.
        store.rotate(&mut desk, clock.now())?;
        Ok(Opened {
            store,
            desk,
            clock,
            notices,
        })
    }

    fn is_damaged(&self, path: &Path, dropped: &Dropped) -> String {
        let records = dropped.records.max(1);
        self.counts.lost.fetch_add(records, Ordering::Relaxed);
        format!("{}: {dropped}", path.display())
    }

    /// Serves the rule of the file or the store's, and says which and why.
    fn choose_rule(
        &mut self,
        desk: &mut Desk,
        is_new: bool,
        rule: Rule,
        json: String,
        replace: bool,
    ) -> Result<String, Error> {
        let refused = |problem: String| Err(Error::file(&self.folder, problem));
        let given = digest(&json);
        let renewal = desk.renewal();
        let said = if is_new {
            "the rule of the file; the store is new".to_owned()
        } else if given == digest(desk.rule_json()) {
            format!("the rule of the file, which is the store's (rule {renewal} there)")
        } else if replace {
            let mut out = Out::default();
            if let Err(fault) = desk.renew(rule, json, &mut out) {
                return refused(format!(
                    "the store has another rule, and the file's cannot take its place: {}; {}, or \
                     name another store",
                    fault.error, fault.remedy
                ));
            }
            self.append(&out.records)?;
            format!(
                "the rule of the file, in place of the store's (rule {} there now); the next one \
                 may have a delta of {} at the most",
                desk.renewal(),
                desk.next_delta()
            )
        } else if desk.is_first(&given) {
            format!(
                "the store's rule (rule {renewal} there, alpha {}, delta {}), which took the \
                 place of the file's; to go back to the file's, start once with --replace",
                desk.rule().alpha().get(),
                desk.rule().delta().get()
            )
        } else if desk.knows(&given) {
            return refused(format!(
                "the rule of the file was in use here once, and another has taken its place; \
                 start once with --replace to go back to it, or name the file of the rule that is \
                 in use (rule {renewal}) or of the first one to go on with that"
            ));
        } else {
            return refused(format!(
                "the store has another rule (rule {renewal} there); start once with --replace to \
                 put the file's in its place, which needs a delta of {} at the most, or name \
                 another store",
                desk.next_delta()
            ));
        };
        Ok(format!("{}: serving {said}", self.folder.display()))
    }

    fn start(&mut self, log: Log) {
        self.first_bytes = log.bytes();
        self.bytes = 0;
        let (before, committed) = (self.before, self.committed.clone());
        let counts = Arc::clone(&self.counts);
        self.committer = Some(Committer::new(log, move |done, took| {
            counts.commits.observe(took);
            committed.send_modify(|committed| match done {
                Ok(records) => {
                    committed.records = before + records;
                    committed.problem = None;
                }
                Err(failed) => {
                    counts.errors.fetch_add(1, Ordering::Relaxed);
                    committed.problem = Some(failed.to_string());
                }
            });
        }));
    }

    /// Hears of what is committed.
    pub(crate) fn committed(&self) -> watch::Receiver<Committed> {
        self.committed.subscribe()
    }

    /// What is counted of it.
    pub(crate) fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Whether records can be written now.
    pub(crate) fn ready(&self) -> Result<(), Error> {
        match (&self.committer, &self.committed.borrow().problem) {
            (None, _) => Err(Error::file(&self.folder, "the store is closed")),
            (_, Some(problem)) => Err(Error::new(problem.clone())),
            (Some(_), None) => Ok(()),
        }
    }

    /// Appends records, and returns how many must be committed for them to be on
    /// the disk. While nothing can be written they wait.
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
        if let Some(since) = &mut self.since_draft {
            since.extend_from_slice(records);
        }
        Ok(self.before + last)
    }

    /// How many bytes the log has.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.first_bytes + self.bytes
    }

    /// Whether the log is long enough for a new one. One that begins with much is not
    /// written anew before as much has come.
    pub(crate) fn is_long(&self) -> bool {
        self.bytes > LONG.max(self.first_bytes)
    }

    /// Makes sure that the folder at the store's path is this store, and locked. Someone may have
    /// moved it, or removed it, and another server may have begun another one there.
    pub(crate) fn check_place(&mut self) -> Result<(), Error> {
        let Some(committer) = &self.committer else {
            return Ok(());
        };
        let in_place = committer.in_place();
        let was_misplaced = std::mem::replace(&mut self.is_misplaced, in_place.is_err());
        match in_place {
            // The lock file alone was removed.
            Ok(()) => self.lock.renew(&self.folder)?,
            Err(error) => {
                let problem = Some(error.to_string());
                self.committed
                    .send_modify(|committed| committed.problem = problem);
                return Err(error.into());
            }
        }
        if was_misplaced {
            self.committed
                .send_modify(|committed| committed.problem = None);
        }
        Ok(())
    }

    /// What is to go into a trace file now.
    pub(crate) fn unfiled(&mut self, desk: &Desk) -> Result<Unfiled, Error> {
        self.check_place()?;
        Ok(Unfiled {
            folder: self.folder.clone(),
            retention: self.retention,
            number: self.number,
            done: desk.done_audits().to_vec(),
            alarm: desk.alarm_at(),
            rule: Arc::clone(desk.rule()),
        })
    }

    /// Puts labelled audits into a trace file, and what still matters into a new
    /// log.
    fn rotate(&mut self, desk: &mut Desk, now: u64) -> Result<(), Error> {
        let unfiled = self.unfiled(desk)?;
        unfiled.file()?;
        let mut draft = self.draft(desk, unfiled.len(), now)?;
        while draft.copy_part(desk) {}
        let written = draft.write();
        self.adopt(desk, draft, written)
    }

    /// Makes a draft of the next log, once the first audits that are done, this many, are in
    /// a trace file. The audits that wait for a label are to be copied yet.
    pub(crate) fn draft(
        &mut self,
        desk: &mut Desk,
        filed: usize,
        now: u64,
    ) -> Result<Draft, Error> {
        if self.committer.is_none() {
            return Err(Error::file(&self.folder, "the store is closed"));
        }
        if let Some(days) = self.retention.days {
            desk.drop_waiting_before(now.saturating_sub(u64::from(days) * DAY));
        }
        Ok(self.draft_of(desk, filed, Desk::begin_copy))
    }

    fn draft_of(
        &mut self,
        desk: &mut Desk,
        filed: usize,
        records: impl FnOnce(&mut Desk) -> Vec<String>,
    ) -> Draft {
        let filed = desk.take_done(filed);
        self.since_draft = Some(Vec::new());
        Draft {
            folder: self.folder.clone(),
            number: self.number + 1,
            records: records(desk),
            filed,
        }
    }

    /// Goes on with the next log. Where it could not be written, the old one goes on.
    pub(crate) fn adopt(
        &mut self,
        desk: &mut Desk,
        draft: Draft,
        written: Result<WrittenLog, Error>,
    ) -> Result<(), Error> {
        let since = self.since_draft.take().unwrap_or_default();
        let adopted = written.and_then(|written| self.try_adopt(draft.number, written, &since));
        if adopted.is_err() {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
            // The next file of this number has them, too.
            desk.put_back(draft.filed);
        }
        adopted
    }

    fn try_adopt(
        &mut self,
        number: u64,
        written: WrittenLog,
        since: &[String],
    ) -> Result<(), Error> {
        let path = log_path(&self.folder, number);
        let failed = |e: std::io::Error| Error::file(&path, e);
        let WrittenLog { mut log, folder } = written;
        if !since.is_empty() {
            let appended = log.append(since.iter().map(String::as_str));
            appended.and_then(|()| log.sync()).inspect_err(|_| {
                // It takes the room that the old log needs.
                let _ = remove_if_there(log.path());
            })?;
        }
        self.check_place()?;
        log.rename(&path)?;
        if let Err(error) = folder.sync_all() {
            // It may be gone after a power failure, so the old one goes on. Should both be
            // there, a restart would take this one, and miss what comes from now on.
            if fs::remove_file(&path).is_err() {
                self.give_up(&error);
            }
            return Err(failed(error));
        }
        // All that was appended is in the new log, so it is on the disk.
        if let Some(old) = self.committer.take() {
            self.before += old.appended();
        }
        self.number = number;
        self.start(log);
        let records = self.before;
        self.committed.send_modify(|committed| {
            committed.records = records;
            committed.problem = None;
        });
        for old in logs(&self.folder)? {
            if old < number {
                // One that stays does no harm, and goes with the next new log.
                let _ = fs::remove_file(log_path(&self.folder, old));
            }
        }
        Ok(())
    }

    /// Stores all, open streams too.
    pub(crate) fn close(&mut self, desk: &mut Desk) -> Result<(), Error> {
        let unfiled = self.unfiled(desk)?;
        let filed = unfiled.file();
        // What is in no file stays in the log.
        let count = if filed.is_ok() { unfiled.len() } else { 0 };
        let draft = self.draft_of(desk, count, |desk| desk.state(true));
        let written = draft.write();
        self.adopt(desk, draft, written)?;
        if let Some(committer) = self.committer.take() {
            committer
                .close()
                .map_err(|e| Error::file(&self.folder, e))?;
        }
        filed
    }

    /// Takes nothing any more.
    fn give_up(&mut self, error: &std::io::Error) {
        self.committer = None;
        let problem = format!("{}: {error}; start the server again", self.folder.display());
        self.committed
            .send_modify(|committed| committed.problem = Some(problem));
    }
}

const DAY: u64 = 86_400_000;

/// The next log, while it has not taken the place of the one before.
#[derive(Debug)]
pub(crate) struct Draft {
    folder: PathBuf,
    number: u64,
    records: Vec<String>,
    /// What its records leave out, because it is in a trace file.
    filed: Vec<(u64, String)>,
}

/// A log that is written, but has no name yet.
#[derive(Debug)]
pub(crate) struct WrittenLog {
    log: Log,
    /// Opened before: once the log has its name, nothing may fail for want of a file.
    folder: File,
}

impl Draft {
    /// Copies some of the audits that wait for a label. Returns whether there may be more.
    pub(crate) fn copy_part(&mut self, desk: &mut Desk) -> bool {
        let part = desk.copy_waiting();
        let is_part = part.is_some();
        self.records.extend(part.into_iter().flatten());
        is_part
    }

    /// Writes it, all of it on the disk. Nobody who holds the desk has to wait for that.
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

/// Removes the files that a server had not finished when it was killed. Nothing else does, and
/// they have answers in them.
fn remove_unfinished(folder: &Path) -> Result<(), Error> {
    let is_unfinished = |name: &str| {
        let is_ours = name.starts_with("_log-") || name.starts_with("_audits-");
        name.starts_with(UNFINISHED) || is_ours && name.ends_with(".new")
    };
    for folder in trace_folders(folder)? {
        for name in names(&folder)?
            .into_iter()
            .filter(|name| is_unfinished(name))
        {
            let path = folder.join(name);
            // A folder there is none of ours.
            if path.is_file() {
                remove_if_there(&path).map_err(|e| Error::file(&path, e))?;
            }
        }
    }
    Ok(())
}

/// The name of a log before it has its own.
fn beside(log: &Path) -> PathBuf {
    log.with_extension("new")
}

fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Labelled audits that are in no trace file yet.
#[derive(Debug)]
pub(crate) struct Unfiled {
    folder: PathBuf,
    retention: Retention,
    number: u64,
    done: Vec<(u64, String)>,
    alarm: Option<u64>,
    rule: Arc<Rule>,
}

impl Unfiled {
    pub(crate) fn len(&self) -> usize {
        self.done.len()
    }

    /// Writes them, and removes files that are not to be kept any longer. After an alarm,
    /// those from before it are set apart: it is the later ones that the next rule is to be
    /// calibrated on.
    pub(crate) fn file(&self) -> Result<(), Error> {
        let (before, since): (Vec<_>, Vec<_>) = self
            .done
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
        let kept_for = days.map(|days| Duration::from_millis(u64::from(days) * DAY));
        let oldest = kept_for.and_then(|kept_for| SystemTime::now().checked_sub(kept_for));
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

/// What the store of a server knows, while that may be writing it.
#[derive(Debug)]
pub struct Stored {
    /// The monitor of the rule that is in use there.
    pub monitor: Monitor,
    /// The ids most worth a label.
    pub labels_wanted: Vec<serde_json::Value>,
    /// What was lost by damage at the end of its log, in words.
    pub damage: Option<String>,
}

impl Stored {
    /// Reads the store in a folder, or in its folder of this name. `None` if there
    /// is none; one of another rule than that of this file is refused.
    pub fn read(folder: &Path, name: &str, rule: &Rule, json: &str) -> Result<Option<Self>, Error> {
        let inner = folder.join(name);
        let Some(folder) = [folder, &inner].into_iter().find(|f| is_store(f)) else {
            return Ok(None);
        };
        let (desk, damage) = read(folder, rule)?;
        if digest(desk.rule_json()) != digest(json) {
            return Err(Error::file(
                folder,
                "another rule is in use there; name the one that the server has now, or ask the \
                 server for it",
            ));
        }
        let labels_wanted = status(|| &desk).labels_wanted;
        let monitor = desk.monitor().cloned().ok_or_else(|| {
            Error::file(
                folder,
                "the rule there promises nothing, so nothing is watched",
            )
        })?;
        Ok(Some(Self {
            monitor,
            labels_wanted,
            damage,
        }))
    }
}

/// The desk of a store, as far as its log tells, and what is damaged in that.
fn read(folder: &Path, rule: &Rule) -> Result<(Desk, Option<String>), Error> {
    // What a log begins with has the settings that matter.
    let settings = Settings::default();
    // A log that is rotated away meanwhile is followed by another.
    for _ in 0..10 {
        let Some(&number) = logs(folder)?.last() else {
            return Err(Error::file(folder, "there is no store in it"));
        };
        let mut desk = Desk::new(rule.clone(), String::new(), settings, 0);
        let path = log_path(folder, number);
        match Log::inspect(&path, &mut |record| desk.replay(record).map(drop)) {
            Ok((header, opened)) if header == HEADER => {
                let damage = opened.dropped.filter(|d| d.cause == Cause::Damaged);
                return Ok((desk, damage.map(|d| format!("{}: {d}", path.display()))));
            }
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

/// The folders with trace files: this one, and those from before alarms.
fn trace_folders(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut folders = vec![folder.to_path_buf()];
    let names = names(folder)?;
    let before = names.iter().filter(|name| name.starts_with("_before-"));
    folders.extend(before.map(|name| folder.join(name)));
    Ok(folders)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_file_that_is_not_complete_is_known_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audits-00000001.parquet");
        let _writer = TraceWriter::create(&path, WriteOptions::default()).unwrap();
        let names = names(folder.path()).unwrap();
        assert!(
            matches!(&*names, [name] if name.starts_with(UNFINISHED)),
            "{names:?}"
        );
    }
}
