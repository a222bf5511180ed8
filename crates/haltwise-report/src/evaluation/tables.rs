//! The tables of one evaluation.

use haltwise::Rule;
use haltwise::evaluate::Evaluation;
use haltwise::rule::Test;
use maud::{Markup, html};

use crate::format::{count, interval, level, p_value, percent, threshold};
use crate::words;

/// A trail with more tests than this is folded.
const LONG: usize = 12;

/// A table that can be folded. One for reference is not printed.
fn folded(summary: &str, open: bool, reference: bool, table: &Markup) -> Markup {
    html! {
        details.reference[reference] open[open] {
            summary { (summary) }
            // A region that scrolls must be reachable by keyboard.
            div.scroll tabindex="0" role="region" aria-label=(summary) { (table) }
        }
    }
}

/// All numbers behind the figures.
pub(crate) fn steps(rule: &Rule, evaluation: &Evaluation) -> Markup {
    let alpha = rule.alpha().get();
    // Past its last step, a rule that reads on never halts.
    let thresholds = rule.thresholds().values().iter();
    let thresholds = thresholds.chain(std::iter::repeat(&f32::INFINITY));
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "step" }
                th scope="col" { "threshold" }
                th scope="col" { "halt here" }
                th scope="col" { "halted by now" }
                th scope="col" { (words::loss(rule)) " among those" }
                th scope="col" { @if words::counts_sequences(rule) { "exact " } "95% interval" }
            } }
            tbody {
                @for (step, &value) in evaluation.by_step.iter().zip(thresholds) {
                    tr {
                        th scope="row" { (step.t) }
                        td { (threshold(value)) }
                        td { (count(step.halted)) }
                        td { (count(step.halted_by)) }
                        @match step.gap_by {
                            Some(gap) => {
                                td.over[gap > alpha] { (percent(gap)) }
                                td { (interval(step.gap_by_interval)) }
                            },
                            None => { td { "–" } td { "–" } },
                        }
                    }
                }
            }
        }
    };
    // The figures already show this; the table has the numbers.
    folded("Every step as a table", false, true, &table)
}

/// What each group was promised, and got.
pub(crate) fn groups(rule: &Rule, evaluation: &Evaluation) -> Markup {
    let alpha = rule.alpha().get();
    let table = html! {
        table {
            thead { tr {
                th.text scope="col" { (rule.terms().by.as_deref().unwrap_or("group")) }
                th scope="col" { "sequences" }
                th scope="col" { "t_avg" }
                th scope="col" { (words::loss(rule)) }
                th scope="col" { "95% interval" }
                th scope="col" { "highest by a step" }
            } }
            tbody {
                @for group in &evaluation.by_group {
                    @let highest = group.by_step.iter().filter_map(|s| s.gap_by).fold(0.0, f64::max);
                    tr {
                        th.text scope="row" { (group.group) }
                        td { (count(group.n as u64)) }
                        td { (format!("{:.3}", group.t_avg)) }
                        td.over[group.gap > alpha] { (percent(group.gap)) }
                        td { (interval(group.gap_interval)) }
                        td.over[highest > alpha] { (percent(highest)) }
                    }
                }
            }
        }
    };
    folded(
        "Every group as a table",
        evaluation.by_group.len() <= LONG,
        false,
        &table,
    )
}

/// Every test that certifying made.
pub(crate) fn trail(rule: &Rule) -> Markup {
    let tests = rule.trail();
    if tests.is_empty() {
        return html! { p.muted { "No test was made." } };
    }
    let table = html! {
        table {
            thead { tr {
                th scope="col" { "test" }
                th scope="col" { "opens at step" }
                th scope="col" { "threshold" }
                th scope="col" { "worst step" }
                @if !rule.groups().is_empty() { th.text scope="col" { "worst group" } }
                th scope="col" { "halted by it" }
                th scope="col" { "gaps" }
                th scope="col" { "p-value" }
                th scope="col" { "tested at" }
                th.text scope="col" { "result" }
            } }
            tbody {
                @for (i, (test, level)) in tests.iter().zip(levels(rule)).enumerate() {
                    (trail_row(i + 1, test, level, rule))
                }
            }
        }
    };
    let summary = format!("The p-value trail ({} tests)", tests.len());
    folded(&summary, tests.len() <= LONG, false, &table)
}

/// The level that each test of the trail was made at: δ, or its family's share.
fn levels(rule: &Rule) -> Vec<f64> {
    let delta = rule.delta().get();
    let families = rule.families().iter();
    families
        .flat_map(|family| std::iter::repeat_n(delta * family.share, family.tests))
        .collect()
}

fn trail_row(number: usize, test: &Test, at: f64, rule: &Rule) -> Markup {
    let is_chosen = rule
        .chosen()
        .is_some_and(|chosen| std::ptr::eq(chosen, test));
    html! {
        tr {
            th scope="row" { (number) }
            td { (test.opens) }
            td { (threshold(test.threshold.unwrap_or(f32::INFINITY))) }
            td { (test.step) }
            @if let Some(group) = test.group {
                td.text { (rule.groups().get(group).map_or("", String::as_str)) }
            }
            td { (count(test.halted)) }
            td { (count(test.gaps)) }
            td { (p_value(test.p_value)) }
            td { (level(at)) }
            td.text {
                @if !test.rejected {
                    span.over { "failed: testing stops" }
                } @else if is_chosen {
                    b { "passed, used" }
                } @else {
                    "passed"
                }
            }
        }
    }
}
