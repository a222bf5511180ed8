//! The boards of all rules that a program serves, and what keeps them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use haltwise::Rule;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::board::{Board, now};
use crate::desk::Settings;
use crate::error::Error;
use crate::store::Store;

/// A rule to serve.
pub struct Served {
    /// The path it is served at.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// The text of its file.
    pub json: String,
    /// The one way to write a label that comes as text, so that it can be compared
    /// with predictions; as it comes where there is none.
    pub label: Option<LabelForm>,
}

/// The one way to write a label.
pub type LabelForm = Arc<dyn Fn(&str) -> String + Send + Sync>;

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Told what whoever runs the server should know.
pub type Notice = Arc<dyn Fn(&str) + Send + Sync>;

/// What is audited and watched, and where that is kept.
pub struct Watching {
    /// The rules.
    pub rules: Vec<Served>,
    /// The folder of all stores.
    pub store: PathBuf,
    /// What clients must show; needed unless only this machine can connect.
    pub token: Option<String>,
    /// How streams are audited and watched.
    pub settings: Settings,
    /// How often labelled audits go into trace files.
    pub rotate: Duration,
    /// What chance is drawn from.
    pub seed: u64,
    /// Told of alarms and failures.
    pub notice: Notice,
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is nobody's business.
        f.debug_struct("Watching")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The open boards of all rules.
#[derive(Debug, Clone)]
pub struct Boards {
    pub(crate) all: Arc<Vec<Arc<Board>>>,
    pub(crate) token: Option<Arc<str>>,
    /// Whether the program is to end.
    end: Arc<watch::Sender<bool>>,
}

impl Boards {
    /// Opens all stores.
    pub(crate) fn open(
        rules: Vec<Served>,
        store: &std::path::Path,
        settings: Settings,
        seed: u64,
        token: Option<String>,
    ) -> Result<Self, Error> {
        let mut boards = Vec::new();
        for (i, served) in rules.into_iter().enumerate() {
            let folder = store.join(&served.name);
            let seed = seed.wrapping_add(i as u64);
            let (store, desk) =
                Store::open(&folder, served.rule, served.json, settings, now(), seed)?;
            boards.push(Arc::new(Board::new(served.name, served.label, desk, store)));
        }
        let (end, _) = watch::channel(false);
        Ok(Self {
            all: Arc::new(boards),
            token: token.map(Into::into),
            end: Arc::new(end),
        })
    }

    /// Opens all stores, and keeps them from now on: closes idle streams, rotates
    /// logs, and tells of alarms and failures.
    pub fn start(watching: Watching) -> Result<(Self, Keeping), Error> {
        let Watching {
            rules,
            store,
            token,
            settings,
            rotate,
            seed,
            notice,
        } = watching;
        let boards = Self::open(rules, &store, settings, seed, token)?;
        let kept = keep(Arc::clone(&boards.all), rotate, notice, boards.ending());
        let keeping = Keeping(tokio::spawn(kept));
        Ok((boards, keeping))
    }

    /// Told when the program is to end.
    pub(crate) fn ending(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    /// Lets whoever waits go: the program ends.
    pub fn end(&self) {
        self.end.send_replace(true);
    }

    /// The board of the first rule.
    pub fn first(&self) -> Option<Arc<Board>> {
        self.all.first().cloned()
    }

    /// Stores all, once nobody uses them any more.
    pub fn close(&self, keeping: &Keeping) -> Result<(), Error> {
        keeping.0.abort();
        self.all.iter().try_for_each(|board| board.close())
    }
}

/// The task that keeps boards.
#[derive(Debug)]
pub struct Keeping(JoinHandle<()>);

/// Closes idle streams, rotates logs, and tells of alarms and failures.
async fn keep(
    boards: Arc<Vec<Arc<Board>>>,
    rotate: Duration,
    notice: Notice,
    mut ending: watch::Receiver<bool>,
) {
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut rotated = tokio::time::Instant::now();
    let mut told = vec![(false, false); boards.len()];
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = ending.changed() => return,
        }
        let due = rotated.elapsed() >= rotate;
        if due {
            rotated = tokio::time::Instant::now();
        }
        for (board, (alarmed, failed)) in boards.iter().zip(&mut told) {
            let name = &board.name;
            let alarm = board.with_desk(|desk| desk.monitor().is_some_and(|m| m.alarm().is_some()));
            if alarm && !*alarmed {
                notice(&format!(
                    "alarm: the promise of {name} does not hold any more; see /"
                ));
            }
            *alarmed = alarm;
            let kept = Arc::clone(board);
            let work = tokio::task::spawn_blocking(move || {
                kept.tick()?;
                if due || kept.is_long() {
                    kept.rotate()?;
                }
                Ok::<(), Error>(())
            });
            // A store that cannot be written says so to every client as well.
            let done = work
                .await
                .unwrap_or_else(|e| Err(Error::new(e.to_string())));
            if let Err(error) = &done
                && !*failed
            {
                notice(&error.to_string());
            }
            *failed = done.is_err();
        }
    }
}
