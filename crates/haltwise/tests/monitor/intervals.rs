//! The intervals: whether they hold at every moment, since the beginning and since a start
//! that was chosen by what was seen.

use haltwise::monitor::{BLOCK, ByStep, Monitor, Running, Watch, lasting_interval};
use haltwise::plan::{Alpha, Delta};
use haltwise::stats::clopper_pearson;
use rand::RngExt;
use rand::rngs::SmallRng;

use super::{ALPHA, alarms, of_the_average};

#[test]
fn lasting_intervals_hold_at_every_moment() {
    let level = 0.05;
    for truth in [0.02, 0.3] {
        let missed = alarms(2000, 1000, |rng, n| {
            let mut losses = 0;
            (1..=n).any(|i| {
                losses += u64::from(rng.random_bool(truth));
                // Often enough to be caught if it does not hold.
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

/// Measures the cost of an interval that holds for all starts at once, for 5% lost among
/// 500 streams.
#[test]
fn the_recent_past_is_known_less_well_than_a_past_of_its_own() {
    let ends = |good: u64| {
        let mut monitor = of_the_average();
        for i in 0..good + 500 {
            monitor.audit(i / BLOCK, 0, 1, i % 20 == 0);
        }
        let recent = monitor.verdict().by_step[0].recent;
        assert_eq!((recent.halted, recent.since), (500, good + 1));
        recent.interval
    };
    for good in [0, 1_000, 10_000, 100_000] {
        let (low, high) = ends(good);
        println!("after {good} audits: {low:.3} to {high:.3}");
    }
    let (first, late) = (ends(0), ends(100_000));
    assert!(first.0 > late.0 && first.1 < late.1);
    assert!(
        late.1 - late.0 < 1.8 * (first.1 - first.0),
        "{first:?} {late:?}"
    );
}

/// A rule that was good for long and has become bad is not called good.
#[test]
fn an_old_average_does_not_hide_what_is_lost_now() {
    let clear = |jump: f64| {
        alarms(40, 10_500, |rng, n| {
            let mut monitor = of_the_average();
            for i in 0..n {
                let gap = if i < 10_000 { 0.02 } else { jump };
                monitor.audit(i / BLOCK, 0, 1, rng.random_bool(gap));
            }
            let verdict = monitor.verdict();
            let (step, recent) = (verdict.by_step[0], verdict.by_step[0].recent);
            // Since the beginning the average is low, and the interval says so.
            assert!(
                step.interval.1 <= ALPHA && recent.since == 10_001,
                "{step:?}"
            );
            verdict.all_clear
        })
    };
    let (kept, lost) = (clear(0.02), clear(0.15));
    println!("all clear in {kept} of 40 where nothing changed, {lost} of 40 where it did");
    assert!(kept >= 38, "{kept}");
    assert_eq!(lost, 0);
}

/// The share of losses of the i-th stream.
type Share = fn(u64) -> f64;

/// The interval is for the average so far, whatever the share does.
#[test]
fn lasting_intervals_hold_for_the_average_where_the_share_changes() {
    let level = 0.05;
    let shares: [(&str, Share); 3] = [
        ("falls", |i| if i < 300 { 0.3 } else { 0.01 }),
        ("rises", |i| if i < 300 { 0.01 } else { 0.3 }),
        (
            "comes and goes",
            |i| if i / 50 % 2 == 0 { 0.5 } else { 0.02 },
        ),
    ];
    for (what, share) in shares {
        let missed = alarms(2000, 1000, |rng, n| {
            let (mut losses, mut sum) = (0, 0.0);
            (1..=n).any(|i| {
                losses += u64::from(rng.random_bool(share(i)));
                sum += share(i);
                if i > 20 && i % 16 != 0 {
                    return false;
                }
                let (low, high) = lasting_interval(losses, i, level);
                let average = sum / i as f64;
                average < low || average > high
            })
        });
        let (_, most) = clopper_pearson(missed, 2000, 0.98);
        println!("a share that {what}: its average is missed {missed} times in 2000");
        assert!(most <= level, "{missed}");
    }
}

/// The chance of a loss of the i-th stream, which halts at a step, in a group.
type Drift = fn(u64, u32, usize) -> f64;

const DRIFTS: [Drift; 4] = [
    // Good for long, then above α.
    |i, _, _| if i < 1400 { 0.02 } else { 0.13 },
    // Bad at first, then good.
    |i, _, _| if i < 300 { 0.3 } else { 0.01 },
    // Only one group drifts, and only by the first step.
    |i, t, group| match (t, group) {
        (1, 1) => 0.02 + 0.2 * i as f64 / 2000.0,
        _ => 0.04,
    },
    |i, _, _| if i / 60 % 2 == 0 { 0.2 } else { 0.01 },
];

/// Given a stream's loss: how many streams later its halt becomes known, and whether its loss
/// becomes known then, or never.
type Late = fn(bool) -> (u64, bool);

const LATE: [Late; 3] = [
    |_| (0, true),
    |loss| if loss { (40, false) } else { (0, true) },
    |loss| if loss { (0, true) } else { (100, false) },
];

/// The sums of what is true of one step and group, before each stream: how many streams
/// halted by the step, and their chances of a loss.
type Truth = Vec<(f64, f64)>;

/// The average chance of a loss among those that halted by the step, from the audit `since`,
/// counted from 1.
fn average(truth: &[(f64, f64)], since: u64) -> Option<f64> {
    let (now, then) = (truth[truth.len() - 1], truth[since as usize - 1]);
    (now.0 > then.0).then(|| (now.1 - then.1) / (now.0 - then.0))
}

/// What a deployment showed at some moments.
#[derive(Default, Clone, Copy)]
struct Shown {
    /// Whether an interval missed the truth.
    missed: bool,
    /// Whether it was ever "all clear", and whether that was ever wrong.
    clear: bool,
    wrongly_clear: bool,
    /// Whether the interval of those that are known missed the truth.
    known_missed: bool,
    /// Whether the recent past of some step began late.
    late_start: bool,
}

const STREAMS: u64 = 2000;

/// Streams of two groups that halt at one of three steps, of which two are watched. Three
/// moments are looked at.
fn shown(rng: &mut SmallRng, drift: Drift, late: Late, delta: Delta) -> Shown {
    let watch = Watch::new(Alpha::default(), delta, vec![1, 2]).in_groups(2);
    let mut monitor = Monitor::new(watch);
    let mut truths = vec![vec![(0.0, 0.0)]; 4];
    let mut due: Vec<Vec<(Running, u32, bool)>> = Vec::new();
    due.resize_with(STREAMS as usize, Vec::new);
    let moments: Vec<u64> = (0..3).map(|_| rng.random_range(1000..STREAMS)).collect();
    let mut shown = Shown::default();
    for now in 0..STREAMS {
        let t = [1, 1, 1, 2, 3][rng.random_range(0..5)];
        let group = usize::from(rng.random_bool(0.4));
        let chance = drift(now, t, group);
        let loss = rng.random_bool(chance);
        for (row, truth) in truths.iter_mut().enumerate() {
            let is_in = row / 2 == group && t <= row as u32 % 2 + 1;
            let (n, sum) = truth[truth.len() - 1];
            truth.push(if is_in {
                (n + 1.0, sum + chance)
            } else {
                (n, sum)
            });
        }
        let begun = monitor.begin(now / BLOCK, group).unwrap();
        let at = now + late(loss).0;
        if let Some(due) = due.get_mut(at as usize) {
            due.push((begun, t, loss));
        }
        for (begun, t, loss) in std::mem::take(&mut due[now as usize]) {
            let (pending, _) = monitor.halt(begun, t);
            if late(loss).1 {
                monitor.settle(pending, loss);
            }
        }
        if moments.contains(&now) {
            look(&monitor, &truths, delta, &mut shown);
        }
    }
    shown
}

fn look(monitor: &Monitor, truths: &[Truth], delta: Delta, shown: &mut Shown) {
    let verdict = monitor.verdict();
    let outside = |(low, high): (f64, f64), truth: f64| truth < low || truth > high;
    shown.clear |= verdict.all_clear;
    for (step, truth) in std::iter::zip(&verdict.by_step, truths) {
        let ByStep { recent, .. } = step;
        shown.late_start |= recent.since > 1;
        for (since, interval) in [(1, step.interval), (recent.since, recent.interval)] {
            let Some(average) = average(truth, since) else {
                continue;
            };
            shown.missed |= outside(interval, average);
            shown.wrongly_clear |= verdict.all_clear && average > ALPHA;
        }
        if let (Some(gap), Some(average)) = (step.gap, average(truth, 1)) {
            let losses = (gap * step.halted as f64).round() as u64;
            let of_known = lasting_interval(losses, step.halted, delta.get());
            shown.known_missed |= outside(of_known, average);
        }
    }
}

/// The start of the recent past is chosen by what was seen, and differs from step to step and
/// from group to group. Some outcomes are unknown.
#[test]
fn all_intervals_of_all_steps_groups_and_starts_hold_at_once() {
    // Large, so that 10,000 deployments could show that it is exceeded.
    let delta = Delta::try_from(0.1).unwrap();
    let count = |what: fn(&Shown) -> bool, late: Option<usize>, deployments| {
        alarms(deployments, STREAMS, |rng, _| {
            let which: usize = rng.random_range(0..12);
            let (drift, late) = (DRIFTS[which % 4], LATE[late.unwrap_or(which / 4)]);
            what(&shown(rng, drift, late, delta))
        })
    };
    let wrong = |shown: &Shown| shown.missed || shown.wrongly_clear;
    let missed = count(wrong, None, 10_000);
    let (_, most) = clopper_pearson(missed, 10_000, 0.98);
    println!("an interval, or the all clear, is wrong in {missed} of 10,000: at most {most:.4}");
    assert!(most <= delta.get(), "{missed}");
    // So the test says something, and can fail.
    let clear = count(|shown| shown.clear, Some(0), 200);
    let late = count(|shown| shown.late_start, None, 200);
    let of_known = [1, 2].map(|late| count(|shown| shown.known_missed, Some(late), 200));
    println!(
        "of 200: {clear} ever all clear, {late} with a late start; without unknown outcomes \
         {of_known:?} intervals miss"
    );
    assert!(clear > 20 && late > 100, "{clear} {late}");
    assert!(of_known.iter().all(|&missed| missed > 100), "{of_known:?}");
}
