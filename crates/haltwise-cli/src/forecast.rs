//! `haltwise forecast`: what more traces would buy, from a few.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use haltwise::forecast::{DRAWS, Forecast, enough, forecast};
use haltwise::terms::Loss;
use haltwise::{Ask, Outputs, Plan};
use haltwise_io::{Columns, trace_files, write_whole};
use haltwise_report::format::short;
use haltwise_report::{Foretold, Theme, forecast_figure, forecast_sentence};
use serde_json::json;

use crate::plan::{self, PlanArgs};
use crate::show::{self, HEADING, count, number, percent, styled};

/// Foretell how early rules would halt, with a given number of traces to calibrate on
///
/// Draws calibration sets of each size from a pilot set, calibrates on them, and says
/// how early the rules halt, within which range, and how often any is certified at all:
/// for the promise that is asked for, and for the one that needs no labels.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise forecast pilot.npz
  haltwise forecast pilot.npz --sizes 500,2000,10000 --alpha 0.05 --figure forecast.svg
  haltwise forecast pilot.parquet --by site --json

Nothing is promised here: a pilot of some hundred traces says roughly what to expect.")]
pub(crate) struct Args {
    /// Trace files, folders or patterns: the pilot set
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// How many traces there might be
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "200,500,1000,2000,5000",
          value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    sizes: Vec<u64>,

    #[command(flatten)]
    plan: PlanArgs,

    /// Draw it: an .svg or .png file
    #[arg(long, value_name = "FILE")]
    figure: Option<PathBuf>,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.sizes.sort_unstable();
    args.sizes.dedup();
    let plans = plans(&args.plan);
    if let Some(figure) = &args.figure {
        show::check_output(figure, &trace_files(&args.traces)?)?;
        if !is_png(figure)
            && !figure
                .extension()
                .is_some_and(|e| e.eq_ignore_ascii_case("svg"))
        {
            crate::usage_error("--figure must end in .svg or .png");
        }
    }
    let columns = Columns::of(plans[0].1.terms());
    let pilot = show::read_outputs(&args.traces, &columns)?;
    let foretold = foretell(&args, &plans, &pilot)?;
    if let Some(path) = &args.figure {
        let figure = forecast_figure(&foretold);
        let bytes = match is_png(path) {
            true => figure.to_png(Theme::Light, 2.0)?,
            false => figure.to_svg().into_bytes(),
        };
        write_whole(path, |out| out.write_all(&bytes))?;
    }
    match args.json {
        true => show::print_json(&object(&pilot, &foretold))?,
        false => show::print(&describe(&args, &pilot, &foretold))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn is_png(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("png"))
}

/// The promise that is asked for and, where that is about gaps, the one that
/// needs no labels.
fn plans(args: &PlanArgs) -> Vec<(String, Plan)> {
    let ask = args.ask();
    let loss = ask.loss.unwrap_or_default();
    let mut plans = vec![(name(loss).to_owned(), args.plan(false, false))];
    if loss == Loss::Gap && ask.by.as_deref() != Some("label") {
        let free = Ask {
            loss: Some(Loss::Disagreement),
            ..ask.clone()
        };
        plans.push((name(Loss::Disagreement).to_owned(), plan::plan(free)));
    }
    plans
}

fn name(loss: Loss<()>) -> &'static str {
    match loss {
        Loss::Gap => "gap, with labels",
        Loss::Disagreement => "disagreement, no labels",
        Loss::Given => "given loss",
        Loss::Absolute { .. } => "absolute loss",
    }
}

fn foretell(
    args: &Args,
    plans: &[(String, Plan)],
    pilot: &Outputs,
) -> anyhow::Result<Vec<Foretold>> {
    let bar = show::bar("{prefix} [{bar:30}] {pos}/{len} calibrations")?;
    bar.set_length((plans.len() * args.sizes.len() * DRAWS) as u64);
    let mut foretold = Vec::new();
    for (name, plan) in plans {
        let done = || {
            bar.inc(1);
            true
        };
        let sizes = match forecast(plan, pilot, &args.sizes, 0, done) {
            Ok(sizes) => sizes,
            // Without a label, what needs none is all that can be foretold.
            Err(haltwise::corridor::CalibrateError::NoLabels) if plans.len() > 1 => continue,
            Err(e) => return Err(e.into()),
        };
        foretold.push(Foretold {
            name: name.clone(),
            sizes,
        });
    }
    bar.finish_and_clear();
    Ok(foretold)
}

fn object(pilot: &Outputs, foretold: &[Foretold]) -> serde_json::Value {
    let one = |one: &Foretold| {
        json!({
            "promise": one.name,
            "sizes": one.sizes,
            "enough": enough(&one.sizes),
            "sentence": forecast_sentence(one),
        })
    };
    json!({
        "pilot": pilot.len(),
        "forecasts": foretold.iter().map(one).collect::<Vec<_>>(),
    })
}

fn describe(args: &Args, pilot: &Outputs, foretold: &[Foretold]) -> String {
    let pilot = count(pilot.len() as u64, "trace", "traces");
    let mut text = styled(HEADING, format!("Forecast from {pilot}")) + "\n";
    for one in foretold {
        text += &format!("\n  {}\n", one.name);
        text += &format!(
            "  {:>10}  {:>8}  {:>17}  {:>16}  {}\n",
            "traces", "reads", "90% range", "chance of a rule", "mean cost"
        );
        text.extend(one.sizes.iter().map(line));
        text += &show::paragraph(&forecast_sentence(one));
    }
    if let Some(path) = &args.figure {
        text += &format!("\nThe figure is {}.\n", show::file(path));
    }
    text
}

fn line(found: &Forecast) -> String {
    let range = format!(
        "{} to {}",
        percent(found.t_avg.low),
        percent(found.t_avg.high)
    );
    let cost = found.cost.map_or_else(String::new, |cost| {
        format!(
            "{} ({} to {})",
            short(cost.mean),
            short(cost.low),
            short(cost.high)
        )
    });
    format!(
        "  {:>10}  {:>8}  {range:>17}  {:>16}  {cost}\n",
        number(found.traces),
        percent(found.t_avg.mean),
        percent(found.certified),
    )
}
