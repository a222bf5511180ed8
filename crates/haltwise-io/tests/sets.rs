//! Sets of traces that are read while the world goes on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use haltwise::simulate::{Walk, Walked};
use haltwise::{Calibration, Fitting, SetAside, Traces};
use haltwise_io::{
    Extent, SetReader, Snapshot, TraceRow, TraceWriter, WriteOptions, fold_traces, read_fitting,
    read_outputs, read_traces,
};

/// Writes a range of made-up sequences, with or without ids.
fn write(path: &Path, numbers: std::ops::Range<u64>, ids: bool) {
    let walk = Walk::new(4, 9, 3);
    let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
    let mut sequence = Walked::default();
    for number in numbers {
        walk.draw(number, &mut sequence);
        let id = number.to_string();
        let row = TraceRow {
            id: ids.then_some(&id[..]),
            label: sequence.label,
            predictions: &sequence.predictions,
            scores: &sequence.scores,
            probs: None,
            scores_given: true,
        };
        writer.write(&row).unwrap();
    }
    writer.finish().unwrap();
}

fn folder(ids: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), 0..700, ids);
    write(&folder.path().join("b.parquet"), 700..1500, ids);
    folder
}

fn reader<'a>(snapshot: &'a Snapshot, calibration: &'a Calibration) -> SetReader<'a> {
    SetReader {
        snapshot,
        score: None,
        grid: Some(&calibration.grid),
    }
}

#[test]
fn a_set_is_split_while_it_is_read_as_it_would_be_after() {
    for ids in [true, false] {
        let folder = folder(ids);
        let snapshot = Snapshot::new(&[folder.path()]).unwrap();
        let calibration = Calibration::default();
        let screens = SetAside::share(0.4, 11);
        let (mut sets, seen) = reader(&snapshot, &calibration)
            .read(
                2,
                |key| Some(usize::from(!screens.has(key))),
                &mut |_, _| {},
            )
            .unwrap();
        let all = read_traces(&snapshot.files(), &mut |_, _| {}).unwrap();
        assert_eq!(seen.set().fingerprint, all.fingerprint());
        assert_eq!((seen.set().sequences, seen.t_max), (1500, 9));
        let rows: Vec<u64> = seen.inputs.iter().map(|input| input.sequences).collect();
        assert_eq!(rows, [700, 800]);
        let (screening, certifying) = all.split(0.4, 11);
        for (set, expected) in [(1, certifying.traces()), (0, screening.traces())] {
            let set: Traces = sets.remove(set);
            assert_eq!(set.len(), expected.len());
            assert_eq!(set.fingerprint(), expected.fingerprint());
        }
    }
}

#[test]
fn what_is_set_aside_for_fitting_is_what_a_split_would_set_aside() {
    for (ids, fraction) in [(true, 0.3), (false, 0.3), (true, 0.0), (true, 1.0)] {
        let folder = folder(ids);
        let snapshot = Snapshot::new(&[folder.path()]).unwrap();
        let (fitting, set_aside, seen) =
            read_fitting(&snapshot, fraction, 2, &mut |_, _| {}).unwrap();
        let outputs = read_outputs(&snapshot.files(), &mut |_, _| {}).unwrap();
        let (expected, rest) = outputs.split(fraction, 2);
        let print = |fitting: &Fitting| fitting.outputs().fingerprint();
        assert_eq!(print(&fitting), print(&expected), "{ids} {fraction}");
        // And it can be told from a key alone.
        let calibration = Calibration::default();
        let (sets, _) = reader(&snapshot, &calibration)
            .read(1, |key| (!set_aside.has(key)).then_some(0), &mut |_, _| {})
            .unwrap();
        assert_eq!(sets[0].len(), rest.len());
        assert_eq!(
            seen.set().sequences as usize,
            rest.len() + fitting.outputs().len()
        );
    }
}

#[test]
fn every_sequence_is_shown_once_with_its_place() {
    let folder = folder(true);
    let files = Snapshot::new(&[folder.path()]).unwrap().files();
    let states = fold_traces(&files, &mut |_, _| {}, Vec::new, |seen, place, row| {
        seen.push((place.position, place.file, row.id.unwrap().to_owned()));
        Ok(())
    });
    let mut seen: Vec<_> = states.unwrap().into_iter().flatten().collect();
    seen.sort();
    let expected = (0..1500_u64).map(|i| (i, usize::from(i >= 700), i.to_string()));
    assert!(seen.into_iter().eq(expected));
}

#[test]
fn the_extent_is_known_before_reading() {
    let folder = folder(true);
    let files = Snapshot::new(&[folder.path()]).unwrap().files();
    let extent = Extent::of(&files).unwrap();
    let all = read_traces(&files, &mut |_, _| {}).unwrap();
    assert_eq!(extent.sequences, 1500);
    assert_eq!(extent.steps, all.lengths().sum::<usize>() as u64);
}

#[test]
fn files_that_change_while_they_are_read_are_refused() {
    let calibration = Calibration::default();
    for (name, why) in [("b.parquet", "it changed"), ("c.parquet", "it appeared")] {
        let folder = folder(true);
        let changed = folder.path().join(name);
        let snapshot = Snapshot::new(&[folder.path()]).unwrap();
        let mut once = Some(());
        // Someone else writes there while the first file is being read.
        let mut meddle = |_, _| {
            if once.take().is_some() {
                write(&changed, 9_000..9_100, true);
            }
        };
        let read = reader(&snapshot, &calibration).read(1, |_| Some(0), &mut meddle);
        let message = read.unwrap_err().to_string();
        // Caught in the act, the file's content no longer fits its metadata.
        assert!(message.contains(name), "{message}");
        assert!(
            message.contains(why) || message.contains("decoded"),
            "{message}"
        );
    }
}

#[test]
fn sequences_unlike_the_others_are_named_with_their_file() {
    let folder = tempfile::tempdir().unwrap();
    let line = |more: &str| format!("{{\"label\":0,\"predictions\":[0],\"scores\":[0.5]{more}}}\n");
    let (with, without) = (line(",\"probs\":[[0.5,0.5]]"), line(""));
    std::fs::write(folder.path().join("a.jsonl"), with.repeat(20)).unwrap();
    std::fs::write(folder.path().join("b.jsonl"), without.repeat(20)).unwrap();
    let snapshot = Snapshot::new(&[folder.path()]).unwrap();
    let read = read_fitting(&snapshot, 0.9, 0, &mut |_, _| {});
    let message = read.unwrap_err().to_string();
    assert!(message.contains("b.jsonl: sequence "), "{message}");
    assert!(
        message.contains("it has scores alone, where others"),
        "{message}"
    );
}
