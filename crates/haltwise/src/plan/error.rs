//! Why a plan is refused.

use super::{MOST_LOOKS, OPTIONS, Value};
use crate::data::words::UnknownWord;
use crate::numbers::alpha_delta::OutOfRange;
use crate::numbers::grid::GridError;

/// Why what is asked for cannot be meant.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum PlanError {
    /// A level is none.
    Level(OutOfRange),
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
    Word(UnknownWord),
    /// There is no such option.
    Unknown {
        /// What was taken for one.
        option: String,
    },
    /// A value is of another kind than the option's.
    Kind {
        /// The option.
        option: &'static str,
        /// What it takes.
        expected: &'static str,
        /// What was given.
        found: Value,
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
    pub(super) fn unknown(option: &str) -> Self {
        Self::Unknown {
            option: option.to_owned(),
        }
    }

    /// Whether the options themselves are wrong, not their values.
    pub fn is_of_type(&self) -> bool {
        matches!(self, Self::Unknown { .. } | Self::Kind { .. })
    }

    /// The message, with each option spelt as at its door.
    pub fn spelt(&self, spell: impl Fn(&str) -> String) -> String {
        match self {
            Self::Level(OutOfRange {
                name: option,
                value: found,
            })
            | Self::Share { option, found } => format!(
                "{} must lie strictly between 0 and 1, but {found} was given",
                spell(option)
            ),
            Self::Grid(e) => format!("{}: {e}", spell("grid_step")),
            Self::Word(unknown) => unknown.spelt(&spell(unknown.option)),
            Self::Unknown { option } => {
                let known: Vec<String> = OPTIONS.iter().map(|o| spell(o.name)).collect();
                format!(
                    "{option} is not an option; the options are {}",
                    known.join(", ")
                )
            }
            Self::Kind {
                option,
                expected,
                found,
            } => format!(
                "{} must be {expected}, but {found} was given",
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

impl From<UnknownWord> for PlanError {
    fn from(unknown: UnknownWord) -> Self {
        Self::Word(unknown)
    }
}

impl From<OutOfRange> for PlanError {
    fn from(error: OutOfRange) -> Self {
        Self::Level(error)
    }
}

impl From<GridError> for PlanError {
    fn from(error: GridError) -> Self {
        Self::Grid(error)
    }
}
