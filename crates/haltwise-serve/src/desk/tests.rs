use super::*;
use haltwise::{Given, Method, Outputs, Plan, Sequence};

/// A rule that halts at step 2 of 4, where the score reaches 0.5.
pub(crate) fn rule(delta: f64) -> (Rule, String) {
    let mut outputs = Outputs::new();
    for id in 0..4000_u32 {
        let label = id % 2;
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(label),
            predictions: Some(&[0, label, label, label]),
            scores: Some(&[0.1, 0.9, 0.9, 1.0]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let ask = haltwise::Ask {
        method: Some(Method::Conditional),
        delta: Some(delta),
        ..haltwise::Ask::default()
    };
    let plan = Plan::new(ask).unwrap();
    let rule = plan.calibrate(Given::one(&outputs)).unwrap().rule;
    let json = haltwise_io::rule_json(&rule).unwrap();
    (rule, json)
}

fn settings(audit: f64) -> Settings {
    Settings {
        audit,
        ..Settings::default()
    }
}

fn desk(audit: f64) -> Desk {
    let (rule, json) = rule(0.01);
    Desk::new(rule, json, settings(audit), 1)
}

/// A desk with the log that it would have.
struct Logged {
    desk: Desk,
    log: Vec<String>,
    now: u64,
}

impl Logged {
    fn new(audit: f64) -> Self {
        let now = 1_800_000_000_000;
        let mut desk = desk(audit);
        desk.set_clock(now);
        let log = Vec::new();
        Self { desk, log, now }
    }

    fn change<T>(&mut self, change: impl FnOnce(&mut Desk, u64, &mut Out) -> T) -> (T, Out) {
        let mut out = Out::default();
        let found = change(&mut self.desk, self.now, &mut out);
        self.log.append(&mut out.records);
        (found, out)
    }

    /// Takes a line, and returns what is answered, or what is wrong.
    fn say(&mut self, line: &str) -> Result<String, Fault> {
        let line = Line::parse(line.as_bytes()).unwrap();
        let (taken, out) = self.change(|desk, now, out| desk.take(now, &line, out));
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
        self.change(|desk, now, out| desk.label(now, id, label, out))
            .0
    }

    /// What a server that was killed knows after it started again.
    fn again(&self) -> Desk {
        let mut again = desk(0.5);
        for record in &self.log {
            again.replay(record).unwrap();
        }
        again
    }
}

/// What must be the same after the log was read back.
#[derive(Debug, PartialEq)]
struct Known {
    monitor: Option<Monitor>,
    waiting: Vec<String>,
    done: Vec<(u64, String)>,
    alarm_at: Option<u64>,
}

fn known(desk: &Desk) -> Known {
    let mut waiting: Vec<String> = desk.waiting.keys().map(|id| id.to_string()).collect();
    waiting.sort();
    Known {
        monitor: desk.monitor.clone(),
        waiting,
        done: desk.done.clone(),
        alarm_at: desk.alarm_at,
    }
}

#[test]
fn streams_are_answered_as_by_decide_and_audited_ones_are_asked_to_go_on() {
    let mut all = Logged::new(0.0);
    assert_eq!(
        all.stream(1, 1, 1),
        "{\"id\":1,\"t\":2,\"reason\":\"threshold\"}\n"
    );
    assert_eq!(all.desk.monitor().unwrap().audits(), 0);
    let mut all = Logged::new(1.0);
    let said = all.stream(1, 1, 1);
    let expected = "{\"id\":1,\"t\":2,\"reason\":\"threshold\",\"audit\":true}\n\
                    {\"id\":1,\"t\":4,\"audited\":true}\n";
    assert_eq!(said, expected);
    // Both predictions agree: all is known without a label.
    let verdict = all.desk.status().verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unknown), (1, 0));
    assert!(all.desk.labels_wanted().is_empty());
    // One that ends before it halts.
    all.say(r#"{"id": "b", "score": 0.1}"#).unwrap();
    let said = all.say(r#"{"id": "b", "end": true}"#).unwrap();
    assert_eq!(said, "{\"id\":\"b\",\"t\":1,\"reason\":\"end\"}\n");
    let verdict = all.desk.status().verdict.unwrap();
    assert_eq!((verdict.audits, verdict.unknown), (2, 0));
}

#[test]
fn labels_come_late_and_are_wanted_where_predictions_differ() {
    let mut all = Logged::new(1.0);
    all.stream(1, 1, 1);
    all.stream(2, 0, 1);
    all.stream(3, 0, 1);
    let status = all.desk.status();
    assert_eq!(status.labels_wanted, [2, 3]);
    assert_eq!((status.waiting, status.verdict.unwrap().unknown), (3, 2));
    all.label("2", "1").unwrap();
    all.label("3", "0").unwrap();
    all.label("1", " 7".trim()).unwrap();
    let status = all.desk.status();
    let verdict = status.verdict.unwrap();
    assert_eq!((status.waiting, verdict.unknown), (0, 0));
    assert_eq!(verdict.by_step.last().unwrap().gap, Some(1.0 / 3.0));
    assert_eq!(all.desk.done.len(), 3, "each makes a trace");
    for (id, label) in [("2", "1"), ("99", "1")] {
        assert_eq!(all.label(id, label).unwrap_err().kind, FaultKind::NotFound);
    }
    assert_eq!(all.label("2", "[1]").unwrap_err().kind, FaultKind::Unusable);
    // A label may come before the end.
    all.say(r#"{"id": 4, "score": 0.9, "prediction": 0}"#)
        .unwrap();
    all.label("4", "0").unwrap();
    all.say(r#"{"id": 4, "end": true}"#).unwrap();
    assert_eq!(all.desk.done.len(), 4);
}

#[test]
fn the_log_alone_brings_a_desk_back() {
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
            all.change(|desk, now, out| desk.tick(now, out));
        }
    }
    let before = known(&all.desk);
    assert!(before.monitor.as_ref().unwrap().audits() > 200 && before.done.len() > 20);
    assert!(all.desk.totals.idle > 0);
    assert_eq!(known(&all.again()), before);
    // And so does a log that begins with its state.
    all.log = all.desk.state(false);
    assert_eq!(known(&all.again()), before);
    for id in 500..600 {
        all.stream(id, 0, 1);
        let _ = all.label(&id.to_string(), "1");
    }
    assert_eq!(known(&all.again()), known(&all.desk));
}

#[test]
fn after_a_kill_streams_begin_again_and_after_a_stop_they_go_on() {
    let mut all = Logged::new(1.0);
    all.say(r#"{"id": "a", "score": 0.1, "prediction": 1}"#)
        .unwrap();
    let mut killed = Logged {
        desk: all.again(),
        ..Logged::new(1.0)
    };
    killed.desk.forget_running();
    killed.desk.be_careful(killed.now);
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

    all.log = all.desk.state(true);
    let mut stopped = Logged {
        desk: all.again(),
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
    assert!(stopped.desk.done[0].1.contains("\"predictions\":[1,1]"));
}

/// A desk that has raised an alarm.
fn alarmed(on_alarm: OnAlarm) -> Logged {
    let mut all = Logged::new(1.0);
    all.desk.settings.on_alarm = on_alarm;
    for id in 0..60 {
        all.stream(id, 0, 1);
        all.label(&id.to_string(), "1").unwrap();
    }
    assert!(all.desk.monitor().unwrap().alarm().is_some());
    all
}

#[test]
fn on_alarm_streams_are_read_to_their_end_unless_told_otherwise() {
    let mut all = alarmed(OnAlarm::ReadOn);
    let said = all.stream(1000, 1, 1);
    assert_eq!(said, "{\"id\":1000,\"t\":4,\"reason\":\"last-step\"}\n");
    assert_eq!(all.again().alarm_at, all.desk.alarm_at);
    assert!(all.again().reading_on());
    let mut all = alarmed(OnAlarm::Keep);
    assert!(all.stream(1000, 1, 1).contains("threshold"));
}

#[test]
fn another_rule_comes_in_without_dropping_a_stream_and_spends_its_share_of_delta() {
    let mut all = alarmed(OnAlarm::ReadOn);
    all.say(r#"{"id": "old", "score": 0.1, "prediction": 1}"#)
        .unwrap();
    let next = all.desk.next_delta();
    assert!((next - 0.01 / 3.0).abs() < 1e-12, "{next}");
    let renew = |all: &mut Logged, delta| {
        let (rule, json) = rule(delta);
        all.change(|desk, _, out| desk.renew(rule, json, None, out))
            .0
    };
    let refused = renew(&mut all, 0.01).unwrap_err();
    assert!(refused.error.contains("may spend"), "{refused:?}");
    renew(&mut all, next).unwrap();
    let status = all.desk.status();
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
    assert_eq!(all.desk.older.len(), 1);
    assert!(
        all.say(r#"{"id": "old", "score": 0.9, "end": true}"#)
            .unwrap()
            .contains("\"t\":2")
    );
    all.change(|desk, now, out| desk.tick(now, out));
    assert_eq!(all.desk.older.len(), 1, "streams that halted may send more");
    all.now += 3_601_000;
    all.change(|desk, now, out| desk.tick(now, out));
    assert_eq!(all.desk.older.len(), 0);
    assert!((all.desk.next_delta() - 0.01 / 6.0).abs() < 1e-12);
    assert_eq!(known(&all.again()), known(&all.desk));
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
    assert_eq!(all.desk.totals.faults, 2);
    let json = fault.json(Some(3));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["line"], 3);
}

#[test]
fn a_line_that_comes_twice_counts_once_if_it_is_numbered() {
    let mut all = Logged::new(0.0);
    let mut say = |line: &str| {
        let line = Line::parse(line.as_bytes()).unwrap();
        let (taken, out) = all.change(|desk, now, out| desk.take_numbered(now, &line, out));
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
            all.change(|desk, now, out| desk.tick(now, out));
        }
        let filed = all.desk.to_file().0.len();
        all.desk.filed(filed);
        let kept: usize = all.desk.state(true).iter().map(String::len).sum();
        let open = all.desk.open() + all.desk.live.len() + all.desk.waiting.len();
        sizes.push((open, kept));
        all.log.clear();
    }
    assert!(all.desk.monitor().unwrap().alarm().is_none());
    assert!(all.desk.totals.idle > 1000, "{:?}", all.desk.totals);
    let ((open, kept), (open_then, kept_then)) = (sizes[2], sizes[29]);
    assert!(open_then <= open + 20, "{sizes:?}");
    // Only the counts of the monitor grow, by some hundred bytes per ten minutes.
    let blocks = 27 * 144;
    assert!(kept_then <= kept + 400 * blocks, "{sizes:?}");
}

/// A rule that promises in each of two sites, and the same streams as above.
fn in_sites() -> Desk {
    let mut outputs = Outputs::new();
    for id in 0..4000_u32 {
        let label = id / 2 % 2;
        let site = ["north", "south"][id as usize % 2];
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
        method: Some(Method::Conditional),
        by: Some("site".into()),
        ..haltwise::Ask::default()
    };
    let plan = Plan::new(ask).unwrap();
    let rule = plan.calibrate(Given::one(&outputs)).unwrap().rule;
    let json = haltwise_io::rule_json(&rule).unwrap();
    Desk::new(rule, json, settings(1.0), 1)
}

#[test]
fn groups_are_watched_one_by_one() {
    let mut all = Logged::new(1.0);
    all.desk = in_sites();
    for unknown in [
        r#"{"id": 1, "score": 0.1}"#,
        r#"{"id": 1, "score": 0.1, "group": "east"}"#,
    ] {
        let fault = all.say(unknown).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unusable);
        assert!(fault.remedy.contains("\"group\""), "{fault:?}");
    }
    assert_eq!(all.desk.totals().streams, 0);
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
    let status = all.desk.status();
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
        all.desk.done[1].1.contains(r#""site":"south""#),
        "{:?}",
        all.desk.done[1]
    );
    // The log brings it back.
    let mut again = in_sites();
    for record in &all.log {
        again.replay(record).unwrap();
    }
    assert_eq!(known(&again), known(&all.desk));
}

#[test]
fn audits_of_a_rule_about_disagreements_want_no_label() {
    let (rule, _) = rule(0.01);
    let json = haltwise_io::rule_json(&rule).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&json).unwrap();
    json["terms"] = serde_json::json!({"loss": "disagreement"});
    let json = json.to_string();
    let rule = parse(&json).unwrap();
    let mut all = Logged::new(1.0);
    all.desk = Desk::new(rule, json, settings(1.0), 1);
    all.stream(1, 0, 1);
    let status = all.desk.status();
    assert_eq!((status.waiting, status.verdict.unwrap().unknown), (0, 0));
    let (done, _) = all.desk.to_file();
    assert!(
        done[0].1.starts_with(r#"{"id":1,"predictions":[9,0,8,1]"#),
        "{done:?}"
    );
}
