//! The two-head LSTM.

use std::path::PathBuf;

use haltwise_lstm::{Device, Epoch, Error, Labelled, Scores, TrainOptions, Trainer};
use numpy::{IntoPyArray, PyArray2, PyArray3, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::failure::{Failure, check_signals, os_error, value_error};
use crate::series::PaddedSeries;

/// A trained network.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct Model(haltwise_lstm::Model);

#[pymethods]
impl Model {
    /// Trains on sequences with labels counted from 0. `options` are the fields of
    /// `TrainOptions`. `progress` is called after every epoch. `device` is as on the command line.
    #[staticmethod]
    fn train(
        py: Python<'_>,
        sequences: PaddedSeries<'_>,
        labels: PyReadonlyArray1<'_, u32>,
        classes: Vec<String>,
        options: &str,
        progress: Option<Py<PyAny>>,
        device: &str,
    ) -> PyResult<Self> {
        let device: Device = device.parse().map_err(value_error)?;
        let options: TrainOptions = serde_json::from_str(options).map_err(value_error)?;
        let labels = labels.as_slice().map_err(value_error)?;
        let data = Labelled::new(sequences.series()?, labels).map_err(value_error)?;
        let trained = py.detach(|| {
            let refuse = |e: Error| Failure::Value(e.to_string());
            let trainer = Trainer::new(data, None, classes, options).map_err(refuse)?;
            let mut trainer = trainer.on(device).map_err(refuse)?;
            while let Some(epoch) = trainer.epoch().map_err(refuse)? {
                Python::attach(|py| tell(py, &progress, &epoch))?;
            }
            trainer.model().map_err(refuse)
        });
        Ok(Self(trained?))
    }

    /// Scores every prefix: probabilities, predictions, confidence and, if the network
    /// has that head, the gap.
    fn score<'py>(
        &self,
        py: Python<'py>,
        sequences: PaddedSeries<'py>,
        device: &str,
    ) -> PyResult<Bound<'py, PyDict>> {
        let device: Device = device.parse().map_err(value_error)?;
        let series = sequences.series()?;
        let (n, steps) = (series.len(), series.steps());
        let classes = self.0.shape().classes;
        let parts = py.detach(|| {
            let refuse = |e: Error| Failure::Value(e.to_string());
            let stream = self.0.score_on(series, device).map_err(refuse)?;
            let mut parts: Vec<Scores> = Vec::new();
            for scores in stream {
                check_signals()?;
                let mut scores = scores.map_err(refuse)?;
                scores.pad(steps);
                parts.push(scores);
            }
            Ok::<_, Failure>(parts)
        })?;
        let all = |of: fn(&Scores) -> &[f32]| -> Vec<f32> {
            parts.iter().flat_map(|part| of(part).to_vec()).collect()
        };
        let found = PyDict::new(py);
        let probs = all(|s| &s.probabilities).into_pyarray(py);
        let probs: Bound<'_, PyArray3<f32>> = probs.reshape([n, steps, classes])?;
        found.set_item("probs", probs)?;
        let predictions: Vec<u32> = parts.iter().flat_map(|s| s.predictions.clone()).collect();
        let predictions: Bound<'_, PyArray2<u32>> =
            predictions.into_pyarray(py).reshape([n, steps])?;
        found.set_item("predictions", predictions)?;
        let confidence = all(|s| &s.confidence).into_pyarray(py);
        let confidence: Bound<'_, PyArray2<f32>> = confidence.reshape([n, steps])?;
        found.set_item("scores", confidence)?;
        if self.0.shape().gap_head {
            let gap = all(|s| s.gap.as_deref().unwrap_or_default()).into_pyarray(py);
            let gap: Bound<'_, PyArray2<f32>> = gap.reshape([n, steps])?;
            found.set_item("gap", gap)?;
        }
        Ok(found)
    }

    /// The sizes, the training and the classes, as JSON.
    fn describe(&self) -> PyResult<String> {
        let description = serde_json::json!({
            "shape": self.0.shape(),
            "classes": self.0.classes(),
            "training": self.0.training(),
        });
        serde_json::to_string(&description).map_err(value_error)
    }

    /// Writes safetensors, whole or not at all.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        self.0.save(&path).map_err(os_error)
    }

    /// Reads safetensors or a PyTorch state dict.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        haltwise_lstm::Model::load(&path)
            .map(Self)
            .map_err(value_error)
    }

    #[new]
    fn new(bytes: &[u8]) -> PyResult<Self> {
        haltwise_lstm::Model::from_safetensors_bytes(bytes)
            .map(Self)
            .map_err(value_error)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>,)> {
        let bytes = self.0.to_safetensors_bytes().map_err(value_error)?;
        Ok((PyBytes::new(py, &bytes),))
    }
}

/// Checks for Ctrl-C, and reports an epoch.
fn tell(py: Python<'_>, progress: &Option<Py<PyAny>>, epoch: &Epoch) -> PyResult<()> {
    py.check_signals()?;
    let Some(progress) = progress else {
        return Ok(());
    };
    let told = (
        epoch.epoch,
        epoch.train_loss,
        epoch.validation_loss,
        epoch.validation_accuracy,
    );
    progress.call1(py, told).map(drop)
}
