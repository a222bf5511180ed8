//! `haltwise screen`: traces in, candidate rules out.

use std::path::PathBuf;
use std::process::ExitCode;

use haltwise::{Calibration, Key, Proposal, Screening, Split};
use haltwise_io::{Snapshot, read_sets, write_proposal};

use crate::calibrate::{AtNeverArg, Levels};
use crate::memory::{MemoryArgs, Plan};
use crate::show::{self, count};

/// Propose candidate rules, to be certified on evidence gathered anywhere
///
/// The first of three steps that together do what `calibrate` does, for traces
/// that lie on several machines: screen here, gather `evidence` for the
/// candidates wherever the traces are, and `certify` the sum of it. The levels
/// are fixed here: choosing them after seeing the evidence would void the
/// guarantee.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise screen traces/ -o candidates.json
  haltwise evidence candidates.json traces/part-1.parquet -o 1.json
  haltwise evidence candidates.json traces/part-2.parquet -o 2.json
  haltwise certify 1.json 2.json -o rule.json")]
pub(crate) struct Args {
    /// Trace files, folders or patterns: all that are to screen and certify
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Where to write the candidates
    #[arg(short, long, value_name = "CANDIDATES")]
    output: PathBuf,

    /// What the rules are to promise
    #[arg(long, value_enum, default_value_t = MethodArg::Conditional)]
    method: MethodArg,

    /// The share of TRACES that screens; the rest certifies [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = crate::dataset::share)]
    screen_fraction: Option<f64>,

    /// The seed of the split [default: 0]
    #[arg(long)]
    seed: Option<u64>,

    /// Screen on all of TRACES: evidence will come from others
    #[arg(long, conflicts_with_all = ["screen_fraction", "seed"])]
    whole: bool,

    /// The steps of the longest sequence there will be [default: that of TRACES]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u32).range(1..=haltwise::MAX_STEPS as i64))]
    t_max: Option<u32>,

    #[command(flatten)]
    levels: Levels,

    /// What the backward walk does at a step whose screened threshold is "never"
    #[arg(long, value_enum, default_value_t = AtNeverArg::Skip)]
    at_never: AtNeverArg,

    #[command(flatten)]
    memory: MemoryArgs,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MethodArg {
    /// The gap is controlled on average; needs no screening, only the longest length
    Marginal,
    /// The gap is controlled among the sequences halted by any step
    Conditional,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let calibration = args.levels.calibration(args.at_never);
    let part = match (args.method, args.whole) {
        (MethodArg::Marginal, _) => {
            if args.whole || args.screen_fraction.is_some() || args.seed.is_some() {
                crate::usage_error(
                    "--whole, --screen-fraction and --seed go with --method conditional only: \
                     the other does not screen",
                );
            }
            Part::None
        }
        (_, true) => Part::Whole,
        (_, false) => Part::Split(Split {
            screen_fraction: args.screen_fraction.unwrap_or(0.5),
            seed: args.seed.unwrap_or(0),
        }),
    };
    let snapshot = Snapshot::new(&args.traces)?;
    let plan = args.memory.plan(&snapshot, &calibration.grid)?;
    let t_max = args.t_max.unwrap_or(0) as usize;
    let proposal = propose(&calibration, &snapshot, part, t_max, plan)?;
    write_proposal(&args.output, &proposal)?;
    if args.json {
        show::print_json(&proposal)?;
    } else {
        show::print(&describe(&args, &proposal))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Which of the traces screen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// None: all certify.
    None,
    /// All: others certify.
    Whole,
    /// A share: the rest certifies.
    Split(Split),
}

/// Screens on the files and proposes candidates for sequences of up to `t_max`
/// steps, or as many as the longest of them.
pub(crate) fn propose(
    calibration: &Calibration,
    snapshot: &Snapshot,
    part: Part,
    t_max: usize,
    plan: Plan,
) -> anyhow::Result<Proposal> {
    let split = match part {
        Part::None => None,
        Part::Whole => Some(Split {
            screen_fraction: 1.0,
            seed: 0,
        }),
        Part::Split(split) => Some(split),
    };
    // Those with the smallest hashes: a part of the screening part.
    let sample = split.map(|split| match plan {
        Plan::Stream(share) if share < split.screen_fraction => Split {
            screen_fraction: share,
            ..split
        },
        _ => split,
    });
    if let (Some(sample), Some(split)) = (sample, split)
        && sample != split
    {
        show::note(format!(
            "screening on {} of the traces, which fits, instead of {}",
            show::percent(sample.screen_fraction),
            show::percent(split.screen_fraction)
        ));
    }
    let screens = |key: Key| match (part, sample) {
        (Part::Whole, _) if plan == Plan::Keep => Some(0),
        (_, Some(sample)) => sample.screens(key).then_some(0),
        (_, None) => None,
    };
    let (mut sets, seen) = show::reading(|progress| {
        read_sets(snapshot, Some(&calibration.grid), 1, screens, progress)
    })?;
    let t_max = t_max.max(seen.t_max);
    let proposal = match part {
        Part::None => calibration.propose_marginal(t_max, seen.source),
        _ => calibration.propose_conditional(&Screening::new(sets.swap_remove(0)), t_max)?,
    };
    Ok(match part {
        Part::None => proposal.of_all(seen.set(), None),
        Part::Whole => proposal,
        Part::Split(split) => proposal.of_all(seen.set(), Some(split)),
    })
}

fn describe(args: &Args, proposal: &Proposal) -> String {
    let rules = count(
        proposal.candidates().len() as u64,
        "candidate rule",
        "candidate rules",
    );
    let screened = match proposal.screened_on() {
        Some(set) => format!(", screened on {}", count(set.sequences, "trace", "traces")),
        None => String::new(),
    };
    let next = match (proposal.all(), proposal.split()) {
        (Some(all), Some(_)) => format!(
            "Gather evidence from the same {}; those that screened are left out.",
            count(all.sequences, "trace", "traces")
        ),
        (Some(all), None) => format!(
            "Gather evidence from the same {}.",
            count(all.sequences, "trace", "traces")
        ),
        (None, _) => "Gather evidence from other traces.".into(),
    };
    format!(
        "{rules} of {}{screened}.\nWritten to {}. {next}\n",
        count(proposal.candidates().t_max() as u64, "step", "steps"),
        show::file(&args.output),
    )
}
