//! All rules that a program serves: how they are opened and closed, and what they share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use haltwise::Rule;
use tokio::sync::{Mutex, mpsc, watch};

use crate::access::Tokens;
use crate::connections::Connections;
use crate::error::Error;
use crate::exposition::Exposition;
use crate::keeper::{KEEPER, KeeperTask, RENEWER, Renewal, keep, renew};
use crate::metrics::ProcessCounts;
use crate::rule_state::{RuleState, Settings};
use crate::same_origin::Hosts;
use crate::served_rule::ServedRule;
use crate::server_log::{LogForm, LogRequests, ServerLog};
use crate::store::{Retention, Store, StoreOptions};
use crate::store_lock::{Attempt, PAUSE, StoreLock};
use crate::tasks::DeadTasks;
use crate::unfinished::UnfinishedRoom;

/// A rule to serve.
pub struct RuleToServe {
    /// The path it is served at.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// The text of its file.
    pub json: String,
    /// Writes a label that comes as text as predictions are written, so that both can be
    /// compared. Without it, a label stays as it comes.
    pub label: Option<LabelForm>,
    /// Whether another rule may replace this one.
    pub check: Option<RuleCheck>,
}

impl RuleToServe {
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

/// Writes a label as predictions are written.
pub type LabelForm = Arc<dyn Fn(&str) -> String + Send + Sync>;

/// Says why the second rule cannot replace the first.
pub type RuleCheck = Arc<dyn Fn(&Rule, &Rule) -> Result<(), String> + Send + Sync>;

impl std::fmt::Debug for RuleToServe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// Which rules a program serves, how it audits and watches them, and where it stores that.
pub struct WatchOptions {
    /// The rules.
    pub rules: Vec<RuleToServe>,
    /// The folder of all stores. Without it, the program forgets everything when it ends.
    pub store: Option<PathBuf>,
    /// What clients must show. Needed unless only this machine can connect.
    pub tokens: Tokens,
    /// How streams are audited and watched.
    pub settings: Settings,
    /// How often labelled audits go into trace files.
    pub rotate: Duration,
    /// How long audits are kept.
    pub retention: Retention,
    /// Whether the rules replace others that are in use in their stores.
    pub replace: bool,
    /// The seed of all random draws.
    pub seed: u64,
    /// ReportedStream of alarms, failures and requests.
    pub log: ServerLog,
    /// Rules that replace those with their names, when they come.
    pub renewals: Option<mpsc::Receiver<Renewal>>,
}

impl std::fmt::Debug for WatchOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watching")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// How long a server waits for the previous one to release a store. A server that is told
/// to end takes a few seconds.
pub const WAIT_FOR_STORE: Duration = Duration::from_secs(30);

/// The most bytes of a line, unless another limit is set.
const MAX_LINE: usize = 1 << 20;

impl WatchOptions {
    /// Serves rules without a store, and audits nothing.
    pub fn new(rules: Vec<RuleToServe>) -> Self {
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

/// All rules that a program serves.
#[derive(Clone)]
pub struct ServedRules {
    pub(crate) all: Arc<Vec<Arc<ServedRule>>>,
    pub(crate) tokens: Tokens,
    pub(crate) hosts: Hosts,
    /// The most bytes of a line.
    pub(crate) max_line: usize,
    /// The memory for lines and bodies that are not complete.
    pub(crate) unfinished: UnfinishedRoom,
    /// How long a connection for lines may be silent: all its streams are closed by then.
    pub(crate) idle: Duration,
    /// Tasks that died.
    pub(crate) dead: DeadTasks,
    pub(crate) process: Arc<ProcessCounts>,
    /// Whether the program must end.
    end: Arc<watch::Sender<bool>>,
    pub(crate) openapi: Arc<str>,
    more_metrics: Option<MoreMetrics>,
    log: ServerLog,
}

/// Adds a program's own numbers to the metrics.
type MoreMetrics = Arc<dyn Fn(&mut Exposition) + Send + Sync>;

impl std::fmt::Debug for ServedRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServedRules")
            .field("all", &self.all)
            .finish_non_exhaustive()
    }
}

/// What `haltwise serve` can be asked for, for `/openapi.json`.
pub const OPENAPI: &str = include_str!("openapi.json");

impl ServedRules {
    /// Opens all stores, each of which is locked.
    fn open(
        rules: Vec<RuleToServe>,
        locks: Vec<StoreLock>,
        store: Option<&Path>,
        how: StoreOptions,
        tokens: Tokens,
        log: ServerLog,
    ) -> Result<Self, Error> {
        let mut open: Vec<Arc<ServedRule>> = Vec::new();
        let mut locks = locks.into_iter();
        for (i, rule) in rules.into_iter().enumerate() {
            let seed = how.seed.wrapping_add(i as u64);
            let how = StoreOptions { seed, ..how };
            let place = store.map(|store| store.join(&rule.name)).zip(locks.next());
            let served = open_rule(rule, place, how, &log).inspect_err(|_| {
                // The stores that are open keep their streams for the next server.
                for served in &open {
                    if let Err(error) = served.close() {
                        log.error(&error.to_string());
                    }
                }
            })?;
            open.push(Arc::new(served));
        }
        let (end, _) = watch::channel(false);
        Ok(Self {
            all: Arc::new(open),
            hosts: Hosts::new(Vec::new(), !tokens.is_empty()),
            tokens,
            max_line: MAX_LINE,
            unfinished: UnfinishedRoom::for_lines_of(MAX_LINE),
            idle: Duration::from_secs(how.settings.idle.into()),
            dead: DeadTasks::default(),
            process: Arc::default(),
            end: Arc::new(end),
            openapi: OPENAPI.into(),
            more_metrics: None,
            log,
        })
    }

    /// Opens all stores, and starts the keeper: it closes idle streams, rotates
    /// logs, and reports alarms and failures. Waits for at most so long while another server has
    /// one of the stores.
    pub async fn start(
        watching: WatchOptions,
        wait_for_store: Duration,
    ) -> Result<(Self, KeeperTask), Error> {
        let mut attempt = watching.attempt(wait_for_store);
        let mut is_told = false;
        while let Some(folder) = attempt.advance()? {
            tell_of_wait(&watching.log, folder, &mut is_told);
            tokio::time::sleep(PAUSE).await;
        }
        Self::start_locked(watching, attempt.into_locks())
    }

    fn start_locked(
        watching: WatchOptions,
        locks: Vec<StoreLock>,
    ) -> Result<(Self, KeeperTask), Error> {
        let WatchOptions {
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
        let how = StoreOptions {
            settings,
            retention,
            replace,
            seed,
        };
        let store = store.as_deref();
        let rules = Self::open(rules, locks, store, how, tokens, log.clone())?;
        if let Some(renewals) = renewals {
            let (all, renewals) = (rules.clone(), Arc::new(Mutex::new(renewals)));
            let renew = move || renew(all.clone(), Arc::clone(&renewals));
            let dead = rules.dead.clone();
            tokio::spawn(dead.supervise(RENEWER, log.clone(), rules.ending(), renew));
        }
        let keep = {
            let (rules, log) = (rules.clone(), log.clone());
            move || keep(rules.clone(), rotate, log.clone())
        };
        let dead = rules.dead.clone();
        let supervised = dead.supervise(KEEPER, log, rules.ending(), keep);
        let keeper = KeeperTask::new(tokio::spawn(supervised));
        Ok((rules, keeper))
    }

    /// Also answers to these names. Without a token, a server answers only to addresses and
    /// local names: another site could point any other name at this machine.
    #[must_use]
    pub fn allow_hosts(mut self, names: Vec<String>) -> Self {
        self.hosts = Hosts::new(names, !self.tokens.is_empty());
        self
    }

    /// Limits the bytes of a line.
    #[must_use]
    pub fn limit_lines(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self.unfinished = UnfinishedRoom::for_lines_of(bytes);
        self
    }

    /// Describes the routes in other words than [`OPENAPI`].
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

    /// ReportedStream when the program is to end.
    pub fn ending(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    /// The program ends: everyone who waits is released.
    pub fn end(&self) {
        self.end.send_replace(true);
    }

    /// The first rule.
    pub fn first(&self) -> Option<Arc<ServedRule>> {
        self.all.first().cloned()
    }

    /// Stores everything, once nobody uses the rules any more.
    pub fn close(&self, keeper: &KeeperTask) -> Result<(), Error> {
        keeper.stop();
        self.all.iter().try_for_each(|served| served.close())
    }
}

/// Opens the store of a rule, in a folder that is locked, or serves it without one.
fn open_rule(
    to_serve: RuleToServe,
    place: Option<(PathBuf, StoreLock)>,
    how: StoreOptions,
    log: &ServerLog,
) -> Result<ServedRule, Error> {
    let (rule, json) = (to_serve.rule.clone(), to_serve.json.clone());
    let Some((folder, lock)) = place else {
        let state = RuleState::new(rule, json, how.settings, how.seed);
        return Ok(ServedRule::unstored(to_serve, state));
    };
    let opened = Store::open(&folder, lock, rule, json, how)?;
    opened.notices.iter().for_each(|said| log.info(said));
    Ok(ServedRule::stored(to_serve, opened))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn metrics_tell_of_connections_where_they_are_counted() {
        let started = ServedRules::start(WatchOptions::new(Vec::new()), Duration::ZERO);
        let (rules, _keeper) = started.await.unwrap();
        let text = || rules.metrics().into_text();
        assert!(!text().contains("connections"));
        let limits = crate::ConnectionLimits::default();
        rules.count_connections(&Arc::new(Connections::new(limits, None)));
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
