//! The two-head LSTM.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use haltwise_io::series::SeriesSet;
use haltwise_lstm::{Device, Epoch, Error, Labelled, Model, TrainOptions, Trainer};
use haltwise_paper::classifier::series_of;
use indicatif::ProgressBar;

use super::Args;
use crate::show::{self, count, percent};
use crate::stop::Stop;

/// What only the LSTM can be asked for.
#[derive(clap::Args)]
#[command(next_help_heading = "With --model lstm")]
pub(super) struct NetworkArgs {
    /// Units per recurrent layer [default: 32]
    #[arg(long)]
    hidden: Option<usize>,

    /// Recurrent layers [default: 1]
    #[arg(long)]
    layers: Option<usize>,

    /// Also train a head that estimates the gap itself
    #[arg(long)]
    gap_head: bool,

    /// Do not scale each feature to mean 0 and deviation 1
    #[arg(long)]
    raw: bool,

    /// The largest number of epochs [default: 10000]
    #[arg(long)]
    max_epochs: Option<usize>,

    /// Stop after this many epochs without improvement [default: 30]
    #[arg(long)]
    patience: Option<usize>,

    /// Where to compute: auto, cpu, cuda or cuda:N; auto takes an NVIDIA GPU where there is one and
    /// the network is large enough to gain by it [default: auto]
    #[arg(long)]
    device: Option<Device>,

    /// Continue an interrupted run; its state is beside MODEL
    #[arg(long)]
    resume: bool,
}

impl NetworkArgs {
    /// The first of them that was asked for.
    pub(super) fn asked(&self) -> Option<&'static str> {
        let all = [
            ("--hidden", self.hidden.is_some()),
            ("--layers", self.layers.is_some()),
            ("--gap-head", self.gap_head),
            ("--raw", self.raw),
            ("--max-epochs", self.max_epochs.is_some()),
            ("--patience", self.patience.is_some()),
            ("--device", self.device.is_some()),
            ("--resume", self.resume),
        ];
        let asked = all.into_iter().find(|(_, asked)| *asked);
        asked.map(|(name, _)| name)
    }

    fn training(&self, seed: u64) -> TrainOptions {
        let usual = TrainOptions::default();
        TrainOptions {
            hidden: self.hidden.unwrap_or(usual.hidden),
            layers: self.layers.unwrap_or(usual.layers),
            gap_head: self.gap_head,
            normalise: !self.raw,
            max_epochs: self.max_epochs.unwrap_or(usual.max_epochs),
            patience: self.patience.unwrap_or(usual.patience),
            seed,
            ..usual
        }
    }
}

pub(super) fn run(args: &Args, set: &SeriesSet, stop: &Arc<Stop>) -> anyhow::Result<ExitCode> {
    let options = args.network.training(args.seed);
    let patience = options.patience;
    let data = Labelled::new(series_of(set)?, set.labels())?;
    let trainer = Trainer::new(data, None, set.classes().to_vec(), options)?;
    args.dataset.check_work(set, trainer.working_memory())?;
    let mut trainer = trainer.on(args.network.device.unwrap_or_default())?;
    if let Some(gpu) = trainer.gpu() {
        show::note(format_args!("training on {gpu}"));
    }
    let state = state_file(&args.output);
    if args.network.resume {
        trainer.resume(&state)?;
    } else if state.exists() {
        bail!(
            "{}: an interrupted run was left here; go on with --resume, or remove it to start anew",
            state.display()
        );
    }
    stop.begin()?;
    let model = fit(&mut trainer, stop.flag(), Some(&state), args.json, patience)?;
    model.save(&args.output)?;
    if trainer.finished() {
        let _ = std::fs::remove_file(&state);
    }
    if !args.json {
        show::print(&summary(&model, &args.output, trainer.finished()))?;
    }
    // A script must not go on with half a model.
    Ok(match trainer.finished() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(stop.code()),
    })
}

/// The file with the state of an unfinished run, beside its model.
fn state_file(output: &Path) -> PathBuf {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(".training");
    output.with_file_name(name)
}

/// Trains until it is finished or told to stop, and returns the best model.
/// The state of a long run is kept up to date on disk.
pub(crate) fn fit(
    trainer: &mut Trainer<'_>,
    stop: &AtomicBool,
    state: Option<&Path>,
    json: bool,
    patience: usize,
) -> anyhow::Result<Model> {
    let bar = match io::stderr().is_terminal() && !json {
        true => ProgressBar::new_spinner(),
        false => ProgressBar::hidden(),
    };
    let start = Instant::now();
    let (mut saved, mut best, mut done) = (Instant::now(), 0, 0_u32);
    let mut warned = false;
    while let Some(epoch) = next_epoch(trainer, state)? {
        done += 1;
        if let Some(why) = trainer.given_up().filter(|_| !warned) {
            show::warn(format_args!("training on the CPU: {why}"));
            warned = true;
        }
        if epoch.best {
            best = epoch.epoch;
        }
        if json {
            show::print_json(&epoch)?;
        }
        let left = patience.saturating_sub(epoch.epoch - best);
        bar.set_message(progress(&epoch, left, start.elapsed() / done));
        bar.tick();
        let stopping = stop.load(Ordering::Relaxed);
        if let Some(state) = state
            && (stopping || saved.elapsed() > Duration::from_secs(15))
        {
            trainer.save_state(state)?;
            saved = Instant::now();
        }
        if stopping {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(trainer.model()?)
}

/// Runs an epoch. Of a run whose GPU fails, the epochs that are done are kept.
fn next_epoch(trainer: &mut Trainer<'_>, state: Option<&Path>) -> anyhow::Result<Option<Epoch>> {
    match (trainer.epoch(), state) {
        (Err(error @ Error::Gpu { .. }), Some(state)) if trainer.epochs() > 0 => {
            trainer.save_state(state)?;
            Err(anyhow::Error::new(error).context(format!(
                "the run was interrupted after epoch {}: go on with --resume",
                trainer.epochs()
            )))
        }
        (done, _) => Ok(done?),
    }
}

fn progress(epoch: &Epoch, left: usize, each: Duration) -> String {
    format!(
        "epoch {}: loss {:.4}, validation {:.4}, accuracy {}; {:.0?} left unless it improves",
        epoch.epoch,
        epoch.train_loss,
        epoch.validation_loss,
        percent(epoch.validation_accuracy),
        each * left as u32,
    )
}

fn summary(model: &Model, path: &Path, finished: bool) -> String {
    let Some(record) = model.training() else {
        return String::new();
    };
    let ended = match finished {
        true => "",
        false => " It was interrupted: go on with --resume.",
    };
    format!(
        "Trained on {} and validated on {}; best of {}: epoch {}, accuracy {}.{ended}\n\
         Written to {}.\n",
        count(record.trained_on as u64, "sequence", "sequences"),
        show::number(record.validated_on as u64),
        count(record.epochs as u64, "epoch", "epochs"),
        record.best_epoch,
        percent(record.validation_accuracy.unwrap_or(0.0)),
        show::file(path),
    )
}
