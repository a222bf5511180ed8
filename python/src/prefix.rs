//! The prefix classifier.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use haltwise_io::{read_model_texts, with_model_texts, write_whole};
use haltwise_prefix::{Answers, Checkpoints, Error, FitOptions, Fitted, Progress, fit};
use numpy::{IntoPyArray, PyArray1, PyArray3, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ops::ControlFlow;

use crate::failure::{Failure, check_signals, os_error, unread, unwritten, value_error};
use crate::series::PaddedSeries;

/// A fitted prefix classifier.
#[pyclass(module = "haltwise._core", frozen, eq)]
#[derive(PartialEq)]
pub(crate) struct PrefixModel(haltwise_prefix::Model);

/// A number of checkpoints, or the checkpoints.
#[derive(FromPyObject)]
enum Wanted {
    Number(usize),
    At(Vec<usize>),
}

#[pymethods]
impl PrefixModel {
    /// Fits to series with labels counted from 0. Returns the model and its answers about these
    /// series, each left out. `threads` is None for all. `tell` is called after every checkpoint.
    #[staticmethod]
    #[pyo3(signature = (series, labels, classes, checkpoints, trees, seed, threads, tell))]
    #[allow(clippy::too_many_arguments)]
    fn fit<'py>(
        py: Python<'py>,
        series: PaddedSeries<'py>,
        labels: PyReadonlyArray1<'py, u32>,
        classes: Vec<String>,
        checkpoints: Wanted,
        trees: usize,
        seed: u64,
        threads: Option<usize>,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<(Self, Bound<'py, PyDict>)> {
        let options = FitOptions {
            checkpoints: match checkpoints {
                Wanted::Number(number) => Checkpoints::Number(number),
                Wanted::At(at) => Checkpoints::At(at),
            },
            trees,
            seed,
        };
        let (data, labels) = (series.series()?, labels.as_slice().map_err(value_error)?);
        let refusal = Mutex::new(None);
        let fitted = py.detach(|| {
            interruptible(threads, |stop| {
                let go_on = |progress: Progress| {
                    let told = show(tell.as_ref(), &progress);
                    let stopped = stop.load(Ordering::Relaxed) || told.is_err();
                    if let (Err(error), Ok(mut refusal)) = (told, refusal.lock()) {
                        *refusal = Some(error);
                    }
                    if stopped {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                fit(&data, labels, classes, &options, go_on)
            })
        });
        if let Ok(Some(error)) = refusal.into_inner() {
            return Err(error);
        }
        let fitted: Fitted = fitted?;
        let answers = arrays(py, &fitted.out_of_sample)?;
        Ok((Self(fitted.model), answers))
    }

    /// What the model says about each series at each checkpoint.
    #[pyo3(signature = (series, threads))]
    fn answers<'py>(
        &self,
        py: Python<'py>,
        series: PaddedSeries<'py>,
        threads: Option<usize>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let data = series.series()?;
        let found = py.detach(|| within(threads, || self.0.answers(&data)))?;
        arrays(py, &found)
    }

    /// A series that arrives time point by time point.
    fn stream(&self) -> PrefixStream {
        PrefixStream(self.0.stream())
    }

    /// The classes, the checkpoints, the channels and the training, as JSON.
    fn describe(&self) -> PyResult<String> {
        let description = serde_json::json!({
            "classes": self.0.classes(),
            "checkpoints": self.0.checkpoints(),
            "channels": self.0.channels(),
            "training": self.0.training(),
        });
        serde_json::to_string(&description).map_err(value_error)
    }

    /// Writes safetensors with these texts, whole or not at all.
    fn save(&self, path: PathBuf, texts: BTreeMap<String, String>) -> PyResult<()> {
        let bytes = self.0.to_bytes().map_err(os_error)?;
        let bytes = with_model_texts(&bytes, texts)
            .ok_or_else(|| os_error("the texts are too long for a model file"))?;
        write_whole(&path, |out| out.write_all(&bytes)).map_err(unwritten)
    }

    /// Reads a model and the texts in its file.
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<(Self, BTreeMap<String, String>)> {
        let texts = read_model_texts(&path).map_err(unread)?;
        let model = haltwise_prefix::Model::load(&path).map_err(value_error)?;
        Ok((Self(model), texts.unwrap_or_default()))
    }

    #[new]
    fn new(bytes: &[u8]) -> PyResult<Self> {
        let model = haltwise_prefix::Model::from_bytes(bytes);
        model.map(Self).map_err(value_error)
    }

    fn __getnewargs__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>,)> {
        let bytes = self.0.to_bytes().map_err(value_error)?;
        Ok((PyBytes::new(py, &bytes),))
    }
}

/// One series as it arrives.
#[pyclass(module = "haltwise._core")]
pub(crate) struct PrefixStream(haltwise_prefix::Stream);

#[pymethods]
impl PrefixStream {
    /// Takes in the next time point, a number per channel. At a checkpoint, returns the
    /// probability of each class.
    fn observe<'py>(
        &mut self,
        py: Python<'py>,
        values: PyReadonlyArray1<'py, f32>,
    ) -> PyResult<Option<Bound<'py, PyArray1<f32>>>> {
        let values = values.as_slice().map_err(value_error)?;
        let answer = self.0.observe(values).map_err(value_error)?;
        Ok(answer.map(|probs| probs.to_vec().into_pyarray(py)))
    }

    /// The latest answer; before the first checkpoint, how common each class was in training.
    fn latest<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f32>> {
        self.0.latest().to_vec().into_pyarray(py)
    }

    /// How many time points it has taken in.
    fn points(&self) -> usize {
        self.0.points()
    }

    /// How many checkpoints it has reached.
    fn reached(&self) -> usize {
        self.0.reached()
    }
}

/// Tells Python how far the fit is.
fn show(tell: Option<&Py<PyAny>>, progress: &Progress) -> PyResult<()> {
    let Some(tell) = tell else {
        return Ok(());
    };
    let told = (progress.done, progress.checkpoints, progress.accuracy);
    Python::attach(|py| tell.call1(py, told).map(drop))
}

/// Answers as arrays: probabilities (n, checkpoints, classes), and how many checkpoints each
/// series reached.
fn arrays<'py>(py: Python<'py>, answers: &Answers) -> PyResult<Bound<'py, PyDict>> {
    let n = answers.len();
    let found = PyDict::new(py);
    let probs = answers.probabilities().to_vec().into_pyarray(py);
    let probs: Bound<'_, PyArray3<f32>> =
        probs.reshape([n, answers.checkpoints(), answers.classes()])?;
    found.set_item("probs", probs)?;
    let reached: Vec<i64> = (0..n).map(|i| answers.reached(i) as i64).collect();
    found.set_item("reached", reached.into_pyarray(py))?;
    Ok(found)
}

/// Does the work on this many threads, or on all.
fn within<T: Send>(
    threads: Option<usize>,
    work: impl FnOnce() -> haltwise_prefix::Result<T> + Send,
) -> Result<T, Failure> {
    let refuse = |e: Error| Failure::Value(e.to_string());
    let Some(threads) = threads else {
        return work().map_err(refuse);
    };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| Failure::Value(format!("cannot start {threads} threads: {e}")))?;
    pool.install(work).map_err(refuse)
}

/// How often to look for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// The same for work that looks at a flag now and then. Ctrl-C sets the flag.
fn interruptible<T: Send>(
    threads: Option<usize>,
    work: impl FnOnce(&AtomicBool) -> haltwise_prefix::Result<T> + Send,
) -> Result<T, Failure> {
    let stop = AtomicBool::new(false);
    let (send, receive) = channel();
    // Signals come to the thread that Python runs in, so the work goes to another.
    std::thread::scope(|scope| {
        let stop = &stop;
        scope.spawn(move || send.send(within(threads, || work(stop))));
        loop {
            match receive.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Failure::Value("fitting failed".into()));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(signal) = check_signals() {
                        stop.store(true, Ordering::Relaxed);
                        let _ = receive.recv();
                        return Err(Failure::Python(signal));
                    }
                }
            }
        }
    })
}
