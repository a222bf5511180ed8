//! The plan: a valid set of options, checked once.
//!
//! Every door (the command line, Python, Spark) fills in an [`Ask`] and makes a [`Plan`] of
//! it. Options that do not go together are refused here and nowhere else, before anything
//! is read. Levels are part of the plan: nobody chooses α or δ after the evidence is in.

use serde::{Deserialize, Serialize};

use crate::data::identity::SetAside;
use crate::data::score::ScoreSource;
use crate::data::terms::{Admission, Terms};
mod error;
mod options;
mod stored;
mod value;

pub use error::PlanError;
pub use options::{
    Ask, Method, OPTIONS, OptionSpec, Purpose, ScreenBy, Section, camel_case, spelt,
};
use stored::StoredPlan;
pub use value::{Kind, Value};

pub use crate::data::agreement::LabelCheck;
pub use crate::data::words::{UnknownWord, Word};
pub use crate::numbers::alpha_delta::{Alpha, Delta, OutOfRange};
pub use crate::numbers::grid::{Grid, GridError};
pub use crate::tables::candidates::AtNever;
use crate::testing::fixed_sequence::Promise;

/// What to do: the promise, and how to find a rule that keeps it. Always valid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredPlan", into = "StoredPlan")]
pub struct Plan {
    method: Method,
    promise: Option<Promise>,
    alpha: Alpha,
    delta: Delta,
    score: Option<ScoreSource<()>>,
    split: Split,
    grid: Grid,
    at_never: AtNever,
    screen_by: ScreenBy,
    terms: Terms,
    looks: Vec<u64>,
    label_check: LabelCheck,
    purpose: Purpose,
}

/// How one set of traces is split into parts; the last part certifies.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The share that fits a score; also candidates, if the method proposes them from the
    /// same traces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fit_fraction: Option<f64>,
    /// The share of the rest that screens.
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

    /// The part that screens. If a part to fit to is drawn first, this is another draw: the
    /// same draw would take from the rest only what is left of its share.
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

/// The default share that is set aside for fitting.
const FIT_FRACTION: f64 = 0.3;

/// The default share that screens: the paper's half.
const SCREEN_FRACTION: f64 = 0.5;

impl Plan {
    /// Checks the options.
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
        let method = ask.method();
        let (fits, screens) = (ask.fits(), method.sets_aside_to_screen());
        // Other traces need the same options as the share that they replace.
        for (given, option, fraction) in [
            (ask.fit, "fit", "fit_fraction"),
            (ask.screen, "screen", "screen_fraction"),
        ] {
            let like = OPTIONS.iter().find(|like| like.name == fraction);
            let refusal = like.and_then(|like| like.refusal(&ask));
            needless(
                given && refusal.is_some(),
                option,
                refusal.unwrap_or_default(),
            )?;
        }
        for option in OPTIONS.iter().filter(|option| option.is_set(&ask)) {
            if let Some(remedy) = option.refusal(&ask) {
                return Err(PlanError::Needless {
                    option: option.name,
                    remedy,
                });
            }
        }
        both(ask.fit && ask.fit_fraction.is_some(), "fit_fraction", "fit")?;
        both(
            ask.screen && ask.screen_fraction.is_some(),
            "screen_fraction",
            "screen",
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
            at_never: AtNever::default(),
            screen_by: ask.screen_by.unwrap_or_default(),
            terms,
            looks: ask.looks,
            label_check: ask.label_check.unwrap_or_default(),
            purpose: ask.purpose.unwrap_or_default(),
        })
    }

    /// A method with the defaults for everything else.
    pub fn of(method: Method) -> Self {
        let ask = Ask {
            method: Some(method),
            ..Ask::default()
        };
        // The defaults are valid together.
        Self::new(ask).unwrap_or_else(|_| unreachable!("the defaults are sound"))
    }

    /// The same plan at other levels, for repeated experiments.
    pub fn at(mut self, alpha: Alpha, delta: Delta) -> Self {
        (self.alpha, self.delta) = (alpha, delta);
        self
    }

    /// The same plan with another walk, to compare with the paper's listing.
    pub fn walking(mut self, at_never: AtNever) -> Result<Self, PlanError> {
        if self.method != Method::Conditional {
            return Err(PlanError::Needless {
                option: "at_never",
                remedy: "goes with the method conditional only",
            });
        }
        self.at_never = at_never;
        Ok(self)
    }

    /// The same plan for parts that are already separate.
    pub(crate) fn for_others(mut self) -> Self {
        self.split = Split {
            // Weights are drawn by it.
            seed: self.split.seed * u64::from(self.terms.weight.is_some()),
            ..Split::default()
        };
        self
    }

    /// The same plan for sequences that already represent the declared mix.
    pub(crate) fn unweighted(mut self) -> Self {
        self.terms.weight = None;
        self
    }

    /// What the promise is about, and which sequences it covers.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Refuses a sequence that lacks what the terms need, and leaves out those that the
    /// weights exclude: see [`Terms::admit`].
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

    /// The promise, if there is one.
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

    /// The numbers of sequences after which evidence may be looked at; empty if there is
    /// only one look.
    pub fn looks(&self) -> &[u64] {
        &self.looks
    }

    /// The probability with which the promise may fail at a look, counted from 1: see
    /// [`Looks`](crate::rule::Looks).
    pub(crate) fn level_at(&self, look: usize) -> Delta {
        self.delta.at_look(look, self.looks.len())
    }

    /// The same at the last look, which candidates are proposed for.
    pub(crate) fn level(&self) -> Delta {
        self.level_at(self.looks.len())
    }

    /// The thresholds that the paper's methods choose from.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// What the backward walk does if the candidate is "never".
    pub(crate) fn at_never(&self) -> AtNever {
        self.at_never
    }

    /// What screening asks of a threshold.
    pub(crate) fn screen_by(&self) -> ScreenBy {
        self.screen_by
    }

    /// What to do if labels and predictions hardly ever agree.
    pub(crate) fn label_check(&self) -> LabelCheck {
        self.label_check
    }

    /// What the rule is for.
    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// The score to judge, if one was requested.
    pub(crate) fn score(&self) -> Option<ScoreSource<()>> {
        self.score
    }

    /// How the traces are split.
    pub(crate) fn split(&self) -> &Split {
        &self.split
    }

    /// Whether the method needs sequences to fit to.
    pub(crate) fn fits(&self) -> bool {
        self.method.fits() || self.score == Some(ScoreSource::Gap(()))
    }

    /// Whether the method needs sequences to screen on.
    pub(crate) fn screens(&self) -> bool {
        self.method.screens()
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::of(Method::default())
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
        let at_never = Plan::default().walking(AtNever::Skip).unwrap_err();
        assert!(
            at_never
                .to_string()
                .starts_with("at_never goes with the method conditional")
        );
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
            for score in [None, Some(ScoreSource::Gap(())), Some(ScoreSource::Margin)] {
                for others in [false, true] {
                    let fits = method == Method::Adaptive || score == Some(ScoreSource::Gap(()));
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
