//! `haltwise certify`: evidence in, a certified rule out.

use std::path::PathBuf;
use std::process::ExitCode;

use haltwise::corridor::Warning;
use haltwise_io::{certify_parts, read_evidence};

use crate::calibrate::OutcomeArgs;
use crate::{calibrate, show};

/// Certify a rule on the sum of evidence
///
/// Evidence for different candidates, the same traces in two parts, and parts
/// that are missing are refused: a wrong count would void the guarantee.
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  haltwise screen traces/ -o candidates.json
  haltwise evidence candidates.json traces/part-1.parquet -o 1.json
  haltwise evidence candidates.json traces/part-2.parquet -o 2.json
  haltwise certify 1.json 2.json -o rule.json")]
pub(crate) struct Args {
    /// All files that `haltwise evidence` wrote
    #[arg(required = true, value_name = "EVIDENCE")]
    evidence: Vec<PathBuf>,

    /// Where to write the rule
    #[arg(short, long, value_name = "RULE")]
    output: PathBuf,

    #[command(flatten)]
    outcome: OutcomeArgs,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    show::check_rule_output(&args.output, &args.evidence)?;
    let mut alike = 0;
    let certified = certify_parts(args.evidence.iter().map(|path| {
        let part = read_evidence(path)?;
        alike += part.evidence().alike();
        Ok((path.clone(), part))
    }));
    if alike > 0 {
        show::warn(Warning::Alike(alike));
    }
    calibrate::finish(&certified?, &args.output, &args.outcome)
}
