//! Traces are read back as they were written, in every format and layout.

use std::error::Error;

use haltwise::Sequence;
use haltwise::traces::{About, Numbers, Trace};
use haltwise_io::{Columns, Layout, TraceWriter, WriteOptions, visit_traces};
use proptest::collection::vec;
use proptest::prelude::*;

/// A sequence that owns its data.
#[derive(Debug, Clone, Default, PartialEq)]
struct Owned {
    id: Option<String>,
    label: Option<u32>,
    predictions: Vec<u32>,
    predicts: bool,
    scores: Vec<f32>,
    probs: Option<Vec<f32>>,
    scores_given: bool,
    numbers: Option<(Vec<f32>, f32)>,
    losses: Option<Vec<f32>>,
    group: Option<String>,
    unit: Option<String>,
    weight: Option<f64>,
    costs: Option<Vec<f32>>,
}

impl Owned {
    fn of(row: &Trace<'_>) -> Self {
        let about = row.about();
        Self {
            id: row.id().map(str::to_owned),
            label: row.label(),
            predictions: row.predictions().to_vec(),
            predicts: row.predicts(),
            scores: row.scores().to_vec(),
            probs: row.probs().map(<[f32]>::to_vec),
            scores_given: row.given_scores().is_some(),
            numbers: row.numbers().map(|n| (n.predictions.to_vec(), n.label)),
            losses: row.losses().map(<[f32]>::to_vec),
            group: about.group.map(str::to_owned),
            unit: about.unit.map(str::to_owned),
            weight: about.weight,
            costs: about.costs.map(<[f32]>::to_vec),
        }
    }

    fn given(&self) -> Sequence<'_> {
        let classes = |probs: &[f32]| probs.len() / self.scores.len();
        Sequence {
            id: self.id.as_deref(),
            label: self.label,
            predictions: self.predicts.then_some(&self.predictions[..]),
            scores: self.scores_given.then_some(&self.scores[..]),
            probs: self.probs.as_deref().map(|probs| (probs, classes(probs))),
            numbers: self.numbers.as_ref().map(|(predictions, label)| Numbers {
                predictions,
                label: *label,
            }),
            losses: self.losses.as_deref(),
            class_names: None,
            about: About {
                group: self.group.as_deref(),
                unit: self.unit.as_deref(),
                weight: self.weight,
                costs: self.costs.as_deref(),
            },
        }
    }
}

/// One step: the prediction, the score, and the weights of four classes.
type Step = (u32, f32, [u8; 4]);

fn step() -> impl Strategy<Value = Step> {
    let score = prop_oneof![Just(0.0), Just(1.0), Just(f32::MIN_POSITIVE), 0.0..1.0_f32];
    (0..4_u32, score, any::<[u8; 4]>())
}

/// Probabilities that sum to 1 exactly, so that reading changes nothing.
fn probs_of(weights: [u8; 4]) -> [f32; 4] {
    let [a, b, c, _] = weights.map(|w| f32::from(w / 4) / 256.0);
    [a, b, c, 1.0 - a - b - c]
}

fn largest(probs: &[f32]) -> (u32, f32) {
    let best = probs.iter().copied().fold(0.0, f32::max);
    let class = probs.iter().position(|&p| p == best).unwrap_or_default();
    (class as u32, best)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Given,
    GivenWithProbs,
    Largest,
}

fn build(name: Option<String>, label: u32, steps: &[Step], kind: Kind) -> Owned {
    let probs: Vec<f32> = steps.iter().flat_map(|s| probs_of(s.2)).collect();
    let (predictions, scores) = match kind {
        Kind::Largest => probs.chunks(4).map(largest).unzip(),
        _ => steps.iter().map(|s| (s.0, s.1)).unzip(),
    };
    Owned {
        id: name,
        label: Some(label),
        predictions,
        predicts: true,
        scores,
        probs: (kind != Kind::Given).then_some(probs),
        scores_given: kind != Kind::Largest,
        ..Owned::default()
    }
}

/// Data of sequences besides predictions and scores.
#[derive(Debug, Clone, Copy)]
struct Extras {
    numbers: bool,
    losses: bool,
    /// Classes may be missing only if there are losses.
    predicts: bool,
    group: bool,
    unit: bool,
    weight: bool,
    costs: bool,
}

fn extras() -> impl Strategy<Value = Extras> {
    any::<[bool; 7]>().prop_map(
        |[numbers, losses, predicts, group, unit, weight, costs]| Extras {
            numbers,
            losses,
            predicts,
            group,
            unit,
            weight,
            costs,
        },
    )
}

impl Extras {
    fn columns(self) -> Columns {
        let named = |there: bool, name: &str| there.then(|| name.to_owned());
        Columns {
            group: named(self.group, "site"),
            unit: named(self.unit, "Patient, \"ü\""),
            weight: named(self.weight, "w"),
            costs: named(self.costs, "tokens"),
            losses: self.losses,
            numbers: self.numbers,
            optional: false,
        }
    }

    /// Adds them to the `i`-th sequence.
    fn add_to(self, i: usize, row: &mut Owned) {
        let steps = row.scores.len();
        let per_step = |scale: f32| -> Vec<f32> {
            let value = |t: usize| (i * 31 + t * 7) as f32 % 11.0 * scale;
            (0..steps).map(value).collect()
        };
        if self.numbers {
            row.numbers = Some((per_step(-0.3), i as f32 / 3.0));
            row.label = None;
        }
        if self.losses {
            row.losses = Some(per_step(0.09));
        }
        // The result of reading if no classes were predicted.
        if row.probs.is_none() && (self.numbers || self.losses && !self.predicts) {
            row.predicts = false;
            row.predictions.fill(0);
        } else if self.numbers
            && let Some(probs) = &row.probs
        {
            row.predictions = probs.chunks(4).map(|step| largest(step).0).collect();
        }
        let text = |of: usize| ["a", "b c", "7", "τ"][i % of].to_owned();
        row.group = self.group.then(|| text(2));
        row.unit = self.unit.then(|| text(4));
        row.weight = self.weight.then_some(i as f64 / 7.0);
        row.costs = self.costs.then(|| per_step(1.3));
    }
}

fn sequences() -> impl Strategy<Value = (Extras, Vec<Owned>)> {
    let kind = prop_oneof![
        Just(Kind::Given),
        Just(Kind::GivenWithProbs),
        Just(Kind::Largest)
    ];
    let sequence = ("[^\\x00\\s]{1,8}", 0..4_u32, vec(step(), 1..12));
    let every = prop_oneof![Just(1_usize), 1..4_usize];
    let rows = vec(sequence, 1..20);
    (kind, any::<bool>(), every, extras(), rows).prop_map(
        |(kind, with_ids, labelled, extras, rows)| {
            let rows = rows.into_iter().enumerate();
            let rows = rows.map(|(i, (name, label, steps))| {
                let id = with_ids.then(|| format!("{name}{i}"));
                let mut row = build(id, label, &steps, kind);
                // Some labels are missing, or none are; with few rows, all may be.
                row.label = row.label.filter(|_| (i + 1) % labelled == 0);
                extras.add_to(i, &mut row);
                row
            });
            (extras, rows.collect())
        },
    )
}

fn round_trip(
    name: &str,
    layout: Layout,
    columns: Columns,
    rows: &[Owned],
) -> Result<Vec<Owned>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    let options = WriteOptions {
        layout,
        metadata: vec![("made by".to_owned(), "a \"test\"".to_owned())],
        columns: columns.clone(),
    };
    let mut writer = TraceWriter::create(&path, options)?;
    for row in rows {
        writer.write(row.given())?;
    }
    writer.finish()?;
    let mut read = Vec::new();
    visit_traces(&[path], &columns, &mut |_, _| {}, &mut |row| {
        read.push(Owned::of(row));
        Ok(())
    })?;
    Ok(read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_row_per_sequence_brings_everything_back((extras, rows) in sequences()) {
        for name in ["t.npz", "t.parquet", "t.arrow", "t.feather", "t.jsonl"] {
            let read = round_trip(name, Layout::PerSequence, extras.columns(), &rows).unwrap();
            prop_assert_eq!(&read, &rows, "{}", name);
        }
    }

    #[test]
    fn a_row_per_step_brings_back_all_but_probabilities((extras, rows) in sequences()) {
        let expected: Vec<Owned> = rows.iter().enumerate().map(|(i, row)| Owned {
            id: row.id.clone().or(Some((i + 1).to_string())),
            probs: None,
            scores_given: true,
            // If numbers are predicted, classes followed from probabilities.
            predicts: row.predicts && !extras.numbers,
            predictions: match extras.numbers {
                true => vec![0; row.scores.len()],
                false => row.predictions.clone(),
            },
            ..row.clone()
        }).collect();
        for name in ["t.csv", "t.parquet", "t.arrow"] {
            let read = round_trip(name, Layout::PerStep, extras.columns(), &rows).unwrap();
            prop_assert_eq!(&read, &expected, "{}", name);
        }
    }
}

#[test]
fn many_batches_and_row_groups_come_back_in_order() {
    let steps: Vec<Step> = (0..700)
        .map(|t| (t % 4, t as f32 / 700.0, [t as u8; 4]))
        .collect();
    let rows: Vec<Owned> = (0..4000)
        .map(|i| {
            build(
                Some(i.to_string()),
                i % 4,
                &steps[..(i % 700 + 1) as usize],
                Kind::Given,
            )
        })
        .collect();
    for name in ["t.parquet", "t.arrow", "t.npz"] {
        assert_eq!(
            round_trip(name, Layout::PerSequence, Columns::default(), &rows).unwrap(),
            rows,
            "{name}"
        );
    }
}

#[test]
fn until_it_is_finished_the_old_file_stays() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["t.npz", "t.parquet", "t.arrow", "t.jsonl", "t.csv"] {
        let path = folder.path().join(name);
        std::fs::write(&path, "old").unwrap();
        let mut writer = TraceWriter::create(&path, WriteOptions::default()).unwrap();
        let row = build(None, 0, &[(0, 0.5, [0; 4])], Kind::Given);
        writer.write(row.given()).unwrap();
        drop(writer);
        assert_eq!(std::fs::read(&path).unwrap(), b"old", "{name}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5);
}

#[test]
fn what_cannot_be_written_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let create =
        |name: &str| TraceWriter::create(folder.path().join(name), WriteOptions::default());
    assert!(
        create("t.txt")
            .unwrap_err()
            .to_string()
            .contains("known are")
    );
    assert!(
        create("no/t.csv")
            .unwrap_err()
            .to_string()
            .contains("does not exist")
    );
    let empty = create("t.csv").unwrap().finish();
    assert!(
        empty
            .unwrap_err()
            .to_string()
            .contains("no sequence to write")
    );

    let given = build(None, 0, &[(0, 0.5, [0; 4])], Kind::Given);
    let with_probs = build(None, 0, &[(0, 0.5, [0; 4])], Kind::GivenWithProbs);
    let mut writer = create("t.jsonl").unwrap();
    writer.write(given.given()).unwrap();
    let mixed = writer.write(with_probs.given());
    assert!(mixed.unwrap_err().to_string().contains("others lack"));
    let uneven = Sequence {
        predictions: Some(&[]),
        ..given.given()
    };
    let message = create("u.jsonl")
        .unwrap()
        .write(uneven)
        .unwrap_err()
        .to_string();
    assert!(message.contains("0 predictions but 1 scores"), "{message}");
}
