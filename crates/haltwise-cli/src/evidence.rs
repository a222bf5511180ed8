//! `haltwise evidence`: what candidates would do to traces, in counts.

use std::path::PathBuf;
use std::process::ExitCode;

use haltwise::corridor::Warning;
use haltwise_io::{Columns, Files, read_proposal, trace_files, write_evidence};

use crate::memory::MemoryLimit;
use crate::show::{self, count};

/// Count what candidate rules would do to traces
///
/// Traces may be larger than memory: only the counts are kept. Evidence from
/// different traces adds up, so that it can be gathered wherever they are.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  haltwise screen traces/ -o candidates.json
  haltwise evidence candidates.json traces/part-1.parquet -o 1.json
  haltwise evidence candidates.json traces/part-2.parquet -o 2.json
  haltwise certify 1.json 2.json -o rule.json

Traces without ids are split by their position, so give all their files at once, in the order
they were screened in.")]
pub(crate) struct Args {
    /// The file that `haltwise screen` wrote
    candidates: PathBuf,

    /// Trace files, folders or patterns
    #[arg(required = true, value_name = "TRACES")]
    traces: Vec<PathBuf>,

    /// Where to write the evidence
    #[arg(short, long, value_name = "EVIDENCE")]
    output: PathBuf,

    #[command(flatten)]
    memory: MemoryLimit,

    /// Print one JSON object instead of words
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let proposal = read_proposal(&args.candidates)?;
    show::check_output(&args.output, &trace_files(&args.traces)?)?;
    show::check_output(&args.output, &[&args.candidates])?;
    let part = show::reading(|progress| {
        // Nothing is kept but the counts.
        {
            let columns = Columns::of(proposal.plan().terms());
            Files::new(&args.traces, args.memory.bytes(), progress)?
                .with(columns)
                .evidence(&proposal)
        }
    })?;
    write_evidence(&args.output, &part)?;
    let read: u64 = part.inputs().iter().map(|input| input.sequences).sum();
    let (counted, alike) = (part.evidence().sequences(), part.evidence().alike());
    if alike > 0 {
        show::warn(Warning::Alike(alike));
    }
    if args.json {
        show::print_json(&serde_json::json!({
            "files": part.inputs().len(), "sequences": read, "counted": counted, "alike": alike,
        }))?;
    } else {
        let left_out = match read - counted {
            0 => String::new(),
            n => format!(", and left out {} that were set aside", show::number(n)),
        };
        show::print(&format!(
            "Counted {} in {}{left_out}.\nWritten to {}.\n",
            count(counted, "sequence", "sequences"),
            count(part.inputs().len() as u64, "file", "files"),
            show::file(&args.output),
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
