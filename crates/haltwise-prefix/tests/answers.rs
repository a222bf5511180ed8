//! What a fitted model says.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Waves, fit_to, names};
use haltwise_prefix::{Answers, Checkpoints, Error, FitOptions, Model, Series, fit};
use std::ops::ControlFlow;

/// The share of right answers at a checkpoint.
fn accuracy(answers: &Answers, labels: &[u32], checkpoint: usize) -> f64 {
    let right = |i: &usize| answers.best(*i, checkpoint).0 == labels[*i];
    (0..labels.len()).filter(right).count() as f64 / labels.len() as f64
}

/// Feeds one series to a stream: the answer at each checkpoint that it reaches.
fn streamed(model: &Model, series: &[f32]) -> Vec<Vec<f32>> {
    let mut stream = model.stream();
    let mut answers = Vec::new();
    for point in series.chunks_exact(model.channels()) {
        if let Some(answer) = stream.observe(point).unwrap() {
            answers.push(answer.to_vec());
            assert_eq!(stream.latest(), answers[answers.len() - 1]);
        }
    }
    assert_eq!(stream.reached(), answers.len());
    answers
}

#[test]
fn classes_that_can_be_told_apart_are_told_apart() {
    for channels in [1, 3] {
        let (train, new) = (
            Waves::new(150, 60, channels, 1),
            Waves::new(150, 60, channels, 2),
        );
        let fitted = train.fit();
        assert_eq!(fitted.model.checkpoints(), [10, 20, 30, 40, 50, 60]);
        let answers = fitted.model.answers(&new.series()).unwrap();
        let full = accuracy(&answers, &new.labels, 5);
        let left_out = accuracy(&fitted.out_of_sample, &train.labels, 5);
        assert!(
            full > 0.97 && left_out > 0.97,
            "{channels}: {full} {left_out}"
        );
        assert_eq!(left_out, fitted.model.training().checkpoints[5].accuracy);
        assert!(accuracy(&answers, &new.labels, 0) < full);
        for i in 0..new.labels.len() {
            let sum: f32 = answers.at(i, 3).iter().sum();
            assert!((sum - 1.0).abs() < 1e-5);
        }
    }
}

#[test]
fn left_out_answers_know_nothing_about_labels_that_are_noise() {
    let mut waves = Waves::new(240, 24, 1, 5);
    // The label says nothing about the wave.
    waves.labels = (0..240).map(|i| (i / 3 * 7 % 11 + i) % 3).collect();
    let fitted = waves.fit();
    for checkpoint in 0..6 {
        let right = accuracy(&fitted.out_of_sample, &waves.labels, checkpoint);
        assert!(right < 0.45, "{checkpoint}: {right}");
        let record = fitted.model.training().checkpoints[checkpoint];
        assert!(record.log_loss > 1.0, "{record:?}");
    }
    // The model itself has learned them by heart.
    let answers = fitted.model.answers(&waves.series()).unwrap();
    assert!(accuracy(&answers, &waves.labels, 5) > 0.5);
}

#[test]
fn a_stream_says_to_the_bit_what_the_batch_says() {
    for channels in [1, 2] {
        let waves = Waves::new(50, 40, channels, 4);
        let fitted = fit_to(
            &waves.series(),
            &waves.labels,
            Checkpoints::At(vec![1, 2, 7, 25, 40]),
        );
        let new = Waves::new(21, 40, channels, 9);
        let answers = fitted.model.answers(&new.series()).unwrap();
        for i in 0..21 {
            let stream = streamed(&fitted.model, new.series().sequence(i));
            assert_eq!(stream.len(), 5);
            for (checkpoint, answer) in stream.iter().enumerate() {
                assert_eq!(answer, answers.at(i, checkpoint), "{i} {checkpoint}");
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let waves = Waves::new(600, 30, 2, 6);
    let on = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        pool.install(|| {
            let fitted = waves.fit();
            let answers = fitted.model.answers(&waves.series()).unwrap();
            (
                fitted.model.to_bytes().unwrap(),
                fitted.out_of_sample,
                answers,
            )
        })
    };
    assert!(on(1) == on(4));
}

#[test]
fn later_values_do_not_change_an_answer() {
    let waves = Waves::new(60, 30, 1, 7);
    let fitted = waves.fit();
    let answers = fitted.model.answers(&waves.series()).unwrap();
    for (checkpoint, &points) in fitted.model.checkpoints().iter().enumerate() {
        let mut changed = waves.values.clone();
        for series in changed.chunks_exact_mut(30) {
            series[points..].fill(f32::NAN);
            series[points..]
                .iter_mut()
                .step_by(2)
                .for_each(|x| *x = 1e9);
        }
        let changed = Series::new(&changed, 30, 1).unwrap();
        let changed = fitted.model.answers(&changed).unwrap();
        for i in 0..60 {
            assert_eq!(answers.at(i, checkpoint), changed.at(i, checkpoint));
        }
    }
}

#[test]
fn a_series_is_answered_alike_in_any_company() {
    let waves = Waves::new(40, 30, 1, 8);
    let model = waves.fit().model;
    let all = model.answers(&waves.series()).unwrap();
    let some = model.answers_to(&waves.series(), 13..35).unwrap();
    for i in 13..35 {
        for checkpoint in 0..6 {
            assert_eq!(all.at(i, checkpoint), some.at(i - 13, checkpoint));
        }
    }
    assert!(model.answers_to(&waves.series(), 13..41).is_err());
}

#[test]
fn a_series_that_ends_early_keeps_the_last_answer_that_it_reached() {
    let waves = Waves::new(80, 30, 1, 9);
    let lengths: Vec<u32> = (0..80).map(|i| [30, 30, 17, 4, 30][i % 5]).collect();
    let series = Series::with_lengths(&waves.values, 30, 1, &lengths).unwrap();
    let fitted = fit_to(&series, &waves.labels, Checkpoints::Number(6));
    let model = &fitted.model;
    assert_eq!(model.checkpoints(), [5, 10, 15, 20, 25, 30]);
    assert_eq!(
        model.training().checkpoints.map_series(),
        [64, 64, 64, 48, 48, 48]
    );
    for answers in [&fitted.out_of_sample, &model.answers(&series).unwrap()] {
        assert_eq!((answers.reached(2), answers.reached(3)), (3, 0));
        assert_eq!(answers.at(2, 2), answers.last(2));
        assert_ne!(answers.at(2, 1), answers.at(2, 2));
        assert_eq!(answers.last(3), model.class_shares());
    }
    let stream = streamed(model, series.sequence(2));
    assert_eq!(stream[2], model.answers(&series).unwrap().last(2));
    // What a series says after its last checkpoint is not read.
    let answer = model.answers(&series).unwrap();
    let mut longer = waves.values.clone();
    longer.extend([1e6; 30]);
    let lengths = [&lengths[..], &[30]].concat();
    let longer = Series::with_lengths(&longer, 30, 1, &lengths).unwrap();
    assert_eq!(answer.last(0), model.answers(&longer).unwrap().last(0));
}

trait MapSeries {
    fn map_series(&self) -> Vec<usize>;
}

impl MapSeries for Vec<haltwise_prefix::CheckpointRecord> {
    fn map_series(&self) -> Vec<usize> {
        self.iter().map(|record| record.series).collect()
    }
}

#[test]
fn missing_values_are_filled_from_the_past() {
    let mut waves = Waves::new(120, 40, 2, 10);
    for (i, x) in waves.values.iter_mut().enumerate() {
        if i * 7 % 10 < 3 {
            *x = f32::NAN;
        }
    }
    let fitted = waves.fit();
    let right = accuracy(&fitted.out_of_sample, &waves.labels, 5);
    assert!(right > 0.9, "{right}");
    let answers = fitted.model.answers(&waves.series()).unwrap();
    let mut filled = waves.values.clone();
    for series in filled.chunks_exact_mut(80) {
        for i in 2..80 {
            if series[i].is_nan() {
                series[i] = series[i - 2];
            }
        }
    }
    let filled = fitted
        .model
        .answers(&Series::new(&filled, 40, 2).unwrap())
        .unwrap();
    assert_eq!(answers, filled);
    let all_missing = vec![f32::NAN; 80];
    let none = fitted
        .model
        .answers(&Series::new(&all_missing, 40, 2).unwrap())
        .unwrap();
    assert!(none.probabilities().iter().all(|p| p.is_finite()));
}

#[test]
fn short_prefixes_are_told_apart_by_their_values() {
    // Four time points; the class is whether the product of two values is positive.
    let values: Vec<f32> = (0..2400)
        .map(|i| ((i * 7919 + i / 4 * 31) % 1009) as f32 - 504.0)
        .collect();
    let label = |series: &[f32]| u32::from(series[1] * series[3] > 0.0);
    let labels: Vec<u32> = values.chunks_exact(4).map(label).collect();
    let (mine, new) = values.split_at(1600);
    let fitted = fit_to(
        &Series::new(mine, 4, 1).unwrap(),
        &labels[..400],
        Checkpoints::Usual,
    );
    let answers = fitted
        .model
        .answers(&Series::new(new, 4, 1).unwrap())
        .unwrap();
    let right = accuracy(&answers, &labels[400..], 3);
    assert!(right > 0.9, "{right}");
}

#[test]
fn what_cannot_be_fitted_is_refused_with_the_remedy() {
    let waves = Waves::new(12, 10, 1, 11);
    let fit = |labels: &[u32], options: &FitOptions| {
        fit(&waves.series(), labels, names(), options, |_| {
            ControlFlow::Continue(())
        })
    };
    let usual = FitOptions::default();
    assert!(matches!(
        fit(&waves.labels[1..], &usual),
        Err(Error::Size(_))
    ));
    assert!(matches!(fit(&[1; 12], &usual), Err(Error::OneLabel { .. })));
    let error = fit(&[3; 12], &usual).unwrap_err().to_string();
    assert!(error.contains("series 0 has label 3"), "{error}");
    let late = FitOptions {
        checkpoints: Checkpoints::At(vec![5, 11]),
        ..usual
    };
    let error = fit(&waves.labels, &late).unwrap_err().to_string();
    assert!(error.contains("give checkpoints up to 10"), "{error}");
}

#[test]
fn what_a_model_was_not_fitted_to_is_refused() {
    let waves = Waves::new(24, 10, 1, 11);
    let model = waves.fit().model;
    let two = Waves::new(2, 10, 2, 1);
    let error = model.answers(&two.series()).unwrap_err().to_string();
    assert!(error.contains("2 channels"), "{error}");
    let mut stream = model.stream();
    assert!(stream.observe(&[1.0, 2.0]).is_err());
    let error = stream.observe(&[f32::INFINITY]).unwrap_err().to_string();
    assert!(error.contains("time point 1, channel 1 is inf"), "{error}");
    assert_eq!(stream.points(), 0);
}

#[test]
fn a_fit_can_be_stopped_and_tells_how_far_it_has_come() {
    let waves = Waves::new(24, 10, 1, 11);
    let mut seen = Vec::new();
    let stopped = fit(
        &waves.series(),
        &waves.labels,
        names(),
        &FitOptions::default(),
        |progress| {
            seen.push((progress.done, progress.checkpoints, progress.points));
            match progress.done {
                3 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        },
    );
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(seen, [(1, 10, 1), (2, 10, 2), (3, 10, 3)]);
}

#[test]
fn a_model_recognises_its_training_series() {
    let waves = Waves::new(60, 20, 1, 12);
    let model = waves.fit().model;
    assert_eq!(model.training().seen_share(&waves.series()), Some(1.0));
    let new = Waves::new(60, 20, 1, 13);
    assert_eq!(model.training().seen_share(&new.series()), Some(0.0));
}
