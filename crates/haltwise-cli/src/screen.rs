//! `haltwise screen`: traces in, candidate rules out.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use haltwise::traces::SetSummary;
use haltwise::{Inputs, Method, Proposal, ToCertify};
use haltwise_io::{trace_files, write_proposal};

use crate::memory::MemoryArgs;
use crate::plan::{Gathering, PlanArgs};
use crate::show::{self, count};

/// Propose candidate rules, to be certified on evidence gathered anywhere
///
/// Three verbs together do what `calibrate` does, for traces on several machines:
/// `screen` here, gather `evidence` for the candidates wherever the traces are, and
/// `certify` the sum. Alpha and delta are fixed here: choosing them after seeing the
/// evidence would void the guarantee.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise screen traces/ -o candidates.json
  haltwise evidence candidates.json traces/part-1.parquet -o 1.json
  haltwise evidence candidates.json traces/part-2.parquet -o 2.json
  haltwise certify 1.json 2.json -o rule.json

  haltwise screen may.parquet --looks 1000,2000 -o candidates.json  # may has 1,200 traces
  haltwise evidence candidates.json may.parquet -o may.json
  haltwise certify may.json -o rule.json                            # the first look
  haltwise evidence candidates.json june.parquet -o june.json       # 900 more
  haltwise certify may.json june.json -o rule.json                  # the second")]
pub(crate) struct Args {
    /// Trace files, folders or patterns: all traces that screen and certify
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Where to write the candidates
    #[arg(short, long, value_name = "CANDIDATES")]
    output: PathBuf,

    #[command(flatten)]
    plan: PlanArgs<Gathering>,

    /// With --method conditional: screen on all of TRACES; evidence will come from others
    #[arg(long)]
    whole: bool,

    /// With --whole: the length of the longest sequence to expect [default: that of TRACES]
    #[arg(long, value_name = "T", requires = "whole",
          value_parser = clap::value_parser!(u32).range(1..=haltwise::traces::MAX_STEPS as i64))]
    t_max: Option<u32>,

    #[command(flatten)]
    memory: MemoryArgs,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.whole && args.plan.ask().method() != Method::Conditional {
        crate::usage_error("--whole goes with --method conditional only");
    }
    let plan = args.plan.plan(false, args.whole);
    let files = trace_files(&args.traces)?;
    show::check_output(&args.output, &files)?;
    let classifier = show::classifier(&args.traces)?;
    let t_max = args.t_max.unwrap_or(0) as usize;
    let (proposal, warnings) = show::reading(|progress| {
        let traces = args.memory.files(&args.traces, &plan, progress)?;
        let given = Inputs {
            classifier,
            to_certify: args.whole.then_some(ToCertify {
                t_max,
                sequences: None,
            }),
            ..Inputs::one(&traces)
        };
        plan.propose(given)
    })?;
    for warning in warnings {
        show::warn(warning);
    }
    if t_max > 0 && proposal.t_max() > t_max {
        bail!(
            "--t-max {t_max} is less than the {} of the longest of TRACES; give at least that",
            count(proposal.t_max() as u64, "step", "steps")
        );
    }
    write_proposal(&args.output, &proposal)?;
    if args.json {
        show::print_json(&proposal)?;
    } else {
        show::print(&describe(&args, &proposal))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(args: &Args, proposal: &Proposal) -> String {
    let traces = |n| count(n, "trace", "traces");
    let made_from = match proposal.made_from().sum::<SetSummary>().sequences {
        0 => String::new(),
        n => format!(", made from {}", traces(n)),
    };
    let next = match (proposal.all(), proposal.is_split()) {
        (Some(all), true) => format!(
            "Gather evidence from the same {}; those are left out.",
            traces(all.sequences)
        ),
        (Some(all), false) => format!("Gather evidence from the same {}.", traces(all.sequences)),
        (None, _) => "Gather evidence from other traces.".into(),
    };
    format!(
        "{} of {}{made_from}.\nWritten to {}. {next}\n",
        count(proposal.rules() as u64, "candidate rule", "candidate rules"),
        count(proposal.t_max() as u64, "step", "steps"),
        show::file(&args.output),
    )
}
