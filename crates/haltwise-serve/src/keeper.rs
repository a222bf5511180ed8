//! The keeper: a task that closes idle streams, rotates logs, and reports alarms and failures.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::Error;
use crate::served_rule::ServedRule;
use crate::served_rules::{RuleToServe, ServedRules};
use crate::server::ended;
use crate::server_log::ServerLog;

/// The keeper, while it runs.
#[derive(Debug)]
pub struct KeeperTask(JoinHandle<()>);

impl KeeperTask {
    pub(crate) fn new(task: JoinHandle<()>) -> Self {
        Self(task)
    }

    pub(crate) fn stop(&self) {
        self.0.abort();
    }
}

/// A rule that is to take the place of the one with its name.
#[derive(Debug)]
pub struct Renewal {
    /// The rule.
    pub rule: RuleToServe,
    /// Hears whether it is in use now.
    pub is_in_use: oneshot::Sender<bool>,
}

/// The task's name in messages.
pub(crate) const RENEWER: &str = "the task that swaps in rules whose files have changed";

/// Puts rules in the place of those with their names.
pub(crate) async fn renew(rules: ServedRules, renewals: Arc<Mutex<mpsc::Receiver<Renewal>>>) {
    let mut renewals = renewals.lock().await;
    rules.dead.works(RENEWER);
    while let Some(Renewal { rule, is_in_use }) = renewals.recv().await {
        let RuleToServe {
            name, rule, json, ..
        } = rule;
        let Some(served) = rules.all.iter().find(|served| served.name == name) else {
            continue;
        };
        let stays = |error: &str, remedy: &str| {
            rules.log().warn(&format!(
                "{name}: the rule stays as it is: {error}; {remedy}"
            ));
        };
        match served.renew(rule, json).await {
            Ok(Ok(renewal)) => {
                rules
                    .log()
                    .info(&format!("{name}: another rule is in use, number {renewal}"));
                // The requester may have gone.
                let _ = is_in_use.send(true);
            }
            Ok(Err(fault)) => stays(&fault.error, fault.remedy),
            Err(error) => stays(&error.to_string(), "make room and try again"),
        }
    }
}

/// The task's name in messages.
pub(crate) const KEEPER: &str = "the task that rotates logs and closes idle streams";

/// The longest wait before a failed rotation is tried again.
const MOST_PAUSE: Duration = Duration::from_secs(30);

/// What the keeper remembers about a served rule.
struct Upkeep {
    has_alarm: bool,
    /// Whether the log must be rotated, because it is time or because that failed.
    is_due: bool,
    /// After a failure: when to try again, and how long that is after it.
    retry: Option<(Instant, Duration)>,
}

/// Closes idle streams, rotates logs, and reports alarms and failures.
pub(crate) async fn keep(rules: ServedRules, rotate: Duration, log: ServerLog) {
    let mut ending = rules.ending();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut rotated = Instant::now();
    let new = || Upkeep {
        has_alarm: false,
        is_due: false,
        retry: None,
    };
    let mut upkeeps: Vec<Upkeep> = rules.all.iter().map(|_| new()).collect();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = ended(&mut ending) => return,
        }
        let is_due = rotated.elapsed() >= rotate;
        if is_due {
            rotated = Instant::now();
        }
        for (served, upkeep) in rules.all.iter().zip(&mut upkeeps) {
            upkeep.is_due |= is_due;
            upkeep.tell_of_alarm(served, &log);
            upkeep.work(served, &log).await;
        }
        rules.dead.works(KEEPER);
    }
}

impl Upkeep {
    fn tell_of_alarm(&mut self, served: &ServedRule, log: &ServerLog) {
        let has_alarm =
            served.with_state(|state| state.monitor().is_some_and(|m| m.alarm().is_some()));
        if has_alarm && !self.has_alarm {
            let name = &served.name;
            log.error(&format!(
                "alarm: the promise of {name} does not hold any more; see /"
            ));
        }
        self.has_alarm = has_alarm;
    }

    async fn work(&mut self, served: &Arc<ServedRule>, log: &ServerLog) {
        let (rule, is_due) = (Arc::clone(served), self.is_due);
        let rotates = self.retry.is_none_or(|(at, _)| at <= Instant::now());
        let work = tokio::task::spawn_blocking(move || {
            let rotated = if rotates && (is_due || rule.is_long()) {
                rule.rotate()
            } else {
                Ok(())
            };
            // Idle streams are closed even if the log cannot be rotated.
            let ticked = rule.tick();
            rotated.and(ticked)
        });
        let done: Result<(), Error> = match work.await {
            Ok(done) => done,
            // This task dies too, so that it is reported and started again.
            Err(died) => match died.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(died) => Err(Error::new(died.to_string())),
            },
        };
        match done {
            _ if !rotates => {}
            Ok(()) => {
                if self.retry.take().is_some() {
                    log.info(&format!("{}: the store can be written again", served.name));
                }
                self.is_due = false;
            }
            // Every client hears of it as well.
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
