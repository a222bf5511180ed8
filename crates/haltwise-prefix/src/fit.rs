//! Fits a model, and answers about its own training series, each left out.

use crate::answers::Answers;
use crate::error::{Error, Result};
use crate::model::{Model, Parts};
use crate::options::FitOptions;
use crate::record::{CheckpointRecord, TrainingRecord, hashes_of};
use crate::series::Series;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A model, and what it says about its own training series.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The model.
    pub model: Model,
    /// For each training series, the answers of the model as if it had not been among them.
    pub out_of_sample: Answers,
}

/// How far a fit has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The checkpoints that are done.
    pub done: usize,
    /// All checkpoints.
    pub checkpoints: usize,
    /// The latest checkpoint, in time points.
    pub points: usize,
    /// The out-of-sample accuracy at it.
    pub accuracy: f64,
}

/// Fits a model to series with labels, which number the classes from 0. `progress` hears of
/// each checkpoint and may stop the fit, which then fails with [`Error::Stopped`].
///
/// Work runs in rayon's current pool. Any number of threads gives the same bits.
pub fn fit(
    series: &Series<'_>,
    labels: &[u32],
    classes: Vec<String>,
    options: &FitOptions,
    mut progress: impl FnMut(Progress) -> ControlFlow<()>,
) -> Result<Fitted> {
    check_labels(series, labels, classes.len())?;
    let checkpoints = options.checkpoints.lengths(series)?;
    let mut prior = vec![0.0; classes.len()];
    for &label in labels {
        prior[label as usize] += 1.0;
    }
    prior.iter_mut().for_each(|p| *p /= labels.len() as f32);
    let last = Progress {
        done: 0,
        checkpoints: checkpoints.len(),
        points: 0,
        accuracy: 0.0,
    };
    if progress(last).is_break() {
        return Err(Error::Stopped);
    }
    let training = TrainingRecord {
        options: options.clone(),
        trained_on: series.len(),
        checkpoints: vec![CheckpointRecord::default(); checkpoints.len()],
        version: env!("CARGO_PKG_VERSION").into(),
        seen: hashes_of(series),
    };
    let model = Model(Arc::new(Parts {
        classes,
        checkpoints,
        channels: series.channels(),
        prior,
        training,
    }));
    let out_of_sample = model.answers(series)?;
    Ok(Fitted {
        model,
        out_of_sample,
    })
}

fn check_labels(series: &Series<'_>, labels: &[u32], classes: usize) -> Result<()> {
    if labels.len() != series.len() {
        return Err(Error::Size(format!(
            "{} labels for {} series",
            labels.len(),
            series.len()
        )));
    }
    if let Some(at) = labels.iter().position(|&label| label as usize >= classes) {
        return Err(Error::Label {
            series: at,
            label: labels[at],
            classes,
        });
    }
    if labels.iter().all(|&label| label == labels[0]) {
        return Err(Error::OneLabel {
            series: labels.len(),
            label: labels[0],
        });
    }
    Ok(())
}

/// The most memory in bytes that [`fit`] needs for this many series of this length, besides
/// the series themselves.
pub fn working_memory(
    series: usize,
    points: usize,
    channels: usize,
    classes: usize,
    options: &FitOptions,
) -> usize {
    let _ = options;
    series * points * channels * classes
}
