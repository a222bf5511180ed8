//! The options that say what rule is wanted: the same for every verb that makes
//! one.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use haltwise::plan::{AtNever, ScoreWord, ScreenBy, Word};
use haltwise::{Ask, Method, Plan};

/// What is asked of the rule, and how to find it.
#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// How to find the rule [default: adaptive]
    #[arg(long, value_parser = words::<Method>())]
    method: Option<Method>,

    /// What says how safe it is to stop [default: what the traces carry; with the adaptive
    /// method, that or the learned one, whichever promises to halt earlier]
    #[arg(long, value_parser = words::<ScoreWord>())]
    score: Option<ScoreWord>,

    /// The share of TRACES that is set aside to fit to, where no others are given
    /// [default: 0.3]
    #[arg(long, value_name = "SHARE")]
    fit_fraction: Option<f64>,

    /// With --method conditional: the share of TRACES that screens, where no others are given
    /// [default: 0.5]
    #[arg(long, value_name = "SHARE")]
    screen_fraction: Option<f64>,

    /// The seed of the split, where TRACES are split [default: 0]
    #[arg(long)]
    seed: Option<u64>,

    #[command(flatten)]
    levels: Levels,

    /// What the conditional method does at a step whose screened threshold is "never"
    /// [default: skip]
    #[arg(long, value_parser = words::<AtNever>())]
    at_never: Option<AtNever>,

    /// What the conditional method asks of a threshold while screening [default: risk]
    #[arg(long, value_parser = words::<ScreenBy>())]
    screen_by: Option<ScreenBy>,
}

/// The numbers a guarantee is stated in.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Levels {
    /// The tolerated gap: the share of sequences for which stopping early may lose a right answer
    /// [default: 0.1]
    #[arg(long)]
    pub(crate) alpha: Option<f64>,

    /// The probability with which the guarantee may fail [default: 0.01]
    #[arg(long)]
    pub(crate) delta: Option<f64>,

    /// The distance between the thresholds that the paper's methods choose from [default: 0.01]
    #[arg(long)]
    pub(crate) grid_step: Option<f64>,
}

impl PlanArgs {
    /// How the rule is to be found.
    pub(crate) fn method(&self) -> Method {
        self.method.unwrap_or_default()
    }

    /// The plan, or the end of the program where it cannot be meant. `fit` and
    /// `screen`: whether other traces are given for it.
    pub(crate) fn plan(&self, fit: bool, screen: bool) -> Plan {
        plan(Ask {
            method: self.method,
            alpha: self.levels.alpha,
            delta: self.levels.delta,
            score: self.score,
            fit,
            fit_fraction: self.fit_fraction,
            screen,
            screen_fraction: self.screen_fraction,
            seed: self.seed,
            grid_step: self.levels.grid_step,
            at_never: self.at_never,
            screen_by: self.screen_by,
        })
    }
}

/// The plan, or the end of the program, as wrong usage has it.
pub(crate) fn plan(ask: Ask) -> Plan {
    let option = |name: &str| format!("--{}", name.replace('_', "-"));
    Plan::new(ask).unwrap_or_else(|e| crate::usage_error(&e.spelt(option)))
}

/// The words of an option, each with its help.
pub(crate) fn words<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let values = T::WORDS
        .iter()
        .map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(values).try_map(|word| T::of(&word))
}
