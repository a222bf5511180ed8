use std::num::NonZeroUsize;

use haltwise::monitor::UnitKey;
use haltwise::stream::Reason;
use haltwise::{Inputs, Method, Outputs, Plan, Sequence};
use rand::RngExt;

use super::*;
use crate::audit_trace::AuditTrace;
use crate::fault::{Fault, FaultKind};
use crate::line::Line;

/// What a rule promises something about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum About {
    Streams,
    Sites,
    Machines,
}

/// A rule that halts at step 2 of 4, where the score reaches 0.5.
pub(crate) fn rule(delta: f64) -> (Rule, String) {
    rule_about(About::Streams, delta)
}

fn rule_about(about: About, delta: f64) -> (Rule, String) {
    let mut outputs = Outputs::new();
    for id in 0..4000_u32 {
        let label = id / 2 % 2;
        let site = ["north", "south"][id as usize % 2];
        let machine = format!("m{}", id / 4);
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(label),
            predictions: Some(&[0, label, label, label]),
            scores: Some(&[0.1, 0.9, 0.9, 1.0]),
            about: haltwise::traces::About {
                group: (about == About::Sites).then_some(site),
                unit: (about == About::Machines).then_some(&*machine),
                ..Default::default()
            },
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let ask = haltwise::Ask {
        method: Some(Method::Conditional),
        delta: Some(delta),
        by: (about == About::Sites).then(|| "site".into()),
        unit: (about == About::Machines).then(|| "machine".into()),
        ..haltwise::Ask::default()
    };
    let plan = Plan::new(ask).unwrap();
    let rule = plan.calibrate(Inputs::one(&outputs)).unwrap().rule;
    let json = haltwise_io::rule_json(&rule).unwrap();
    (rule, json)
}

fn settings(audit: f64) -> Settings {
    Settings {
        audit,
        ..Settings::default()
    }
}

fn state(audit: f64) -> RuleState {
    let (rule, json) = rule(0.01);
    RuleState::new(rule, json, settings(audit), 1)
}

fn state_about(about: About, audit: f64) -> RuleState {
    let (rule, json) = rule_about(about, 0.01);
    RuleState::new(rule, json, settings(audit), 1)
}

/// A state with the log that it would have.
struct Logged {
    state: RuleState,
    log: Vec<String>,
    now: u64,
    first: (Rule, String),
    /// Streams whose steps are not seen here, with how many votes each has had.
    /// Each with its id, whether it is audited, its halt step if any, and its rule.
    told: Vec<(String, bool, u32, Arc<Rule>)>,
}

impl Logged {
    fn new(audit: f64) -> Self {
        Self::of(state(audit))
    }

    fn of(mut state: RuleState) -> Self {
        let now = 1_800_000_000_000;
        state.resume(now, true);
        let first = (Rule::clone(state.rule()), state.rule_json().to_owned());
        Self {
            state,
            log: Vec::new(),
            now,
            first,
            told: Vec::new(),
        }
    }

    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut RuleState, u64, &mut Effects) -> T,
    ) -> (T, Effects) {
        let mut out = Effects::default();
        let found = change(&mut self.state, self.now, &mut out);
        self.log.append(&mut out.records);
        (found, out)
    }

    /// Takes a line, and returns what is answered, or what is wrong.
    fn say(&mut self, line: &str) -> Result<String, Fault> {
        let line = Line::parse(line.as_bytes()).unwrap();
        let (taken, out) = self.change(|state, now, out| state.take(now, &line, out));
        taken.map(|()| out.answers)
    }

    /// A stream that halts at step 2 and is read to its end, step 4.
    fn stream(&mut self, id: usize, early: u32, full: u32) -> String {
        let mut said = String::new();
        for (score, class) in [(0.1, 9), (0.9, early), (0.9, 8), (0.9, full)] {
            let line = format!(r#"{{"id": {id}, "score": {score}, "prediction": {class}}}"#);
            said += &self.say(&line).unwrap();
        }
        said
    }

    fn label(&mut self, id: &str, label: &str) -> Result<(), Fault> {
        self.change(|state, now, out| state.label(now, id, label, out))
            .0
    }

    /// What a server that was killed knows after it started again.
    fn again(&self) -> RuleState {
        self.after(&self.log)
    }

    /// What one knows that finds these records.
    fn after(&self, log: &[String]) -> RuleState {
        // The rule of the file is the first; the log has all others.
        let (rule, json) = self.first.clone();
        let mut again = RuleState::new(rule, json, self.state.settings, 1);
        let closed = log
            .iter()
            .fold(true, |_, record| again.replay(record).unwrap());
        again.resume(self.now, closed);
        again
    }

    /// The server is told to end, and starts again.
    fn stop(&mut self) {
        self.log = self.state.records(true);
        self.state = self.again();
        self.log = self.state.records(false);
    }

    /// Something happens that may: a line, a label, time, another rule, or word of a stream
    /// whose steps are not seen here.
    fn chance(&mut self, rng: &mut SmallRng, rules: &[(Rule, String)]) -> String {
        let id = rng.random_range(0..8);
        match rng.random_range(0..200) {
            0..2 => {
                let (rule, json) = rules[rng.random_range(0..rules.len())].clone();
                let (renewed, _) = self.change(|state, _, out| state.renew(rule, json, out));
                format!("{renewed:?}")
            }
            2..40 => format!("{:?}", self.label(&id.to_string(), "1")),
            40..45 => {
                // Now and then so long that units are over.
                let longest = [1_000_000, 50_000_000][rng.random_range(0..2)];
                self.now += rng.random_range(0..longest);
                self.change(|state, now, out| state.tick(now, out))
                    .1
                    .answers
            }
            _ => {
                let score = [0.1, 0.9, 0.9][rng.random_range(0..3)];
                let end = rng.random_bool(0.15);
                // Where streams halt, they are often wrong, so that there are alarms.
                let live = self.state.running.get(&*id.to_string());
                let has_halted = live.is_some_and(|live| live.t > 0);
                let class = u32::from(rng.random_bool(if has_halted { 0.95 } else { 0.1 }));
                let t = ["", "", ",\"t\":1", ",\"t\":3"][rng.random_range(0..4)];
                let site = ["north", "south", "east"][rng.random_range(0..3)];
                let machine = rng.random_range(0..5);
                let about = format!(",\"group\":\"{site}\",\"unit\":{machine}");
                let step = format!(",\"score\":{score},\"prediction\":{class}{t}{about}");
                let step = if rng.random_bool(0.1) {
                    String::new()
                } else {
                    step
                };
                let line = format!("{{\"id\":{id}{step},\"end\":{end}}}");
                format!("{:?}", self.say(&line))
            }
        }
    }

    /// A stream whose steps are not seen here begins, halts, ends or is lost.
    fn tell(&mut self, rng: &mut SmallRng) {
        if self.told.len() < 4 {
            let ((id, audited), _) = self.change(|state, now, out| state.begin_reported(now, out));
            let rule = Arc::clone(self.state.rule());
            return self.told.push((id, audited, 0, rule));
        }
        let at = rng.random_range(0..self.told.len());
        let (id, audited, votes, rule) = self.told[at].clone();
        if votes == 0 && rng.random_bool(0.8) {
            let (t, reason) =
                [(2, Reason::Threshold), (4, Reason::LastStep)][rng.random_range(0..2)];
            self.change(|state, now, out| state.halt_reported(now, &id, t, reason, &rule, out));
            self.told[at].2 = t;
            return;
        }
        self.told.remove(at);
        if !audited || rng.random_bool(0.2) {
            self.change(|state, _, out| state.lose_audit(&id, out));
            return;
        }
        let mut kept = AuditTrace::default();
        for t in 1..=4 {
            kept.add(rng.random_range(0..2).to_string(), 0.5, 30.0);
            if t == votes {
                kept.halt();
            }
        }
        self.change(|state, now, out| state.end_reported(now, &id, kept, out));
    }
}

/// Rules that may follow each other.
fn several(about: About) -> Vec<(Rule, String)> {
    [0.01, 0.003, 0.001, 0.0005]
        .map(|delta| rule_about(about, delta))
        .into()
}

const ABOUT: [About; 3] = [About::Streams, About::Sites, About::Machines];

#[test]
fn whoever_is_stopped_and_started_goes_on_as_if_nothing_had_been() {
    let (mut swaps, mut alarms, mut older) = (0, 0, 0);
    for about in ABOUT {
        let rules = several(about);
        let first = |settings| {
            let (rule, json) = rules[0].clone();
            Logged::of(RuleState::new(rule, json, settings, 1))
        };
        for seed in 0..12 {
            let mut rng = SmallRng::seed_from_u64(seed);
            let mut settings = settings(1.0);
            // A stream that goes on is closed later than one that was never stored.
            settings.idle = u32::MAX;
            // So that short histories have alarms.
            settings.delta = Delta::try_from(0.9).unwrap();
            let (mut one, mut stopped) = (first(settings), first(settings));
            for _ in 0..1000 {
                let mut same = rng.clone();
                let said = one.chance(&mut rng, &rules);
                assert_eq!(stopped.chance(&mut same, &rules), said);
                if rng.random_bool(0.05) {
                    older += usize::from(!stopped.state.replaced.is_empty());
                    stopped.stop();
                }
                assert_eq!(
                    known(&stopped.state),
                    known(&one.state),
                    "{about:?}, seed {seed}"
                );
                assert_eq!(stopped.state.open(), one.state.open());
                assert_eq!(stopped.state.halted(), one.state.halted());
            }
            swaps += one.state.renewal - 1;
            alarms += one.state.alarmed.len() + usize::from(one.state.reading_on());
        }
    }
    assert!(
        swaps > 100 && alarms > 10 && older > 100,
        "{swaps} {alarms} {older}"
    );
}

#[test]
fn whatever_was_acknowledged_before_a_kill_is_known_after_it() {
    // How much of each there was, so that none is left out by chance.
    let (mut swaps, mut alarms, mut idle, mut evicted, mut told) = (0, 0, 0, 0, 0);
    for (about, seed) in ABOUT
        .into_iter()
        .flat_map(|about| (0..30).map(move |seed| (about, seed)))
    {
        let rules = several(about);
        let mut rng = SmallRng::seed_from_u64(1000 + seed);
        let mut settings = settings(0.7);
        // So that short histories have alarms.
        settings.delta = Delta::try_from(0.9).unwrap();
        settings.limits.open = NonZeroUsize::new(3 + seed as usize % 6).unwrap();
        let (rule, json) = rules[0].clone();
        let mut all = Logged::of(RuleState::new(rule, json, settings, 1));
        let mut then = Vec::new();
        for _ in 0..300 {
            let lost = |all: &Logged| {
                let lost = |record: &&String| record.starts_with("{\"lost\"");
                all.log.iter().filter(lost).count()
            };
            let (lost_before, idle_before) = (lost(&all), all.state.totals.idle);
            if about == About::Streams && rng.random_bool(0.2) {
                all.tell(&mut rng);
                told += 1;
            } else {
                all.chance(&mut rng, &rules);
                if all.state.totals.idle == idle_before {
                    evicted += lost(&all) - lost_before;
                }
            }
            then.push((all.log.len(), known(&all.state)));
            if rng.random_bool(0.01) {
                all.log = all.state.records(false);
                then.clear();
            }
        }
        for (records, before) in then.iter().step_by(7) {
            let mut again = all.after(&all.log[..*records]);
            assert_eq!(&known(&again), before, "{about:?}, seed {seed}");
            // And once more after what a server writes when it starts.
            let twice = all.after(&again.records(false));
            assert_eq!(&known(&twice), before, "{about:?}, seed {seed}");
        }
        // Unacknowledged records may be there in part.
        for records in 0..all.log.len() {
            let again = all.after(&all.log[..records]);
            let alarm = again.monitor.as_ref().unwrap().alarm().is_some();
            assert_eq!(
                (again.reading_on(), again.alarm_at.is_some()),
                (alarm, alarm)
            );
        }
        swaps += all.state.renewal - 1;
        alarms += all.state.alarmed.len() + usize::from(all.state.reading_on());
        idle += all.state.totals.idle;
    }
    let all = [swaps as usize, alarms, idle as usize, evicted, told];
    assert!(all.iter().all(|&n| n > 10), "{all:?}");
}

#[test]
fn a_copy_that_is_made_in_parts_is_of_one_moment() {
    let (mut parts, mut swaps) = (0, 0);
    for (about, seed) in ABOUT
        .into_iter()
        .flat_map(|about| (0..30).map(move |seed| (about, seed)))
    {
        let rules = several(about);
        let mut rng = SmallRng::seed_from_u64(2000 + seed);
        let mut settings = settings(1.0);
        // So that short histories have alarms.
        settings.delta = Delta::try_from(0.9).unwrap();
        let (rule, json) = rules[0].clone();
        let mut all = Logged::of(RuleState::new(rule, json, settings, 1));
        for _ in 0..200 {
            all.chance(&mut rng, &rules);
        }
        // What happens between two parts is in the log after the copy.
        let mut log = all.state.begin_copy();
        let (begun, renewal) = (all.log.len(), all.state.renewal);
        while let Some(part) = all.state.unlabelled.copy_part(1) {
            log.extend(part);
            parts += 1;
            for _ in 0..10 {
                all.chance(&mut rng, &rules);
            }
        }
        log.extend_from_slice(&all.log[begun..]);
        assert_eq!(
            known(&all.after(&log)),
            known(&all.state),
            "{about:?}, seed {seed}"
        );
        swaps += all.state.renewal - renewal;
    }
    assert!(parts > 100 && swaps > 5, "{parts} {swaps}");
}

#[test]
fn an_answer_that_was_lost_is_given_again() {
    for audit in [0.0, 1.0] {
        let mut all = Logged::new(audit);
        let said = all.stream(1, 1, 1);
        let first = said.lines().next().unwrap();
        let before = (known(&all.state), all.state.totals, all.log.len());
        // The step at which it halted; its audit is over, and so is the stream for it.
        let again = all
            .say(r#"{"id": 1, "t": 2, "score": 0.9, "prediction": 1}"#)
            .unwrap();
        assert_eq!(again.trim_end(), first.replace(",\"audit\":true", ""));
        // Another is not answered.
        let later = all.say(r#"{"id": 1, "t": 3, "score": 0.9}"#).unwrap();
        assert_eq!(later, "");
        assert_eq!(before.2, all.log.len());
        assert_eq!(before.0, known(&all.state));
    }
    // While it is audited, it is asked to go on again, and its trace stays whole.
    let mut all = Logged::new(1.0);
    all.say(r#"{"id": 1, "t": 1, "score": 0.1, "prediction": 1}"#)
        .unwrap();
    let halts = r#"{"id": 1, "t": 2, "score": 0.9, "prediction": 1}"#;
    let said = all.say(halts).unwrap();
    assert!(said.contains("\"audit\":true"), "{said}");
    assert_eq!(all.say(halts).unwrap(), said);
    for t in [3, 4] {
        let line = format!(r#"{{"id": 1, "t": {t}, "score": 0.9, "prediction": 1}}"#);
        all.say(&line).unwrap();
    }
    all.label("1", "1").unwrap();
    assert_eq!(all.state.unfiled.len(), 1);
}

#[test]
fn a_stream_that_makes_room_ends_its_audit() {
    let mut all = Logged::new(1.0);
    let open = NonZeroUsize::new(10).unwrap();
    all.state.settings.limits.open = open;
    all.state.streams = Streams::new(all.state.settings.limits);
    for id in 0..1000 {
        for score in [0.1, 0.9] {
            let line = format!(r#"{{"id": {id}, "score": {score}, "prediction": 1}}"#);
            all.say(&line).unwrap();
        }
    }
    assert_eq!(
        (
            all.state.running.len(),
            all.state.halted(),
            all.state.open()
        ),
        (10, 10, 0)
    );
    known(&all.state);
    assert_eq!(all.again().running.len(), 0);
}

#[test]
fn the_state_is_held_for_a_part_of_what_waits_at_a_time() {
    let mut all = Logged::new(1.0);
    for id in 0..20_000 {
        for (score, class, end) in [(0.1, 0, false), (0.9, 0, false), (0.9, 1, true)] {
            let step = format!(r#""score":{score},"prediction":{class},"end":{end}"#);
            all.say(&format!(r#"{{"id":{id},{step}}}"#)).unwrap();
        }
        all.log.clear();
    }
    let held = std::cell::Cell::new(0);
    let status = crate::status::status(|| {
        held.set(held.get() + 1);
        &all.state
    });
    assert_eq!((status.waiting, status.labels_wanted.len()), (20_000, 100));
    assert!(held.get() > 20, "{}", held.get());
    // It is the same as if nobody else had been there.
    let wanted = &status.labels_wanted;
    assert!(
        wanted.iter().all(serde_json::Value::is_number),
        "{wanted:?}"
    );
    assert_eq!(all.state.unlabelled.wanted(), 20_000);
}

#[test]
fn audits_that_wait_for_a_label_are_dropped_when_they_are_too_old() {
    let mut all = Logged::new(1.0);
    all.stream(1, 0, 1);
    let then = all.now + 1;
    all.now += 86_400_000;
    all.stream(2, 0, 1);
    all.state.drop_unlabelled_before(then);
    all.log = all.state.records(false);
    assert_eq!(all.label("1", "1").unwrap_err().kind, FaultKind::NotFound);
    all.label("2", "1").unwrap();
    // The monitor counts the first as harmless from now on.
    let verdict = all.state.status().verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unknown), (2, 1));
    assert_eq!(known(&all.again()), known(&all.state));
}

#[test]
fn audited_streams_save_no_steps() {
    for (audit, saved) in [(0.0, 2), (1.0, 0)] {
        let mut all = Logged::new(audit);
        all.stream(1, 1, 1);
        assert_eq!(all.state.totals.steps_saved, saved);
        assert_eq!(all.again().totals.steps_saved, saved);
    }
}

#[test]
fn a_rule_may_come_back_unless_its_promise_did_not_hold() {
    let renew = |all: &mut Logged, delta| {
        let (rule, json) = rule(delta);
        all.change(|state, _, out| state.renew(rule, json, out)).0
    };
    let mut all = Logged::new(1.0);
    renew(&mut all, 0.003).unwrap();
    assert!(
        renew(&mut all, 0.003)
            .unwrap_err()
            .error
            .contains("in use already")
    );
    // The first one had its share, which is more than the next may have.
    assert!(all.state.next_delta() < 0.002);
    renew(&mut all, 0.01).unwrap();
    assert_eq!(all.state.renewal, 3);
    let mut all = alarmed(OnAlarm::ReadOn);
    renew(&mut all, 0.003).unwrap();
    assert!(
        renew(&mut all, 0.01)
            .unwrap_err()
            .error
            .contains("did not hold")
    );
}

#[test]
fn what_is_kept_of_all_audits_is_bounded() {
    let mut all = Logged::new(1.0);
    // Each step has 80 kB of probabilities.
    let wide = format!("[{}1]", "0,".repeat(20_000));
    for id in 0..1200 {
        for score in [0.1, 0.9] {
            let line = format!(
                r#"{{"id": {id}, "score": {score}, "prediction": {}, "probs": {wide}, "end": {}}}"#,
                id % 2,
                score > 0.5
            );
            all.say(&line).unwrap();
        }
        assert!(all.state.unlabelled.bytes() <= crate::unlabelled_audits::MOST_BYTES);
        all.log.clear();
    }
    assert!(all.state.totals.thinned > 100);
    known(&all.state);
    all.label("0", "1").unwrap();
    assert!(all.state.unfiled.is_empty(), "it makes no trace");
    all.label("1199", "1").unwrap();
    assert_eq!(all.state.unfiled.len(), 1);
}

#[test]
fn what_running_audits_take_is_bounded_also_where_no_trace_is_left_to_thin() {
    let mut all = Logged::new(1.0);
    // Thinned, an audit still has its last prediction.
    let class = "x".repeat(4000);
    for id in 0..20_000 {
        let line = format!(r#"{{"id": {id}, "score": 0.1, "prediction": "{class}"}}"#);
        all.say(&line).unwrap();
        assert!(all.state.running_bytes <= super::audits::MOST_RUNNING);
        all.log.clear();
    }
    let running = all.state.running.len();
    assert!((10_000..17_000).contains(&running), "{running}");
    known(&all.state);
    // The log says which audits were given up.
    let line = format!(r#"{{"id": "last", "score": 0.1, "prediction": "{class}"}}"#);
    all.say(&line).unwrap();
    assert!(all.log.iter().any(|record| record.contains("lost")));
    // Their streams go on.
    let said = all.say(r#"{"id": "last", "score": 0.9, "prediction": 1}"#);
    assert!(said.unwrap().contains("\"t\":2"));
}

/// What must be the same after the log was read back.
#[derive(Debug, PartialEq)]
struct Known {
    monitor: Option<Monitor>,
    waiting: Vec<String>,
    done: Vec<(u64, String)>,
    alarm_at: Option<u64>,
    /// Renewal, digests of rules, of those with an alarm, and the first delta.
    rules: (u32, Vec<String>, Vec<String>, f64),
    totals: Totals,
    halted_at: Vec<u64>,
}

fn known(state: &RuleState) -> Known {
    let waiting = state.unlabelled.iter();
    let waiting = waiting.map(|(id, w)| format!("{id} {w:?}")).collect();
    let running = state.running.iter();
    let bytes = running.map(|(id, audit)| audit.bytes(id));
    assert_eq!(state.running_bytes, bytes.sum::<usize>());
    let running = state.running.values();
    let whole = running.map(|audit| audit.trace.whole_bytes());
    assert_eq!(state.whole_bytes, whole.sum::<usize>());
    let unlabelled = state.unlabelled.iter();
    let bytes = unlabelled.map(|(id, audit)| audit.bytes(id));
    assert_eq!(state.unlabelled.bytes(), bytes.sum::<usize>());
    let unfiled = state.unfiled.iter();
    let bytes = unfiled.map(|(_, trace)| size_of::<(u64, String)>() + trace.len());
    assert_eq!(state.unfiled_bytes(), bytes.sum::<usize>());
    let wanted = state
        .unlabelled
        .iter()
        .filter(|(_, waiting)| waiting.wants_label());
    assert_eq!(state.unlabelled.wanted(), wanted.count());
    let RuleState {
        renewal,
        digests,
        alarmed,
        first_delta,
        ..
    } = state;
    Known {
        monitor: state.monitor.clone(),
        waiting,
        done: state.unfiled.clone(),
        alarm_at: state.alarm_at,
        rules: (*renewal, digests.clone(), alarmed.clone(), *first_delta),
        totals: Totals {
            // These say what the process saw, and begin at 0 with it: no record tells them.
            observations: 0,
            streams: 0,
            faults: 0,
            idle: 0,
            thinned: 0,
            ..state.totals
        },
        halted_at: state.halted_at.clone(),
    }
}

#[test]
fn streams_are_answered_as_by_decide_and_audited_ones_are_asked_to_go_on() {
    let mut all = Logged::new(0.0);
    assert_eq!(
        all.stream(1, 1, 1),
        "{\"id\":1,\"t\":2,\"reason\":\"threshold\"}\n"
    );
    assert_eq!(all.state.monitor().unwrap().audits(), 0);
    let mut all = Logged::new(1.0);
    let said = all.stream(1, 1, 1);
    let expected = "{\"id\":1,\"t\":2,\"reason\":\"threshold\",\"audit\":true}\n\
                    {\"id\":1,\"t\":4,\"audited\":true}\n";
    assert_eq!(said, expected);
    // Both predictions agree: all is known without a label.
    let verdict = all.state.status().verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unknown), (1, 0));
    assert!(all.state.status().labels_wanted.is_empty());
    // One that ends before it halts.
    all.say(r#"{"id": "b", "score": 0.1}"#).unwrap();
    let said = all.say(r#"{"id": "b", "end": true}"#).unwrap();
    assert_eq!(said, "{\"id\":\"b\",\"t\":1,\"reason\":\"end\"}\n");
    let verdict = all.state.status().verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unknown), (2, 0));
}

#[test]
fn labels_come_late_and_are_wanted_where_predictions_differ() {
    let mut all = Logged::new(1.0);
    all.stream(1, 1, 1);
    all.stream(2, 0, 1);
    all.stream(3, 0, 1);
    let status = all.state.status();
    assert_eq!(status.labels_wanted, [2, 3]);
    assert_eq!((status.waiting, status.verdict.unwrap().unknown), (3, 2));
    all.label("2", "1").unwrap();
    all.label("3", "0").unwrap();
    all.label("1", " 7".trim()).unwrap();
    let status = all.state.status();
    let verdict = status.verdict.unwrap();
    assert_eq!((status.waiting, verdict.unknown), (0, 0));
    assert_eq!(verdict.by_step.last().unwrap().gap, Some(1.0 / 3.0));
    assert_eq!(all.state.unfiled.len(), 3, "each makes a trace");
    for (id, label) in [("2", "1"), ("99", "1")] {
        assert_eq!(all.label(id, label).unwrap_err().kind, FaultKind::NotFound);
    }
    assert_eq!(all.label("2", "[1]").unwrap_err().kind, FaultKind::Unusable);
    // A label may come before the end.
    all.say(r#"{"id": 4, "score": 0.9, "prediction": 0}"#)
        .unwrap();
    all.label("4", "0").unwrap();
    all.say(r#"{"id": 4, "end": true}"#).unwrap();
    assert_eq!(all.state.unfiled.len(), 4);
}

#[test]
fn the_log_alone_brings_a_state_back() {
    let mut all = Logged::new(0.5);
    for id in 0..500 {
        all.now += 20_000;
        let wrong = u32::from(id % 4 == 0);
        all.stream(id, wrong, 1);
        // Some vanish.
        all.say(&format!(r#"{{"id": "half-{id}", "score": 0.9}}"#))
            .unwrap();
        if id % 3 == 0 {
            let _ = all.label(&id.saturating_sub(9).to_string(), "1");
        }
        if id == 250 {
            all.now += 10_000_000;
            all.change(|state, now, out| state.tick(now, out));
        }
    }
    let before = known(&all.state);
    assert!(before.monitor.as_ref().unwrap().audits() > 200 && before.done.len() > 20);
    assert!(all.state.totals.idle > 0);
    assert_eq!(known(&all.again()), before);
    // And so does a log that begins with its state.
    all.log = all.state.records(false);
    assert_eq!(known(&all.again()), before);
    for id in 500..600 {
        all.stream(id, 0, 1);
        let _ = all.label(&id.to_string(), "1");
    }
    assert_eq!(known(&all.again()), known(&all.state));
}

#[test]
fn after_a_kill_streams_begin_again_and_after_a_stop_they_go_on() {
    let mut all = Logged::new(1.0);
    all.say(r#"{"id": "a", "score": 0.1, "prediction": 1}"#)
        .unwrap();
    let mut killed = Logged {
        state: all.again(),
        ..Logged::new(1.0)
    };
    killed.state.resume(killed.now, false);
    for line in [
        r#"{"id": "a", "score": 0.9}"#,
        r#"{"id": "a", "t": 2, "score": 0.9}"#,
        r#"{"id": "new", "score": 0.9}"#,
    ] {
        assert_eq!(killed.say(line).unwrap_err().kind, FaultKind::BeginAgain);
    }
    assert_eq!(
        killed.say(r#"{"id": "a", "t": 1, "score": 0.1}"#).unwrap(),
        ""
    );
    assert!(
        killed
            .say(r#"{"id": "a", "score": 0.9}"#)
            .unwrap()
            .contains("\"t\":2")
    );
    // Once every stream of before would have been closed, there is no need any more.
    killed.now += 3_600_000;
    assert_eq!(killed.say(r#"{"id": "new", "score": 0.1}"#).unwrap(), "");

    all.log = all.state.records(true);
    let mut stopped = Logged {
        state: all.again(),
        ..Logged::new(1.0)
    };
    let said = stopped
        .say(r#"{"id": "a", "score": 0.9, "prediction": 1}"#)
        .unwrap();
    assert!(
        said.contains("\"t\":2") && said.contains("\"audit\":true"),
        "{said}"
    );
    stopped.say(r#"{"id": "a", "end": true}"#).unwrap();
    stopped.label("\"a\"", "1").unwrap();
    assert!(stopped.state.unfiled[0].1.contains("\"predictions\":[1,1]"));
}

/// A state that has raised an alarm.
fn alarmed(on_alarm: OnAlarm) -> Logged {
    let mut all = Logged::new(1.0);
    all.state.settings.on_alarm = on_alarm;
    for id in 0..60 {
        all.stream(id, 0, 1);
        all.label(&id.to_string(), "1").unwrap();
    }
    assert!(all.state.monitor().unwrap().alarm().is_some());
    all
}

#[test]
fn on_alarm_streams_are_read_to_their_end_unless_told_otherwise() {
    let mut all = alarmed(OnAlarm::ReadOn);
    let said = all.stream(1000, 1, 1);
    assert_eq!(said, "{\"id\":1000,\"t\":4,\"reason\":\"last-step\"}\n");
    assert_eq!(all.again().alarm_at, all.state.alarm_at);
    assert!(all.again().reading_on());
    let mut all = alarmed(OnAlarm::Keep);
    assert!(all.stream(1000, 1, 1).contains("threshold"));
}

#[test]
fn another_rule_comes_in_without_dropping_a_stream_and_spends_its_share_of_delta() {
    let mut all = alarmed(OnAlarm::ReadOn);
    all.say(r#"{"id": "old", "score": 0.1, "prediction": 1}"#)
        .unwrap();
    let next = all.state.next_delta();
    assert!((next - 0.01 / 3.0).abs() < 1e-12, "{next}");
    let renew = |all: &mut Logged, delta| {
        let (rule, json) = rule(delta);
        all.change(|state, _, out| state.renew(rule, json, out)).0
    };
    let refused = renew(&mut all, 0.009).unwrap_err();
    assert!(refused.error.contains("may spend"), "{refused:?}");
    renew(&mut all, next).unwrap();
    let status = all.state.status();
    assert_eq!((status.renewal, status.reading_on), (2, false));
    assert_eq!(
        status.verdict.unwrap().audits,
        0,
        "the monitor begins again"
    );
    assert!(
        all.stream(2000, 1, 1)
            .contains("\"t\":2,\"reason\":\"threshold\"")
    );
    // The old stream is of the old rule, which is under way until it is over.
    assert_eq!(all.state.replaced.len(), 1);
    assert!(
        all.say(r#"{"id": "old", "score": 0.9, "end": true}"#)
            .unwrap()
            .contains("\"t\":2")
    );
    all.change(|state, now, out| state.tick(now, out));
    assert_eq!(
        all.state.replaced.len(),
        1,
        "streams that halted may send more"
    );
    all.now += 3_601_000;
    all.change(|state, now, out| state.tick(now, out));
    assert_eq!(all.state.replaced.len(), 0);
    assert!((all.state.next_delta() - 0.01 / 6.0).abs() < 1e-12);
    assert_eq!(known(&all.again()), known(&all.state));
    assert_eq!(all.again().renewal, 2);
    // All shares together: twice the first.
    let all: f64 = (1..10_000).map(|k| 2.0 * 0.01 * share(k)).sum();
    assert!(all <= 0.02);
}

#[test]
fn faults_are_told_with_a_remedy_and_counted() {
    let mut all = Logged::new(0.0);
    let fault = all.say(r#"{"id": 1, "score": 7}"#).unwrap_err();
    assert!(fault.error.contains("not a number in [0, 1]"), "{fault:?}");
    assert!(
        all.say(r#"{"id": 1, "score": 0.9}"#)
            .unwrap()
            .contains("\"t\":2")
    );
    let fault = all.say(r#"{"id": 2, "end": true}"#).unwrap_err();
    assert!(!fault.remedy.is_empty());
    assert_eq!(all.state.totals.faults, 2);
    let json = fault.json(Some(3));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["line"], 3);
}

#[test]
fn a_line_that_comes_twice_counts_once_if_it_is_numbered() {
    let mut all = Logged::new(0.0);
    let mut say = |line: &str| {
        let line = Line::parse(line.as_bytes()).unwrap();
        let (taken, out) = all.change(|state, now, out| state.take_numbered(now, &line, out));
        taken.map(|()| out.answers).map_err(|fault| fault.kind)
    };
    let quiet = Ok(String::new());
    for _ in 0..3 {
        assert_eq!(say(r#"{"id": 1, "t": 1, "score": 0.1}"#), quiet);
    }
    assert!(
        say(r#"{"id": 1, "t": 2, "score": 0.9}"#)
            .unwrap()
            .contains("\"t\":2")
    );
    // Its answer may have been lost.
    assert!(
        say(r#"{"id": 1, "t": 2, "score": 0.9}"#)
            .unwrap()
            .contains("\"t\":2")
    );
    assert_eq!(
        say(r#"{"id": 1, "t": 2, "score": 0.9, "end": true}"#),
        quiet
    );
    assert_eq!(say(r#"{"id": 1, "end": true}"#), quiet);
    assert_eq!(
        say(r#"{"id": 1, "t": 2, "score": 0.9}"#),
        Err(FaultKind::BeginAgain)
    );
    assert_eq!(say(r#"{"id": 2, "score": 0.9}"#), Err(FaultKind::Unusable));
}

#[test]
fn a_month_of_streams_leaves_nothing_behind() {
    let mut all = Logged::new(0.3);
    let mut sizes = Vec::new();
    for day in 0..30 {
        for i in 0..500 {
            all.now += 86_400_000 / 500;
            let id = day * 500 + i;
            all.stream(id, u32::from(i % 50 != 0), 1);
            let _ = all.label(&id.to_string(), "1");
            // One in ten falls silent.
            if i % 10 == 0 {
                let line = format!(r#"{{"id": "silent-{id}", "score": 0.1}}"#);
                all.say(&line).unwrap();
            }
            all.change(|state, now, out| state.tick(now, out));
        }
        all.state.take_unfiled(usize::MAX);
        let kept: usize = all.state.records(true).iter().map(String::len).sum();
        let open = all.state.open() + all.state.running.len() + all.state.unlabelled.len();
        sizes.push((open, kept));
        all.log.clear();
    }
    assert!(all.state.monitor().unwrap().alarm().is_none());
    assert!(all.state.totals.idle > 1000, "{:?}", all.state.totals);
    let ((open, kept), (open_then, kept_then)) = (sizes[2], sizes[29]);
    assert!(open_then <= open + 20, "{sizes:?}");
    // Only the counts of the monitor grow, by some hundred bytes per ten minutes.
    let blocks = 27 * 144;
    assert!(kept_then <= kept + 400 * blocks, "{sizes:?}");
}

/// A rule for two sites, which reads a third, small one to the end.
fn rule_of_some_sites() -> (Rule, String) {
    let mut outputs = Outputs::new();
    for id in 0..4000_u32 {
        let label = id / 2 % 2;
        let site = if id < 30 {
            "islet"
        } else {
            ["north", "south"][id as usize % 2]
        };
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(label),
            predictions: Some(&[0, label, label, label]),
            scores: Some(&[0.1, 0.9, 0.9, 1.0]),
            about: haltwise::traces::About {
                group: Some(site),
                ..Default::default()
            },
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let ask = haltwise::Ask {
        by: Some("site".into()),
        ..haltwise::Ask::default()
    };
    let plan = Plan::new(ask).unwrap();
    let rule = plan.calibrate(Inputs::one(&outputs)).unwrap().rule;
    assert_eq!(rule.halts_in().unwrap(), ["north", "south"]);
    let json = haltwise_io::rule_json(&rule).unwrap();
    (rule, json)
}

#[test]
fn groups_that_the_rule_does_not_halt_are_read_to_the_end_and_not_audited() {
    let (rule, json) = rule_of_some_sites();
    let mut all = Logged::of(RuleState::new(rule, json, settings(1.0), 1));
    let east = r#"{"id": 1, "score": 0.1, "group": "east"}"#;
    assert!(all.say(east).unwrap_err().remedy.contains("to their end"));
    let mut said = String::new();
    for (id, site) in ["islet", "north", "south"].iter().enumerate() {
        let first = format!(r#"{{"id": {id}, "score": 0.1, "prediction": 9, "group": "{site}"}}"#);
        said += &all.say(&first).unwrap();
        for _ in 2..=4 {
            let line = format!(r#"{{"id": {id}, "score": 0.9, "prediction": 1}}"#);
            said += &all.say(&line).unwrap();
        }
    }
    let expected = concat!(
        r#"{"id":0,"t":4,"reason":"last-step"}"#,
        "\n",
        r#"{"id":1,"t":2,"reason":"threshold","audit":true}"#,
        "\n",
        r#"{"id":1,"t":4,"audited":true}"#,
        "\n",
        r#"{"id":2,"t":2,"reason":"threshold","audit":true}"#,
        "\n",
        r#"{"id":2,"t":4,"audited":true}"#,
        "\n"
    );
    assert_eq!(said, expected);
    let status = all.state.status();
    assert_eq!(status.groups, ["north", "south"]);
    let verdict = status.verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unwatched.without_group), (2, 0));
}

#[test]
fn groups_are_watched_one_by_one() {
    let mut all = Logged::of(state_about(About::Sites, 1.0));
    for unknown in [
        r#"{"id": 1, "score": 0.1}"#,
        r#"{"id": 1, "score": 0.1, "group": "east"}"#,
    ] {
        let fault = all.say(unknown).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unusable);
        assert!(fault.remedy.contains("\"group\""), "{fault:?}");
    }
    assert_eq!(all.state.totals.streams, 0);
    // In the south every fourth stream loses a right answer, in the north none does:
    // an eighth of all, where a tenth is tolerated.
    for id in 0..400 {
        let (site, early) = (["north", "south"][id % 2], u32::from(id % 8 != 1));
        let first = format!(r#"{{"id": {id}, "score": 0.1, "prediction": 9, "group": "{site}"}}"#);
        all.say(&first).unwrap();
        for class in [early, 8, 1] {
            let line = format!(r#"{{"id": {id}, "score": 0.9, "prediction": {class}}}"#);
            all.say(&line).unwrap();
        }
        all.label(&id.to_string(), "1").unwrap();
    }
    let status = all.state.status();
    let verdict = status.verdict.unwrap();
    assert_eq!(status.groups[verdict.worst_group], "south");
    assert!(verdict.alarm, "{verdict:?}");
    // Since the alarm, streams are read to their end, and lose nothing.
    let gap = |group| {
        verdict
            .by_step
            .iter()
            .rfind(|step| step.group == group)
            .unwrap()
            .gap
    };
    assert_eq!(gap(0), Some(0.0));
    assert!(gap(1) > Some(0.2), "{verdict:?}");
    assert!(
        all.state.unfiled[1].1.contains(r#""site":"south""#),
        "{:?}",
        all.state.unfiled[1]
    );
    // The log brings it back.
    assert_eq!(known(&all.again()), known(&all.state));
}

#[test]
fn audits_of_a_rule_about_disagreements_want_no_label() {
    let (rule, _) = rule(0.01);
    let json = haltwise_io::rule_json(&rule).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["terms"] = serde_json::json!({"loss": "disagreement"});
    let json = json.to_string();
    let rule = haltwise_io::parse_rule(json.as_bytes()).unwrap();
    let mut all = Logged::of(RuleState::new(rule, json, settings(1.0), 1));
    all.stream(1, 0, 1);
    let status = all.state.status();
    assert_eq!((status.waiting, status.verdict.unwrap().unknown), (0, 0));
    let done = all.state.unfiled_audits();
    assert!(
        done[0].1.starts_with(r#"{"id":1,"predictions":[9,0,8,1]"#),
        "{done:?}"
    );
}

#[test]
fn units_are_audited_whole_and_count_once() {
    let mut all = Logged::of(state_about(About::Machines, 0.5));
    let fault = all.say(r#"{"id": 1, "score": 0.1}"#).unwrap_err();
    assert!(fault.remedy.contains("\"unit\""), "{fault:?}");
    // Each tenth machine loses a right answer in all of its eight streams.
    let mut audited = 0;
    for machine in 0..400 {
        all.now += 60_000;
        let early = u32::from(machine % 10 != 0);
        let mut asked = 0;
        for stream in 0..8 {
            let id = machine * 8 + stream;
            let first =
                format!(r#"{{"id": {id}, "score": 0.1, "prediction": 9, "unit": {machine}}}"#);
            all.say(&first).unwrap();
            for class in [early, 8, 1] {
                let line = format!(r#"{{"id": {id}, "score": 0.9, "prediction": {class}}}"#);
                asked += usize::from(all.say(&line).unwrap().contains("audit\":true"));
            }
            let _ = all.label(&id.to_string(), "1");
        }
        assert!(asked == 0 || asked == 8, "{asked}");
        audited += u64::from(asked == 8);
    }
    // They count once no more of their streams can begin, which is known when another
    // machine is audited.
    all.now += 2 * 86_400_000;
    let rule = digest(all.state.rule_json());
    let next = (400..).find(|machine| UnitKey::new(&machine.to_string()).is_drawn(0.5, &rule));
    let line = format!(
        r#"{{"id": "last", "score": 0.1, "unit": {}}}"#,
        next.unwrap()
    );
    all.say(&line).unwrap();
    let verdict = all.state.status().verdict.unwrap();
    assert_eq!(
        (verdict.audits, verdict.alarm),
        (audited + 1, false),
        "{verdict:?}"
    );
    assert!((150..250).contains(&audited));
    let last = verdict.by_step.last().unwrap();
    assert_eq!(last.halted, audited);
    assert!(
        all.state.unfiled[0].1.contains(r#""machine":""#),
        "{:?}",
        all.state.unfiled[0]
    );
    assert_eq!(known(&all.again()), known(&all.state));
}

#[test]
fn a_unit_that_is_audited_stays_so_where_a_smaller_share_is_drawn() {
    let mut all = Logged::of(state_about(About::Machines, 1.0));
    let begins = |id: u32, unit: u32| format!(r#"{{"id": {id}, "score": 0.1, "unit": {unit}}}"#);
    all.say(&begins(1, 1)).unwrap();
    all.state.settings.audit = 0.0;
    all.say(&begins(2, 1)).unwrap();
    all.say(&begins(3, 2)).unwrap();
    let audited = ["1", "2", "3"].map(|id| all.state.running.contains_key(id));
    assert_eq!(audited, [true, true, false]);
}

#[test]
fn a_unit_is_over_a_day_after_its_first_stream() {
    let mut all = Logged::of(state_about(About::Machines, 1.0));
    // It ends before the step at which streams halt early: by that step nothing halted,
    // and more streams of the machine might.
    let ends = |unit: &str| format!(r#"{{"id": 1, "score": 0.1, "unit": {unit}, "end": true}}"#);
    let unknown = |all: &Logged| all.state.status().verdict.unwrap().unknown;
    all.say(&ends("1")).unwrap();
    let before = unknown(&all);
    all.now += 86_400_000 + 600_000;
    all.say(&ends("2")).unwrap();
    assert_eq!(
        unknown(&all),
        before,
        "the first machine is known, the second is not"
    );
    // The first machine comes back: its stream counts for nothing, and that is told.
    all.say(&ends("1")).unwrap();
    let verdict = all.state.status().verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unwatched.of_closed_units), (2, 1));
    assert!(!verdict.all_clear);
    assert_eq!(known(&all.again()), known(&all.state));
}

#[test]
fn a_store_goes_on_at_the_share_of_delta_that_is_asked_for() {
    let mut all = Logged::new(1.0);
    all.stream(1, 1, 1);
    let log = all.state.records(true);
    let share = |all: &RuleState| all.monitor().unwrap().watch().delta().get();
    let opened = |log: &[String], servers| {
        let (rule, json) = all.first.clone();
        let settings = Settings {
            servers,
            ..settings(1.0)
        };
        let mut state = RuleState::new(rule, json, settings, 1);
        for record in log {
            state.replay(record).unwrap();
        }
        let said = state.take_settings();
        (state, said)
    };
    let (first, said) = opened(&log, 1);
    assert_eq!(said, Ok(None));
    let alone = share(&first);
    // Three servers and their sum: each has a quarter.
    let (mut shared, said) = opened(&log, 3);
    assert!(said.unwrap().unwrap().contains("from now on"));
    assert_eq!(share(&shared), alone / 4.0);
    assert_eq!(shared.monitor().unwrap().watch().servers(), 3);
    assert_eq!(shared.monitor().unwrap().audits(), 1);
    // It never rises again.
    let log = shared.records(true);
    let (back, said) = opened(&log, 1);
    assert!(said.unwrap().unwrap().contains("keeps its delta"));
    assert_eq!(share(&back), alone / 4.0);
    assert_eq!(opened(&log, 3).1, Ok(None));
}

#[test]
fn a_store_whose_monitor_counts_something_else_is_refused() {
    let mut all = Logged::of(state_about(About::Machines, 1.0));
    let of_streams = r#""by_unit":true"#;
    let log: Vec<String> = all.state.records(true);
    let old: Vec<String> = log
        .iter()
        .map(|record| record.replace(of_streams, r#""by_unit":false"#))
        .collect();
    assert_ne!(log, old);
    for (log, is_refused) in [(log, false), (old, true)] {
        let (rule, json) = all.first.clone();
        let mut state = RuleState::new(rule, json, settings(1.0), 1);
        for record in &log {
            state.replay(record).unwrap();
        }
        assert_eq!(state.take_settings().is_err(), is_refused);
    }
}

/// As logs did before groups and units were told apart.
#[test]
fn streams_of_an_old_log_that_name_no_unit_or_group_count_for_nothing() {
    for about in [About::Machines, About::Sites] {
        let mut all = Logged::of(state_about(about, 1.0));
        for id in 0..60 {
            let begin = format!(r#"{{"begin":{{"id":"{id}","at":{}}}}}"#, all.now);
            all.state.replay(&begin).unwrap();
        }
        let verdict = all.state.status().verdict.unwrap();
        assert_eq!((verdict.audits, verdict.unwatched.streams()), (0, 60));
        assert!(!verdict.all_clear);
    }
}
