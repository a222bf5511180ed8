//! The figures of one evaluation.

use haltwise::Rule;
use haltwise::evaluate::{Evaluation, StepResult};

use crate::figure::Figure;
use crate::format::{capital, count, count_of, interval, level, percent, threshold};
use crate::palette::series;
use crate::panel::{Axis, Mark, Panel, Readout, ReadoutRow};
use crate::words;

/// The gap among the sequences halted by each step, with its exact 95%
/// interval and the tolerated gap.
pub fn gap_figure(rule: &Rule, evaluation: &Evaluation) -> Figure {
    let (alpha, loss) = (rule.alpha().get(), words::loss(rule));
    let steps = halted_steps(evaluation);
    let gaps: Vec<(f64, f64)> = steps.iter().filter_map(gap_point).collect();
    let band = steps.iter().map(|s| {
        let (low, high) = s.gap_by_interval;
        (s.t as f64, low, high)
    });
    let band: Vec<_> = band.collect();
    single(Panel {
        title: format!("{} among sequences halted by step t", capital(loss)),
        desc: gap_desc(alpha, &gaps, loss),
        x: Axis::steps(evaluation.t_max),
        y: Axis::shares(
            match words::counts_sequences(rule) {
                true if loss == "gap" => "share with a gap, with its exact 95% interval",
                true => "share that disagrees, with its exact 95% interval",
                false => "mean loss, with a 95% interval",
            },
            gap_top(alpha, &gaps, &band),
        ),
        marks: vec![
            Mark::Band(band, "band s1".into()),
            Mark::Level(alpha, alpha_name(alpha)),
            Mark::Line(gaps.clone(), "line s1".into()),
            Mark::Dots(lone(&gaps), "dot s1".into(), 3.0),
        ],
        names: Vec::new(),
        above: None,
        readout: gap_readout(&steps, loss),
    })
}

/// The share of sequences halted by each step.
pub fn halting_figure(evaluation: &Evaluation) -> Figure {
    let steps = &evaluation.by_step;
    let halted = halted_by(steps);
    let n = halted.last().copied().unwrap_or(0).max(1) as f64;
    let share = |(s, &halted): (&StepResult, &u64)| (s.t as f64, halted as f64 / n);
    let curve: Vec<(f64, f64)> = std::iter::zip(steps, &halted).map(share).collect();
    let area = curve.iter().map(|&(x, y)| (x, 0.0, y)).collect();
    single(Panel {
        title: "Sequences halted by step t".into(),
        desc: halting_desc(evaluation),
        x: Axis::steps(evaluation.t_max),
        y: Axis::shares("share of all sequences", 1.0),
        marks: vec![
            Mark::Band(area, "band s3".into()),
            Mark::Line(curve.clone(), "line s3".into()),
            Mark::Dots(lone(&curve), "dot s3".into(), 3.0),
        ],
        names: Vec::new(),
        above: None,
        readout: readout(
            steps.iter().map(|s| s.t),
            vec![
                row("halted by now", "s3", &curve, |(_, y)| percent(y)),
                ReadoutRow {
                    label: "sequences".into(),
                    series: None,
                    values: halted.iter().map(|&halted| count(halted)).collect(),
                    y: Vec::new(),
                },
            ],
        ),
    })
}

/// How many sequences have halted by each step; units may come in between.
fn halted_by(steps: &[StepResult]) -> Vec<u64> {
    let mut sum = 0;
    let by = |step: &StepResult| {
        sum += step.halted;
        sum
    };
    steps.iter().map(by).collect()
}

/// How many sequences halted at each step.
pub fn halt_histogram(evaluation: &Evaluation) -> Figure {
    let steps = &evaluation.by_step;
    let bars: Vec<(f64, f64)> = steps
        .iter()
        .map(|s| (s.t as f64, s.halted as f64))
        .collect();
    let most = steps.iter().map(|s| s.halted).max().unwrap_or(0);
    let busiest = steps.iter().find(|s| s.halted == most).map_or(1, |s| s.t);
    // The last step halts all that are left, so it is not the rule's doing.
    let (early, last) = bars.split_at(bars.len().saturating_sub(1));
    single(Panel {
        title: "Sequences halting at step t".into(),
        desc: format!(
            "Most sequences, {}, halt at step {busiest} of {}.",
            count(most),
            evaluation.t_max
        ),
        x: Axis::steps(evaluation.t_max),
        y: Axis::counts("sequences; at the last step, all that were left", most),
        marks: vec![
            Mark::Bars(early.to_vec(), "bar s3".into()),
            Mark::Bars(last.to_vec(), "bar s6".into()),
        ],
        names: Vec::new(),
        above: None,
        readout: readout(
            steps.iter().map(|s| s.t),
            vec![ReadoutRow {
                label: "halt here".into(),
                series: Some("s3".into()),
                values: steps.iter().map(|s| count(s.halted)).collect(),
                y: bars.iter().map(|&(_, y)| Some(y)).collect(),
            }],
        ),
    })
}

/// The threshold of each step; "never" is shown as such.
pub fn thresholds_figure(rule: &Rule) -> Figure {
    let values = rule.thresholds().values();
    let step = |t: usize| (t + 1) as f64;
    let finite: Vec<(f64, f64)> = values
        .iter()
        .enumerate()
        .filter(|(_, v)| v.is_finite())
        .map(|(t, &v)| (step(t), f64::from(v)))
        .collect();
    let never: Vec<f64> = (0..values.len())
        .filter(|&t| !values[t].is_finite())
        .map(step)
        .collect();
    single(Panel {
        title: "Threshold at step t".into(),
        desc: thresholds_desc(values),
        x: Axis::steps(values.len()),
        y: unit_axis("halt when the score reaches this"),
        above: (!never.is_empty()).then(|| "never".into()),
        marks: vec![
            Mark::Dots(finite, "dot s4".into(), 3.0),
            Mark::Above(never, "never s4".into()),
        ],
        names: Vec::new(),
        readout: readout(
            1..=values.len(),
            vec![ReadoutRow {
                label: "threshold".into(),
                series: Some("s4".into()),
                values: values.iter().map(|&v| threshold(v)).collect(),
                y: values
                    .iter()
                    .map(|&v| v.is_finite().then_some(f64::from(v)))
                    .collect(),
            }],
        ),
    })
}

/// Accuracy of the full and the early predictions, and the share of steps
/// that early stopping reads.
pub fn accuracy_figure(evaluation: &Evaluation) -> Option<Figure> {
    let found = evaluation.accuracy?;
    let accuracy = |share: f64, se: f64| (share, 1.96 * se);
    let bars = [
        ("full accuracy", accuracy(found.late, found.late_se)),
        ("early accuracy", accuracy(found.early, found.early_se)),
        ("steps read", (evaluation.steps_read, 0.0)),
    ];
    let at = |i: usize| (i + 1) as f64;
    let bar = |i: usize, look: &str| Mark::Bars(vec![(at(i), bars[i].1.0)], look.into());
    let ends = |i: usize| {
        let (share, half) = bars[i].1;
        (at(i), (share - half).max(0.0), (share + half).min(1.0))
    };
    let words = (0..3).map(|i| (at(i), ends(i).2, percent(bars[i].1.0)));
    Some(single(Panel {
        title: "Full reading against stopping early".into(),
        desc: format!(
            "Accuracy {} at the end, {} where the rule halts, having read {} of the steps.",
            percent(found.late),
            percent(found.early),
            percent(evaluation.steps_read)
        ),
        x: Axis {
            domain: (0.4, 3.6),
            ticks: (0..3).map(|i| (at(i), bars[i].0.into())).collect(),
            label: "whiskers: 1.96 standard errors, about 95%".into(),
        },
        y: Axis::shares("share of sequences; share of steps", 1.0),
        marks: vec![
            bar(0, "bar s6"),
            bar(1, "bar s1"),
            bar(2, "bar s3"),
            Mark::Whiskers(vec![ends(0), ends(1)], "whisker".into()),
            Mark::Words(words.collect()),
        ],
        names: Vec::new(),
        above: None,
        readout: Readout::default(),
    }))
}

/// The loss of each group, with its interval.
pub fn groups_figure(rule: &Rule, evaluation: &Evaluation) -> Figure {
    let alpha = rule.alpha().get();
    let groups = &evaluation.by_group;
    let at = |i: usize| (i + 1) as f64;
    let bars = groups
        .iter()
        .enumerate()
        .map(|(i, group)| (at(i), group.gap));
    let ends = groups.iter().enumerate().map(|(i, group)| {
        let (low, high) = group.gap_interval;
        (at(i), low, high)
    });
    let ends: Vec<(f64, f64, f64)> = ends.collect();
    let top = ends.iter().map(|end| end.2).fold(2.0 * alpha, f64::max);
    // Names under every bar, or under some where there are many.
    let apart = groups.len().div_ceil(12).max(1);
    let ticks = (0..groups.len()).step_by(apart);
    let worst = groups
        .iter()
        .reduce(|a, b| if b.gap > a.gap { b } else { a });
    single(Panel {
        title: format!("{} of each group", capital(words::loss(rule))),
        desc: worst.map_or_else(String::new, |worst| {
            format!("It is highest for {}: {}.", worst.group, percent(worst.gap))
        }),
        x: Axis {
            domain: (0.4, groups.len() as f64 + 0.6),
            ticks: ticks.map(|i| (at(i), groups[i].group.clone())).collect(),
            label: "whiskers: 95% intervals".into(),
        },
        y: Axis::shares("over all of its sequences", top.min(1.0)),
        marks: vec![
            Mark::Bars(bars.collect(), "bar s1".into()),
            Mark::Level(alpha, alpha_name(alpha)),
            Mark::Whiskers(ends, "whisker".into()),
        ],
        names: Vec::new(),
        above: None,
        readout: Readout::default(),
    })
}

/// All figures of an evaluation, each with a name fit for a file.
pub fn evaluation_figures(rule: &Rule, evaluation: &Evaluation) -> Vec<(&'static str, Figure)> {
    let mut figures = vec![
        ("gap", gap_figure(rule, evaluation)),
        ("halted-by", halting_figure(evaluation)),
        ("halt-steps", halt_histogram(evaluation)),
        ("thresholds", thresholds_figure(rule)),
    ];
    figures.extend(accuracy_figure(evaluation).map(|figure| ("accuracy", figure)));
    if !evaluation.by_group.is_empty() {
        figures.push(("groups", groups_figure(rule, evaluation)));
    }
    figures
}

/// A figure of one panel.
pub fn single(panel: Panel) -> Figure {
    Figure {
        title: panel.title.clone(),
        panels: vec![panel],
        columns: 1,
    }
}

/// An axis from 0 to 1 for scores and thresholds.
pub(crate) fn unit_axis(label: &str) -> Axis {
    let ticks = (0..=5).map(|i| f64::from(i) / 5.0);
    Axis {
        domain: (0.0, 1.0),
        ticks: ticks.map(|v| (v, format!("{v:.1}"))).collect(),
        label: label.into(),
    }
}

/// What the line at the tolerated gap is called.
pub fn alpha_name(alpha: f64) -> String {
    format!("tolerated: α = {}", level(alpha))
}

/// A curve of one point needs a dot to be seen.
pub(crate) fn lone(curve: &[(f64, f64)]) -> Vec<(f64, f64)> {
    match curve {
        [only] => vec![*only],
        _ => Vec::new(),
    }
}

pub(crate) fn gap_point(step: &StepResult) -> Option<(f64, f64)> {
    Some((step.t as f64, step.gap_by?))
}

fn halted_steps(evaluation: &Evaluation) -> Vec<StepResult> {
    let halted = |s: &&StepResult| s.gap_by.is_some();
    evaluation.by_step.iter().filter(halted).copied().collect()
}

/// The top of the gap axis: above the whole curve and well above α. The band
/// may leave the panel where few have halted and it says next to nothing.
fn gap_top(alpha: f64, gaps: &[(f64, f64)], band: &[(f64, f64, f64)]) -> f64 {
    let curve = gaps.iter().map(|g| g.1).fold(0.0, f64::max);
    let settled = band.get(band.len() / 2).map_or(0.0, |b| b.2);
    (curve * 1.15).max(settled * 1.05).max(2.0 * alpha)
}

fn gap_desc(alpha: f64, gaps: &[(f64, f64)], loss: &str) -> String {
    let Some(&(last, gap)) = gaps.last() else {
        return "No sequence halted.".into();
    };
    let (worst, highest) = highest(gaps).unwrap_or((last, gap));
    format!(
        "By the last step the {loss} is {}; it is highest, {}, among the sequences halted by step {worst}. The tolerated {loss} is {}.",
        percent(gap),
        percent(highest),
        level(alpha)
    )
}

/// The first place where a curve is highest.
pub(crate) fn highest(curve: &[(f64, f64)]) -> Option<(f64, f64)> {
    curve
        .iter()
        .copied()
        .reduce(|a, b| if b.1 > a.1 { b } else { a })
}

fn halting_desc(evaluation: &Evaluation) -> String {
    let halted = halted_by(&evaluation.by_step);
    let all = halted.last().copied().unwrap_or(0);
    let half = halted.iter().position(|&halted| 2 * halted >= all);
    let half = half.map_or(evaluation.t_max, |t| t + 1);
    format!(
        "Half of the sequences have halted by step {half} of {}.",
        evaluation.t_max
    )
}

fn thresholds_desc(values: &[f32]) -> String {
    let opens = values.iter().position(|v| v.is_finite());
    let never = values.iter().filter(|v| !v.is_finite()).count();
    let steps = count_of(never as u64, "step", "steps");
    match opens {
        None => "The rule never halts before the end.".into(),
        Some(t) => format!(
            "The rule may halt from step {} on; it never halts at {steps} of {}.",
            t + 1,
            values.len()
        ),
    }
}

fn gap_readout(steps: &[StepResult], loss: &str) -> Readout {
    let gaps: Vec<(f64, f64)> = steps.iter().filter_map(gap_point).collect();
    let column = |label: &str, value: fn(&StepResult) -> String| ReadoutRow {
        label: label.into(),
        series: None,
        values: steps.iter().map(value).collect(),
        y: Vec::new(),
    };
    readout(
        steps.iter().map(|s| s.t),
        vec![
            row(loss, &series(0), &gaps, |(_, y)| percent(y)),
            column("95% interval", |s| interval(s.gap_by_interval)),
            column("halted by now", |s| count(s.halted_by)),
        ],
    )
}

/// A readout by step.
pub fn readout(steps: impl Iterator<Item = usize>, rows: Vec<ReadoutRow>) -> Readout {
    let steps: Vec<usize> = steps.collect();
    let places = steps.iter().map(|&t| t as f64);
    readout_at(places, steps.iter().map(|t| format!("Step {t}")), rows)
}

/// A readout at places that have names of their own.
pub(crate) fn readout_at(
    places: impl Iterator<Item = f64>,
    heads: impl Iterator<Item = String>,
    rows: Vec<ReadoutRow>,
) -> Readout {
    Readout {
        x: places.collect(),
        heads: heads.collect(),
        rows,
    }
}

/// A row of a readout whose values lie on a curve.
pub fn row(
    label: &str,
    series: &str,
    curve: &[(f64, f64)],
    value: impl Fn((f64, f64)) -> String,
) -> ReadoutRow {
    ReadoutRow {
        label: label.into(),
        series: Some(series.into()),
        values: curve.iter().map(|&p| value(p)).collect(),
        y: curve.iter().map(|&(_, y)| Some(y)).collect(),
    }
}
