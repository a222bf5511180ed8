//! `haltwise reproduce`: the paper's experiments, end to end.

mod progress;

use std::path::PathBuf;
use std::process::ExitCode;

use haltwise::Method;
use haltwise_lstm::Device;
use haltwise_paper::{Finished, Options, Rate, Violations, named_file, reproduce};
use serde_json::json;

use crate::plan::{PaperNumbers, PlanArgs, unmeant};
use crate::show::{self, HEADING, percent, styled};
use progress::Progress;

/// Repeat the paper's experiments: its table, its figures, one report
///
/// For each dataset: the traces of a classifier on held-out sequences, many
/// random splits of them into test, screening and certifying thirds, and on
/// every split the paper's marginal and conditional methods, the adaptive method
/// and screening alone.
/// Run it again after an interruption, and it goes on where it was.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise reproduce                                  PenDigits, which is built in
  haltwise reproduce --data archive                   and all datasets in a folder
  haltwise reproduce --data archive --dataset Crop --checkpoints models
  haltwise reproduce --traces QuALITY=answers.parquet any other classifier

`haltwise data` lists the datasets and says how to get them.")]
pub(crate) struct Args {
    /// The folder of the datasets: NAME.npz, or NAME_TRAIN and NAME_TEST files
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,

    /// Models to score with, NAME.pt or NAME.safetensors; without, they are trained here
    #[arg(long, value_name = "FOLDER")]
    checkpoints: Option<PathBuf>,

    /// Only this dataset (repeat for more)
    #[arg(long, value_name = "NAME")]
    dataset: Vec<String>,

    /// Use these traces for a dataset of this name (repeat for more)
    #[arg(long, value_name = "NAME=FILE", value_parser = named_file)]
    traces: Vec<(String, PathBuf)>,

    /// How many random splits [default: 100, or all of --splits-from]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    splits: Option<u32>,

    /// Take the splits from NAME.splits.npz: `order`, one permutation per row, and `n_test`
    #[arg(long, value_name = "FOLDER")]
    splits_from: Option<PathBuf>,

    /// Take the rows to train on and hold out from NAME.rows.npz: `train`, `validation`, `heldout`
    /// [default: the folder of --splits-from]
    #[arg(long, value_name = "FOLDER")]
    rows_from: Option<PathBuf>,

    #[command(flatten)]
    levels: PlanArgs<PaperNumbers>,

    /// Also measure how the halt time depends on alpha, from 1% to 20% (this is the default)
    #[arg(long, overrides_with = "no_sweep")]
    sweep: bool,

    /// Leave that out
    #[arg(long)]
    no_sweep: bool,

    /// The seed of the training, of the held-out rows and of the splits
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Where models are trained here: epochs at the most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    max_epochs: usize,

    /// Where models are trained and run: auto, cpu, cuda or cuda:N
    #[arg(long, default_value_t = Device::Auto)]
    device: Device,

    /// The folder to write to
    #[arg(short, long, value_name = "FOLDER", default_value = "reproduce")]
    output: PathBuf,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

impl Args {
    fn options(self) -> Options {
        Options {
            data: self.data,
            checkpoints: self.checkpoints,
            datasets: self.dataset,
            traces: self.traces,
            splits: self.splits.map(|n| n as usize),
            splits_from: self.splits_from,
            rows_from: self.rows_from,
            asked: self.levels.ask().clone(),
            sweep: self.sweep || !self.no_sweep,
            seed: self.seed,
            max_epochs: self.max_epochs,
            device: self.device,
            output: self.output,
        }
    }
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let json = args.json;
    let options = args.options();
    options
        .plan(Method::Marginal, None)
        .unwrap_or_else(|error| unmeant(&error));
    let progress = Progress::new();
    let finished = reproduce(&options, &|event| progress.show(event))?;
    say(json, &finished)?;
    Ok(ExitCode::SUCCESS)
}

/// Says what was found and where it is.
fn say(json: bool, finished: &Finished) -> anyhow::Result<()> {
    let experiment = &finished.experiment;
    if json {
        return show::print_json(&json!({
            "alpha": experiment.alpha,
            "delta": experiment.delta,
            "table": experiment.table(),
            "violations": experiment.violations(),
            "report": finished.report,
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
    text += &format!("The report is {}.\n", show::file(&finished.report));
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
