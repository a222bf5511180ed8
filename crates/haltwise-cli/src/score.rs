//! `haltwise score`: what a model says about every prefix.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use haltwise_io::series::SeriesSet;
use haltwise_lstm::Device;
use haltwise_paper::classifier::Model;

use crate::dataset::{DatasetArgs, Side};
use crate::show::{self, count, percent};

/// Run a model over every prefix of every sequence and write traces
///
/// Score sequences that the model was not trained on: a rule calibrated on training sequences
/// promises nothing.
///
/// The prefix classifier has a step per checkpoint, and its score is the largest probability. In
/// Parquet and Arrow the column `cost` holds the time points that each step reads
/// (`calibrate --cost cost`). The LSTM has a step per time point. Its score is its confidence, or
/// the output of its gap head if it has one.
#[derive(clap::Args)]
#[command(after_help = format!("\
Examples:
  haltwise score model.safetensors PenDigits --hold-out 0.2 -o traces.parquet
  haltwise score model.safetensors UCR/Crop --part test -o traces.npz

Models: what `haltwise train` or `EarlyClassifier.save` writes, or a PyTorch state dict (.pt,
.safetensors) with the LSTM's layers. The format of the traces follows the extension: {}", haltwise_io::Format::usual_extensions()))]
pub(crate) struct Args {
    /// The model
    model: PathBuf,

    #[command(flatten)]
    dataset: DatasetArgs,

    /// Where to write the traces
    #[arg(short, long, value_name = "TRACES")]
    output: PathBuf,

    /// Leave the class probabilities out of the traces
    #[arg(long)]
    without_probs: bool,

    /// Where to compute: auto, cpu, cuda or cuda:N; auto takes an NVIDIA GPU where there is one and
    /// an LSTM is large enough to gain by it. The prefix classifier runs on the CPU
    #[arg(long, default_value_t = Device::Auto)]
    device: Device,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    show::check_output(&args.output, &[&args.model, &args.dataset.series])?;
    let model = Model::load(&args.model)?;
    let (set, places) = args.dataset.read(Side::HeldOut)?;
    check_classes(&model, &set, &args.model)?;
    check_device(&model, args.device, &args.model)?;
    args.dataset
        .check_work(&set, model.working_memory(set.t_max()))?;
    warn_of_training(&model, &set)?;
    let with_probs = !args.without_probs;
    let written = model.write_traces(&set, &places, &args.output, with_probs, args.device)?;
    if let Some(why) = &written.gpu_failed {
        show::warn(why);
    }
    let gpu = written.gpu;
    let accuracy = written.right as f64 / set.len() as f64;
    let t_max = model.steps(set.t_max());
    if args.json {
        let summary = serde_json::json!({
            "sequences": set.len(), "t_max": t_max, "late_accuracy": accuracy,
            "device": gpu.as_deref().unwrap_or("cpu"),
        });
        show::print_json(&summary)?;
    } else {
        show::print(&format!(
            "Scored {} of up to {}{}; read to the end, {} are right.\nWritten to {}.\n",
            count(set.len() as u64, "sequence", "sequences"),
            count(t_max as u64, "step", "steps"),
            gpu.map_or_else(String::new, |gpu| format!(" on {gpu}")),
            percent(accuracy),
            show::file(&args.output),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Says so where the model was trained on sequences that it is to score.
fn warn_of_training(model: &Model, set: &SeriesSet) -> anyhow::Result<()> {
    let share = model.seen_share(set)?;
    if let Some(share) = share.filter(|share| *share > 0.0) {
        show::warn(format_args!(
            "about {} of these sequences are, value for value, among those the model was trained \
             on; a rule calibrated on them promises nothing: score others (see --hold-out and \
             --part)",
            percent(share)
        ));
    }
    Ok(())
}

/// Refuses a model that knows other classes than the sequences have.
fn check_classes(model: &Model, set: &SeriesSet, path: &Path) -> anyhow::Result<()> {
    let found = set.classes();
    if model.classes() != found.len() {
        bail!(
            "{}: the model knows {} classes, the sequences have {}",
            show::file(path),
            model.classes(),
            found.len()
        );
    }
    if let Some(known) = model.class_names().filter(|known| *known != found) {
        bail!(
            "{}: the model was trained for the classes {}, the sequences have {}",
            show::file(path),
            known.join(", "),
            found.join(", ")
        );
    }
    Ok(())
}

/// Refuses a GPU for a model that runs on the CPU.
fn check_device(model: &Model, device: Device, path: &Path) -> anyhow::Result<()> {
    match (model, device) {
        (Model::Prefix(_), Device::Cuda(_)) => bail!(
            "{}: a prefix classifier runs on the CPU; leave out --device {device}",
            show::file(path)
        ),
        _ => Ok(()),
    }
}
