//! A state and its store together: what a state decides is on the disk before
//! anyone is told.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haltwise::Rule;
use tokio::sync::{broadcast, watch};

use crate::clock::Clock;
use crate::error::Error;
use crate::fault::{Fault, FaultKind};
use crate::line::{Line, stream_id};
use crate::rule_state::{Effects, MOST_UNFILED, RuleState};
use crate::served_rules::{LabelForm, RuleCheck, RuleToServe};
use crate::status::{Status, status};
use crate::store::{CommitProgress, OpenedStore, Store, StoreCounts};

/// One rule as it is served.
pub struct ServedRule {
    pub(crate) name: String,
    label: Option<LabelForm>,
    check: Option<RuleCheck>,
    inner: Mutex<(RuleState, Option<Store>)>,
    clock: Clock,
    counts: Arc<StoreCounts>,
    /// Held by the one who rotates.
    rotating: Mutex<()>,
    report: Mutex<Option<LastStatus>>,
    committed: watch::Receiver<CommitProgress>,
    events: broadcast::Sender<String>,
    /// The e-value at times, in milliseconds since 1970.
    history: Mutex<Vec<(u64, f64)>>,
}

impl std::fmt::Debug for ServedRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Board")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The most points of a history; of more, every other is left out.
const MOST_HISTORY: usize = 1000;

/// Answers that may be given once this many records are committed.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) text: String,
    pub(crate) after: u64,
}

/// The most bytes of a line with a label: an id, a class and some room.
const MOST_LABEL: usize = 64 << 10;

/// How long a record may wait for the disk after a write has failed, before who waits is told.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a walk leaves the state to others between two parts. Without a pause it would take the
/// state again before they wake up.
const TURN: Duration = Duration::from_millis(1);

/// The last status, and when the server began to work it out.
struct LastStatus {
    begun: Instant,
    status: Arc<Status>,
}

/// The state while it is held.
struct HeldState<'b>(MutexGuard<'b, (RuleState, Option<Store>)>);

impl Deref for HeldState<'_> {
    type Target = RuleState;

    fn deref(&self) -> &RuleState {
        &self.0.0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServedRule {
    /// A rule at its store.
    pub(crate) fn stored(served: RuleToServe, opened: OpenedStore) -> Self {
        let OpenedStore {
            store,
            state,
            clock,
            ..
        } = opened;
        let (committed, counts) = (store.committed(), store.counts());
        Self {
            counts,
            ..Self::new(served, state, Some(store), clock, committed)
        }
    }

    /// A rule of which nothing is stored: all is forgotten when the program ends.
    pub(crate) fn unstored(served: RuleToServe, mut state: RuleState) -> Self {
        let clock = Clock::set(0);
        state.resume(clock.now(), true);
        let (_, committed) = watch::channel(CommitProgress::default());
        Self::new(served, state, None, clock, committed)
    }

    fn new(
        served: RuleToServe,
        state: RuleState,
        store: Option<Store>,
        clock: Clock,
        committed: watch::Receiver<CommitProgress>,
    ) -> Self {
        let (events, _) = broadcast::channel(1024);
        Self {
            name: served.name,
            label: served.label,
            check: served.check,
            committed,
            counts: Arc::default(),
            inner: Mutex::new((state, store)),
            clock,
            rotating: Mutex::default(),
            report: Mutex::default(),
            events,
            history: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (RuleState, Option<Store>)> {
        lock(&self.inner)
    }

    /// Does something to the state, and stores what came of it. While nothing can be stored,
    /// nothing is done.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut RuleState, u64, &mut Effects) -> T,
    ) -> Result<(T, Answers), Error> {
        let inner = self.lock();
        self.can_change(&inner)?;
        self.change_held(inner, change)
    }

    /// Whether something may happen to the state.
    fn can_change(&self, inner: &(RuleState, Option<Store>)) -> Result<(), Error> {
        self.is_sound()?;
        if let (state, Some(store)) = inner {
            store.ready()?;
            let unfiled = state.unfiled_bytes();
            if unfiled > MOST_UNFILED {
                return Err(Error::new(format!(
                    "{}: {} MiB of audits wait for a trace file, which cannot be written; make \
                     room if the disk is full; then it goes on by itself",
                    self.name,
                    unfiled >> 20
                )));
            }
        }
        Ok(())
    }

    /// Whether all changes to the state were completed. If not, it may not be what the log says.
    fn is_sound(&self) -> Result<(), Error> {
        if self.inner.is_poisoned() {
            return Err(Error::new(format!(
                "{}: a mistake in the server broke off a change to its state; start the server \
                 again",
                self.name
            )));
        }
        Ok(())
    }

    /// The same for what has happened already: it is stored once that is possible.
    pub(crate) fn note<T>(
        &self,
        change: impl FnOnce(&mut RuleState, u64, &mut Effects) -> T,
    ) -> Result<(T, Answers), Error> {
        self.change_held(self.lock(), change)
    }

    fn change_held<T>(
        &self,
        mut inner: MutexGuard<'_, (RuleState, Option<Store>)>,
        change: impl FnOnce(&mut RuleState, u64, &mut Effects) -> T,
    ) -> Result<(T, Answers), Error> {
        let mut effects = Effects::default();
        let (state, store) = &mut *inner;
        let found = change(state, self.clock.now(), &mut effects);
        // While the state is held, so that the log has its order.
        let after = match store {
            Some(store) => store.append(&effects.records)?,
            None => 0,
        };
        drop(inner);
        for event in effects.events {
            // No one may be listening.
            let _ = self.events.send(event);
        }
        let text = effects.answers;
        Ok((found, Answers { text, after }))
    }

    /// Takes lines, the first of which is number `first`, counted from 1. What is
    /// wrong with one stands between the answers.
    pub(crate) fn take(
        &self,
        lines: &[Result<&[u8], Fault>],
        first: u64,
    ) -> Result<Answers, Error> {
        self.take_by(lines, first, |state, now, line, effects| {
            state.take(now, line, effects)
        })
    }

    /// The same for lines that may come twice: each must say which step it is.
    pub(crate) fn take_numbered(
        &self,
        lines: &[Result<&[u8], Fault>],
        first: u64,
    ) -> Result<Answers, Error> {
        self.take_by(lines, first, |state, now, line, effects| {
            state.take_numbered(now, line, effects)
        })
    }

    fn take_by(
        &self,
        lines: &[Result<&[u8], Fault>],
        first: u64,
        take: impl Fn(&mut RuleState, u64, &Line<'_>, &mut Effects) -> Result<(), Fault>,
    ) -> Result<Answers, Error> {
        // Read before the state is held: that takes most of the time.
        let parsed: Vec<Result<Line<'_>, Fault>> = lines
            .iter()
            .map(|line| {
                let line = line.as_ref().map_err(Clone::clone)?;
                Line::parse(line).map_err(unusable)
            })
            .collect();
        let ((), answers) = self.change(|state, now, effects| {
            for (number, line) in (first..).zip(&parsed) {
                let taken = match line {
                    Ok(line) => take(state, now, line, effects),
                    Err(fault) => {
                        state.count_fault();
                        Err(fault.clone())
                    }
                };
                if let Err(fault) = taken {
                    effects.answers += &fault.json(Some(number));
                    effects.answers.push('\n');
                }
            }
        })?;
        Ok(answers)
    }

    /// Takes one line, and answers it whether it halts its stream or not.
    pub(crate) fn take_one(
        &self,
        line: Result<&[u8], Fault>,
    ) -> Result<(Result<(), Fault>, Answers), Error> {
        let line = line.and_then(|line| Line::parse(line).map_err(unusable));
        self.change(|state, now, effects| match line {
            Ok(line) => state.take(now, &line, effects),
            Err(fault) => {
                state.count_fault();
                Err(fault)
            }
        })
    }

    /// Takes a label: a line with an "id" and a "label".
    pub(crate) fn label(&self, line: &[u8]) -> Result<(Result<(), Fault>, Answers), Error> {
        let parsed = match serde_json::from_slice::<Labelled<'_>>(line) {
            _ if line.len() > MOST_LABEL => Err(format!("it has more than {MOST_LABEL} bytes")),
            Ok(parsed) => stream_id(parsed.id.get()).map(|id| (id, parsed.label.get())),
            Err(e) => Err(format!("it is no label: {e}")),
        };
        let (id, label) = match parsed {
            Ok(parsed) => parsed,
            Err(problem) => {
                let fault = Fault::new(
                    FaultKind::Unusable,
                    problem,
                    "give {\"id\": …, \"label\": …} in one line",
                );
                let text = String::new();
                return Ok((Err(fault), Answers { text, after: 0 }));
            }
        };
        let label = self.written(label);
        self.change(|state, now, effects| state.label(now, &id, &label, effects))
    }

    /// A label, as JSON, in the one way to write it.
    fn written<'l>(&self, label: &'l str) -> Cow<'l, str> {
        let text = |form: &LabelForm| {
            // A number is text to who compares words.
            let text = serde_json::from_str(label).unwrap_or_else(|_| label.to_owned());
            serde_json::Value::from(form(&text)).to_string()
        };
        self.label
            .as_ref()
            .map_or(Cow::Borrowed(label), |form| text(form).into())
    }

    /// The rule that is in use.
    pub fn rule(&self) -> Arc<Rule> {
        self.with_state(|state| Arc::clone(state.rule()))
    }

    /// Whether streams are to be read to their end because of an alarm.
    pub fn reading_on(&self) -> bool {
        self.with_state(RuleState::reading_on)
    }

    /// Waits until records are on the disk. If they cannot be written, it gives up soon.
    pub(crate) async fn durable(&self, after: u64) -> Result<(), Error> {
        let closed = |_| Error::new("the store is closed");
        let mut committed = self.committed.clone();
        let stored = |committed: &CommitProgress| committed.records >= after;
        let known = committed.wait_for(|c| stored(c) || c.problem.is_some());
        if stored(&*known.await.map_err(closed)?) {
            return Ok(());
        }
        match tokio::time::timeout(PATIENCE, committed.wait_for(stored)).await {
            Ok(done) => done.map(drop).map_err(closed),
            Err(_) => {
                let problem = self.committed.borrow().problem.clone();
                Err(Error::new(problem.unwrap_or_else(|| {
                    "the disk has only now become writable again".into()
                })))
            }
        }
    }

    /// Whether something may happen to the state, and the log can be written.
    pub(crate) fn ready(&self) -> Result<(), String> {
        let problem = self.committed.borrow().problem.clone();
        problem.map_or(Ok(()), Err)?;
        self.can_change(&self.lock()).map_err(|e| e.to_string())
    }

    /// The counts of the store.
    pub(crate) fn counts(&self) -> &StoreCounts {
        &self.counts
    }

    /// How many bytes the log has.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.lock().1.as_ref().map_or(0, Store::log_bytes)
    }

    /// Hears of halts and alarms.
    pub(crate) fn listen(&self) -> broadcast::Receiver<String> {
        self.events.subscribe()
    }

    /// The status, no older than this call. Requests that wait while one is worked out share the
    /// next status: any number of them costs as much as two. Streams go on meanwhile.
    pub(crate) fn status(&self) -> Arc<Status> {
        let asked = Instant::now();
        let mut last = lock(&self.report);
        if let Some(LastStatus { begun, status }) = &*last
            && *begun >= asked
        {
            return Arc::clone(status);
        }
        let begun = Instant::now();
        let mut parts = 0;
        let status = Arc::new(status(|| {
            if parts > 0 {
                std::thread::sleep(TURN);
            }
            parts += 1;
            HeldState(self.lock())
        }));
        *last = Some(LastStatus {
            begun,
            status: Arc::clone(&status),
        });
        status
    }

    pub(crate) fn with_state<T>(&self, look: impl FnOnce(&RuleState) -> T) -> T {
        look(&self.lock().0)
    }

    /// Puts another rule in the place of the one that is here. Returns which rule it is,
    /// counted from 1, once that is on the disk.
    pub(crate) async fn renew(
        &self,
        rule: Rule,
        json: String,
    ) -> Result<Result<u32, Fault>, Error> {
        let (renewed, answers) = self.change(|state, _, effects| {
            if let Some(check) = &self.check {
                check(state.rule(), &rule).map_err(|problem| {
                    let remedy = "calibrate it on traces like those of the rule that is in use";
                    Fault::new(FaultKind::Unusable, problem, remedy)
                })?;
            }
            state.renew(rule, json, effects).map(|()| state.renewal())
        })?;
        self.durable(answers.after).await?;
        Ok(renewed)
    }

    /// Whether what happens is stored.
    pub fn is_stored(&self) -> bool {
        self.lock().1.is_some()
    }

    /// Looks after the store, closes idle streams, and notes the evidence.
    pub(crate) fn tick(&self) -> Result<(), Error> {
        self.with_store(|_, store| store.check_place())
            .transpose()?;
        let (e_value, _) = self.change(|state, now, effects| {
            state.tick(now, effects);
            state.monitor().map(haltwise::monitor::Monitor::e_value)
        })?;
        let mut history = lock(&self.history);
        if history.len() >= MOST_HISTORY {
            let mut keep = false;
            history.retain(|_| {
                keep = !keep;
                keep
            });
        }
        history.extend(e_value.map(|e_value| (self.clock.now(), e_value)));
        Ok(())
    }

    /// The e-value over time.
    pub(crate) fn history(&self) -> Vec<(u64, f64)> {
        lock(&self.history).clone()
    }

    /// Whether the log is long enough for a new one, or many audits wait for a trace file.
    pub(crate) fn is_long(&self) -> bool {
        let inner = self.lock();
        let store = inner.1.as_ref();
        store.is_some_and(|store| store.is_long() || inner.0.unfiled_bytes() > MOST_UNFILED / 4)
    }

    /// Puts labelled audits into a trace file, and begins a new log.
    pub(crate) fn rotate(&self) -> Result<(), Error> {
        let _alone = lock(&self.rotating);
        self.is_sound()?;
        let now = self.clock.now();
        let Some(unfiled) = self.with_store(|state, store| store.unfiled(state, now)) else {
            return Ok(());
        };
        let unfiled = unfiled?;
        // The state is free while files are written.
        unfiled.file().inspect_err(|_| {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
        })?;
        let Some(draft) =
            self.with_store(|state, store| store.draft(state, unfiled.len(), self.clock.now()))
        else {
            return Ok(());
        };
        let mut draft = draft?;
        // It is also free between two parts of what waits.
        while draft.copy_part(&mut self.lock().0) {
            std::thread::sleep(TURN);
        }
        let written = draft.write();
        let adopted = self.with_store(|state, store| store.adopt(state, draft, written));
        adopted.unwrap_or(Ok(()))
    }

    /// Does something with the store, if there is one, while the state is held.
    fn with_store<T>(&self, act: impl FnOnce(&mut RuleState, &mut Store) -> T) -> Option<T> {
        let mut inner = self.lock();
        let (state, store) = &mut *inner;
        store.as_mut().map(|store| act(state, store))
    }

    /// Stores all. A state that may not be what the log says is not stored: then the next server
    /// goes on as after a kill.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let _alone = lock(&self.rotating);
        self.is_sound()?;
        let now = self.clock.now();
        self.with_store(|state, store| store.close(state, now))
            .unwrap_or(Ok(()))
    }
}

#[derive(serde::Deserialize)]
struct Labelled<'a> {
    #[serde(borrow)]
    id: &'a serde_json::value::RawValue,
    #[serde(borrow)]
    label: &'a serde_json::value::RawValue,
}

fn unusable(problem: String) -> Fault {
    Fault::new(
        FaultKind::Unusable,
        problem,
        "give one JSON object per line, such as {\"id\": \"a\", \"score\": 0.93}",
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::rule_state::Settings;
    use crate::store::{Retention, StoreOptions};
    use crate::store_lock::StoreLock;

    fn served(folder: &Path) -> ServedRule {
        let (rule, json) = crate::rule_state::tests::rule(0.01);
        let lock = StoreLock::try_new(folder).unwrap().unwrap();
        let how = StoreOptions {
            settings: Settings {
                audit: 1.0,
                ..Settings::default()
            },
            retention: Retention::default(),
            replace: false,
            seed: 1,
        };
        let opened = Store::open(folder, lock, rule, json, how).unwrap();
        let (rule, json) = crate::rule_state::tests::rule(0.01);
        ServedRule::stored(RuleToServe::new("rule", rule, json), opened)
    }

    /// An audit with its label, whose classes have names.
    fn audit(served: &ServedRule, id: u32) {
        for (score, end) in [(0.1, false), (0.9, false), (0.9, true)] {
            let step = format!(r#""score":{score},"prediction":"a","end":{end}"#);
            let line = format!(r#"{{"id":{id},{step}}}"#);
            served.take_one(Ok(line.as_bytes())).unwrap().0.unwrap();
        }
        let label = format!(r#"{{"id":{id},"label":"a"}}"#);
        served.label(label.as_bytes()).unwrap().0.unwrap();
    }

    #[test]
    fn a_rotation_that_fails_loses_no_audit_and_the_old_log_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        let board_now = served(store);
        (0..3).for_each(|id| audit(&board_now, id));
        // The next log cannot be written where a folder is.
        let number = |name: &str| {
            name.strip_prefix("_log-")
                .map(|n| n.parse::<u64>().unwrap())
        };
        let names = || {
            let entries = std::fs::read_dir(store).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
        };
        let next = names().find_map(|name| number(&name)).unwrap() + 1;
        let in_the_way = store.join(format!("_log-{next:08}.new"));
        std::fs::create_dir(&in_the_way).unwrap();
        assert!(board_now.rotate().is_err());
        assert_eq!(
            board_now
                .counts()
                .errors
                .load(std::sync::atomic::Ordering::Relaxed),
            1
        );
        // The store can be written all the same.
        board_now.ready().unwrap();
        (3..5).for_each(|id| audit(&board_now, id));
        assert!(board_now.rotate().is_err());
        std::fs::remove_dir(&in_the_way).unwrap();
        board_now.rotate().unwrap();
        (5..6).for_each(|id| audit(&board_now, id));
        board_now.close().unwrap();
        drop(board_now);
        // Each audit is in one file, once.
        let mut ids = Vec::new();
        for name in names().filter(|name| name.starts_with("audits-")) {
            let text = std::fs::read_to_string(store.join(name)).unwrap();
            for line in text.lines() {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                ids.push(line["id"].as_u64().unwrap());
            }
        }
        ids.sort_unstable();
        assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
        assert_eq!(served(store).status().totals.labels, 6);
    }

    #[test]
    fn after_a_change_that_was_broken_off_nothing_is_acknowledged_or_stored() {
        let folder = tempfile::tempdir().unwrap();
        let served_now = served(folder.path());
        audit(&served_now, 0);
        let broken_off = || served_now.change(|_, _, _| panic!("a mistake"));
        let broken_off: std::thread::Result<Result<((), _), _>> =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(broken_off));
        assert!(broken_off.is_err());
        let problem = served_now.ready().unwrap_err();
        assert!(
            problem.contains("rule: a mistake in the server"),
            "{problem}"
        );
        let step = br#"{"id":1,"score":0.1}"#;
        assert!(served_now.take_one(Ok(step)).is_err());
        assert!(served_now.rotate().is_err());
        assert!(served_now.close().is_err());
        drop(served_now);
        assert_eq!(served(folder.path()).status().totals.labels, 1);
    }

    #[test]
    fn no_more_audits_wait_for_a_trace_file_than_memory_is_for() {
        let folder = tempfile::tempdir().unwrap();
        let served = served(folder.path());
        audit(&served, 0);
        served.ready().unwrap();
        assert!(!served.is_long());
        served
            .lock()
            .0
            .put_back(vec![(0, "x".repeat(MOST_UNFILED))]);
        assert!(served.is_long());
        let problem = served.ready().unwrap_err();
        assert!(problem.contains("128 MiB of audits wait"), "{problem}");
        let step = br#"{"id":1,"score":0.1}"#;
        assert!(served.take_one(Ok(step)).is_err());
        // Once they are in a file it goes on.
        served.rotate().unwrap();
        served.ready().unwrap();
        audit(&served, 1);
    }

    #[test]
    fn what_comes_while_the_next_log_is_written_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let board_now = served(folder.path());
        audit(&board_now, 0);
        let mut draft = board_now
            .with_store(|state, store| store.draft(state, 0, board_now.clock.now()).unwrap())
            .unwrap();
        audit(&board_now, 1);
        while draft.copy_part(&mut board_now.lock().0) {}
        let written = draft.write();
        audit(&board_now, 2);
        board_now
            .with_store(|state, store| store.adopt(state, draft, written).unwrap())
            .unwrap();
        audit(&board_now, 3);
        // As after a kill: nothing is stored at the end but what waits.
        drop(board_now);
        let again = served(folder.path());
        let totals = again.status().totals;
        assert_eq!((totals.audited, totals.labels), (4, 4));
    }

    #[test]
    fn a_status_counts_all_that_came_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let served = served(folder.path());
        // So many wait for a label that a status takes a while.
        let stream = |id: u32| {
            let step = format!(r#"{{"id":{id},"score":0.1,"prediction":"a","end":true}}"#);
            served.take_one(Ok(step.as_bytes())).unwrap().0.unwrap();
        };
        (0..20_000).for_each(stream);
        for id in 20_000..20_005 {
            assert_eq!(served.status().totals.streams, u64::from(id));
            stream(id);
        }
    }
}
