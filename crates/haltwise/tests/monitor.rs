//! The monitor where the truth is known: how often it alarms although the
//! promise holds, and how soon where it does not.
#![allow(clippy::unwrap_used)]

use std::collections::BinaryHeap;

use haltwise::monitor::{BLOCK, Monitor, Running, Watch, lasting_interval};
use haltwise::plan::{Alpha, Delta};
use haltwise::stats::clopper_pearson;
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

/// That this many alarms out of 10,000 bound their chance by δ, at 99% confidence.
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
        // Among those halted by that step, and by no other, it is alpha.
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

/// What becomes known of a stream, and when: (time, stream).
type Due = std::cmp::Reverse<(u64, usize)>;

/// Streams whose outcomes become known after a delay that depends on them.
/// `counted` says whether those that are not known yet count.
fn delayed(rng: &mut SmallRng, streams: u64, delay: Delay, counted: bool) -> bool {
    let mut monitor = monitor();
    let mut due: BinaryHeap<Due> = BinaryHeap::new();
    let mut open: Vec<Option<(Running, u32, bool)>> = Vec::new();
    let mut late: Vec<(u32, bool)> = Vec::new();
    let mut known = 0;
    for now in 0..streams {
        let (t, loss) = (rng.random_range(1..=STEPS), rng.random_bool(ALPHA));
        if counted {
            open.push(Some((monitor.begin(now / BLOCK, 0), t, loss)));
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

/// After how many streams it is known what became of one.
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

#[test]
fn lasting_intervals_hold_at_every_moment() {
    let level = 0.05;
    for truth in [0.02, 0.3] {
        let missed = alarms(2000, 1000, |rng, n| {
            let mut losses = 0;
            (1..=n).any(|i| {
                losses += u64::from(rng.random_bool(truth));
                // Often enough to be caught where it does not hold.
                if i > 20 && i % 16 != 0 {
                    return false;
                }
                let (low, high) = lasting_interval(losses, i, level);
                truth < low || truth > high
            })
        });
        let (_, most) = clopper_pearson(missed, 2000, 0.98);
        println!("a share of {truth} is missed {missed} times in 2000");
        assert!(most <= level, "{missed}");
    }
}
