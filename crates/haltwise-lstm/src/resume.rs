//! A training run on disk: everything needed to continue it bit for bit.

use crate::checkpoint::{read, read_header, read_tensors, write, write_tensors};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::train::{Epoch, TrainOptions, Trainer};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::Path;

const STATE_KEY: &str = "haltwise-lstm-training";
const VERSION: u32 = 1;

/// The data of a training state besides its tensors. The order of the sequences follows
/// from the seed and the number of the epoch, so no generator is stored.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    shape: Shape,
    options: TrainOptions,
    data: u64,
    epochs: usize,
    adam_steps: u64,
    best: Option<Epoch>,
}

const TENSORS: [&str; 4] = ["parameters", "best_parameters", "adam.first", "adam.second"];

impl Trainer<'_> {
    /// Writes the state of the run, between two epochs, atomically.
    pub fn save_state(&self, path: impl AsRef<Path>) -> Result<()> {
        let state = &self.state;
        let header = Header {
            version: VERSION,
            shape: self.shape,
            options: self.options.clone(),
            data: self.fingerprint(),
            epochs: state.epochs,
            adam_steps: state.adam.steps,
            best: state.best,
        };
        let values = [
            &state.parameters,
            &state.best_parameters,
            &state.adam.first,
            &state.adam.second,
        ];
        let tensors = TENSORS.iter().zip(values);
        let tensors = tensors.map(|(name, v)| (name.to_string(), vec![v.len()], v.clone()));
        let bytes = write_tensors(tensors.collect(), STATE_KEY, &header)?;
        write(path.as_ref(), &bytes)
    }

    /// Continues a saved run. The trainer must have been made with the same data and
    /// options (except `patience` and `max_epochs`, which may change). The result equals
    /// that of an uninterrupted run, bit for bit.
    pub fn resume(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let bytes = read(path).map_err(|e| match e {
            Error::Io { path, source } if source.kind() == ErrorKind::NotFound => {
                Error::NothingToResume { path }
            }
            e => e,
        })?;
        self.resume_from(&bytes).map_err(|e| e.in_file(path))
    }

    fn resume_from(&mut self, bytes: &[u8]) -> Result<()> {
        let not_a_state = |why: &str| {
            Error::Format(format!(
                "it is not a training state{why}; remove it to start anew"
            ))
        };
        let header: Header = match read_header(bytes, STATE_KEY) {
            Ok(header) => header.ok_or_else(|| not_a_state(""))?,
            Err(Error::NotAModel(_)) => return Err(not_a_state(", or a damaged one")),
            Err(error) => return Err(error),
        };
        self.check_same_run(&header)?;
        let mut tensors = read_tensors(bytes)?;
        let mut take = |name: &str| match tensors.remove(name) {
            Some((_, values)) if values.len() == self.shape.parameters() => Ok(values),
            Some((found, _)) => Err(Error::TensorShape {
                name: name.into(),
                found,
                expected: format!("[{}]", self.shape.parameters()),
            }),
            None => Err(Error::MissingTensor {
                name: name.into(),
                found: "others".into(),
            }),
        };
        let [parameters, best_parameters, first, second] = TENSORS.map(&mut take);
        let (parameters, best_parameters) = (parameters?, best_parameters?);
        let (first, second) = (first?, second?);
        let state = &mut self.state;
        state.parameters = parameters;
        state.best_parameters = best_parameters;
        state.adam.first = first;
        state.adam.second = second;
        state.adam.steps = header.adam_steps;
        state.epochs = header.epochs;
        state.best = header.best;
        Ok(())
    }

    fn check_same_run(&self, header: &Header) -> Result<()> {
        let mut options = header.options.clone();
        options.patience = self.options.patience;
        options.max_epochs = self.options.max_epochs;
        let ours = settings(&self.shape, &self.options)?;
        let theirs = settings(&header.shape, &options)?;
        let differ = ours.iter().filter_map(|(name, here)| {
            let there = theirs.get(name)?;
            (here != there).then(|| format!("{name} is {here} here and {there} there"))
        });
        let differ: Vec<String> = differ.collect();
        if !differ.is_empty() {
            return Err(Error::OtherRun(format!(
                "{}; give the options of that run, or remove its state to start anew",
                differ.join(", ")
            )));
        }
        if header.data != self.fingerprint() {
            return Err(Error::OtherRun("it was made with other sequences".into()));
        }
        let best = header.best.map_or(0, |b| b.epoch);
        if best > header.epochs {
            return Err(Error::Format("its best epoch lies in the future".into()));
        }
        Ok(())
    }
}

/// All settings of a run, by name.
fn settings(shape: &Shape, options: &TrainOptions) -> Result<Map<String, Value>> {
    let fields = |value: serde_json::Result<Value>| match value {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Ok(Map::new()),
        Err(e) => Err(Error::Format(e.to_string())),
    };
    let mut all = fields(serde_json::to_value(shape))?;
    all.extend(fields(serde_json::to_value(options))?);
    Ok(all)
}
