//! Models on disk.
//!
//! Our own files are safetensors with PyTorch's tensor names, so that Python can read them
//! with `load_state_dict`, and one metadata entry with everything else. PyTorch's files,
//! `.pt` or safetensors, can be read directly.

use crate::error::{Error, Result};
use crate::model::{Model, TrainingRecord};
use crate::normalise::Normalisation;
use crate::pickle::{RawTensor, read_state_dict};
use crate::shape::{MAX_PARAMETERS, Shape};
use haltwise_series::file;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// The version of written files; older ones stay readable.
const VERSION: u32 = 1;
/// The longest file that is read: the state of a training run has four numbers for each weight.
const LONGEST: u64 = 16 * MAX_PARAMETERS as u64 + (1 << 24);
/// The metadata entry of a model.
const MODEL_KEY: &str = "haltwise-lstm";

/// The data in a model file besides its tensors.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    shape: Shape,
    classes: Vec<String>,
    normalisation: Normalisation,
    training: Option<TrainingRecord>,
}

impl Model {
    /// Writes the model as safetensors. The file is written next to the target and then
    /// moved onto it, so that a reader never sees half a file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), &self.to_safetensors_bytes()?)
    }

    /// Reads a model: one of ours, or PyTorch's state dict as `.pt` or safetensors.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let bytes = read(path)?;
        // A zip archive starts with "PK"; a safetensors file with a length.
        let model = if bytes.starts_with(b"PK") {
            Self::from_pt_bytes(&bytes)
        } else {
            Self::from_safetensors_bytes(&bytes)
        };
        model.map_err(|e| e.in_file(path))
    }

    /// Reads PyTorch's `.pt` state dict. Nothing in it is executed. A file that asks for
    /// anything except tensors is refused.
    pub fn from_pt_bytes(bytes: &[u8]) -> Result<Self> {
        from_tensors(read_state_dict(bytes)?.into_iter().collect(), None)
    }

    /// Reads safetensors, ours or with only PyTorch's names.
    pub fn from_safetensors_bytes(bytes: &[u8]) -> Result<Self> {
        let header = read_header(bytes, MODEL_KEY)?;
        from_tensors(read_tensors(bytes)?, header)
    }

    /// The model as the content of a safetensors file.
    pub fn to_safetensors_bytes(&self) -> Result<Vec<u8>> {
        let header = Header {
            version: VERSION,
            shape: *self.shape(),
            classes: self.classes().to_vec(),
            normalisation: self.normalisation().clone(),
            training: self.training().cloned(),
        };
        let mut tensors = Vec::new();
        for tensor in self.shape().tensors() {
            let values = &self.parameters()[tensor.range()];
            if tensor.merged {
                // PyTorch adds its two biases; the sum is stored in the first.
                let second = tensor.name.replace("bias_ih", "bias_hh");
                tensors.push((second, tensor.dimensions(), vec![0.0; values.len()]));
            }
            tensors.push((tensor.name.clone(), tensor.dimensions(), values.to_vec()));
        }
        write_tensors(tensors, MODEL_KEY, &header)
    }
}

/// Builds a model from PyTorch's tensors, and from our header if there is one.
fn from_tensors(mut tensors: BTreeMap<String, RawTensor>, header: Option<Header>) -> Result<Model> {
    let shape = infer_shape(&tensors)?;
    if let Some(header) = header.as_ref().filter(|h| h.shape != shape) {
        return Err(Error::Format(format!(
            "the header says {:?}, but the tensors are those of {shape:?}",
            header.shape
        )));
    }
    let mut parameters = Vec::with_capacity(shape.parameters());
    for tensor in shape.tensors() {
        let start = parameters.len();
        parameters.extend(take(&mut tensors, &tensor.name, &tensor.dimensions())?);
        if tensor.merged {
            let second = tensor.name.replace("bias_ih", "bias_hh");
            let second = take(&mut tensors, &second, &tensor.dimensions())?;
            for (sum, b) in parameters[start..].iter_mut().zip(second) {
                *sum += b;
            }
        }
    }
    if let Some(name) = tensors.keys().next() {
        return Err(Error::Format(format!(
            "tensor {name} has no place in a two-head LSTM: \
             bidirectional and projected layers are not supported"
        )));
    }
    let (classes, normalisation, training) = match header {
        Some(h) => (h.classes, h.normalisation, h.training),
        None => (
            (0..shape.classes).map(|k| k.to_string()).collect(),
            Normalisation::identity(shape.features),
            None,
        ),
    };
    Model::new(shape, parameters, classes, normalisation, training)
}

/// Removes one tensor, which must have these dimensions and finite values.
fn take(
    tensors: &mut BTreeMap<String, RawTensor>,
    name: &str,
    dimensions: &[usize],
) -> Result<Vec<f32>> {
    let Some((found, values)) = tensors.remove(name) else {
        return Err(missing(tensors, name));
    };
    if found != dimensions {
        return Err(Error::TensorShape {
            name: name.into(),
            found,
            expected: format!("{dimensions:?}"),
        });
    }
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(values),
        Some(position) => Err(Error::TensorNotFinite {
            name: name.into(),
            position,
            value: values[position],
        }),
    }
}

fn missing(tensors: &BTreeMap<String, RawTensor>, name: &str) -> Error {
    let names: Vec<&str> = tensors.keys().take(12).map(String::as_str).collect();
    Error::MissingTensor {
        name: name.into(),
        found: match names.is_empty() {
            true => "no tensors".into(),
            false => names.join(", "),
        },
    }
}

/// The shape that the sizes of the tensors imply.
fn infer_shape(tensors: &BTreeMap<String, RawTensor>) -> Result<Shape> {
    let matrix = |name: &str| {
        let (dimensions, _) = tensors.get(name).ok_or_else(|| missing(tensors, name))?;
        match dimensions[..] {
            [rows, columns] => Ok((rows, columns)),
            _ => Err(Error::TensorShape {
                name: name.into(),
                found: dimensions.clone(),
                expected: "two dimensions".into(),
            }),
        }
    };
    let (_, features) = matrix("lstm.weight_ih_l0")?;
    let (_, hidden) = matrix("lstm.weight_hh_l0")?;
    let (classes, _) = matrix("fc_scores.weight")?;
    let layers = (0..)
        .take_while(|l| tensors.contains_key(&format!("lstm.weight_ih_l{l}")))
        .count();
    let shape = Shape {
        features,
        hidden,
        layers,
        classes,
        gap_head: tensors.contains_key("fc_gap.weight"),
    };
    shape.check()?;
    Ok(shape)
}

/// Our header in the metadata, if the file has one.
pub(crate) fn read_header<H: DeserializeOwned>(bytes: &[u8], key: &str) -> Result<Option<H>> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let Some(text) = metadata.metadata().as_ref().and_then(|m| m.get(key)) else {
        return Ok(None);
    };
    let bad = |e: serde_json::Error| Error::Format(format!("its {key} header is damaged: {e}"));
    // Read the version first, because a newer header may not parse at all.
    let Versioned { version } = serde_json::from_str(text).map_err(bad)?;
    if version > VERSION {
        return Err(Error::Format(format!(
            "it was written by a newer haltwise (format {version}, this one reads up to \
             {VERSION}): update haltwise"
        )));
    }
    serde_json::from_str(text).map(Some).map_err(bad)
}

/// All tensors of a safetensors file.
pub(crate) fn read_tensors(bytes: &[u8]) -> Result<BTreeMap<String, RawTensor>> {
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.iter() {
        let data = view.data();
        let values = match view.dtype() {
            Dtype::F32 => data
                .as_chunks()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
            Dtype::F64 => {
                let numbers = data.as_chunks().0.iter().map(|b| f64::from_le_bytes(*b));
                numbers.map(|v| v as f32).collect()
            }
            other => {
                return Err(Error::Format(format!(
                    "tensor {name} holds {other:?}: save it as 32-bit floats"
                )));
            }
        };
        tensors.insert(name.to_owned(), (view.shape().to_vec(), values));
    }
    Ok(tensors)
}

fn damaged(error: safetensors::SafeTensorError) -> Error {
    Error::NotAModel(format!("as safetensors: {error}"))
}

/// The content of a safetensors file with our header.
pub(crate) fn write_tensors(
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
    key: &str,
    header: &impl Serialize,
) -> Result<Vec<u8>> {
    let unwritable = |e: &dyn std::fmt::Display| Error::Format(format!("cannot be written: {e}"));
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .into_iter()
        .map(|(name, shape, v)| {
            (
                name,
                shape,
                v.iter().flat_map(|v| v.to_le_bytes()).collect(),
            )
        })
        .collect();
    let views = bytes
        .iter()
        .map(|(name, shape, data)| Ok((name, TensorView::new(Dtype::F32, shape.clone(), data)?)))
        .collect::<std::result::Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|e| unwritable(&e))?;
    let header = serde_json::to_string(header).map_err(|e| unwritable(&e))?;
    let metadata = HashMap::from([(key.to_owned(), header)]);
    safetensors::serialize(views, Some(metadata)).map_err(|e| unwritable(&e))
}

/// Reads a whole file of a model or a training run.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    read_up_to(path, LONGEST)
}

fn read_up_to(path: &Path, longest: u64) -> Result<Vec<u8>> {
    let read = file::read_up_to(path, longest).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    read.ok_or_else(|| {
        let problem = Error::Format(format!(
            "it is longer than {longest} bytes, and no model of this kind is; name another file"
        ));
        problem.in_file(path)
    })
}

/// Writes a file of a model or a training run: whole, or not at all.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    file::write_whole(path, bytes).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::initial_parameters;
    use proptest::prelude::*;

    fn model() -> Model {
        let shape = Shape {
            features: 2,
            hidden: 3,
            layers: 2,
            classes: 2,
            gap_head: true,
        };
        let normalisation = Normalisation {
            mean: vec![0.1, -3.0],
            deviation: vec![2.5, 0.3],
        };
        let names = vec!["no".into(), "yes".into()];
        let parameters = initial_parameters(&shape, 1);
        Model::new(shape, parameters, names, normalisation, None).unwrap()
    }

    /// The model's tensors, changed, as a file without our header.
    fn changed(change: impl FnOnce(&mut BTreeMap<String, RawTensor>)) -> Result<Model> {
        let mut tensors = read_tensors(&model().to_safetensors_bytes()?)?;
        change(&mut tensors);
        from_tensors(tensors, None)
    }

    #[test]
    fn a_model_survives_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.safetensors");
        model().save(&path).unwrap();
        assert_eq!(Model::load(&path).unwrap(), model());
        model().save(&path).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn saving_twice_writes_the_same_bytes() {
        let bytes = || model().to_safetensors_bytes().unwrap();
        assert_eq!(bytes(), bytes());
    }

    #[test]
    fn plain_pytorch_names_are_enough() {
        let plain = changed(|_| ()).unwrap();
        assert_eq!(plain.parameters(), model().parameters());
        assert_eq!(plain.classes(), ["0", "1"]);
        assert_eq!(*plain.normalisation(), Normalisation::identity(2));
    }

    #[test]
    fn a_missing_tensor_is_named() {
        let error = changed(|t| drop(t.remove("lstm.weight_hh_l1"))).unwrap_err();
        assert!(
            error.to_string().contains("lstm.weight_hh_l1 is missing"),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_shape_is_named_with_the_right_one() {
        let error = changed(|t| {
            t.insert("lstm.weight_hh_l1".into(), (vec![12, 2], vec![0.0; 24]));
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("lstm.weight_hh_l1 has shape [12, 2], expected [12, 3]"),
            "{error}"
        );
    }

    #[test]
    fn a_nan_weight_is_refused() {
        let error = changed(|t| {
            if let Some((_, values)) = t.get_mut("fc_scores.bias") {
                values[1] = f32::NAN;
            }
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("fc_scores.bias holds NaN at position 1"),
            "{error}"
        );
    }

    #[test]
    fn a_tensor_without_a_place_is_refused() {
        let error = changed(|t| {
            t.insert("lstm.weight_ih_l0_reverse".into(), (vec![1], vec![0.0]));
        });
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains("weight_ih_l0_reverse")
        );
    }

    #[test]
    fn a_newer_format_is_refused_with_the_remedy() {
        let tensors = || vec![("a".into(), vec![1], vec![0.0])];
        let newer = serde_json::json!({ "version": 2, "shape": "anything" });
        let bytes = write_tensors(tensors(), MODEL_KEY, &newer).unwrap();
        let error = Model::from_safetensors_bytes(&bytes).unwrap_err();
        assert!(error.to_string().contains("update haltwise"), "{error}");
    }

    #[test]
    fn an_error_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken.safetensors");
        std::fs::write(&path, b"nonsense").unwrap();
        let error = Model::load(&path).unwrap_err().to_string();
        assert!(error.contains("broken.safetensors"), "{error}");
        let error = Model::load(folder.path().join("absent.pt")).unwrap_err();
        assert!(error.to_string().contains("absent.pt"), "{error}");
    }

    #[test]
    fn a_truncated_file_is_refused_at_every_length() {
        let bytes = model().to_safetensors_bytes().unwrap();
        for end in 0..bytes.len() {
            assert!(Model::from_safetensors_bytes(&bytes[..end]).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_damage_makes_it_panic(at in 0usize..4000, byte: u8) {
            let mut bytes = model().to_safetensors_bytes().unwrap();
            let length = bytes.len();
            bytes[at % length] = byte;
            let _ = Model::from_safetensors_bytes(&bytes);
        }
    }
}
