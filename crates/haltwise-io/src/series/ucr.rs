//! The UCR archive's text formats: one sequence of one channel per line, its
//! label first. Fields are separated by tabs (`.tsv`), commas, or blanks
//! (`.txt`); the first line shows which.

use std::path::Path;

use super::draft::{ClassOrder, Draft, Missing, class_name};
use super::text::{bad_field, lines, number};
use crate::error::Result;
use crate::memory::Memory;
use crate::problem::{Checked, Problem, quoted};

/// Reads a UCR file's content.
///
/// All lines have the same number of fields: NaN pads the end of a short sequence, so that
/// a truncated line is not mistaken for one.
pub(super) fn parse(path: &Path, bytes: &[u8], missing: Missing, memory: Memory) -> Result<Draft> {
    let mut draft = Draft::new(missing, ClassOrder::Sorted, memory);
    let mut layout = None;
    let mut values = Vec::new();
    for line in lines(bytes) {
        let text = line.text(path)?;
        line.check_room(path, &memory)?;
        let separator = match layout {
            Some((separator, _)) => separator,
            None => Separator::of(text),
        };
        let here = |problem: Problem| problem.at(format!("line {}", line.number)).in_file(path);
        let label = read_line(separator.fields(text), &mut values).map_err(here)?;
        let (_, width) = *layout.get_or_insert((separator, values.len()));
        if values.len() != width {
            return Err(here(Problem::format(format_args!(
                "the line has {} fields where the first has {}; complete it, \
                 or pad a short sequence with NaN",
                values.len() + 1,
                width + 1
            ))));
        }
        let class = draft.class(&label);
        let steps = length(&values);
        draft
            .push(1, &values[..steps], class, None)
            .map_err(|problem| {
                let place = format!("line {}, sequence {}", line.number, draft.len() + 1);
                problem.at(place).in_file(path)
            })?;
    }
    Ok(draft)
}

#[derive(Debug, Clone, Copy)]
enum Separator {
    Character(char),
    Blanks,
}

impl Separator {
    fn of(line: &str) -> Self {
        match ['\t', ','].into_iter().find(|&c| line.contains(c)) {
            Some(character) => Self::Character(character),
            None => Self::Blanks,
        }
    }

    fn fields(self, line: &str) -> Fields<'_> {
        match self {
            Self::Character(character) => Fields::Separated(line.split(character)),
            Self::Blanks => Fields::Blanks(line.split_whitespace()),
        }
    }
}

/// Two ways to cut a line, as one iterator.
#[derive(Debug)]
enum Fields<'a> {
    Separated(std::str::Split<'a, char>),
    Blanks(std::str::SplitWhitespace<'a>),
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        match self {
            Self::Separated(fields) => fields.next().map(str::trim),
            Self::Blanks(fields) => fields.next(),
        }
    }
}

/// Reads the fields after the label, including padding, and returns the name of the class.
fn read_line(mut fields: Fields<'_>, values: &mut Vec<f32>) -> Checked<String> {
    let label = fields.next().unwrap_or("");
    if label.is_empty() || label == "?" || label.eq_ignore_ascii_case("nan") {
        return Err(Problem::new(format_args!(
            "{} is no class label; begin the line with one",
            quoted(label)
        ))
        .at("field 1"));
    }
    values.clear();
    for (i, field) in fields.enumerate() {
        let value =
            number(field).map_err(|why| bad_field(field, why, format!("field {}", i + 2)))?;
        values.push(value);
    }
    Ok(class_name(label))
}

/// The number of steps before the padding.
fn length(values: &[f32]) -> usize {
    values
        .iter()
        .rposition(|v| !v.is_nan())
        .map_or(0, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Format, SeriesSet};
    use super::*;
    use crate::memory::MEMORY;

    fn read_with(text: &str, missing: Missing) -> Result<SeriesSet> {
        super::super::parse("toy.tsv", text.as_bytes(), Format::Ucr, missing)
    }

    fn read(text: &str) -> SeriesSet {
        read_with(text, Missing::Refuse).unwrap()
    }

    fn refusal(text: &str) -> String {
        read_with(text, Missing::Refuse).unwrap_err().to_string()
    }

    #[test]
    fn tabs_commas_and_blanks_say_the_same() {
        let set = read("1\t0.5\t-2\n-1\t1e1\t0\n");
        assert_eq!(set.classes(), ["-1", "1"]);
        assert_eq!(set.labels(), [1, 0]);
        assert_eq!(set.values(), [0.5, -2.0, 10.0, 0.0]);
        assert_eq!(read("1,0.5,-2\r\n-1, 1e1, 0\r\n"), set);
        assert_eq!(
            read("  1.0000000e+00   5.0e-01  -2.0\n\n -1.0000000e+00  1.0e+01  0.0\n"),
            set
        );
    }

    #[test]
    fn nan_at_the_end_is_the_end_and_elsewhere_a_gap() {
        let text = "a\t1\t2\t3\nb\t4\tNaN\tNaN\n";
        assert_eq!(read(text).sequence(1), [4.0]);
        let gap = "a\t1\t2\t3\nb\t4\tNaN\t6\n";
        let message = refusal(gap);
        assert!(
            message.starts_with(
                "toy.tsv: line 2, sequence 2, channel 1, step 2: the value is missing"
            ),
            "{message}"
        );
        let filled = read_with(gap, Missing::Fill).unwrap();
        assert_eq!(filled.sequence(1), [4.0, 4.0, 6.0]);
    }

    #[test]
    fn what_is_malformed_is_refused_with_its_place() {
        for (text, expected) in [
            ("", "there are no sequences"),
            ("\n \n", "there are no sequences"),
            ("a\n", "line 1, sequence 1: the sequence has no steps"),
            (
                "a\tNaN\tNaN\n",
                "line 1, sequence 1: the sequence has no steps",
            ),
            (
                "a\t1\t2\nb\t1\n",
                "line 2: the line has 2 fields where the first has 3",
            ),
            ("a\t1\t2\nb\t1\t2\t3\n", "line 2: the line has 4 fields"),
            ("a\t1\tx\n", "line 1, field 3: \"x\" is not a number"),
            ("a\t1\t\t2\n", "line 1, field 3: \"\" is an empty field"),
            ("a\t1\t1e99\n", "field 3: \"1e99\" is not a finite number"),
            ("NaN\t1\t2\n", "line 1, field 1: \"NaN\" is no class label"),
            (",1,2\n", "line 1, field 1: \"\" is no class label"),
        ] {
            let message = refusal(text);
            assert!(message.contains(expected), "{text:?}: {message}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let message = parse(
            Path::new("x.tsv"),
            b"1\t2\n\xff\xfe\t1\n",
            Missing::Refuse,
            Memory::new(MEMORY),
        );
        assert!(
            message
                .unwrap_err()
                .to_string()
                .contains("line 2: this is not UTF-8")
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(Path::new("x"), &bytes, Missing::Fill, Memory::new(MEMORY));
        }

        #[test]
        fn no_text_of_its_alphabet_makes_it_panic(text in "[-0-9a.,?eN\t\n ]{0,80}") {
            for missing in [Missing::Refuse, Missing::Fill] {
                if let Ok(set) = read_with(&text, missing) {
                    prop_assert!(set.values().iter().all(|v| v.is_finite()));
                    prop_assert!(set.lengths().all(|steps| steps > 0));
                }
            }
        }
    }
}
