//! A desk and its store together: what a desk decides is on the disk before
//! anyone is told.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use haltwise::Rule;
use tokio::sync::{broadcast, watch};

use crate::boards::LabelForm;
use crate::desk::{Desk, Fault, FaultKind, Out, Status};
use crate::error::Error;
use crate::line::{Line, stream_id};
use crate::store::{Committed, Store};

/// One rule as it is served.
pub struct Board {
    pub(crate) name: String,
    label: Option<LabelForm>,
    inner: Mutex<(Desk, Store)>,
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

/// Now, in milliseconds since 1970.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

impl Board {
    pub(crate) fn new(name: String, label: Option<LabelForm>, desk: Desk, store: Store) -> Self {
        let committed = store.committed();
        let (events, _) = broadcast::channel(1024);
        Self {
            name,
            label,
            inner: Mutex::new((desk, store)),
            committed,
            events,
            history: Mutex::new(Vec::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, (Desk, Store)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the desk, and stores what came of it.
    pub(crate) fn change<T>(
        &self,
        change: impl FnOnce(&mut Desk, u64, &mut Out) -> T,
    ) -> Result<(T, Answers), Error> {
        let mut out = Out::default();
        let mut inner = self.lock();
        let (desk, store) = &mut *inner;
        let found = change(desk, now(), &mut out);
        // While the desk is held, so that the log has its order.
        let after = store.append(&out.records)?;
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
    pub(crate) fn take_one(&self, line: &[u8]) -> Result<(Result<(), Fault>, Answers), Error> {
        let line = match Line::parse(line) {
            Ok(line) => line,
            Err(problem) => {
                let text = String::new();
                return Ok((Err(unusable(problem)), Answers { text, after: 0 }));
            }
        };
        self.change(|desk, now, out| desk.take(now, &line, out))
    }

    /// Takes a label: a line with an "id" and a "label".
    pub(crate) fn label(&self, line: &[u8]) -> Result<(Result<(), Fault>, Answers), Error> {
        let parsed = match serde_json::from_slice::<Labelled<'_>>(line) {
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

    /// Waits until records are on the disk.
    pub(crate) async fn durable(&self, after: u64) -> Result<(), Error> {
        let mut committed = self.committed.clone();
        let done = committed
            .wait_for(|committed| committed.as_ref().map_or(true, |&n| n >= after))
            .await;
        match done {
            Ok(state) => match &*state {
                Ok(_) => Ok(()),
                Err(problem) => Err(Error::new(problem.clone())),
            },
            Err(_) => Err(Error::new("the store is closed")),
        }
    }

    /// Whether the log can be written.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.committed.borrow().clone().map(drop)
    }

    /// Hears of halts and alarms.
    pub(crate) fn listen(&self) -> broadcast::Receiver<String> {
        self.events.subscribe()
    }

    pub(crate) fn status(&self) -> Status {
        self.lock().0.status()
    }

    pub(crate) fn with_desk<T>(&self, look: impl FnOnce(&Desk) -> T) -> T {
        look(&self.lock().0)
    }

    /// Puts another rule in the place of the one that is here.
    pub(crate) fn renew(
        &self,
        rule: Rule,
        json: String,
    ) -> Result<(Result<(), Fault>, Answers), Error> {
        self.change(|desk, _, out| desk.renew(rule, json, None, out))
    }

    /// Closes idle streams, and notes the evidence.
    pub(crate) fn tick(&self) -> Result<(), Error> {
        let (e_value, _) = self.change(|desk, now, out| {
            desk.tick(now, out);
            desk.monitor().map(haltwise::monitor::Monitor::e_value)
        })?;
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if history.len() >= MOST_HISTORY {
            let mut keep = false;
            history.retain(|_| {
                keep = !keep;
                keep
            });
        }
        history.extend(e_value.map(|e_value| (now(), e_value)));
        Ok(())
    }

    /// The e-value over time.
    pub(crate) fn history(&self) -> Vec<(u64, f64)> {
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.clone()
    }

    /// Whether the log is long enough for a new one.
    pub(crate) fn is_long(&self) -> bool {
        self.lock().1.is_long()
    }

    /// Puts labelled audits into a trace file, and begins a new log.
    pub(crate) fn rotate(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        let (desk, store) = &mut *inner;
        store.rotate(desk)
    }

    /// Stores all.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        let (desk, store) = &mut *inner;
        store.close(desk)
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
