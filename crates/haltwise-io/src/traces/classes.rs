//! Classes as files write them: numbers from 0, or names.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use crate::error::ErrorKind;
use crate::problem::{Problem, quoted};

/// The bytes that all names of classes may take, and the memory of a name in addition to
/// its text.
const MOST_NAMES: usize = 16 << 20;
const PER_NAME: usize = 128;

/// Turns the classes of a set of files into numbers.
///
/// A set's classes are all numbers or all names. If both were allowed, a label `"cat"` with
/// predictions `0, 1, 2` would look like a classifier that is never right, and a classifier
/// that is never right has no gap.
#[derive(Debug, Default)]
pub(super) struct Classes {
    kind: Option<Kind>,
    numbers: HashMap<Arc<str>, u32>,
    /// The names in the order of their numbers.
    names: Vec<Arc<str>>,
    /// The bytes that the names take.
    bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Numbers,
    Names,
}

impl Classes {
    /// A class given as a number.
    pub(super) fn number(
        &mut self,
        number: impl TryInto<u32> + Copy + Display,
    ) -> Result<u32, Problem> {
        self.all(Kind::Numbers, &number)?;
        number.try_into().map_err(|_| Self::not_a_class(number))
    }

    /// A class given as text without quotes: a number if it is all digits, else
    /// a name.
    pub(super) fn text(&mut self, text: &str) -> Result<u32, Problem> {
        match text.trim().parse::<i128>() {
            Ok(number) => self.number(number),
            Err(_) => self.name(text),
        }
    }

    /// A class given as a name, even if it is all digits.
    pub(super) fn name(&mut self, name: &str) -> Result<u32, Problem> {
        let name = name.trim();
        if let Some(&class) = self.numbers.get(name) {
            return Ok(class);
        }
        if name.is_empty() {
            return Err(Problem::new("it is empty; every step needs a class"));
        }
        self.all(Kind::Names, &name)?;
        self.bytes += PER_NAME + name.len();
        if self.bytes > MOST_NAMES {
            return Err(Problem::new(format_args!(
                "there are more names of classes than {} MiB hold, {} so far; if this column is not \
                 the class, rename it",
                MOST_NAMES >> 20,
                self.names.len()
            ))
            .of_kind(ErrorKind::TooLarge));
        }
        let (name, class) = (Arc::<str>::from(name), self.names.len() as u32);
        self.names.push(Arc::clone(&name));
        self.numbers.insert(name, class);
        Ok(class)
    }

    /// Records that classes are numbers, for a reader that converts in bulk.
    pub(super) fn are_numbers(&mut self) -> Result<(), Problem> {
        self.all(Kind::Numbers, &"a class")
    }

    /// Whether classes have names, which do not give a place in `probs`.
    pub(super) fn are_names(&self) -> bool {
        self.kind == Some(Kind::Names)
    }

    /// The name of a class, if classes have names.
    pub(super) fn name_of(&self, class: u32) -> Option<&str> {
        self.names.get(class as usize).map(|name| &**name)
    }

    /// The names in the order of their numbers; none if classes are numbers.
    pub(super) fn into_names(self) -> Vec<String> {
        self.names
            .iter()
            .map(|name| String::from(&**name))
            .collect()
    }

    fn all(&mut self, kind: Kind, class: &dyn Display) -> Result<(), Problem> {
        match *self.kind.get_or_insert(kind) {
            before if before == kind => Ok(()),
            Kind::Names => Err(Problem::conflict(format_args!(
                "{class} is a number, but classes before it are names; \
                 write all labels and predictions as numbers, or all as names"
            ))),
            Kind::Numbers => {
                let name = class.to_string();
                let why = match name.parse::<i128>() {
                    Ok(_) => ", in quotes,",
                    Err(_) => "",
                };
                Err(Problem::conflict(format_args!(
                    "{}{why} is a name, but classes before it are numbers; \
                     write all labels and predictions as numbers, or all as names",
                    quoted(&name)
                )))
            }
        }
    }

    pub(super) fn not_a_class(number: impl Display) -> Problem {
        Problem::new(format_args!(
            "{number} is not a class; classes are integers from 0 to {}",
            u32::MAX
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_numbers_unless_they_are_named() {
        let mut classes = Classes::default();
        assert_eq!(classes.text("7").unwrap(), 7);
        assert_eq!(classes.number(7_i64).unwrap(), 7);
        assert!(classes.name("7").is_err());
        let mut classes = Classes::default();
        assert_eq!(classes.name("7").unwrap(), 0);
        assert_eq!(classes.name(" 7").unwrap(), 0);
        assert!(classes.text("7").is_err());
        assert_eq!(classes.into_names(), ["7"]);
    }

    #[test]
    fn names_are_numbered_as_they_are_met() {
        let mut classes = Classes::default();
        let met: Vec<u32> = ["walk", "sit", "walk", "stand"]
            .iter()
            .map(|name| classes.text(name).unwrap())
            .collect();
        assert_eq!(met, [0, 1, 0, 2]);
        assert_eq!(classes.into_names(), ["walk", "sit", "stand"]);
    }

    #[test]
    fn names_and_numbers_do_not_mix() {
        let mut classes = Classes::default();
        classes.text("cat").unwrap();
        assert!(format!("{:?}", classes.number(3_i64)).contains("is a number"));
        let mut classes = Classes::default();
        classes.number(3_i64).unwrap();
        assert!(format!("{:?}", classes.text("cat")).contains("is a name"));
    }

    #[test]
    fn names_without_end_are_refused() {
        let mut classes = Classes::default();
        let long = "x".repeat(1 << 16);
        let refused = (0..1000).find_map(|i| classes.name(&format!("{i}{long}")).err());
        let refused = refused.unwrap().to_string();
        assert!(
            refused.starts_with("there are more names of classes than 16 MiB hold"),
            "{refused}"
        );
        // Names that were met stay known.
        assert_eq!(classes.name(&format!("7{long}")).unwrap(), 7);
    }

    #[test]
    fn classes_start_at_zero_and_fit_32_bits() {
        let mut classes = Classes::default();
        assert!(classes.number(-1_i64).is_err());
        assert!(classes.text("-1").is_err());
        assert!(classes.number(1_i64 << 32).is_err());
        assert!(classes.text(" ").is_err());
    }
}
