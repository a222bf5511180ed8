//! Promises about units: how often the monitor alarms although they hold, and how soon it
//! alarms if they do not hold.

use std::collections::VecDeque;

use haltwise::monitor::{Auditor, Monitor, UnitKey, Watch};
use haltwise::plan::{Alpha, Ask, Delta};
use haltwise::traces::*;
use haltwise::{Rule, Sequence};
use rand::RngExt;
use rand::rngs::SmallRng;

use super::{ALPHA, STEPS, alarms, assert_rare, median, monitor, rule_that_halts_at_once};

/// The streams of one unit: where each halts, and whether that loses anything.
type Draw = fn(&mut SmallRng, f64) -> Vec<(u32, bool)>;

/// Streams as dependent as possible: all streams of the unit are the same.
fn tied<const SIZE: usize>(rng: &mut SmallRng, gap: f64) -> Vec<(u32, bool)> {
    vec![(rng.random_range(1..=STEPS), rng.random_bool(gap)); SIZE]
}

/// One half of the units halt all of their streams at step 1, with twice the gap. The other
/// half halt one stream in four there, with no gap, and the rest at the end. By every step
/// the mean over units of the mean of those that halted is the gap.
fn unlike(rng: &mut SmallRng, gap: f64) -> Vec<(u32, bool)> {
    if rng.random() {
        return (0..4).map(|_| (1, rng.random_bool(2.0 * gap))).collect();
    }
    let first = rng.random_range(0..4);
    (0..4)
        .map(|i| (if i == first { 1 } else { STEPS }, false))
        .collect()
}

/// The first stream of a unit loses something four times as often as the promise
/// allows on average, and the three after it nothing.
fn worse_first(rng: &mut SmallRng, gap: f64) -> Vec<(u32, bool)> {
    (0..4)
        .map(|i| (1, i == 0 && rng.random_bool(4.0 * gap)))
        .collect()
}

/// How the streams of units are counted.
#[derive(Clone, Copy, PartialEq)]
enum Counted {
    ByUnit,
    /// A factor for each stream; this must be caught.
    OneByOne,
    /// The first stream of a unit counts if it halts; this must be caught.
    FirstOnly,
}

/// When it is known of a stream that it lost nothing. A loss is known at once.
#[derive(Clone, Copy)]
enum Harmless {
    AtOnce,
    /// After this many more streams.
    Late(u64),
    /// Its label never comes.
    NoLabel,
    /// It is lost before anyone is told that it halts.
    NoHalt,
}

/// A simulated deployment. Sixteen units are open at a time.
#[derive(Clone, Copy)]
struct Deployment {
    draw: Draw,
    gap: f64,
    units: u64,
    harmless: Harmless,
    counted: Counted,
}

/// An open unit: its number, how many of its streams have begun, and all of them.
struct OpenUnit {
    key: UnitKey,
    begun: usize,
    streams: Vec<(u32, bool)>,
}

/// How many streams, and how many units, had begun at an alarm.
#[derive(Clone, Copy)]
struct AlarmAt {
    streams: u64,
    units: u64,
}

fn unit_alarm(rng: &mut SmallRng, how: Deployment) -> Option<AlarmAt> {
    let mut monitor = match how.counted {
        Counted::ByUnit => {
            let steps = (1..=STEPS).collect();
            Monitor::new(Watch::new(Alpha::default(), Delta::default(), steps).by_units())
        }
        Counted::OneByOne | Counted::FirstOnly => monitor(),
    };
    let mut open: Vec<OpenUnit> = Vec::new();
    let (mut streams, mut units, mut due) = (0, 0, VecDeque::new());
    // The draws of other deployments.
    let deployment: u64 = rng.random();
    loop {
        while open.len() < 16 && units < how.units {
            open.push(OpenUnit {
                key: UnitKey::new(&format!("{deployment} {units}")),
                begun: 0,
                streams: (how.draw)(rng, how.gap),
            });
            units += 1;
        }
        if open.is_empty() {
            return None;
        }
        let which = rng.random_range(0..open.len());
        let unit = &mut open[which];
        let ((t, loss), key) = (unit.streams[unit.begun], unit.key);
        let block = monitor.next_block();
        let running = match how.counted {
            Counted::ByUnit => monitor.begin_of_unit(block, 0, key),
            Counted::FirstOnly if unit.begun > 0 => None,
            Counted::OneByOne | Counted::FirstOnly => monitor.begin(block, 0),
        };
        unit.begun += 1;
        let is_over = unit.begun == unit.streams.len();
        if is_over {
            open.swap_remove(which);
        }
        streams += 1;
        let mut alarm = running.and_then(|running| match (loss, how.harmless) {
            (false, Harmless::NoHalt) => None,
            (loss, harmless) => {
                let (pending, raised) = monitor.halt(running, t);
                let settled = match (loss, harmless) {
                    (false, Harmless::NoLabel | Harmless::NoHalt) => None,
                    (false, Harmless::Late(late)) => {
                        due.push_back((streams + late, pending));
                        None
                    }
                    (loss, _) => monitor.settle(pending, loss),
                };
                raised.or(settled)
            }
        });
        if is_over && how.counted == Counted::ByUnit {
            alarm = alarm.or(monitor.close_unit(0, key));
        }
        while due.front().is_some_and(|(due, _)| *due <= streams) {
            let (_, pending) = due.pop_front().unwrap();
            alarm = alarm.or(monitor.settle(pending, false));
        }
        if let Some(alarm) = alarm {
            return Some(AlarmAt {
                streams,
                units: alarm.at,
            });
        }
    }
}

/// The medians of the streams and of the units until the alarm.
fn medians(draw: Draw, gap: f64, counted: Counted) -> (u64, u64) {
    let found = |what: fn(AlarmAt) -> u64| {
        median(1000, |rng| {
            let how = Deployment {
                draw,
                gap,
                units: 20_000,
                harmless: Harmless::AtOnce,
                counted,
            };
            unit_alarm(rng, how).map(what)
        })
    };
    (found(|at| at.streams), found(|at| at.units))
}

/// Asserts that 10,000 deployments of 1,000 units each, with the gap at α, raise few alarms.
fn assert_few_false_alarms(what: &str, draw: Draw, harmless: Harmless) {
    let found = alarms(10_000, 1000, |rng, units| {
        let how = Deployment {
            draw,
            gap: ALPHA,
            units,
            harmless,
            counted: Counted::ByUnit,
        };
        unit_alarm(rng, how).is_some()
    });
    assert_rare(found, &format!("1,000 {what}"));
}

#[test]
fn false_alarms_are_rare_for_tied_units() {
    assert_few_false_alarms("units of 2", tied::<2>, Harmless::AtOnce);
}

#[test]
fn false_alarms_are_rare_for_tied_units_whose_losses_are_known_first() {
    assert_few_false_alarms("units of 4, losses first", tied::<4>, Harmless::Late(150));
}

#[test]
fn false_alarms_are_rare_for_units_that_halt_few_or_all() {
    assert_few_false_alarms("unlike units", unlike, Harmless::AtOnce);
}

#[test]
fn false_alarms_are_rare_for_units_of_which_only_losses_have_labels() {
    assert_few_false_alarms("units, labels of losses", unlike, Harmless::NoLabel);
}

#[test]
fn false_alarms_are_rare_for_units_of_which_only_streams_with_a_loss_halt() {
    assert_few_false_alarms("units of 2, halts of losses", tied::<2>, Harmless::NoHalt);
}

#[test]
fn false_alarms_are_rare_for_units_whose_first_stream_is_the_worst() {
    assert_few_false_alarms("units, worst first", worse_first, Harmless::AtOnce);
}

/// Each of the simpler ways fails, so the tests above can fail.
#[test]
fn counting_streams_of_units_one_by_one_is_caught() {
    let found = |draw: Draw, counted| {
        alarms(500, 250, |rng, units| {
            let how = Deployment {
                draw,
                gap: ALPHA,
                units,
                harmless: Harmless::AtOnce,
                counted,
            };
            unit_alarm(rng, how).is_some()
        })
    };
    let (eight, first, worst) = (
        found(tied::<8>, Counted::OneByOne),
        found(unlike, Counted::FirstOnly),
        found(worse_first, Counted::FirstOnly),
    );
    println!(
        "of 500 deployments: {eight} one by one, {first} by the first stream of a unit, {worst} \
         where that is the worst"
    );
    assert!(eight > 250, "{eight}");
    assert!(first > 50, "{first}");
    assert_eq!(worst, 500);
}

#[test]
fn alarms_by_unit_come_after_somewhat_more_units_than_alarms_of_single_streams() {
    for gap in [2.0 * ALPHA, 3.0 * ALPHA] {
        let (single, _) = medians(tied::<1>, gap, Counted::OneByOne);
        let (of_two, two) = medians(tied::<2>, gap, Counted::ByUnit);
        let (of_eight, eight) = medians(tied::<8>, gap, Counted::ByUnit);
        println!(
            "gap {gap:.1}: median {single} single streams, {of_two} in {two} units of 2, {of_eight} \
             in {eight} units of 8"
        );
        // Units that are open say nothing yet.
        let times = |units: u64| units as f64 / single as f64;
        assert!(
            times(two) > 1.0 && times(eight) > 1.0,
            "{single} {two} {eight}"
        );
        assert!(
            times(two) < 2.0 && times(eight) < 2.5,
            "{single} {two} {eight}"
        );
    }
}

/// The audits of units of `size` streams in a file: its rows as unit, early and full prediction.
/// Only the first stream of a unit ever loses anything. Sixteen units are under way at a time, and
/// then the next sixteen.
fn file(rng: &mut SmallRng, batches: u64, size: usize) -> Vec<(u64, [u32; 2])> {
    let mut rows = Vec::new();
    for batch in 0..batches {
        let units = 16 * batch..16 * batch + 16;
        let mut open: Vec<(u64, usize)> = units.map(|unit| (unit, 0)).collect();
        while !open.is_empty() {
            let which = rng.random_range(0..open.len());
            let (unit, begun) = &mut open[which];
            let loss = *begun == 0 && rng.random_bool(size as f64 * ALPHA);
            rows.push((*unit, [u32::from(!loss), 1]));
            *begun += 1;
            if *begun == size {
                open.swap_remove(which);
            }
        }
    }
    rows
}

/// Shows rows to a monitor, as `haltwise monitor` does, with labels where the predictions
/// differ.
fn take_rows(
    (auditor, monitor): (&mut Auditor, &mut Monitor),
    deployment: u64,
    rows: &[(u64, [u32; 2])],
) {
    let mut checker = Checker::new();
    for (unit, predictions) in rows {
        let name = format!("{deployment} {unit}");
        let sequence = Sequence {
            label: (predictions[0] != predictions[1]).then_some(predictions[1]),
            predictions: Some(predictions),
            scores: Some(&[0.9, 0.9]),
            about: About {
                unit: Some(&name),
                ..About::default()
            },
            ..Sequence::default()
        };
        let found = auditor.audit(&checker.check(sequence).unwrap()).unwrap();
        let waits = monitor.take(&found.unwrap());
        assert!(waits.is_none());
    }
}

fn rule_by_machine() -> Rule {
    rule_that_halts_at_once(Ask {
        unit: Some("machine".into()),
        ..Ask::default()
    })
}

fn monitor_of(rule: &Rule) -> Monitor {
    Monitor::new(Watch::of(rule, Delta::default()).unwrap())
}

#[test]
fn audits_of_whole_units_make_few_false_alarms_from_end_to_end() {
    let rule = rule_by_machine();
    let found = alarms(10_000, 63, |rng, batches| {
        let rows = file(rng, batches, 2);
        let (mut auditor, mut monitor) = (Auditor::new(rule.clone()), monitor_of(&rule));
        let deployment = rng.random();
        rows.chunks(32).any(|batch| {
            take_rows((&mut auditor, &mut monitor), deployment, batch);
            // All units so far are complete.
            monitor.close_units(u64::MAX);
            monitor.alarm().is_some()
        })
    });
    assert_rare(found, "1,008 units, from end to end");
}

/// Tests the files again and again while they grow, each time from the beginning, as
/// `haltwise monitor` does. A unit that is seen in part counts by its worst stream, and later
/// by another.
#[test]
fn units_that_are_seen_in_part_make_false_alarms_and_complete_ones_do_not() {
    let rule = rule_by_machine();
    let found = |every: usize| {
        alarms(100, 4, |rng, batches| {
            let (rows, deployment) = (file(rng, batches, 8), rng.random());
            (every..=rows.len()).step_by(every).any(|end| {
                let (mut auditor, mut monitor) = (Auditor::new(rule.clone()), monitor_of(&rule));
                take_rows((&mut auditor, &mut monitor), deployment, &rows[..end]);
                monitor.close_units(u64::MAX);
                monitor.alarm().is_some()
            })
        })
    };
    let (whole, part) = (found(128), found(1));
    println!("tested again and again: {whole} of 100 by complete units, {part} by any streams");
    assert!(whole <= 3 && part > 90, "{whole} {part}");
}

#[test]
fn units_in_groups_are_not_watched() {
    for (by, unit) in [(None, true), (Some("site"), false), (Some("site"), true)] {
        let rule = rule_that_halts_at_once(Ask {
            by: by.map(Into::into),
            unit: unit.then(|| "machine".into()),
            ..Ask::default()
        });
        let watch = Watch::of(&rule, Delta::default());
        assert_eq!(watch.is_none(), by.is_some() && unit, "{by:?} {unit}");
    }
}

/// Why units are not: a unit enters the second group once its loss in the first is known,
/// and at once if it lost something. In both groups the mean over units is the gap.
#[test]
fn units_that_come_into_a_second_group_by_what_they_lost_make_false_alarms() {
    let found = alarms(50, 1000, |rng, units| {
        let steps = (1..=STEPS).collect();
        let watch = Watch::new(Alpha::default(), Delta::default(), steps);
        let mut monitor = Monitor::new(watch.in_groups(2).by_units());
        let mut later = Vec::new();
        let comes = |monitor: &mut Monitor, group, unit: u64, loss| {
            let key = UnitKey::new(&unit.to_string());
            let block = monitor.next_block();
            let running = monitor.begin_of_unit(block, group, key).unwrap();
            let (pending, _) = monitor.halt(running, 1);
            monitor.settle(pending, loss);
            monitor.close_unit(group, key);
        };
        for unit in 0..units {
            let loss = rng.random_bool(ALPHA);
            comes(&mut monitor, 0, unit, loss);
            match loss {
                true => comes(&mut monitor, 1, unit, true),
                false => later.push(unit),
            }
        }
        for unit in later {
            comes(&mut monitor, 1, unit, false);
        }
        monitor.alarm().is_some()
    });
    println!("units in two groups: {found} false alarms in 50");
    assert!(found > 40, "{found}");
}
