//! The paper's experiments, end to end.
//!
//! Each dataset goes through the same stages: its traces (`sources`, `model`),
//! its splits (`splits`), the methods on every split (`methods`). The results
//! are stored under a key of all that they were made from (`cache`), so that a
//! run that was interrupted continues where it stopped.

mod cache;
mod methods;
mod model;
mod output;
mod sources;
mod splits;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use haltwise::plan::{Alpha, AtNever, PlanError};
use haltwise::traces::Fitting;
use haltwise::{Ask, Method, Plan};
use haltwise_io::{Columns, read_outputs, trace_files};
use haltwise_lstm::Device;
use haltwise_report::format::count_of as count;
use serde::Serialize;

use crate::experiment::{DatasetResults, Experiment};
use sources::Dataset;
pub use sources::named_file;

/// What to reproduce, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder with the datasets, besides those that are built in.
    pub data: Option<PathBuf>,
    /// The folder with trained models; without, models are trained here.
    pub checkpoints: Option<PathBuf>,
    /// Only these datasets; all if empty.
    pub datasets: Vec<String>,
    /// Trace files that stand for the dataset of that name.
    pub traces: Vec<(String, PathBuf)>,
    /// How many splits.
    pub splits: Option<usize>,
    /// The folder with files of splits; without, they are drawn.
    pub splits_from: Option<PathBuf>,
    /// The folder with files of rows to train on and to hold out.
    pub rows_from: Option<PathBuf>,
    /// The levels and the grid of the paper's methods.
    pub asked: Ask,
    /// Whether to measure how the halt time depends on alpha.
    pub sweep: bool,
    /// The seed of the training, of the held-out rows and of the splits.
    pub seed: u64,
    /// Where models are trained here: epochs at the most.
    pub max_epochs: usize,
    /// Where models are trained and run.
    pub device: Device,
    /// The folder to write to.
    pub output: PathBuf,
}

impl Options {
    /// The plan of one of the paper's methods, at its own α or another.
    pub fn plan(&self, method: Method, alpha: Option<Alpha>) -> Result<Plan, PlanError> {
        let plan = Plan::new(Ask {
            method: Some(method),
            alpha: alpha.map(Alpha::get).or(self.asked.alpha),
            screen: method == Method::Conditional,
            ..self.asked.clone()
        })?;
        // To the letter of the paper's listing.
        if method == Method::Conditional {
            plan.walking(AtNever::Stop)
        } else {
            Ok(plan)
        }
    }
}

/// What a run reports while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<'a> {
    /// The work on a dataset begins.
    Dataset(&'a str),
    /// A stage of a known number of parts begins.
    Stage(&'static str, usize),
    /// This many parts of the stage are done.
    Advanced(usize),
    /// Work goes on whose end is not known.
    Doing(String),
    /// The dataset is done, and how.
    Done(String),
    /// Something that the user should know.
    Warning(String),
}

/// Receives what a run reports, from several threads.
pub type Listener<'a> = dyn Fn(Event<'_>) + Sync + 'a;

/// All results, and the time that calibrating and evaluating alone took.
#[derive(Debug)]
pub struct Finished {
    /// The results of all datasets.
    pub experiment: Experiment,
    /// How long calibrating and evaluating took.
    pub calibrating: Duration,
    /// How many datasets were computed now, not in an earlier run.
    pub computed: usize,
    /// The report.
    pub report: PathBuf,
}

/// Runs the experiments and writes results, tables, figures and the report.
pub fn reproduce(options: &Options, tell: &Listener<'_>) -> anyhow::Result<Finished> {
    let datasets = sources::datasets(options, tell)?;
    for folder in ["", "results", "models", "traces", "figures"] {
        cache::prepare(&options.output.join(folder))?;
    }
    let plan = options.plan(Method::Marginal, None)?;
    let mut experiment = Experiment {
        alpha: plan.alpha().get(),
        delta: plan.delta().get(),
        datasets: Vec::new(),
    };
    let mut calibrating = Duration::ZERO;
    let mut computed = 0;
    for dataset in &datasets {
        tell(Event::Dataset(dataset.name()));
        let (results, took) =
            results(options, dataset, tell).with_context(|| dataset.name().to_owned())?;
        experiment.datasets.push(results);
        calibrating += took.unwrap_or_default();
        computed += usize::from(took.is_some());
    }
    let report = output::write(&options.output, &experiment)?;
    Ok(Finished {
        experiment,
        calibrating,
        computed,
        report,
    })
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
    options: &Options,
    dataset: &Dataset,
    tell: &Listener<'_>,
) -> anyhow::Result<(DatasetResults, Option<Duration>)> {
    let plan = options.plan(Method::Marginal, None)?;
    let origin = model::origin(options, dataset, tell)?;
    let splits_origin = splits::origin(dataset, options)?;
    let key = cache::key(&Inputs {
        version: env!("CARGO_PKG_VERSION"),
        dataset: dataset.name(),
        traces: &origin.record,
        splits: &splits_origin,
        alpha: plan.alpha().get(),
        delta: plan.delta().get(),
        grid_step: plan.grid().step(),
        sweep: options.sweep,
        methods: methods::NAMES,
    })?;
    let file = options
        .output
        .join(format!("results/{}.json", dataset.name()));
    if let Some(results) = cache::results(&file, &key)? {
        tell(Event::Done(format!("unchanged, as in {}", file.display())));
        return Ok((results, None));
    }
    let files = model::traces(options, dataset, &origin, tell)?;
    tell(Event::Doing("reading traces".into()));
    let none = Columns::default();
    let read =
        |path: &PathBuf| read_outputs(&trace_files(&[path])?, &none, &mut |_done, _total| {});
    let outputs = read(&files.heldout)?;
    let fitting = match &files.validation {
        Some(path) => Some(Fitting::new(read(path)?)),
        None => None,
    };
    let splits = splits::load(dataset, options, outputs.len(), &files.heldout)?;
    let started = Instant::now();
    let found = methods::run(options, &outputs, fitting.as_ref(), &splits, tell)?;
    let took = started.elapsed();
    let results = DatasetResults {
        name: dataset.name().to_owned(),
        methods: found.methods,
        sweep: found.sweep,
        oracle: Some(found.oracle),
        note: Some(origin.note(&splits)),
    };
    cache::keep(&file, &key, &results)?;
    tell(Event::Done(format!(
        "{} of {} in {:.1} s",
        count(splits.len() as u64, "split", "splits"),
        count(outputs.len() as u64, "trace", "traces"),
        took.as_secs_f64()
    )));
    Ok((results, Some(took)))
}
