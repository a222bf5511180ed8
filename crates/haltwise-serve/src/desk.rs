//! What a server knows of one rule: its open streams, its audits, its monitor. A
//! machine without files, network or clock: lines and times go in, answers and
//! records for the log come out, and the records alone bring it back.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use haltwise::monitor::{Alarm, Monitor, UnitKey, Watch};
use haltwise::plan::Delta;
use haltwise::stream::{Limits, Message, Outcome, Reason, Streams};
use haltwise::{Rule, Step};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::kept::{Kept, Names};
use crate::line::{Line, json_class};
use crate::record::{Borrowed, Halt, Live, Record, Totals, Waiting};
use crate::waiting::WaitingAudits;

/// Monitors of all servers count by the same calendar: blocks of ten minutes.
const CALENDAR: u64 = 600_000;

/// The streams of a unit are those that begin within so many blocks, a day, of its
/// first. Whatever begins later counts no more.
const UNIT_LASTS: u64 = 144;

/// The most bytes that are kept of audited streams that are under way; when there are
/// more, some are thinned.
const MOST_LIVE: usize = 64 << 20;

/// All open streams are looked at for idle ones so often in the time that makes one idle.
const WALKS: u32 = 60;

/// How many audits are looked at at a time, while streams wait.
pub(crate) const PART: usize = 1000;

/// The column of costs, where the rule has no other.
pub(crate) const COSTS: &str = "cost";

/// What is done when an alarm is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnAlarm {
    /// No stream is halted early until there is another rule: nothing is lost but
    /// time.
    #[default]
    ReadOn,
    /// The rule goes on, and only a warning is given.
    Keep,
}

/// How a desk works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The share of streams that are audited.
    pub audit: f64,
    /// The probability that a false alarm is ever raised, over all renewals.
    pub delta: Delta,
    /// What is done on alarm.
    pub on_alarm: OnAlarm,
    /// What the table of open streams may come to.
    pub limits: Limits,
    /// After how many seconds a stream that says nothing is closed.
    pub idle: u32,
    /// How many servers share the rule's streams, each with a store of its own.
    pub servers: u32,
}

impl Default for Settings {
    /// One stream in twenty is audited; false alarms have probability 1%; streams
    /// that say nothing are closed after an hour.
    fn default() -> Self {
        Self {
            audit: 0.05,
            delta: Delta::default(),
            on_alarm: OnAlarm::default(),
            limits: Limits::default(),
            idle: 3600,
            servers: 1,
        }
    }
}

/// What came of lines: to be told once the records are on the disk.
#[derive(Debug, Default)]
pub(crate) struct Out {
    /// Answers, a line each.
    pub(crate) answers: String,
    /// Records for the log.
    pub(crate) records: Vec<String>,
    /// What others may want to hear: halts and alarms, as JSON.
    pub(crate) events: Vec<String>,
}

impl Out {
    fn record(&mut self, record: &Record) {
        // Made of strings and numbers: it cannot fail.
        if let Ok(text) = serde_json::to_string(record) {
            self.records.push(text);
        }
    }
}

/// Why a line was not used, or only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) error: String,
    pub(crate) remedy: &'static str,
    pub(crate) kind: FaultKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// It is not what a line must be.
    Unusable,
    /// The stream must begin again.
    BeginAgain,
    /// There is no room.
    Full,
    /// What it is about is not there.
    NotFound,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, error: impl Into<String>, remedy: &'static str) -> Self {
        Self {
            error: error.into(),
            remedy,
            kind,
        }
    }

    /// As a line of output.
    pub(crate) fn json(&self, line: Option<u64>) -> String {
        #[derive(Serialize)]
        struct Said<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            line: Option<u64>,
            error: &'a str,
            remedy: &'a str,
        }
        let said = Said {
            line,
            error: &self.error,
            remedy: self.remedy,
        };
        serde_json::to_string(&said).unwrap_or_default()
    }
}

const SEE_LINES: &str = "see the fields of a line in /openapi.json";
const BEGIN_AGAIN: &str = "send the stream again from its first step, with \"t\": 1";

/// An older rule whose streams are not over yet.
#[derive(Debug)]
struct Older {
    renewal: u32,
    rule: Arc<Rule>,
    rule_json: String,
    streams: Streams,
}

/// The state of one rule.
#[derive(Debug)]
pub(crate) struct Desk {
    settings: Settings,
    rule: Arc<Rule>,
    rule_json: String,
    /// Digests of all rules that were ever in use, and of those whose alarm was raised.
    given: Vec<String>,
    alarmed: Vec<String>,
    first_delta: f64,
    renewal: u32,
    streams: Streams,
    older: Vec<Older>,
    monitor: Option<Monitor>,
    alarm_at: Option<u64>,
    live: HashMap<Box<str>, Live>,
    /// About how many bytes are kept of those in `live` that are not thinned.
    live_bytes: usize,
    waiting: WaitingAudits,
    /// Labelled audits that are in no trace file yet: when they began, and the line.
    done: Vec<(u64, String)>,
    /// Until when a stream that is not known must say that it begins.
    careful_until: u64,
    totals: Totals,
    /// What was counted before the process began.
    before: Totals,
    halted_at: Vec<u64>,
    /// When the desk was opened: streams count seconds from then.
    opened_at: u64,
    /// The latest time that a record says.
    latest: u64,
    /// The second at which open streams are looked at again for idle ones.
    next_walk: u32,
    /// The block before which units were closed.
    units_closed: u64,
    rng: SmallRng,
}

/// The digest that tells rule files apart.
pub(crate) fn digest(json: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(json.as_bytes()))
}

/// The answer to a stream that halts at step `t`; one that is audited is to go on.
fn answer(id: &str, t: u64, reason: Reason, go_on: bool) -> String {
    let audit = if go_on { ",\"audit\":true" } else { "" };
    format!("{{\"id\":{id},\"t\":{t},\"reason\":\"{reason}\"{audit}}}\n")
}

/// The share of a delta that the n-th rule may spend: all shares add up to 1.
fn share(renewal: u32) -> f64 {
    let k = f64::from(renewal.max(1));
    1.0 / (k * (k + 1.0))
}

impl Desk {
    pub(crate) fn new(rule: Rule, rule_json: String, settings: Settings, seed: u64) -> Self {
        let given = vec![digest(&rule_json)];
        let mut desk = Self {
            streams: Streams::new(settings.limits),
            settings,
            first_delta: rule.delta().get(),
            rule: Arc::new(rule),
            rule_json,
            given,
            alarmed: Vec::new(),
            renewal: 1,
            older: Vec::new(),
            monitor: None,
            alarm_at: None,
            live: HashMap::new(),
            live_bytes: 0,
            waiting: WaitingAudits::default(),
            done: Vec::new(),
            careful_until: 0,
            totals: Totals::default(),
            before: Totals::default(),
            halted_at: Vec::new(),
            opened_at: 0,
            latest: 0,
            next_walk: 0,
            units_closed: 0,
            rng: SmallRng::seed_from_u64(seed),
        };
        desk.watch();
        desk
    }

    /// Begins to watch the rule that is here now.
    fn watch(&mut self) {
        // A share of a number in (0, 1) is one too.
        let delta = self.settings.delta.get() * share(self.renewal);
        let delta = Delta::try_from(delta).unwrap_or(self.settings.delta);
        let watch = Watch::of(&self.rule, delta);
        let servers = self.settings.servers;
        self.monitor = watch.map(|watch| Monitor::new(watch.shared_by(servers)));
        self.alarm_at = None;
        self.halted_at = vec![0; self.rule.t_max() + 1];
    }

    pub(crate) fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    pub(crate) fn rule_json(&self) -> &str {
        &self.rule_json
    }

    /// What was counted since the process began.
    pub(crate) fn counted(&self) -> Totals {
        self.totals.since(self.before)
    }

    fn tables(&self) -> impl Iterator<Item = &Streams> {
        let older = self.older.iter().map(|older| &older.streams);
        older.chain([&self.streams])
    }

    /// How many streams are open and have not halted.
    pub(crate) fn open(&self) -> usize {
        self.tables().map(Streams::running).sum()
    }

    /// How many have halted and not said that they are over.
    pub(crate) fn halted(&self) -> usize {
        self.tables().map(Streams::len).sum::<usize>() - self.open()
    }

    pub(crate) fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref()
    }

    pub(crate) fn renewal(&self) -> u32 {
        self.renewal
    }

    pub(crate) fn waiting_audits(&self) -> &WaitingAudits {
        &self.waiting
    }

    /// Audited streams of which something is kept: under way, or waiting for a label.
    pub(crate) fn kept_streams(&self) -> usize {
        self.live.len() + self.waiting.len()
    }

    /// About how many bytes are kept of them.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.live_bytes + self.waiting.bytes()
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

    /// The latest time that a record says, in milliseconds since 1970.
    pub(crate) fn latest(&self) -> u64 {
        self.latest
    }

    /// Whether streams are read to their end because of an alarm.
    pub(crate) fn reading_on(&self) -> bool {
        let alarm = self.monitor.as_ref().and_then(Monitor::alarm);
        alarm.is_some() && self.settings.on_alarm == OnAlarm::ReadOn
    }

    /// The largest delta that the next rule may have. The shares of all rules
    /// that were ever in use, at twice the first one's delta, add up to that: so
    /// with that probability no promise of any of them was ever wrong. A rule that
    /// comes back was counted when it first came.
    pub(crate) fn next_delta(&self) -> f64 {
        2.0 * self.first_delta * share(self.renewal + 1)
    }

    /// How many seconds the desk has been open.
    fn seconds(&self, now: u64) -> u32 {
        (now.saturating_sub(self.opened_at) / 1000) as u32
    }

    /// The log was read back, and it is `now`. Where the server was killed, what was running is not known
    /// any more: for a while, streams that are not known must say that they begin, for
    /// they may have been open then.
    pub(crate) fn resumed(&mut self, now: u64, closed: bool) {
        self.opened_at = now;
        let careful = now + 1000 * u64::from(self.settings.idle);
        // Should the clock have gone back, no longer than that.
        self.careful_until = self.careful_until.min(careful);
        if !closed {
            self.careful_until = careful;
            self.live.clear();
        }
        // Of some, the program that told of them is gone, or there was no room.
        let streams = &self.streams;
        self.live.retain(|id, _| streams.get(id).is_some());
        // The server may have been killed before the time of the alarm was on the disk.
        if self.monitor.as_ref().is_some_and(|m| m.alarm().is_some()) {
            self.alarm_at = self.alarm_at.filter(|&at| at > 0).or(Some(now));
        }
        self.live_bytes = self.live.values().map(|live| live.kept.whole_bytes()).sum();
        self.totals.thinned = 0;
        self.before = self.totals;
    }

    /// Takes a line.
    pub(crate) fn take(&mut self, now: u64, line: &Line<'_>, out: &mut Out) -> Result<(), Fault> {
        let taken = self.take_line(now, line, out);
        self.totals.faults += u64::from(taken.is_err());
        taken
    }

    /// Takes a line that may come twice: it must say which step it is. One that came before
    /// is passed over, unless its stream halted there: then it is answered again.
    pub(crate) fn take_numbered(
        &mut self,
        now: u64,
        line: &Line<'_>,
        out: &mut Out,
    ) -> Result<(), Fault> {
        if !line.has_step() {
            return self.take(now, line, out);
        }
        let Some(t) = line.t else {
            self.count_fault();
            let problem = format!("the line of stream {} has no \"t\"", line.id);
            let remedy = "number the steps from 1: a message may be delivered twice";
            return Err(Fault::new(FaultKind::Unusable, problem, remedy));
        };
        match self.steps(&line.id) {
            Some(steps) if t <= steps => {
                self.answers_again(line, out);
                Ok(())
            }
            // Its stream may be over, and the line one that came before.
            None if t > 1 => {
                self.count_fault();
                let problem = format!("stream {} is not open", line.id);
                Err(Fault::new(FaultKind::BeginAgain, problem, BEGIN_AGAIN))
            }
            _ => self.take(now, line, out),
        }
    }

    /// How many steps an open stream has had.
    fn steps(&self, id: &str) -> Option<u64> {
        if let Some(live) = self.live.get(id) {
            return Some(live.kept.len() as u64);
        }
        let state = self.tables().find_map(|streams| streams.get(id));
        state.map(|state| u64::from(state.steps()))
    }

    /// Answers the step at which its stream halted, should it come again: the answer may have
    /// been lost.
    fn answers_again(&self, line: &Line<'_>, out: &mut Out) -> bool {
        let id = &*line.id;
        let state = self.tables().find_map(|streams| streams.get(id));
        let halted = state.and_then(|state| Some((u64::from(state.steps()), state.reason()?)));
        let Some((t, reason)) = halted.filter(|&(t, _)| line.t == Some(t)) else {
            return false;
        };
        let comes_again = line.has_step() && !line.end;
        if comes_again {
            let go_on = self.live.contains_key(id) && reason == Reason::Threshold;
            out.answers += &answer(id, t, reason, go_on);
        }
        comes_again
    }

    fn take_line(&mut self, now: u64, line: &Line<'_>, out: &mut Out) -> Result<(), Fault> {
        let id = &*line.id;
        let old = self
            .older
            .iter()
            .position(|older| older.streams.get(id).is_some());
        if self.answers_again(line, out) {
            return Ok(());
        }
        let known = old.is_some() || self.streams.get(id).is_some();
        if !known && line.has_step() && now < self.careful_until && line.t != Some(1) {
            let problem = format!("stream {id} is not known since the server started again");
            return Err(Fault::new(FaultKind::BeginAgain, problem, BEGIN_AGAIN));
        }
        // An old stream of this id has vanished, or another has taken its place.
        if !known && line.has_step() {
            self.lose(id, out);
        }
        let (group, unit) = match !known && line.has_step() {
            true => (self.group(line)?, self.unit(line)?),
            false => (None, None),
        };
        let audited = match known {
            true => self.live.contains_key(id),
            false => line.has_step() && self.draws(unit.as_deref()),
        };
        let reading_on = self.reading_on();
        let (rule, streams) = match old {
            Some(i) => {
                let older = &mut self.older[i];
                (Arc::clone(&older.rule), &mut older.streams)
            }
            None => (Arc::clone(&self.rule), &mut self.streams),
        };
        let mut probs = Vec::new();
        let (step, problem) = match line.has_step() {
            false => (None, None),
            // The rule does not see it, so it cannot halt.
            true if reading_on => (Some(Step::default()), None),
            true => match line.step(&rule, &mut probs) {
                Ok(step) => (Some(step), None),
                // It counts all the same.
                Err(problem) => (Some(Step::default()), Some(problem)),
            },
        };
        let message = Message {
            step,
            t: line.t,
            end: line.end,
        };
        let mut closed = None;
        let taken = streams.take_telling(&rule, id, message, |id| closed = Some(id.to_owned()));
        let outcome = taken.map_err(|refusal| {
            let problem = line.refused(&refusal);
            match refusal {
                haltwise::stream::Refusal::NoRoom { .. } => {
                    Fault::new(FaultKind::Full, problem, "try again later")
                }
                _ => Fault::new(FaultKind::Unusable, problem, SEE_LINES),
            }
        })?;
        // It made room, and what it says from now on is not heard.
        if let Some(closed) = closed {
            self.lose(&closed, out);
        }
        self.totals.observations += u64::from(line.has_step());
        self.totals.streams += u64::from(!known);
        if audited && !known {
            self.begin(id, now, (group, unit), out);
        }
        let mut faults = problem;
        if let Outcome::Taken(taken) = &outcome {
            if let Some(missing) = taken.missing {
                faults = Some(missing.to_string());
            }
            if let (Some(error), None, false) = (&taken.unusable, &faults, reading_on) {
                faults = Some(line.words(error.clone()));
            }
        }
        if audited
            && line.has_step()
            && let Some(live) = self.live.get_mut(id)
        {
            self.live_bytes -= live.kept.whole_bytes();
            live.kept.push(line);
            self.live_bytes += live.kept.whole_bytes();
            self.thin_live();
        }
        if let Outcome::Taken(taken) = &outcome
            && let Some(reason) = taken.halted
        {
            let halt = Halt {
                id: id.to_owned(),
                t: taken.steps,
                reason,
                audit: self.live.contains_key(id),
                early: reason == Reason::Threshold && !line.end,
                saved: 0,
                older: old.is_some(),
            };
            self.halts(&rule, now, halt, out);
        }
        self.end_audit(&rule, now, line, out);
        match faults {
            None => Ok(()),
            Some(problem) => Err(Fault::new(FaultKind::Unusable, problem, SEE_LINES)),
        }
    }

    /// Whether a stream that begins is audited. A unit is so with all of its streams, also
    /// where the share of audits has become smaller since it began.
    fn draws(&mut self, unit: Option<&str>) -> bool {
        match unit {
            Some(unit) => {
                let (unit, monitor) = (UnitKey::new(unit), self.monitor.as_ref());
                let rule = self.given.last().map_or("", String::as_str);
                monitor.is_some_and(|monitor| monitor.has_open_unit(unit))
                    || unit.is_drawn(self.settings.audit, rule)
            }
            None => self.rng.random_bool(self.settings.audit),
        }
    }

    /// The unit of a stream that begins with a line, where the promise is about units.
    fn unit(&self, line: &Line<'_>) -> Result<Option<String>, Fault> {
        if self.rule.terms().unit.is_none() {
            return Ok(None);
        }
        let said = line.unit_said().map(|unit| Some(unit.into_owned()));
        said.ok_or_else(|| {
            let problem = format!("stream {} begins without a \"unit\"", line.id);
            let remedy = "give \"unit\" with the first step: the rule promises something about \
                          units, and streams of one are judged together";
            Fault::new(FaultKind::Unusable, problem, remedy)
        })
    }

    /// The group of a stream that begins with a line, where the promise is by group.
    fn group(&self, line: &Line<'_>) -> Result<Option<String>, Fault> {
        let groups = Watch::groups_of(&self.rule);
        if groups.is_empty() {
            return Ok(None);
        }
        let said = line.group_said();
        let known = said
            .as_deref()
            .filter(|said| groups.iter().any(|g| g == said));
        known.map(|group| Some(group.to_owned())).ok_or_else(|| {
            let problem = match said {
                None => format!("stream {} begins without a \"group\"", line.id),
                Some(said) => format!("the rule promises nothing to the group {said:?}"),
            };
            let remedy = "give \"group\" with the first step: one of \"groups\" in status";
            Fault::new(FaultKind::Unusable, problem, remedy)
        })
    }

    /// An audited stream begins, in a group and of a unit.
    fn begin(&mut self, id: &str, now: u64, of: (Option<String>, Option<String>), out: &mut Out) {
        let (group, unit) = of.clone();
        out.record(&Record::Begin {
            id: id.to_owned(),
            at: now,
            group,
            unit,
        });
        self.begun(id, now, of, out);
    }

    /// A stream halts.
    fn halts(&mut self, rule: &Rule, now: u64, mut halt: Halt, out: &mut Out) {
        // Audited streams are read to their end.
        if halt.early && !halt.audit && !rule.reads_on() {
            halt.saved = (rule.t_max() as u64).saturating_sub(halt.t.into());
        }
        let go_on = halt.audit && halt.early;
        let answer = answer(&halt.id, halt.t.into(), halt.reason, go_on);
        out.events
            .push(format!("{{\"halt\":{}}}", answer.trim_end()));
        out.answers += &answer;
        let record = Record::Halt(halt);
        out.record(&record);
        if let Record::Halt(halt) = record {
            self.halted_there(&halt, now, out);
        }
    }

    /// An audited stream is over if it says so, or has all the steps there are.
    fn end_audit(&mut self, rule: &Rule, now: u64, line: &Line<'_>, out: &mut Out) {
        let id = &*line.id;
        let Some(live) = self.live.get(id) else {
            return;
        };
        let t_max = rule.t_max();
        let last = !rule.reads_on() && (live.kept.len() >= t_max || live.t as usize >= t_max);
        if live.t == 0 || !line.end && !last {
            return;
        }
        let steps = live.kept.len();
        let early = (live.t as usize) < steps;
        let kept = live.kept.clone();
        self.ends(id, kept, now, out);
        if early {
            out.answers += &format!("{{\"id\":{id},\"t\":{steps},\"audited\":true}}\n");
        }
    }

    /// An audited stream came to its end.
    fn ends(&mut self, id: &str, kept: Kept, now: u64, out: &mut Out) {
        let record = Record::Audited {
            id: id.to_owned(),
            kept,
        };
        out.record(&record);
        if let Record::Audited { kept, .. } = record {
            self.audited(id, kept, now, out);
        }
    }

    // Streams whose steps are not seen here: whoever runs one asks the rule, and says
    // where it began, halted and ended.

    /// A stream begins. Returns its id, as JSON, and whether it is audited.
    pub(crate) fn begin_told(&mut self, now: u64, out: &mut Out) -> (String, bool) {
        let id = format!("\"{:016x}\"", self.rng.random::<u64>());
        self.totals.streams += 1;
        let audited = self.draws(None);
        if audited {
            self.begin(&id, now, (None, None), out);
        }
        (id, audited)
    }

    /// It halts at step `t`, counted from 1, by the rule that it began with. Returns whether it
    /// is audited.
    pub(crate) fn halt_told(
        &mut self,
        now: u64,
        id: &str,
        t: u32,
        reason: Reason,
        rule: &Arc<Rule>,
        out: &mut Out,
    ) -> bool {
        self.totals.observations += u64::from(t);
        let audit = self.live.contains_key(id);
        let halt = Halt {
            id: id.to_owned(),
            t,
            reason,
            audit,
            early: reason == Reason::Threshold,
            saved: 0,
            older: !Arc::ptr_eq(rule, &self.rule),
        };
        self.halts(rule, now, halt, out);
        audit
    }

    /// It was audited, and came to its end.
    pub(crate) fn end_told(&mut self, now: u64, id: &str, kept: Kept, out: &mut Out) {
        if self.live.contains_key(id) {
            self.ends(id, kept, now, out);
        }
    }

    /// The true class of an audited stream.
    pub(crate) fn label(
        &mut self,
        now: u64,
        id: &str,
        label: &str,
        out: &mut Out,
    ) -> Result<(), Fault> {
        let label = json_class(label)
            .map_err(|e| Fault::new(FaultKind::Unusable, e, "give \"label\" as predictions are"))?;
        if !self.live.contains_key(id) && !self.waiting.contains(id) {
            let problem = format!("no audited stream {id} waits for a label");
            return Err(Fault::new(
                FaultKind::NotFound,
                problem,
                "label audited streams only, each once; see labels/wanted",
            ));
        }
        out.record(&Record::Label {
            id: id.to_owned(),
            label: label.clone().into_owned(),
        });
        self.labelled(id, &label, now, out);
        Ok(())
    }

    /// Counts a line that is none.
    pub(crate) fn count_fault(&mut self) {
        self.totals.faults += 1;
    }

    /// Closes streams that said nothing for too long.
    pub(crate) fn tick(&mut self, now: u64, out: &mut Out) {
        let seconds = self.seconds(now);
        let due = seconds >= self.next_walk;
        if due {
            self.next_walk = seconds + (self.settings.idle / WALKS).max(1);
        }
        let before = seconds.saturating_sub(self.settings.idle);
        let mut closed = Vec::new();
        let tables = self.older.iter_mut().map(|older| &mut older.streams);
        for streams in tables.chain([&mut self.streams]) {
            streams.set_clock(seconds);
            if due {
                streams.close_idle(before, |id, _| closed.push(id.to_owned()));
            }
        }
        self.totals.idle += closed.len() as u64;
        for id in closed {
            self.lose(&id, out);
        }
        self.older.retain(|older| !older.streams.is_empty());
    }

    /// An audited stream that is under way will never come to its end.
    pub(crate) fn lose(&mut self, id: &str, out: &mut Out) {
        if self.lost(id) {
            out.record(&Record::Lost { id: id.to_owned() });
        }
    }

    /// Thins what is kept of audits that are under way, while all together take too much
    /// room.
    fn thin_live(&mut self) {
        if self.live_bytes <= MOST_LIVE {
            return;
        }
        for live in self.live.values_mut().filter(|live| !live.kept.is_thin()) {
            // By a good part, so that it is not done for each step.
            if self.live_bytes <= MOST_LIVE / 4 * 3 {
                break;
            }
            self.live_bytes -= live.kept.whole_bytes();
            live.kept.thin();
            self.totals.thinned += 1;
        }
    }

    /// Puts another rule in the place of this one, for streams that begin from now
    /// on. Those that are open go on with the rule that they began with. A rule that
    /// was in use before may come back, unless its alarm was raised.
    pub(crate) fn renew(&mut self, rule: Rule, json: String, out: &mut Out) -> Result<(), Fault> {
        let refused =
            |problem: String, remedy| Err(Fault::new(FaultKind::Unusable, problem, remedy));
        let next = self.next_delta();
        if rule.promise().is_none() {
            let problem = "the rule was screened, not certified: it promises nothing";
            return refused(problem.into(), "calibrate one with another method");
        }
        let given = digest(&json);
        if given == digest(&self.rule_json) {
            let problem = "the rule is in use already";
            return refused(problem.into(), "nothing is to be done");
        }
        if self.alarmed.contains(&given) {
            let problem = "the rule was in use before, and its promise did not hold";
            let remedy = "calibrate one on audits since the alarm";
            return refused(problem.into(), remedy);
        }
        // Rounding of what was printed is no reason to refuse.
        if !self.knows(&given) && rule.delta().get() > next * (1.0 + 1e-9) {
            let problem = format!(
                "the rule was calibrated with delta {}, and this renewal may spend {next}",
                rule.delta().get()
            );
            let remedy = "calibrate with --delta as \"next_delta\" in status says";
            return refused(problem, remedy);
        }
        let (renewal, copy) = (self.renewal + 1, json.clone());
        out.record(&Record::Rule {
            renewal,
            given: given.clone(),
            rule: copy,
        });
        self.renewed(renewal, given, rule, json);
        out.events.push(format!("{{\"rule\":{renewal}}}"));
        Ok(())
    }

    fn renewed(&mut self, renewal: u32, given: String, rule: Rule, json: String) {
        if self.monitor.as_ref().is_some_and(|m| m.alarm().is_some()) {
            self.alarmed.push(digest(&self.rule_json));
        }
        let mut fresh = Streams::new(self.settings.limits);
        fresh.set_clock(self.streams.clock());
        let older = Older {
            renewal: self.renewal,
            rule: std::mem::replace(&mut self.rule, Arc::new(rule)),
            rule_json: std::mem::replace(&mut self.rule_json, json),
            streams: std::mem::replace(&mut self.streams, fresh),
        };
        if !older.streams.is_empty() {
            self.older.push(older);
        }
        self.given.push(given);
        self.renewal = renewal;
        // Audits of the old rule are none of the new one; what they said stays in
        // the trace files.
        self.live.clear();
        self.live_bytes = 0;
        self.waiting.drop_pending();
        self.watch();
    }

    /// Whether a rule was in use before, or is.
    pub(crate) fn knows(&self, digest: &str) -> bool {
        self.given.iter().any(|given| given == digest)
    }

    /// Whether a rule was the first in use.
    pub(crate) fn is_first(&self, digest: &str) -> bool {
        self.given.first().is_some_and(|first| first == digest)
    }

    // What follows happens in the same way live and when the log is read back.

    fn begun(&mut self, id: &str, at: u64, of: (Option<String>, Option<String>), out: &mut Out) {
        let (group, unit) = of;
        let groups = Watch::groups_of(&self.rule);
        let place = groups.iter().position(|g| Some(g) == group.as_ref());
        let (block, place) = (at / CALENDAR, place.unwrap_or(0));
        let mut alarm = None;
        let running = self.monitor.as_mut().and_then(|monitor| match &unit {
            None => Some(monitor.begin(block, place)),
            Some(unit) => {
                let before = block.saturating_sub(UNIT_LASTS);
                if before > self.units_closed {
                    self.units_closed = before;
                    alarm = monitor.close_units(before);
                }
                monitor.begin_of_unit(block, place, UnitKey::new(unit))
            }
        });
        let live = Live {
            began: at,
            running,
            kept: Kept::new(group, unit),
            ..Live::default()
        };
        self.put_live(id, live);
        self.latest = self.latest.max(at);
        self.alarm(alarm, at, out);
    }

    /// An audited stream is forgotten. Returns whether there was one.
    fn lost(&mut self, id: &str) -> bool {
        self.take_live(id).is_some()
    }

    fn put_live(&mut self, id: &str, live: Live) {
        self.take_live(id);
        self.live_bytes += live.kept.whole_bytes();
        self.live.insert(id.into(), live);
    }

    fn take_live(&mut self, id: &str) -> Option<Live> {
        let live = self.live.remove(id)?;
        self.live_bytes -= live.kept.whole_bytes();
        Some(live)
    }

    fn halted_there(&mut self, halt: &Halt, now: u64, out: &mut Out) {
        self.totals.halted += u64::from(halt.early);
        self.totals.ended += u64::from(!halt.early);
        self.totals.steps_saved = self.totals.steps_saved.saturating_add(halt.saved);
        let last = self.halted_at.len().checked_sub(1);
        if let Some(last) = last.filter(|_| !halt.older) {
            self.halted_at[(halt.t as usize).saturating_sub(1).min(last)] += 1;
        }
        let Some(live) = self.live.get_mut(&*halt.id).filter(|_| halt.audit) else {
            return;
        };
        live.t = halt.t;
        live.kept.halt();
        if let (Some(monitor), Some(running)) = (&mut self.monitor, live.running.take()) {
            let (pending, alarm) = monitor.halt(running, halt.t);
            live.pending = Some(pending);
            self.alarm(alarm, now, out);
        }
    }

    /// An audited stream is over. `kept` is all there is of it.
    fn audited(&mut self, id: &str, kept: Kept, now: u64, out: &mut Out) {
        let Some(live) = self.take_live(id) else {
            return;
        };
        self.totals.audited += 1;
        let label = live.label;
        let mut waiting = Waiting {
            began: live.began,
            pending: live.pending,
            kept,
        };
        let of = self.rule.terms().loss;
        if let Some(loss) = waiting.kept.loss(None, of) {
            self.settle(&mut waiting, loss, now, out);
        }
        // What is promised is about predictions alone: no label is waited for.
        if !of.needs_label() && label.is_none() {
            self.done(id, None, &waiting);
            return;
        }
        self.totals.thinned += self.waiting.insert(id, waiting);
        if let Some(label) = label {
            self.labelled(id, &label, now, out);
        }
    }

    fn labelled(&mut self, id: &str, label: &str, now: u64, out: &mut Out) {
        self.totals.labels += 1;
        if let Some(live) = self.live.get_mut(id) {
            live.label = Some(label.to_owned());
            return;
        }
        let Some(mut waiting) = self.waiting.remove(id) else {
            return;
        };
        if let Some(loss) = waiting.kept.loss(Some(label), self.rule.terms().loss) {
            self.settle(&mut waiting, loss, now, out);
        }
        self.done(id, Some(label), &waiting);
    }

    /// An audit that goes into the next trace file.
    fn done(&mut self, id: &str, label: Option<&str>, waiting: &Waiting) {
        let names = Names {
            group: self.rule.terms().by.as_deref(),
            unit: self.rule.terms().unit.as_deref(),
            costs: Some(self.rule.terms().cost_column().unwrap_or(COSTS)),
        };
        if let Some(trace) = waiting.kept.trace(id, label, names) {
            self.done.push((waiting.began, trace));
        }
    }

    fn settle(&mut self, waiting: &mut Waiting, loss: bool, now: u64, out: &mut Out) {
        if let (Some(monitor), Some(pending)) = (&mut self.monitor, waiting.pending.take()) {
            let alarm = monitor.settle(pending, loss);
            self.alarm(alarm, now, out);
        }
    }

    fn alarm(&mut self, alarm: Option<Alarm>, now: u64, out: &mut Out) {
        let Some(alarm) = alarm else { return };
        self.alarm_at = Some(now);
        out.record(&Record::Alarm { at: now });
        if let Ok(alarm) = serde_json::to_string(&alarm) {
            out.events.push(format!("{{\"alarm\":{alarm}}}"));
        }
    }

    /// Reads a record of the log back. Returns whether all was stored at the end.
    pub(crate) fn replay(&mut self, record: &str) -> Result<bool, String> {
        let record: Record = serde_json::from_str(record)
            .map_err(|e| format!("it is no record of this version: {e}"))?;
        // What it would write was written before.
        let mut out = Out::default();
        match record {
            Record::Begin {
                id,
                at,
                group,
                unit,
            } => self.begun(&id, at, (group, unit), &mut out),
            Record::Halt(halt) => self.halted_there(&halt, 0, &mut out),
            Record::Audited { id, kept } => self.audited(&id, kept.weighed(), 0, &mut out),
            Record::Lost { id } => drop(self.lost(&id)),
            Record::Label { id, label } => self.labelled(&id, &label, 0, &mut out),
            // The monitor has raised it; only its time is not known yet.
            Record::Alarm { at } => {
                self.alarm_at = Some(at);
                self.latest = self.latest.max(at);
            }
            Record::Rule {
                renewal,
                given,
                rule,
            } => {
                let parsed = parse(&rule)?;
                self.renewed(renewal, given, parsed, rule);
            }
            Record::State {
                renewal,
                given,
                alarmed,
                first_delta,
                rule,
                monitor,
                alarm_at,
                totals,
                halted_at,
                careful_until,
            } => {
                self.rule = Arc::new(parse(&rule)?);
                self.rule_json = rule;
                (self.renewal, self.given, self.alarmed) = (renewal, given, alarmed);
                // Stores of before it was kept: whatever rule is here was let in at its share.
                let at_its_share = self.rule.delta().get() / (2.0 * share(renewal));
                self.first_delta = first_delta.unwrap_or(at_its_share);
                self.watch();
                (self.monitor, self.alarm_at, self.totals) = (*monitor, alarm_at, totals);
                if halted_at.len() == self.halted_at.len() {
                    self.halted_at = halted_at;
                }
                self.careful_until = careful_until;
                self.latest = self.latest.max(alarm_at.unwrap_or(0));
            }
            Record::Live { id, mut live } => {
                live.kept = live.kept.weighed();
                self.latest = self.latest.max(live.began);
                self.put_live(&id, live);
            }
            Record::Waiting { id, mut waiting } => {
                waiting.kept = waiting.kept.weighed();
                self.latest = self.latest.max(waiting.began);
                self.waiting.insert(&id, waiting);
            }
            Record::Done { began, trace } => {
                self.latest = self.latest.max(began);
                self.done.push((began, trace));
            }
            Record::Older { renewal, rule } => {
                let mut streams = Streams::new(self.settings.limits);
                streams.set_clock(self.streams.clock());
                self.older.push(Older {
                    renewal,
                    rule: Arc::new(parse(&rule)?),
                    rule_json: rule,
                    streams,
                });
            }
            Record::Open { id, state, renewal } => {
                let older = self.older.iter_mut();
                let mut older = older.filter(|older| Some(older.renewal) == renewal);
                let streams = older.next().map(|older| &mut older.streams);
                streams.unwrap_or(&mut self.streams).restore(&id, state);
            }
            Record::Closed => return Ok(true),
        }
        Ok(false)
    }

    /// The records that bring this state back: without open streams, which a
    /// server that is killed forgets, or with all of them.
    pub(crate) fn state(&mut self, closing: bool) -> Vec<String> {
        let mut records = self.begin_copy();
        while let Some(part) = self.copy_waiting() {
            records.extend(part);
        }
        if closing {
            records.extend(self.open_records());
        }
        records
    }

    /// The same without open streams and without the audits that wait for a label, which
    /// [`copy_waiting`](Self::copy_waiting) gives as they are now, whatever becomes of them.
    pub(crate) fn begin_copy(&mut self) -> Vec<String> {
        let mut out = Out::default();
        out.record(&Record::State {
            renewal: self.renewal,
            given: self.given.clone(),
            alarmed: self.alarmed.clone(),
            first_delta: Some(self.first_delta),
            rule: self.rule_json.clone(),
            monitor: Box::new(self.monitor.clone()),
            alarm_at: self.alarm_at,
            totals: self.totals,
            halted_at: self.halted_at.clone(),
            careful_until: self.careful_until,
        });
        for (id, live) in &self.live {
            let record = serde_json::to_string(&Borrowed::Live { id, live });
            out.records.extend(record);
        }
        for (began, trace) in &self.done {
            out.record(&Record::Done {
                began: *began,
                trace: trace.clone(),
            });
        }
        self.waiting.begin_copy();
        out.records
    }

    /// The next records of audits that wait for a label, so few that no stream has to wait for
    /// long. `None` once there are no more.
    pub(crate) fn copy_waiting(&mut self) -> Option<Vec<String>> {
        self.waiting.copy_part(PART)
    }

    /// The records of open streams, and that these are all.
    fn open_records(&self) -> Vec<String> {
        let mut out = Out::default();
        let open = |streams: &Streams, renewal: Option<u32>, out: &mut Out| {
            for (id, state) in streams.iter() {
                out.record(&Record::Open {
                    id: id.to_owned(),
                    state: state.clone(),
                    renewal,
                });
            }
        };
        open(&self.streams, None, &mut out);
        for older in &self.older {
            out.record(&Record::Older {
                renewal: older.renewal,
                rule: older.rule_json.clone(),
            });
            open(&older.streams, Some(older.renewal), &mut out);
        }
        out.record(&Record::Closed);
        out.records
    }

    /// The labelled audits that are in no trace file yet: when they began, and the line.
    pub(crate) fn done_audits(&self) -> &[(u64, String)] {
        &self.done
    }

    /// The first ones, this many, are in a trace file now. Returns them, for they are not
    /// gone before the log says so too.
    pub(crate) fn take_done(&mut self, traces: usize) -> Vec<(u64, String)> {
        self.done.drain(..traces.min(self.done.len())).collect()
    }

    /// The log does not say so.
    pub(crate) fn put_back(&mut self, done: Vec<(u64, String)>) {
        self.done.splice(..0, done);
    }

    /// Drops audits that began before a time and still wait for a label.
    pub(crate) fn drop_waiting_before(&mut self, began: u64) {
        self.waiting.drop_before(began);
    }

    /// All that is told of it.
    #[cfg(test)]
    pub(crate) fn status(&self) -> crate::status::Status {
        crate::status::status(|| self)
    }
}

fn parse(json: &str) -> Result<Rule, String> {
    haltwise_io::parse_rule(json.as_bytes())
}
