//! The paper's own checkpoints, run by our code, give the paper's traces.
#![allow(clippy::unwrap_used)]

mod common;

use common::{data_folder, rows, stored_traces};
use haltwise_lstm::{Model, Series};

/// Loads a checkpoint and compares with its stored traces, on `limit` sequences.
fn traces_equal(name: &str, limit: usize, accuracy: f64) {
    let Some(folder) = data_folder() else { return };
    let model = Model::load(folder.join(format!("checkpoints/{name}.pt"))).unwrap();
    let Some(rows) = rows(name, "heldout", limit) else {
        return;
    };
    let series = Series::new(rows.values(), rows.t_max(), rows.features()).unwrap();
    let scores = model.score_all(series).unwrap();
    let golden = stored_traces(&folder.join(format!("../golden/{name}.traces.npz")));
    let mut worst = 0.0f32;
    for (cell, confidence) in scores.confidence.iter().enumerate() {
        worst = worst.max((confidence - golden.scores[cell]).abs());
        let (sequence, step) = (cell / rows.t_max(), cell % rows.t_max() + 1);
        assert_eq!(
            scores.predictions[cell],
            golden.predictions[cell],
            "{name}, sequence {sequence}, step {step}: {:?}",
            &scores.probabilities[cell * scores.classes..(cell + 1) * scores.classes]
        );
    }
    assert!(worst < 1e-4, "{name}: scores differ by {worst}");
    let n = rows.len();
    assert_eq!(rows.labels(), &golden.labels[..n]);
    let right = (0..n).filter(|&i| scores.full_prediction(i) == rows.labels()[i]);
    let got = right.count() as f64 / n as f64;
    println!("{name}: {n} sequences, largest difference {worst:.1e}, full accuracy {got:.4}");
    // The paper's figure is a mean over test parts of these sequences, rounded; a subset
    // has another accuracy.
    let bound = if n < golden.labels.len() {
        0.02
    } else {
        0.0015
    };
    assert!((got - accuracy).abs() < bound, "{name}: accuracy {got}");
}

#[test]
fn pen_digits() {
    traces_equal("PenDigits", usize::MAX, 0.989);
}

/// One sequence of Crop is ill-conditioned: there the stored float32 scores are 9.97e-5
/// away from the same network in float64, and PyTorch on another processor is 1.3e-4 away.
/// We are within 1e-4 on any processor with fused multiply-add, where our bits are the
/// same.
#[test]
fn crop() {
    traces_equal("Crop", usize::MAX, 0.673);
}

#[test]
fn electric_devices() {
    traces_equal("ElectricDevices", usize::MAX, 0.873);
}

#[test]
fn walking_sitting_standing() {
    // All of them in a release build; in a test build, as many as take seconds.
    let limit = if cfg!(debug_assertions) {
        320
    } else {
        usize::MAX
    };
    traces_equal("WalkingSittingStanding", limit, 0.962);
}

#[test]
fn all_five_load() {
    let Some(folder) = data_folder() else { return };
    for (name, features, hidden, layers, classes) in [
        ("PenDigits", 2, 32, 1, 10),
        ("Crop", 1, 32, 1, 24),
        ("ElectricDevices", 1, 32, 1, 7),
        ("Tiselac", 10, 32, 1, 9),
        ("WalkingSittingStanding", 3, 256, 2, 6),
    ] {
        let model = Model::load(folder.join(format!("checkpoints/{name}.pt"))).unwrap();
        let shape = model.shape();
        assert_eq!(
            (shape.features, shape.hidden, shape.layers, shape.classes),
            (features, hidden, layers, classes)
        );
        let again = Model::from_safetensors_bytes(&model.to_safetensors_bytes().unwrap());
        assert_eq!(again.unwrap(), model);
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_without_a_panic() {
    let Some(folder) = data_folder() else { return };
    let bytes = std::fs::read(folder.join("checkpoints/PenDigits.pt")).unwrap();
    for end in (0..bytes.len()).step_by(97) {
        assert!(Model::from_pt_bytes(&bytes[..end]).is_err());
    }
    for at in (0..bytes.len()).step_by(41) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let _ = Model::from_pt_bytes(&damaged);
    }
}
