//! `haltwise export`: a rule for other programs.

use std::path::PathBuf;
use std::process::ExitCode;

use haltwise_io::{ExportTo, export_rule, read_rule, write_whole};

use crate::show;

/// Write a rule for programs that do not use haltwise
///
/// The output has what live streams need, without the record of how the rule was made.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise export rule.json --to c -o rule.h          for the library in C
  haltwise export rule.json --to rust -o rule.rs      for the crate haltwise-stream
  haltwise export rule.json --to json-min -o r.json   for JavaScript, or a program of your own")]
pub(crate) struct Args {
    /// The rule file that `haltwise calibrate` wrote
    rule: PathBuf,

    /// What to write
    #[arg(long, value_name = "FORM")]
    to: Form,

    /// The name of the constant
    #[arg(long, default_value = "rule")]
    name: String,

    /// Where to write it [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Form {
    /// A constant of C
    C,
    /// A constant of Rust
    Rust,
    /// JSON without the record
    JsonMin,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to = match args.to {
        Form::C => ExportTo::C,
        Form::Rust => ExportTo::Rust,
        Form::JsonMin => ExportTo::JsonMin,
    };
    let text = export_rule(&read_rule(&args.rule)?, to, &args.name)?;
    match &args.output {
        None => show::print(&text)?,
        Some(path) => {
            show::check_output(path, &[&args.rule])?;
            write_whole(path, |out| std::io::Write::write_all(out, text.as_bytes()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
