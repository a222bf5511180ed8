//! Traces: from the bytes of a file, or from typed arrays.

use std::path::Path;

use haltwise::traces::{Classifier, Key};
use haltwise::{Outputs, Sequence};
use haltwise_io::{Columns, Format, metadata_of_bytes, visit_bytes, visit_given};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::calibrate::plan;
use crate::{Result, error};

/// The metadata of a file that names its classifier.
const CLASSIFIER: &str = "classifier";

/// The outputs of a classifier on sequences.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Traces {
    pub(crate) outputs: Outputs,
    /// The classifier that produced them, if the file names it.
    pub(crate) classifier: Option<Classifier>,
}

#[wasm_bindgen]
impl Traces {
    /// Reads a file; its name determines the format. `options` are those of the
    /// calibration, as JSON; they may name columns.
    pub fn read(name: &str, bytes: &[u8], options: &str) -> Result<Self> {
        let format = Format::of(Path::new(name)).map_err(error)?;
        let columns = Columns::of(plan(options)?.terms());
        let mut outputs = Outputs::new();
        visit_bytes(name, format, bytes, &columns, &mut |trace| {
            let key = Key::new(trace.id(), outputs.len() as u64);
            outputs.add(key, trace).map_err(|e| e.to_string())
        })
        .map_err(error)?;
        let metadata = metadata_of_bytes(name, bytes).map_err(error)?;
        let named = metadata.into_iter().find(|(name, _)| name == CLASSIFIER);
        let classifier = named.map(|(_, text)| serde_json::from_str(&text));
        let classifier = classifier.transpose().map_err(|e| {
            error(format_args!(
                "{name}: its metadata about the classifier: {e}"
            ))
        })?;
        Ok(Self {
            outputs,
            classifier,
        })
    }

    /// Takes arrays, row by row: `steps` numbers per sequence, and `classes` times as many
    /// probabilities. A label below 0 is missing.
    #[expect(clippy::too_many_arguments, reason = "arrays by name, in JavaScript")]
    pub fn given(
        steps: usize,
        classes: usize,
        labels: &[i32],
        probs: Option<Vec<f32>>,
        predictions: Option<Vec<u32>>,
        scores: Option<Vec<f32>>,
        lengths: Option<Vec<u32>>,
        ids: Option<Vec<String>>,
    ) -> Result<Self> {
        let n = labels.len();
        let size = |name: &str, found: Option<usize>, wanted: usize| match found {
            Some(found) if found != wanted => Err(error(format_args!(
                "{name} has {found} numbers, but {n} sequences need {wanted}"
            ))),
            _ => Ok(()),
        };
        let all = n.saturating_mul(steps);
        size(
            "probs",
            probs.as_ref().map(Vec::len),
            all.saturating_mul(classes),
        )?;
        size("predictions", predictions.as_ref().map(Vec::len), all)?;
        size("scores", scores.as_ref().map(Vec::len), all)?;
        size("lengths", lengths.as_ref().map(Vec::len), n)?;
        size("ids", ids.as_ref().map(Vec::len), n)?;
        let mut outputs = Outputs::new();
        let show = |take: &mut haltwise_io::Take<'_>| {
            for (i, &label) in labels.iter().enumerate() {
                let length = lengths.as_ref().map_or(steps, |l| l[i] as usize);
                if length > steps {
                    let row = i + 1;
                    return Err(format!(
                        "row {row}, lengths: {length} steps, of {steps} at the most"
                    ));
                }
                let row = i * steps..i * steps + length;
                let of_probs = row.start * classes..row.end * classes;
                take(Sequence {
                    id: ids.as_ref().map(|ids| &ids[i][..]),
                    label: u32::try_from(label).ok(),
                    predictions: predictions.as_ref().map(|p| &p[row.clone()]),
                    scores: scores.as_ref().map(|s| &s[row.clone()]),
                    probs: probs.as_ref().map(|p| (&p[of_probs.clone()], classes)),
                    ..Sequence::default()
                })?;
            }
            Ok::<(), String>(())
        };
        visit_given(show, &mut |trace| {
            let key = Key::new(trace.id(), outputs.len() as u64);
            outputs.add(key, trace).map_err(|e| e.to_string())
        })
        .map_err(error)?;
        Ok(Self {
            outputs,
            classifier: None,
        })
    }

    /// How many sequences.
    pub fn sequences(&self) -> usize {
        self.outputs.len()
    }

    /// The steps of the longest.
    pub fn steps(&self) -> usize {
        (0..self.outputs.len())
            .map(|i| self.outputs.steps(i).count())
            .max()
            .unwrap_or(0)
    }

    /// The class probabilities of a sequence, step by step; empty if there are none.
    pub fn probs(&self, sequence: usize) -> Vec<f32> {
        if sequence >= self.outputs.len() {
            return Vec::new();
        }
        let steps = self.outputs.steps(sequence);
        steps
            .flat_map(|step| step.probs.unwrap_or_default().to_vec())
            .collect()
    }
}
