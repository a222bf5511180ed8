//! The `haltwise` command: arguments, progress and messages. What it does is
//! done by the crates it calls.

#![forbid(unsafe_code)]

mod ask;
mod calibrate;
mod certify;
mod data;
mod dataset;
mod decide;
mod demo;
mod evaluate;
mod evidence;
mod inspect;
mod memory;
mod pages;
mod read;
mod reader;
mod reproduce;
mod score;
mod screen;
mod show;
mod simulate;
mod train;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Certified early stopping for classifiers that read a stream.
///
/// A classifier that reads step by step often knows the answer long before the
/// end. Haltwise finds a rule that says when to stop reading, and certifies
/// what stopping may cost in accuracy.
#[derive(Parser)]
#[command(
    name = "haltwise",
    version,
    propagate_version = true,
    max_term_width = 100
)]
#[command(after_help = "\
Start here:
  haltwise demo                                the whole story on a built-in dataset
  haltwise calibrate traces.npz -o rule.json   find and certify a rule
  haltwise evaluate rule.json test.npz         see what it does to other traces
  haltwise decide rule.json < scores.jsonl     apply it to live streams

Exit codes: 0 done, 1 failed, 2 wrong usage. NO_COLOR switches colours off.")]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Demo(demo::Args),
    Train(train::Args),
    Score(score::Args),
    Calibrate(calibrate::Args),
    Screen(screen::Args),
    Evidence(evidence::Args),
    Certify(certify::Args),
    Evaluate(evaluate::Args),
    Decide(decide::Args),
    Read(read::Args),
    Ask(ask::Args),
    Inspect(inspect::Args),
    Data(data::Args),
    Reproduce(reproduce::Args),
    Simulate(simulate::Args),
    Completions(pages::CompletionArgs),
    Man(pages::ManArgs),
}

/// Ends the program as wrong usage does, with exit code 2.
fn usage_error(message: &str) -> ! {
    let kind = clap::error::ErrorKind::ArgumentConflict;
    Cli::command().error(kind, message).exit()
}

fn main() -> ExitCode {
    let result = match Cli::parse().verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Train(args) => train::run(args),
        Verb::Score(args) => score::run(args),
        Verb::Calibrate(args) => calibrate::run(args),
        Verb::Screen(args) => screen::run(args),
        Verb::Evidence(args) => evidence::run(args),
        Verb::Certify(args) => certify::run(args),
        Verb::Evaluate(args) => evaluate::run(args),
        Verb::Decide(args) => decide::run(args),
        Verb::Read(args) => read::run(args),
        Verb::Ask(args) => ask::run(args),
        Verb::Inspect(args) => inspect::run(args),
        Verb::Data(args) => data::run(args),
        Verb::Reproduce(args) => reproduce::run(args),
        Verb::Simulate(args) => simulate::run(args),
        Verb::Completions(args) => pages::completions(args),
        Verb::Man(args) => pages::man(args),
    };
    match result {
        Ok(code) => code,
        // Whoever read the output has gone: nothing is left to say to them.
        Err(error) if show::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            show::error(&error);
            ExitCode::FAILURE
        }
    }
}
