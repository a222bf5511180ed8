//! The boards of all rules that a program serves, and what keeps them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haltwise::Rule;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::access::Tokens;
use crate::board::Board;
use crate::connections::Connections;
use crate::desk::{Desk, Settings};
use crate::error::Error;
use crate::exposition::Exposition;
use crate::metrics::ProcessCounts;
use crate::same_origin::Hosts;
use crate::server::ended;
use crate::server_log::{LogForm, LogRequests, ServerLog};
use crate::store::{Opening, Retention, Store};
use crate::store_lock::{Attempt, PAUSE, StoreLock};
use crate::tasks::DeadTasks;

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
    /// Whether another rule may take the place of this one.
    pub check: Option<RuleCheck>,
}

impl Served {
    /// A rule, with the text of its file, served at a path.
    pub fn new(name: &str, rule: Rule, json: String) -> Self {
        Self {
            name: name.to_owned(),
            rule,
            json,
            label: None,
            check: None,
        }
    }
}

/// The one way to write a label.
pub type LabelForm = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Compares a rule with the one that it is to replace, and says why it cannot.
pub type RuleCheck = Arc<dyn Fn(&Rule, &Rule) -> Result<(), String> + Send + Sync>;

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is audited and watched, and where that is kept.
pub struct Watching {
    /// The rules.
    pub rules: Vec<Served>,
    /// The folder of all stores. Without it all is forgotten when the program ends.
    pub store: Option<PathBuf>,
    /// What clients must show; needed unless only this machine can connect.
    pub tokens: Tokens,
    /// How streams are audited and watched.
    pub settings: Settings,
    /// How often labelled audits go into trace files.
    pub rotate: Duration,
    /// How long audits are kept.
    pub retention: Retention,
    /// Whether the rules take the place of others that are in use in their stores.
    pub replace: bool,
    /// What chance is drawn from.
    pub seed: u64,
    /// Told of alarms, failures and requests.
    pub log: ServerLog,
    /// Rules that take the place of others with their names, when they come.
    pub renewals: Option<mpsc::Receiver<Served>>,
}

impl std::fmt::Debug for Watching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watching")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// How long a server waits for the one before it to let go of a store. A server that is told
/// to end takes a few seconds.
pub const WAIT_FOR_STORE: Duration = Duration::from_secs(30);

/// The most bytes of a line, unless another limit is set.
const MAX_LINE: usize = 1 << 20;

impl Watching {
    /// Serves rules without a store, and audits nothing.
    pub fn new(rules: Vec<Served>) -> Self {
        Self {
            rules,
            store: None,
            tokens: Tokens::default(),
            settings: Settings {
                audit: 0.0,
                ..Settings::default()
            },
            rotate: Duration::from_secs(600),
            retention: Retention::default(),
            replace: false,
            seed: 0,
            log: ServerLog::new(LogForm::Text, LogRequests::Failed, |_| ()),
            renewals: None,
        }
    }

    /// An attempt to lock the stores of all rules.
    fn attempt(&self, limit: Duration) -> Attempt {
        let store = self.store.iter();
        let folders = store.flat_map(|store| self.rules.iter().map(|rule| store.join(&rule.name)));
        Attempt::new(folders.collect(), limit)
    }
}

fn tell_of_wait(log: &ServerLog, folder: &Path, is_told: &mut bool) {
    if !std::mem::replace(is_told, true) {
        let folder = folder.display();
        log.info(&format!(
            "{folder}: another server uses this store; waiting until it ends"
        ));
    }
}

/// The open boards of all rules.
#[derive(Clone)]
pub struct Boards {
    pub(crate) all: Arc<Vec<Arc<Board>>>,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Hosts,
    /// The most bytes of a line.
    pub(crate) max_line: usize,
    /// How long a connection for lines may say nothing: all its streams are closed by then.
    pub(crate) idle: Duration,
    /// Tasks that died.
    pub(crate) dead: DeadTasks,
    pub(crate) process: Arc<ProcessCounts>,
    /// Whether the program is to end.
    end: Arc<watch::Sender<bool>>,
    pub(crate) openapi: Arc<str>,
    more_metrics: Option<MoreMetrics>,
    log: ServerLog,
}

/// Adds what else a program counts to the metrics.
type MoreMetrics = Arc<dyn Fn(&mut Exposition) + Send + Sync>;

impl std::fmt::Debug for Boards {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Boards")
            .field("all", &self.all)
            .finish_non_exhaustive()
    }
}

/// What `haltwise serve` can be asked for, for `/openapi.json`.
pub const OPENAPI: &str = include_str!("openapi.json");

impl Boards {
    /// Opens all stores, each of which is locked.
    fn open(
        rules: Vec<Served>,
        locks: Vec<StoreLock>,
        store: Option<&Path>,
        how: Opening,
        tokens: Tokens,
        log: ServerLog,
    ) -> Result<Self, Error> {
        let mut boards: Vec<Arc<Board>> = Vec::new();
        let mut locks = locks.into_iter();
        for (i, served) in rules.into_iter().enumerate() {
            let seed = how.seed.wrapping_add(i as u64);
            let how = Opening { seed, ..how };
            let place = store
                .map(|store| store.join(&served.name))
                .zip(locks.next());
            let board = open_board(served, place, how, &log).inspect_err(|_| {
                // The stores that are open keep their streams for the next server.
                for board in &boards {
                    if let Err(error) = board.close() {
                        log.error(&error.to_string());
                    }
                }
            })?;
            boards.push(Arc::new(board));
        }
        let (end, _) = watch::channel(false);
        Ok(Self {
            all: Arc::new(boards),
            hosts: Hosts::new(Vec::new(), !tokens.is_empty()),
            tokens,
            max_line: MAX_LINE,
            idle: Duration::from_secs(how.settings.idle.into()),
            dead: DeadTasks::default(),
            process: Arc::default(),
            end: Arc::new(end),
            openapi: OPENAPI.into(),
            more_metrics: None,
            log,
        })
    }

    /// Opens all stores, and keeps them from now on: closes idle streams, rotates
    /// logs, and tells of alarms and failures. Blocks for up to [`WAIT_FOR_STORE`] while
    /// another server has one of the stores.
    pub fn start(watching: Watching) -> Result<(Self, Keeping), Error> {
        let mut attempt = watching.attempt(WAIT_FOR_STORE);
        let mut is_told = false;
        while let Some(folder) = attempt.advance()? {
            tell_of_wait(&watching.log, folder, &mut is_told);
            std::thread::sleep(PAUSE);
        }
        Self::start_locked(watching, attempt.into_locks())
    }

    /// The same without blocking, and with another limit.
    pub(crate) async fn start_within(
        watching: Watching,
        limit: Duration,
    ) -> Result<(Self, Keeping), Error> {
        let mut attempt = watching.attempt(limit);
        let mut is_told = false;
        while let Some(folder) = attempt.advance()? {
            tell_of_wait(&watching.log, folder, &mut is_told);
            tokio::time::sleep(PAUSE).await;
        }
        Self::start_locked(watching, attempt.into_locks())
    }

    fn start_locked(watching: Watching, locks: Vec<StoreLock>) -> Result<(Self, Keeping), Error> {
        let Watching {
            rules,
            store,
            tokens,
            settings,
            rotate,
            retention,
            replace,
            seed,
            log,
            renewals,
        } = watching;
        let how = Opening {
            settings,
            retention,
            replace,
            seed,
        };
        let store = store.as_deref();
        let boards = Self::open(rules, locks, store, how, tokens, log.clone())?;
        if let Some(renewals) = renewals {
            tokio::spawn(renew(boards.clone(), renewals));
        }
        let keep = {
            let (boards, log) = (boards.clone(), log.clone());
            move || keep(boards.clone(), rotate, log.clone())
        };
        let dead = boards.dead.clone();
        let keeping = Keeping(tokio::spawn(dead.supervise(
            KEEPER,
            log,
            boards.ending(),
            keep,
        )));
        Ok((boards, keeping))
    }

    /// Also answers to these names. Without a token, a server answers to addresses and to local
    /// names only: any other name may be that of a page which wants to be taken for this server's.
    #[must_use]
    pub fn allow_hosts(mut self, names: Vec<String>) -> Self {
        self.hosts = Hosts::new(names, !self.tokens.is_empty());
        self
    }

    /// Takes lines of so many bytes at the most.
    #[must_use]
    pub fn limit_lines(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Describes what the program can be asked for in other words than [`OPENAPI`].
    #[must_use]
    pub fn described_by(mut self, openapi: String) -> Self {
        self.openapi = openapi.into();
        self
    }

    /// Shows more numbers among the metrics.
    #[must_use]
    pub fn with_metrics(
        mut self,
        metrics: impl Fn(&mut Exposition) + Send + Sync + 'static,
    ) -> Self {
        self.more_metrics = Some(Arc::new(metrics));
        self
    }

    /// All metrics.
    pub(crate) fn metrics(&self) -> Exposition {
        let mut text = crate::metrics::exposition(self);
        if let Some(add) = &self.more_metrics {
            add(&mut text);
        }
        text
    }

    /// The log.
    pub fn log(&self) -> &ServerLog {
        &self.log
    }

    /// Shows in the metrics how many connections are open, and how many were refused.
    pub fn count_connections(&self, connections: &Arc<Connections>) {
        let _first = self.process.connections.set(Arc::clone(connections));
    }

    /// Told when the program is to end.
    pub fn ending(&self) -> watch::Receiver<bool> {
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

/// Opens the store of a rule, in a folder that is locked, or serves it without one.
fn open_board(
    served: Served,
    place: Option<(PathBuf, StoreLock)>,
    how: Opening,
    log: &ServerLog,
) -> Result<Board, Error> {
    let (rule, json) = (served.rule.clone(), served.json.clone());
    let Some((folder, lock)) = place else {
        let desk = Desk::new(rule, json, how.settings, how.seed);
        return Ok(Board::unstored(served, desk));
    };
    let opened = Store::open(&folder, lock, rule, json, how)?;
    opened.notices.iter().for_each(|said| log.info(said));
    Ok(Board::stored(served, opened))
}

/// The task that keeps boards.
#[derive(Debug)]
pub struct Keeping(JoinHandle<()>);

/// Puts rules in the place of those with their names.
async fn renew(boards: Boards, mut renewals: mpsc::Receiver<Served>) {
    while let Some(Served {
        name, rule, json, ..
    }) = renewals.recv().await
    {
        let Some(board) = boards.all.iter().find(|board| board.name == name) else {
            continue;
        };
        let stays = |error: &str, remedy: &str| {
            boards.log.warn(&format!(
                "{name}: the rule stays as it is: {error}; {remedy}"
            ));
        };
        match board.renew(rule, json).await {
            Ok(Ok(renewal)) => boards
                .log
                .info(&format!("{name}: another rule is in use, number {renewal}")),
            Ok(Err(fault)) => stays(&fault.error, fault.remedy),
            Err(error) => stays(&error.to_string(), "make room and try again"),
        }
    }
}

/// The task that keeps boards, as people read of it.
const KEEPER: &str = "the task that rotates logs and closes idle streams";

/// How long to wait at the most before what failed is tried again.
const MOST_PAUSE: Duration = Duration::from_secs(30);

/// What the keeper knows of a board.
struct Upkeep {
    has_alarm: bool,
    /// Whether the log is to be rotated, because it is time or because that failed.
    is_due: bool,
    /// After a failure, when to try again, and how long that is after it.
    retry: Option<(Instant, Duration)>,
}

/// Closes idle streams, rotates logs, and tells of alarms and failures.
async fn keep(boards: Boards, rotate: Duration, log: ServerLog) {
    let mut ending = boards.ending();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut rotated = Instant::now();
    let new = || Upkeep {
        has_alarm: false,
        is_due: false,
        retry: None,
    };
    let mut upkeeps: Vec<Upkeep> = boards.all.iter().map(|_| new()).collect();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = ended(&mut ending) => return,
        }
        let is_due = rotated.elapsed() >= rotate;
        if is_due {
            rotated = Instant::now();
        }
        for (board, upkeep) in boards.all.iter().zip(&mut upkeeps) {
            upkeep.is_due |= is_due;
            upkeep.tell_of_alarm(board, &log);
            upkeep.work(board, &log).await;
        }
        boards.dead.works(KEEPER);
    }
}

impl Upkeep {
    fn tell_of_alarm(&mut self, board: &Board, log: &ServerLog) {
        let has_alarm = board.with_desk(|desk| desk.monitor().is_some_and(|m| m.alarm().is_some()));
        if has_alarm && !self.has_alarm {
            let name = &board.name;
            log.error(&format!(
                "alarm: the promise of {name} does not hold any more; see /"
            ));
        }
        self.has_alarm = has_alarm;
    }

    async fn work(&mut self, board: &Arc<Board>, log: &ServerLog) {
        let (kept, is_due) = (Arc::clone(board), self.is_due);
        let rotates = self.retry.is_none_or(|(at, _)| at <= Instant::now());
        let work = tokio::task::spawn_blocking(move || {
            let rotated = match rotates && (is_due || kept.is_long()) {
                true => kept.rotate(),
                false => Ok(()),
            };
            // Streams say nothing for too long whether or not there is a new log.
            let ticked = kept.tick();
            rotated.and(ticked)
        });
        let done: Result<(), Error> = match work.await {
            Ok(done) => done,
            // So that this task dies too, is told of and started again.
            Err(died) => match died.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(died) => Err(Error::new(died.to_string())),
            },
        };
        match done {
            _ if !rotates => {}
            Ok(()) => {
                if self.retry.take().is_some() {
                    log.info(&format!("{}: the store can be written again", board.name));
                }
                self.is_due = false;
            }
            // A store that cannot be written says so to every client as well.
            Err(error) => {
                if self.retry.is_none() {
                    log.error(&error.to_string());
                }
                let pause = self
                    .retry
                    .map_or(Duration::from_secs(1), |(_, pause)| pause * 2);
                let pause = pause.min(MOST_PAUSE);
                self.retry = Some((Instant::now() + pause, pause));
                self.is_due = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn metrics_tell_of_connections_where_they_are_counted() {
        let (boards, _keeping) = Boards::start(Watching::new(Vec::new())).unwrap();
        let text = || boards.metrics().into_text();
        assert!(!text().contains("connections"));
        let limits = crate::ConnectionLimits::default();
        boards.count_connections(&Arc::new(Connections::new(limits, None)));
        let text = text();
        for line in [
            "# TYPE haltwise_open_connections gauge\nhaltwise_open_connections 0\n",
            "# TYPE haltwise_connections_refused_total counter\n\
             haltwise_connections_refused_total 0\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
