//! A desk and its store together: what a desk decides is on the disk before
//! anyone is told.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haltwise::Rule;
use tokio::sync::{broadcast, watch};

use crate::boards::{LabelForm, RuleCheck, Served};
use crate::clock::Clock;
use crate::desk::{Desk, Fault, FaultKind, Out};
use crate::error::Error;
use crate::line::{Line, stream_id};
use crate::status::{Status, status};
use crate::store::{Committed, Counts, Opened, Store};

/// One rule as it is served.
pub struct Board {
    pub(crate) name: String,
    label: Option<LabelForm>,
    check: Option<RuleCheck>,
    inner: Mutex<(Desk, Option<Store>)>,
    clock: Clock,
    counts: Arc<Counts>,
    /// Held by the one who rotates.
    rotating: Mutex<()>,
    report: Mutex<Option<Report>>,
    committed: watch::Receiver<Committed>,
    events: broadcast::Sender<String>,
    /// The e-value at times, in milliseconds since 1970.
    history: Mutex<Vec<(u64, f64)>>,
}

impl std::fmt::Debug for Board {
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

/// What took long to work out is worked out again after so many times as long.
const REST: u32 = 10;

/// What takes less is always worked out.
const SHORT: Duration = Duration::from_millis(5);

/// How long a walk leaves the desk to others between two parts. Without a pause it would take the
/// desk again before they wake up.
const TURN: Duration = Duration::from_millis(1);

/// What was told of the desk last.
struct Report {
    status: Arc<Status>,
    made: Instant,
    took: Duration,
}

/// The desk while it is held.
struct HeldDesk<'b>(MutexGuard<'b, (Desk, Option<Store>)>);

impl Deref for HeldDesk<'_> {
    type Target = Desk;

    fn deref(&self) -> &Desk {
        &self.0.0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board {
    /// A rule at its store.
    pub(crate) fn stored(served: Served, opened: Opened) -> Self {
        let Opened {
            store, desk, clock, ..
        } = opened;
        let (committed, counts) = (store.committed(), store.counts());
        Self {
            counts,
            ..Self::new(served, desk, Some(store), clock, committed)
        }
    }

    /// A rule of which nothing is stored: all is forgotten when the program ends.
    pub(crate) fn unstored(served: Served, mut desk: Desk) -> Self {
        let clock = Clock::set(0);
        desk.resumed(clock.now(), true);
        let (_, committed) = watch::channel(Committed::default());
        Self::new(served, desk, None, clock, committed)
    }

    fn new(
        served: Served,
        desk: Desk,
        store: Option<Store>,
        clock: Clock,
        committed: watch::Receiver<Committed>,
    ) -> Self {
        let (events, _) = broadcast::channel(1024);
        Self {
            name: served.name,
            label: served.label,
            check: served.check,
            committed,
            counts: Arc::default(),
            inner: Mutex::new((desk, store)),
            clock,
            rotating: Mutex::default(),
            report: Mutex::default(),
            events,
            history: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Desk, Option<Store>)> {
        lock(&self.inner)
    }

    /// Does something to the desk, and stores what came of it. While nothing can be stored,
    /// nothing is done.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Desk, u64, &mut Out) -> T,
    ) -> Result<(T, Answers), Error> {
        let inner = self.lock();
        if let Some(store) = &inner.1 {
            store.ready()?;
        }
        self.change_held(inner, change)
    }

    /// The same for what has happened already: it is stored once that is possible.
    pub(crate) fn note<T>(
        &self,
        change: impl FnOnce(&mut Desk, u64, &mut Out) -> T,
    ) -> Result<(T, Answers), Error> {
        self.change_held(self.lock(), change)
    }

    fn change_held<T>(
        &self,
        mut inner: MutexGuard<'_, (Desk, Option<Store>)>,
        change: impl FnOnce(&mut Desk, u64, &mut Out) -> T,
    ) -> Result<(T, Answers), Error> {
        let mut out = Out::default();
        let (desk, store) = &mut *inner;
        let found = change(desk, self.clock.now(), &mut out);
        // While the desk is held, so that the log has its order.
        let after = match store {
            Some(store) => store.append(&out.records)?,
            None => 0,
        };
        drop(inner);
        for event in out.events {
            // No one may be listening.
            let _ = self.events.send(event);
        }
        let text = out.answers;
        Ok((found, Answers { text, after }))
    }

    /// Takes lines, the first of which is number `first`, counted from 1. What is
    /// wrong with one stands between the answers.
    pub(crate) fn take(
        &self,
        lines: &[Result<&[u8], Fault>],
        first: u64,
    ) -> Result<Answers, Error> {
        self.take_by(lines, first, |desk, now, line, out| {
            desk.take(now, line, out)
        })
    }

    /// The same for lines that may come twice: each must say which step it is.
    pub(crate) fn take_numbered(
        &self,
        lines: &[Result<&[u8], Fault>],
        first: u64,
    ) -> Result<Answers, Error> {
        self.take_by(lines, first, |desk, now, line, out| {
            desk.take_numbered(now, line, out)
        })
    }

    fn take_by(
        &self,
        lines: &[Result<&[u8], Fault>],
        first: u64,
        take: impl Fn(&mut Desk, u64, &Line<'_>, &mut Out) -> Result<(), Fault>,
    ) -> Result<Answers, Error> {
        // Read before the desk is held: that takes most of the time.
        let parsed: Vec<Result<Line<'_>, Fault>> = lines
            .iter()
            .map(|line| {
                let line = line.as_ref().map_err(Clone::clone)?;
                Line::parse(line).map_err(unusable)
            })
            .collect();
        let ((), answers) = self.change(|desk, now, out| {
            for (number, line) in (first..).zip(&parsed) {
                let taken = match line {
                    Ok(line) => take(desk, now, line, out),
                    Err(fault) => {
                        desk.count_fault();
                        Err(fault.clone())
                    }
                };
                if let Err(fault) = taken {
                    out.answers += &fault.json(Some(number));
                    out.answers.push('\n');
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
        self.change(|desk, now, out| match line {
            Ok(line) => desk.take(now, &line, out),
            Err(fault) => {
                desk.count_fault();
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
        self.change(|desk, now, out| desk.label(now, &id, &label, out))
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
        self.with_desk(|desk| Arc::clone(desk.rule()))
    }

    /// Whether streams are to be read to their end because of an alarm.
    pub fn reading_on(&self) -> bool {
        self.with_desk(Desk::reading_on)
    }

    /// Waits until records are on the disk. Where they cannot be written, not for long.
    pub(crate) async fn durable(&self, after: u64) -> Result<(), Error> {
        let closed = |_| Error::new("the store is closed");
        let mut committed = self.committed.clone();
        let stored = |committed: &Committed| committed.records >= after;
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

    /// Whether the log can be written.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.committed.borrow().problem.clone().map_or(Ok(()), Err)
    }

    /// What is counted of the store.
    pub(crate) fn counts(&self) -> &Counts {
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

    /// All that is told of the desk. May take a while, in which nobody else has to wait for
    /// the desk; where it took long, it is the same for a while.
    pub(crate) fn status(&self) -> Arc<Status> {
        let mut report = lock(&self.report);
        if let Some(Report { status, made, took }) = &*report
            && *took > SHORT
            && made.elapsed() < REST * *took
        {
            return Arc::clone(status);
        }
        let begun = Instant::now();
        let status = Arc::new(status(|| HeldDesk(self.lock())));
        *report = Some(Report {
            status: Arc::clone(&status),
            made: Instant::now(),
            took: begun.elapsed(),
        });
        status
    }

    pub(crate) fn with_desk<T>(&self, look: impl FnOnce(&Desk) -> T) -> T {
        look(&self.lock().0)
    }

    /// Puts another rule in the place of the one that is here. Returns which rule it is,
    /// counted from 1, once that is on the disk.
    pub(crate) async fn renew(
        &self,
        rule: Rule,
        json: String,
    ) -> Result<Result<u32, Fault>, Error> {
        let (renewed, answers) = self.change(|desk, _, out| {
            if let Some(check) = &self.check {
                check(desk.rule(), &rule).map_err(|problem| {
                    let remedy = "calibrate it on traces like those of the rule that is in use";
                    Fault::new(FaultKind::Unusable, problem, remedy)
                })?;
            }
            desk.renew(rule, json, out).map(|()| desk.renewal())
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
        let (e_value, _) = self.change(|desk, now, out| {
            desk.tick(now, out);
            desk.monitor().map(haltwise::monitor::Monitor::e_value)
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

    /// Whether the log is long enough for a new one.
    pub(crate) fn is_long(&self) -> bool {
        self.lock().1.as_ref().is_some_and(Store::is_long)
    }

    /// Puts labelled audits into a trace file, and begins a new log.
    pub(crate) fn rotate(&self) -> Result<(), Error> {
        let _alone = lock(&self.rotating);
        let Some(unfiled) = self.with_store(|desk, store| store.unfiled(desk)) else {
            return Ok(());
        };
        let unfiled = unfiled?;
        // The desk is free while files are written.
        unfiled.file().inspect_err(|_| {
            self.counts.errors.fetch_add(1, Ordering::Relaxed);
        })?;
        let Some(draft) =
            self.with_store(|desk, store| store.draft(desk, unfiled.len(), self.clock.now()))
        else {
            return Ok(());
        };
        let mut draft = draft?;
        // It is also free between two parts of what waits.
        while draft.copy_part(&mut self.lock().0) {
            std::thread::sleep(TURN);
        }
        let written = draft.write();
        let adopted = self.with_store(|desk, store| store.adopt(desk, draft, written));
        adopted.unwrap_or(Ok(()))
    }

    /// Does something with the store, if there is one, while the desk is held.
    fn with_store<T>(&self, act: impl FnOnce(&mut Desk, &mut Store) -> T) -> Option<T> {
        let mut inner = self.lock();
        let (desk, store) = &mut *inner;
        store.as_mut().map(|store| act(desk, store))
    }

    /// Stores all.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let _alone = lock(&self.rotating);
        self.with_store(|desk, store| store.close(desk))
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
    use crate::desk::Settings;
    use crate::store::{Opening, Retention};
    use crate::store_lock::StoreLock;

    fn board(folder: &Path) -> Board {
        let (rule, json) = crate::desk::tests::rule(0.01);
        let lock = StoreLock::try_new(folder).unwrap().unwrap();
        let how = Opening {
            settings: Settings {
                audit: 1.0,
                ..Settings::default()
            },
            retention: Retention::default(),
            replace: false,
            seed: 1,
        };
        let opened = Store::open(folder, lock, rule, json, how).unwrap();
        let (rule, json) = crate::desk::tests::rule(0.01);
        Board::stored(Served::new("rule", rule, json), opened)
    }

    /// An audit with its label, whose classes have names.
    fn audit(board: &Board, id: u32) {
        for (score, end) in [(0.1, false), (0.9, false), (0.9, true)] {
            let step = format!(r#""score":{score},"prediction":"a","end":{end}"#);
            let line = format!(r#"{{"id":{id},{step}}}"#);
            board.take_one(Ok(line.as_bytes())).unwrap().0.unwrap();
        }
        let label = format!(r#"{{"id":{id},"label":"a"}}"#);
        board.label(label.as_bytes()).unwrap().0.unwrap();
    }

    #[test]
    fn a_rotation_that_fails_loses_no_audit_and_the_old_log_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path();
        let board_now = board(store);
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
        assert_eq!(board(store).status().totals.labels, 6);
    }

    #[test]
    fn what_comes_while_the_next_log_is_written_is_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let board_now = board(folder.path());
        audit(&board_now, 0);
        let mut draft = board_now
            .with_store(|desk, store| store.draft(desk, 0, board_now.clock.now()).unwrap())
            .unwrap();
        audit(&board_now, 1);
        while draft.copy_part(&mut board_now.lock().0) {}
        let written = draft.write();
        audit(&board_now, 2);
        board_now
            .with_store(|desk, store| store.adopt(desk, draft, written).unwrap())
            .unwrap();
        audit(&board_now, 3);
        // As after a kill: nothing is stored at the end but what waits.
        drop(board_now);
        let again = board(folder.path());
        let totals = again.status().totals;
        assert_eq!((totals.audited, totals.labels), (4, 4));
    }
}
