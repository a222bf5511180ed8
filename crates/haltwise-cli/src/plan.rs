//! The options that say what rule is wanted: the heart's list, as arguments of every verb that
//! makes one.

use std::marker::PhantomData;

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command, value_parser};
use haltwise::plan::{Kind, OPTIONS, OptionSpec, PlanError, Section, Value, Word as _, spelt};
use haltwise::{Ask, Method, Plan};

/// Which options a verb takes.
pub(crate) trait Chosen {
    /// Whether this one is among them.
    fn takes(option: &OptionSpec) -> bool;

    /// Whether the verb offers this word as a value of an option.
    fn offers(_option: &OptionSpec, _word: &str) -> bool {
        true
    }
}

/// The options of `calibrate`.
#[derive(Debug, Clone)]
pub(crate) struct Calibrating;

impl Chosen for Calibrating {
    fn takes(option: &OptionSpec) -> bool {
        option.section != Section::Evidence
    }
}

/// The options of `screen`: evidence is gathered later.
#[derive(Debug, Clone)]
pub(crate) struct Gathering;

impl Chosen for Gathering {
    fn takes(_: &OptionSpec) -> bool {
        true
    }

    /// All methods except `screen-only`, which promises nothing: there is nothing to certify.
    fn offers(option: &OptionSpec, word: &str) -> bool {
        option.name != Method::OPTION || word != Method::ScreenOnly.word()
    }
}

/// The numbers that a guarantee of the paper is stated in.
#[derive(Debug, Clone)]
pub(crate) struct PaperNumbers;

impl Chosen for PaperNumbers {
    fn takes(option: &OptionSpec) -> bool {
        ["alpha", "delta", "grid_step"].contains(&option.name)
    }
}

/// The options of a calibration, as a verb takes them.
#[derive(Debug, Clone)]
pub(crate) struct PlanArgs<C = Calibrating> {
    ask: Ask,
    chosen: PhantomData<C>,
}

impl<C> PlanArgs<C> {
    /// All that was asked for.
    pub(crate) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// The plan. Invalid options end the program. `fit` and `screen`: whether there are
    /// other traces for it.
    pub(crate) fn plan(&self, fit: bool, screen: bool) -> Plan {
        plan(Ask {
            fit,
            screen,
            ..self.ask.clone()
        })
    }
}

/// The plan. Invalid options end the program, as wrong usage does.
pub(crate) fn plan(ask: Ask) -> Plan {
    Plan::new(ask).unwrap_or_else(|error| unmeant(&error))
}

/// Ends the program, as wrong usage does, because of invalid options.
pub(crate) fn unmeant(error: &PlanError) -> ! {
    crate::usage_error(&error.spelt(dashed))
}

/// An option as it is typed.
fn dashed(name: &str) -> String {
    format!("--{}", name.replace('_', "-"))
}

/// An option as an argument of a verb.
fn argument<C: Chosen>(option: &'static OptionSpec) -> Arg {
    let help = option.help(dashed);
    let usual = option.usual.map(|usual| format!(" [default: {usual}]"));
    let arg = Arg::new(option.name)
        .long(option.name.replace('_', "-"))
        .value_name(option.name.to_uppercase())
        .help(help + &usual.unwrap_or_default());
    let arg = match option.section {
        Section::Promise => arg.help_heading("Promise"),
        Section::Rule | Section::Evidence => arg,
    };
    match option.kind {
        Kind::Number => arg.value_parser(value_parser!(f64)),
        Kind::Count => arg.value_parser(value_parser!(u64)),
        Kind::Counts => arg
            .value_parser(value_parser!(u64))
            .value_delimiter(',')
            .value_name("N,N,…")
            .action(clap::ArgAction::Append),
        Kind::Word(words) => {
            let value = |(word, help): &(&'static str, &str)| {
                PossibleValue::new(*word).help(spelt(help, dashed))
            };
            let offered = words.iter().filter(|(word, _)| C::offers(option, word));
            arg.value_parser(PossibleValuesParser::new(offered.map(value)))
        }
        Kind::Column => arg.value_name("COLUMN"),
        Kind::Costs => arg.value_name("COSTS"),
    }
}

/// The value on the command line, if the option is there.
fn value(option: &OptionSpec, given: &ArgMatches) -> Option<Value> {
    match option.kind {
        Kind::Number => given.get_one(option.name).copied().map(Value::Number),
        Kind::Count => given.get_one(option.name).copied().map(Value::Count),
        Kind::Counts => given.get_many(option.name).map(|counts| {
            let counts = counts.copied().map(Value::Count);
            Value::List(counts.collect())
        }),
        Kind::Word(_) | Kind::Column | Kind::Costs => {
            given.get_one(option.name).cloned().map(Value::Text)
        }
    }
}

impl<C: Chosen> clap::Args for PlanArgs<C> {
    fn augment_args(command: Command) -> Command {
        let chosen = OPTIONS.iter().filter(|option| C::takes(option));
        command.args(chosen.map(argument::<C>))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<C: Chosen> clap::FromArgMatches for PlanArgs<C> {
    fn from_arg_matches(given: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self {
            ask: Ask::default(),
            chosen: PhantomData,
        };
        args.update_from_arg_matches(given)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, given: &ArgMatches) -> Result<(), clap::Error> {
        for option in OPTIONS.iter().filter(|option| C::takes(option)) {
            if let Some(value) = value(option, given) {
                let set = self.ask.set(option.name, value);
                set.map_err(|e| {
                    clap::Error::raw(clap::error::ErrorKind::InvalidValue, e.spelt(dashed))
                })?;
            }
        }
        Ok(())
    }
}
