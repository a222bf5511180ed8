//! The monitor in cases where the truth is known: how often it alarms although the promise
//! holds, and how soon it alarms if the promise does not hold.
#![allow(clippy::unwrap_used)]

mod intervals;
mod units;

use std::collections::BinaryHeap;

use haltwise::monitor::{Auditor, BLOCK, Monitor, Running, Watch};
use haltwise::plan::{Alpha, Ask, Delta, Method, Plan};
use haltwise::stats::clopper_pearson;
use haltwise::traces::*;
use haltwise::{Inputs, Outputs, Rule, Sequence};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

const STEPS: u32 = 8;
const ALPHA: f64 = 0.1;
const DELTA: f64 = 0.01;

fn monitor() -> Monitor {
    let steps = (1..=STEPS).collect();
    Monitor::new(Watch::new(Alpha::default(), Delta::default(), steps))
}

/// A monitor of the average alone.
fn of_the_average() -> Monitor {
    Monitor::new(Watch::new(Alpha::default(), Delta::default(), Vec::new()))
}

/// The chance of a loss of the i-th stream, which halts at a step.
type Truth = fn(u64, u32) -> f64;

/// How many deployments, of this many audited streams each, raise an alarm.
fn alarms(deployments: u64, audits: u64, run: impl Fn(&mut SmallRng, u64) -> bool + Sync) -> u64 {
    (0..deployments)
        .into_par_iter()
        .filter(|&seed| run(&mut SmallRng::seed_from_u64(seed), audits))
        .count() as u64
}

/// Streams whose outcomes are known at once: when is the alarm raised?
fn alarm_at(mut monitor: Monitor, rng: &mut SmallRng, truth: Truth, most: u64) -> Option<u64> {
    (0..most).find_map(|i| {
        let t = rng.random_range(1..=STEPS);
        let loss = rng.random_bool(truth(i, t));
        monitor.audit(i / BLOCK, 0, t, loss).map(|alarm| alarm.at)
    })
}

/// Asserts that this many alarms out of 10,000 bound their chance by δ, at 99% confidence.
fn assert_rare(alarms: u64, what: &str) {
    let (_, most) = clopper_pearson(alarms, 10_000, 0.98);
    println!("{what}: {alarms} false alarms in 10,000 deployments, at most {most:.4}");
    assert!(most <= DELTA, "{what}: {alarms}");
}

#[test]
fn false_alarms_are_rarer_than_delta_where_the_gap_is_alpha_everywhere() {
    let found = alarms(10_000, 1000, |rng, n| {
        alarm_at(monitor(), rng, |_, _| ALPHA, n).is_some()
    });
    assert_rare(found, "alpha everywhere");
}

#[test]
fn false_alarms_are_rarer_than_delta_where_the_gap_is_alpha_at_one_step() {
    for only in [1, 5, 8] {
        // The gap is alpha among those halted by that step, and by no other.
        let truth: Truth = match only {
            1 => |_, t| if t == 1 { ALPHA } else { 0.02 },
            5 => |_, t| match t {
                5 => 5.0 * ALPHA - 4.0 * 0.05,
                t if t < 5 => 0.05,
                _ => 0.02,
            },
            _ => |_, t| {
                if t == 8 {
                    8.0 * ALPHA - 7.0 * 0.06
                } else {
                    0.06
                }
            },
        };
        let found = alarms(10_000, 1000, |rng, n| {
            alarm_at(monitor(), rng, truth, n).is_some()
        });
        assert_rare(found, &format!("alpha by step {only} only"));
    }
}

/// The time at which the outcome of a stream becomes known: (time, stream).
type Due = std::cmp::Reverse<(u64, usize)>;

/// Streams whose outcomes become known after a delay that depends on them. `counted` says
/// whether unknown outcomes count.
fn delayed(rng: &mut SmallRng, streams: u64, delay: Delay, counted: bool) -> bool {
    let mut monitor = monitor();
    let mut due: BinaryHeap<Due> = BinaryHeap::new();
    let mut open: Vec<Option<(Running, u32, bool)>> = Vec::new();
    let mut late: Vec<(u32, bool)> = Vec::new();
    let mut known = 0;
    for now in 0..streams {
        let (t, loss) = (rng.random_range(1..=STEPS), rng.random_bool(ALPHA));
        if counted {
            open.push(monitor.begin(now / BLOCK, 0).map(|begun| (begun, t, loss)));
        }
        due.push(std::cmp::Reverse((now + delay(t, loss), late.len())));
        late.push((t, loss));
        while due.peek().is_some_and(|due| due.0.0 <= now) {
            let stream = due.pop().unwrap().0.1;
            let alarm = if counted {
                let (running, t, loss) = open[stream].take().unwrap();
                let (pending, first) = monitor.halt(running, t);
                first.or(monitor.settle(pending, loss))
            } else {
                let (t, loss) = late[stream];
                known += 1;
                monitor.audit((known - 1) / BLOCK, 0, t, loss)
            };
            if alarm.is_some() {
                return true;
            }
        }
    }
    false
}

/// The number of streams after which the outcome of one becomes known.
type Delay = fn(u32, bool) -> u64;

const DELAYS: [(&str, Delay); 3] = [
    (
        "losses are known first",
        |_, loss| if loss { 0 } else { 150 },
    ),
    (
        "losses are known last",
        |_, loss| if loss { 150 } else { 0 },
    ),
    ("late halts and losses never", |t, loss| match (t, loss) {
        (8, _) | (_, true) => u64::MAX / 2,
        _ => 30,
    }),
];

#[test]
fn false_alarms_are_rarer_than_delta_whatever_delays_depend_on() {
    for (what, delay) in DELAYS {
        let found = alarms(10_000, 600, |rng, n| delayed(rng, n, delay, true));
        assert_rare(found, what);
    }
}

/// So the test above can fail.
#[test]
fn leaving_unknown_outcomes_out_is_caught() {
    let found = alarms(500, 600, |rng, n| delayed(rng, n, DELAYS[0].1, false));
    println!("left out: {found} false alarms in 500");
    assert!(found > 400, "{found}");
}

fn median(of: u64, run: impl Fn(&mut SmallRng) -> Option<u64> + Sync) -> u64 {
    let mut all: Vec<u64> = (0..of)
        .into_par_iter()
        .map(|seed| run(&mut SmallRng::seed_from_u64(1000 + seed)).unwrap_or(u64::MAX))
        .collect();
    all.sort_unstable();
    all[all.len() / 2]
}

#[test]
fn alarms_come_soon_from_a_fresh_start() {
    let truths: [(Truth, u64); 3] = [(|_, _| 0.15, 450), (|_, _| 0.2, 110), (|_, _| 0.3, 40)];
    for (truth, most) in truths {
        let found = median(1000, |rng| alarm_at(monitor(), rng, truth, 20_000));
        println!("gap {}: median {found} audits", truth(0, 1));
        assert!(found <= most, "{found} {most}");
    }
}

#[test]
fn alarms_come_soon_after_a_long_good_time() {
    let jump: [(Truth, u64); 2] = [
        (|i, _| if i < 10_000 { 0.05 } else { 0.2 }, 350),
        (|i, _| if i < 10_000 { 0.05 } else { 0.3 }, 140),
    ];
    for (truth, most) in jump {
        let found = median(101, |rng| alarm_at(monitor(), rng, truth, 20_000)) - 10_000;
        println!("jump to {}: median {found} audits", truth(10_000, 1));
        assert!(found <= most, "{found} {most}");
    }
}

#[test]
fn early_failures_that_the_average_hides_are_found() {
    let truth: Truth = |_, t| if t <= 2 { 0.3 } else { 0.02 };
    let found = median(1000, |rng| alarm_at(monitor(), rng, truth, 20_000));
    println!("30% by step 2, 9% on average: median {found} audits");
    assert!(found <= 220, "{found}");
    let silent = median(101, |rng| alarm_at(of_the_average(), rng, truth, 20_000));
    assert_eq!(silent, u64::MAX, "the average is within alpha");
}

/// A rule with these options that halts at the first of two steps: from two sites and 2000
/// machines.
fn rule_that_halts_at_once(ask: Ask) -> Rule {
    let mut outputs = Outputs::new();
    for i in 0..4000_u32 {
        let label = i % 2;
        let (id, machine) = (i.to_string(), (i / 2).to_string());
        let sequence = Sequence {
            id: Some(&id),
            label: Some(label),
            predictions: Some(&[label, label]),
            scores: Some(&[0.9, 0.9]),
            about: About {
                group: ask
                    .by
                    .as_deref()
                    .filter(|&by| by == "site")
                    .map(|_| ["north", "south"][label as usize]),
                unit: Some(&machine),
                weight: ask.weight_bound,
                ..About::default()
            },
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let method = Some(Method::Conditional);
    let plan = Plan::new(Ask { method, ..ask }).unwrap();
    plan.calibrate(Inputs::one(&outputs)).unwrap().rule
}

/// A rule that promises something to each true class.
fn rule_by_label() -> Rule {
    rule_that_halts_at_once(Ask {
        by: Some("label".into()),
        ..Ask::default()
    })
}

/// Audits of that rule, in both classes with a gap of α. Labels come only if the early and
/// the full prediction differ. `pooled` is what the monitor does; otherwise streams without
/// a label are in the first group. Returns after how many audits the alarm is raised.
fn by_label(
    rule: &Rule,
    rng: &mut SmallRng,
    (gap, audits): (f64, u64),
    pooled: bool,
) -> Option<u64> {
    let watch = Watch::of(rule, Delta::default()).unwrap();
    let mut monitor = Monitor::new(match pooled {
        true => watch,
        false => watch.in_groups(2),
    });
    let (mut checker, mut auditor) = (Checker::new(), Auditor::new(rule.clone()));
    for _ in 0..audits {
        let (class, loss) = (rng.random_range(0..2_u32), rng.random_bool(gap));
        let early = if loss { 1 - class } else { class };
        let sequence = Sequence {
            label: loss.then_some(class),
            predictions: Some(&[early, class]),
            scores: Some(&[0.9, 0.9]),
            ..Sequence::default()
        };
        let trace = checker.check(sequence).unwrap();
        let mut found = auditor.audit(&trace).unwrap().unwrap();
        assert_eq!((found.step, found.loss), (1, Some(loss)));
        if !pooled {
            found.group = trace.label().unwrap_or(0) as usize;
        }
        assert!(monitor.take(&found).is_none());
        if let Some(alarm) = monitor.alarm() {
            return Some(alarm.at);
        }
    }
    None
}

#[test]
fn false_alarms_by_label_are_rarer_than_delta_where_labels_come_for_few() {
    let rule = rule_by_label();
    assert_eq!(rule.groups().len(), 2);
    let found = alarms(10_000, 1000, |rng, n| {
        by_label(&rule, rng, (ALPHA, n), true).is_some()
    });
    assert_rare(found, "by label");
    // So the test can fail.
    let caught = alarms(50, 1000, |rng, n| {
        by_label(&rule, rng, (ALPHA, n), false).is_some()
    });
    println!("in groups of those that have a label: {caught} of 50");
    assert!(caught > 40, "{caught}");
}

#[test]
fn alarms_by_label_come_as_soon_as_alarms_of_single_streams() {
    let rule = rule_by_label();
    for gap in [2.0 * ALPHA, 3.0 * ALPHA] {
        // Both halt at the one step that is watched.
        let single = median(300, |rng| {
            let mut monitor = of_the_average();
            (0..20_000).find_map(|i| {
                let alarm = monitor.audit(i / BLOCK, 0, 1, rng.random_bool(gap));
                alarm.map(|alarm| alarm.at)
            })
        });
        let pooled = median(300, |rng| by_label(&rule, rng, (gap, 20_000), true));
        println!("gap {gap:.1}: median {single} single streams, {pooled} by label");
        assert!(4 * pooled <= 5 * single, "{single} {pooled}");
    }
}

/// Audits of one class that loses nothing and of one that loses far too much.
#[test]
fn classes_that_are_watched_together_are_not_called_good() {
    let verdict = |watch: Watch| {
        let mut monitor = Monitor::new(watch);
        for i in 0..10_000 {
            // One in twenty is of the second class, and two in five of those lose
            // something.
            monitor.audit(i / BLOCK, 0, 1, [0, 20].contains(&(i % 100)));
        }
        monitor.verdict()
    };
    let rule = rule_by_label();
    let found = verdict(Watch::of(&rule, Delta::default()).unwrap());
    assert!(!found.alarm && found.pools_classes && !found.all_clear);
    // The same for a promise to all.
    let rule = rule_that_halts_at_once(Ask::default());
    let found = verdict(Watch::of(&rule, Delta::default()).unwrap());
    assert!(!found.alarm && !found.pools_classes && found.all_clear);
}

/// Audits of another mix than the declared one. Those with the weight 1 lose something in
/// three of ten cases, those with the weight 5 never: in the declared mix, one in twenty.
fn weighted(rule: &Rule, rng: &mut SmallRng, audits: u64, weighed: bool) -> bool {
    let mut monitor = Monitor::new(Watch::of(rule, Delta::default()).unwrap());
    let (mut checker, mut auditor) = (Checker::new(), Auditor::new(rule.clone()));
    // The draws of other deployments.
    let deployment: u64 = rng.random();
    for i in 0..audits {
        let light = rng.random_bool(0.5);
        let loss = light && rng.random_bool(0.3);
        let id = format!("{deployment} {i}");
        let sequence = Sequence {
            id: Some(&id),
            label: Some(1),
            predictions: Some(&[u32::from(!loss), 1]),
            scores: Some(&[0.9, 0.9]),
            about: About {
                weight: weighed.then_some(if light { 1.0 } else { 5.0 }),
                ..About::default()
            },
            ..Sequence::default()
        };
        let trace = checker.check(sequence).unwrap();
        if let Some(found) = auditor.audit(&trace).unwrap() {
            assert!(monitor.take(&found).is_none());
        }
    }
    monitor.alarm().is_some()
}

#[test]
fn audits_of_another_mix_are_weighed() {
    let rule = rule_that_halts_at_once(Ask {
        weight: Some("weight".into()),
        weight_bound: Some(5.0),
        ..Ask::default()
    });
    let found = |weighed| alarms(50, 2000, |rng, n| weighted(&rule, rng, n, weighed));
    // Without weights, audits are of the mix in which the rule is used, and lose 15%.
    let (with, without) = (found(true), found(false));
    println!("of 50 deployments: {with} alarms with weights, {without} without");
    assert_eq!(with, 0);
    assert!(without > 40, "{without}");
}

#[test]
fn weights_must_be_within_their_bound_and_with_all_audits_or_none() {
    let rule = rule_that_halts_at_once(Ask {
        weight: Some("mix".into()),
        weight_bound: Some(5.0),
        ..Ask::default()
    });
    let said = |weights: &[Option<f64>]| {
        let (mut checker, mut auditor) = (Checker::new(), Auditor::new(rule.clone()));
        let refused = weights.iter().find_map(|&weight| {
            let sequence = Sequence {
                predictions: Some(&[1, 1]),
                scores: Some(&[0.9, 0.9]),
                about: About {
                    weight,
                    ..About::default()
                },
                ..Sequence::default()
            };
            auditor.audit(&checker.check(sequence).unwrap()).err()
        });
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&[Some(5.0), Some(0.0)]), "");
    assert_eq!(said(&[None, None]), "");
    assert!(said(&[Some(5.1)]).contains("5.1"));
    assert!(said(&[Some(1.0), None]).contains("\"mix\" and some do not"));
    assert!(said(&[None, Some(1.0)]).contains("\"mix\" and some do not"));
}

#[test]
fn a_unit_with_two_weights_is_no_audit() {
    let rule = rule_that_halts_at_once(Ask {
        unit: Some("machine".into()),
        weight: Some("mix".into()),
        weight_bound: Some(5.0),
        ..Ask::default()
    });
    let said = |units: &[(&str, f64)]| {
        let (mut checker, mut auditor) = (Checker::new(), Auditor::new(rule.clone()));
        let refused = units.iter().find_map(|&(unit, weight)| {
            let sequence = Sequence {
                predictions: Some(&[1, 1]),
                scores: Some(&[0.9, 0.9]),
                about: About {
                    unit: Some(unit),
                    weight: Some(weight),
                    ..About::default()
                },
                ..Sequence::default()
            };
            auditor.audit(&checker.check(sequence).unwrap()).err()
        });
        refused.map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&[("a", 5.0), ("b", 1.0), ("a", 5.0)]), "");
    let refused = said(&[("a", 0.0), ("b", 1.0), ("a", 5.0)]);
    assert!(
        refused.contains("`a`") && refused.contains("0 and 5"),
        "{refused}"
    );
}

#[test]
fn an_audit_says_its_group_where_the_promise_is_by_group() {
    let rule = rule_that_halts_at_once(Ask {
        by: Some("site".into()),
        ..Ask::default()
    });
    let said = |group| {
        let sequence = Sequence {
            predictions: Some(&[1, 1]),
            scores: Some(&[0.9, 0.9]),
            about: About {
                group,
                ..About::default()
            },
            ..Sequence::default()
        };
        let found = Auditor::new(rule.clone()).audit(&Checker::new().check(sequence).unwrap());
        found
            .map(|found| found.unwrap().group)
            .map_err(|error| error.to_string())
    };
    assert_eq!(said(Some("south")), Ok(1));
    assert!(said(Some("east")).unwrap_err().contains("\"east\""));
    assert!(said(None).unwrap_err().contains("no \"site\""));
}

/// A rule that may halt at each of its first 100 steps. Audits halt at step 1 and lose
/// nothing, at step 2 and lose a lot, or at step 3 and lose nothing. Only steps 1 and 3 are
/// watched, and by each of them the gap is small.
#[test]
fn a_gap_between_two_watched_steps_is_not_called_good() {
    let mut outputs = Outputs::new();
    for i in 0..2000_u32 {
        let sequence = Sequence {
            label: Some(i % 2),
            predictions: Some(&[i % 2; 101]),
            scores: Some(&[0.9; 101]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let method = Some(Method::Conditional);
    let plan = Plan::new(Ask {
        method,
        ..Ask::default()
    });
    let rule = plan.unwrap().calibrate(Inputs::one(&outputs)).unwrap().rule;
    let watch = Watch::of(&rule, Delta::default()).unwrap();
    assert_eq!(watch.steps()[..2], [1, 3]);
    assert_eq!(watch.steps().len(), 64);
    let verdict = |watch| {
        let mut monitor = Monitor::new(watch);
        for i in 0..6000 {
            let (t, loss) = match i % 15 {
                0 => (1, false),
                1 => (2, i / 15 % 10 < 3),
                _ => (3, false),
            };
            monitor.audit(i / BLOCK, 0, t, loss);
        }
        monitor.verdict()
    };
    // By step 2 it is 15%: 120 of 800.
    let all = verdict(Watch::new(rule.alpha(), Delta::default(), vec![1, 2, 3]));
    assert!(all.by_step[1].gap > Some(0.12), "{:?}", all.by_step[1]);
    let found = verdict(watch);
    let ends = found.by_step.iter();
    assert!(
        ends.clone()
            .all(|step| step.interval.1 < ALPHA && step.recent.interval.1 < ALPHA)
    );
    assert!(!found.alarm && found.thins_steps && !found.all_clear);
}
