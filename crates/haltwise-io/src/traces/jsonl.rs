//! JSON Lines: one sequence per line.

use std::borrow::Cow;
use std::fmt;
use std::io::{BufRead, Read, Write};

use haltwise::Sequence;
use haltwise::traces::Trace;
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::intake::Intake;
use super::text::Text;
use crate::error::ErrorKind;
use crate::problem::{NOT_TEXT, Problem, cut};

/// The longest line read: a sequence of the greatest length fits.
const MAX_LINE: u64 = 1 << 30;

pub(super) fn read(text: Text<'_>, intake: &mut Intake<'_>) -> Result<(), Problem> {
    read_lines(text, MAX_LINE, intake)
}

fn read_lines(mut text: Text<'_>, longest: u64, intake: &mut Intake<'_>) -> Result<(), Problem> {
    let size = intake.file_size();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        (&mut text.reader)
            .take(longest + 1)
            .read_until(b'\n', &mut line)
            .map_err(Problem::cut_off)
            .and_then(|_| match line.len() as u64 > longest {
                true => Err(Problem::format(format_args!(
                    "the line is longer than {longest} bytes; write one sequence per line"
                ))),
                false => Ok(()),
            })
            .and_then(|()| read_line(&line, number == 1, intake))
            .map_err(|p| p.at(format_args!("line {number}")))?;
        if line.is_empty() {
            break;
        }
        intake.done(text.read.get(), size);
    }
    Ok(())
}

fn read_line(line: &[u8], first: bool, intake: &mut Intake<'_>) -> Result<(), Problem> {
    let line = match line.strip_prefix("\u{feff}".as_bytes()) {
        Some(rest) if first => rest,
        _ => line,
    };
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(|e| not_json(line, e))?;
    fields.hand_in(intake)
}

fn not_json(line: &[u8], error: serde_json::Error) -> Problem {
    if std::str::from_utf8(line).is_err() {
        return Problem::format(NOT_TEXT).caused_by(error);
    }
    let kind = match error.classify() {
        Category::Data => ErrorKind::Data,
        Category::Syntax | Category::Eof | Category::Io => ErrorKind::Format,
    };
    let whole = error.to_string();
    // The parser saw one line alone: only its column means something.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = whole.strip_suffix(&place).unwrap_or(&whole);
    // It may quote the line, of whatever length.
    let (what, more) = cut(what, 200);
    let remedy = match is_python_number(line, error.column()) {
        true => "; JSON has no NaN or Infinity, and neither is a score",
        false => "",
    };
    Problem::new(format_args!("{what}{more}{remedy}"))
        .at(format_args!("character {}", error.column()))
        .of_kind(kind)
        .caused_by(error)
}

/// Whether the parser stopped at a `NaN` or `Infinity`, as Python writes them.
fn is_python_number(line: &[u8], column: usize) -> bool {
    let rest = &line[column.saturating_sub(2).min(line.len())..];
    [&b"NaN"[..], b"Inf", b"-Inf"]
        .iter()
        .any(|word| rest.windows(word.len()).take(3).any(|w| w == *word))
}

/// What a line says.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow, default)]
    id: Option<Id<'a>>,
    #[serde(borrow)]
    label: Class<'a>,
    #[serde(borrow, default)]
    predictions: Option<Vec<Class<'a>>>,
    #[serde(default)]
    scores: Option<Vec<f32>>,
    #[serde(default)]
    probs: Option<Vec<Vec<f32>>>,
}

impl Fields<'_> {
    fn hand_in(&self, intake: &mut Intake<'_>) -> Result<(), Problem> {
        let label = self.label.number(intake).map_err(|p| p.at("label"))?;
        let predictions = self
            .predictions
            .as_ref()
            .map(|classes| numbers(classes, intake))
            .transpose()?;
        let probs = self.probs.as_ref().map(|steps| flat(steps)).transpose()?;
        intake.take(Sequence {
            id: self.id.as_ref().map(|id| &*id.0),
            label,
            predictions: predictions.as_deref(),
            scores: self.scores.as_deref(),
            probs: probs
                .as_ref()
                .map(|(values, classes)| (&values[..], *classes)),
        })
    }
}

fn numbers(classes: &[Class<'_>], intake: &mut Intake<'_>) -> Result<Vec<u32>, Problem> {
    let number = |(t, class): (usize, &Class<'_>)| {
        class
            .number(intake)
            .map_err(|p| p.at(format_args!("step {}", t + 1)).at("predictions"))
    };
    classes.iter().enumerate().map(number).collect()
}

/// The probabilities of all steps in a row, and the number of classes.
fn flat(steps: &[Vec<f32>]) -> Result<(Vec<f32>, usize), Problem> {
    let classes = steps.first().map_or(1, Vec::len);
    if let Some(t) = steps.iter().position(|step| step.len() != classes) {
        return Err(Problem::new(format_args!(
            "{} probabilities, but {classes} at step 1; give one per class at each step",
            steps[t].len()
        ))
        .at(format_args!("step {}", t + 1))
        .at("probs"));
    }
    Ok((steps.concat(), classes))
}

/// An id: text, or a number taken as text.
struct Id<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Id<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Class::deserialize(deserializer)? {
            Class::Text(text) => Ok(Self(text)),
            Class::Number(number) => Ok(Self(number.to_string().into())),
        }
    }
}

/// A class: an integer, or a name, which is in quotes.
enum Class<'a> {
    Number(i128),
    Text(Cow<'a, str>),
}

impl Class<'_> {
    fn number(&self, intake: &mut Intake<'_>) -> Result<u32, Problem> {
        match self {
            Self::Number(number) => intake.classes.number(*number),
            Self::Text(name) => intake.classes.name(name),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Class<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ClassVisitor)
    }
}

struct ClassVisitor;

impl<'de> Visitor<'de> for ClassVisitor {
    type Value = Class<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an integer or a string")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Class::Number(number.into()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Class::Number(number.into()))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Class::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Class::Text(Cow::Owned(text.to_owned())))
    }
}

/// Writes one sequence as one line.
pub(super) fn write(out: &mut impl Write, row: &Trace<'_>) -> std::io::Result<()> {
    #[derive(Serialize)]
    struct Line<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        label: u32,
        predictions: &'a [u32],
        #[serde(skip_serializing_if = "Option::is_none")]
        scores: Option<&'a [f32]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        probs: Option<Vec<&'a [f32]>>,
    }
    let line = Line {
        id: row.id(),
        label: row.label(),
        predictions: row.predictions(),
        // Scores that follow from `probs` would, written out, be taken for given.
        scores: row.given_scores(),
        probs: row
            .probs()
            .map(|probs| probs.chunks_exact(row.classes()).collect()),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traces::{Format, visit_bytes};

    type Row = (Option<String>, u32, Vec<u32>, Vec<f32>);

    fn read(text: &str) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        visit_bytes("t.jsonl", Format::Jsonl, text.as_bytes(), &mut |row| {
            rows.push((
                row.id().map(str::to_owned),
                row.label(),
                row.predictions().to_vec(),
                row.scores().to_vec(),
            ));
            Ok(())
        })
        .map_err(|e| e.to_string())?;
        Ok(rows)
    }

    fn refused(text: &str) -> String {
        read(text).unwrap_err()
    }

    #[test]
    fn a_line_is_a_sequence() {
        let rows = read(
            "\u{feff}{\"id\": \"a\", \"label\": 1, \"predictions\": [0, 1], \"scores\": [0.25, 1]}\r\n\n\
             {\"id\": 7, \"label\": 0, \"predictions\": [0], \"scores\": [0.5], \"note\": {\"x\": []}}",
        )
        .unwrap();
        assert_eq!(rows[0], (Some("a".into()), 1, vec![0, 1], vec![0.25, 1.0]));
        assert_eq!(rows[1], (Some("7".into()), 0, vec![0], vec![0.5]));
    }

    #[test]
    fn probabilities_give_predictions_and_scores() {
        let rows = read(r#"{"label": 2, "probs": [[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]}"#).unwrap();
        assert_eq!(rows[0], (None, 2, vec![0, 2], vec![0.4, 0.7]));
    }

    #[test]
    fn what_rounding_leaves_outside_the_unit_interval_is_moved_onto_its_border() {
        let line = r#"{"label": 0, "probs": [[1.00005, -0.00005]]}"#;
        let mut seen = Vec::new();
        visit_bytes("t.jsonl", Format::Jsonl, line.as_bytes(), &mut |row| {
            seen.extend_from_slice(row.probs().unwrap_or_default());
            seen.extend_from_slice(row.scores());
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, [1.0, 0.0, 1.0]);
        assert!(refused(r#"{"label": 0, "probs": [[1.001, -0.001]]}"#).contains("softmax"));
    }

    #[test]
    fn given_predictions_and_scores_win_over_probabilities() {
        let rows =
            read(r#"{"label": 1, "predictions": [1], "scores": [0.9], "probs": [[0.6, 0.4]]}"#)
                .unwrap();
        assert_eq!(rows[0], (None, 1, vec![1], vec![0.9]));
    }

    #[test]
    fn classes_may_have_names() {
        let rows =
            read(r#"{"label": "sit", "predictions": ["walk", "sit"], "scores": [0, 1]}"#).unwrap();
        assert_eq!(rows[0].1, rows[0].2[1]);
        assert_ne!(rows[0].1, rows[0].2[0]);
    }

    #[test]
    fn what_is_in_quotes_is_a_name() {
        let rows =
            read(r#"{"label": "18", "predictions": ["7", "18"], "scores": [0, 1]}"#).unwrap();
        assert_eq!((rows[0].1, &rows[0].2[..]), (0, &[1, 0][..]));
        // A name says nothing about a place in `probs`.
        let message = refused(r#"{"label": "1", "probs": [[0.5, 0.5]]}"#);
        assert!(message.contains("classes have names here"), "{message}");
        let remedy = "write all labels and predictions as numbers, or all as names";
        for (line, place) in [
            (
                r#"{"label": "18", "predictions": [18], "scores": [1]}"#,
                "line 1, predictions, step 1: 18 is a number, but classes before it are names",
            ),
            (
                r#"{"label": 18, "predictions": [18, "18"], "scores": [0, 1]}"#,
                "line 1, predictions, step 2: \"18\", in quotes, is a name, but classes before it \
                 are numbers",
            ),
        ] {
            let message = refused(line);
            assert!(message.contains(place), "{message}");
            assert!(message.contains(remedy), "{message}");
        }
    }

    #[test]
    fn every_refusal_names_the_place() {
        let good = "{\"id\": 1, \"label\": 0, \"predictions\": [0], \"scores\": [0.5]}\n";
        for (line, parts) in [
            (
                r#"{"label": 0, "predictions": [0], "scores": [NaN]}"#,
                &["line 2, character", "NaN"][..],
            ),
            (
                r#"{"label": 0, "predictions": [0, 0], "scores": [0.5, 1.5]}"#,
                &["line 2, scores, step 2", "1.5"],
            ),
            (
                r#"{"label": 0, "predictions": [0, 0], "scores": [0.5]}"#,
                &["line 2", "2 predictions but 1 scores"],
            ),
            (
                r#"{"label": -1, "predictions": [0], "scores": [0.5]}"#,
                &["line 2, label", "-1 is not a class"],
            ),
            (
                r#"{"label": 0, "predictions": [0, -3], "scores": [0.5, 1]}"#,
                &["line 2, predictions, step 2", "-3"],
            ),
            (
                r#"{"label": 0.5, "predictions": [0], "scores": [0.5]}"#,
                &["line 2", "an integer or a string"],
            ),
            (
                r#"{"label": "a", "predictions": ["a"], "scores": [0.5]}"#,
                &["line 2, label", "\"a\" is a name"],
            ),
            (
                r#"{"predictions": [0], "scores": [0.5]}"#,
                &["line 2", "missing field `label`"],
            ),
            (
                r#"{"label": 0, "predictions": [0]}"#,
                &["line 2", "neither `scores` nor `probs`"],
            ),
            (
                r#"{"label": 0, "scores": [0.5]}"#,
                &["line 2", "neither `predictions` nor `probs`"],
            ),
            (
                r#"{"label": 0, "predictions": [], "scores": []}"#,
                &["line 2", "no steps"],
            ),
            (
                r#"{"id": "1", "label": 0, "predictions": [0], "scores": [0.5]}"#,
                &["line 2", "id \"1\" was met before"],
            ),
            (
                r#"{"label": 0, "probs": [[0.5, 0.5]]}"#,
                &["line 2", "some with `probs` alone"],
            ),
            (
                r#"{"label": 0, "scores": [1, 1], "probs": [[0.5, 0.5], [1]]}"#,
                &["line 2, probs, step 2", "1 probabilities, but 2"],
            ),
            (
                r#"{"label": 2, "scores": [1], "probs": [[0.5, 0.5]]}"#,
                &["line 2, label", "out of range"],
            ),
            (
                r#"{"label": 0, "scores": [1], "probs": [[3.5, -2.5]]}"#,
                &["line 2, probs, step 1", "apply softmax"],
            ),
            (
                r#"{"label": 0, "scores": [1], "probs": [[-0.5, -1.5]]}"#,
                &["log-probabilities: apply exp"],
            ),
            (
                r#"{"label": 0, "scores": [1], "probs": [[0.5, 0.4]]}"#,
                &["sum to 0.9, not to 1"],
            ),
            (
                r#"{"label": 0, "scores": [1], "probs": [[]]}"#,
                &["line 2, probs", "no classes"],
            ),
            (r#"{"label": 0, "predictions": [0"#, &["line 2", "EOF"]),
            ("[1, 2]", &["line 2"]),
            ("\u{1}", &["line 2"]),
        ] {
            let message = refused(&format!("{good}{line}\n"));
            for part in parts {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_called_so_and_long_text_is_cut() {
        let mut nothing = |_: &Trace<'_>| Ok(());
        let bytes = b"{\"label\": 0, \"id\": \"\xff\"}";
        let error = visit_bytes("t.jsonl", Format::Jsonl, bytes, &mut nothing).unwrap_err();
        assert!(error.to_string().contains("line 1: it is not UTF-8 text"));
        let long = format!(
            "{{\"label\": 0, \"scores\": [\"{}\"]}}",
            "x".repeat(100_000)
        );
        let message = refused(&long);
        assert!(message.len() < 300, "{}", message.len());
    }

    #[test]
    fn depth_does_not_overflow_the_stack() {
        for field in ["x", "probs", "id"] {
            let deep = format!("{{\"label\": 0, \"{field}\": {}", "[".repeat(1 << 20));
            assert!(refused(&deep).contains("line 1, character"), "{field}");
        }
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_memory() {
        let mut nothing = |_: &Trace<'_>| Ok(());
        let mut silent = |_, _| {};
        let mut ids = crate::traces::Ids::now();
        let mut intake = Intake::new(&mut ids, &mut nothing, &mut silent, 0);
        let endless = Text::plain(std::io::repeat(b' '));
        let problem = read_lines(endless, 1 << 16, &mut intake).unwrap_err();
        assert!(format!("{problem:?}").contains("longer than 65536 bytes"));
    }

    #[test]
    fn a_file_of_blank_lines_has_no_sequence() {
        assert!(refused("\n\n").contains("no sequence"));
        assert!(refused("").contains("empty"));
    }
}
