use super::mixture::{is_start, weight, weight_from};
use super::*;
use crate::numbers::alpha_delta::{Alpha, Delta};

fn watch(steps: u32) -> Watch {
    Watch::new(Alpha::default(), Delta::default(), (1..=steps).collect())
}

/// Streams whose outcomes have no pattern.
fn streams(n: u32) -> Vec<(u32, bool)> {
    let hash = |i: u32| i.wrapping_mul(2_654_435_761) >> 16;
    (0..n)
        .map(|i| (1 + hash(i) % 8, hash(i + 977) % 7 == 0))
        .collect()
}

/// The mixture by its definition, stream by stream.
fn plain(watch: &Watch, streams: &[(u32, bool)]) -> f64 {
    let alpha = watch.alpha().get();
    let blocks = streams.len().div_ceil(100);
    let mut sum = weight_from(blocks);
    for b in 0..blocks {
        for (r, &step) in watch.steps().iter().enumerate() {
            for (share, ratio) in BETS {
                let odds = ratio * alpha / (1.0 - alpha);
                let p = odds / (1.0 + odds);
                let factor = |&(t, loss): &(u32, bool)| match (t <= step, loss) {
                    (false, _) => 1.0,
                    (true, true) => p / alpha,
                    (true, false) => (1.0 - p) / (1.0 - alpha),
                };
                let product: f64 = streams[b * 100..].iter().map(factor).product();
                sum += weight(b) * watch.weight(r) * share * product;
            }
        }
    }
    sum
}

#[test]
fn weights_add_up_to_one() {
    let all: f64 = (0..1000).map(weight).sum();
    assert!((all + weight_from(1000) - 1.0).abs() < 1e-12);
    assert!((0..1000).all(|b| weight(b) > 0.0 && weight(b + 1) < weight(b)));
    for rows in 1..5 {
        let watch = watch(rows).in_groups(3);
        let all: f64 = (0..3 * rows as usize).map(|r| watch.weight(r)).sum();
        assert!((all - 1.0).abs() < 1e-12, "{rows}");
    }
    let bets: f64 = BETS.iter().map(|(weight, _)| weight).sum();
    assert_eq!(bets, 1.0);
}

fn audited(watch: Watch, streams: &[(u32, bool)]) -> Monitor {
    let mut monitor = Monitor::new(watch);
    for (i, &(t, loss)) in streams.iter().enumerate() {
        monitor.audit(i as u64 / BLOCK, 0, t, loss);
    }
    monitor
}

#[test]
fn the_counts_give_the_mixture_as_it_is_defined() {
    for n in [0, 1, 99, 100, 101, 640] {
        let streams = streams(n);
        let (counted, plain) = (
            audited(watch(8), &streams).e_value(),
            plain(&watch(8), &streams),
        );
        assert!(
            (counted / plain - 1.0).abs() < 1e-9,
            "{n}: {counted} {plain}"
        );
    }
}

#[test]
fn the_order_in_which_outcomes_become_known_does_not_matter_in_the_end() {
    let streams = streams(450);
    let at_once = audited(watch(8), &streams);
    let mut late = Monitor::new(watch(8));
    let mut running: Vec<_> = (0..450).map(|i| late.begin(i / BLOCK, 0)).collect();
    let low = late.e_value();
    assert!(low < 0.7, "{low}");
    // From the last to the first, halts before losses.
    let mut pending = Vec::new();
    for (running, &(t, loss)) in running.iter_mut().zip(&streams).rev() {
        let before = late.e_value();
        pending.push((late.halt(running.take().unwrap(), t).0, loss));
        assert!(late.e_value() >= before * (1.0 - 1e-9));
    }
    for (pending, loss) in pending {
        let before = late.e_value();
        late.settle(pending, loss);
        assert!(late.e_value() >= before * (1.0 - 1e-9));
    }
    assert_eq!(late.rows, at_once.rows);
    assert_eq!(late.blocks, at_once.blocks);
    assert_eq!(late.e_value(), at_once.e_value());
}

#[test]
fn servers_add_up_to_one_that_saw_it_all() {
    let streams = streams(900);
    // By the calendar, a block has any number of streams, or none.
    let key = |i: usize| (i as u64 / 70).pow(2);
    let mut one = Monitor::new(watch(8));
    let mut three = vec![Monitor::new(watch(8)); 3];
    for (i, &(t, loss)) in streams.iter().enumerate() {
        one.audit(key(i), 0, t, loss);
        three[i % 7 % 3].audit(key(i), 0, t, loss);
    }
    let sum = Monitor::sum(&three).unwrap();
    assert_eq!(sum.blocks, one.blocks);
    assert_eq!((sum.rows, sum.audits), (one.rows, one.audits));
    three[1] = Monitor::new(watch(7));
    assert_eq!(Monitor::sum(&three), Err(SumError::OtherWatch));
}

#[test]
fn groups_are_told_apart_and_averaged() {
    let mut monitor = Monitor::new(watch(3).in_groups(4));
    for i in 0..400 {
        let group = i % 4;
        monitor.audit(i as u64 / BLOCK, group, 2, group == 2 && i % 3 == 0);
    }
    let alarm = monitor.alarm().unwrap();
    assert_eq!((alarm.group, alarm.step), (2, Some(2)));
    let verdict = monitor.verdict();
    assert_eq!((verdict.worst_group, verdict.worst_step), (2, Some(2)));
    assert_eq!(verdict.by_step.len(), 12);
    assert!(verdict.interval.0 < 0.33 && verdict.interval.1 > 0.33);
    let lost = |s: &ByStep| s.gap.unwrap_or(0.0) > 0.0;
    assert!(
        verdict
            .by_step
            .iter()
            .all(|s| lost(s) == (s.group == 2 && s.t >= Some(2)))
    );
}

#[test]
fn a_promise_on_average_looks_at_all_streams() {
    let mut monitor = Monitor::new(Watch::new(Alpha::default(), Delta::default(), vec![]));
    for i in 0..200 {
        monitor.audit(0, 0, 1 + i % 9, i % 3 == 0);
    }
    let verdict = monitor.verdict();
    assert!(verdict.alarm);
    assert_eq!((verdict.worst_step, verdict.by_step.len()), (None, 1));
    assert_eq!(verdict.by_step[0].halted, 200);
}

#[test]
fn labels_are_wanted_where_a_loss_would_tell_the_most() {
    let mut monitor = Monitor::new(watch(8));
    let mut ask = |t| {
        let running = monitor.begin(0, 0).unwrap();
        monitor.halt(running, t).0
    };
    let pending = [ask(8), ask(1), ask(4), ask(9)];
    let worth = monitor.worth(&pending);
    // By step 1 a loss counts in every row; past the last in none.
    assert!(worth[1] > worth[2] && worth[2] > worth[0] && worth[0] > 0.0);
    assert_eq!(worth[3], 0.0);
    // The worth of a label is how much it then adds.
    let [_, first, ..] = pending;
    let before = monitor.e_value();
    monitor.settle(first, true);
    assert!((monitor.e_value() - before - worth[1]).abs() < 1e-9);
}

#[test]
fn nothing_grows_with_the_time_a_rule_is_in_use() {
    for last in [0, 63, 64, 127, 128, 1000, 100_000] {
        let starts: Vec<usize> = (0..=last).filter(|&b| is_start(b, last)).collect();
        assert!(starts.len() <= 64 + 40 * 12, "{}", starts.len());
        assert_eq!(starts[0], 0);
        // A start that was left out stays out.
        let later = |&b: &usize| !is_start(b, last + 1) || is_start(b, last);
        assert!((0..=last).all(|b| later(&b)), "{last}");
    }
}

#[test]
fn unknown_outcomes_widen_the_interval_on_both_sides() {
    let mut monitor = Monitor::new(watch(1));
    for i in 0..400 {
        monitor.audit(i / BLOCK, 0, 1, i % 50 == 0);
    }
    let known = monitor.verdict();
    assert!(known.all_clear && known.interval.1 < 0.1, "{known:?}");
    let running: Vec<_> = (0..100).filter_map(|_| monitor.begin(4, 0)).collect();
    let verdict = monitor.verdict();
    assert_eq!((verdict.unknown, verdict.by_step[0].halted), (100, 400));
    let (before, now) = (known.by_step[0], verdict.by_step[0]);
    assert_eq!(before.gap, now.gap);
    assert!(now.interval.0 < before.interval.0 && now.interval.1 > before.interval.1);
    assert!(!verdict.all_clear);
    for running in running {
        let (pending, _) = monitor.halt(running, 2);
        monitor.settle(pending, true);
    }
    // They halted by no watched step.
    assert_eq!(monitor.verdict().by_step, known.by_step);
}

#[test]
fn a_monitor_is_stored_and_taken_up_again() {
    let mut monitor = audited(watch(8), &streams(450));
    let running = monitor.begin(9, 0).unwrap();
    let text = serde_json::to_string(&(&monitor, &running)).unwrap();
    let (mut again, ticket): (Monitor, Running) = serde_json::from_str(&text).unwrap();
    assert_eq!(again, monitor);
    assert_eq!(
        again.halt(ticket, 3).0,
        monitor.halt(running, 3).0,
        "and goes on"
    );
    assert_eq!(again, monitor);
    let text = serde_json::to_string(&monitor).unwrap();
    for (from, to) in [
        ("\"halted\":", "\"halted\":9"),
        ("\"steps\":[1,2,", "\"steps\":["),
        ("\"key\":0", "\"key\":7"),
    ] {
        let damaged = text.replacen(from, to, 1);
        assert_ne!(damaged, text, "{from}");
        let refused = serde_json::from_str::<Monitor>(&damaged);
        if from != "\"halted\":" {
            assert!(refused.is_err(), "{from}");
        }
    }
}

#[test]
fn a_stream_of_another_monitor_changes_nothing_and_does_no_harm() {
    let mut monitor = audited(watch(2), &streams(10));
    let before = monitor.rows.clone();
    for text in [
        r#"{"block": 99, "group": 7, "row": 0}"#,
        r#"{"block": 4294967295, "group": 0, "row": 99}"#,
    ] {
        let pending: Pending = serde_json::from_str(text).unwrap();
        assert_eq!(monitor.worth([&pending]), [0.0]);
        monitor.settle(pending, true);
    }
    assert_eq!(monitor.rows, before);
}

/// The rows that a monitor by units must have: in each, every unit counts by the stream
/// with the least draw of those that halted by then.
fn rows_of_units(watch: &Watch, units: &[Vec<(u32, bool)>]) -> Vec<Row> {
    let of_step = |step: u32| {
        let counting = |(u, unit): (usize, &Vec<(u32, bool)>)| {
            let halted = (0..unit.len()).filter(|&i| unit[i].0 <= step);
            halted.min_by_key(|&i| draw_of(u, i)).map(|i| unit[i])
        };
        let found: Vec<_> = units.iter().enumerate().filter_map(counting).collect();
        Row {
            halted: found.len() as u64,
            losses: found.iter().filter(|(_, loss)| *loss).count() as u64,
            unknown: 0,
        }
    };
    watch.steps().iter().map(|&step| of_step(step)).collect()
}

fn unit_name(unit: usize) -> UnitKey {
    UnitKey::new(&unit.to_string())
}

fn draw_of(unit: usize, stream: usize) -> u64 {
    unit_name(unit).draw_of(stream as u32)
}

#[test]
fn a_unit_counts_once_by_the_stream_drawn_whatever_order_things_become_known_in() {
    let watch = watch(8).by_units();
    let units: Vec<Vec<(u32, bool)>> = streams(120).chunks(4).map(<[_]>::to_vec).collect();
    // Forwards, backwards and mixed; the order in which streams begin is the same.
    for stride in [1, 119, 77] {
        // The unit is closed before anything is known, or after everything is.
        for closed_first in [true, false] {
            let mut monitor = Monitor::new(watch.clone());
            let mut running = Vec::new();
            for i in 0..4 {
                for (u, unit) in units.iter().enumerate() {
                    let begun = monitor.begin_of_unit(0, 0, unit_name(u));
                    running.push(begun.map(|begun| (begun, unit[i])));
                }
            }
            assert_eq!((monitor.audits, monitor.unknown), (30, 30));
            if closed_first {
                monitor.close_units(1);
            }
            let mut pending: Vec<Option<(Pending, bool)>> = (0..120).map(|_| None).collect();
            for place in (0..120).map(|i| i * stride % 120) {
                if let Some((begun, (t, loss))) = running[place].take() {
                    let before = monitor.e_value();
                    pending[place] = Some((monitor.halt(begun, t).0, loss));
                    assert!(
                        monitor.e_value() >= before,
                        "what becomes known only raises it"
                    );
                }
            }
            for place in (0..120).map(|i| i * stride % 120) {
                if let Some((halted, loss)) = pending[place].take() {
                    let worth = monitor.worth([&halted])[0];
                    let before = monitor.e_value();
                    monitor.settle(halted, loss);
                    let gained = monitor.e_value() - before;
                    let expected = if loss && closed_first { worth } else { 0.0 };
                    assert!((gained - expected).abs() < 1e-9 * before.max(1.0));
                }
            }
            monitor.close_units(1);
            assert_eq!(monitor.rows, rows_of_units(&watch, &units), "{stride}");
            assert_eq!((monitor.unknown, monitor.units.len()), (0, 0));
            // A closed unit does not begin again.
            assert_eq!(monitor.begin_of_unit(9, 0, unit_name(3)), None);
            let text = serde_json::to_string(&monitor).unwrap();
            assert_eq!(serde_json::from_str::<Monitor>(&text).unwrap(), monitor);
            assert_eq!(monitor.verdict().unwatched.of_closed_units, 1);
        }
    }
}

#[test]
fn a_unit_of_more_streams_than_are_told_apart_stays_unknown() {
    let mut monitor = Monitor::new(watch(3).by_units());
    let mut begun: Vec<_> = (0..1000)
        .filter_map(|_| monitor.begin_of_unit(0, 0, unit_name(1)))
        .collect();
    assert!(begun.len() <= 257, "{}", begun.len());
    for running in begun.drain(..) {
        let (pending, _) = monitor.halt(running, 1);
        monitor.settle(pending, true);
    }
    monitor.close_units(1);
    assert_eq!((monitor.audits, monitor.unknown), (1, 1));
    assert_eq!(monitor.rows[0].losses, 0);
    // Streams that have halted make room, so any number is told apart.
    for _ in 0..1000 {
        if let Some(running) = monitor.begin_of_unit(0, 0, unit_name(2)) {
            let (pending, _) = monitor.halt(running, 1);
            monitor.settle(pending, true);
        }
    }
    monitor.close_unit(0, unit_name(2));
    assert_eq!((monitor.audits, monitor.unknown), (2, 1));
    assert_eq!(monitor.rows[0].losses, 1);
}

#[test]
fn a_unit_of_two_monitors_is_noticed() {
    let one = |name: &str| {
        let mut monitor = Monitor::new(watch(3).by_units());
        let begun = monitor.begin_of_unit(0, 0, UnitKey::new(name)).unwrap();
        let _waits = monitor.halt(begun, 1);
        monitor
    };
    assert_eq!(Monitor::sum(&[one("a"), one("b")]).unwrap().audits, 2);
    let refused = Monitor::sum(&[one("a"), one("a")]);
    assert_eq!(refused, Err(SumError::SharedUnit));
}

#[test]
fn shares_of_delta_of_all_servers_and_their_sum_add_up_to_it() {
    for servers in [2_u32, 5] {
        let share = watch(3).shared_by(servers).delta().get();
        let all = share * f64::from(servers + 1);
        assert!((all - Delta::default().get()).abs() < 1e-12, "{servers}");
    }
    assert_eq!(watch(3).shared_by(1), watch(3));
}

#[test]
fn units_are_drawn_at_their_share() {
    let drawn = |share, rule| {
        let is_drawn = move |i: &i32| UnitKey::new(&format!("u{i}")).is_drawn(share, rule);
        (0..10_000).filter(is_drawn)
    };
    let count = |share| drawn(share, "a").count();
    assert_eq!((count(0.0), count(1.0)), (0, 10_000));
    let found = count(0.05);
    assert!((400..600).contains(&found), "{found}");
    // Another rule draws independently of the first.
    let first: BTreeSet<i32> = drawn(0.05, "a").collect();
    let both = drawn(0.05, "b").filter(|i| first.contains(i)).count();
    assert!((5..60).contains(&both), "{both}");
}

#[test]
fn streams_that_count_for_nothing_are_counted_and_nothing_is_all_clear() {
    let mut monitor = Monitor::new(watch(1).by_units());
    for unit in 0..400 {
        let running = monitor.begin_of_unit(0, 0, unit_name(unit)).unwrap();
        let (pending, _) = monitor.halt(running, 1);
        monitor.settle(pending, false);
    }
    assert_eq!(monitor.open_units(), 400);
    monitor.close_units(1);
    assert_eq!(monitor.open_units(), 0);
    assert!(monitor.verdict().all_clear);
    // A closed unit comes back.
    assert_eq!(monitor.begin_of_unit(9, 0, unit_name(3)), None);
    let of_closed = |of_closed_units| Unwatched {
        of_closed_units,
        ..Unwatched::default()
    };
    let verdict = monitor.verdict();
    assert_eq!((verdict.audits, verdict.unwatched), (400, of_closed(1)));
    assert!(!verdict.all_clear);
    // A unit comes back that was closed with an unknown outcome.
    let _running = monitor.begin_of_unit(9, 0, unit_name(400));
    monitor.close_unit(0, unit_name(400));
    assert_eq!(monitor.begin_of_unit(9, 0, unit_name(400)), None);
    assert_eq!(monitor.verdict().unwatched, of_closed(2));
    let mut other = Monitor::new(watch(1).by_units());
    for _ in 0..2 {
        let _running = other.begin_of_unit(0, 0, unit_name(401));
        other.close_units(u64::MAX);
    }
    let sum = Monitor::sum(&[monitor, other]).unwrap();
    assert_eq!(sum.verdict().unwatched, of_closed(3));
}

#[test]
fn streams_of_new_units_are_counted_when_no_more_are_told_apart() {
    let mut monitor = Monitor::new(watch(1).by_units());
    monitor.spent = (0..MOST_UNITS).map(|unit| (0, unit_name(unit))).collect();
    assert_eq!(monitor.begin_of_unit(0, 0, unit_name(MOST_UNITS)), None);
    let verdict = monitor.verdict();
    assert_eq!(verdict.unwatched.of_new_units, 1);
    assert!(!verdict.all_clear);
}

#[test]
fn streams_that_a_watch_does_not_cover_count_for_nothing_and_nothing_is_all_clear() {
    // The promise is about units, and the streams name none.
    let mut by_unit = Monitor::new(watch(2).by_units());
    assert_eq!(by_unit.begin(0, 0), None);
    for _ in 0..500 {
        assert_eq!(by_unit.audit(0, 0, 1, true), None);
    }
    let verdict = by_unit.verdict();
    assert_eq!((verdict.audits, verdict.alarm), (0, false));
    assert_eq!(verdict.unwatched.without_unit, 501);
    assert_eq!(verdict.unwatched.streams(), 501);
    // The promise covers two groups, and the streams are of a third.
    let mut grouped = Monitor::new(watch(2).in_groups(2));
    assert_eq!(grouped.begin(0, 2), None);
    for _ in 0..500 {
        assert_eq!(grouped.audit(0, 7, 1, true), None);
    }
    assert_eq!(grouped.begin_of_unit(0, 2, unit_name(1)), None);
    let verdict = grouped.verdict();
    assert_eq!((verdict.audits, verdict.alarm), (0, false));
    assert_eq!(verdict.unwatched.without_group, 502);
    // The promise is about streams: the name of a unit does not matter.
    let mut alone = Monitor::new(watch(1));
    for _ in 0..400 {
        let running = alone.begin_of_unit(0, 0, unit_name(1)).unwrap();
        let (pending, _) = alone.halt(running, 1);
        alone.settle(pending, false);
    }
    assert!(alone.verdict().all_clear && alone.audits() == 400);
    assert_eq!(alone.begin(0, 1), None);
    assert!(!alone.verdict().all_clear);
    let text = serde_json::to_string(&alone).unwrap();
    assert_eq!(serde_json::from_str::<Monitor>(&text).unwrap(), alone);
    // A store from before has no such counts.
    let old = text.replace(",\"without_unit\":0,\"without_group\":1", "");
    assert_ne!(old, text);
    let old: Monitor = serde_json::from_str(&old).unwrap();
    assert!(old.verdict().all_clear);
}

#[test]
fn a_monitor_takes_a_smaller_delta_and_never_a_larger_one() {
    let mut monitor = audited(watch(3), &streams(50));
    let shared = watch(3).shared_by(4);
    assert_eq!(monitor.take_watch(&watch(3)), Ok(false));
    assert_eq!(monitor.take_watch(&shared), Ok(true));
    assert_eq!(monitor.watch(), &shared);
    assert_eq!(monitor.watch().servers(), 4);
    let before = monitor.clone();
    let refused = monitor.take_watch(&watch(3));
    assert_eq!(refused, Err(WatchError::SmallerDelta));
    let all = [watch(2), watch(3).by_units(), watch(3).in_groups(2)];
    for other in all.map(|other| other.shared_by(9)) {
        let refused = monitor.take_watch(&other);
        assert_eq!(refused, Err(WatchError::OtherCounts));
    }
    assert_eq!(monitor, before);
    // An alarm was raised at 1/δ, which the evidence need not reach again.
    let mut alarmed = Monitor::new(watch(3));
    while alarmed.audit(0, 0, 1, true).is_none() {}
    let refused = alarmed.take_watch(&shared);
    assert_eq!(refused, Err(WatchError::AlarmStands));
    assert_eq!(alarmed.watch(), &watch(3));
}
