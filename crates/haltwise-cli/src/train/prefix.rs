//! The prefix classifier.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use haltwise_io::series::SeriesSet;
use haltwise_paper::classifier::{series_of, write_out_of_sample};
use haltwise_prefix::{Checkpoints, Error, FitOptions, Fitted, Model, Progress};

use super::Args;
use crate::show::{self, count, percent, percent_column};
use crate::stop::Stop;

/// What only the prefix classifier can be asked for.
#[derive(clap::Args)]
#[command(next_help_heading = "With --model prefix")]
pub(super) struct PrefixArgs {
    /// Where to answer, in time points: a number of evenly spaced checkpoints, or the checkpoints
    /// themselves, such as 5,10,20,40 [default: every time point, at most 32]
    #[arg(long, value_name = "CHECKPOINTS", value_parser = checkpoints)]
    checkpoints: Option<Checkpoints>,

    /// Also write what the model says about its own training sequences, each left out, as traces.
    /// `calibrate --fit` takes them; they must not certify
    #[arg(long, value_name = "TRACES")]
    pub(super) fit_traces: Option<PathBuf>,
}

impl PrefixArgs {
    /// The first of them that was asked for.
    pub(super) fn asked(&self) -> Option<&'static str> {
        match (&self.checkpoints, &self.fit_traces) {
            (Some(_), _) => Some("--checkpoints"),
            (None, Some(_)) => Some("--fit-traces"),
            (None, None) => None,
        }
    }
}

/// Reads checkpoints: `12`, or `5,10,20`.
fn checkpoints(text: &str) -> Result<Checkpoints, String> {
    let numbers: Result<Vec<usize>, _> = text.split(',').map(|n| n.trim().parse()).collect();
    match numbers.as_deref() {
        Ok([0]) => Err("give at least 1".into()),
        Ok([number]) => Ok(Checkpoints::Number(*number)),
        Ok(at) => Ok(Checkpoints::At(at.to_vec())),
        Err(_) => Err("give a number such as 12, or time points such as 5,10,20".into()),
    }
}

pub(super) fn run(
    args: &Args,
    set: &SeriesSet,
    places: &[usize],
    stop: &Arc<Stop>,
) -> anyhow::Result<ExitCode> {
    let options = FitOptions {
        checkpoints: args.prefix.checkpoints.clone().unwrap_or_default(),
        seed: args.seed,
        ..FitOptions::default()
    };
    let series = series_of(set)?;
    let (classes, channels) = (set.classes().len(), set.features());
    let bytes = haltwise_prefix::working_memory(set.len(), set.t_max(), channels, classes);
    args.dataset.check_work(set, bytes as u64)?;
    stop.begin()?;
    let bar = show::bar("{msg} [{bar:30}] {eta} left")?;
    let mut shown = Ok(());
    let progress = |done: Progress| {
        bar.set_length(done.checkpoints as u64);
        bar.set_position(done.done as u64);
        let points = count(done.points as u64, "time point", "time points");
        bar.set_message(format!("after {points} {} right", percent(done.accuracy)));
        if args.json {
            shown = show::print_json(&line(done));
        }
        match shown.is_err() || stop.flag().load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let fitted = haltwise_prefix::fit(
        &series,
        set.labels(),
        set.classes().to_vec(),
        &options,
        progress,
    );
    bar.finish_and_clear();
    shown?;
    let fitted = match fitted {
        Err(Error::Stopped) => {
            show::note("stopped: no model was written");
            return Ok(ExitCode::from(stop.code()));
        }
        fitted => fitted?,
    };
    save(args, &fitted, set, places)?;
    if !args.json {
        show::print(&summary(&fitted.model, &args.output, &args.prefix))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn save(args: &Args, fitted: &Fitted, set: &SeriesSet, places: &[usize]) -> anyhow::Result<()> {
    fitted.model.save(&args.output)?;
    match &args.prefix.fit_traces {
        Some(traces) => write_out_of_sample(fitted, set, places, traces),
        None => Ok(()),
    }
}

/// A checkpoint that is done, for machines.
fn line(done: Progress) -> serde_json::Value {
    serde_json::json!({
        "checkpoint": done.done,
        "checkpoints": done.checkpoints,
        "points": done.points,
        "accuracy": done.accuracy,
    })
}

fn summary(model: &Model, path: &Path, options: &PrefixArgs) -> String {
    let trained_on = count(model.training().trained_on as u64, "sequence", "sequences");
    let mut text = format!(
        "Trained on {trained_on}, to answer at {}.\n\n{}\n",
        count(
            model.checkpoints().len() as u64,
            "checkpoint",
            "checkpoints"
        ),
        accuracies(model),
    );
    if let Some(traces) = &options.fit_traces {
        let traces = show::file(traces);
        text += &format!("Its answers about these sequences, each left out: {traces}.\n");
    }
    text + &format!("Written to {}.\n", show::file(path))
}

/// The most checkpoints whose accuracy is shown.
const SHOWN: usize = 8;

/// How often a model is right about sequences that it has not seen, at some of its checkpoints.
pub(crate) fn accuracies(model: &Model) -> String {
    let (checkpoints, records) = (model.checkpoints(), &model.training().checkpoints);
    let number = checkpoints.len();
    let mut text = "  time points read  right, on sequences left out\n".to_owned();
    for i in 1..=SHOWN.min(number) {
        let at = i * number / SHOWN.min(number) - 1;
        let points = show::number(checkpoints[at] as u64);
        text += &format!(
            "  {points:>16}  {:>6}\n",
            percent_column(records[at].accuracy)
        );
    }
    text
}
