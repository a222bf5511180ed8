//! Optional columns: read on request, from every format alike, or refused with file, place
//! and remedy.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Cursor, Write};
use std::sync::Arc;

use arrow_array::builder::{Float64Builder, ListBuilder};
use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int8Array, Int64Array, ListArray, NullArray, RecordBatch,
    StringArray,
};
use haltwise::corridor::Admission;
use haltwise::simulate::{DrawnSequence, SyntheticClassifier};
use haltwise::terms::Terms;
use haltwise::traces::{About, Trace};
use haltwise::{Ask, Inputs, Method, Plan, Sequence};
use haltwise_io::{
    Columns, Files, Format, TraceWriter, WriteOptions, read_outputs, visit_bytes, visit_traces,
};

fn named(name: &str) -> Option<String> {
    Some(name.to_owned())
}

fn by(name: &str) -> Columns {
    Columns {
        group: named(name),
        ..Columns::default()
    }
}

fn unit(name: &str) -> Columns {
    Columns {
        unit: named(name),
        ..Columns::default()
    }
}

fn weight(name: &str) -> Columns {
    Columns {
        weight: named(name),
        ..Columns::default()
    }
}

fn cost(name: &str) -> Columns {
    Columns {
        costs: named(name),
        ..Columns::default()
    }
}

fn losses() -> Columns {
    Columns {
        losses: true,
        ..Columns::default()
    }
}

fn numbers() -> Columns {
    Columns {
        numbers: true,
        ..Columns::default()
    }
}

/// Reads the columns: one text per sequence.
fn read(format: Format, bytes: &[u8], columns: &Columns) -> Result<Vec<String>, String> {
    let mut seen = Vec::new();
    visit_bytes("toy", format, bytes, columns, &mut |row: &Trace<'_>| {
        let About {
            group,
            unit,
            weight,
            costs,
        } = row.about();
        let number = row.numbers().map(|n| (n.predictions.to_vec(), n.label));
        let label = row.label();
        let values = [
            label.map(|v| format!("label {v}")),
            group.map(|v| format!("group {v}")),
            unit.map(|v| format!("unit {v}")),
            weight.map(|v| format!("weight {v}")),
            costs.map(|v| format!("costs {v:?}")),
            row.losses().map(|v| format!("losses {v:?}")),
            number.map(|(p, label)| format!("numbers {p:?} of {label}")),
        ];
        seen.push(values.into_iter().flatten().collect::<Vec<_>>().join("; "));
        Ok(())
    })
    .map_err(|e| e.to_string())?;
    Ok(seen)
}

fn npz(arrays: &[(&str, &str, &[usize], Vec<u8>)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, descr, shape, bytes) in arrays {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("{name}.npy"), options).unwrap();
        let axes: String = shape.iter().map(|n| format!("{n},")).collect();
        let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({axes})}}");
        zip.write_all(b"\x93NUMPY\x01\0").unwrap();
        zip.write_all(&(dict.len() as u16).to_le_bytes()).unwrap();
        zip.write_all(dict.as_bytes()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn doubles(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Two sequences of two steps, and one more array.
fn npz_with(name: &str, descr: &str, shape: &[usize], bytes: Vec<u8>) -> Vec<u8> {
    npz(&[
        ("predictions", "|u1", &[2, 2], vec![0, 1, 1, 1]),
        ("scores", "<f8", &[2, 2], doubles(&[0.1, 0.2, 0.3, 0.4])),
        (name, descr, shape, bytes),
    ])
}

fn lists(rows: &[&[f64]]) -> ArrayRef {
    let mut builder = ListBuilder::new(Float64Builder::new());
    for row in rows {
        builder.values().append_slice(row);
        builder.append(true);
    }
    Arc::new(builder.finish())
}

fn classes(rows: &[&[i64]]) -> ArrayRef {
    let rows = rows.iter().map(|row| Some(row.iter().map(|&v| Some(v))));
    let lists: ListArray =
        ListArray::from_iter_primitive::<arrow_array::types::Int64Type, _, _>(rows);
    Arc::new(lists)
}

fn arrow(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

/// The same two sequences, and one more column.
fn arrow_with(name: &str, column: ArrayRef) -> Vec<u8> {
    arrow(vec![
        ("predictions", classes(&[&[0, 1], &[1, 1]])),
        ("scores", lists(&[&[0.1, 0.2], &[0.3, 0.4]])),
        (name, column),
    ])
}

/// The same in JSON, with one more field in each line.
fn jsonl_with(name: &str, values: [&str; 2]) -> Vec<u8> {
    let line = |value: &str| {
        format!("{{\"predictions\": [0, 1], \"scores\": [0.1, 0.2], \"{name}\": {value}}}\n")
    };
    values.map(line).concat().into_bytes()
}

/// The same, a row per step, with one more column.
fn csv_with(name: &str, values: [&str; 4]) -> Vec<u8> {
    let steps = ["a,1,0,0.1", "a,2,1,0.2", "b,1,1,0.3", "b,2,1,0.4"];
    let rows: String = std::iter::zip(steps, values)
        .map(|(step, value)| format!("{step},{value}\n"))
        .collect();
    format!("id,t,prediction,score,{name}\n{rows}").into_bytes()
}

#[test]
fn groups_and_units_are_text_integers_or_booleans_in_every_format() {
    let ints: ArrayRef = Arc::new(Int8Array::from(vec![-7, 12]));
    let bits: ArrayRef = Arc::new(BooleanArray::from(vec![true, false]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a b", "ü"]));
    let wide = |text: &str| -> Vec<u8> {
        let mut codes: Vec<u32> = text.chars().map(u32::from).collect();
        codes.resize(3, 0);
        codes.iter().flat_map(|c| c.to_le_bytes()).collect()
    };
    for (expected, arrow, npz, json, csv) in [
        (
            ["-7", "12"],
            ints,
            ("|i1", vec![249, 12]),
            ["-7", "12"],
            ["-7", "12"],
        ),
        (
            ["true", "false"],
            bits,
            ("|b1", vec![1, 0]),
            ["true", "false"],
            ["true", "false"],
        ),
        (
            ["a b", "ü"],
            texts,
            ("<U3", [wide("a b"), wide("ü")].concat()),
            ["\"a b\"", "\"ü\""],
            ["a b", "ü"],
        ),
    ] {
        let files = [
            (Format::Arrow, arrow_with("site", arrow)),
            (Format::Npz, npz_with("site", npz.0, &[2], npz.1)),
            (Format::Jsonl, jsonl_with("site", json)),
            (
                Format::Csv,
                csv_with("site", [csv[0], csv[0], csv[1], csv[1]]),
            ),
        ];
        for (format, bytes) in files {
            let of = |word: &str| expected.map(|value| format!("{word} {value}"));
            assert_eq!(
                read(format, &bytes, &by("site")).unwrap(),
                of("group"),
                "{format:?}"
            );
            assert_eq!(
                read(format, &bytes, &unit("site")).unwrap(),
                of("unit"),
                "{format:?}"
            );
            let both = Columns {
                unit: named("site"),
                ..by("site")
            };
            let both = read(format, &bytes, &both).unwrap();
            let value = expected[0];
            assert_eq!(
                both[0],
                format!("group {value}; unit {value}"),
                "{format:?}"
            );
            // Columns that were not requested are not read.
            let none = read(format, &bytes, &Columns::default()).unwrap();
            assert_eq!(none, ["", ""], "{format:?}");
        }
    }
}

#[test]
fn weights_costs_losses_and_numbers_may_be_integers() {
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![0, 3]));
    let (two, four) = (vec![0, 3], vec![1, 0, 0, 1]);
    for (format, one, list) in [
        (
            Format::Arrow,
            arrow_with("w", ints),
            arrow_with("losses", classes(&[&[1, 0], &[0, 1]])),
        ),
        (
            Format::Npz,
            npz_with("w", "|u1", &[2], two),
            npz_with("losses", "|u1", &[2, 2], four),
        ),
        (
            Format::Jsonl,
            jsonl_with("w", ["0", "3"]),
            jsonl_with("losses", ["[1, 0]", "[0, 1]"]),
        ),
        (
            Format::Csv,
            csv_with("w", ["0", "0", "3", "3"]),
            csv_with("loss", ["1", "0", "0", "1"]),
        ),
    ] {
        let read = |bytes: &[u8], columns| read(format, bytes, &columns).unwrap();
        assert_eq!(
            read(&one, weight("w")),
            ["weight 0", "weight 3"],
            "{format:?}"
        );
        let expected = ["losses [1.0, 0.0]", "losses [0.0, 1.0]"];
        assert_eq!(read(&list, losses()), expected, "{format:?}");
        let name = if format == Format::Csv {
            "loss"
        } else {
            "losses"
        };
        let expected = ["costs [1.0, 0.0]", "costs [0.0, 1.0]"];
        assert_eq!(read(&list, cost(name)), expected, "{format:?}");
    }
    let json = br#"{"label": 3, "predictions": [1, 2.5], "scores": [0.1, 0.2]}"#;
    let expected = ["numbers [1.0, 2.5] of 3"];
    assert_eq!(read(Format::Jsonl, json, &numbers()).unwrap(), expected);
    let csv = b"id,t,label,prediction,score\na,1,3,1,0.1\na,2,3,2.5,0.2\n";
    assert_eq!(read(Format::Csv, csv, &numbers()).unwrap(), expected);
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![3]));
    let table = arrow(vec![
        ("label", ints),
        ("predictions", lists(&[&[1.0, 2.5]])),
        ("scores", lists(&[&[0.1, 0.2]])),
    ]);
    assert_eq!(read(Format::Arrow, &table, &numbers()).unwrap(), expected);
    let archive = npz(&[
        ("labels", "|u1", &[1], vec![3]),
        ("predictions", "<f8", &[1, 2], doubles(&[1.0, 2.5])),
        ("scores", "<f8", &[1, 2], doubles(&[0.1, 0.2])),
    ]);
    assert_eq!(read(Format::Npz, &archive, &numbers()).unwrap(), expected);
}

#[test]
fn with_losses_nothing_need_be_predicted() {
    let json = br#"{"scores": [0.1, 0.2], "losses": [1, 0.5]}"#;
    let csv = b"id,t,score,loss\na,1,0.1,1\na,2,0.2,0.5\n";
    let table = arrow(vec![
        ("scores", lists(&[&[0.1, 0.2]])),
        ("losses", lists(&[&[1.0, 0.5]])),
    ]);
    let archive = npz(&[
        ("scores", "<f8", &[1, 2], doubles(&[0.1, 0.2])),
        ("losses", "<f8", &[1, 2], doubles(&[1.0, 0.5])),
    ]);
    for (format, bytes) in [
        (Format::Jsonl, &json[..]),
        (Format::Csv, csv),
        (Format::Arrow, &table),
        (Format::Npz, &archive),
    ] {
        let found = read(format, bytes, &losses()).unwrap();
        assert_eq!(found, ["losses [1.0, 0.5]"], "{format:?}");
        let message = read(format, bytes, &Columns::default()).unwrap_err();
        assert!(message.contains("predictions"), "{format:?}: {message}");
    }
}

#[test]
fn by_label_a_group_is_the_name_of_a_class_where_it_has_one() {
    let csv = b"id,t,label,prediction,score\na,1,sit,walk,0.1\nb,1,walk,sit,0.2\n";
    let found = read(Format::Csv, csv, &by("label")).unwrap();
    assert_eq!(found, ["label 0; group sit", "label 1; group walk"]);
    let json = br#"{"label": "7", "predictions": ["7"], "scores": [0.5]}"#;
    let found = read(Format::Jsonl, json, &by("label")).unwrap();
    assert_eq!(found, ["label 0; group 7"]);
    let names: ArrayRef = Arc::new(StringArray::from(vec![None, Some("x")]));
    let losses = Columns {
        losses: true,
        ..by("label")
    };
    let table = arrow(vec![
        ("label", names),
        ("scores", lists(&[&[0.1], &[0.2]])),
        ("losses", lists(&[&[1.0], &[0.0]])),
    ]);
    let found = read(Format::Arrow, &table, &losses).unwrap();
    assert_eq!(found, ["losses [1.0]", "label 0; group x; losses [0.0]"]);
    // Numbers can also be groups.
    let csv = b"id,t,label,prediction,score\na,1,3,2,0.1\n";
    assert_eq!(read(Format::Csv, csv, &by("label")).unwrap(), ["label 3"]);
}

#[test]
fn labels_may_be_missing_in_every_format() {
    let some: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
    let names: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>, None]));
    for (format, bytes, expected) in [
        (Format::Arrow, arrow_with("label", some), ["", "label 1"]),
        (Format::Arrow, arrow_with("label", names), ["", ""]),
        (
            Format::Arrow,
            arrow_with("label", Arc::new(NullArray::new(2))),
            ["", ""],
        ),
        (
            Format::Npz,
            npz(&[
                ("predictions", "|u1", &[2, 2], vec![0, 1, 1, 1]),
                ("scores", "<f8", &[2, 2], doubles(&[0.1, 0.2, 0.3, 0.4])),
                ("labels", "|i1", &[2], vec![255, 1]),
                ("missing", "|i1", &[], vec![255]),
            ]),
            ["", "label 1"],
        ),
        (
            Format::Jsonl,
            jsonl_with("label", ["null", "1"]),
            ["", "label 1"],
        ),
        (
            Format::Csv,
            csv_with("label", ["", "", "1", "1"]),
            ["", "label 1"],
        ),
    ] {
        let found = read(format, &bytes, &Columns::default()).unwrap();
        assert_eq!(found, expected, "{format:?}");
    }
}

#[test]
fn a_column_that_is_missing_is_named_with_those_found() {
    let ones: ArrayRef = Arc::new(Int64Array::from(vec![1, 1]));
    for (format, bytes, word, more) in [
        (Format::Arrow, arrow_with("x", ones), "column", "scores, x"),
        (
            Format::Npz,
            npz_with("x", "|u1", &[2], vec![1, 1]),
            "array",
            "scores, x",
        ),
        (
            Format::Jsonl,
            jsonl_with("x", ["1", "1"]),
            "field",
            "scores, x",
        ),
        (Format::Csv, csv_with("x", ["1"; 4]), "column", "score, x"),
    ] {
        for columns in [by("site"), unit("site"), weight("site"), cost("site")] {
            let message = read(format, &bytes, &columns).unwrap_err();
            let expected = format!("there is no {word} \"site\"; found are ");
            assert!(message.starts_with("toy: "), "{message}");
            assert!(message.contains(&expected), "{message}");
            assert!(message.ends_with(more), "{message}");
            // The column may be missing if it is optional.
            let found = read(format, &bytes, &columns.where_there()).unwrap();
            assert_eq!(found, ["", ""], "{format:?}");
        }
        let loss = if format == Format::Csv {
            "loss"
        } else {
            "losses"
        };
        let message = read(format, &bytes, &losses()).unwrap_err();
        assert!(
            message.contains(&format!("no {word} {loss:?}")),
            "{message}"
        );
        let label = if format == Format::Npz {
            "labels"
        } else {
            "label"
        };
        let message = read(format, &bytes, &numbers()).unwrap_err();
        assert!(
            message.contains(&format!("no {word} {label:?}")),
            "{message}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_remedy() {
    let texts = || -> ArrayRef { Arc::new(StringArray::from(vec!["a", "b"])) };
    let floats = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
    let nulls: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None]));
    let empty: ArrayRef = Arc::new(StringArray::from(vec!["a", ""]));
    let nan = || doubles(&[1.0, f64::NAN]);
    let quarter = || doubles(&[0.25; 4]);
    for (format, bytes, columns, expected) in [
        // Types.
        (
            Format::Arrow,
            arrow_with("w", texts()),
            weight("w"),
            "column w: its type is Utf8; numbers are needed",
        ),
        (
            Format::Arrow,
            arrow_with("w", floats(vec![0.5, 1.0])),
            by("w"),
            "column w: its type is Float64; strings, integers or booleans are needed",
        ),
        (
            Format::Arrow,
            arrow_with("c", floats(vec![0.5, 1.0])),
            cost("c"),
            "column c: its type is Float64; lists of numbers are needed",
        ),
        (
            Format::Arrow,
            arrow_with("label", floats(vec![0.5, 1.0])),
            Columns::default(),
            "null where a label is missing (in pandas: .astype(\"Int64\"))",
        ),
        (
            Format::Npz,
            npz_with("w", "|S1", &[2], vec![65, 66]),
            weight("w"),
            "row 1, w: its type is bytes; numbers are needed: save w.astype(np.float64)",
        ),
        (
            Format::Npz,
            npz_with("w", "<f8", &[2], nan()),
            unit("w"),
            "row 1, w: its type is float64; strings, integers or booleans are needed",
        ),
        (
            Format::Npz,
            npz_with("c", "<f8", &[2], nan()),
            cost("c"),
            "c: its shape is (2,); (n, T) is needed",
        ),
        (
            Format::Jsonl,
            jsonl_with("w", ["1", "\"x\""]),
            weight("w"),
            "line 2, character ",
        ),
        (
            Format::Jsonl,
            jsonl_with("site", ["1", "1.5"]),
            by("site"),
            "expected an integer or a string",
        ),
        (
            Format::Csv,
            csv_with("w", ["1", "1", "x", "x"]),
            weight("w"),
            "line 4, w: \"x\" is not a number",
        ),
        // Columns that are missing.
        (
            Format::Arrow,
            arrow_with("patient", nulls),
            unit("patient"),
            "row 2, patient: the value is null; fill it in or drop the row",
        ),
        (
            Format::Arrow,
            arrow_with("patient", empty),
            unit("patient"),
            "row 2, patient: it is empty; fill it in, or drop the sequence",
        ),
        (
            Format::Npz,
            npz_with("patient", "|S1", &[2], vec![65, 0]),
            unit("patient"),
            "row 2, patient: it is empty; fill it in, or drop the sequence",
        ),
        (
            Format::Jsonl,
            jsonl_with("patient", ["\"a\"", "null"]),
            unit("patient"),
            "line 2, patient: it is null; fill it in, or drop the line",
        ),
        (
            Format::Csv,
            csv_with("patient", ["a", "a", "", ""]),
            unit("patient"),
            "id \"b\", patient: it is empty; fill it in, or drop the sequence",
        ),
        (
            Format::Csv,
            csv_with("w", ["1", "1", "", ""]),
            weight("w"),
            "line 4, w: \"\" is not a number",
        ),
        // One value per sequence.
        (
            Format::Csv,
            csv_with("site", ["1", "2", "3", "3"]),
            by("site"),
            "line 3, group: the group of \"a\" is another one in an earlier row; a sequence has \
             one group, the same at all its steps",
        ),
        (
            Format::Csv,
            csv_with("w", ["1", "2", "3", "3"]),
            weight("w"),
            "line 3, weight: the weight of \"a\" is another one",
        ),
        // One value per step.
        (
            Format::Arrow,
            arrow_with("losses", lists(&[&[0.1, 0.2], &[0.3]])),
            losses(),
            "row 2, losses: 1 values for 2 steps; each step needs one",
        ),
        (
            Format::Npz,
            npz_with("losses", "<f8", &[2, 1], doubles(&[0.5, 0.5])),
            losses(),
            "the arrays disagree on the number of steps: predictions (2, 2), scores (2, 2), \
             losses (2, 1)",
        ),
        (
            Format::Jsonl,
            jsonl_with("tokens", ["[1, 2]", "[1, 2, 3]"]),
            cost("tokens"),
            "line 2, cost: 3 values for 2 steps; each step needs one",
        ),
        // Values that are never valid.
        (
            Format::Npz,
            npz_with("w", "<f8", &[2], nan()),
            weight("w"),
            "row 2, weight: NaN is not a weight: weights are finite and at least 0",
        ),
        (
            Format::Arrow,
            arrow_with("w", floats(vec![1.0, -2.0])),
            weight("w"),
            "row 2, weight: -2 is not a weight",
        ),
        (
            Format::Csv,
            csv_with("w", ["NaN", "NaN", "1", "1"]),
            weight("w"),
            "id \"a\", weight: NaN is not a weight",
        ),
        (
            Format::Jsonl,
            jsonl_with("losses", ["[0.5, 1]", "[1, 1.5]"]),
            losses(),
            "line 2, losses, step 2: 1.5 is not a loss in [0, 1]; scale the losses, or clip them",
        ),
        (
            Format::Csv,
            csv_with("loss", ["0", "1", "1", "1.5"]),
            losses(),
            "id \"b\", losses, step 2: 1.5 is not a loss in [0, 1]",
        ),
        (
            Format::Npz,
            npz_with("labels", "|i1", &[2], vec![255, 254]),
            Columns::default(),
            "row 1, labels: -1 is not a class; classes are integers from 0 to 4294967295. If it stands \
             for a label that is not known, say so by one more value in the archive: np.savez(..., \
             missing=-1)",
        ),
        (
            Format::Npz,
            npz_with("labels", "<f8", &[2], nan()),
            numbers(),
            "NaN is not a number that can be predicted or true",
        ),
        (
            Format::Npz,
            npz_with("c", "<f8", &[2, 2], [quarter(), vec![]].concat()),
            by("c"),
            "c: its shape is (2, 2); (n) is needed",
        ),
    ] {
        let message = read(format, &bytes, &columns).unwrap_err();
        assert!(message.starts_with("toy: "), "{message}");
        assert!(message.contains(expected), "{message}\nlacks: {expected}");
    }
}

/// Writes sequences with sites, patients and similar columns.
fn write(path: &std::path::Path, numbers: std::ops::Range<u64>, columns: &Columns) {
    let options = WriteOptions {
        columns: columns.clone(),
        ..WriteOptions::default()
    };
    let mut writer = TraceWriter::create(path, options).unwrap();
    let (synthetic, mut sequence) = (SyntheticClassifier::new(4, 9, 3), DrawnSequence::default());
    for number in numbers {
        synthetic.draw(number, &mut sequence);
        let id = number.to_string();
        let patient = format!("p{}", number * 7919 % 600);
        let costs: Vec<f32> = (0..sequence.scores.len()).map(|t| t as f32 + 1.0).collect();
        let row = Sequence {
            id: Some(&id),
            label: (number % 3 > 0).then_some(sequence.label),
            predictions: Some(&sequence.predictions),
            scores: Some(&sequence.scores),
            about: About {
                group: Some(["north", "south"][number as usize % 2]),
                unit: Some(&patient),
                weight: Some(0.5 + (number % 4) as f64 / 2.0),
                costs: Some(&costs),
            },
            ..Sequence::default()
        };
        writer.write(row).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn files_give_the_rule_of_what_they_hold_whatever_is_promised() {
    let all = Columns {
        group: named("site"),
        unit: named("patient"),
        weight: named("w"),
        costs: named("cost"),
        ..Columns::default()
    };
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), 0..1400, &all);
    write(&folder.path().join("b.parquet"), 1400..3000, &all);
    let disagreement = || Ask {
        method: Some(Method::Adaptive),
        loss: Some(haltwise::terms::Loss::Disagreement),
        ..Ask::default()
    };
    for ask in [
        Ask {
            by: named("site"),
            ..disagreement()
        },
        Ask {
            unit: named("patient"),
            ..disagreement()
        },
        Ask {
            weight: named("w"),
            weight_bound: Some(2.0),
            cost: Some(haltwise::terms::Cost::Column("cost".into())),
            ..disagreement()
        },
    ] {
        let plan = Plan::new(ask).unwrap();
        let columns = Columns::of(plan.terms());
        let mut quiet = |_, _| {};
        let files = Files::new(&[folder.path()], u64::MAX, &mut quiet).unwrap();
        let files = files.with(columns.clone());
        let outputs = read_outputs(&files.files(), &columns, &mut |_, _| {}).unwrap();
        let found = plan.calibrate(Inputs::one(&files)).unwrap();
        let expected = plan.calibrate(Inputs::one(&outputs)).unwrap();
        assert_eq!(found.rule, expected.rule);
        // Evaluated in parts or one by one, by the columns that the rule needs.
        let evaluated = files.evaluate(&found.rule).unwrap();
        let own = Some(haltwise::evaluate::CalibratedOn::All);
        assert_eq!(evaluated.evaluation.calibrated_on, own);
        let mut evaluator = haltwise::evaluate::Evaluator::for_rule(&found.rule);
        let mut position = 0;
        visit_traces(&files.files(), &columns, &mut |_, _| {}, &mut |row| {
            let key = haltwise::traces::Key::new(row.id(), position);
            position += 1;
            evaluator
                .push(key, row)
                .map(drop)
                .map_err(|e| e.to_string())
        })
        .unwrap();
        let mut expected = evaluator.finish().unwrap();
        expected.calibrated_on = own;
        assert_eq!(evaluated.evaluation, expected);
    }
    // The error names a file that lacks a needed column.
    let terms = Terms {
        by: named("hospital"),
        ..Terms::default()
    };
    let mut quiet = |_, _| {};
    let files = Files::new(&[folder.path()], u64::MAX, &mut quiet).unwrap();
    let files = files.with(Columns::of(&terms));
    let survey = haltwise::corridor::Source::survey(&files, Admission::new(&terms, 0));
    let message = survey.unwrap_err().to_string();
    assert!(
        message.contains("a.parquet: there is no column \"hospital\""),
        "{message}"
    );
}

#[test]
fn names_that_mean_something_else_are_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let refused = |columns| {
        let options = WriteOptions {
            columns,
            ..WriteOptions::default()
        };
        TraceWriter::create(&path, options).unwrap_err().to_string()
    };
    let message = refused(weight("scores"));
    assert!(
        message.contains("\"scores\" has a meaning of its own"),
        "{message}"
    );
    let twice = Columns {
        weight: named("x"),
        ..cost("x")
    };
    assert!(refused(twice).contains("two columns are called \"x\""));
}
