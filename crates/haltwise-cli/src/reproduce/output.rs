//! What a run leaves behind: the report, the table, the figures, and a summary
//! in the terminal.

use std::path::Path;

use anyhow::Context as _;
use haltwise_report::{
    Context, Experiment, Rate, Theme, Violations, experiment_figures, report_experiment,
};
use rayon::prelude::*;
use serde_json::json;

use super::{Args, Finished, kept};
use crate::show::{self, HEADING, percent, styled};

/// Pixels per unit: sharp on a good screen.
const PNG_SCALE: f32 = 2.0;

/// Writes the report, the tables and the figures.
pub(super) fn write(folder: &Path, experiment: &Experiment) -> anyhow::Result<()> {
    let table = experiment.table();
    let files = [
        ("table.txt", table.to_text()),
        ("table.md", table.to_markdown()),
        ("table.tex", table.to_latex()),
        ("table.csv", table.to_csv()),
        ("table.json", table.to_json()? + "\n"),
    ];
    for (name, text) in files {
        kept::write_bytes(&folder.join(name), text.as_bytes())?;
    }
    let figures = experiment_figures(experiment);
    figures.par_iter().try_for_each(|(name, figure)| {
        let path = |extension| folder.join(format!("figures/{name}.{extension}"));
        kept::write_bytes(&path("svg"), figure.to_svg().as_bytes())?;
        let png = figure
            .to_png(Theme::Light, PNG_SCALE)
            .with_context(|| format!("{}: cannot draw it", show::file(&path("png"))))?;
        kept::write_bytes(&path("png"), &png)
    })?;
    let page = report_experiment(experiment, &Context::new(env!("CARGO_PKG_VERSION")));
    // Last, so that a report is never older than what it stands beside.
    kept::write_bytes(&folder.join("report.html"), page.as_bytes())
}

/// Says what was found and where it is.
pub(super) fn say(args: &Args, finished: &Finished) -> anyhow::Result<()> {
    let report = args.output.join("report.html");
    let experiment = &finished.experiment;
    if args.json {
        return show::print_json(&json!({
            "alpha": experiment.alpha,
            "delta": experiment.delta,
            "table": experiment.table(),
            "violations": experiment.violations(),
            "report": report,
            "datasets_computed": finished.computed,
            "calibrating_seconds": finished.calibrating.as_secs_f64(),
        }));
    }
    let mut text = styled(HEADING, "Table 1") + "\n" + &experiment.table().to_text() + "\n";
    text += &styled(
        HEADING,
        "In how many splits the gap on the test part was above alpha",
    );
    text += "\n";
    text += &violations(&experiment.violations());
    for dataset in &experiment.datasets {
        if let Some(note) = &dataset.note {
            text += &show::paragraph(&format!("{}: {note}", dataset.name));
        }
    }
    text += &format!("\n{}\n", time(finished));
    text += &format!("The report is {}.\n", show::file(&report));
    Ok(show::print(&text)?)
}

fn time(finished: &Finished) -> String {
    let all = finished.experiment.datasets.len();
    let earlier = (all - finished.computed) as u64;
    let datasets = |n: u64| show::count(n, "dataset", "datasets");
    let mut text = match finished.computed as u64 {
        0 => "Nothing was calibrated anew".to_owned(),
        n => format!(
            "Calibrating and evaluating {} took {:.2} s",
            datasets(n),
            finished.calibrating.as_secs_f64()
        ),
    };
    if earlier > 0 {
        text += &format!("; {} had been done before", datasets(earlier));
    }
    text + "."
}

/// One line per dataset and method, with exact 95% intervals.
fn violations(all: &[Violations]) -> String {
    let mut lines = vec![[
        "dataset".to_owned(),
        "method".to_owned(),
        "on average".to_owned(),
        "by some step".to_owned(),
        "by some step, beyond chance".to_owned(),
    ]];
    let mut last = None;
    for row in all {
        let first = last != Some(&row.dataset);
        last = Some(&row.dataset);
        lines.push([
            if first {
                row.dataset.clone()
            } else {
                String::new()
            },
            row.method.clone(),
            rate(row.on_average),
            rate(row.by_some_step),
            rate(row.beyond_chance),
        ]);
    }
    show::columns(&lines) + "\n"
}

fn rate(rate: Rate) -> String {
    let (low, high) = rate.interval;
    format!(
        "{} of {} ({}–{})",
        rate.count,
        rate.splits,
        percent(low),
        percent(high)
    )
}
