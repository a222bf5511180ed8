//! `haltwise forecast`: predicts from a few traces what more would buy.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use haltwise::forecast::{DRAWS, Forecast, enough, forecast};
use haltwise::plan::Word;
use haltwise::terms::Loss;
use haltwise::{Ask, Outputs, Plan};
use haltwise_io::{Columns, trace_files, write_whole};
use haltwise_report::format::short;
use haltwise_report::{PlanForecast, Theme, forecast_figure, forecast_sentence};
use serde_json::json;

use crate::plan::{self, PlanArgs};
use crate::show::{self, HEADING, count, number, percent, styled};

/// Predict how early a rule would halt with more traces
///
/// Draws calibration sets of each size from a pilot set and calibrates on them. Prints how
/// early the rules halt, with a range, and how often a rule is certified: for the promise
/// you ask for, and for the promise that needs no labels.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise forecast pilot.npz
  haltwise forecast pilot.npz --sizes 500,2000,10000 --alpha 0.05 --figure forecast.svg
  haltwise forecast pilot.parquet --by site --json

A forecast promises nothing. A pilot of a few hundred traces tells roughly what to expect.")]
pub(crate) struct Args {
    /// Trace files, folders or patterns: the pilot set
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Numbers of traces to predict for
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "200,500,1000,2000,5000",
          value_parser = clap::value_parser!(u64).range(2..=1_000_000))]
    sizes: Vec<u64>,

    #[command(flatten)]
    plan: PlanArgs,

    /// Draw the forecast: an .svg or .png file
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
    let forecasts = forecasts_of(&args, &plans, &pilot)?;
    if let Some(path) = &args.figure {
        let figure = forecast_figure(&forecasts);
        let bytes = match is_png(path) {
            true => figure.to_png(Theme::Light, 2.0)?,
            false => figure.to_svg().into_bytes(),
        };
        write_whole(path, |out| out.write_all(&bytes))?;
    }
    match args.json {
        true => show::print_json(&object(&pilot, &forecasts))?,
        false => show::print(&describe(&args, &pilot, &forecasts))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn is_png(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("png"))
}

/// The promise that is asked for. If it is about gaps, also the promise that
/// needs no labels.
fn plans(args: &PlanArgs) -> Vec<(String, Plan)> {
    let ask = args.ask();
    let loss = ask.loss.unwrap_or_default();
    let mut plans = vec![(name(loss), args.plan(false, false))];
    if loss == Loss::Gap && ask.by.as_deref() != Some("label") {
        let free = Ask {
            loss: Some(Loss::Disagreement),
            ..ask.clone()
        };
        plans.push((name(Loss::Disagreement), plan::plan(free)));
    }
    plans
}

fn name(loss: Loss<()>) -> String {
    let word = loss.word();
    match (loss.is_binary(), loss.needs_label()) {
        (true, true) => format!("{word}, with labels"),
        (true, false) => format!("{word}, no labels"),
        (false, _) => format!("{word} loss"),
    }
}

fn forecasts_of(
    args: &Args,
    plans: &[(String, Plan)],
    pilot: &Outputs,
) -> anyhow::Result<Vec<PlanForecast>> {
    let bar = show::bar("{prefix} [{bar:30}] {pos}/{len} calibrations")?;
    bar.set_length((plans.len() * args.sizes.len() * DRAWS) as u64);
    let mut forecasts = Vec::new();
    for (name, plan) in plans {
        let done = || {
            bar.inc(1);
            true
        };
        let sizes = match forecast(plan, pilot, &args.sizes, 0, done) {
            Ok(sizes) => sizes,
            // Without labels, only the promise that needs none can be predicted.
            Err(haltwise::corridor::CalibrateError::NoLabels) if plans.len() > 1 => continue,
            Err(e) => return Err(e.into()),
        };
        forecasts.push(PlanForecast {
            name: name.clone(),
            sizes,
        });
    }
    bar.finish_and_clear();
    Ok(forecasts)
}

fn object(pilot: &Outputs, forecasts: &[PlanForecast]) -> serde_json::Value {
    let one = |one: &PlanForecast| {
        json!({
            "promise": one.name,
            "sizes": one.sizes,
            "enough": enough(&one.sizes),
            "sentence": forecast_sentence(one),
        })
    };
    json!({
        "pilot": pilot.len(),
        "forecasts": forecasts.iter().map(one).collect::<Vec<_>>(),
    })
}

fn describe(args: &Args, pilot: &Outputs, forecasts: &[PlanForecast]) -> String {
    let pilot = count(pilot.len() as u64, "trace", "traces");
    let mut text = styled(HEADING, format!("Forecast from {pilot}")) + "\n";
    for one in forecasts {
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
