//! `haltwise train`: fit a classifier that answers for every prefix.

mod network;
mod prefix;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::dataset::{DatasetArgs, Side};
use crate::show;
use crate::stop::Stop;
use crate::usage_error;

pub(crate) use network::fit;
pub(crate) use prefix::accuracies;

/// Train a classifier on labelled sequences
///
/// The prefix classifier, the default, answers at checkpoints: random convolutions read a
/// sequence once, and at each checkpoint a linear model and trees answer together. Training
/// also answers about each of its sequences as if it had not seen it. These answers may fit a
/// rule (--fit-traces), so no sequence need be set aside for that.
///
/// `--model lstm` trains the paper's network, which answers at every step. It sets aside an
/// eighth of the sequences for validation, ends when the validation loss has not improved for
/// 30 epochs, and keeps the best epoch. Ctrl-C or SIGTERM ends it early and keeps the best so
/// far.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise train PenDigits --hold-out 0.2 -o model.safetensors
  haltwise train UCR/Crop --part train -o model.safetensors --fit-traces fit.parquet
  haltwise train motion.ts --checkpoints 12 -o model.safetensors
  haltwise train motion.ts --model lstm --hidden 256 --layers 2 -o model.safetensors

From series to a rule for which all held-out sequences certify:
  haltwise train motion.ts --hold-out 0.3 -o model.safetensors --fit-traces fit.parquet
  haltwise score model.safetensors motion.ts --hold-out 0.3 -o new.parquet
  haltwise calibrate new.parquet --fit fit.parquet -o rule.json")]
pub(crate) struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,

    /// Where to write the model
    #[arg(short, long, value_name = "MODEL")]
    output: PathBuf,

    /// Which classifier to train
    #[arg(long, value_enum, value_name = "CLASSIFIER", default_value_t = Kind::Prefix)]
    model: Kind,

    /// The seed of all random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Print each checkpoint or epoch as a line of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    prefix: prefix::PrefixArgs,

    #[command(flatten)]
    network: network::NetworkArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// The prefix classifier: answers at checkpoints, on the CPU
    Prefix,
    /// The paper's two-head LSTM: answers at every step, on the CPU or a GPU
    Lstm,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let foreign = match args.model {
        Kind::Prefix => args.network.asked(),
        Kind::Lstm => args.prefix.asked(),
    };
    if let Some(option) = foreign {
        usage_error(&match args.model {
            Kind::Prefix => {
                format!("{option} is for the LSTM only: add --model lstm, or leave {option} out")
            }
            Kind::Lstm => format!(
                "{option} is for the prefix classifier only: leave out {option} or --model lstm"
            ),
        });
    }
    let stop = Stop::listen()?;
    show::check_output(&args.output, &[&args.dataset.series])?;
    if let Some(traces) = &args.prefix.fit_traces {
        show::check_output(traces, &[&args.dataset.series, &args.output])?;
    }
    let (set, places) = args.dataset.read(Side::Training)?;
    set.check_learnable()?;
    match args.model {
        Kind::Prefix => prefix::run(&args, &set, &places, &stop),
        Kind::Lstm => network::run(&args, &set, &stop),
    }
}
