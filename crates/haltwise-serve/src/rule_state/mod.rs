//! The state of a served rule: its open streams, its audits, its monitor. It has no
//! files, network or clock: lines and times go in, answers and records for the log come out.
//! The records alone restore it.

mod audits;
mod lines;
mod renewal;
mod reported;
mod settings;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use haltwise::Rule;
use haltwise::monitor::{Monitor, Watch, WatchError};
use haltwise::plan::Delta;
use haltwise::stream::Streams;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use crate::log_record::{LogRecord, RunningAudit, Totals};
use crate::unlabelled_audits::UnlabelledAudits;

pub(crate) use audits::MOST_UNFILED;
pub(crate) use renewal::digest;
use renewal::share;
pub use settings::{OnAlarm, Settings};

/// How often the server looks for idle streams in the time that makes a stream idle.
const WALKS: u32 = 60;

/// How many audits one step of a long walk looks at. Streams wait for a step, not for the walk.
pub(crate) const PART: usize = 1000;

/// The column of costs, unless the rule names another.
pub(crate) const COSTS: &str = "cost";

/// Why the stored monitor of another version does not go on.
const OTHER_COUNTS: &str = "the monitor in this store counts other steps, groups or units than this \
                            version does for the same rule, so its alarm would not be about the \
                            promise; name another store";

/// What lines lead to. Clients hear of it once the records are on the disk.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Answers, a line each.
    pub(crate) answers: String,
    /// Records for the log.
    pub(crate) records: Vec<String>,
    /// Halts and alarms for those who listen, as JSON.
    pub(crate) events: Vec<String>,
}

impl Effects {
    fn record(&mut self, record: &LogRecord) {
        // Made of strings and numbers: it cannot fail.
        if let Ok(text) = serde_json::to_string(record) {
            self.records.push(text);
        }
    }
}

/// A rule that was replaced, while streams that began with it are open.
#[derive(Debug)]
struct ReplacedRule {
    renewal: u32,
    rule: Arc<Rule>,
    rule_json: String,
    streams: Streams,
}

/// The state of one served rule.
#[derive(Debug)]
pub(crate) struct RuleState {
    settings: Settings,
    rule: Arc<Rule>,
    rule_json: String,
    /// The digests of all rules that were ever in use.
    digests: Vec<String>,
    /// The digests of the rules whose alarm was raised.
    alarmed: Vec<String>,
    first_delta: f64,
    renewal: u32,
    streams: Streams,
    replaced: Vec<ReplacedRule>,
    monitor: Option<Monitor>,
    alarm_at: Option<u64>,
    /// Audited streams that are under way, by id.
    running: HashMap<Box<str>, RunningAudit>,
    /// About how many bytes `running` takes, and how many of these thinning could save.
    running_bytes: usize,
    whole_bytes: usize,
    unlabelled: UnlabelledAudits,
    /// Labelled audits that are in no trace file yet: when they began, and the line.
    unfiled: Vec<(u64, String)>,
    /// About how many bytes they take.
    unfiled_bytes: usize,
    /// Until then, an unknown stream must say that it begins.
    careful_until: u64,
    totals: Totals,
    /// The counts before the process began.
    totals_at_start: Totals,
    halted_at: Vec<u64>,
    /// When the store was opened. Streams count seconds from then.
    opened_at: u64,
    /// The latest time in any record.
    latest: u64,
    /// The second of the next look for idle streams.
    next_walk: u32,
    /// Units that began before this block are closed.
    units_closed: u64,
    rng: SmallRng,
}

impl RuleState {
    pub(crate) fn new(rule: Rule, rule_json: String, settings: Settings, seed: u64) -> Self {
        let mut state = Self {
            streams: Streams::new(settings.limits),
            settings,
            first_delta: rule.delta().get(),
            rule: Arc::new(rule),
            digests: vec![digest(&rule_json)],
            rule_json,
            alarmed: Vec::new(),
            renewal: 1,
            replaced: Vec::new(),
            monitor: None,
            alarm_at: None,
            running: HashMap::new(),
            running_bytes: 0,
            whole_bytes: 0,
            unlabelled: UnlabelledAudits::default(),
            unfiled: Vec::new(),
            unfiled_bytes: 0,
            careful_until: 0,
            totals: Totals::default(),
            totals_at_start: Totals::default(),
            halted_at: Vec::new(),
            opened_at: 0,
            latest: 0,
            next_walk: 0,
            units_closed: 0,
            rng: SmallRng::seed_from_u64(seed),
        };
        state.watch();
        state
    }

    /// The watch that the settings ask for, if the rule in use can be watched.
    fn wanted_watch(&self) -> Option<Watch> {
        // A share of a number in (0, 1) is in (0, 1).
        let delta = self.settings.delta.get() * share(self.renewal);
        let delta = Delta::try_from(delta).unwrap_or(self.settings.delta);
        let watch = Watch::of(&self.rule, delta)?;
        Some(watch.shared_by(self.settings.servers))
    }

    /// Goes on, with the monitor that was stored, at the share of delta that the settings ask
    /// for. Returns what an operator should know of it, or why the monitor cannot go on.
    pub(crate) fn take_settings(&mut self) -> Result<Option<String>, String> {
        let wanted = self.wanted_watch();
        let (monitor, wanted) = match (&mut self.monitor, wanted) {
            (Some(monitor), Some(wanted)) => (monitor, wanted),
            (Some(_), None) => return Err(OTHER_COUNTS.into()),
            (None, wanted) => {
                self.monitor = wanted.map(Monitor::new);
                return Ok(None);
            }
        };
        let (own, asked) = (monitor.watch().delta().get(), wanted.delta().get());
        match monitor.take_watch(&wanted) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(format!(
                "from now on the monitor has a delta of {asked}, as --delta and --servers ask; so \
                 far it was {own}"
            ))),
            Err(WatchError::SmallerDelta) => Ok(Some(format!(
                "the monitor keeps its delta of {own}, although --delta and --servers ask for \
                 {asked}: a delta never rises while a rule is watched"
            ))),
            Err(WatchError::AlarmStands) => Ok(Some(format!(
                "the alarm stands: it was raised at a delta of {own}, and --delta and --servers \
                 ask for {asked} now"
            ))),
            Err(_) => Err(OTHER_COUNTS.into()),
        }
    }

    /// Starts a monitor for the rule in use.
    fn watch(&mut self) {
        self.monitor = self.wanted_watch().map(Monitor::new);
        self.alarm_at = None;
        self.halted_at = vec![0; self.rule.t_max() + 1];
    }

    pub(crate) fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    pub(crate) fn rule_json(&self) -> &str {
        &self.rule_json
    }

    /// The counts since the process began.
    pub(crate) fn counted(&self) -> Totals {
        self.totals.since(self.totals_at_start)
    }

    /// The open streams, those of replaced rules first.
    fn tables(&self) -> impl Iterator<Item = &Streams> {
        let replaced = self.replaced.iter().map(|replaced| &replaced.streams);
        replaced.chain([&self.streams])
    }

    /// How many streams are open and have not halted.
    pub(crate) fn open(&self) -> usize {
        self.tables().map(Streams::running).sum()
    }

    /// How many have halted but are not over yet.
    pub(crate) fn halted(&self) -> usize {
        self.tables().map(Streams::len).sum::<usize>() - self.open()
    }

    pub(crate) fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref()
    }

    pub(crate) fn renewal(&self) -> u32 {
        self.renewal
    }

    pub(crate) fn unlabelled_audits(&self) -> &UnlabelledAudits {
        &self.unlabelled
    }

    /// How many audits are in memory: those that run, wait for a label, or wait for a trace file.
    pub(crate) fn audits_in_memory(&self) -> usize {
        self.running.len() + self.unlabelled.len() + self.unfiled.len()
    }

    /// About how many bytes they take.
    pub(crate) fn audit_bytes_in_memory(&self) -> usize {
        self.running_bytes + self.unlabelled.bytes() + self.unfiled_bytes
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn halted_at(&self) -> &[u64] {
        &self.halted_at
    }

    /// When the alarm was raised, in milliseconds since 1970.
    pub(crate) fn alarm_at(&self) -> Option<u64> {
        self.alarm_at
    }

    /// The latest time in any record, in milliseconds since 1970.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Whether streams are read to their end because of an alarm.
    pub(crate) fn reading_on(&self) -> bool {
        let alarm = self.monitor.as_ref().and_then(Monitor::alarm);
        alarm.is_some() && self.settings.on_alarm == OnAlarm::ReadOn
    }

    /// How many seconds ago the store was opened.
    fn seconds(&self, now: u64) -> u32 {
        (now.saturating_sub(self.opened_at) / 1000) as u32
    }

    /// Goes on at `now`, after the log was read back. If the server was killed, the streams that
    /// were open then are unknown. So for a while, an unknown stream must say that it begins.
    pub(crate) fn resume(&mut self, now: u64, closed: bool) {
        self.opened_at = now;
        let careful = now + 1000 * u64::from(self.settings.idle);
        // At most that long, even if the clock has gone back.
        self.careful_until = self.careful_until.min(careful);
        if !closed {
            self.careful_until = careful;
            self.running.clear();
        }
        // Audits without a stream: the program that reported it is gone, or there was no room.
        let streams = &self.streams;
        self.running.retain(|id, _| streams.get(id).is_some());
        // The server may have been killed before the time of the alarm was on the disk.
        if self.monitor.as_ref().is_some_and(|m| m.alarm().is_some()) {
            self.alarm_at = self.alarm_at.filter(|&at| at > 0).or(Some(now));
        }
        self.weigh_running();
        self.totals.thinned = 0;
        self.totals_at_start = self.totals;
    }

    /// Counts a line that cannot be used.
    pub(crate) fn count_fault(&mut self) {
        self.totals.faults += 1;
    }

    /// Closes idle streams.
    pub(crate) fn tick(&mut self, now: u64, effects: &mut Effects) {
        let seconds = self.seconds(now);
        let due = seconds >= self.next_walk;
        if due {
            self.next_walk = seconds + (self.settings.idle / WALKS).max(1);
        }
        let before = seconds.saturating_sub(self.settings.idle);
        let mut closed = Vec::new();
        let replaced = self.replaced.iter_mut();
        let tables = replaced.map(|replaced| &mut replaced.streams);
        for streams in tables.chain([&mut self.streams]) {
            streams.set_clock(seconds);
            if due {
                streams.close_idle(before, |id, _| closed.push(id.to_owned()));
            }
        }
        self.totals.idle += closed.len() as u64;
        for id in closed {
            self.lose_audit(&id, effects);
        }
        self.replaced
            .retain(|replaced| !replaced.streams.is_empty());
    }

    /// Its status.
    #[cfg(test)]
    pub(crate) fn status(&self) -> crate::status::Status {
        crate::status::status(|| self)
    }
}
