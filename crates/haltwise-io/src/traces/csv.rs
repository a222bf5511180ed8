//! Comma-separated values: one row per step.

use std::io::Write;

use ::csv::{ByteRecord, ErrorKind as Kind, ReaderBuilder};
use haltwise::traces::Trace;

use super::intake::Intake;
use super::steps::{Step, Steps};
use super::text::Text;
use crate::error::ErrorKind;
use crate::problem::{NOT_TEXT, Problem, listed, quoted};

/// The columns, in the order they are written.
pub(super) const COLUMNS: [&str; 5] = ["id", "t", "label", "prediction", "score"];

pub(super) fn read(text: Text<'_>, intake: &mut Intake<'_>) -> Result<(), Problem> {
    let size = intake.file_size();
    let mut reader = ReaderBuilder::new().from_reader(text.reader);
    let places = find_columns(reader.byte_headers().map_err(damaged)?)?;
    let mut steps = Steps::new("line");
    let mut record = ByteRecord::new();
    while reader.read_byte_record(&mut record).map_err(damaged)? {
        let line = record.position().map_or(0, ::csv::Position::line);
        read_step(&record, places, intake)
            .and_then(|step| steps.add(line, step))
            .map_err(|p| p.at(format_args!("line {line}")))?;
        intake.done(text.read.get(), size);
    }
    steps.finish(intake)
}

fn find_columns(header: &ByteRecord) -> Result<[usize; 5], Problem> {
    let mut places = [0; 5];
    for (place, name) in std::iter::zip(&mut places, COLUMNS) {
        let is_it = |found: &[u8]| found.trim_ascii() == name.as_bytes();
        *place = header
            .iter()
            .position(is_it)
            .ok_or_else(|| missing_column(name, header))?;
        if header.iter().filter(|found| is_it(found)).count() > 1 {
            let what = format_args!("there are two columns {name:?}; rename one of them");
            return Err(Problem::format(what).at("line 1"));
        }
    }
    Ok(places)
}

fn missing_column(name: &str, header: &ByteRecord) -> Problem {
    let found: Result<Vec<_>, _> = header.iter().map(std::str::from_utf8).collect();
    let Ok(found) = found else {
        return Problem::format(NOT_TEXT).at("line 1");
    };
    let hint = match found.as_slice() {
        [one] if one.contains([';', '\t']) => "; separate the columns by commas",
        _ => "",
    };
    Problem::format(format_args!(
        "there is no column {name:?}; needed are {}, found are {}{hint}",
        COLUMNS.join(", "),
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
    places: [usize; 5],
    intake: &mut Intake<'_>,
) -> Result<Step<'a>, Problem> {
    let [id, t, label, prediction, score] = std::array::from_fn(|c| {
        std::str::from_utf8(record.get(places[c]).unwrap_or_default())
            .map(str::trim)
            .map_err(|_| Problem::format(NOT_TEXT).at(COLUMNS[c]))
    });
    let id = id?;
    if id.is_empty() {
        return Err(Problem::new("it is empty; every row needs the id of its sequence").at("id"));
    }
    Ok(Step {
        id,
        t: number(t?, "a step counted from 1").map_err(|p| p.at("t"))?,
        label: intake.classes.text(label?).map_err(|p| p.at("label"))?,
        prediction: intake
            .classes
            .text(prediction?)
            .map_err(|p| p.at("prediction"))?,
        // Through f64, so that text rounds as the same number in a binary file.
        score: number::<f64>(score?, "a number in [0, 1]").map_err(|p| p.at("score"))? as f32,
    })
}

fn number<T: std::str::FromStr>(text: &str, wanted: &str) -> Result<T, Problem> {
    text.parse()
        .map_err(|_| Problem::new(format_args!("{} is not {wanted}", quoted(text))))
}

/// Writes the header.
pub(super) fn write_header<W: Write>(out: &mut ::csv::Writer<W>) -> ::csv::Result<()> {
    out.write_record(COLUMNS)
}

/// Writes one sequence, one row per step.
pub(super) fn write<W: Write>(
    out: &mut ::csv::Writer<W>,
    id: &str,
    row: &Trace<'_>,
) -> ::csv::Result<()> {
    let steps = std::iter::zip(row.predictions(), row.scores());
    for (t, (prediction, score)) in steps.enumerate() {
        let (t, label) = ((t + 1).to_string(), row.label().to_string());
        let (prediction, score) = (prediction.to_string(), score.to_string());
        out.write_record([id, &t, &label, &prediction, &score])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::traces::{Format, visit_bytes};

    type Row = (String, u32, Vec<u32>, Vec<f32>);

    fn read(text: &str) -> Result<Vec<Row>, String> {
        let mut rows = Vec::new();
        visit_bytes("t.csv", Format::Csv, text.as_bytes(), &mut |row| {
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
        assert_eq!(rows[0], ("b".into(), 1, vec![0, 1, 1], vec![0.1, 0.2, 0.3]));
        assert_eq!(rows[1], ("a".into(), 0, vec![2, 0], vec![0.5, 0.75]));
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
            ("a,1,,0,0.5", &["line 2, label", "empty"]),
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
        let error = visit_bytes("t.csv", Format::Csv, bytes, &mut nothing).unwrap_err();
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
