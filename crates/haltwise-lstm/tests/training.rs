//! Training learns, gives the same result at any thread count, resumes, and refuses data
//! that it cannot learn from.
#![allow(clippy::unwrap_used)]

use haltwise_lstm::{Epoch, Error, Labelled, Model, Series, TrainOptions, Trainer};
use std::ops::ControlFlow;

/// Noisy ramps of unequal length, rising or falling: the class shows over time.
struct Ramps {
    values: Vec<f32>,
    lengths: Vec<u32>,
    labels: Vec<u32>,
}

const STEPS: usize = 9;

impl Ramps {
    fn new(n: usize) -> Self {
        let mut state = 7u64;
        let mut noise = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let mut ramps = Ramps {
            values: Vec::new(),
            lengths: Vec::new(),
            labels: Vec::new(),
        };
        for i in 0..n {
            let label = (i % 3) as u32;
            ramps.labels.push(label);
            ramps.lengths.push((STEPS - i % 4) as u32);
            let slope = label as f32 - 1.0;
            ramps
                .values
                .extend((0..STEPS).map(|t| 40.0 + 3.0 * slope * t as f32 + 9.0 * noise()));
        }
        ramps
    }

    fn labelled(&self) -> Labelled<'_> {
        let series = Series::with_lengths(&self.values, STEPS, 1, &self.lengths).unwrap();
        Labelled::new(series, &self.labels).unwrap()
    }
}

fn names(k: usize) -> Vec<String> {
    (0..k).map(|k| format!("class {k}")).collect()
}

fn options() -> TrainOptions {
    TrainOptions {
        hidden: 8,
        layers: 2,
        gap_head: true,
        learning_rate: 1e-2,
        max_epochs: 8,
        seed: 3,
        ..TrainOptions::default()
    }
}

fn trainer(ramps: &Ramps) -> Trainer<'_> {
    Trainer::new(ramps.labelled(), None, names(3), options()).unwrap()
}

fn pool(threads: usize) -> rayon::ThreadPool {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().unwrap()
}

fn run_in(threads: usize, ramps: &Ramps) -> (Vec<Epoch>, Model) {
    pool(threads).install(|| {
        let mut trainer = trainer(ramps);
        let mut epochs = Vec::new();
        while let Some(epoch) = trainer.epoch().unwrap() {
            epochs.push(epoch);
        }
        (epochs, trainer.model().unwrap())
    })
}

#[test]
fn it_learns_and_the_heads_mean_something() {
    let ramps = Ramps::new(400);
    let options = TrainOptions {
        max_epochs: 80,
        ..options()
    };
    let mut trainer = Trainer::new(ramps.labelled(), None, names(3), options).unwrap();
    trainer.run(|_| ControlFlow::Continue(())).unwrap();
    let model = trainer.model().unwrap();
    let record = model.training().unwrap();
    assert!(record.validation_accuracy.unwrap() > 0.9, "{record:?}");
    assert_eq!((record.trained_on, record.validated_on), (350, 50));

    let series = Series::with_lengths(&ramps.values, STEPS, 1, &ramps.lengths).unwrap();
    let scores = model.score_all(series).unwrap();
    let mean = |v: &[f32], t: usize| v.iter().skip(t).step_by(STEPS).sum::<f32>() / 400.0;
    assert!(mean(&scores.confidence, 0) + 0.2 < mean(&scores.confidence, 5));
    let gap = scores.gap.as_ref().unwrap();
    assert!(mean(gap, 0) > mean(gap, 5) + 0.2);
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let ramps = Ramps::new(150);
    let one = run_in(1, &ramps);
    assert_eq!(one, run_in(2, &ramps));
    assert_eq!(one, run_in(5, &ramps));
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_one_to_the_bit() {
    let ramps = Ramps::new(150);
    let (epochs, model) = run_in(2, &ramps);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    for stop in [0, 1, 5] {
        let mut first = trainer(&ramps);
        for expected in &epochs[..stop] {
            assert_eq!(first.epoch().unwrap().unwrap(), *expected);
        }
        first.save_state(&path).unwrap();
        let mut second = trainer(&ramps);
        second.resume(&path).unwrap();
        for expected in &epochs[stop..] {
            assert_eq!(second.epoch().unwrap().unwrap(), *expected);
        }
        assert_eq!(second.epoch().unwrap(), None);
        assert_eq!(second.model().unwrap(), model);
    }
}

#[test]
fn a_state_of_another_run_is_refused() {
    let (ramps, others) = (Ramps::new(150), Ramps::new(153));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.safetensors");
    trainer(&ramps).save_state(&path).unwrap();
    let error = trainer(&others).resume(&path).unwrap_err().to_string();
    assert!(error.contains("other sequences"), "{error}");
    let changed = TrainOptions {
        seed: 4,
        ..options()
    };
    let mut other = Trainer::new(ramps.labelled(), None, names(3), changed).unwrap();
    let error = other.resume(&path).unwrap_err().to_string();
    assert!(
        error.contains("another run: seed is 4 here and 3 there; give"),
        "{error}"
    );
    let error = other.resume(folder.path().join("none")).unwrap_err();
    assert!(error.to_string().starts_with("there is nothing to resume"));
    let model = folder.path().join("model.safetensors");
    trainer(&ramps).model().unwrap().save(&model).unwrap();
    let error = trainer(&ramps).resume(&model).unwrap_err().to_string();
    assert!(error.contains("not a training state"), "{error}");
}

#[test]
fn stopping_keeps_the_best_so_far_and_patience_ends_the_run() {
    let ramps = Ramps::new(150);
    let mut run = trainer(&ramps);
    run.run(|epoch| match epoch.epoch {
        3 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    })
    .unwrap();
    assert_eq!(run.model().unwrap().training().unwrap().epochs, 3);

    // The rate is far too large: the loss does not improve for long.
    let options = TrainOptions {
        learning_rate: 3.0,
        patience: 2,
        max_epochs: 100,
        ..options()
    };
    let mut run = Trainer::new(ramps.labelled(), None, names(3), options).unwrap();
    run.run(|_| ControlFlow::Continue(())).unwrap();
    let model = run.model().unwrap();
    let record = model.training().unwrap();
    assert!(record.epochs < 100);
    assert_eq!(record.epochs, record.best_epoch + 2);
}

#[test]
fn what_was_made_in_one_pool_runs_in_another() {
    let ramps = Ramps::new(150);
    let (epochs, model) = run_in(1, &ramps);
    let series = Series::new(&ramps.values, STEPS, 1).unwrap();
    let scores = model.score_all(series).unwrap();
    for (made, used) in [(1, 5), (3, 2)] {
        let (made, used) = (pool(made), pool(used));
        let mut run = made.install(|| trainer(&ramps));
        for expected in &epochs {
            let epoch = used.install(|| run.epoch()).unwrap();
            assert_eq!(epoch.as_ref(), Some(expected));
        }
        let mut stream = made.install(|| model.score(series).unwrap());
        let first = used.install(|| stream.next()).unwrap().unwrap();
        assert_eq!(first, scores);
    }
}

#[test]
fn a_model_recognises_what_it_was_trained_on() {
    let (few, many) = (Ramps::new(150), Ramps::new(5_000));
    for (ramps, tolerance) in [(&few, 1e-9), (&many, 0.05)] {
        let options = TrainOptions {
            max_epochs: 1,
            ..options()
        };
        let mut run = Trainer::new(ramps.labelled(), None, names(3), options).unwrap();
        run.epoch().unwrap();
        let model = run.model().unwrap();
        let lengths = [&ramps.lengths[..], &ramps.lengths].concat();
        let share = |values: &[f32]| {
            let lengths = &lengths[..values.len() / STEPS];
            let series = Series::with_lengths(values, STEPS, 1, lengths).unwrap();
            model.training().unwrap().seen_share(&series).unwrap()
        };
        assert_eq!(share(&ramps.values), 1.0);
        let others: Vec<f32> = ramps.values.iter().map(|v| v + 1.0).collect();
        assert_eq!(share(&others), 0.0);
        let mixed = [&ramps.values[..], &others].concat();
        assert!((share(&mixed) - 0.5).abs() < tolerance);
    }
}

#[test]
fn a_batch_may_be_larger_than_the_data() {
    let ramps = Ramps::new(40);
    let options = TrainOptions {
        batch: usize::MAX,
        max_epochs: 1,
        ..options()
    };
    let mut run = Trainer::new(ramps.labelled(), None, names(3), options).unwrap();
    assert!(run.epoch().unwrap().is_some());
}

#[test]
fn weights_that_are_no_numbers_any_more_end_the_run() {
    // The values are so large that their deviation is infinite.
    let values: Vec<f32> = (0..60 * STEPS)
        .map(|i| if i % 50 == 7 { 3.4e38 } else { -3.4e38 })
        .collect();
    let labels: Vec<u32> = (0..60).map(|i| i % 3).collect();
    let data = Labelled::new(Series::new(&values, STEPS, 1).unwrap(), &labels).unwrap();
    let mut run = Trainer::new(data, None, names(3), options()).unwrap();
    let error = run.epoch().unwrap_err();
    assert!(matches!(error, Error::Diverged { epoch: 1, .. }), "{error}");
}

#[test]
fn a_prefix_scores_as_if_the_rest_had_not_come_yet() {
    let ramps = Ramps::new(5);
    let model = trainer(&ramps).model().unwrap();
    let full = model
        .score_all(Series::new(&ramps.values, STEPS, 1).unwrap())
        .unwrap();
    let cut = Series::with_lengths(&ramps.values, STEPS, 1, &[4; 5]).unwrap();
    let cut = model.score_all(cut).unwrap();
    for i in 0..5 {
        let here = i * STEPS..i * STEPS + 4;
        assert_eq!(cut.confidence[here.clone()], full.confidence[here]);
        assert_eq!(cut.confidence[i * STEPS + 4..(i + 1) * STEPS], [0.0; 5]);
    }
}

#[test]
fn what_cannot_be_learnt_from_is_refused() {
    let series = || Series::new(&[0.5; 12], 3, 1).unwrap();
    let make = |labels: &[u32], k: usize, options: TrainOptions| {
        Trainer::new(Labelled::new(series(), labels)?, None, names(k), options).map(|_| ())
    };
    let standard = TrainOptions::default;
    assert!(make(&[0, 1, 0, 1], 2, standard()).is_ok());
    let one_class = make(&[0; 4], 1, standard());
    assert!(matches!(one_class, Err(Error::OneClass { classes: 1 })));
    let one_label = make(&[1; 4], 2, standard());
    assert!(matches!(
        one_label,
        Err(Error::OneLabel {
            sequences: 4,
            label: 1
        })
    ));
    let out_of_range = make(&[0, 1, 5, 1], 2, standard());
    assert!(matches!(
        out_of_range,
        Err(Error::Label {
            sequence: 2,
            label: 5,
            classes: 2
        })
    ));
    assert!(matches!(make(&[0, 1], 2, standard()), Err(Error::Size(_))));
    for options in [
        TrainOptions {
            batch: 0,
            ..standard()
        },
        TrainOptions {
            hidden: 0,
            ..standard()
        },
        TrainOptions {
            hidden: 1 << 20,
            ..standard()
        },
        TrainOptions {
            learning_rate: f64::NAN,
            ..standard()
        },
        TrainOptions {
            validation_fraction: 1.0,
            ..standard()
        },
        TrainOptions {
            gamma: -1.0,
            ..standard()
        },
    ] {
        assert!(make(&[0, 1, 0, 1], 2, options).is_err());
    }
    let wide = Series::new(&[0.5; 12], 3, 2).unwrap();
    let ramps = Ramps::new(20);
    let error = trainer(&ramps)
        .model()
        .unwrap()
        .score_all(wide)
        .unwrap_err();
    assert!(error.to_string().contains("2 features"), "{error}");
}
