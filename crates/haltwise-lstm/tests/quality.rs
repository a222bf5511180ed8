//! Trained from scratch, our models are as good as the paper's. Minutes long:
//! `cargo test --release -p haltwise-lstm --test quality -- --ignored --nocapture`
#![allow(clippy::unwrap_used)]

mod common;

use common::rows;
use haltwise_io::series::SeriesSet;
use haltwise_lstm::{Labelled, Series, TrainOptions, Trainer};
use std::ops::ControlFlow;
use std::time::Instant;

fn series(rows: &SeriesSet) -> Series<'_> {
    Series::new(rows.values(), rows.t_max(), rows.features()).unwrap()
}

/// Trains with three seeds; the mean full accuracy must come near the paper's.
fn as_good_as_the_paper(name: &str, paper: f64) {
    let parts = ["train", "validation", "heldout"].map(|part| rows(name, part, usize::MAX));
    let [Some(train), Some(validation), Some(heldout)] = parts else {
        return;
    };
    let mut sum = 0.0;
    for seed in 0..3 {
        let data = Labelled::new(series(&train), train.labels()).unwrap();
        let validation = Labelled::new(series(&validation), validation.labels()).unwrap();
        let names = train.classes().to_vec();
        let options = TrainOptions {
            seed,
            ..TrainOptions::default()
        };
        let start = Instant::now();
        let mut trainer = Trainer::new(data, Some(validation), names, options).unwrap();
        trainer.run(|_| ControlFlow::Continue(())).unwrap();
        let model = trainer.model().unwrap();
        let scores = model.score_all(series(&heldout)).unwrap();
        let n = heldout.len();
        let right = (0..n).filter(|&i| scores.full_prediction(i) == heldout.labels()[i]);
        let accuracy = right.count() as f64 / n as f64;
        println!(
            "{name}, seed {seed}: {accuracy:.4} (paper {paper}), {} epochs in {:.1} s",
            model.training().unwrap().epochs,
            start.elapsed().as_secs_f64()
        );
        sum += accuracy;
    }
    assert!(
        sum / 3.0 > paper - 0.015,
        "{name}: mean accuracy {}",
        sum / 3.0
    );
}

#[test]
#[ignore = "trains three models: about half a minute in a release build"]
fn pen_digits() {
    as_good_as_the_paper("PenDigits", 0.989);
}

#[test]
#[ignore = "trains three models: minutes in a release build"]
fn crop() {
    as_good_as_the_paper("Crop", 0.673);
}

#[test]
#[ignore = "trains three models: minutes in a release build"]
fn electric_devices() {
    as_good_as_the_paper("ElectricDevices", 0.873);
}
