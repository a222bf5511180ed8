//! `haltwise simulate`: traces to measure and to try things with.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use haltwise::Sequence;
use haltwise::simulate::{DrawnSequence, SyntheticClassifier};
use haltwise_io::{TraceWriter, WriteOptions};
use haltwise_log::sync_folder_of;
use indicatif::ProgressBar;
use rayon::prelude::*;

use crate::show::{self, count};
use crate::stop::Stop;

/// Write traces of a simulated classifier
///
/// Two classes, told apart by a sum of noisy hints. The same seed gives the
/// same files, byte for byte, on any number of cores; no sequence depends on
/// another, so a longer set begins with a shorter one.
#[derive(clap::Args)]
#[command(after_help = format!("\
Examples:
  haltwise simulate -o traces.parquet
  haltwise simulate --sequences 10000000 --steps 100 --files 8 -o traces

The format follows the extension: {}; a folder holds Parquet files.", haltwise_io::Format::usual_extensions()))]
pub(crate) struct Args {
    /// Where to write the traces; with --files, a new folder
    #[arg(short, long, value_name = "TRACES")]
    output: PathBuf,

    /// How many sequences
    #[arg(long, default_value_t = 10_000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    sequences: u64,

    /// The steps of the longest sequence
    #[arg(long, default_value_t = 100, value_name = "T",
          value_parser = clap::value_parser!(u32).range(1..=haltwise::traces::MAX_STEPS as i64))]
    steps: u32,

    /// The steps of the shortest sequence [default: that of the longest]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..))]
    shortest: Option<u32>,

    /// Split the sequences into this many files in a folder
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    files: Option<u64>,

    /// The seed of all draws
    #[arg(long, default_value_t = 0)]
    seed: u64,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let shortest = args.shortest.unwrap_or(args.steps);
    if shortest > args.steps {
        crate::usage_error("the shortest sequence cannot have more steps than the longest");
    }
    let stop = Stop::listen()?;
    stop.begin()?;
    let drawing = Drawing {
        synthetic: SyntheticClassifier::new(shortest as usize, args.steps as usize, args.seed),
        stop: stop.flag(),
        bar: &show::bar("writing {pos} of {len} sequences [{bar:30}] {eta} left")?,
    };
    drawing.bar.set_length(args.sequences);
    match args.files {
        None => drawing.write(&args.output, 0..args.sequences)?,
        Some(files) => drawing.write_folder(&args.output, args.sequences, files)?,
    }
    drawing.bar.finish_and_clear();
    if args.json {
        show::print_json(&serde_json::json!({
            "sequences": args.sequences, "t_max": args.steps, "seed": args.seed,
        }))?;
    } else {
        show::print(&format!(
            "Made up {} of up to {}.\nWritten to {}.\n",
            count(args.sequences, "sequence", "sequences"),
            count(args.steps.into(), "step", "steps"),
            show::file(&args.output),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Drawing<'a> {
    synthetic: SyntheticClassifier,
    stop: &'a AtomicBool,
    bar: &'a ProgressBar,
}

impl Drawing<'_> {
    /// Writes a folder of Parquet files, whole or not at all: beside its place
    /// first. Each file is written by one thread, so that its bytes do not
    /// depend on how many there are.
    fn write_folder(&self, folder: &Path, sequences: u64, files: u64) -> anyhow::Result<()> {
        if folder.exists() {
            bail!(
                "{}: the folder exists already; name a new one, or remove it",
                show::file(folder)
            );
        }
        let parent = match folder.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let cannot = || format!("{}: cannot write it", show::file(folder));
        let beside = tempfile::Builder::new()
            .prefix(".haltwise-")
            .tempdir_in(parent)
            .with_context(cannot)?;
        let start = |file| (u128::from(sequences) * u128::from(file) / u128::from(files)) as u64;
        let full: Vec<u64> = (0..files)
            .filter(|&file| start(file) < start(file + 1))
            .collect();
        full.into_par_iter().try_for_each(|file| {
            let name = beside.path().join(format!("part-{file:05}.parquet"));
            self.write(&name, start(file)..start(file + 1))
        })?;
        std::fs::rename(beside.path(), folder)
            .and_then(|()| sync_folder_of(folder))
            .with_context(cannot)
    }

    fn write(&self, path: &Path, numbers: Range<u64>) -> anyhow::Result<()> {
        let mut writer = TraceWriter::create(path, WriteOptions::default())?;
        let mut sequence = DrawnSequence::default();
        for number in numbers {
            if number % 1024 == 0 {
                if self.stop.load(Ordering::Relaxed) {
                    bail!("interrupted; nothing was written");
                }
                self.bar.inc(1024);
            }
            self.synthetic.draw(number, &mut sequence);
            writer.write(Sequence {
                id: Some(&number.to_string()),
                label: Some(sequence.label),
                predictions: Some(&sequence.predictions),
                scores: Some(&sequence.scores),
                ..Sequence::default()
            })?;
        }
        Ok(writer.finish()?)
    }
}
