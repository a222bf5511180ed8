//! The plan: what is asked for, checked once.
//!
//! Every door, be it the command line, Python or Spark, fills in an [`Ask`] and
//! makes a [`Plan`] of it; what does not go together is refused here and nowhere
//! else, before anything is read. Levels are part of the plan: nobody chooses α
//! or δ once the evidence is in.

use serde::{Deserialize, Serialize};

pub use crate::candidates::AtNever;
use crate::certify::Promise;
pub use crate::grid::{Grid, GridError};
use crate::identity::SetAside;
pub use crate::level::{Alpha, Delta, LevelError};
use crate::score::ScoreSource;
pub use crate::screen::ScreenBy;
use crate::terms::{Admission, Cost, Loss, Terms, Weight};

/// How a rule is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// A learned score and threshold curves, with either promise; halts earlier
    /// than the paper's.
    #[default]
    Adaptive,
    /// The paper's Algorithms 1 and 2: one threshold per step, the gap
    /// controlled among the sequences halted by any step.
    Conditional,
    /// The paper's Algorithm A.1: one threshold, the gap controlled on average.
    Marginal,
    /// Algorithm 1 alone. Promises nothing; kept to show why certifying matters.
    ScreenOnly,
}

/// What the words of an option mean: the same at every door.
pub trait Word: Copy + 'static {
    /// Each value, with the word for it and what it means.
    const WORDS: &'static [(Self, &'static str, &'static str)];

    /// What is said where a word is none of these: "method", say.
    const NAME: &'static str;

    /// The value that a word stands for.
    fn of(word: &str) -> Result<Self, PlanError> {
        let known = Self::WORDS.iter().find(|(_, name, _)| *name == word);
        known.map(|known| known.0).ok_or_else(|| {
            let words: Vec<String> = Self::WORDS.iter().map(|w| format!("{:?}", w.1)).collect();
            PlanError::Word {
                option: Self::NAME,
                found: word.to_owned(),
                known: words.join(", "),
            }
        })
    }
}

impl Word for Method {
    const NAME: &'static str = "method";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Adaptive,
            "adaptive",
            "A learned score and threshold curves; the gap is controlled among the sequences \
             halted by any step, or as --promise says",
        ),
        (
            Self::Marginal,
            "marginal",
            "The paper's; one threshold; the gap is controlled on average over all sequences",
        ),
        (
            Self::Conditional,
            "conditional",
            "The paper's; a threshold per step, the gap is controlled among the sequences halted \
             by any step",
        ),
        (
            Self::ScreenOnly,
            "screen-only",
            "The conditional method without its tests: promises nothing, for comparison",
        ),
    ];
}

impl Method {
    /// What a rule found this way promises, if anything; `adaptive`, unless
    /// something else was asked for.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Self::Marginal => Some(Promise::Marginal),
            Self::Conditional | Self::Adaptive => Some(Promise::Conditional),
            Self::ScreenOnly => None,
        }
    }

    /// Whether thresholds of a grid are screened for each step.
    fn screens(self) -> bool {
        matches!(self, Self::Conditional | Self::ScreenOnly)
    }
}

impl Word for Promise {
    const NAME: &'static str = "promise";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Conditional,
            "halted-by",
            "Among the sequences halted by step t, for every t",
        ),
        (
            Self::Marginal,
            "average",
            "On average over all sequences; halts earlier, and may lose more among early halts",
        ),
    ];
}

/// What says how safe it is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScoreWord {
    /// The score that the traces carry.
    Confidence,
    /// The largest class probability.
    MaxProbability,
    /// The largest class probability less the second largest.
    Margin,
    /// How safe stopping is, as learned.
    Gap,
}

impl Word for ScoreWord {
    const NAME: &'static str = "score";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Confidence,
            "confidence",
            "The score that the traces carry",
        ),
        (
            Self::MaxProbability,
            "max-probability",
            "The largest class probability",
        ),
        (
            Self::Margin,
            "margin",
            "The largest class probability less the second largest",
        ),
        (
            Self::Gap,
            "gap",
            "The probability that stopping costs nothing, learned from traces that are set aside",
        ),
    ];
}

impl ScoreWord {
    /// The score, where it needs no learning.
    pub(crate) fn plain(self) -> Option<ScoreSource> {
        match self {
            Self::Confidence => Some(ScoreSource::Confidence),
            Self::MaxProbability => Some(ScoreSource::MaxProbability),
            Self::Margin => Some(ScoreSource::Margin),
            Self::Gap => None,
        }
    }
}

impl Word for AtNever {
    const NAME: &'static str = "at_never";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Skip,
            "skip",
            "Go on: there is nothing to test at that step",
        ),
        (Self::Stop, "stop", "End there, as the paper's listing does"),
    ];
}

impl Word for ScreenBy {
    const NAME: &'static str = "screen_by";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Risk,
            "risk",
            "The smallest threshold whose gap among the screening traces is at most alpha",
        ),
        (
            Self::PValue,
            "p-value",
            "The smallest threshold whose p-value on the screening traces is at most delta",
        ),
    ];
}

/// What is lost by stopping early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossWord {
    /// The full prediction is right and the early one is wrong.
    Gap,
    /// The early prediction differs from the full one.
    Disagreement,
    /// What comes with the traces.
    Given,
    /// How much worse than the full one a predicted number is.
    Absolute,
}

impl Word for LossWord {
    const NAME: &'static str = "loss";
    const WORDS: &'static [(Self, &'static str, &'static str)] = &[
        (
            Self::Gap,
            "gap",
            "The full prediction is right and the early one is wrong; labels may be missing",
        ),
        (
            Self::Disagreement,
            "disagreement",
            "The early prediction differs from the full one; needs no labels at all",
        ),
        (
            Self::Given,
            "given",
            "The losses that the traces carry, in [0, 1] at each step",
        ),
        (
            Self::Absolute,
            "absolute",
            "How much further from the true number the early prediction is than the full one, in \
             units of the scale",
        ),
    ];
}

/// What is asked for, as it came in at a door; `None` is whatever is usual.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// How to find the rule; by default `adaptive`.
    pub method: Option<Method>,
    /// What `adaptive` is to promise; by default the gap by every step.
    pub promise: Option<Promise>,
    /// The tolerated gap; by default 0.1.
    pub alpha: Option<f64>,
    /// The probability with which the promise may fail; by default 0.01.
    pub delta: Option<f64>,
    /// What to judge; by default the score that the traces carry, or for
    /// `adaptive` that or the learned one, whichever promises to halt earlier.
    pub score: Option<ScoreWord>,
    /// Whether there are other traces to fit to.
    pub fit: bool,
    /// Without them: the share that is set aside to fit to; by default 0.3.
    pub fit_fraction: Option<f64>,
    /// Whether there are other traces to screen on.
    pub screen: bool,
    /// Without them: the share that screens; by default the paper's half.
    pub screen_fraction: Option<f64>,
    /// The seed of the split; by default 0.
    pub seed: Option<u64>,
    /// The distance between the thresholds to choose from; by default 0.01.
    pub grid_step: Option<f64>,
    /// What the backward walk does where the screened threshold is "never".
    pub at_never: Option<AtNever>,
    /// What screening asks of a threshold.
    pub screen_by: Option<ScreenBy>,
    /// What is lost by stopping early; by default the gap.
    pub loss: Option<LossWord>,
    /// The loss that counts as 1, of predicted numbers.
    pub scale: Option<f64>,
    /// The column whose every value the promise is to hold for.
    pub by: Option<String>,
    /// The column that names what is drawn as one.
    pub unit: Option<String>,
    /// The column of weights, for a declared shift.
    pub weight: Option<String>,
    /// What no weight exceeds.
    pub weight_bound: Option<f64>,
    /// What reading costs; by default every step as much.
    pub cost: Option<Cost>,
    /// After how many sequences evidence may be looked at, where more of it is to
    /// come; by default once, whenever that is.
    pub looks: Vec<u64>,
}

/// Why what is asked for cannot be meant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// A level is none.
    Level(LevelError),
    /// The grid's step does not divide 1.
    Grid(GridError),
    /// A share is none.
    Share {
        /// The option.
        option: &'static str,
        /// What was given.
        found: f64,
    },
    /// A word is not known.
    Word {
        /// The option.
        option: &'static str,
        /// What was given.
        found: String,
        /// What could be.
        known: String,
    },
    /// An option has no effect on what else is asked for.
    Needless {
        /// The option.
        option: &'static str,
        /// What it goes with.
        remedy: &'static str,
    },
    /// A number is not above 0.
    Positive {
        /// The option.
        option: &'static str,
        /// What was given.
        found: f64,
    },
    /// Costs are none.
    Costs,
    /// Looks that do not follow each other.
    Looks,
    /// An option needs another.
    Needs {
        /// The option.
        option: &'static str,
        /// What it needs.
        other: &'static str,
        /// What for.
        why: &'static str,
    },
    /// Other traces were given beside a share to cut off.
    Both {
        /// The share.
        fraction: &'static str,
        /// The other traces.
        other: &'static str,
    },
}

impl PlanError {
    /// The message, with each option spelt as at its door.
    pub fn spelt(&self, spell: impl Fn(&str) -> String) -> String {
        match self {
            Self::Level(LevelError {
                name: option,
                value: found,
            })
            | Self::Share { option, found } => format!(
                "{} must lie strictly between 0 and 1, but {found} was given",
                spell(option)
            ),
            Self::Grid(e) => format!("{}: {e}", spell("grid_step")),
            Self::Word {
                option,
                found,
                known,
            } => format!(
                "{} must be one of {known}, but {found:?} was given",
                spell(option)
            ),
            Self::Needless { option, remedy } => format!("{} {remedy}", spell(option)),
            Self::Positive { option, found } => format!(
                "{} must be a number above 0, but {found} was given",
                spell(option)
            ),
            Self::Costs => format!(
                "{}: costs are numbers of at least 0, and not all of them 0",
                spell("cost")
            ),
            Self::Looks => format!(
                "{}: looks are numbers of traces, each larger than the last, {MOST_LOOKS} at the \
                 most",
                spell("looks")
            ),
            Self::Needs { option, other, why } => {
                format!("{} needs {}: {why}", spell(option), spell(other))
            }
            Self::Both { fraction, other } => format!(
                "{fraction} cuts a part off the traces, which other traces make needless: give \
                 {} or {fraction}, not both",
                spell(other),
                fraction = spell(fraction),
            ),
        }
    }
}

impl std::fmt::Display for PlanError {
    /// With the options spelt as in Python.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.spelt(str::to_owned))
    }
}

impl std::error::Error for PlanError {}

impl From<LevelError> for PlanError {
    fn from(error: LevelError) -> Self {
        Self::Level(error)
    }
}

impl From<GridError> for PlanError {
    fn from(error: GridError) -> Self {
        Self::Grid(error)
    }
}

/// What is to be done: the promise, and how to come to a rule that keeps it.
/// Valid once made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Record", into = "Record")]
pub struct Plan {
    method: Method,
    promise: Option<Promise>,
    alpha: Alpha,
    delta: Delta,
    score: Option<ScoreWord>,
    split: Split,
    grid: Grid,
    at_never: AtNever,
    screen_by: ScreenBy,
    terms: Terms,
    looks: Vec<u64>,
}

impl Ask {
    /// The terms that are asked for.
    fn terms(&self) -> Result<Terms, PlanError> {
        let positive = |option, found: f64| match found.is_finite() && found > 0.0 {
            true => Ok(found),
            false => Err(PlanError::Positive { option, found }),
        };
        let absolute = self.loss == Some(LossWord::Absolute);
        if self.scale.is_some() && !absolute {
            let remedy = "goes with the loss absolute only";
            return Err(PlanError::Needless {
                option: "scale",
                remedy,
            });
        }
        let loss = match (self.loss, self.scale) {
            (None | Some(LossWord::Gap), _) => Loss::Gap,
            (Some(LossWord::Disagreement), _) => Loss::Disagreement,
            (Some(LossWord::Given), _) => Loss::Given,
            (Some(LossWord::Absolute), Some(scale)) => Loss::Absolute {
                scale: positive("scale", scale)?,
            },
            (Some(LossWord::Absolute), None) => {
                return Err(PlanError::Needs {
                    option: "loss",
                    other: "scale",
                    why: "how far from the truth counts as a loss of 1",
                });
            }
        };
        let weight = match (&self.weight, self.weight_bound) {
            (None, None) => None,
            (Some(column), Some(bound)) => Some(Weight {
                column: column.clone(),
                bound: positive("weight_bound", bound)?,
            }),
            (Some(_), None) => {
                return Err(PlanError::Needs {
                    option: "weight",
                    other: "weight_bound",
                    why: "what no weight exceeds, fixed before looking at the traces",
                });
            }
            (None, Some(_)) => {
                let remedy = "goes with a column of weights only";
                return Err(PlanError::Needless {
                    option: "weight_bound",
                    remedy,
                });
            }
        };
        if let Some(Cost::Steps(costs)) = &self.cost {
            let sound = |cost: &f64| cost.is_finite() && *cost >= 0.0;
            if !costs.iter().all(sound) || costs.iter().sum::<f64>() <= 0.0 {
                return Err(PlanError::Costs);
            }
        }
        Ok(Terms {
            loss,
            by: self.by.clone(),
            unit: self.unit.clone(),
            weight,
            cost: self.cost.clone(),
        })
    }

    /// Asks for such terms, and for nothing else.
    pub fn of_terms(terms: Terms) -> Self {
        let (loss, scale) = match terms.loss {
            Loss::Gap => (None, None),
            Loss::Disagreement => (Some(LossWord::Disagreement), None),
            Loss::Given => (Some(LossWord::Given), None),
            Loss::Absolute { scale } => (Some(LossWord::Absolute), Some(scale)),
        };
        let (weight, weight_bound) = match terms.weight {
            Some(Weight { column, bound }) => (Some(column), Some(bound)),
            None => (None, None),
        };
        Self {
            loss,
            scale,
            by: terms.by,
            unit: terms.unit,
            weight,
            weight_bound,
            cost: terms.cost,
            ..Self::default()
        }
    }
}

/// How one set of traces is split into parts, of which the last certifies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The share that is to fit a score, and candidates where the method
    /// proposes them from the same traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit_fraction: Option<f64>,
    /// The share, of what is left then, that is to screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen_fraction: Option<f64>,
    /// The seed of the draw.
    pub seed: u64,
}

impl Split {
    /// The share that certifies.
    pub fn certifying_share(&self) -> f64 {
        (1.0 - self.fit_fraction.unwrap_or(0.0)) * (1.0 - self.screen_fraction.unwrap_or(0.0))
    }

    /// Whether anything is split at all.
    pub(crate) fn splits(&self) -> bool {
        self.fit_fraction.is_some() || self.screen_fraction.is_some()
    }

    /// The part that screens. Where a part to fit to is drawn before, another
    /// draw: the same again would take from the rest only what is left of its
    /// share.
    pub(crate) fn screens(&self) -> Option<SetAside> {
        let seed = match self.fit_fraction {
            Some(_) => !self.seed,
            None => self.seed,
        };
        Some(SetAside::share(self.screen_fraction?, seed))
    }
}

/// More looks than this leave little of δ for each.
const MOST_LOOKS: usize = 20;

/// The share that is set aside for fitting, unless said otherwise.
const FIT_FRACTION: f64 = 0.3;

/// The share that screens, unless said otherwise: the paper's half.
const SCREEN_FRACTION: f64 = 0.5;

impl Plan {
    /// Checks what is asked for.
    pub fn new(ask: Ask) -> Result<Self, PlanError> {
        let needless = |given: bool, option, remedy| {
            if given {
                return Err(PlanError::Needless { option, remedy });
            }
            Ok(())
        };
        let both = |given: bool, fraction, other| {
            if given {
                return Err(PlanError::Both { fraction, other });
            }
            Ok(())
        };
        let method = ask.method.unwrap_or_default();
        let fits = method == Method::Adaptive || ask.score == Some(ScoreWord::Gap);
        let screens = method == Method::Conditional;
        let with_fitting = "goes with the method adaptive or the score gap only";
        needless(ask.fit && !fits, "fit", with_fitting)?;
        needless(
            ask.fit_fraction.is_some() && !fits,
            "fit_fraction",
            with_fitting,
        )?;
        let with_screening = "goes with the method conditional only";
        needless(ask.screen && !screens, "screen", with_screening)?;
        needless(
            ask.screen_fraction.is_some() && !screens,
            "screen_fraction",
            with_screening,
        )?;
        both(ask.fit && ask.fit_fraction.is_some(), "fit_fraction", "fit")?;
        both(
            ask.screen && ask.screen_fraction.is_some(),
            "screen_fraction",
            "screen",
        )?;
        needless(
            ask.grid_step.is_some() && method == Method::Adaptive,
            "grid_step",
            "goes with the paper's methods only: the thresholds of adaptive are not on a grid",
        )?;
        needless(
            ask.at_never.is_some() && method != Method::Conditional,
            "at_never",
            with_screening,
        )?;
        needless(
            ask.screen_by.is_some() && !method.screens(),
            "screen_by",
            "goes with the methods conditional and screen-only only",
        )?;
        needless(
            ask.promise.is_some() && method != Method::Adaptive,
            "promise",
            "goes with the method adaptive only: each of the paper's makes one of the two",
        )?;
        needless(
            !ask.looks.is_empty() && method == Method::ScreenOnly,
            "looks",
            "goes with methods that promise something",
        )?;
        let ascend = ask.looks.is_sorted_by(|a, b| a < b) && ask.looks.first() != Some(&0);
        if !ascend || ask.looks.len() > MOST_LOOKS {
            return Err(PlanError::Looks);
        }
        let split = Split {
            fit_fraction: (fits && !ask.fit).then(|| ask.fit_fraction.unwrap_or(FIT_FRACTION)),
            screen_fraction: (screens && !ask.screen)
                .then(|| ask.screen_fraction.unwrap_or(SCREEN_FRACTION)),
            seed: ask.seed.unwrap_or(0),
        };
        let terms = ask.terms()?;
        needless(
            ask.seed.is_some() && !split.splits() && terms.weight.is_none(),
            "seed",
            "is for splitting the traces, and nothing is split here",
        )?;
        needless(
            terms.cost.is_some() && method != Method::Adaptive,
            "cost",
            "goes with the method adaptive only: the paper's halt as early as they can, whatever \
             that costs",
        )?;
        needless(
            ask.screen_by == Some(ScreenBy::PValue)
                && (!terms.loss.is_binary() || terms.unit.is_some()),
            "screen_by",
            "p-value goes with the losses gap and disagreement of single sequences only",
        )?;
        for (option, share) in [
            ("fit_fraction", split.fit_fraction),
            ("screen_fraction", split.screen_fraction),
        ] {
            if let Some(found) = share.filter(|share| !(*share > 0.0 && *share < 1.0)) {
                return Err(PlanError::Share { option, found });
            }
        }
        Ok(Self {
            method,
            promise: ask.promise.or(method.promise()),
            alpha: ask
                .alpha
                .map_or_else(|| Ok(Alpha::default()), Alpha::try_from)?,
            delta: ask
                .delta
                .map_or_else(|| Ok(Delta::default()), Delta::try_from)?,
            score: ask.score,
            split,
            grid: ask
                .grid_step
                .map_or_else(|| Ok(Grid::default()), Grid::new)?,
            at_never: ask.at_never.unwrap_or_default(),
            screen_by: ask.screen_by.unwrap_or_default(),
            terms,
            looks: ask.looks,
        })
    }

    /// A method with everything else as usual.
    pub fn of(method: Method) -> Self {
        let ask = Ask {
            method: Some(method),
            ..Ask::default()
        };
        // What is usual goes together.
        Self::new(ask).unwrap_or_else(|_| unreachable!("the defaults are sound"))
    }

    /// The same at other levels: for repeated experiments.
    pub fn at(mut self, alpha: Alpha, delta: Delta) -> Self {
        (self.alpha, self.delta) = (alpha, delta);
        self
    }

    /// The same for parts that are separate already.
    pub(crate) fn for_others(mut self) -> Self {
        self.split = Split {
            // Weights draw by it.
            seed: self.split.seed * u64::from(self.terms.weight.is_some()),
            ..Split::default()
        };
        self
    }

    /// The same for sequences that stand for the declared mix already.
    pub(crate) fn unweighted(mut self) -> Self {
        self.terms.weight = None;
        self
    }

    /// What is promised, and to whom.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Refuses a sequence that lacks what the terms speak of, and leaves out
    /// whom the weights do: see [`Terms::admit`].
    pub(crate) fn admission(&self) -> Admission<'_> {
        Admission {
            terms: &self.terms,
            seed: self.split.seed,
        }
    }

    /// How the rule is found.
    pub fn method(&self) -> Method {
        self.method
    }

    /// What is promised, if anything.
    pub fn promise(&self) -> Option<Promise> {
        self.promise
    }

    /// The tolerated gap.
    pub fn alpha(&self) -> Alpha {
        self.alpha
    }

    /// The probability with which the promise may fail.
    pub fn delta(&self) -> Delta {
        self.delta
    }

    /// After how many sequences evidence may be looked at; empty where that is done
    /// once.
    pub fn looks(&self) -> &[u64] {
        &self.looks
    }

    /// The probability with which the promise may fail at one look: see
    /// [`Looks`](crate::rule::Looks).
    pub(crate) fn level(&self) -> Delta {
        self.delta.over(self.looks.len())
    }

    /// The thresholds that the paper's methods choose from.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// What the backward walk does where the candidate is "never".
    pub(crate) fn at_never(&self) -> AtNever {
        self.at_never
    }

    /// What screening asks of a threshold.
    pub(crate) fn screen_by(&self) -> ScreenBy {
        self.screen_by
    }

    /// What is to be judged, if that was said.
    pub(crate) fn score(&self) -> Option<ScoreWord> {
        self.score
    }

    /// How the traces are split.
    pub(crate) fn split(&self) -> &Split {
        &self.split
    }

    /// Whether sequences are needed to fit to.
    pub(crate) fn fits(&self) -> bool {
        self.method == Method::Adaptive || self.score == Some(ScoreWord::Gap)
    }

    /// Whether sequences are needed to screen on.
    pub(crate) fn screens(&self) -> bool {
        self.method.screens()
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::of(Method::default())
    }
}

/// A plan as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    method: Method,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promise: Option<Promise>,
    alpha: f64,
    delta: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    score: Option<ScoreWord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fit_fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    screen_fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grid_step: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_never: Option<AtNever>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    screen_by: Option<ScreenBy>,
    #[serde(default, skip_serializing_if = "Terms::is_usual")]
    terms: Terms,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    looks: Vec<u64>,
}

impl From<Plan> for Record {
    fn from(plan: Plan) -> Self {
        Self {
            method: plan.method,
            promise: plan
                .promise
                .filter(|_| plan.promise != plan.method.promise()),
            alpha: plan.alpha.get(),
            delta: plan.delta.get(),
            score: plan.score,
            fit_fraction: plan.split.fit_fraction,
            screen_fraction: plan.split.screen_fraction,
            seed: (plan.split.splits() || plan.terms.weight.is_some()).then_some(plan.split.seed),
            grid_step: (plan.method != Method::Adaptive).then(|| plan.grid.step()),
            at_never: (plan.method == Method::Conditional).then_some(plan.at_never),
            screen_by: plan.method.screens().then_some(plan.screen_by),
            terms: plan.terms,
            looks: plan.looks,
        }
    }
}

impl TryFrom<Record> for Plan {
    type Error = PlanError;

    fn try_from(record: Record) -> Result<Self, PlanError> {
        let fits = record.method == Method::Adaptive || record.score == Some(ScoreWord::Gap);
        Self::new(Ask {
            method: Some(record.method),
            promise: record.promise,
            alpha: Some(record.alpha),
            delta: Some(record.delta),
            score: record.score,
            // Where no share was to be cut off, the traces were others.
            fit: fits && record.fit_fraction.is_none(),
            fit_fraction: record.fit_fraction,
            screen: record.method == Method::Conditional && record.screen_fraction.is_none(),
            screen_fraction: record.screen_fraction,
            seed: record.seed,
            grid_step: record.grid_step,
            at_never: record.at_never,
            screen_by: record.screen_by,
            looks: record.looks,
            ..Ask::of_terms(record.terms)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(ask: Ask) -> String {
        let dashed = |option: &str| format!("--{}", option.replace('_', "-"));
        Plan::new(ask).unwrap_err().spelt(dashed)
    }

    #[test]
    fn options_that_would_have_no_effect_are_refused() {
        let of = |method| Ask {
            method: Some(method),
            ..Ask::default()
        };
        let grid_step = Ask {
            grid_step: Some(0.05),
            ..Ask::default()
        };
        assert!(refused(grid_step).starts_with("--grid-step goes with the paper's methods only"));
        let at_never = Ask {
            at_never: Some(AtNever::Skip),
            ..Ask::default()
        };
        assert!(refused(at_never).starts_with("--at-never goes with the method conditional"));
        let fit = Ask {
            fit_fraction: Some(0.2),
            ..of(Method::Marginal)
        };
        assert!(refused(fit).starts_with("--fit-fraction goes with the method adaptive"));
        let screen = Ask {
            screen: true,
            ..of(Method::Marginal)
        };
        assert!(refused(screen).starts_with("--screen goes with the method conditional"));
        let seed = Ask {
            seed: Some(1),
            ..of(Method::Marginal)
        };
        assert!(refused(seed).starts_with("--seed is for splitting"));
        let both = Ask {
            fit: true,
            fit_fraction: Some(0.2),
            ..Ask::default()
        };
        assert!(refused(both).contains("give --fit or --fit-fraction, not both"));
    }

    #[test]
    fn what_is_no_level_share_or_word_is_refused() {
        let alpha = Ask {
            alpha: Some(1.0),
            ..Ask::default()
        };
        assert!(refused(alpha).contains("alpha must lie strictly between 0 and 1"));
        let share = Ask {
            fit_fraction: Some(f64::NAN),
            ..Ask::default()
        };
        assert!(refused(share).contains("--fit-fraction must lie strictly between 0 and 1"));
        let word = Method::of("marginl").unwrap_err().to_string();
        assert!(
            word.contains("method must be one of \"adaptive\""),
            "{word}"
        );
    }

    #[test]
    fn a_stored_plan_is_the_plan() {
        for method in [Method::Adaptive, Method::Conditional, Method::Marginal] {
            for score in [None, Some(ScoreWord::Gap), Some(ScoreWord::Margin)] {
                for others in [false, true] {
                    let fits = method == Method::Adaptive || score == Some(ScoreWord::Gap);
                    let plan = Plan::new(Ask {
                        method: Some(method),
                        score,
                        fit: others && fits,
                        screen: others && method == Method::Conditional,
                        ..Ask::default()
                    })
                    .unwrap();
                    let stored = serde_json::to_string(&plan).unwrap();
                    assert_eq!(serde_json::from_str::<Plan>(&stored).unwrap(), plan);
                }
            }
        }
    }
}
