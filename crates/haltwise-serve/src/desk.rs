//! What a server knows of one rule: its open streams, its audits, its monitor. A
//! machine without files, network or clock: lines and times go in, answers and
//! records for the log come out, and the records alone bring it back.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use haltwise::monitor::{Alarm, Monitor, Verdict, Watch};
use haltwise::plan::Delta;
use haltwise::stream::{Limits, Message, Outcome, Reason, State, Streams};
use haltwise::terms::{LABEL, Loss};
use haltwise::{Rule, Step};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;

use crate::kept::{Kept, Names};
use crate::line::{Line, json_class};
use crate::record::{Borrowed, Live, Record, Totals, Waiting};

/// Monitors of all servers count by the same calendar: blocks of ten minutes.
const CALENDAR: u64 = 600_000;

/// The most audited streams that wait for a label; the oldest give way.
const MOST_WAITING: usize = 100_000;

/// The most ids that are told to want a label.
const MOST_WANTED: usize = 100;

/// The column of costs, where the rule has no other.
pub(crate) const COSTS: &str = "cost";

/// The groups that are watched one by one. Where they are the true classes, which
/// are known late or never, all streams are watched together: a promise that holds
/// in every group holds for all.
fn watched_groups(rule: &Rule) -> &[String] {
    match rule.terms().by.as_deref() {
        Some(LABEL) | None => &[],
        Some(_) => rule.groups(),
    }
}

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

/// What is asked for by `status`.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Which rule this is, counted from 1: each renewal is one more.
    pub renewal: u32,
    /// Open streams.
    pub open: usize,
    /// Whether streams are read to their end because of an alarm.
    pub reading_on: bool,
    /// When the alarm was raised, in milliseconds since 1970.
    pub alarm_time: Option<u64>,
    /// The delta that the next rule must be calibrated with, at the most.
    pub next_delta: f64,
    /// How many audited streams wait for a label.
    pub waiting: usize,
    /// What happened so far.
    pub totals: Totals,
    /// How many streams halted at each step, from 1; the last for all after it.
    pub halted_at: Vec<u64>,
    /// What the monitor says; `None` if the rule promises nothing.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
    /// The ids most worth a label.
    pub labels_wanted: Vec<serde_json::Value>,
    /// The groups that are watched, in the order of `worst_group`; none where all
    /// streams are watched together.
    pub groups: Vec<String>,
}

/// An older rule whose streams are not over yet.
#[derive(Debug)]
struct Older {
    rule: Arc<Rule>,
    streams: Streams,
}

/// The state of one rule.
#[derive(Debug)]
pub(crate) struct Desk {
    settings: Settings,
    rule: Arc<Rule>,
    rule_json: String,
    /// Digests of the rule files that the server was started with.
    given: Vec<String>,
    renewal: u32,
    streams: Streams,
    older: Vec<Older>,
    monitor: Option<Monitor>,
    alarm_at: Option<u64>,
    live: HashMap<Box<str>, Live>,
    waiting: HashMap<Box<str>, Waiting>,
    waiting_order: VecDeque<Box<str>>,
    /// Labelled audits that are in no trace file yet: when they began, and the line.
    done: Vec<(u64, String)>,
    /// Until when a stream that is not known must say that it begins.
    careful_until: u64,
    totals: Totals,
    halted_at: Vec<u64>,
    rng: SmallRng,
}

/// The digest that tells rule files apart.
pub(crate) fn digest(json: &str) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(json.as_bytes()))
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
            rule: Arc::new(rule),
            rule_json,
            given,
            renewal: 1,
            older: Vec::new(),
            monitor: None,
            alarm_at: None,
            live: HashMap::new(),
            waiting: HashMap::new(),
            waiting_order: VecDeque::new(),
            done: Vec::new(),
            careful_until: 0,
            totals: Totals::default(),
            halted_at: Vec::new(),
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
        let groups = watched_groups(&self.rule).len();
        let watch = Watch::of(&self.rule, delta);
        self.monitor = watch.map(|watch| Monitor::new(watch.in_groups(groups)));
        self.alarm_at = None;
        self.halted_at = vec![0; self.rule.t_max() + 1];
    }

    pub(crate) fn rule(&self) -> &Arc<Rule> {
        &self.rule
    }

    pub(crate) fn rule_json(&self) -> &str {
        &self.rule_json
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn open(&self) -> usize {
        self.streams.len() + self.older.iter().map(|o| o.streams.len()).sum::<usize>()
    }

    pub(crate) fn monitor(&self) -> Option<&Monitor> {
        self.monitor.as_ref()
    }

    pub(crate) fn renewal(&self) -> u32 {
        self.renewal
    }

    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether streams are read to their end because of an alarm.
    pub(crate) fn reading_on(&self) -> bool {
        self.alarm_at.is_some() && self.settings.on_alarm == OnAlarm::ReadOn
    }

    /// The largest delta that the next rule may have. The shares of all rules
    /// that were ever in use, at twice the first one's delta, add up to that: so
    /// with that probability no promise of any of them was ever wrong.
    pub(crate) fn next_delta(&self) -> f64 {
        2.0 * self.first_delta() * share(self.renewal + 1)
    }

    fn first_delta(&self) -> f64 {
        // Whatever rule is here was let in at its share.
        self.rule.delta().get() / (2.0 * share(self.renewal))
    }

    /// Says what time it is, before the first stream is taken up.
    pub(crate) fn set_clock(&mut self, now: u64) {
        self.streams.set_clock((now / 1000) as u32);
    }

    /// Streams that are not known must say that they begin, until a time: they may
    /// have been open when the server was killed.
    pub(crate) fn be_careful(&mut self, now: u64) {
        self.careful_until = now + 1000 * u64::from(self.settings.idle);
    }

    /// Takes a line.
    pub(crate) fn take(&mut self, now: u64, line: &Line<'_>, out: &mut Out) -> Result<(), Fault> {
        let taken = self.take_line(now, line, out);
        self.totals.faults += u64::from(taken.is_err());
        taken
    }

    /// Takes a line that may come twice: it must say which step it is, and one that
    /// came before is passed over.
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
            Some(steps) if t <= steps => Ok(()),
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
        let older = self.older.iter().map(|older| &older.streams);
        let mut tables = older.chain([&self.streams]);
        let state = tables.find_map(|streams| streams.get(id));
        state.map(|state| u64::from(state.steps()))
    }

    fn take_line(&mut self, now: u64, line: &Line<'_>, out: &mut Out) -> Result<(), Fault> {
        let id = &*line.id;
        let old = self
            .older
            .iter()
            .position(|older| older.streams.get(id).is_some());
        let known = old.is_some() || self.streams.get(id).is_some();
        if !known && line.has_step() && now < self.careful_until && line.t != Some(1) {
            let problem = format!("stream {id} is not known since the server started again");
            return Err(Fault::new(FaultKind::BeginAgain, problem, BEGIN_AGAIN));
        }
        // An old stream of this id has vanished, or another has taken its place.
        if !known && line.has_step() {
            self.lose(id, out);
        }
        let group = match !known && line.has_step() {
            true => self.group(line)?,
            false => None,
        };
        let audited =
            known && self.live.contains_key(id) || !known && line.has_step() && self.draws();
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
        let outcome = streams.take(&rule, id, message).map_err(|refusal| {
            let problem = line.refused(&refusal);
            match refusal {
                haltwise::stream::Refusal::NoRoom { .. } => {
                    Fault::new(FaultKind::Full, problem, "try again later")
                }
                _ => Fault::new(FaultKind::Unusable, problem, SEE_LINES),
            }
        })?;
        self.totals.observations += u64::from(line.has_step());
        self.totals.streams += u64::from(!known);
        if audited && !known {
            self.begin(id, now, group, out);
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
            live.kept.push(line);
        }
        if let Outcome::Taken(taken) = &outcome
            && let Some(reason) = taken.halted
        {
            let early = reason == Reason::Threshold && !line.end;
            self.halts(&rule, now, (id, early), taken.steps, reason, out);
        }
        self.end_audit(&rule, now, line, out);
        match faults {
            None => Ok(()),
            Some(problem) => Err(Fault::new(FaultKind::Unusable, problem, SEE_LINES)),
        }
    }

    /// Whether the next stream is audited.
    fn draws(&mut self) -> bool {
        self.rng.random_bool(self.settings.audit)
    }

    /// The group of a stream that begins with a line, where the promise is by group.
    fn group(&self, line: &Line<'_>) -> Result<Option<String>, Fault> {
        let groups = watched_groups(&self.rule);
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

    /// An audited stream begins.
    fn begin(&mut self, id: &str, now: u64, group: Option<String>, out: &mut Out) {
        self.begun(id, now, group.clone());
        let id = id.to_owned();
        out.record(&Record::Begin { id, at: now, group });
    }

    /// A stream halts. It is early where there was more to come.
    fn halts(
        &mut self,
        rule: &Rule,
        now: u64,
        (id, early): (&str, bool),
        t: u32,
        reason: Reason,
        out: &mut Out,
    ) {
        let audit = self.live.contains_key(id);
        self.totals.halted += u64::from(early);
        self.totals.ended += u64::from(!early);
        if early && !rule.reads_on() {
            self.totals.steps_saved += (rule.t_max() as u64).saturating_sub(t.into());
        }
        if let Some(last) = self.halted_at.len().checked_sub(1) {
            self.halted_at[(t as usize).saturating_sub(1).min(last)] += 1;
        }
        if audit {
            self.halted(id, t, now, out);
        }
        out.record(&Record::Halt {
            id: id.to_owned(),
            t,
            reason,
            audit,
        });
        let go_on = if audit && early {
            ",\"audit\":true"
        } else {
            ""
        };
        let answer = format!("{{\"id\":{id},\"t\":{t},\"reason\":\"{reason}\"{go_on}}}");
        out.answers += &answer;
        out.answers.push('\n');
        out.events.push(format!("{{\"halt\":{answer}}}"));
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
            self.audited(id, Some(kept), now, out);
        }
    }

    // Streams whose steps are not seen here: whoever runs one asks the rule, and says
    // where it began, halted and ended.

    /// A stream begins. Returns its id, as JSON, and whether it is audited.
    pub(crate) fn begin_told(&mut self, now: u64, out: &mut Out) -> (String, bool) {
        let id = format!("\"{:016x}\"", self.rng.random::<u64>());
        self.totals.streams += 1;
        let audited = self.draws();
        if audited {
            self.begin(&id, now, None, out);
        }
        (id, audited)
    }

    /// It halts at step `t`, counted from 1.
    pub(crate) fn halt_told(&mut self, now: u64, id: &str, t: u32, reason: Reason, out: &mut Out) {
        let rule = Arc::clone(&self.rule);
        self.totals.observations += u64::from(t);
        self.halts(
            &rule,
            now,
            (id, reason == Reason::Threshold),
            t,
            reason,
            out,
        );
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
        if !self.live.contains_key(id) && !self.waiting.contains_key(id) {
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
        let seconds = (now / 1000) as u32;
        let before = seconds.saturating_sub(self.settings.idle);
        let mut closed = Vec::new();
        let tables = self.older.iter_mut().map(|older| &mut older.streams);
        for streams in tables.chain([&mut self.streams]) {
            streams.set_clock(seconds);
            streams.close_idle(before, |id, _| closed.push(id.to_owned()));
        }
        self.totals.idle += closed.len() as u64;
        for id in closed {
            self.lose(&id, out);
        }
        self.older.retain(|older| !older.streams.is_empty());
    }

    /// An audited stream that is under way will never come to its end.
    pub(crate) fn lose(&mut self, id: &str, out: &mut Out) {
        if self.live.remove(id).is_some() {
            out.record(&Record::Lost { id: id.to_owned() });
        }
    }

    /// Puts another rule in the place of this one, for streams that begin from now
    /// on. Those that are open go on with the rule that they began with.
    pub(crate) fn renew(
        &mut self,
        rule: Rule,
        json: String,
        given: Option<String>,
        out: &mut Out,
    ) -> Result<(), Fault> {
        let next = self.next_delta();
        if rule.promise().is_none() {
            let problem = "the rule was screened, not certified: it promises nothing";
            let remedy = "calibrate one with another method";
            return Err(Fault::new(FaultKind::Unusable, problem, remedy));
        }
        // Rounding of what was printed is no reason to refuse.
        if rule.delta().get() > next * (1.0 + 1e-9) {
            let problem = format!(
                "the rule was calibrated with delta {}, and this renewal may spend {next}",
                rule.delta().get()
            );
            let remedy = "calibrate with --delta as \"next_delta\" in status says";
            return Err(Fault::new(FaultKind::Unusable, problem, remedy));
        }
        let given = given.unwrap_or_else(|| digest(&json));
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
        let old = std::mem::replace(&mut self.rule, Arc::new(rule));
        let mut fresh = Streams::new(self.settings.limits);
        fresh.set_clock(self.streams.clock());
        let streams = std::mem::replace(&mut self.streams, fresh);
        if !streams.is_empty() {
            self.older.push(Older { rule: old, streams });
        }
        self.rule_json = json;
        self.given.push(given);
        self.renewal = renewal;
        // Audits of the old rule are none of the new one; what they said stays in
        // the trace files.
        self.live.clear();
        for waiting in self.waiting.values_mut() {
            waiting.pending = None;
        }
        self.watch();
    }

    /// Whether the server was started with a rule file before.
    pub(crate) fn knows(&self, digest: &str) -> bool {
        self.given.iter().any(|given| given == digest)
    }

    // What follows happens in the same way live and when the log is read back.

    fn begun(&mut self, id: &str, at: u64, group: Option<String>) {
        let groups = watched_groups(&self.rule);
        let place = groups.iter().position(|g| Some(g) == group.as_ref());
        let running = self
            .monitor
            .as_mut()
            .map(|monitor| monitor.begin(at / CALENDAR, place.unwrap_or(0)));
        let live = Live {
            began: at,
            running,
            kept: Kept::new(group),
            ..Live::default()
        };
        self.live.insert(id.into(), live);
    }

    fn halted(&mut self, id: &str, t: u32, now: u64, out: &mut Out) {
        let Some(live) = self.live.get_mut(id) else {
            return;
        };
        live.t = t;
        live.kept.halt();
        if let (Some(monitor), Some(running)) = (&mut self.monitor, live.running.take()) {
            let (pending, alarm) = monitor.halt(running, t);
            live.pending = Some(pending);
            self.alarm(alarm, now, out);
        }
    }

    /// An audited stream is over. `kept` is what the log has of it.
    fn audited(&mut self, id: &str, kept: Option<Kept>, now: u64, out: &mut Out) {
        let Some(live) = self.live.remove(id) else {
            return;
        };
        self.totals.audited += 1;
        let kept = kept.unwrap_or(live.kept);
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
        if of == Loss::Disagreement && label.is_none() {
            self.done(id, None, &waiting);
            return;
        }
        let id: Box<str> = id.into();
        if self.waiting.insert(id.clone(), waiting).is_none() {
            self.waiting_order.push_back(id.clone());
        }
        if let Some(label) = label {
            self.labelled(&id, &label, now, out);
        }
        while self.waiting.len() > MOST_WAITING {
            let Some(oldest) = self.waiting_order.pop_front() else {
                break;
            };
            self.waiting.remove(&oldest);
        }
        if self.waiting_order.len() > 2 * MOST_WAITING {
            let waiting = &self.waiting;
            self.waiting_order.retain(|id| waiting.contains_key(id));
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
            Record::Begin { id, at, group } => {
                self.begun(&id, at, group);
                self.totals.streams += 1;
            }
            Record::Halt {
                id,
                t,
                reason,
                audit,
            } => {
                if audit {
                    self.halted(&id, t, 0, &mut out);
                }
                let early = reason == Reason::Threshold;
                self.totals.halted += u64::from(early);
                self.totals.ended += u64::from(!early);
                if let Some(last) = self.halted_at.len().checked_sub(1) {
                    self.halted_at[(t as usize).saturating_sub(1).min(last)] += 1;
                }
            }
            Record::Audited { id, kept } => self.audited(&id, Some(kept), 0, &mut out),
            Record::Lost { id } => drop(self.live.remove(&*id)),
            Record::Label { id, label } => self.labelled(&id, &label, 0, &mut out),
            // The monitor has raised it; only its time is not known yet.
            Record::Alarm { at } => self.alarm_at = Some(at),
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
                rule,
                monitor,
                alarm_at,
                totals,
            } => {
                self.rule = Arc::new(parse(&rule)?);
                self.rule_json = rule;
                (self.renewal, self.given) = (renewal, given);
                self.watch();
                (self.monitor, self.alarm_at, self.totals) = (*monitor, alarm_at, totals);
            }
            Record::Live { id, live } => drop(self.live.insert(id.into(), live)),
            Record::Waiting { id, waiting } => {
                let id: Box<str> = id.into();
                self.waiting_order.push_back(id.clone());
                self.waiting.insert(id, waiting);
            }
            Record::Done { began, trace } => self.done.push((began, trace)),
            Record::Open { id, state } => drop(self.streams.restore(&id, state)),
            Record::Closed => return Ok(true),
        }
        Ok(false)
    }

    /// What was running when the server was killed is not known any more.
    pub(crate) fn forget_running(&mut self) {
        self.live.clear();
    }

    /// The records that bring this state back: without open streams, which a
    /// server that is killed forgets, or with all of them.
    pub(crate) fn state(&self, closing: bool) -> Vec<String> {
        let mut out = Out::default();
        out.record(&Record::State {
            renewal: self.renewal,
            given: self.given.clone(),
            rule: self.rule_json.clone(),
            monitor: Box::new(self.monitor.clone()),
            alarm_at: self.alarm_at,
            totals: self.totals,
        });
        let text = |record: Borrowed<'_>| serde_json::to_string(&record).ok();
        for (id, live) in &self.live {
            out.records.extend(text(Borrowed::Live { id, live }));
        }
        for id in &self.waiting_order {
            if let Some(waiting) = self.waiting.get(id) {
                out.records.extend(text(Borrowed::Waiting { id, waiting }));
            }
        }
        for (began, trace) in &self.done {
            out.record(&Record::Done {
                began: *began,
                trace: trace.clone(),
            });
        }
        if closing {
            let open = |id: &str, state: &State| Record::Open {
                id: id.to_owned(),
                state: state.clone(),
            };
            for (id, state) in self.streams.iter() {
                out.record(&open(id, state));
            }
            // What runs under an older rule must begin again.
            if self.older.is_empty() {
                out.record(&Record::Closed);
            }
        }
        out.records
    }

    /// The labelled audits that are in no trace file yet, and when the alarm was
    /// raised.
    pub(crate) fn to_file(&self) -> (&[(u64, String)], Option<u64>) {
        (&self.done, self.alarm_at)
    }

    /// The first ones, this many, are in a trace file now.
    pub(crate) fn filed(&mut self, traces: usize) {
        self.done.drain(..traces.min(self.done.len()));
    }

    /// The ids of audited streams whose label would tell the most.
    pub(crate) fn labels_wanted(&self) -> Vec<serde_json::Value> {
        let Some(monitor) = &self.monitor else {
            return Vec::new();
        };
        let pending = self.waiting.iter().filter_map(|(id, waiting)| {
            let told = waiting.kept.predicted().is_some();
            Some((id, waiting.pending.as_ref().filter(|_| told)?))
        });
        let (ids, pending): (Vec<_>, Vec<_>) = pending.unzip();
        let worth = monitor.worth(pending);
        let mut order: Vec<usize> = (0..ids.len()).collect();
        // Ties by id, so that the same state says the same.
        order.sort_by(|&a, &b| worth[b].total_cmp(&worth[a]).then(ids[a].cmp(ids[b])));
        let json = |i: usize| serde_json::from_str(ids[i]).unwrap_or_default();
        order.into_iter().take(MOST_WANTED).map(json).collect()
    }

    pub(crate) fn status(&self) -> Status {
        Status {
            renewal: self.renewal,
            open: self.open(),
            reading_on: self.reading_on(),
            alarm_time: self.alarm_at,
            next_delta: self.next_delta(),
            waiting: self.waiting.len(),
            totals: self.totals,
            halted_at: self.halted_at.clone(),
            verdict: self.monitor.as_ref().map(Monitor::verdict),
            labels_wanted: self.labels_wanted(),
            groups: watched_groups(&self.rule).to_vec(),
        }
    }
}

fn parse(json: &str) -> Result<Rule, String> {
    haltwise_io::parse_rule(json.as_bytes())
}
