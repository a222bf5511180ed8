//! Documents into parts: where each part of a document ends.

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use serde_json::Value;
use unicode_segmentation::UnicodeSegmentation;

use crate::error::Error;

/// What a document is cut into before the pieces are grouped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unit {
    /// Sentences as the paper finds them: ended by `". "`.
    Periods,
    /// Sentences by Unicode's rules, lines joined and abbreviations minded.
    Sentences,
    /// The model's tokens, as the server counts them.
    Tokens,
    /// Pieces that begin with a mark, such as a form feed or a heading's `\n# `.
    Mark(String),
}

/// How a document is cut into parts: the steps at which the model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// The units.
    pub unit: Unit,
    /// Into how many groups of equally many units they go, the rest in the
    /// last; without it, each unit is a part.
    pub parts: Option<NonZeroUsize>,
}

impl Default for Split {
    /// The paper's: ten groups of sentences that end with `". "`.
    fn default() -> Self {
        Self {
            unit: Unit::Periods,
            parts: NonZeroUsize::new(10),
        }
    }
}

impl Split {
    /// Where each part of a document ends, in bytes; the last end is the
    /// document's. A document of fewer units than parts has fewer parts.
    ///
    /// `token_ends` finds the ends of groups of tokens, for [`Unit::Tokens`]
    /// only: no one but the server knows the model's tokens.
    pub(crate) fn ends(
        &self,
        text: &str,
        token_ends: impl FnOnce(NonZeroUsize) -> crate::Result<Vec<usize>>,
    ) -> crate::Result<Vec<usize>> {
        let units = match &self.unit {
            Unit::Periods => after_each(text, ". ", 1),
            Unit::Sentences => sentences(text),
            Unit::Mark(mark) => after_each(text, mark, 0),
            Unit::Tokens => {
                let parts = self
                    .parts
                    .ok_or_else(|| Error::input("to split by tokens, say into how many parts"))?;
                return token_ends(parts);
            }
        };
        let last = |size: usize| units[size - 1];
        Ok(group_sizes(units.len(), self.parts).map(last).collect())
    }
}

/// How many units there are up to the end of each group: groups of equally
/// many units, the rest in the last.
pub(crate) fn group_sizes(
    units: usize,
    parts: Option<NonZeroUsize>,
) -> impl Iterator<Item = usize> {
    let parts = parts.map_or(units, |n| n.get().min(units));
    let size = units.checked_div(parts).unwrap_or(0);
    (1..=parts).map(move |i| if i < parts { i * size } else { units })
}

/// The ends of the pieces that a mark sets apart, this many bytes into each
/// mark. Blank pieces are no pieces.
fn after_each(text: &str, mark: &str, keep: usize) -> Vec<usize> {
    let places = text.match_indices(mark).map(|(at, _)| at + keep);
    without_blanks(text, places)
}

/// The ends of pieces that hold more than white space, up to the text's end.
fn without_blanks(text: &str, ends: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut kept = Vec::new();
    let mut start = 0;
    for end in ends {
        if !text[start..end].trim().is_empty() {
            kept.push(end);
            start = end;
        }
    }
    match text[start..].trim().is_empty() {
        // The rest belongs to the last piece.
        true => kept
            .last_mut()
            .into_iter()
            .for_each(|end| *end = text.len()),
        false => kept.push(text.len()),
    }
    kept
}

/// Words that are abbreviated with a period and do not end a sentence.
const ABBREVIATIONS: [&str; 30] = [
    "Mr", "Mrs", "Ms", "Dr", "Prof", "Sr", "Jr", "St", "Mt", "Rev", "Hon", "Gen", "Col", "Maj",
    "Capt", "Lt", "Sgt", "Gov", "Sen", "Rep", "vs", "cf", "No", "Fig", "Eq", "pp", "Vol", "e.g",
    "i.e", "approx",
];

/// The ends of sentences.
fn sentences(text: &str) -> Vec<usize> {
    let joined = join_lines(text);
    let ends = joined
        .split_sentence_bound_indices()
        .map(|(start, sentence)| (start + sentence.len(), sentence))
        .filter(|(end, sentence)| !is_abbreviated(sentence) && !goes_on(&joined[*end..]))
        // The space after a sentence begins the next: a part that is extended
        // then keeps its tokens.
        .map(|(end, sentence)| end - (sentence.len() - sentence.trim_end().len()));
    without_blanks(text, ends)
}

/// The text with single line breaks made blanks, byte for byte: Unicode's
/// rules end a sentence at every line, which wrapped text would suffer from.
fn join_lines(text: &str) -> String {
    let bytes = text.as_bytes();
    let blank = |line: &[u8]| line.trim_ascii().is_empty();
    let next_line = |at: usize| bytes[at + 1..].split(|&b| b == b'\n').next();
    let line_before = |at: usize| bytes[..at].rsplit(|&b| b == b'\n').next();
    let joins =
        |at: usize| !next_line(at).is_some_and(blank) && !line_before(at).is_some_and(blank);
    text.char_indices()
        .map(|(at, c)| match c {
            '\n' if joins(at) => ' ',
            '\r' => ' ',
            c => c,
        })
        .collect()
}

/// Whether what follows belongs to the sentence, as after "Who?" he asked.
fn goes_on(rest: &str) -> bool {
    rest.chars().next().is_some_and(char::is_lowercase)
}

/// Whether what looks like a sentence ends in an abbreviation or an initial.
fn is_abbreviated(sentence: &str) -> bool {
    let Some(text) = sentence.trim_end().strip_suffix('.') else {
        return false;
    };
    let word = text.rsplit(|c: char| c.is_whitespace() || c == '(').next();
    let word = word.unwrap_or_default();
    let mut letters = word.chars();
    let initial =
        matches!((letters.next(), letters.next()), (Some(c), None) if c.is_uppercase() && c != 'I');
    initial || ABBREVIATIONS.contains(&word)
}

impl fmt::Display for Split {
    /// The form that [`FromStr`] reads: `periods/10`, or `mark "\n# "`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unit {
            Unit::Periods => f.write_str("periods")?,
            Unit::Sentences => f.write_str("sentences")?,
            Unit::Tokens => f.write_str("tokens")?,
            Unit::Mark(mark) => write!(f, "mark {}", Value::from(mark.as_str()))?,
        }
        match self.parts {
            Some(parts) => write!(f, "/{parts}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Split {
    type Err = Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        let wrong = || Error::input(format_args!("{text:?} is no way to split a document"));
        // A quoted mark may hold a slash, the number of parts cannot.
        let (unit, parts) = match text.rsplit_once('/') {
            Some((unit, parts)) if !parts.contains('"') => {
                (unit, Some(parts.parse().map_err(|_| wrong())?))
            }
            _ => (text, None),
        };
        let unit = match unit {
            "periods" => Unit::Periods,
            "sentences" => Unit::Sentences,
            "tokens" => Unit::Tokens,
            _ => {
                let mark = unit.strip_prefix("mark ").ok_or_else(wrong)?;
                Unit::Mark(serde_json::from_str(mark).map_err(|_| wrong())?)
            }
        };
        Ok(Self { unit, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parts(unit: Unit, parts: usize, text: &str) -> Vec<&str> {
        let split = Split {
            unit,
            parts: NonZeroUsize::new(parts),
        };
        let no_tokens = |_| Err(Error::input("no tokens here"));
        let ends = split.ends(text, no_tokens).unwrap();
        let mut start = 0;
        let cut = |end: &usize| &text[std::mem::replace(&mut start, *end)..*end];
        ends.iter().map(cut).collect()
    }

    #[test]
    fn the_rest_of_the_sentences_goes_into_the_last_part() {
        let text = "a. b. c. d. e. f. g. h";
        assert_eq!(
            parts(Unit::Periods, 3, text),
            ["a. b.", " c. d.", " e. f. g. h"]
        );
        assert_eq!(parts(Unit::Periods, 8, text).len(), 8);
        assert_eq!(
            parts(Unit::Periods, 20, text).len(),
            8,
            "no more than there are"
        );
    }

    #[test]
    fn sentences_survive_titles_initials_quotes_and_wrapped_lines() {
        let text = "Mr. L. M. Harris spoke to Dr. Ott in\nVienna. \"Is it 3.5 km?\" he asked. \
                    It was, e.g. Tuesday!\n\nTHE END";
        assert_eq!(
            parts(Unit::Sentences, 0, text),
            [
                "Mr. L. M. Harris spoke to Dr. Ott in\nVienna.",
                " \"Is it 3.5 km?\" he asked.",
                " It was, e.g. Tuesday!",
                "\n\nTHE END",
            ]
        );
    }

    #[test]
    fn marks_begin_their_parts() {
        let mark = || Unit::Mark("\n# ".into());
        let text = "Title\n# One\nfirst\n# Two\nsecond";
        assert_eq!(
            parts(mark(), 0, text),
            ["Title", "\n# One\nfirst", "\n# Two\nsecond"]
        );
        assert_eq!(parts(mark(), 0, "no mark at all").len(), 1);
    }

    #[test]
    fn a_split_reads_back_from_its_words() {
        for text in [
            "periods/10",
            "sentences",
            "tokens/7",
            r#"mark "\n/ ""#,
            r#"mark "a/3"/4"#,
        ] {
            assert_eq!(text.parse::<Split>().unwrap().to_string(), text);
        }
        for wrong in ["", "words/3", "periods/0", "mark x", "periods/x"] {
            assert!(wrong.parse::<Split>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn parts_make_up_the_document(
            text in "[a-zA-Z.!? \n\"é語]{1,200}", n in 0_usize..12, unit in 0..3
        ) {
            let unit = [Unit::Periods, Unit::Sentences, Unit::Mark(" ".into())][unit as usize].clone();
            let parts = parts(unit, n, &text);
            prop_assert_eq!(parts.concat().len(), if text.trim().is_empty() { 0 } else { text.len() });
            prop_assert!(parts.iter().all(|part| !part.trim().is_empty()));
            prop_assert!(n == 0 || parts.len() <= n);
        }
    }
}
