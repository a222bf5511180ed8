//! Values of options, at doors that do not know their types.

use std::fmt;

use super::PlanError;
use crate::data::terms::Cost;
use crate::data::words::Word;

/// A value as it comes from a command line, a dictionary or JSON.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A whole number of at least 0.
    Count(u64),
    /// A word, a column, or costs with commas between them.
    Text(String),
    /// Several.
    List(Vec<Value>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Count(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(values) => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", values.join(", "))
            }
        }
    }
}

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A number.
    Number,
    /// A whole number of at least 0.
    Count,
    /// Whole numbers of at least 0.
    Counts,
    /// One of these words; with each, what it means.
    Word(&'static [(&'static str, &'static str)]),
    /// The name of a column.
    Column,
    /// A column of costs, or a cost per step.
    Costs,
}

impl Kind {
    /// Whether text is such a value.
    pub(super) fn is_value(&self, text: &str) -> bool {
        match self {
            Self::Number => text.parse::<f64>().is_ok(),
            Self::Count => text.parse::<u64>().is_ok(),
            Self::Word(words) => words.iter().any(|(word, _)| *word == text),
            Self::Counts | Self::Column | Self::Costs => false,
        }
    }

    /// What it takes, in words.
    fn expected(&self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Count => "a whole number of at least 0",
            Self::Counts => "a list of whole numbers of at least 0",
            Self::Word(_) => "a word",
            Self::Column => "the name of a column",
            Self::Costs => "the name of a column, or a list of numbers",
        }
    }
}

/// A type that an option may have.
pub(super) trait Worth: Sized {
    const KIND: Kind;

    /// The value; `None` if it is of another kind.
    fn of(value: &Value) -> Result<Option<Self>, PlanError>;
}

impl Worth for f64 {
    const KIND: Kind = Kind::Number;

    fn of(value: &Value) -> Result<Option<Self>, PlanError> {
        Ok(match value {
            Value::Number(number) => Some(*number),
            Value::Count(number) => Some(*number as f64),
            Value::Text(_) | Value::List(_) => None,
        })
    }
}

impl Worth for u64 {
    const KIND: Kind = Kind::Count;

    fn of(value: &Value) -> Result<Option<Self>, PlanError> {
        Ok(match value {
            Value::Count(number) => Some(*number),
            Value::Number(_) | Value::Text(_) | Value::List(_) => None,
        })
    }
}

impl Worth for String {
    const KIND: Kind = Kind::Column;

    fn of(value: &Value) -> Result<Option<Self>, PlanError> {
        Ok(match value {
            Value::Text(text) => Some(text.clone()),
            Value::Number(_) | Value::Count(_) | Value::List(_) => None,
        })
    }
}

impl Worth for Cost {
    const KIND: Kind = Kind::Costs;

    fn of(value: &Value) -> Result<Option<Self>, PlanError> {
        Ok(match value {
            Value::Text(text) => Some(Self::of(text)),
            Value::List(_) => several(value)?.map(Self::Steps),
            Value::Number(_) | Value::Count(_) => None,
        })
    }
}

impl<T: Word> Worth for T {
    const KIND: Kind = Kind::Word(T::WORDS);

    fn of(value: &Value) -> Result<Option<Self>, PlanError> {
        Ok(match value {
            Value::Text(text) => Some(T::of(text)?),
            Value::Number(_) | Value::Count(_) | Value::List(_) => None,
        })
    }
}

/// Several values of one kind.
fn several<T: Worth>(value: &Value) -> Result<Option<Vec<T>>, PlanError> {
    match value {
        Value::List(values) => values.iter().map(T::of).collect(),
        Value::Number(_) | Value::Count(_) | Value::Text(_) => Ok(None),
    }
}

/// A field of [`Ask`](super::Ask).
pub(super) trait Field: Sized {
    const KIND: Kind;

    /// Whether it was given.
    fn is_set(&self) -> bool;

    /// Its content from a value, or why there is none.
    fn read(option: &'static str, value: Value) -> Result<Self, PlanError>;
}

fn read<T>(
    option: &'static str,
    kind: Kind,
    value: Value,
    found: Result<Option<T>, PlanError>,
) -> Result<T, PlanError> {
    found?.ok_or_else(|| PlanError::Kind {
        option,
        expected: kind.expected(),
        found: value,
    })
}

impl<T: Worth> Field for Option<T> {
    const KIND: Kind = T::KIND;

    fn is_set(&self) -> bool {
        self.is_some()
    }

    fn read(option: &'static str, value: Value) -> Result<Self, PlanError> {
        let found = T::of(&value);
        read(option, Self::KIND, value, found).map(Some)
    }
}

impl Field for Vec<u64> {
    const KIND: Kind = Kind::Counts;

    fn is_set(&self) -> bool {
        !self.is_empty()
    }

    fn read(option: &'static str, value: Value) -> Result<Self, PlanError> {
        let found = several(&value);
        read(option, Self::KIND, value, found)
    }
}
