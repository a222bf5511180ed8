//! Sets of traces that change while they are read.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::cell::Cell;
use std::path::Path;

use haltwise::corridor::{Admission, CalibrateError, Fold, Room, Share, Source};
use haltwise::plan::Grid;
use haltwise::simulate::{DrawnSequence, SyntheticClassifier};
use haltwise::terms::Terms;
use haltwise::traces::{Key, Trace};
use haltwise::{Ask, Inputs, Method, Plan, Sequence};
use haltwise_io::{
    Columns, Extent, Files, Snapshot, TraceWriter, WriteOptions, fold_traces, read_outputs,
    read_traces,
};

/// Writes a range of made-up sequences, with or without ids.
fn write(path: &Path, numbers: std::ops::Range<u64>, ids: bool) {
    let synthetic = SyntheticClassifier::new(4, 9, 3);
    let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
    let mut sequence = DrawnSequence::default();
    for number in numbers {
        synthetic.draw(number, &mut sequence);
        let id = number.to_string();
        let sequence = Sequence {
            id: ids.then_some(&id[..]),
            label: Some(sequence.label),
            predictions: Some(&sequence.predictions),
            scores: Some(&sequence.scores),
            ..Sequence::default()
        };
        writer.write(sequence).unwrap();
    }
    writer.finish().unwrap();
}

fn folder(ids: bool) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.parquet"), 0..700, ids);
    write(&folder.path().join("b.parquet"), 700..1500, ids);
    folder
}

fn plan(method: Method) -> Plan {
    Plan::new(Ask {
        method: Some(method),
        seed: (method != Method::Marginal).then_some(11),
        ..Ask::default()
    })
    .unwrap()
}

/// Files that count how often they are read.
struct Counted<'f> {
    files: Files<'f>,
    passes: Cell<usize>,
}

impl Fold for Counted<'_> {
    type Error = haltwise_io::Error;

    fn refuse(&self, error: CalibrateError) -> Self::Error {
        Fold::refuse(&self.files, error)
    }

    fn room(&self, grid: &Grid) -> Result<Room, Self::Error> {
        Fold::room(&self.files, grid)
    }

    fn may_hold(&self) -> u64 {
        self.files.may_hold()
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, Self::Error> {
        self.passes.set(self.passes.get() + 1);
        self.files.fold(start, visit)
    }
}

/// How often files are read to calibrate.
fn passes(plan: &Plan, folder: &Path, memory: u64) -> usize {
    let mut quiet = |_, _| {};
    let counted = Counted {
        files: Files::new(&[folder], memory, &mut quiet).unwrap(),
        passes: Cell::new(0),
    };
    plan.calibrate(Inputs::one(&counted)).unwrap();
    counted.passes.get()
}

#[test]
fn traces_that_fit_into_memory_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("a.csv"), 0..1500, true);
    for method in [Method::Adaptive, Method::Conditional, Method::Marginal] {
        assert_eq!(
            passes(&plan(method), folder.path(), u64::MAX),
            1,
            "{method:?}"
        );
    }
    let little = haltwise_io::LEAST_MEMORY + 1_000_000;
    assert_eq!(passes(&plan(Method::Adaptive), folder.path(), little), 2);
}

#[test]
fn files_larger_than_memory_give_the_rule_of_what_they_hold() {
    for ids in [true, false] {
        let folder = folder(ids);
        let files = Snapshot::new(&[folder.path()]).unwrap().files();
        let outputs = read_outputs(&files, &Columns::default(), &mut |_, _| {}).unwrap();
        for method in [Method::Adaptive, Method::Conditional, Method::Marginal] {
            let expected = plan(method).calibrate(Inputs::one(&outputs)).unwrap();
            // With all memory, and with the least possible: then only a part screens.
            for memory in [u64::MAX, haltwise_io::LEAST_MEMORY + 25_000] {
                let mut quiet = |_, _| {};
                let files = Files::new(&[folder.path()], memory, &mut quiet).unwrap();
                let found = plan(method).calibrate(Inputs::one(&files)).unwrap();
                if found.warnings.is_empty() {
                    assert_eq!(found.rule, expected.rule, "{method:?}");
                } else {
                    assert_eq!(method, Method::Conditional, "{:?}", found.warnings);
                    assert_eq!(found.rule.certified_on(), expected.rule.certified_on());
                }
            }
        }
    }
}

#[test]
fn what_is_set_aside_for_fitting_does_not_depend_on_where_it_lies() {
    for (ids, share) in [(true, Some(0.3)), (false, Some(0.3)), (true, None)] {
        let folder = folder(ids);
        let mut quiet = |_, _| {};
        let files = Files::new(&[folder.path()], u64::MAX, &mut quiet).unwrap();
        let outputs = read_outputs(&files.files(), &Columns::default(), &mut |_, _| {}).unwrap();
        let terms = Terms::default();
        let wanted = Share {
            share,
            seed: 2,
            who: Admission::new(&terms, 2),
            again: false,
        };
        let drawn = files.fitting(wanted).unwrap();
        let expected = outputs.fitting(wanted).unwrap();
        assert_eq!(drawn.aside, expected.aside);
        assert_eq!(drawn.survey, expected.survey);
        assert_eq!(drawn.fitting.len(), expected.fitting.len());
    }
}

#[test]
fn every_sequence_is_shown_once_with_its_place() {
    let folder = folder(true);
    let files = Snapshot::new(&[folder.path()]).unwrap().files();
    let none = Columns::default();
    let states = fold_traces(
        &files,
        &none,
        &mut |_, _| {},
        Vec::new,
        |seen, place, row| {
            seen.push((place.position, place.file, row.id().unwrap().to_owned()));
            Ok(())
        },
    );
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
    for (name, why) in [("b.parquet", "it changed"), ("c.parquet", "it appeared")] {
        let folder = folder(true);
        let changed = folder.path().join(name);
        let mut once = Some(());
        // Another process writes there while the first file is being read.
        let mut meddle = |_, _| {
            if once.take().is_some() {
                write(&changed, 9_000..9_100, true);
            }
        };
        let files = Files::new(&[folder.path()], u64::MAX, &mut meddle).unwrap();
        let message = files
            .survey(Admission::new(&Terms::default(), 0))
            .unwrap_err()
            .to_string();
        // The changed content no longer fits the file's metadata.
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
    let mut quiet = |_, _| {};
    let files = Files::new(&[folder.path()], u64::MAX, &mut quiet).unwrap();
    let terms = Terms::default();
    let read = files.fitting(Share {
        share: Some(0.9),
        seed: 0,
        who: Admission::new(&terms, 0),
        again: false,
    });
    let message = read.unwrap_err().to_string();
    assert!(message.contains("b.jsonl: line 1: "), "{message}");
    assert!(
        message.contains("differ from the sequences before"),
        "{message}"
    );
}
