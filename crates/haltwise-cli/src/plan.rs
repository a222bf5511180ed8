//! The options that say what rule is wanted: the same for every verb that makes
//! one.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use haltwise::plan::{AtNever, LossWord, PlanError, ScoreWord, ScreenBy, Word};
use haltwise::rule::Promise;
use haltwise::terms::Cost;
use haltwise::{Ask, Method, Plan};

/// What is asked of the rule, and how to find it.
#[derive(Clone, clap::Args)]
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

    #[command(flatten)]
    terms: TermsArgs,
}

/// What is promised, and to whom.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "What is promised, and to whom")]
struct TermsArgs {
    /// Among whom the method adaptive controls what is lost [default: halted-by]
    #[arg(long, value_parser = words::<Promise>())]
    promise: Option<Promise>,

    /// What is lost by stopping early [default: gap]
    #[arg(long, value_parser = words::<LossWord>())]
    loss: Option<LossWord>,

    /// With --loss absolute: how much further from the truth counts as a loss of 1
    #[arg(long, value_name = "S")]
    scale: Option<f64>,

    /// Promise it for every value of this column (a hospital, a device), or of the true `label`
    #[arg(long, value_name = "COLUMN")]
    by: Option<String>,

    /// Sequences with the same value in this column (a patient, a driver) are one draw: they are
    /// split and certified as a whole
    #[arg(long, value_name = "COLUMN")]
    unit: Option<String>,

    /// Promise it for a declared shift: this column says how much more often each sequence is met
    /// where the rule will be used
    #[arg(long, value_name = "COLUMN")]
    weight: Option<String>,

    /// With --weight: what no weight exceeds; about 1/B of the traces count
    #[arg(long, value_name = "B")]
    weight_bound: Option<f64>,

    /// What reading a step costs, for rules that cost least: a column with a cost per step, or
    /// costs such as 1,1,4 (the last one also for later steps) [default: every step as much]
    #[arg(long, value_name = "COSTS", value_parser = |text: &str| Ok::<_, String>(Cost::of(text)))]
    cost: Option<Cost>,
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
        self.plan_with_looks(fit, screen, &[])
    }

    /// The same, with evidence looked at after this many traces.
    pub(crate) fn plan_with_looks(&self, fit: bool, screen: bool, looks: &[u64]) -> Plan {
        plan(Ask {
            method: self.method,
            promise: self.terms.promise,
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
            loss: self.terms.loss,
            scale: self.terms.scale,
            by: self.terms.by.clone(),
            unit: self.terms.unit.clone(),
            weight: self.terms.weight.clone(),
            weight_bound: self.terms.weight_bound,
            cost: self.terms.cost.clone(),
            looks: looks.to_vec(),
        })
    }

    /// What is to be promised about.
    pub(crate) fn loss(&self) -> Option<LossWord> {
        self.terms.loss
    }

    /// The column to promise by.
    pub(crate) fn by(&self) -> Option<&str> {
        self.terms.by.as_deref()
    }

    /// The same promise about disagreements, which needs no labels.
    pub(crate) fn without_labels(&self) -> Self {
        let mut free = self.clone();
        free.terms.loss = Some(LossWord::Disagreement);
        free
    }
}

/// The plan, or the end of the program, as wrong usage has it.
pub(crate) fn plan(ask: Ask) -> Plan {
    Plan::new(ask).unwrap_or_else(|error| unmeant(&error))
}

/// Ends the program, as wrong usage does, because of options that no plan can be made of.
pub(crate) fn unmeant(error: &PlanError) -> ! {
    let option = |name: &str| format!("--{}", name.replace('_', "-"));
    crate::usage_error(&error.spelt(option))
}

/// The words of an option, each with its help.
pub(crate) fn words<T: Word + Send + Sync>() -> impl TypedValueParser<Value = T> {
    let values = T::WORDS
        .iter()
        .map(|(_, word, help)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(values).try_map(|word| T::of(&word))
}
