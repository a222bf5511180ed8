//! The one list of options of a calibration.
//!
//! [`Ask`] and [`OPTIONS`] are made from one declaration, [`options!`] below. The command line,
//! Python, Spark, WebAssembly, the TypeScript types, the page's form and the references walk
//! [`OPTIONS`], or are compared with it by a test. A new option is a line there, and the code that
//! uses it.

use serde::{Deserialize, Serialize};

use super::PlanError;
use super::value::{Field, Kind, Value};
use crate::data::agreement::LabelCheck;
use crate::data::score::ScoreSource;
use crate::data::terms::{Cost, Loss, Terms, Weight};
use crate::data::words::{Word, words};
use crate::tables::candidates::FamilyKind;
use crate::testing::fixed_sequence::Promise;

/// What makes a threshold good enough to be proposed, judged on the screening sequences
/// halted so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScreenBy {
    /// Their gap is at most α.
    #[default]
    Risk,
    /// The p-value of "the gap is above α" is at most δ: they would pass the test that
    /// certifying makes on other traces. This is more cautious at steps by which few have
    /// halted.
    #[serde(rename = "p-value")]
    PValue,
}

words! { ScreenBy, "screen_by":
    Risk = "risk", "The smallest threshold whose gap among the screening traces is at most alpha";
    PValue = "p-value",
        "The smallest threshold whose p-value on the screening traces is at most delta";
}

/// How a rule is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// A learned score and threshold curves, with either promise; halts earlier than the
    /// paper's methods.
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

words! { Method, "method":
    Adaptive = "adaptive",
        "A learned score and threshold curves; halts earliest. It bounds the gap among the sequences \
         halted by any step, or as `promise` says";
    Marginal = "marginal",
        "The paper's method with one threshold; it bounds the gap on average over all sequences";
    Conditional = "conditional",
        "The paper's method with a threshold per step; it bounds the gap among the sequences halted by \
         any step";
    ScreenOnly = "screen-only",
        "The conditional method without its tests: promises nothing, for comparison";
}

/// What a rule is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// To be used, with its promise.
    #[default]
    Use,
    /// To compare settings on the same traces.
    Explore,
}

words! { Purpose, "purpose":
    Use = "use", "To be used: the promise is meant";
    Explore = "explore",
        "To compare settings on the same traces, as cross-validation does: the rule promises nothing";
}

impl Purpose {
    pub(crate) fn is_use(&self) -> bool {
        *self == Self::Use
    }
}

impl Method {
    /// The promise of a rule found this way, if it has one; for `adaptive`, unless another
    /// was requested.
    pub fn promise(self) -> Option<Promise> {
        match self {
            Self::Marginal => Some(Promise::Marginal),
            Self::Conditional | Self::Adaptive => Some(Promise::Conditional),
            Self::ScreenOnly => None,
        }
    }

    /// Whether the method fits to traces for any score, and chooses its thresholds without
    /// a grid.
    pub(super) fn fits(self) -> bool {
        match self {
            Self::Adaptive => true,
            Self::Conditional | Self::Marginal | Self::ScreenOnly => false,
        }
    }

    /// Whether thresholds of a grid are screened for each step.
    pub(super) fn screens(self) -> bool {
        match self {
            Self::Conditional | Self::ScreenOnly => true,
            Self::Adaptive | Self::Marginal => false,
        }
    }

    /// The one family that it proposes, if its tests alone determine the rule.
    pub(crate) fn family(self) -> Option<FamilyKind> {
        match self {
            Self::Marginal => Some(FamilyKind::OneThreshold),
            Self::Conditional => Some(FamilyKind::Backward),
            Self::Adaptive | Self::ScreenOnly => None,
        }
    }

    /// Whether the screening sequences must not certify.
    pub(super) fn sets_aside_to_screen(self) -> bool {
        match self {
            Self::Conditional => true,
            Self::Adaptive | Self::Marginal | Self::ScreenOnly => false,
        }
    }
}

/// The topic of an option; lists of options are ordered by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    /// The rule, and how to find it.
    Rule,
    /// The promise, and which sequences it covers.
    Promise,
    /// For evidence that is gathered apart from calibrating; `calibrate` itself has none of
    /// these.
    Evidence,
}

/// One option, as it is declared.
#[derive(Debug)]
pub struct OptionSpec {
    /// Its name, in lower case with underscores; each door spells it in its own way.
    pub name: &'static str,
    /// The kind of value it takes.
    pub kind: Kind,
    /// Its default: a value, or words.
    pub usual: Option<&'static str>,
    /// Its topic.
    pub section: Section,
    help: &'static str,
    is_set: fn(&Ask) -> bool,
    takes: fn(&Ask) -> bool,
    otherwise: &'static str,
}

/// Declares the options: a field of [`Ask`] and a row of [`OPTIONS`] each.
///
/// `/// help`, `name: type = "what is usual" where |ask| condition => "what is said otherwise";`
macro_rules! options {
    ($( $section:ident: $(
        $(#[doc = $help:literal])+
        $name:ident: $type:ty $(= $usual:literal)? $(where $takes:expr => $otherwise:literal)?;
    )+ )+) => {
        /// The options as given at a door; `None` means the default.
        #[derive(Debug, Clone, Default)]
        pub struct Ask {
            $($(
                $(#[doc = $help])+
                pub $name: $type,
            )+)+
            /// Whether there are other traces to fit to.
            pub fit: bool,
            /// Whether there are other traces to screen on.
            pub screen: bool,
        }

        /// All options, section by section.
        pub const OPTIONS: &[OptionSpec] = &[$($(
            OptionSpec {
                name: stringify!($name),
                kind: <$type as Field>::KIND,
                usual: [$(Some($usual),)? None][0],
                section: Section::$section,
                help: concat!($($help),+),
                is_set: |ask| ask.$name.is_set(),
                takes: [$($takes as fn(&Ask) -> bool,)? |_: &Ask| true][0],
                otherwise: concat!($($otherwise)?),
            },
        )+)+];

        impl Ask {
            /// Sets one more option, for doors without types.
            pub fn set(&mut self, name: &str, value: Value) -> Result<(), PlanError> {
                match name {
                    $($(stringify!($name) => {
                        self.$name = <$type as Field>::read(stringify!($name), value)?;
                    })+)+
                    _ => return Err(PlanError::unknown(name)),
                }
                Ok(())
            }
        }
    };
}

options! {
    Rule:

    /// How to find the rule.
    method: Option<Method> = "adaptive";

    /// The score, which says how safe it is to stop.
    score: Option<ScoreSource<()>> =
        "the score of the traces; with the method adaptive, that or the learned one, whichever promises to halt earlier";

    /// The share of the traces that is set aside to fit to, if no others are given.
    fit_fraction: Option<f64> = "0.3"
        where |ask| ask.fits() => "goes with the method adaptive or the score gap only";

    /// With the method conditional: the share of the traces that screens, if no others are given.
    screen_fraction: Option<f64> = "0.5"
        where |ask| ask.method().sets_aside_to_screen() => "goes with the method conditional only";

    /// The seed that draws the parts, if the traces are split.
    seed: Option<u64> = "0"
        where |ask| ask.splits() || ask.weight.is_some()
            => "is for splitting the traces, and nothing is split here";

    /// The tolerated gap: the share of sequences for which stopping early may lose a right answer.
    alpha: Option<f64> = "0.1";

    /// The probability with which the guarantee may fail.
    delta: Option<f64> = "0.01";

    /// The distance between the thresholds that the paper's methods choose from.
    grid_step: Option<f64> = "0.01"
        where |ask| !ask.method().fits()
            => "goes with the paper's methods only: the thresholds of adaptive are not on a grid";

    /// With the methods conditional and screen-only: how to choose a threshold.
    screen_by: Option<ScreenBy> = "risk"
        where |ask| ask.method().screens()
            => "goes with the methods conditional and screen-only only";

    /// What to do if labels and predictions agree less often than chance.
    label_check: Option<LabelCheck> = "refuse";

    /// What the rule is for.
    purpose: Option<Purpose> = "use"
        where |ask| ask.method() != Method::ScreenOnly
            => "goes with methods that promise something";

    Promise:

    /// With the method adaptive: which sequences the promise covers.
    promise: Option<Promise> = "halted-by"
        where |ask| ask.method().fits()
            => "goes with the method adaptive only: each of the paper's makes one of the two";

    /// The loss that stopping early may cause.
    loss: Option<Loss<()>> = "gap";

    /// With the loss absolute: how much further from the truth counts as a loss of 1.
    scale: Option<f64>
        where |ask| matches!(ask.loss, Some(Loss::Absolute { .. }))
            => "goes with the loss absolute only";

    /// Guarantee the promise separately for each value of this column, such as a hospital or a
    /// device, or for each true class (`label`).
    by: Option<String>;

    /// Count all sequences with the same value in this column, such as a patient or a driver, as
    /// one draw. They are split and certified as a whole.
    unit: Option<String>;

    /// Guarantee the promise for a declared shift. This column says how much more often each
    /// sequence occurs where the rule will be used.
    weight: Option<String>;

    /// With `weight`: the largest weight allowed. With bound B and a mean weight of 1, about one
    /// trace in B is used.
    weight_bound: Option<f64>
        where |ask| ask.weight.is_some() => "goes with a column of weights only";

    /// The cost of reading a step: a column with a cost per step, or costs such as 1,1,4. The last
    /// cost applies to all later steps. The rule then minimises the cost instead of the halt time.
    cost: Option<Cost> = "every step as much"
        where |ask| ask.method().fits()
            => "goes with the method adaptive only: the paper's halt as early as they can, whatever that costs";

    Evidence:

    /// Certify when the number of traces reaches each N. N includes the traces used to propose
    /// rules. The last look has 70% of `delta`. The earlier ones share the rest.
    looks: Vec<u64>
        where |ask| ask.method() != Method::ScreenOnly => "goes with methods that promise something";
}

impl OptionSpec {
    /// Returns the help, with options spelt as at a door, and without the last full stop.
    pub fn help(&self, spell: impl Fn(&str) -> String) -> String {
        spelt(self.help.trim().trim_end_matches('.'), spell)
    }

    /// Whether the option was given.
    pub(super) fn is_set(&self, ask: &Ask) -> bool {
        (self.is_set)(ask)
    }

    /// Why the option cannot be combined with the others, if it cannot.
    pub(super) fn refusal(&self, ask: &Ask) -> Option<&'static str> {
        (!(self.takes)(ask)).then_some(self.otherwise)
    }

    /// Whether the option may be given with a method.
    pub fn goes_with(&self, method: Method) -> bool {
        (self.takes)(&Ask {
            method: Some(method),
            score: Some(ScoreSource::Gap(())),
            loss: Some(Loss::Absolute { scale: () }),
            weight: Some(String::new()),
            ..Ask::default()
        })
    }

    /// Whether the option may be given with a method and no other option.
    fn goes_with_alone(&self, method: Method) -> bool {
        (self.takes)(&Ask {
            method: Some(method),
            ..Ask::default()
        })
    }

    /// The default, if it is a value that may always be given.
    pub fn default_value(&self) -> Option<&'static str> {
        let mut methods = Method::VALUES.iter();
        let always = methods.all(|method| self.goes_with_alone(*method));
        let value = |usual: &&str| always && self.kind.is_value(usual);
        self.usual.filter(value)
    }
}

/// Respells the options between backticks in a text as at a door.
pub fn spelt(text: &str, spell: impl Fn(&str) -> String) -> String {
    let mut out = String::new();
    for (i, part) in text.split('`').enumerate() {
        if i % 2 == 0 {
            out += part;
        } else if OPTIONS.iter().any(|option| option.name == part) {
            out += &spell(part);
        } else {
            out += &format!("`{part}`");
        }
    }
    out
}

/// Spells an option as in JavaScript.
pub fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, tail) = word.split_at(word.len().min(1));
        name + &head.to_uppercase() + tail
    })
}

impl Ask {
    /// The method.
    pub fn method(&self) -> Method {
        self.method.unwrap_or_default()
    }

    /// Whether the method needs sequences to fit to.
    pub(super) fn fits(&self) -> bool {
        self.method().fits() || self.score == Some(ScoreSource::Gap(()))
    }

    /// Whether the traces are to be split.
    pub(super) fn splits(&self) -> bool {
        self.fits() && !self.fit || self.method().sets_aside_to_screen() && !self.screen
    }

    /// The terms of the options.
    pub(super) fn terms(&self) -> Result<Terms, PlanError> {
        let positive = |option, found: f64| match found.is_finite() && found > 0.0 {
            true => Ok(found),
            false => Err(PlanError::Positive { option, found }),
        };
        let loss = self.loss.unwrap_or_default().with_scale(|()| {
            let scale = self.scale.ok_or(PlanError::Needs {
                option: "loss",
                other: "scale",
                why: "how far from the truth counts as a loss of 1",
            })?;
            positive("scale", scale)
        })?;
        let weight = match (&self.weight, self.weight_bound) {
            (None, _) => None,
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

    /// Asks for these terms, and for nothing else.
    pub fn of_terms(terms: Terms) -> Self {
        let mut scale = None;
        let loss = terms.loss.with_scale(|given| {
            scale = Some(given);
            Ok::<(), std::convert::Infallible>(())
        });
        let (weight, weight_bound) = match terms.weight {
            Some(Weight { column, bound }) => (Some(column), Some(bound)),
            None => (None, None),
        };
        Self {
            loss: loss.ok(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Plan;

    #[test]
    fn help_names_options_that_there_are() {
        let named = |text: &str| {
            let parts = text.split('`').skip(1).step_by(2);
            parts.map(str::to_owned).collect::<Vec<_>>()
        };
        for option in OPTIONS {
            for name in named(option.help) {
                let known = OPTIONS.iter().any(|option| option.name == name);
                assert!(known || name == "label", "{}: {name}", option.name);
            }
        }
        let dashed = |name: &str| format!("--{name}");
        assert_eq!(
            spelt("`alpha` or `label`", dashed),
            "--alpha or `label`".to_owned()
        );
    }

    #[test]
    fn what_is_usual_is_what_is_done_without_being_asked_for() {
        for option in OPTIONS {
            let Some(usual) = option.usual.filter(|usual| option.kind.is_value(usual)) else {
                continue;
            };
            for method in Method::VALUES {
                if !option.goes_with_alone(*method) || option.name == "method" {
                    continue;
                }
                let mut given = Ask {
                    method: Some(*method),
                    ..Ask::default()
                };
                let silent = Plan::new(given.clone()).unwrap();
                let value = match usual.parse() {
                    Ok(number) if option.kind == Kind::Number => Value::Number(number),
                    Ok(number) => Value::Count(number as u64),
                    Err(_) => Value::Text(usual.to_owned()),
                };
                given.set(option.name, value).unwrap();
                let plan = Plan::new(given).unwrap();
                assert_eq!(plan, silent, "{}", option.name);
            }
        }
        assert_eq!(Method::default().word(), "adaptive");
    }

    #[test]
    fn a_door_without_types_fills_in_the_same() {
        let mut ask = Ask::default();
        ask.set("alpha", Value::Number(0.2)).unwrap();
        ask.set("method", Value::Text("marginal".into())).unwrap();
        ask.set("cost", Value::Text("1,1,4".into())).unwrap();
        ask.set("looks", Value::List(vec![Value::Count(5), Value::Count(9)]))
            .unwrap();
        assert_eq!((ask.alpha, ask.method), (Some(0.2), Some(Method::Marginal)));
        assert_eq!(ask.cost, Some(Cost::Steps(vec![1.0, 1.0, 4.0])));
        assert_eq!(ask.looks, [5, 9]);
        let refused = |name, value| Ask::default().set(name, value).unwrap_err().to_string();
        assert_eq!(
            refused("alpha", Value::Text("much".into())),
            "alpha must be a number, but \"much\" was given"
        );
        assert_eq!(
            refused("seed", Value::Number(0.5)),
            "seed must be a whole number of at least 0, but 0.5 was given"
        );
        let unknown = refused("alfa", Value::Number(0.5));
        assert!(
            unknown.starts_with("alfa is not an option; the options are method, score,"),
            "{unknown}"
        );
    }
}
