//! The files of a run: the tables, the figures and the report.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use haltwise_report::{Context, Theme};
use rayon::prelude::*;

use super::cache;
use crate::experiment::{Experiment, experiment_figures, report_experiment};

/// Pixels per unit: sharp on a good screen.
const PNG_SCALE: f32 = 2.0;

/// Writes the tables, the figures and the report. Returns the report's path.
pub(super) fn write(folder: &Path, experiment: &Experiment) -> anyhow::Result<PathBuf> {
    let table = experiment.table();
    let files = [
        ("table.txt", table.to_text()),
        ("table.md", table.to_markdown()),
        ("table.tex", table.to_latex()),
        ("table.csv", table.to_csv()),
        ("table.json", table.to_json()? + "\n"),
    ];
    for (name, text) in files {
        cache::write_bytes(&folder.join(name), text.as_bytes())?;
    }
    let figures = experiment_figures(experiment);
    figures.par_iter().try_for_each(|(name, figure)| {
        let path = |extension| folder.join(format!("figures/{name}.{extension}"));
        cache::write_bytes(&path("svg"), figure.to_svg().as_bytes())?;
        let png = figure
            .to_png(Theme::Light, PNG_SCALE)
            .with_context(|| format!("{}: cannot draw it", path("png").display()))?;
        cache::write_bytes(&path("png"), &png)
    })?;
    let page = report_experiment(experiment, &Context::new(env!("CARGO_PKG_VERSION")));
    // Last, so that a report is never older than what it stands beside.
    let report = folder.join("report.html");
    cache::write_bytes(&report, page.as_bytes())?;
    Ok(report)
}
