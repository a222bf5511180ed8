//! `haltwise reproduce`: the paper's experiments, end to end.
//!
//! Each dataset goes through the same stages: its traces (`sources`, `model`),
//! its splits (`splits`), the methods on every split (`methods`); what comes
//! out is kept under a key of all that went in (`kept`), so that a run that was
//! interrupted goes on where it was.

mod kept;
mod methods;
mod model;
mod output;
mod progress;
mod sources;
mod splits;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use haltwise::plan::{Alpha, AtNever};
use haltwise::traces::Fitting;
use haltwise::{Ask, Method, Plan};
use haltwise_io::Columns;
use haltwise_lstm::Device;
use haltwise_report::{DatasetResults, Experiment};
use serde::Serialize;

use crate::plan::{Levels, PlanArgs};
use crate::show;
use progress::Progress;
use sources::Dataset;

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
    /// Where the datasets are: NAME.npz, or NAME_TRAIN and NAME_TEST files
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,

    /// Models to score with, NAME.pt or NAME.safetensors; without, they are trained here
    #[arg(long, value_name = "FOLDER")]
    checkpoints: Option<PathBuf>,

    /// Only this dataset (repeat for more)
    #[arg(long, value_name = "NAME")]
    dataset: Vec<String>,

    /// Use these traces for a dataset of this name (repeat for more)
    #[arg(long, value_name = "NAME=FILE", value_parser = sources::named_file)]
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
    levels: PlanArgs<Levels>,

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

/// What every dataset is calibrated for.
#[derive(Debug, Clone)]
struct Wanted {
    levels: Ask,
    sweep: bool,
    splits: Option<usize>,
    seed: u64,
}

impl Wanted {
    /// The plan of one of the paper's methods, at its own α or another.
    fn plan(&self, method: Method, alpha: Option<Alpha>) -> Plan {
        let plan = crate::plan::plan(Ask {
            method: Some(method),
            alpha: alpha.map(Alpha::get).or(self.levels.alpha),
            ..self.levels.clone()
        });
        // To the letter of the paper's listing, where the method walks at all.
        plan.clone().walking(AtNever::Stop).unwrap_or(plan)
    }
}

/// All results, and the time that calibrating and evaluating alone took.
struct Finished {
    experiment: Experiment,
    calibrating: Duration,
    computed: usize,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let datasets = sources::datasets(&args)?;
    for folder in ["", "results", "models", "traces", "figures"] {
        kept::prepare(&args.output.join(folder))?;
    }
    let finished = all(&args, &datasets)?;
    output::write(&args.output, &finished.experiment)?;
    output::say(&args, &finished)?;
    Ok(ExitCode::SUCCESS)
}

fn all(args: &Args, datasets: &[Dataset]) -> anyhow::Result<Finished> {
    let wanted = wanted(args);
    let plan = wanted.plan(Method::Marginal, None);
    let mut finished = Finished {
        experiment: Experiment {
            alpha: plan.alpha().get(),
            delta: plan.delta().get(),
            datasets: Vec::new(),
        },
        calibrating: Duration::ZERO,
        computed: 0,
    };
    for dataset in datasets {
        let progress = Progress::new(dataset.name());
        let (results, took) = results(args, &wanted, dataset, &progress)
            .with_context(|| dataset.name().to_owned())?;
        finished.experiment.datasets.push(results);
        finished.calibrating += took.unwrap_or_default();
        finished.computed += usize::from(took.is_some());
    }
    Ok(finished)
}

fn wanted(args: &Args) -> Wanted {
    Wanted {
        levels: args.levels.ask().clone(),
        sweep: args.sweep || !args.no_sweep,
        splits: args.splits.map(|n| n as usize),
        seed: args.seed,
    }
}

/// All that the results of a dataset depend on; its digest is their key.
#[derive(Serialize)]
struct Inputs<'a> {
    version: &'static str,
    dataset: &'a str,
    traces: &'a model::Origin,
    splits: &'a splits::Origin,
    alpha: f64,
    delta: f64,
    grid_step: f64,
    sweep: bool,
    methods: [&'static str; methods::ROWS],
}

/// The results of one dataset, and how long calibrating took, if it was done.
fn results(
    args: &Args,
    wanted: &Wanted,
    dataset: &Dataset,
    progress: &Progress,
) -> anyhow::Result<(DatasetResults, Option<Duration>)> {
    let plan = wanted.plan(Method::Marginal, None);
    let origin = model::origin(args, dataset, progress)?;
    let splits_origin = splits::origin(dataset, wanted)?;
    let key = kept::key(&Inputs {
        version: env!("CARGO_PKG_VERSION"),
        dataset: dataset.name(),
        traces: &origin.record,
        splits: &splits_origin,
        alpha: plan.alpha().get(),
        delta: plan.delta().get(),
        grid_step: plan.grid().step(),
        sweep: wanted.sweep,
        methods: methods::NAMES,
    })?;
    let file = args.output.join(format!("results/{}.json", dataset.name()));
    if let Some(results) = kept::results(&file, &key)? {
        progress.done(format_args!("unchanged, as in {}", show::file(&file)));
        return Ok((results, None));
    }
    let files = model::traces(args, dataset, &origin, progress)?;
    let none = Columns::default();
    let read = |path: &PathBuf| show::read_outputs(std::slice::from_ref(path), &none);
    let outputs = read(&files.heldout)?;
    let fitting = match &files.validation {
        Some(path) => Some(Fitting::new(read(path)?)),
        None => None,
    };
    let splits = splits::load(dataset, wanted, outputs.len(), &files.heldout)?;
    let started = Instant::now();
    let found = methods::run(wanted, &outputs, fitting.as_ref(), &splits, progress)?;
    let took = started.elapsed();
    let results = DatasetResults {
        name: dataset.name().to_owned(),
        methods: found.methods,
        sweep: found.sweep,
        oracle: Some(found.oracle),
        note: Some(origin.note(&splits)),
    };
    kept::keep(&file, &key, &results)?;
    progress.done(format_args!(
        "{} of {} in {:.1} s",
        show::count(splits.len() as u64, "split", "splits"),
        show::count(outputs.len() as u64, "trace", "traces"),
        took.as_secs_f64()
    ));
    Ok((results, Some(took)))
}
