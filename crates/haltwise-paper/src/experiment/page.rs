//! The report on an experiment.

use haltwise::rule::Promise;
use maud::{Markup, html};

use super::figures::file_stem;
use super::sweep::{sweep_by_dataset, sweep_methods};
use super::table::COLUMNS;
use super::{
    DatasetResults, Experiment, Rate, ResultsTable, TableRow, Violations, ablation_figure,
    splits_figure, sweep_figure,
};
use haltwise_report::Context;
use haltwise_report::chance::LEVEL;
use haltwise_report::draw::page;
use haltwise_report::format::{count, interval, level};

/// The report on an experiment: one HTML file that needs nothing else.
pub fn report_experiment(experiment: &Experiment, context: &Context) -> String {
    let body = html! {
        (contents(experiment))
        (introduction(experiment))
        h2 id="table" { "Table 1" }
        (table(&experiment.table(), experiment.alpha))
        h2 id="violations" { "How often the gap was above α" }
        (violations(&experiment.violations(), experiment.delta))
        @for (i, dataset) in experiment.datasets.iter().enumerate() {
            (section(i, dataset, experiment.alpha))
        }
        (sweeps(experiment))
    };
    page(context, "Early stopping, the paper's experiments", &body)
}

/// The address of a dataset's section; its number keeps it unique.
fn anchor(i: usize, dataset: &DatasetResults) -> String {
    format!("d{}-{}", i + 1, file_stem(&dataset.name))
}

fn contents(experiment: &Experiment) -> Markup {
    html! {
        nav.contents aria-label="Contents" {
            ol {
                li { a href="#table" { "Table 1" } }
                li { a href="#violations" { "Violations" } }
                @for (i, dataset) in experiment.datasets.iter().enumerate() {
                    li { a href=(format!("#{}", anchor(i, dataset))) { (dataset.name) } }
                }
                @if !sweep_methods(experiment).is_empty() {
                    li { a href="#alpha" { "Halt time against α" } }
                }
            }
        }
    }
}

fn introduction(experiment: &Experiment) -> Markup {
    let (alpha, delta) = (level(experiment.alpha), level(experiment.delta));
    html! {
        section.verdict {
            p.lead {
                "Tolerated gap α = " (alpha) ", allowed to fail with probability δ = " (delta) "."
            }
            p {
                "For each dataset, a classifier's traces are split at random many times into a \
                 calibration and a test part. Each method calibrates a rule on the first, and is \
                 measured on the second. " b { "Marginal" } " promises a gap of at most α on \
                 average; " b { "conditional" } " promises it among the sequences halted by step t, \
                 for every t; " b { "adaptive" } " promises the same, with a learned score and \
                 threshold curves; " b { "screening alone" } " promises nothing."
            }
        }
    }
}

/// A region that scrolls sideways where a table is wider than the screen, and
/// can be reached by keyboard.
fn scrolling(name: &str, table: &Markup) -> Markup {
    html! { div.scroll tabindex="0" role="region" aria-label=(name) { (table) } }
}

/// The row that names the dataset of those below it.
fn group(dataset: &str, columns: usize) -> Markup {
    html! { tr.group { th.text scope="rowgroup" colspan=(columns) { span { (dataset) } } } }
}

fn table(table: &ResultsTable, alpha: f64) -> Markup {
    let groups = table.rows.chunk_by(|a, b| a.dataset == b.dataset);
    let rows = html! {
        table {
            thead { tr {
                th.text scope="col" { "method" }
                @for (name, _) in COLUMNS { th scope="col" { (name) } }
            } }
            @for rows in groups {
                tbody {
                    (group(&rows[0].dataset, 1 + COLUMNS.len()))
                    @for row in rows { (table_row(row, alpha)) }
                }
            }
        }
    };
    html! {
        p.note {
            "Means over the splits ± standard error; below them, in grey, what the paper reports. \
             Gaps above α are marked. Accuracies, gaps and t_avg are shares between 0 and 1. The \
             oracle bound halts every sequence at its first step without a gap: who knows the \
             future and loses nothing."
        }
        (scrolling("Table 1", &rows))
    }
}

fn table_row(row: &TableRow, alpha: f64) -> Markup {
    html! {
        tr {
            th.text scope="row" { (row.method) }
            @for (cell, (_, name)) in row.cells().iter().zip(COLUMNS) {
                @let above = name.starts_with("gap") && cell.mean.is_some_and(|m| m > alpha);
                td {
                    @match (cell.mean, cell.standard_error) {
                        (Some(mean), error) => {
                            span.over[above] { (format!("{mean:.3}")) }
                            @if let Some(error) = error { span.se { " ± " (format!("{error:.3}")) } }
                        },
                        (None, _) => { "–" },
                    }
                    @if let Some(paper) = cell.papers() { span.paper-value { (paper) } }
                }
            }
        }
    }
}

fn violations(all: &[Violations], delta: f64) -> Markup {
    html! {
        p {
            "In how many splits the gap measured on the test part was above α, with the exact 95% \
             interval of that share. A promise may fail in a share δ = " (level(delta)) " of splits. \
             But the test part is a sample too: a rule whose true gap is just below α measures \
             above it in up to half of them. So the last column counts only splits where the gap by \
             some step is above α by more than chance explains, with all steps looked at \
             together: at most " (level(LEVEL)) " of them for a rule whose true gap is at most α \
             by every step. The splits of one dataset overlap, so the intervals are a guide, not a \
             proof."
        }
        (scrolling("How often the gap was above α", &violations_table(all)))
    }
}

fn violations_table(all: &[Violations]) -> Markup {
    html! {
        table {
            thead { tr {
                th.text scope="col" { "method" }
                th.text scope="col" { "promises" }
                th scope="col" { "above α on average" }
                th scope="col" { "above α by some step" }
                th scope="col" { "beyond chance" }
            } }
            @for rows in all.chunk_by(|a, b| a.dataset == b.dataset) {
                tbody {
                    (group(&rows[0].dataset, 5))
                    @for row in rows {
                        tr {
                            th.text scope="row" { (row.method) }
                            td.text { (promised(row.promise)) }
                            td { (rate(row.on_average)) }
                            td { (rate(row.by_some_step)) }
                            td { (rate(row.beyond_chance)) }
                        }
                    }
                }
            }
        }
    }
}

fn promised(promise: Option<Promise>) -> &'static str {
    match promise {
        Some(Promise::Marginal) => "on average",
        Some(Promise::Conditional) => "by every step",
        None => "nothing",
    }
}

fn rate(rate: Rate) -> Markup {
    html! {
        (rate.count) " of " (rate.splits) " "
        span.se { (interval(rate.interval)) }
    }
}

fn section(i: usize, dataset: &DatasetResults, alpha: f64) -> Markup {
    let id = anchor(i, dataset);
    let splits = dataset.methods.iter().map(|m| m.splits.len()).max();
    let sequences = dataset.methods.iter().flat_map(|m| &m.splits).map(|s| s.n);
    html! {
        section {
            h2 id=(id) { (dataset.name) }
            p.muted {
                (splits.unwrap_or(0)) " splits, " (count(sequences.max().unwrap_or(0)))
                " test sequences each, " (dataset.t_max()) " steps. "
                @if let Some(note) = &dataset.note { (note) }
            }
            div.plots { (splits_figure(dataset, alpha).inline(&format!("{id}-splits"), &id)) }
            div.plots {
                @if let Some(figure) = ablation_figure(dataset, alpha) {
                    (figure.inline(&format!("{id}-ablation"), &id))
                }
                @if let Some(figure) = sweep_figure(dataset) {
                    (figure.inline(&format!("{id}-alpha"), ""))
                }
            }
        }
    }
}

fn sweeps(experiment: &Experiment) -> Markup {
    let methods = sweep_methods(experiment);
    html! {
        @if !methods.is_empty() {
            h2 id="alpha" { "Halt time against α, all datasets" }
            p { "The more gap is tolerated, the earlier the rules halt." }
            div.plots {
                @for (i, method) in methods.iter().enumerate() {
                    @if let Some(figure) = sweep_by_dataset(experiment, method) {
                        (figure.inline(&format!("alpha-{}", i + 1), "alpha"))
                    }
                }
            }
        }
    }
}
