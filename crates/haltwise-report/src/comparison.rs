//! Several rules on the same traces.

use haltwise::Rule;
use haltwise::evaluate::Evaluation;
use haltwise::rule::Promise;
use maud::{Markup, html};

use crate::evaluation::{
    alpha_name, gap_point, highest, lone, made_from, readout, row, single, unit_axis, worst_step,
};
use crate::figure::Figure;
use crate::format::{count, fit, interval, level, percent, threshold};
use crate::page::{Context, page};
use crate::palette::{dashed, series};
use crate::panel::{Axis, Mark, Name, Panel, Readout, ReadoutRow};
use crate::words;

/// A rule with the name it goes by, and what it did.
#[derive(Debug, Clone)]
pub struct Compared {
    /// What to call it.
    pub name: String,
    /// The rule.
    pub rule: Rule,
    /// Its results on the common traces.
    pub evaluation: Evaluation,
}

impl Compared {
    /// A rule under a name.
    pub fn new(name: impl Into<String>, rule: Rule, evaluation: Evaluation) -> Self {
        Self {
            name: name.into(),
            rule,
            evaluation,
        }
    }
}

/// The report that sets several rules side by side: one HTML file that needs
/// nothing else.
pub fn report_comparison(rules: &[Compared], context: &Context) -> String {
    let body = html! {
        p.lead style="margin-top:18px" { (lead(rules)) }
        h2 { "At a glance" }
        (summary(rules))
        p.note {
            "The gap is the share of sequences that would have been right at the end and are wrong \
             where they halt. A gap above the rule's own α is marked; intervals are exact, at 95%."
        }
        h2 { "Step by step" }
        div.plots {
            @for (name, figure) in comparison_figures(rules) {
                (figure.inline(name, "steps"))
            }
        }
        h2 { "What each promises" }
        @for compared in rules {
            p {
                b { (compared.name) } ". " (made_from(&compared.evaluation))
                (words::promise(&compared.rule))
            }
        }
    };
    page(context, "Rules compared on the same traces", &body)
}

/// The overlaid figures, each with a name fit for a file.
pub fn comparison_figures(rules: &[Compared]) -> Vec<(&'static str, Figure)> {
    vec![
        ("gap", gaps(rules)),
        ("halted-by", halting(rules)),
        ("thresholds", thresholds(rules)),
        ("trade-off", trade_off(rules)),
    ]
}

fn lead(rules: &[Compared]) -> String {
    let n = rules.first().map_or(0, |c| c.evaluation.n);
    format!(
        "{} rules, {} sequences. Lower is better for both the gap and the steps read; only a \
         certified rule promises anything about sequences yet to come.",
        rules.len(),
        count(n as u64)
    )
}

pub(crate) fn summary(rules: &[Compared]) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label="Summary" {
            table {
                thead { tr {
                    th.text scope="col" { "rule" }
                    th.text scope="col" { "promise" }
                    th scope="col" { "α" }
                    th scope="col" { "early acc." }
                    th scope="col" { "full acc." }
                    th scope="col" { "gap" }
                    th scope="col" { "highest gap by a step" }
                    th scope="col" { "steps read" }
                } }
                tbody { @for (i, c) in rules.iter().enumerate() { (summary_row(i, c)) } }
            }
        }
    }
}

fn summary_row(i: usize, compared: &Compared) -> Markup {
    let Compared {
        name,
        rule,
        evaluation,
    } = compared;
    let alpha = rule.alpha().get();
    let (worst, highest) = worst_step(evaluation);
    html! {
        tr {
            th.text scope="row" {
                span.chip style=(format!("background:var(--{})", series(i))) {} (fit(name, 420.0, 15.0))
            }
            td.text {
                @match rule.promise() {
                    Some(Promise::Marginal) => { "on average" },
                    Some(Promise::Conditional) => { "by every step" },
                    None => { span.over { "none" } },
                }
            }
            td { (level(alpha)) }
            @match evaluation.accuracy {
                Some(accuracy) => {
                    td { (percent(accuracy.early)) }
                    td { (percent(accuracy.late)) }
                },
                None => { td { "–" } td { "–" } },
            }
            td {
                span.over[evaluation.gap > alpha] { (percent(evaluation.gap)) } " "
                span.se { (interval(evaluation.gap_interval)) }
            }
            td {
                span.over[highest > alpha] { (percent(highest)) } " "
                span.se { "by step " (worst) }
            }
            td { (percent(evaluation.steps_read)) }
        }
    }
}

fn t_max(rules: &[Compared]) -> usize {
    rules.iter().map(|c| c.evaluation.t_max).max().unwrap_or(1)
}

/// The tolerated gaps, each named once.
fn levels(rules: &[Compared]) -> Vec<f64> {
    let mut levels: Vec<f64> = rules.iter().map(|c| c.rule.alpha().get()).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    levels
}

fn gaps(rules: &[Compared]) -> Figure {
    let curve = |c: &Compared| c.evaluation.by_step.iter().filter_map(gap_point).collect();
    let curves: Vec<Vec<(f64, f64)>> = rules.iter().map(curve).collect();
    let alphas = levels(rules);
    let highest = curves.iter().filter_map(|c| highest(c)).map(|p| p.1);
    let top = highest
        .map(|gap| gap * 1.15)
        .chain(alphas.iter().map(|alpha| 2.0 * alpha))
        .fold(0.0, f64::max);
    let levels = alphas
        .iter()
        .map(|&alpha| Mark::Level(alpha, alpha_name(alpha)));
    overlay(
        "Gap among sequences halted by step t",
        Axis::shares("share with a gap", top),
        rules,
        &curves,
        levels.collect(),
    )
}

fn halting(rules: &[Compared]) -> Figure {
    let curve = |c: &Compared| {
        let share = |halted: u64| halted as f64 / c.evaluation.n.max(1) as f64;
        let steps = c.evaluation.by_step.iter();
        steps.map(|s| (s.t as f64, share(s.halted_by))).collect()
    };
    let curves: Vec<Vec<(f64, f64)>> = rules.iter().map(curve).collect();
    let axis = Axis::shares("share of all sequences", 1.0);
    overlay(
        "Sequences halted by step t",
        axis,
        rules,
        &curves,
        Vec::new(),
    )
}

/// Curves of shares by step, one per rule, each with its name.
fn overlay(
    title: &str,
    y: Axis,
    rules: &[Compared],
    curves: &[Vec<(f64, f64)>],
    mut marks: Vec<Mark>,
) -> Figure {
    let t_max = t_max(rules);
    for (i, curve) in curves.iter().enumerate() {
        marks.push(Mark::Line(curve.clone(), dashed(i)));
        marks.push(Mark::Dots(lone(curve), format!("dot {}", series(i)), 3.0));
    }
    let named = rules.iter().zip(curves).enumerate();
    let names = named.map(|(i, (c, curve))| Name::new(&c.name, i, curve.clone()));
    let last = rules.iter().zip(curves).filter_map(|(c, curve)| {
        let end = curve.last()?.1;
        Some(format!("{}: {}", c.name, percent(end)))
    });
    let desc = format!("At the last step, {}.", last.collect::<Vec<_>>().join("; "));
    let panel = Panel {
        title: title.into(),
        desc,
        x: Axis::steps(t_max),
        y,
        marks,
        names: names.collect(),
        above: None,
        readout: overlay_readout(t_max, rules, curves),
    };
    single(panel)
}

fn overlay_readout(t_max: usize, rules: &[Compared], curves: &[Vec<(f64, f64)>]) -> Readout {
    let rows = rules.iter().zip(curves).enumerate().map(|(i, (c, curve))| {
        // Curves may start late; every row has a value for every step.
        let at = |t: usize| curve.iter().find(|p| p.0 == t as f64).map(|p| p.1);
        let values: Vec<Option<f64>> = (1..=t_max).map(at).collect();
        ReadoutRow {
            label: c.name.clone(),
            series: Some(series(i)),
            values: values
                .iter()
                .map(|v| v.map_or("–".into(), percent))
                .collect(),
            y: values,
        }
    });
    readout(1..=t_max, rows.collect())
}

fn thresholds(rules: &[Compared]) -> Figure {
    let t_max = t_max(rules);
    let (mut marks, mut rows, mut any_never) = (Vec::new(), Vec::new(), false);
    for (i, compared) in rules.iter().enumerate() {
        let values = compared.rule.thresholds().values();
        let steps = values.iter().enumerate();
        let (finite, never): (Vec<_>, Vec<_>) = steps
            .map(|(t, &v)| ((t + 1) as f64, f64::from(v)))
            .partition(|p| p.1.is_finite());
        any_never |= !never.is_empty();
        // Later rules have smaller dots, so that none hides another.
        let radius = (2.2 + 1.2 * (rules.len() - 1 - i) as f64).min(5.8);
        let shown = (1..=t_max).map(|t| values.get(t - 1).map_or("–".into(), |&v| threshold(v)));
        rows.push(ReadoutRow {
            values: shown.collect(),
            y: (0..t_max)
                .map(|t| {
                    values
                        .get(t)
                        .filter(|v| v.is_finite())
                        .map(|&v| f64::from(v))
                })
                .collect(),
            ..row(&compared.name, &series(i), &[], |_| String::new())
        });
        marks.push(Mark::Dots(finite, format!("dot {}", series(i)), radius));
        marks.push(Mark::Above(
            never.iter().map(|p| p.0).collect(),
            format!("never {}", series(i)),
        ));
    }
    single(Panel {
        title: "Threshold at step t".into(),
        desc: "The thresholds of the rules by step; \u{201c}never\u{201d} is shown above.".into(),
        x: Axis::steps(t_max),
        y: unit_axis("halt when the score reaches this"),
        marks,
        names: Vec::new(),
        above: any_never.then(|| "never".into()),
        readout: readout(1..=t_max, rows),
    })
}

/// What each rule costs against what it reads.
fn trade_off(rules: &[Compared]) -> Figure {
    let alphas = levels(rules);
    let place = |c: &Compared| (c.evaluation.steps_read, c.evaluation.gap);
    let top = rules.iter().map(|c| c.evaluation.gap_interval.1 * 1.1);
    let top = top
        .chain(alphas.iter().map(|a| 2.0 * a))
        .fold(0.0, f64::max);
    let mut marks: Vec<Mark> = alphas
        .iter()
        .map(|&alpha| Mark::Level(alpha, alpha_name(alpha)))
        .collect();
    for (i, compared) in rules.iter().enumerate() {
        let (low, high) = compared.evaluation.gap_interval;
        let whisker = vec![(place(compared).0, low, high)];
        marks.push(Mark::Whiskers(whisker, format!("whisker {}", series(i))));
        marks.push(Mark::Dots(
            vec![place(compared)],
            format!("dot {}", series(i)),
            3.5,
        ));
    }
    let names = rules.iter().enumerate();
    let names = names.map(|(i, c)| Name::new(&c.name, i, vec![place(c)]));
    single(Panel {
        title: "Gap against steps read".into(),
        desc: "Each rule's gap over all sequences against the share of steps it reads.".into(),
        x: Axis::shares("share of all steps read", 1.0),
        y: Axis::shares("share with a gap, with its exact 95% interval", top),
        marks,
        names: names.collect(),
        above: None,
        readout: Readout::default(),
    })
}
