//! Which words of a completion are its answer.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use super::normal;
use crate::error::Error;

/// How the answer is found in a completion.
///
/// It is normalised, so that answers which mean the same are the same vote.
#[derive(Debug, Clone)]
pub struct Extract(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Boxed,
    Number,
    Letter,
    Line,
    Json(Vec<String>),
    Regex(Regex),
}

/// The most memory that a pattern may take: one may come with a rule.
const LARGEST_PATTERN: usize = 1 << 20;

impl Default for Extract {
    /// The content of the last `\boxed{}`.
    fn default() -> Self {
        Self(Kind::Boxed)
    }
}

impl FromStr for Extract {
    type Err = Error;

    fn from_str(text: &str) -> crate::Result<Self> {
        let kind = match text.split_once(':') {
            None => match text {
                "boxed" => Kind::Boxed,
                "number" => Kind::Number,
                "letter" => Kind::Letter,
                "line" => Kind::Line,
                _ => return Err(unknown(text)),
            },
            Some(("json", path)) if !path.is_empty() => {
                Kind::Json(path.split('.').map(str::to_owned).collect())
            }
            Some(("regex", pattern)) if !pattern.is_empty() => {
                let mut builder = RegexBuilder::new(pattern);
                let built = builder.size_limit(LARGEST_PATTERN).multi_line(true).build();
                Kind::Regex(built.map_err(|e| {
                    Error::input(format_args!("the pattern {pattern:?} cannot be used: {e}"))
                })?)
            }
            Some(_) => return Err(unknown(text)),
        };
        Ok(Self(kind))
    }
}

fn unknown(text: &str) -> Error {
    Error::input(format_args!(
        "{text:?} says nothing about where the answer is; give boxed, number, letter, line, \
         json:PATH or regex:PATTERN"
    ))
}

impl fmt::Display for Extract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Boxed => f.write_str("boxed"),
            Kind::Number => f.write_str("number"),
            Kind::Letter => f.write_str("letter"),
            Kind::Line => f.write_str("line"),
            Kind::Json(path) => write!(f, "json:{}", path.join(".")),
            Kind::Regex(pattern) => write!(f, "regex:{pattern}"),
        }
    }
}

impl Extract {
    /// The answer in a completion, or an empty text. `letters` are those of the
    /// options, if the question has options.
    pub fn answer(&self, completion: &str, letters: &[char]) -> String {
        let found = match &self.0 {
            Kind::Boxed => last_box(completion).map(normal::latex),
            Kind::Number => last_number(completion),
            Kind::Letter => return letter(completion, letters).map_or(String::new(), String::from),
            Kind::Line => last_line(completion).map(|line| normal::answer(line).to_lowercase()),
            Kind::Json(path) => last_json(completion, path),
            Kind::Regex(pattern) => {
                let last = pattern.captures_iter(completion).last();
                let group = last.and_then(|found| found.get(1).or(found.get(0)));
                group.map(|text| normal::answer(text.as_str()))
            }
        };
        let found = found.unwrap_or_default();
        // "(B)", or "B. blue", is B.
        if letters.is_empty() {
            found
        } else {
            letter_of(&found, letters).map_or(found, String::from)
        }
    }

    /// A right answer as a vote for it would be written.
    pub fn label(&self, text: &str) -> String {
        match &self.0 {
            Kind::Boxed => normal::latex(text),
            Kind::Line => normal::answer(text).to_lowercase(),
            _ => normal::answer(text),
        }
    }

    /// Whether the answer to a question with options is the letter of one.
    pub fn gives_letters(&self) -> bool {
        matches!(self.0, Kind::Boxed | Kind::Letter)
    }

    /// Words that begin an answer behind a thought, so that little is left to say.
    pub fn beginning(&self) -> String {
        match &self.0 {
            Kind::Boxed => "**Final answer:** \\boxed{".into(),
            Kind::Json(path) => match path.as_slice() {
                [name] => format!("{{{}: ", Value::from(name.as_str())),
                _ => "{".into(),
            },
            Kind::Number | Kind::Letter | Kind::Line | Kind::Regex(_) => "**Final answer:**".into(),
        }
    }

    /// Texts behind which a short answer is over.
    pub(crate) fn endings(&self) -> &'static [&'static str] {
        match &self.0 {
            Kind::Number | Kind::Letter => &["\n", ". "],
            Kind::Boxed | Kind::Line | Kind::Regex(_) => &["\n"],
            Kind::Json(_) => &[],
        }
    }

    /// The answer that was begun with `begin` and goes on with `text`; empty where there is none.
    /// In one that was `cut` off, the last word may be half of one.
    pub(crate) fn begun_answer(
        &self,
        begin: &str,
        text: &str,
        cut: bool,
        letters: &[char],
    ) -> String {
        let has_end = matches!(self.0, Kind::Boxed | Kind::Json(_));
        let end = text.rfind(char::is_whitespace).unwrap_or(0);
        let text = if cut && !has_end { &text[..end] } else { text };
        if text.trim().is_empty() {
            return String::new();
        }
        match &self.0 {
            Kind::Line => self.answer(text, letters),
            _ => self.answer(&format!("{begin}{text}"), letters),
        }
    }

    /// What tells a model how to answer, for a prompt.
    pub(super) fn instruction(&self, options: bool) -> String {
        let what = if options {
            "the letter of the right option"
        } else {
            "the final answer"
        };
        match &self.0 {
            Kind::Boxed => format!("Think step by step, and put {what} in \\boxed{{}}."),
            Kind::Number => "Think step by step, and end with the final answer as a number.".into(),
            Kind::Letter => {
                "Think step by step, and end with \"The answer is\" and the letter of the right \
                 option."
                    .into()
            }
            Kind::Line => format!("Think step by step, and write {what} alone on the last line."),
            Kind::Json(path) => {
                format!(
                    "Answer with a JSON object that holds {what} as \"{}\".",
                    path.join(".")
                )
            }
            Kind::Regex(_) => "Think step by step, and end with the final answer.".into(),
        }
    }
}

fn last_box(text: &str) -> Option<&str> {
    let mut rest = text;
    while let Some(at) = rest.rfind("\\boxed{") {
        // One that was never closed is none: the one before it may be.
        if let Some(inside) = normal::in_braces(&rest[at + "\\boxed".len()..]) {
            return Some(inside).filter(|inside| !inside.trim().is_empty());
        }
        rest = &rest[..at];
    }
    None
}

/// A number in a text, with its sign.
const NUMBER: &str = r"[-−]?[$€£¥₹]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,2})?(?:/\d+)?";

/// The last number of a text.
fn last_number(text: &str) -> Option<String> {
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(NUMBER).ok());
    let found = PATTERN.as_ref()?.find_iter(text).last()?;
    // In "10-12" the second number is no negative one.
    let before = text[..found.start()].chars().next_back();
    let joins = before.is_some_and(|c| c.is_alphanumeric() || c == ')');
    let number = found.as_str();
    let unsigned = number.trim_start_matches(['-', '−']);
    normal::number(if joins { unsigned } else { number })
}

/// The option whose letter a completion gives as its answer: said to be the
/// answer, or alone, or at the beginning as "B." or "(B)", or the last in brackets
/// or stars; in this order.
fn letter(text: &str, letters: &[char]) -> Option<char> {
    let said = |text: &str| {
        let lower = text.to_ascii_lowercase();
        let ends = lower
            .rmatch_indices("answer")
            .map(|(at, word)| at + word.len());
        ends.filter_map(|end| {
            let rest = text[end..].trim_start_matches(|c: char| c.is_whitespace() || c == '*');
            let rest = rest.strip_prefix("is").unwrap_or(rest);
            let skipped = |c: char| c.is_whitespace() || ":*(\"'`$[".contains(c);
            let rest = rest.trim_start_matches(skipped);
            leading_letter(rest.trim_start_matches("\\boxed{"), letters)
        })
        .next()
    };
    said(text)
        .or_else(|| last_line(text).and_then(|line| letter_of(line, letters)))
        .or_else(|| last_box(text).and_then(|inside| letter_of(inside, letters)))
        .or_else(|| letter_of(text.lines().next().unwrap_or_default(), letters))
        .or_else(|| {
            let marked = |open: char, close: char| {
                text.rmatch_indices(open).find_map(|(at, _)| {
                    let mut rest = text[at + open.len_utf8()..].chars();
                    let letter = rest.next().filter(|c| letters.contains(c))?;
                    (rest.next() == Some(close)).then_some(letter)
                })
            };
            marked('(', ')').or_else(|| marked('*', '*'))
        })
}

/// The letter that a text is, or begins with as the name of an option: "B",
/// "(B)", "B. blue", "**B**".
fn letter_of(text: &str, letters: &[char]) -> Option<char> {
    let marks = |c: char| c.is_whitespace() || "*(\"'`[".contains(c);
    let text = text.trim().trim_start_matches(marks);
    let mut rest = text.chars();
    let letter = rest.next().filter(|c| letters.contains(c))?;
    match rest.next() {
        None => Some(letter),
        Some(c) => ".):,*\"'`]".contains(c).then_some(letter),
    }
}

/// The letter that a text begins with, as a word of its own.
fn leading_letter(text: &str, letters: &[char]) -> Option<char> {
    let mut rest = text.chars();
    let letter = rest.next().filter(|c| letters.contains(c))?;
    let ends = rest.next().is_none_or(|c| !c.is_alphanumeric());
    // "The answer is A dog" names no option.
    let goes_on = text[letter.len_utf8()..]
        .trim_start_matches(' ')
        .starts_with(char::is_lowercase);
    let article = text[letter.len_utf8()..].starts_with(' ') && goes_on;
    (ends && !article).then_some(letter)
}

fn last_line(text: &str) -> Option<&str> {
    text.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && *line != "```")
}

/// What stands at a path in the last JSON object of a text that has it.
fn last_json(text: &str, path: &[String]) -> Option<String> {
    // Objects may be nested: the outermost that reaches furthest is tried first.
    let starts: Vec<usize> = text
        .match_indices('{')
        .map(|(at, _)| at)
        .take(1000)
        .collect();
    let mut best: Option<(usize, String)> = None;
    let mut end = 0;
    for start in starts {
        if start < end {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else {
            continue;
        };
        end = start + values.byte_offset();
        if let Some(found) = at_path(&value, path) {
            best = Some((start, written(found)));
        }
    }
    best.map(|(_, found)| found)
}

fn at_path<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| match value {
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        Value::Object(fields) => fields.get(name),
        _ => None,
    })
}

fn written(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => normal::answer(text),
        // Keys come sorted, so that the same object is the same text.
        other => normal::number(&other.to_string()).unwrap_or_else(|| other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(how: &str, text: &str) -> String {
        how.parse::<Extract>().unwrap().answer(text, &[])
    }

    fn chosen(how: &str, text: &str) -> String {
        let letters = ['A', 'B', 'C', 'D'];
        how.parse::<Extract>().unwrap().answer(text, &letters)
    }

    #[test]
    fn the_last_closed_box_has_the_answer() {
        for (text, expected) in [
            ("so \\boxed{7}, no: $\\boxed{1{,}000.0}$.", "1000"),
            ("\\boxed{\\frac{1}{2}}", "1/2"),
            ("\\boxed{x^{2}} and \\boxed{unfinis", "x^{2}"),
            ("\\boxed{}", ""),
            ("no box", ""),
        ] {
            assert_eq!(answer("boxed", text), expected, "{text}");
        }
        assert_eq!(chosen("boxed", "\\boxed{(B)}"), "B");
        assert_eq!(chosen("boxed", "\\boxed{\\text{C. blue}}"), "C");
    }

    #[test]
    fn an_answer_that_was_begun_is_read_to_its_end() {
        for (how, text, cut, expected) in [
            ("boxed", "\\frac{1}{2}}", false, "1/2"),
            ("boxed", "42} is", true, "42"),
            ("boxed", "4", true, ""),
            ("number", " 42", false, "42"),
            ("number", " $1,234 in", true, "1234"),
            ("number", " 12", true, ""),
            ("line", " Paris", false, "paris"),
            ("line", " ", false, ""),
            ("json:total", "7.0}", false, "7"),
            ("json:a.b", "\"a\": {\"b\": 3}}", false, "3"),
        ] {
            let extract: Extract = how.parse().unwrap();
            let found = extract.begun_answer(&extract.beginning(), text, cut, &[]);
            assert_eq!(found, expected, "{how}: {text}");
        }
        let letter: Extract = "letter".parse().unwrap();
        let found = letter.begun_answer(&letter.beginning(), " **B**", false, &['A', 'B']);
        assert_eq!(found, "B");
    }

    #[test]
    fn the_last_number_is_found_with_its_sign_and_without_a_full_stop() {
        for (text, expected) in [
            ("She has 3 + 4 = 7 apples.", "7"),
            ("It costs $1,234.50.", "1234.5"),
            ("The total is **18**.", "18"),
            ("5 - 8 = -3", "-3"),
            ("from 10-12", "12"),
            ("x = .5", "0.5"),
            ("about 2e3 m", "2000"),
            ("3/4 of it", "3/4"),
            ("item2 is 4, and more", "4"),
            ("#### 72", "72"),
            ("none", ""),
        ] {
            assert_eq!(answer("number", text), expected, "{text}");
        }
    }

    #[test]
    fn a_letter_is_told_from_a_word() {
        for (text, expected) in [
            ("B", "B"),
            ("(C) because", "C"),
            ("B. blue", "B"),
            ("I think A dog is it. The answer is: **D**.", "D"),
            ("The answer is (B), not A.", "B"),
            ("A dog is brown.\n\nAnswer: C", "C"),
            ("Some thoughts.\n**D**", "D"),
            ("It could be (A) or, better, (C), I guess", "C"),
            ("The answer is A dog", ""),
            ("A dog", ""),
            ("E", ""),
        ] {
            assert_eq!(chosen("letter", text), expected, "{text}");
        }
    }

    #[test]
    fn a_line_is_the_last_one_with_something_in_it() {
        assert_eq!(
            answer("line", "First.\n **The Red Door.** \n\n"),
            "the red door"
        );
        assert_eq!(answer("line", "```\n1,000.0\n```"), "1000");
        assert_eq!(answer("line", "  \n"), "");
    }

    #[test]
    fn json_is_followed_along_the_path() {
        let text = "Sure:\n```json\n{\"result\": {\"values\": [1, \"2.50\"]}}\n``` {not json}";
        assert_eq!(answer("json:result.values.1", text), "2.5");
        assert_eq!(answer("json:result.values.7", text), "");
        assert_eq!(answer("json:a", "{\"a\": 1} {\"a\": \"x\"}"), "x");
        assert_eq!(
            answer("json:a", "{\"a\": {\"c\": 1, \"b\": 2}}"),
            "{\"b\":2,\"c\":1}"
        );
        assert_eq!(answer("json:a", "{\"a\": null}"), "");
        assert_eq!(answer("json:a", &"{".repeat(100_000)), "");
    }

    #[test]
    fn a_pattern_gives_its_first_group_or_all_of_it() {
        assert_eq!(answer("regex:^#### (.*)$", "x\n#### 1,000\n"), "1000");
        assert_eq!(answer("regex:[a-z]+", "one two"), "two");
        assert_eq!(answer("regex:z", "one"), "");
    }

    #[test]
    fn what_is_said_is_what_is_read() {
        for text in [
            "boxed",
            "number",
            "letter",
            "line",
            "json:a.0",
            "regex:a:b|c",
        ] {
            assert_eq!(text.parse::<Extract>().unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "box",
            "json:",
            "json",
            "regex:",
            "regex:(",
            "regex:a{9999}{9999}",
        ] {
            assert!(wrong.parse::<Extract>().is_err(), "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_completion_makes_it_panic(text in "[-(){}\\\\a-eA-D0-9.,:*−$ \\n\"boxed]{0,40}") {
            for how in ["boxed", "number", "letter", "line", "json:a", "regex:(a)|b"] {
                let extract: Extract = how.parse().unwrap();
                extract.answer(&text, &['A', 'B']);
                extract.answer(&text, &[]);
                extract.label(&text);
            }
        }
    }
}
