//! What is written is read back the same, in every format and layout.

use std::error::Error;

use haltwise::Sequence;
use haltwise::traces::Trace;
use haltwise_io::{Layout, TraceWriter, WriteOptions, visit_traces};
use proptest::collection::vec;
use proptest::prelude::*;

/// A sequence that owns what it holds.
#[derive(Debug, Clone, PartialEq)]
struct Owned {
    id: Option<String>,
    label: u32,
    predictions: Vec<u32>,
    scores: Vec<f32>,
    probs: Option<Vec<f32>>,
    scores_given: bool,
}

impl Owned {
    fn of(row: &Trace<'_>) -> Self {
        Self {
            id: row.id().map(str::to_owned),
            label: row.label(),
            predictions: row.predictions().to_vec(),
            scores: row.scores().to_vec(),
            probs: row.probs().map(<[f32]>::to_vec),
            scores_given: row.given_scores().is_some(),
        }
    }

    fn given(&self) -> Sequence<'_> {
        let classes = |probs: &[f32]| probs.len() / self.scores.len();
        Sequence {
            id: self.id.as_deref(),
            label: self.label,
            predictions: Some(&self.predictions),
            scores: self.scores_given.then_some(&self.scores[..]),
            probs: self.probs.as_deref().map(|probs| (probs, classes(probs))),
        }
    }
}

/// One step: what is predicted, the score, and weights of four classes.
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
        label,
        predictions,
        scores,
        probs: (kind != Kind::Given).then_some(probs),
        scores_given: kind != Kind::Largest,
    }
}

fn sequences() -> impl Strategy<Value = Vec<Owned>> {
    let kind = prop_oneof![
        Just(Kind::Given),
        Just(Kind::GivenWithProbs),
        Just(Kind::Largest)
    ];
    let sequence = ("[^\\x00\\s]{1,8}", 0..4_u32, vec(step(), 1..12));
    (kind, any::<bool>(), vec(sequence, 1..20)).prop_map(|(kind, with_ids, rows)| {
        let rows = rows.into_iter().enumerate();
        rows.map(|(i, (name, label, steps))| {
            let id = with_ids.then(|| format!("{name}{i}"));
            build(id, label, &steps, kind)
        })
        .collect()
    })
}

fn round_trip(name: &str, layout: Layout, rows: &[Owned]) -> Result<Vec<Owned>, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join(name);
    let metadata = vec![("made by".to_owned(), "a \"test\"".to_owned())];
    let mut writer = TraceWriter::create(&path, WriteOptions { layout, metadata })?;
    for row in rows {
        writer.write(row.given())?;
    }
    writer.finish()?;
    let mut read = Vec::new();
    visit_traces(&[path], &mut |_, _| {}, &mut |row| {
        read.push(Owned::of(row));
        Ok(())
    })?;
    Ok(read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_row_per_sequence_brings_everything_back(rows in sequences()) {
        for name in ["t.npz", "t.parquet", "t.arrow", "t.feather", "t.jsonl"] {
            prop_assert_eq!(&round_trip(name, Layout::PerSequence, &rows).unwrap(), &rows, "{}", name);
        }
    }

    #[test]
    fn a_row_per_step_brings_back_all_but_probabilities(rows in sequences()) {
        let expected: Vec<Owned> = rows.iter().enumerate().map(|(i, row)| Owned {
            id: row.id.clone().or(Some((i + 1).to_string())),
            probs: None,
            scores_given: true,
            ..row.clone()
        }).collect();
        for name in ["t.csv", "t.parquet", "t.arrow"] {
            prop_assert_eq!(&round_trip(name, Layout::PerStep, &rows).unwrap(), &expected, "{}", name);
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
            round_trip(name, Layout::PerSequence, &rows).unwrap(),
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

#[test]
fn what_steps_cost_stands_beside_the_traces() -> Result<(), Box<dyn Error>> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Float32Type;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    let folder = tempfile::tempdir()?;
    let sequence = Sequence {
        label: 1,
        predictions: Some(&[0, 1]),
        scores: Some(&[0.5, 1.0]),
        ..Sequence::default()
    };
    for name in ["t.parquet", "t.arrow"] {
        let path = folder.path().join(name);
        let mut writer = TraceWriter::create(&path, WriteOptions::default())?;
        for cost in [[3.0, 4.5], [0.0, 1.0]] {
            writer.write_with_cost(sequence, &cost)?;
        }
        writer.finish()?;
        let mut scores = Vec::new();
        visit_traces(&[path], &mut |_, _| {}, &mut |row| {
            scores.extend_from_slice(row.scores());
            Ok(())
        })?;
        assert_eq!(scores, [0.5, 1.0, 0.5, 1.0], "{name}");
    }
    let file = std::fs::File::open(folder.path().join("t.parquet"))?;
    let mut batches = ParquetRecordBatchReaderBuilder::try_new(file)?.build()?;
    let batch = batches.next().ok_or("no batch")??;
    let costs = batch
        .column_by_name("cost")
        .ok_or("no cost")?
        .as_list::<i32>();
    let costs = costs.values().as_primitive::<Float32Type>().values();
    assert_eq!(&costs[..], [3.0, 4.5, 0.0, 1.0]);

    let refused = |name: &str, cost: &[f32]| {
        let path = folder.path().join(name);
        let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
        writer
            .write_with_cost(sequence, cost)
            .unwrap_err()
            .to_string()
    };
    for (name, cost, expected) in [
        ("u.csv", &[1.0, 1.0][..], "have a place for costs"),
        ("u.parquet", &[1.0], "1 costs for 2 steps"),
        ("u.parquet", &[1.0, f32::NAN], "the cost of a step is NaN"),
    ] {
        let message = refused(name, cost);
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
