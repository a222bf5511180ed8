//! The `haltwise` command: arguments, progress and messages. The crates that it
//! calls do the work.

#![forbid(unsafe_code)]

mod answers;
mod ask;
mod asked;
mod calibrate;
mod certify;
mod data;
mod dataset;
mod decide;
mod demo;
mod doors;
mod evaluate;
mod evidence;
mod export;
mod forecast;
mod inspect;
mod memory;
mod monitor;
mod pages;
mod plan;
mod progress;
mod promise;
#[cfg(feature = "proxy")]
mod proxy;
mod read;
mod reader;
#[cfg(test)]
mod reference;
mod reload;
mod reproduce;
mod score;
mod screen;
mod serve;
mod show;
mod simulate;
mod stop;
mod think;
mod train;
mod vote;
mod voter;

use std::num::IntErrorKind;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

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
  haltwise monitor rule.json audits.npz        see whether it still keeps its promise

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
    Forecast(forecast::Args),
    Decide(decide::Args),
    Serve(serve::Args),
    Monitor(monitor::Args),
    Read(read::Args),
    Ask(ask::Args),
    Vote(Box<vote::Args>),
    Think(Box<think::Args>),
    #[cfg(feature = "proxy")]
    Proxy(proxy::Args),
    Export(export::Args),
    Inspect(inspect::Args),
    Data(data::Args),
    Reproduce(reproduce::Args),
    Simulate(simulate::Args),
    Completions(pages::CompletionArgs),
    Man(pages::ManArgs),
}

/// Ends the program as wrong usage does, with exit code 2.
fn usage_error(message: &str) -> ! {
    verb().error(ErrorKind::ArgumentConflict, message).exit()
}

/// The verb that was asked for, whose usage an error shows.
fn verb() -> Command {
    let mut command = Cli::command();
    command.build();
    for word in std::env::args_os().skip(1) {
        match command.find_subcommand(&word) {
            Some(verb) => command = verb.clone(),
            None => break,
        }
    }
    command
}

/// The arguments, or the end of the program where they cannot be meant.
fn arguments() -> Cli {
    let mut command = negative_numbers(Cli::command());
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| match error.kind() {
        ErrorKind::ValueValidation => {
            let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
            let (value, option) = (
                said(ContextKind::InvalidValue),
                said(ContextKind::InvalidArg),
            );
            let Some(words) = plain_words(&error, &value) else {
                error.exit()
            };
            let message = format!("invalid value '{value}' for '{option}': {words}");
            verb().error(error.kind(), message).exit()
        }
        _ => error.exit(),
    })
}

/// Lets every option take a negative number, so that it can be said why it may
/// not be one.
fn negative_numbers(command: Command) -> Command {
    let takes = |arg: &clap::Arg| arg.get_long().is_some() && arg.get_action().takes_values();
    command
        .mut_args(|arg| match takes(&arg) {
            true => arg.allow_negative_numbers(true),
            false => arg,
        })
        .mut_subcommands(negative_numbers)
}

/// Explains an invalid number and what to do, if the standard library's message
/// would not.
fn plain_words(error: &clap::Error, value: &str) -> Option<String> {
    use std::error::Error as _;
    let source = error.source()?;
    if source.is::<std::num::ParseFloatError>() {
        let percent = value.strip_suffix('%').and_then(|p| p.trim().parse().ok());
        let meant = percent
            .map(|percent: f64| percent / 100.0)
            .or_else(|| value.replace(',', ".").parse().ok())
            .filter(|meant| meant.is_finite());
        return Some(match meant {
            Some(meant) => format!("write {meant}"),
            None => "it is not a number".into(),
        });
    }
    let error = source.downcast_ref::<std::num::ParseIntError>()?;
    let words = match error.kind() {
        IntErrorKind::Empty => "it is empty; give a whole number",
        IntErrorKind::InvalidDigit => "give a whole number, 0 or more",
        IntErrorKind::Zero => "give a whole number, 1 or more",
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "it is too large",
        _ => return None,
    };
    Some(words.into())
}

fn main() -> ExitCode {
    let result = match arguments().verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Train(args) => train::run(args),
        Verb::Score(args) => score::run(args),
        Verb::Calibrate(args) => calibrate::run(args),
        Verb::Screen(args) => screen::run(args),
        Verb::Evidence(args) => evidence::run(args),
        Verb::Certify(args) => certify::run(args),
        Verb::Evaluate(args) => evaluate::run(args),
        Verb::Forecast(args) => forecast::run(args),
        Verb::Decide(args) => decide::run(args),
        Verb::Serve(args) => serve::run(args),
        Verb::Monitor(args) => monitor::run(args),
        Verb::Read(args) => read::run(args),
        Verb::Ask(args) => ask::run(args),
        Verb::Vote(args) => vote::run(*args),
        Verb::Think(args) => think::run(*args),
        #[cfg(feature = "proxy")]
        Verb::Proxy(args) => proxy::run(args),
        Verb::Export(args) => export::run(args),
        Verb::Inspect(args) => inspect::run(args),
        Verb::Data(args) => data::run(args),
        Verb::Reproduce(args) => reproduce::run(args),
        Verb::Simulate(args) => simulate::run(args),
        Verb::Completions(args) => pages::completions(args),
        Verb::Man(args) => pages::man(args),
    };
    match result {
        Ok(code) => code,
        // The reader of the output has gone.
        Err(error) if show::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            show::error(&error);
            ExitCode::FAILURE
        }
    }
}
