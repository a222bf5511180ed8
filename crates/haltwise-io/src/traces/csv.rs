//! Comma-separated values: one row per step.

use std::io::{BufRead, Write};
use std::rc::Rc;

use ::csv::{ByteRecord, ErrorKind as Kind, ReaderBuilder, Terminator};
use haltwise::traces::Trace;

use super::columns::{Columns, PER_STEP};
use super::intake::Intake;
use super::jsonl::too_long;
use super::steps::{Step, Steps, Values, Whole};
use super::text::Text;
use super::writer::Shape;
use crate::error::ErrorKind;
use crate::problem::{Checked, NOT_TEXT, Problem, listed, quoted};

pub(super) fn read(mut text: Text<'_>, intake: &mut Intake<'_>) -> Checked {
    let size = intake.file_size();
    let longest = intake.memory.longest_line();
    let (read, allowance) = (Rc::clone(&text.read), text.allowance());
    let refused = |error, after: u64| match allowance.is_used_up() {
        true => too_long(longest).at(format_args!("line {}", after + 1)),
        false => damaged(error),
    };
    allowance.allow(longest);
    let mut reader = ReaderBuilder::new()
        .terminator(terminator(&mut *text.reader)?)
        .from_reader(text.reader);
    let header = reader.byte_headers().map_err(|e| refused(e, 0))?;
    let places = Places::find(header, intake.columns)?;
    let mut steps = Steps::new("line");
    let (mut record, mut line) = (ByteRecord::new(), 1);
    loop {
        allowance.allow(longest);
        if !reader
            .read_byte_record(&mut record)
            .map_err(|e| refused(e, line))?
        {
            break;
        }
        line = record.position().map_or(line, ::csv::Position::line);
        read_step(&record, &places, intake)
            .and_then(|step| steps.add(line, step, &mut intake.memory))
            .map_err(|p| p.at(format_args!("line {line}")))?;
        intake.done(read.get(), size);
    }
    steps.finish(intake)
}

/// What ends a line. The parser's own choice ends one at either character of `\\r\\n`, and so counts
/// one line too few. Cells are trimmed, so the `\\r` does no harm.
fn terminator(reader: &mut dyn BufRead) -> Checked<Terminator> {
    let start = reader.fill_buf().map_err(Problem::unreadable)?;
    Ok(match start.contains(&b'\n') {
        true => Terminator::Any(b'\n'),
        false => Terminator::CRLF,
    })
}

/// A column's place and name.
type Place<'c> = (usize, &'c str);

/// The columns.
struct Places<'c> {
    id: Place<'c>,
    t: Place<'c>,
    score: Place<'c>,
    label: Option<Place<'c>>,
    prediction: Option<Place<'c>>,
    loss: Option<Place<'c>>,
    cost: Option<Place<'c>>,
    group: Option<Place<'c>>,
    unit: Option<Place<'c>>,
    weight: Option<Place<'c>>,
    any_asked: bool,
}

impl<'c> Places<'c> {
    fn find(header: &ByteRecord, columns: &'c Columns) -> Checked<Self> {
        let names: Result<Vec<&str>, _> = header.iter().map(std::str::from_utf8).collect();
        let names = names.map_err(|_| Problem::format(NOT_TEXT).at("line 1"))?;
        let names = names.into_iter().map(str::trim);
        let place = |name: &'c str| {
            let mut found = names.clone().enumerate().filter(|&(_, n)| n == name);
            match (found.next(), found.next()) {
                (_, Some(_)) => {
                    let what = format_args!("there are two columns {name:?}; rename one of them");
                    Err(Problem::format(what).at("line 1"))
                }
                (first, None) => Ok(first.map(|(at, _)| (at, name))),
            }
        };
        let needed = |name| place(name)?.ok_or_else(|| missing_column(name, names.clone()));
        let asked = |name: Option<&'c str>| name.map_or(Ok(None), place);
        let (id, t, score) = (needed("id")?, needed("t")?, needed("score")?);
        let prediction = match place("loss")? {
            Some(_) => place("prediction")?,
            None => Some(needed("prediction")?),
        };
        let asked_for = columns.check(&PER_STEP, names.clone());
        asked_for.map_err(|p| p.at("line 1"))?;
        Ok(Self {
            any_asked: *columns != Columns::default(),
            id,
            t,
            score,
            label: place("label")?,
            prediction,
            loss: asked(columns.losses.then_some("loss"))?,
            cost: asked(columns.costs.as_deref())?,
            group: asked(columns.group_column())?,
            unit: asked(columns.unit.as_deref())?,
            weight: asked(columns.weight.as_deref())?,
        })
    }
}

fn missing_column<'a>(name: &str, found: impl Iterator<Item = &'a str>) -> Problem {
    let found: Vec<&str> = found.collect();
    let hint = match found.as_slice() {
        [one] if one.contains([';', '\t']) => "; separate the columns by commas",
        _ => "",
    };
    Problem::format(format_args!(
        "there is no column {name:?}; needed are id, t, prediction, score, and label where it is \
         known; found are {}{hint}",
        listed(found),
    ))
    .at("line 1")
}

fn damaged(error: ::csv::Error) -> Problem {
    let problem = match error.kind() {
        Kind::UnequalLengths {
            pos,
            expected_len,
            len,
        } => Problem::format(format_args!(
            "{len} fields, but the header has {expected_len}"
        ))
        .at(format_args!(
            "line {}",
            pos.as_ref().map_or(0, ::csv::Position::line)
        )),
        Kind::Io(cause) => Problem::new(format_args!("cannot read on: {error}"))
            .of_kind(ErrorKind::of_reading(cause)),
        _ => Problem::format(format_args!("cannot read on: {error}")),
    };
    problem.caused_by(error)
}

fn read_step<'a>(
    record: &'a ByteRecord,
    places: &Places<'_>,
    intake: &mut Intake<'_>,
) -> Checked<Step<'a>> {
    let cell = |(at, name): Place<'_>| {
        std::str::from_utf8(record.get(at).unwrap_or_default())
            .map(str::trim)
            .map_err(|_| Problem::format(NOT_TEXT).at(name))
    };
    let text = |place: Option<Place<'_>>| place.map(cell).transpose();
    let float = |place: Place<'_>, wanted| -> Checked<f64> {
        number(cell(place)?, wanted).map_err(|p| p.at(place.1))
    };
    let asked = |place: Option<Place<'_>>| place.map(|at| float(at, "a number")).transpose();
    // Converted through f64, so that text rounds to the same number as in a binary file.
    let rounded = |place| Checked::Ok(asked(place)?.map(|value| value as f32));
    let id = cell(places.id)?;
    if id.is_empty() {
        return Err(Problem::new("it is empty; every row needs the id of its sequence").at("id"));
    }
    let t = number(cell(places.t)?, "a step counted from 1").map_err(|p| p.at("t"))?;
    let (mut whole, mut values) = (Whole::default(), Values::default());
    if intake.columns.numbers {
        whole.number = rounded(places.label)?;
        values.number = rounded(places.prediction)?;
    } else {
        // An empty label is unknown.
        if let Some(label) = text(places.label)?.filter(|label| !label.is_empty()) {
            let class = intake.classes.text(label);
            whole.label = Some(class.map_err(|p| p.at("label"))?);
        }
        if let Some(prediction) = text(places.prediction)? {
            let class = intake.classes.text(prediction);
            values.prediction = Some(class.map_err(|p| p.at("prediction"))?);
        }
    }
    values.score = float(places.score, "a number in [0, 1]")? as f32;
    // Most files are read without these columns.
    if places.any_asked {
        whole.group = text(places.group)?;
        whole.unit = text(places.unit)?;
        whole.weight = asked(places.weight)?;
        values.loss = rounded(places.loss)?;
        values.cost = rounded(places.cost)?;
    }
    Ok(Step {
        id,
        t,
        whole,
        values,
    })
}

fn number<T: std::str::FromStr>(text: &str, wanted: &str) -> Checked<T> {
    text.parse()
        .map_err(|_| Problem::new(format_args!("{} is not {wanted}", quoted(text))))
}

/// Writes the header.
pub(super) fn write_header<W: Write>(
    out: &mut ::csv::Writer<W>,
    shape: Shape,
    columns: &Columns,
) -> ::csv::Result<()> {
    let mut names = vec!["id", "t", "label"];
    names.extend(shape.has_predictions().then_some("prediction"));
    names.push("score");
    names.extend(shape.losses.then_some("loss"));
    names.extend(shape.named(columns).map(|(_, name)| name));
    out.write_record(names)
}

/// Writes one sequence, one row per step.
pub(super) fn write<W: Write>(
    out: &mut ::csv::Writer<W>,
    id: &str,
    row: &Trace<'_>,
    shape: Shape,
) -> ::csv::Result<()> {
    let (about, numbers) = (row.about(), row.numbers());
    let label = match numbers {
        Some(numbers) => numbers.label.to_string(),
        None => row
            .label()
            .map_or_else(String::new, |label| label.to_string()),
    };
    for (t, score) in row.scores().iter().enumerate() {
        out.write_field(id)?;
        out.write_field((t + 1).to_string())?;
        out.write_field(&label)?;
        if let Some(numbers) = numbers {
            out.write_field(numbers.predictions[t].to_string())?;
        } else if shape.has_predictions() {
            out.write_field(row.predictions()[t].to_string())?;
        }
        out.write_field(score.to_string())?;
        if let Some(losses) = row.losses() {
            out.write_field(losses[t].to_string())?;
        }
        if let (Some(group), true) = (about.group, shape.group) {
            out.write_field(group)?;
        }
        if let (Some(unit), true) = (about.unit, shape.unit) {
            out.write_field(unit)?;
        }
        if let (Some(weight), true) = (about.weight, shape.weight) {
            out.write_field(weight.to_string())?;
        }
        if let (Some(costs), true) = (about.costs, shape.costs) {
            out.write_field(costs[t].to_string())?;
        }
        out.write_record(None::<&[u8]>)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::traces::{Columns, Format, visit_bytes};

    type Row = (String, Option<u32>, Vec<u32>, Vec<f32>);

    fn read(text: &str) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        let none = Columns::default();
        visit_bytes("t.csv", Format::Csv, text.as_bytes(), &none, &mut |row| {
            let id = row.id().unwrap_or_default().to_owned();
            let (predictions, scores) = (row.predictions().to_vec(), row.scores().to_vec());
            rows.push((id, row.label(), predictions, scores));
            Ok(())
        })
        .map_err(|e| e.to_string())?;
        Ok(rows)
    }

    #[test]
    fn rows_may_interleave_and_come_in_any_order() {
        let rows = read(
            "score,id,t,label,prediction,more\r\n\
             0.3,b,3,1,1,x\r\n0.5,\"a\",1,0,2,x\r\n0.1,b,1,1,0,x\r\n0.75,a,2,0,0,x\r\n0.2,b,2,1,1,x\r\n",
        )
        .unwrap();
        let b = ("b".into(), Some(1), vec![0, 1, 1], vec![0.1, 0.2, 0.3]);
        assert_eq!(rows[0], b);
        assert_eq!(rows[1], ("a".into(), Some(0), vec![2, 0], vec![0.5, 0.75]));
    }

    #[test]
    fn a_label_may_be_missing() {
        for text in [
            "id,t,prediction,score\na,1,0,0.5\n",
            "id,t,label,prediction,score\na,1,,0,0.5\n",
        ] {
            assert_eq!(read(text).unwrap()[0].1, None, "{text}");
        }
    }

    #[test]
    fn every_refusal_names_the_place() {
        for (rows, parts) in [
            ("a,1,0,0,NaN", &["line 2, score", "NaN"][..]),
            ("a,1,0,0,-0.1", &["line 2, score", "-0.1"]),
            (
                "a,1,0,0,high",
                &["line 2, score", "\"high\" is not a number"],
            ),
            ("a,1,0,0,", &["line 2, score", "\"\""]),
            ("a,0,0,0,0.5", &["line 2, t", "0 is not a step", "from 1"]),
            ("a,99999999,0,0,0.5", &["line 2, t", "not a step"]),
            ("a,x,0,0,0.5", &["line 2, t", "\"x\""]),
            ("a,1,0,,0.5", &["line 2, prediction", "empty"]),
            ("a,1,,0,0.5\na,2,1,0,0.5", &["line 3, label", "one label"]),
            ("a,1,-2,0,0.5", &["line 2, label", "-2 is not a class"]),
            ("a,1,0,-2,0.5", &["line 2, prediction", "-2"]),
            (",1,0,0,0.5", &["line 2, id", "empty"]),
            (
                "a,1,0,0,0.5\na,1,0,0,0.5",
                &["line 3", "step 1 of \"a\" is there twice"],
            ),
            (
                "a,1,0,0,0.5\na,3,0,0,0.5\na,3,0,0,0.5\na,2,0,0,0",
                &["line 4", "step 3 of \"a\""],
            ),
            (
                "a,1,0,0,0.5\na,3,0,0,0.5",
                &["id \"a\"", "step 2 is missing"],
            ),
            ("a,2,0,0,0.5", &["id \"a\"", "step 1 is missing"]),
            ("a,1,0,0,0.5\na,2,1,0,0.5", &["line 3, label", "one label"]),
            ("a,1,cat,0,0.5", &["line 2, prediction", "0 is a number"]),
            ("a,1,0,0", &["line 2", "4 fields, but the header has 5"]),
            ("", &["no sequence"]),
        ] {
            let message = read(&format!("id,t,label,prediction,score\n{rows}\n")).unwrap_err();
            for part in parts {
                assert!(message.contains(part), "{rows}: {message}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_called_so() {
        let mut nothing = |_: &haltwise::traces::Trace<'_>| Ok(());
        let bytes = b"\xff\xfe\0\x01,\x80";
        let none = Columns::default();
        let error = visit_bytes("t.csv", Format::Csv, bytes, &none, &mut nothing).unwrap_err();
        assert_eq!(
            error.to_string(),
            "t.csv: line 1: it is not UTF-8 text; save it as UTF-8"
        );
    }

    #[test]
    fn a_long_id_is_cut() {
        let id = "x".repeat(100_000);
        let rows = format!("id,t,label,prediction,score\n{id},1,0,0,0\n{id},1,0,0,0\n");
        let message = read(&rows).unwrap_err();
        assert!(message.len() < 200, "{}", message.len());
    }

    #[test]
    fn a_missing_column_is_named_with_those_found() {
        let message = read("id,t,label,pred,score\n").unwrap_err();
        assert!(message.contains("no column \"prediction\""), "{message}");
        assert!(
            message.contains("found are id, t, label, pred, score"),
            "{message}"
        );
        let message = read("id,t,label,prediction,score,score\n").unwrap_err();
        assert!(message.contains("two columns \"score\""), "{message}");
        let message = read(&"x".repeat(100_000)).unwrap_err();
        assert!(message.len() < 300, "{}", message.len());
        let message = read("id;t;label;prediction;score\n").unwrap_err();
        assert!(message.contains("by commas"), "{message}");
    }
}
