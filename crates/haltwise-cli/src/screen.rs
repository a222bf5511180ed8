//! `haltwise screen`: traces in, candidate rules out.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use haltwise::{Calibration, Candidates, ScoreChoice, Screened, Screening, SetAside, Split};
use haltwise_io::{SetReader, Snapshot, read_fitting, write_screened};

use crate::calibrate::{
    AtNeverArg, FIT_FRACTION, Levels, SCREEN_FRACTION, ScoreArg, choice, plain, too_few,
};
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

    /// How to find the rules
    #[arg(long, value_enum, default_value_t = MethodArg::Adaptive)]
    method: MethodArg,

    /// What says how safe it is to stop [default: what the traces carry; with the adaptive
    /// method, that or the learned one, whichever promises to halt earlier]
    #[arg(long, value_enum)]
    score: Option<ScoreArg>,

    /// With --method adaptive: the share of TRACES that is set aside to fit to [default: 0.3]
    #[arg(long, value_name = "SHARE", value_parser = crate::dataset::share)]
    fit_fraction: Option<f64>,

    /// With --method conditional: the share of TRACES that screens [default: 0.5]
    #[arg(long, value_name = "SHARE", value_parser = crate::dataset::share)]
    screen_fraction: Option<f64>,

    /// The seed of the split, where TRACES are split [default: 0]
    #[arg(long)]
    seed: Option<u64>,

    /// With --method conditional: screen on all of TRACES; evidence will come from others
    #[arg(long, conflicts_with = "screen_fraction")]
    whole: bool,

    /// With --whole: the steps of the longest sequence there will be [default: that of TRACES]
    #[arg(long, value_name = "T", requires = "whole",
          value_parser = clap::value_parser!(u32).range(1..=haltwise::MAX_STEPS as i64))]
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
    /// A learned score and threshold curves; the gap is controlled among the sequences halted by
    /// any step
    Adaptive,
    /// The paper's; one threshold; the gap is controlled on average. Only the longest length is
    /// looked for
    Marginal,
    /// The paper's; a threshold per step, the gap is controlled among the sequences halted by any
    /// step
    Conditional,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let of_conditional = args.screen_fraction.is_some() || args.whole;
    if of_conditional && args.method != MethodArg::Conditional {
        crate::usage_error("--screen-fraction and --whole go with --method conditional only");
    }
    if args.fit_fraction.is_some() && args.method != MethodArg::Adaptive {
        crate::usage_error("--fit-fraction goes with --method adaptive only");
    }
    if args.score == Some(ScoreArg::Gap) && args.method != MethodArg::Adaptive {
        crate::usage_error("--score gap goes with --method adaptive only");
    }
    if args.seed.is_some() && (args.whole || args.method == MethodArg::Marginal) {
        crate::usage_error("--seed is for splitting TRACES, and nothing is split here");
    }
    let seed = args.seed.unwrap_or(0);
    let calibration = args.levels.calibration(args.at_never);
    let snapshot = Snapshot::new(&args.traces)?;
    show::check_output(&args.output, &snapshot.files())?;
    let screened = if args.method == MethodArg::Adaptive {
        let fraction = args.fit_fraction.unwrap_or(FIT_FRACTION);
        fit(&calibration, &snapshot, &choice(args.score), fraction, seed)?
    } else {
        let fraction = args.screen_fraction.unwrap_or(SCREEN_FRACTION);
        let split = Split {
            screen_fraction: Some(fraction),
            seed,
            ..Split::default()
        };
        let part = match (args.method, args.whole) {
            (MethodArg::Marginal, _) => Part::None,
            (_, true) => Part::Whole,
            (_, false) => Part::Split(split, SetAside::share(fraction, seed)),
        };
        let plan = args.memory.plan(&snapshot, &calibration.grid)?;
        let score = plain(args.score);
        let reader = SetReader {
            snapshot: &snapshot,
            score: score.as_ref(),
            grid: Some(&calibration.grid),
        };
        let t_max = args.t_max.unwrap_or(0) as usize;
        let screened = screen(&calibration, reader, part, t_max, plan)?;
        if t_max > 0 && screened.t_max() > t_max {
            bail!(
                "--t-max {t_max} is less than the {} of the longest of TRACES; give at least that",
                count(screened.t_max() as u64, "step", "steps")
            );
        }
        screened
    };
    let screened = screened.with_classifier(show::classifier(&snapshot.files())?);
    write_screened(&args.output, &screened)?;
    if args.json {
        show::print_json(&screened)?;
    } else {
        show::print(&describe(&args, &screened))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets a part of the traces aside, fits to it, and proposes what the method
/// `adaptive` certifies on the others.
pub(crate) fn fit(
    calibration: &Calibration,
    snapshot: &Snapshot,
    choice: &ScoreChoice,
    fit_fraction: f64,
    seed: u64,
) -> anyhow::Result<Screened> {
    let (fitting, set_aside, seen) =
        show::reading(|progress| read_fitting(snapshot, fit_fraction, seed, progress))?;
    let total = seen.set().sequences as usize;
    let certifying = total - fitting.outputs().len();
    let screened = calibration
        .screened_adaptive(&fitting, choice, certifying, seen.t_max)
        .map_err(|e| too_few(e, total))?;
    let split = Split {
        fit_fraction: Some(fit_fraction),
        screen_fraction: None,
        seed,
    };
    Ok(screened.of_all(seen.set()).with_split(split, set_aside))
}

/// Which of the traces screen.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part {
    /// None: all certify.
    None,
    /// All: others certify.
    Whole,
    /// A part: the rest certifies.
    Split(Split, SetAside),
}

/// Screens on as many of the files' traces as fit, for sequences of up to
/// `t_max` steps, or as many as the longest of them.
pub(crate) fn screen(
    calibration: &Calibration,
    reader: SetReader<'_>,
    part: Part,
    t_max: usize,
    plan: Plan,
) -> anyhow::Result<Screened> {
    let screens = match part {
        Part::None => None,
        Part::Whole => Some(plan.sample(SetAside::share(1.0, 0))),
        Part::Split(_, screens) => Some(plan.sample(screens)),
    };
    let part_of = |key| match (part, plan) {
        (Part::Whole, Plan::Keep) => Some(0),
        _ => screens.filter(|screens| screens.has(key)).map(|_| 0),
    };
    let (mut sets, seen) = show::reading(|progress| reader.read(1, part_of, progress))?;
    let t_max = t_max.max(seen.t_max);
    let screening = Screening::new(sets.swap_remove(0));
    Ok(match part {
        Part::None => {
            let source = reader.score.unwrap_or(&seen.source).clone();
            calibration
                .screened_marginal(t_max, source)
                .of_all(seen.set())
        }
        Part::Whole => calibration.screened_conditional(&screening, t_max)?,
        Part::Split(split, set_aside) => calibration
            .screened_conditional(&screening, t_max)
            .map_err(|e| too_few(e, seen.set().sequences as usize))?
            .of_all(seen.set())
            .with_split(split, set_aside),
    })
}

fn describe(args: &Args, screened: &Screened) -> String {
    let rules = screened.candidates().map(Candidates::len).sum::<usize>() as u64;
    let made_from = screened.made_from().map_or_else(String::new, |set| {
        format!(", made from {}", count(set.sequences, "trace", "traces"))
    });
    let traces = |n| count(n, "trace", "traces");
    let next = match (screened.all(), screened.is_split()) {
        (Some(all), true) => format!(
            "Gather evidence from the same {}; those are left out.",
            traces(all.sequences)
        ),
        (Some(all), false) => format!("Gather evidence from the same {}.", traces(all.sequences)),
        (None, _) => "Gather evidence from other traces.".into(),
    };
    format!(
        "{} of {}{made_from}.\nWritten to {}. {next}\n",
        count(rules, "candidate rule", "candidate rules"),
        count(screened.t_max() as u64, "step", "steps"),
        show::file(&args.output),
    )
}
