//! Small files that unpack to much, or claim much, are refused before they take the memory: every
//! run here may have little more than `--memory` allows, and is killed if it asks for more.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, write_traces};
use flate2::Compression;
use flate2::write::GzEncoder;
use haltwise_lstm::{Labelled, Model, Series, TrainOptions, Trainer};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// What a run may take: `--memory 256MiB`, and as much again for code, stacks and buffers.
const MOST_KIB: u64 = 512 << 10;

/// Runs a command in a folder, in which it may take no more than [`MOST_KIB`] of memory.
fn bounded(folder: &Path, words: &str) -> Ran {
    let script = format!("ulimit -v {MOST_KIB}; exec \"$0\" \"$@\"");
    let output = Command::new("sh")
        .current_dir(folder)
        .args(["-c", &script, env!("CARGO_BIN_EXE_haltwise")])
        .args(words.split_whitespace())
        // Each thread and each of the allocator's arenas sets address space aside.
        .envs([("RAYON_NUM_THREADS", "2"), ("MALLOC_ARENA_MAX", "2")])
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    Ran {
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        // A run that was killed has none.
        code: output.status.code().unwrap_or(-1),
    }
}

/// The message of a run that must refuse what it is given, and that names the file.
fn refused(folder: &Path, words: &str, file: &str, what: &str) {
    let ran = bounded(folder, words);
    assert_eq!(ran.code, 1, "{words}: {}{}", ran.stdout, ran.stderr);
    let message = ran.stderr;
    assert!(message.contains(file), "{words}: {message}");
    assert!(message.contains(what), "{words}: {message}");
    assert!(message.contains("memory"), "{words}: {message}");
}

fn done(folder: &Path, words: &str) -> Ran {
    let ran = bounded(folder, words);
    assert_eq!(ran.code, 0, "{words}: {}", ran.stderr);
    ran
}

/// Writes packed text: parts, each so often.
fn gzip(path: PathBuf, parts: &[(&str, usize)]) {
    let mut packed = GzEncoder::new(File::create(path).unwrap(), Compression::fast());
    for (part, times) in parts {
        let many = part.repeat(1 + (1 << 16) / part.len());
        let (whole, rest) = (
            times * part.len() / many.len(),
            times * part.len() % many.len(),
        );
        for _ in 0..whole {
            packed.write_all(many.as_bytes()).unwrap();
        }
        packed.write_all(&many.as_bytes()[..rest]).unwrap();
    }
    packed.finish().unwrap();
}

/// One array of an archive: its type, its shape as Python writes it, whether it is in Fortran order,
/// and how many zero bytes it has.
type ZeroArray<'a> = (&'a str, &'a str, &'a str, bool, usize);

fn npz(path: PathBuf, arrays: &[ZeroArray<'_>]) {
    let mut zip = ZipWriter::new(File::create(path).unwrap());
    let packed = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for &(name, descr, shape, fortran, bytes) in arrays {
        zip.start_file(format!("{name}.npy"), packed).unwrap();
        let fortran = if fortran { "True" } else { "False" };
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        zip.write_all(b"\x93NUMPY\x01\0").unwrap();
        zip.write_all(&(header.len() as u16).to_le_bytes()).unwrap();
        zip.write_all(header.as_bytes()).unwrap();
        let zeros = vec![0; 1 << 20];
        for start in (0..bytes).step_by(zeros.len()) {
            zip.write_all(&zeros[..zeros.len().min(bytes - start)])
                .unwrap();
        }
    }
    zip.finish().unwrap();
}

#[test]
fn a_packed_line_is_refused_before_it_fills_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let line = [
        ("{\"id\":\"a\",\"label\":0,\"predictions\":[", 1),
        ("0,", 20 << 20),
        ("0]}\n", 1),
    ];
    gzip(path.join("line.jsonl.gz"), &line);
    for words in [
        "inspect line.jsonl.gz --memory 256MiB",
        "calibrate line.jsonl.gz --memory 300MiB -o rule.json",
    ] {
        refused(
            path,
            words,
            "line.jsonl.gz: line 1",
            "the line is longer than",
        );
    }
    // A field in quotes has no end either.
    let field = [
        ("id,t,label,prediction,score,note\na,1,0,0,0.5,\"", 1),
        ("x\n", 20 << 20),
    ];
    gzip(path.join("field.csv.gz"), &field);
    refused(
        path,
        "inspect field.csv.gz --memory 256MiB",
        "field.csv.gz: line 2",
        "the line is longer than",
    );
}

#[test]
fn packed_traces_that_unpack_to_more_than_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let row = format!(
        "{{\"predictions\":[{0}],\"scores\":[{0}]}}\n",
        ["0"; 1000].join(",")
    );
    gzip(path.join("many.jsonl.gz"), &[(&row, 60_000)]);
    refused(
        path,
        "calibrate many.jsonl.gz --loss disagreement --memory 290MiB -o rule.json",
        "many.jsonl.gz",
        "the file is packed",
    );
    refused(
        path,
        "inspect many.jsonl.gz --memory 256MiB",
        "many.jsonl.gz",
        "to keep the traces",
    );
    // Rows that are steps wait until the file ends.
    let waiting = [
        ("id,t,label,prediction,score\n", 1),
        ("a,16777215,0,0,0.5\n", 4_000_000),
    ];
    gzip(path.join("waiting.csv.gz"), &waiting);
    refused(
        path,
        "inspect waiting.csv.gz --memory 256MiB",
        "waiting.csv.gz: line ",
        "to wait for all rows of each sequence",
    );
}

#[test]
fn an_array_in_fortran_order_is_held_only_if_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let (n, steps) = (1 << 16, 1 << 14);
    let shape = format!("({n}, {steps})");
    npz(
        path.join("fortran.npz"),
        &[
            ("predictions", "|i1", &shape, true, n * steps),
            ("scores", "<f2", &shape, false, 2 * n * steps),
        ],
    );
    npz(
        path.join("series.npz"),
        &[
            ("X", "|i1", &shape, true, n * steps),
            ("y", "|i1", "(65536,)", false, n),
        ],
    );
    let fortran = "an array in Fortran order, which is held whole (save np.ascontiguousarray";
    for (words, file) in [
        (
            "inspect fortran.npz --memory 256MiB",
            "fortran.npz: predictions",
        ),
        (
            "train series.npz --memory 256MiB -o model.safetensors",
            "series.npz: array X",
        ),
    ] {
        refused(path, words, file, fortran);
    }
}

#[test]
fn series_are_refused_before_they_fill_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let n = 100 << 20;
    npz(
        path.join("packed.npz"),
        &[
            ("X", "|i1", "(104857600, 1)", false, n),
            ("y", "|i1", "(104857600,)", false, n),
        ],
    );
    refused(
        path,
        "train packed.npz --memory 256MiB -o model.safetensors",
        "packed.npz",
        "one entry for each sequence",
    );
    let line = "1,".repeat(10 << 20);
    std::fs::write(
        path.join("line.ts"),
        format!("@classLabel true a\n@data\n{line}1:a\n"),
    )
    .unwrap();
    refused(
        path,
        "train line.ts --memory 256MiB -o model.safetensors",
        "line.ts: line 3",
        "the line would take",
    );
    std::fs::write(path.join("key.ts"), "@".repeat(200 << 20)).unwrap();
    refused(
        path,
        "train key.ts --memory 256MiB -o model.safetensors",
        "key.ts: line 1",
        "the line would take",
    );
    let many = "1,2:a\n".repeat(8 << 20);
    std::fs::write(
        path.join("many.ts"),
        format!("@classLabel true a b\n@data\n{many}"),
    )
    .unwrap();
    refused(
        path,
        "train many.ts --memory 256MiB -o model.safetensors",
        "many.ts: line ",
        "the sequences up to here",
    );
}

/// One sequence of many steps among many short ones.
fn long_among_short(path: &Path, long: usize, short: usize) {
    let mut text = String::from("@classLabel true a b\n@data\n");
    text += &"1,".repeat(long - 1);
    text += "1:a\n";
    text += &"1,2:a\n2,1:b\n".repeat(short / 2);
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_long_sequence_does_not_pad_the_short_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    // Padded, they would take 20 GB.
    long_among_short(&path.join("uneven.ts"), 100_000, 50_000);
    let values = [1.0, 2.0, 2.0, 1.0].repeat(8);
    let labels = [0, 1].repeat(8);
    let data = Labelled::new(Series::new(&values, 2, 1).unwrap(), &labels).unwrap();
    let options = TrainOptions {
        hidden: 2,
        max_epochs: 1,
        ..TrainOptions::default()
    };
    let names = vec!["a".to_owned(), "b".to_owned()];
    let mut trainer = Trainer::new(data, None, names, options).unwrap();
    trainer.epoch().unwrap();
    let model: Model = trainer.model().unwrap();
    model.save(path.join("model.safetensors")).unwrap();
    let scored = done(
        path,
        "score model.safetensors uneven.ts --memory 256MiB --device cpu -o traces.parquet --json",
    );
    assert!(
        scored.stdout.contains("\"sequences\":50001"),
        "{}",
        scored.stdout
    );
    done(
        path,
        "train uneven.ts --model lstm --hidden 1 --max-epochs 1 --memory 400MiB --device cpu -o small.safetensors",
    );
    // A network that keeps too much of each step is told from the sizes alone.
    refused(
        path,
        "train uneven.ts --model lstm --hidden 256 --memory 256MiB --device cpu -o large.safetensors",
        "for 50,001 sequences of up to 100,000 steps",
        "cut long sequences",
    );
}

#[test]
fn long_documents_are_no_rules() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    write_traces(&path.join("traces.jsonl"), 10, 1);
    let mut file = File::create(path.join("rule.json")).unwrap();
    file.write_all(b"{\"format\": \"haltwise-rule\", \"version\": 2, \"x\": [")
        .unwrap();
    file.write_all("0,".repeat(70 << 20).as_bytes()).unwrap();
    let ran = bounded(path, "inspect rule.json");
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    assert!(
        ran.stderr
            .contains("rule.json: it is longer than 128.0 MiB"),
        "{}",
        ran.stderr
    );
}

#[test]
fn ordinary_files_are_read_within_the_least_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for name in ["t.npz", "t.parquet", "t.arrow", "t.jsonl", "t.csv"] {
        write_traces(&path.join(name), 20_000, 1);
        done(path, &format!("inspect {name} --memory 256MiB"));
        done(
            path,
            &format!("calibrate {name} --memory 264MiB -o rule.json"),
        );
        done(path, &format!("evaluate rule.json {name} --memory 256MiB"));
    }
}
