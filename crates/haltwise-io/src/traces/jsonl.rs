//! JSON Lines: one sequence per line.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Read, Write};

use haltwise::Sequence;
use haltwise::traces::{About, Numbers, Trace};
use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::columns::{Columns, FIELDS};
use super::intake::Intake;
use super::text::Text;
use super::writer::{Named, Shape};
use crate::error::ErrorKind;
use crate::memory::Size;
use crate::problem::{Checked, NOT_TEXT, Problem, cut};

pub(super) fn read(mut text: Text<'_>, intake: &mut Intake<'_>) -> Result<(), Problem> {
    let size = intake.file_size();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let longest = intake.memory.longest_line();
        (&mut text.reader)
            .take(longest + 1)
            .read_until(b'\n', &mut line)
            .map_err(Problem::cut_off)
            .and_then(|_| match line.len() as u64 > longest {
                true => Err(too_long(longest)),
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

/// The message for a line that is longer than this many bytes.
pub(super) fn too_long(longest: u64) -> Problem {
    Problem::new(format_args!(
        "the line is longer than {}; write one sequence per line, or allow more memory",
        Size(longest)
    ))
    .of_kind(ErrorKind::TooLarge)
}

fn read_line(line: &[u8], first: bool, intake: &mut Intake<'_>) -> Result<(), Problem> {
    let line = match line.strip_prefix("\u{feff}".as_bytes()) {
        Some(rest) if first => rest,
        _ => line,
    };
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let columns = intake.columns;
    let mut json = serde_json::Deserializer::from_slice(line);
    let fields = Wanted(columns)
        .deserialize(&mut json)
        .and_then(|fields| json.end().map(|()| fields))
        .map_err(|e| not_json(line, e))?;
    if let Some(lacking) = fields.lacking(columns) {
        let there: BTreeMap<Cow<'_, str>, IgnoredAny> =
            serde_json::from_slice(line).map_err(|e| not_json(line, e))?;
        columns.check(&FIELDS, there.keys().map(|name| &**name))?;
        return Err(Problem::new("it is null; fill it in, or drop the line").at(lacking));
    }
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
    // The parser saw only one line, so only its column is meaningful.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = whole.strip_suffix(&place).unwrap_or(&whole);
    // The message may quote a line of any length.
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

/// Whether the parser stopped at `NaN` or `Infinity`, as Python writes them.
fn is_python_number(line: &[u8], column: usize) -> bool {
    let rest = &line[column.saturating_sub(2).min(line.len())..];
    [&b"NaN"[..], b"Inf", b"-Inf"]
        .iter()
        .any(|word| rest.windows(word.len()).take(3).any(|w| w == *word))
}

/// The content of a line.
#[derive(Default)]
struct Fields<'a> {
    id: Option<Name<'a>>,
    label: Option<Class<'a>>,
    predictions: Option<Vec<Class<'a>>>,
    scores: Option<Vec<f32>>,
    probs: Option<Vec<Vec<f32>>>,
    /// The label and the predictions of a regression.
    number: Option<f32>,
    numbers: Option<Vec<f32>>,
    losses: Option<Vec<f32>>,
    group: Option<Name<'a>>,
    unit: Option<Name<'a>>,
    weight: Option<f64>,
    costs: Option<Vec<f32>>,
}

/// Reads a line for these columns.
struct Wanted<'c>(&'c Columns);

impl<'de> DeserializeSeed<'de> for Wanted<'_> {
    type Value = Fields<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Wanted<'_> {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let columns = self.0;
        let mut fields = Fields::default();
        while let Some(Name(key)) = map.next_key::<Name<'de>>()? {
            let called = |name: Option<&str>| name == Some(&*key);
            let (group, unit) = (
                called(columns.group_column()),
                called(columns.unit.as_deref()),
            );
            match &*key {
                "id" => {
                    read_once(&mut map, "id", &mut fields.id)?;
                    fields.group = fields.group.or(fields.id.clone().filter(|_| group));
                    fields.unit = fields.unit.or(fields.id.clone().filter(|_| unit));
                }
                "label" if columns.numbers => read_once(&mut map, "label", &mut fields.number)?,
                "label" => read_once(&mut map, "label", &mut fields.label)?,
                "predictions" if columns.numbers => {
                    read_once(&mut map, "predictions", &mut fields.numbers)?;
                }
                "predictions" => read_once(&mut map, "predictions", &mut fields.predictions)?,
                "scores" => read_once(&mut map, "scores", &mut fields.scores)?,
                "probs" => read_once(&mut map, "probs", &mut fields.probs)?,
                "losses" if columns.losses => read_once(&mut map, "losses", &mut fields.losses)?,
                _ if group || unit => {
                    let mut name = None;
                    read_once(&mut map, "a column", &mut name)?;
                    fields.group = fields.group.or(name.clone().filter(|_| group));
                    fields.unit = fields.unit.or(name.filter(|_| unit));
                }
                _ if called(columns.weight.as_deref()) => {
                    read_once(&mut map, "weight", &mut fields.weight)?;
                }
                _ if called(columns.costs.as_deref()) => {
                    read_once(&mut map, "cost", &mut fields.costs)?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

/// Reads a value, which may be null; refuses a second value.
fn read_once<'de, M: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut M,
    name: &'static str,
    out: &mut Option<T>,
) -> Result<(), M::Error> {
    if out.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *out = map.next_value()?;
    Ok(())
}

impl Fields<'_> {
    /// A requested column without a value.
    fn lacking<'c>(&self, columns: &'c Columns) -> Option<&'c str> {
        if columns.numbers && self.number.is_none() {
            return Some("label");
        }
        if columns.numbers && self.numbers.is_none() {
            return Some("predictions");
        }
        let asked = [
            (columns.group_column(), self.group.is_none()),
            (columns.unit.as_deref(), self.unit.is_none()),
            (columns.weight.as_deref(), self.weight.is_none()),
            (columns.costs.as_deref(), self.costs.is_none()),
            (columns.losses.then_some("losses"), self.losses.is_none()),
        ];
        let mut asked = asked.into_iter().filter(|_| !columns.optional);
        asked.find_map(|(name, lacks)| name.filter(|_| lacks))
    }

    fn hand_in(&self, intake: &mut Intake<'_>) -> Checked {
        let label = self.label.as_ref().map(|label| label.number(intake));
        let label = label.transpose().map_err(|p| p.at("label"))?;
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
            numbers: self.numbers.as_deref().and_then(|predictions| {
                Some(Numbers {
                    predictions,
                    label: self.number?,
                })
            }),
            losses: self.losses.as_deref(),
            class_names: None,
            about: About {
                group: self.group.as_ref().map(|group| &*group.0),
                unit: self.unit.as_ref().map(|unit| &*unit.0),
                weight: self.weight,
                costs: self.costs.as_deref(),
            },
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

/// A name: text, or a number or boolean read as text.
#[derive(Clone)]
struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Name<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Class::deserialize(deserializer)? {
            Class::Text(text) => text,
            Class::Number(number) => number.to_string().into(),
            Class::Boolean(value) => value.to_string().into(),
        }))
    }
}

/// A class: an integer, or a name in quotes.
enum Class<'a> {
    Number(i128),
    Boolean(bool),
    Text(Cow<'a, str>),
}

impl Class<'_> {
    fn number(&self, intake: &mut Intake<'_>) -> Checked<u32> {
        match self {
            Self::Number(number) => intake.classes.number(*number),
            Self::Boolean(value) => intake.classes.number(u32::from(*value)),
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

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Class::Boolean(value))
    }

    fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Class::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Class::Text(Cow::Owned(text.to_owned())))
    }
}

/// Writes one sequence as one line.
pub(super) fn write(
    out: &mut impl Write,
    row: &Trace<'_>,
    shape: Shape,
    columns: &Columns,
) -> std::io::Result<()> {
    let line = Line {
        row,
        shape,
        columns,
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.write_all(b"\n")
}

struct Line<'a> {
    row: &'a Trace<'a>,
    shape: Shape,
    columns: &'a Columns,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = self.row;
        let mut line = serializer.serialize_map(None)?;
        entry(&mut line, "id", row.id())?;
        if let Some(Numbers { predictions, label }) = row.numbers() {
            line.serialize_entry("label", &label)?;
            line.serialize_entry("predictions", predictions)?;
        } else {
            entry(&mut line, "label", row.label())?;
            let predictions = self.shape.predicts.then_some(row.predictions());
            entry(&mut line, "predictions", predictions)?;
        }
        // Scores that follow from `probs` would be read as given scores if they were
        // written.
        entry(&mut line, "scores", row.given_scores())?;
        let probs = row.probs().map(|probs| probs.chunks_exact(row.classes()));
        entry(&mut line, "probs", probs.map(Vec::from_iter))?;
        entry(&mut line, "losses", row.losses())?;
        let about = row.about();
        for (what, name) in self.shape.named(self.columns) {
            match what {
                Named::Group => entry(&mut line, name, about.group)?,
                Named::Unit => entry(&mut line, name, about.unit)?,
                Named::Weight => entry(&mut line, name, about.weight)?,
                Named::Costs => entry(&mut line, name, about.costs)?,
            }
        }
        line.end()
    }
}

fn entry<M: SerializeMap, T: Serialize>(
    line: &mut M,
    name: &str,
    value: Option<T>,
) -> Result<(), M::Error> {
    match value {
        Some(value) => line.serialize_entry(name, &value),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;
    use crate::traces::{Format, visit_bytes};

    type Row = (Option<String>, Option<u32>, Vec<u32>, Vec<f32>);

    fn read(text: &str) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        let none = Columns::default();
        visit_bytes(
            "t.jsonl",
            Format::Jsonl,
            text.as_bytes(),
            &none,
            &mut |row| {
                rows.push((
                    row.id().map(str::to_owned),
                    row.label(),
                    row.predictions().to_vec(),
                    row.scores().to_vec(),
                ));
                Ok(())
            },
        )
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
        assert_eq!(
            rows[0],
            (Some("a".into()), Some(1), vec![0, 1], vec![0.25, 1.0])
        );
        assert_eq!(rows[1], (Some("7".into()), Some(0), vec![0], vec![0.5]));
    }

    #[test]
    fn probabilities_give_predictions_and_scores() {
        let rows = read(r#"{"label": 2, "probs": [[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]}"#).unwrap();
        assert_eq!(rows[0], (None, Some(2), vec![0, 2], vec![0.4, 0.7]));
    }

    #[test]
    fn what_rounding_leaves_outside_the_unit_interval_is_moved_onto_its_border() {
        let line = r#"{"label": 0, "probs": [[1.00005, -0.00005]]}"#;
        let mut seen = Vec::new();
        let none = Columns::default();
        visit_bytes(
            "t.jsonl",
            Format::Jsonl,
            line.as_bytes(),
            &none,
            &mut |row| {
                seen.extend_from_slice(row.probs().unwrap_or_default());
                seen.extend_from_slice(row.scores());
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(seen, [1.0, 0.0, 1.0]);
        assert!(refused(r#"{"label": 0, "probs": [[1.001, -0.001]]}"#).contains("softmax"));
    }

    #[test]
    fn given_predictions_and_scores_win_over_probabilities() {
        let rows =
            read(r#"{"label": 1, "predictions": [1], "scores": [0.9], "probs": [[0.6, 0.4]]}"#)
                .unwrap();
        assert_eq!(rows[0], (None, Some(1), vec![1], vec![0.9]));
    }

    #[test]
    fn classes_may_have_names() {
        let rows =
            read(r#"{"label": "sit", "predictions": ["walk", "sit"], "scores": [0, 1]}"#).unwrap();
        assert_eq!(rows[0].1, Some(rows[0].2[1]));
        assert_ne!(rows[0].1, Some(rows[0].2[0]));
    }

    #[test]
    fn a_label_may_be_missing() {
        for line in [
            r#"{"predictions": [0], "scores": [0.5]}"#,
            r#"{"label": null, "predictions": [0], "scores": [0.5]}"#,
        ] {
            assert_eq!(read(line).unwrap()[0].1, None, "{line}");
        }
    }

    #[test]
    fn what_is_in_quotes_is_a_name() {
        let rows =
            read(r#"{"label": "18", "predictions": ["7", "18"], "scores": [0, 1]}"#).unwrap();
        assert_eq!((rows[0].1, &rows[0].2[..]), (Some(0), &[1, 0][..]));
        // A name does not give a place in `probs`.
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
                r#"{"label": 0, "predictions": [0], "scores": [0.5], "label": 1}"#,
                &["line 2", "duplicate field `label`"],
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
        let none = Columns::default();
        let error = visit_bytes("t.jsonl", Format::Jsonl, bytes, &none, &mut nothing).unwrap_err();
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
        let none = Columns::default();
        let memory = Memory::new(64 << 16);
        let mut intake = Intake::new(&none, memory, &mut ids, &mut nothing, &mut silent, 0);
        let endless = Text::plain(std::io::repeat(b' '));
        let problem = super::read(endless, &mut intake).unwrap_err();
        assert!(format!("{problem:?}").contains("longer than 64.0 KiB"));
    }

    #[test]
    fn a_file_of_blank_lines_has_no_sequence() {
        assert!(refused("\n\n").contains("no sequence"));
        assert!(refused("").contains("empty"));
    }
}
