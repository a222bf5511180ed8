//! Writes a report of every kind, and every figure as SVG and PNG, from
//! simulated traces: for looking at.
//!
//! `cargo run -p haltwise-report --example pictures -- FOLDER`

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;

use haltwise_report::{Context, Figure, Theme};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "pictures".into());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let context = Context::new("0.1.0").source("traces", "simulated");

    let (rule, evaluation) = common::conditional(24, 3000, 1);
    let page = haltwise_report::report_evaluation(&rule, &evaluation, &context);
    std::fs::write(folder.join("evaluation.html"), page)?;
    for (name, figure) in haltwise_report::evaluation_figures(&rule, &evaluation) {
        write(folder, name, &figure)?;
    }

    let rules = common::methods(24, 3000, 1);
    let page = haltwise_report::report_comparison(&rules, &context);
    std::fs::write(folder.join("comparison.html"), page)?;
    for (name, figure) in haltwise_report::comparison_figures(&rules) {
        write(folder, &format!("compared-{name}"), &figure)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, figure: &Figure) -> Result<(), Box<dyn std::error::Error>> {
    std::fs::write(folder.join(format!("{name}.svg")), figure.to_svg())?;
    let png = figure.to_png(Theme::Light, 2.0)?;
    std::fs::write(folder.join(format!("{name}.png")), png)?;
    Ok(())
}
