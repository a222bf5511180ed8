//! The folder of a rule: its log, and the traces of audited streams.
//!
//! ```text
//! NAME/audits-00000007.parquet   labelled audits, as `calibrate` takes them
//! NAME/_log-00000008             what happened since; begins with all that still matters
//! NAME/_before-1/                audits from before the alarm of the first rule
//! NAME/_lock                     locked by the server that writes here, for as long as it lives
//! ```
//!
//! The server *rotates* a log now and then: it writes labelled audits into a trace file, then
//! what still matters into a new log, and then removes the old log. A server that is killed
//! in between does the same again, under the same names.

mod files;
mod next_log;
mod stored_monitor;
mod unfiled_audits;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use haltwise::Rule;
use haltwise_log::{Cause, Committer, Dropped, Log};
use tokio::sync::watch;

use crate::clock::Clock;
use crate::error::Error;
use crate::exposition::{Histogram, SECONDS};
use crate::private;
use crate::rule_state::{Effects, RuleState, Settings, digest};
use crate::store_lock::StoreLock;
use files::{log_path, logs, remove_if_there, remove_unfinished};
use next_log::{NextLog, WrittenLog};
pub use stored_monitor::StoredMonitor;
use unfiled_audits::UnfiledAudits;

const HEADER: &str = r#"{"format":"haltwise-store-1"}"#;

/// How far all logs are on the disk.
#[derive(Debug, Clone, Default)]
pub(crate) struct CommitProgress {
    /// How many records are.
    pub(crate) records: u64,
    /// Why those that wait are not, until they can be written.
    pub(crate) problem: Option<String>,
}

/// How long audits are kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retention {
    /// For how many days; audits that still wait for a label are also dropped then.
    pub days: Option<u32>,
    /// How many bytes of trace files, of the newest.
    pub bytes: Option<u64>,
}

/// How a store is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreOptions {
    pub(crate) settings: Settings,
    pub(crate) retention: Retention,
    /// Whether the rule takes the place of another that is in use.
    pub(crate) replace: bool,
    pub(crate) seed: u64,
}

/// What a store counts since the process began.
#[derive(Debug)]
pub(crate) struct StoreCounts {
    /// Writes that failed.
    pub(crate) errors: AtomicU64,
    /// Records that were lost by damage.
    pub(crate) lost: AtomicU64,
    /// How long commits took.
    pub(crate) commits: Histogram,
}

impl Default for StoreCounts {
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
    committed: watch::Sender<CommitProgress>,
    counts: Arc<StoreCounts>,
    /// How many bytes this log began with, and how many were appended since.
    first_bytes: u64,
    bytes: u64,
    /// The records appended since the draft of the next log, while there is a draft.
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
pub(crate) struct OpenedStore {
    pub(crate) store: Store,
    pub(crate) state: RuleState,
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
        how: StoreOptions,
    ) -> Result<OpenedStore, Error> {
        remove_unfinished(folder)?;
        let number = logs(folder)?.last().copied().unwrap_or(1);
        let mut state = RuleState::new(rule.clone(), json.clone(), how.settings, how.seed);
        let mut closed = true;
        let path = log_path(folder, number);
        let (log, opened) = Log::open(&path, HEADER, &mut |record| {
            closed = state.replay(record)?;
            Ok(())
        })?;
        private::restrict(&path).map_err(|e| Error::file(&path, e))?;
        let is_new = opened.records == 0;
        let clock = Clock::set(state.latest());
        state.resume(clock.now(), is_new || closed);
        let (committed, _) = watch::channel(CommitProgress::default());
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
        notices.push(store.choose_rule(&mut state, is_new, rule, json, how.replace)?);
        let said = state.take_settings();
        let said = said.map_err(|problem| Error::file(folder, problem))?;
        notices.extend(said.map(|said| format!("{}: {said}", folder.display())));
        // From a log that begins with all of it, nothing is read twice.
        store.rotate(&mut state, clock.now())?;
        Ok(OpenedStore {
            store,
            state,
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
        state: &mut RuleState,
        is_new: bool,
        rule: Rule,
        json: String,
        replace: bool,
    ) -> Result<String, Error> {
        let refused = |problem: String| Err(Error::file(&self.folder, problem));
        let given = digest(&json);
        let renewal = state.renewal();
        let said = if is_new {
            "the rule of the file; the store is new".to_owned()
        } else if given == digest(state.rule_json()) {
            format!("the rule of the file, which is the store's (rule {renewal} there)")
        } else if replace {
            let mut effects = Effects::default();
            if let Err(fault) = state.renew(rule, json, &mut effects) {
                return refused(format!(
                    "the store has another rule, and the file's cannot take its place: {}; {}, or \
                     name another store",
                    fault.error, fault.remedy
                ));
            }
            self.append(&effects.records)?;
            format!(
                "the rule of the file, in place of the store's (rule {} there now); the next one \
                 may have a delta of {} at the most",
                state.renewal(),
                state.next_delta()
            )
        } else if state.is_first(&given) {
            format!(
                "the store's rule (rule {renewal} there, alpha {}, delta {}), which took the \
                 place of the file's; to go back to the file's, start once with --replace",
                state.rule().alpha().get(),
                state.rule().delta().get()
            )
        } else if state.knows(&given) {
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
                state.next_delta()
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
    pub(crate) fn committed(&self) -> watch::Receiver<CommitProgress> {
        self.committed.subscribe()
    }

    /// The counts of this store.
    pub(crate) fn counts(&self) -> Arc<StoreCounts> {
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

    /// The audits that go into a trace file now.
    pub(crate) fn unfiled(&mut self, state: &RuleState, now: u64) -> Result<UnfiledAudits, Error> {
        self.check_place()?;
        Ok(UnfiledAudits {
            folder: self.folder.clone(),
            retention: self.retention,
            now,
            number: self.number,
            audits: state.unfiled_audits().to_vec(),
            alarm: state.alarm_at(),
            rule: Arc::clone(state.rule()),
        })
    }

    /// Puts labelled audits into a trace file, and what still matters into a new
    /// log.
    fn rotate(&mut self, state: &mut RuleState, now: u64) -> Result<(), Error> {
        let unfiled = self.unfiled(state, now)?;
        unfiled.file()?;
        let mut draft = self.draft(state, unfiled.len(), now)?;
        while draft.copy_part(state) {}
        let written = draft.write();
        self.adopt(state, draft, written)
    }

    /// Makes a draft of the next log, once the first audits that are done, this many, are in
    /// a trace file. The audits that wait for a label are to be copied yet.
    pub(crate) fn draft(
        &mut self,
        state: &mut RuleState,
        filed: usize,
        now: u64,
    ) -> Result<NextLog, Error> {
        if self.committer.is_none() {
            return Err(Error::file(&self.folder, "the store is closed"));
        }
        if let Some(days) = self.retention.days {
            state.drop_unlabelled_before(now.saturating_sub(u64::from(days) * DAY));
        }
        Ok(self.draft_of(state, filed, RuleState::begin_copy))
    }

    fn draft_of(
        &mut self,
        state: &mut RuleState,
        filed: usize,
        records: impl FnOnce(&mut RuleState) -> Vec<String>,
    ) -> NextLog {
        let filed = state.take_unfiled(filed);
        self.since_draft = Some(Vec::new());
        NextLog {
            folder: self.folder.clone(),
            number: self.number + 1,
            records: records(state),
            filed,
        }
    }

    /// Goes on with the next log, or with the old one if the next could not be written.
    pub(crate) fn adopt(
        &mut self,
        state: &mut RuleState,
        draft: NextLog,
        written: Result<WrittenLog, Error>,
    ) -> Result<(), Error> {
        let since = self.since_draft.take().unwrap_or_default();
        let adopted = written.and_then(|written| self.try_adopt(draft.number, written, &since));
        if adopted.is_err() {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
            // The next file of this number will also have them.
            state.put_back(draft.filed);
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
    pub(crate) fn close(&mut self, state: &mut RuleState, now: u64) -> Result<(), Error> {
        let unfiled = self.unfiled(state, now)?;
        let filed = unfiled.file();
        // Audits that are in no file stay in the log.
        let count = if filed.is_ok() { unfiled.len() } else { 0 };
        let draft = self.draft_of(state, count, |state| state.records(true));
        let written = draft.write();
        self.adopt(state, draft, written)?;
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

/// A day, in milliseconds.
const DAY: u64 = 86_400_000;
