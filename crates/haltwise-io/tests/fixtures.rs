//! Files as NumPy and PyArrow write them are read correctly, or refused with a good
//! message.

use std::error::Error as _;
use std::io;
use std::path::PathBuf;

use haltwise::score::ScoreSource;
use haltwise_io::{Columns, ErrorKind, read_traces, trace_files, visit_traces};

/// A sequence as it was read: id, label, predictions, scores, probabilities.
type Row = (
    Option<String>,
    Option<u32>,
    Vec<u32>,
    Vec<f32>,
    Option<Vec<f32>>,
);

fn fixture(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    folder.join(name)
}

fn read(name: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let none = Columns::default();
    visit_traces(&[fixture(name)], &none, &mut |_, _| {}, &mut |row| {
        rows.push((
            row.id().map(str::to_owned),
            row.label(),
            row.predictions().to_vec(),
            row.scores().to_vec(),
            row.probs().map(<[f32]>::to_vec),
        ));
        Ok(())
    })
    .unwrap_or_else(|e| panic!("{e}"));
    rows
}

/// The probabilities of `generate.py`, in 256ths.
const PROBS: [&[[u32; 3]]; 3] = [
    &[[96, 96, 64], [32, 64, 160], [16, 32, 208], [0, 0, 256]],
    &[[64, 128, 64], [192, 32, 32]],
    &[[86, 85, 85], [100, 120, 36], [20, 220, 16]],
];
const LABELS: [u32; 3] = [2, 0, 1];
const PREDICTIONS: [&[u32]; 3] = [&[0, 2, 2, 2], &[1, 0], &[0, 1, 1]];
const TEXT_IDS: [&str; 3] = ["first", "zweite", "τρίτη"];
const NUMBER_IDS: [&str; 3] = ["7", "-8", "9"];

fn scores(i: usize) -> Vec<f32> {
    let largest = |step: &[u32; 3]| step.iter().max().copied().unwrap_or_default();
    PROBS[i].iter().map(|s| largest(s) as f32 / 256.0).collect()
}

fn probs(i: usize) -> Vec<f32> {
    PROBS[i]
        .concat()
        .iter()
        .map(|&p| p as f32 / 256.0)
        .collect()
}

fn assert_three(name: &str, ids: Option<[&str; 3]>, with_probs: bool) {
    let rows = read(name);
    assert_eq!(rows.len(), 3, "{name}");
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.0.as_deref(), ids.map(|ids| ids[i]), "{name}");
        assert_eq!(row.1, Some(LABELS[i]), "{name}");
        assert_eq!(row.2, PREDICTIONS[i], "{name}");
        assert_eq!(row.3, scores(i), "{name}");
        assert_eq!(row.4, with_probs.then(|| probs(i)), "{name}");
    }
}

#[test]
fn numpy_archives_of_any_type_order_and_packing_are_read_alike() {
    assert_three("f8_i8.npz", None, false);
    assert_three("compressed.npz", Some(TEXT_IDS), false);
    assert_three("big_endian.npz", Some(TEXT_IDS), false);
    assert_three("fortran.npz", Some(TEXT_IDS), true);
    assert_three("probs_f2.npz", None, true);
    assert_three("number_ids.npz", Some(NUMBER_IDS), false);
    assert_three("padded_with_nan.npz", None, false);
}

#[test]
fn arrow_columns_of_any_type_and_packing_are_read_alike() {
    assert_three("list.parquet", Some(TEXT_IDS), false);
    assert_three("large_list.parquet", Some(TEXT_IDS), false);
    assert_three("list.feather", Some(TEXT_IDS), false);
    assert_three("large_list.feather", Some(TEXT_IDS), false);
    assert_three("list_view.feather", Some(TEXT_IDS), false);
    assert_three("probs_fixed.parquet", None, true);
    assert_three("probs_half.parquet", None, true);
    assert_three("stream.arrow", None, true);
    assert_three("steps.parquet", Some(TEXT_IDS), false);
    assert_three("brotli_elsewhere.parquet", Some(TEXT_IDS), false);
}

#[test]
fn a_label_that_is_null_is_missing() {
    let rows = read("null_label.parquet");
    assert_eq!((rows[0].1, rows[1].1), (Some(0), None));
}

#[test]
fn lists_of_fixed_size_are_read() {
    let rows = read("fixed_size_list.parquet");
    assert_eq!(rows[0], (None, Some(0), vec![0, 1], vec![0.25, 0.5], None));
    assert_eq!(rows[1], (None, Some(1), vec![1, 1], vec![0.75, 1.0], None));
}

#[test]
fn classes_with_names_are_right_where_they_should_be() {
    for (name, ids) in [("names.parquet", NUMBER_IDS), ("views.arrow", TEXT_IDS)] {
        for (i, row) in read(name).iter().enumerate() {
            assert_eq!(row.0.as_deref(), Some(ids[i]), "{name}");
            let right: Vec<bool> = row.2.iter().map(|p| Some(*p) == row.1).collect();
            let expected: Vec<bool> = PREDICTIONS[i].iter().map(|p| *p == LABELS[i]).collect();
            assert_eq!(right, expected, "{name}");
        }
    }
}

#[test]
fn the_source_of_the_scores_is_known() {
    let source = |name| {
        let traces = read_traces(&[fixture(name)], &mut |_, _| {}).unwrap();
        traces.source().clone()
    };
    assert_eq!(source("probs_f2.npz"), ScoreSource::MaxProbability);
    assert_eq!(source("probs_half.parquet"), ScoreSource::MaxProbability);
    assert_eq!(source("fortran.npz"), ScoreSource::Confidence);
    assert_eq!(source("list.parquet"), ScoreSource::Confidence);
}

#[test]
fn several_files_make_one_set() {
    let files = ["list.parquet", "number_ids.npz", "f8_i8.npz"].map(fixture);
    let mut last = (0, 0);
    let traces = read_traces(&files, &mut |done, of| last = (done, of)).unwrap();
    assert_eq!(traces.len(), 9);
    assert_eq!(traces.t_max(), 4);
    assert!(last.0 == last.1 && last.1 > 0);
}

#[test]
fn an_id_may_not_come_again_in_another_file() {
    let files = ["list.parquet", "compressed.npz"].map(fixture);
    let message = read_traces(&files, &mut |_, _| {}).unwrap_err().to_string();
    assert!(message.contains("compressed.npz: row 1"), "{message}");
    assert!(message.contains("id \"first\" was met before"), "{message}");
}

#[test]
fn scores_of_two_kinds_do_not_mix() {
    let files = ["f8_i8.npz", "probs_f2.npz"].map(fixture);
    let message = read_traces(&files, &mut |_, _| {}).unwrap_err().to_string();
    assert!(message.contains("probs_f2.npz: row 1"), "{message}");
    assert!(message.contains("scores of one kind"), "{message}");
}

fn refused(path: PathBuf) -> String {
    match read_traces(&[&path], &mut |_, _| {}) {
        Ok(traces) => panic!("{} was read: {traces:?}", path.display()),
        Err(e) => e.to_string(),
    }
}

#[test]
fn every_refusal_names_the_place_and_the_problem() {
    for (name, parts) in [
        (
            "bad_objects.npz",
            &[
                "predictions: it holds Python objects",
                "padded, with `lengths`",
            ][..],
        ),
        (
            "bad_names.npz",
            &["neither an array `probs` nor", "found are arr_0, scores"],
        ),
        ("bad_no_scores.npz", &["neither an array `probs` nor both"]),
        (
            "bad_shapes.npz",
            &["disagree on the number of sequences", "predictions (3, 2)"],
        ),
        (
            "bad_steps.npz",
            &["disagree on the number of steps", "predictions (2, 3)"],
        ),
        (
            "bad_axes.npz",
            &["labels: its shape is (1, 2); (n) is needed"],
        ),
        (
            "bad_float_labels.npz",
            &["labels: its type is float64; integers are needed", "astype"],
        ),
        (
            "bad_int_scores.npz",
            &["scores: its type is int64; float16, float32 or float64"],
        ),
        (
            "bad_negative.npz",
            &["row 2, predictions, step 2: -1 is not a class"],
        ),
        ("bad_nan.npz", &["row 2, scores, step 2: the score NaN"]),
        (
            "bad_lengths.npz",
            &["row 2, lengths: the length 3 is not between 1 and the 2"],
        ),
        (
            "bad_logits.npz",
            &[
                "row 1, probs, step 1: 3 is not a probability",
                "apply softmax",
            ],
        ),
        (
            "bad_label.npz",
            &["row 2, label: class 2 is out of range", "2 classes"],
        ),
        ("bad_twice.npz", &["row 2: the id \"a\" was met before"]),
        ("bad_none.npz", &["no sequence"]),
        (
            "bad_columns.parquet",
            &["columns are missing", "found are label, score"],
        ),
        (
            "bad_type.parquet",
            &["column label: its type is Float64; integers or strings"],
        ),
        (
            "bad_scores_type.parquet",
            &["column scores", "lists of floats are needed"],
        ),
        (
            "bad_null_score.parquet",
            &["row 2, scores, step 2: the value is null"],
        ),
        ("bad_ragged.parquet", &["row 2: 2 predictions but 1 scores"]),
        ("bad_nan.parquet", &["row 2, scores, step 2: the score NaN"]),
        ("bad_twice.parquet", &["row 2: the id \"a\" was met before"]),
        ("bad_negative_t.parquet", &["row 1, t: -1 is not a step"]),
        ("bad_missing_step.parquet", &["id \"a\": step 2 is missing"]),
        (
            "bad_double_step.parquet",
            &["row 2: step 1 of \"a\" is there twice"],
        ),
        (
            "bad_probs_ragged.parquet",
            &["row 1, probs, step 2: 1 probabilities, but 2"],
        ),
        ("bad_none.parquet", &["no sequence"]),
        (
            "bad_brotli.parquet",
            &["its compression is not read here (BROTLI", "zstd"],
        ),
    ] {
        let message = refused(fixture(name));
        for part in parts {
            assert!(message.contains(part), "{message}");
            assert!(message.contains(name), "{message}");
        }
    }
}

#[test]
fn every_refusal_has_its_kind() {
    use ErrorKind::{Conflict, Data, Format, NotFound, Unsupported};
    for (name, kind) in [
        ("absent.npz", NotFound),
        ("absent.parquet", NotFound),
        ("bad_*.arrow", NotFound),
        ("generate.py", Unsupported),
        ("bad_brotli.parquet", Unsupported),
        ("bad_objects.npz", Unsupported),
        ("bad_names.npz", Format),
        ("bad_columns.parquet", Format),
        ("bad_scores_type.parquet", Format),
        ("bad_steps.npz", Conflict),
        ("bad_ragged.parquet", Conflict),
        ("bad_nan.npz", Data),
        ("bad_nan.parquet", Data),
        ("bad_twice.parquet", Data),
        ("bad_missing_step.parquet", Data),
        ("bad_label.npz", Data),
    ] {
        let files = trace_files(&[fixture(name)]);
        let error = files.and_then(|files| read_traces(&files, &mut |_, _| {}));
        let error = error.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
    let twice = ["list.parquet", "list.parquet"].map(fixture);
    let error = read_traces(&twice, &mut |_, _| {}).unwrap_err();
    assert_eq!(error.kind(), Conflict, "{error}");
}

#[test]
fn what_other_libraries_said_is_the_source() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("t.npz", "PK\x03\x04 but no archive"),
        ("t.parquet", "PAR1 but no Parquet PAR1"),
        ("t.arrow", "ARROW1\0\0 ARROW1"),
        ("t.jsonl", "{\"label\": 0, \"scores\": [0.5"),
        ("t.csv", "id,t,label,prediction,score\na,1,0\n"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = read_traces(&[&path], &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Format, "{error}");
        assert!(error.source().is_some(), "{error}");
    }
    let absent = folder.path().join("absent.csv");
    let error = read_traces(&[absent], &mut |_, _| {}).unwrap_err();
    let source = error.source().and_then(|s| s.downcast_ref::<io::Error>());
    assert_eq!(source.unwrap().kind(), io::ErrorKind::NotFound);
    assert!(
        error
            .to_string()
            .ends_with("absent.csv: there is no such file")
    );
}

#[test]
fn a_file_cut_short_anywhere_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "compressed.npz",
        "f8_i8.npz",
        "list.parquet",
        "list.feather",
        "stream.arrow",
    ] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let cut = folder.path().join(name);
        for length in (0..whole.len()).step_by(if name == "stream.arrow" { 1 } else { 7 }) {
            std::fs::write(&cut, &whole[..length]).unwrap();
            let message = refused(cut.clone());
            assert!(message.contains(name), "{message}");
        }
    }
}

#[test]
fn a_flipped_byte_is_an_error_or_harmless_but_never_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "compressed.npz",
        "fortran.npz",
        "list.parquet",
        "steps.parquet",
        "list.feather",
        "large_list.feather",
    ] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let flipped = folder.path().join(name);
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            std::fs::write(&flipped, &bytes).unwrap();
            let _ = read_traces(&[&flipped], &mut |_, _| {});
        }
    }
}

#[test]
fn a_checksum_that_does_not_match_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.npz");
    let mut bytes = std::fs::read(fixture("f8_i8.npz")).unwrap();
    // 0.375, the first score, becomes another number in [0, 1].
    let at = bytes
        .windows(8)
        .position(|w| w == 0.375_f64.to_le_bytes())
        .unwrap();
    bytes[at..at + 8].copy_from_slice(&0.5_f64.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let message = refused(path);
    assert!(
        message.contains("scores") && message.contains("damaged"),
        "{message}"
    );
}

#[test]
fn what_is_no_trace_file_at_all_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(refused(folder.path().to_path_buf()).contains("it is a folder; name the files"));
    assert!(refused(folder.path().join("no.npz")).contains("there is no such file"));
    assert!(refused(put("a.txt", b"x")).contains("known are .npz, .parquet"));
    assert!(refused(put("a.npz.gz", b"x")).contains("unpack it first"));
    for name in ["e.npz", "e.parquet", "e.arrow", "e.jsonl", "e.csv"] {
        assert!(refused(put(name, b"")).contains("it is empty"), "{name}");
    }
    for name in ["g.npz", "g.parquet", "g.arrow", "g.feather"] {
        let message = refused(put(name, b"this is not what it says it is"));
        assert!(message.contains("again"), "{message}");
    }
    assert!(refused(put("v1.feather", b"FEA1....")).contains("Feather of the first version"));
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.csv");
    std::fs::write(&path, "id").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser can read everything, so there is nothing to test.
    if std::fs::read(&path).is_err() {
        let error = read_traces(&[path], &mut |_, _| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Permission);
        assert!(error.to_string().contains("permission denied"));
    }
}

#[test]
fn packed_text_is_read() {
    use std::io::Write;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.csv.gz");
    let file = std::fs::File::create(&path).unwrap();
    let mut out = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    out.write_all(b"id,t,label,prediction,score\na,1,0,0,0.5\n")
        .unwrap();
    out.finish().unwrap();
    assert_eq!(read_traces(&[&path], &mut |_, _| {}).unwrap().len(), 1);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 4]).unwrap();
    assert!(refused(path).contains("cannot read on"));
}
