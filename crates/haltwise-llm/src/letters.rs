//! The letters that stand for the options of a question.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// The fewest and the most options a question may have.
pub(crate) const OPTIONS: std::ops::RangeInclusive<usize> = 2..=26;

/// One letter per option, in order; as many as a question may need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letters(Vec<char>);

impl Letters {
    /// The first `n` letters.
    pub fn first(&self, n: usize) -> crate::Result<&[char]> {
        self.0.get(..n).ok_or_else(|| {
            Error::input(format_args!(
                "{n} options, but only the {} letters {self} to name them",
                self.0.len()
            ))
        })
    }
}

impl Default for Letters {
    /// A to Z.
    fn default() -> Self {
        Self(('A'..='Z').collect())
    }
}

impl FromStr for Letters {
    type Err = Error;

    /// Each character is a letter; they must differ.
    fn from_str(text: &str) -> crate::Result<Self> {
        let letters: Vec<char> = text.chars().collect();
        let twice = (1..letters.len()).find(|&i| letters[..i].contains(&letters[i]));
        if let Some(i) = twice {
            return Err(Error::input(format_args!(
                "the letter {} occurs twice in {text}",
                letters[i]
            )));
        }
        if !OPTIONS.contains(&letters.len()) || letters.iter().any(|c| c.is_whitespace()) {
            return Err(Error::input(format_args!(
                "give {} to {} letters, without blanks",
                OPTIONS.start(),
                OPTIONS.end()
            )));
        }
        Ok(Self(letters))
    }
}

impl fmt::Display for Letters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|c| write!(f, "{c}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_differ_and_are_two_to_twenty_six() {
        let letters: Letters = "1234".parse().unwrap();
        assert_eq!(letters.first(2).unwrap(), ['1', '2']);
        assert_eq!(letters.to_string(), "1234");
        assert_eq!(Letters::default().first(26).unwrap().len(), 26);
        for wrong in ["", "A", "ABA", "A B", "ABCDEFGHIJKLMNOPQRSTUVWXYZ0"] {
            assert!(wrong.parse::<Letters>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn too_few_letters_for_a_question_is_an_error() {
        let letters: Letters = "AB".parse().unwrap();
        let error = letters.first(3).unwrap_err().to_string();
        assert_eq!(error, "3 options, but only the 2 letters AB to name them");
    }
}
