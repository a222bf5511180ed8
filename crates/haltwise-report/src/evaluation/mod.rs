//! One rule, and what it did to a set of traces.

mod figures;
mod judge;
mod prose;
mod tables;

use haltwise::Rule;
use haltwise::evaluate::Evaluation;
use maud::{Markup, html};

pub use figures::{
    accuracy_figure, alpha_name, evaluation_figures, gap_figure, groups_figure, halt_histogram,
    halting_figure, readout, row, single, thresholds_figure,
};
pub(crate) use figures::{gap_point, highest, lone, readout_at, unit_axis};
pub use judge::{Judgement, Standing, judge};
pub(crate) use judge::{made_from, worst_step};

use crate::format::{capital, count, interval, level, percent, short};
use crate::page::{Context, page};
use crate::words;

/// The report on one evaluation: one HTML file that needs nothing else.
pub fn report_evaluation(rule: &Rule, evaluation: &Evaluation, context: &Context) -> String {
    let plot = |figure: crate::Figure, id| figure.inline(id, "steps");
    let body = html! {
        (verdict(rule, evaluation))
        (tiles(rule, evaluation))
        h2 { "Step by step" }
        div.plots {
            (plot(gap_figure(rule, evaluation), "gap"))
            (plot(halting_figure(evaluation), "halting"))
            (plot(halt_histogram(evaluation), "histogram"))
            (plot(thresholds_figure(rule), "thresholds"))
        }
        p.note { (prose::band_note(evaluation)) }
        (tables::steps(rule, evaluation))
        @if !evaluation.by_group.is_empty() {
            h2 { "For every " (rule.terms().by.as_deref().unwrap_or("group")) }
            (groups_figure(rule, evaluation).inline("groups", ""))
            (tables::groups(rule, evaluation))
        }
        h2 { "What stopping early costs, and saves" }
        div.plots {
            @if let Some(figure) = accuracy_figure(evaluation) {
                (figure.inline("accuracy", ""))
            }
            div { (prose::cost(rule, evaluation)) }
        }
        h2 { "How the rule was certified" }
        (prose::certified(rule))
        (tables::trail(rule))
        h2 { "What the promise rests on" }
        (prose::assumption(rule))
    };
    page(context, &words::title(rule), &body)
}

pub(crate) fn verdict(rule: &Rule, evaluation: &Evaluation) -> Markup {
    let judged = judge(rule, evaluation);
    let warn = evaluation.calibrated_on.is_some()
        || matches!(judged.standing, None | Some(Standing::BeyondChance));
    html! {
        section.verdict.warn[warn] {
            p.lead { strong { "Promised. " } (words::promise(rule)) }
            p { strong { "Measured. " } (judged.words) }
        }
    }
}

pub(crate) fn tiles(rule: &Rule, evaluation: &Evaluation) -> Markup {
    let tolerated = format!("{} tolerated", level(rule.alpha().get()));
    let t_max = evaluation.t_max;
    html! {
        dl.tiles {
            div {
                dt { (capital(words::loss(rule))) ", all sequences" }
                dd { (percent(evaluation.gap)) }
                dd.more { (interval(evaluation.gap_interval)) " at 95%; " (tolerated) }
            }
            @if let Some(accuracy) = evaluation.accuracy {
                div {
                    dt { "Accuracy, early" }
                    dd { (percent(accuracy.early)) }
                    dd.more { "full: " (percent(accuracy.late)) }
                }
            }
            div {
                dt { "Steps read" }
                dd { (percent(evaluation.steps_read)) }
                dd.more { "saves " (percent(1.0 - evaluation.steps_read)) " of all steps" }
            }
            div {
                dt { "Mean halt step" }
                dd { (format!("{:.1}", evaluation.t_avg * t_max as f64)) }
                dd.more { "of " (t_max) "; t_avg " (format!("{:.3}", evaluation.t_avg)) }
            }
            @if let Some(cost) = evaluation.cost {
                div {
                    dt { "Mean cost" }
                    dd { (short(cost.mean)) }
                    dd.more { "of " (short(cost.full)) " to the end: "
                        (percent(cost.mean / cost.full)) }
                }
            }
            div {
                dt { "Sequences" }
                dd { (count(evaluation.n as u64)) }
                dd.more { "of " (t_max) " steps at the most" }
            }
        }
    }
}
