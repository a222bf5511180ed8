//! Models on disk: safetensors, with one metadata entry for all that is not a tensor.
//!
//! A file is read as if an enemy had written it: nothing is allocated that the file does not
//! contain, and every index is checked before it is used.

use crate::error::{Error, Result};
use crate::fit::{MAX_CHANNELS, MAX_CLASSES};
use crate::forest::{Forest, MIXED, Node, PURE};
use crate::inputs::tree_inputs_of;
use crate::kernels::{BIASES, Bank, KERNELS, Kernels};
use crate::mix::Mix;
use crate::model::{Model, Parts, Voices};
use crate::options::Checkpoints;
use crate::record::TrainingRecord;
use crate::ridge::Ridge;
use crate::scale::Scale;
use haltwise_series::file;
use ndarray::{Array1, Array2};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// The version of written files.
const VERSION: u32 = 1;
/// The metadata entry of a model.
const KEY: &str = "haltwise-prefix";
/// The longest file that is read.
const LONGEST: u64 = 8 << 30;
/// The largest dilation that a file may ask for.
const MAX_DILATION: usize = 1 << 17;

/// What a file says besides its tensors.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    classes: Vec<String>,
    checkpoints: Vec<usize>,
    scale: Scale,
    class_shares: Vec<f32>,
    banks: Vec<BankHeader>,
    mixes: Vec<Mix>,
    training: TrainingRecord,
}

#[derive(Serialize, Deserialize)]
struct BankHeader {
    differences: bool,
    dilation: usize,
    /// The channels of each kernel; left out if there is only one channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    channels: Vec<Vec<u16>>,
}

impl Model {
    /// Writes the model. The file is written next to the target and then moved onto it, so
    /// that a reader never sees half a file.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        file::write_whole(path, &self.to_bytes()?).map_err(|source| Error::Io {
            path: path.to_owned(),
            source,
        })
    }

    /// Reads a model from a file.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_bytes(&read(path)?).map_err(|e| e.in_file(path))
    }

    /// Whether these bytes are a file of a model of this kind, damaged or not.
    pub fn recognises(bytes: &[u8]) -> bool {
        let metadata = SafeTensors::read_metadata(bytes);
        metadata.is_ok_and(|(_, m)| m.metadata().as_ref().is_some_and(|m| m.contains_key(KEY)))
    }

    /// The model as the content of a safetensors file.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let parts = &*self.0;
        let one_channel = self.channels() == 1;
        let bank = |bank: &Bank| BankHeader {
            differences: bank.differences,
            dilation: bank.dilation,
            channels: if one_channel {
                Vec::new()
            } else {
                bank.channels.clone()
            },
        };
        let header = Header {
            version: VERSION,
            classes: parts.classes.clone(),
            checkpoints: parts.checkpoints.clone(),
            scale: parts.scale.clone(),
            class_shares: parts.prior.clone(),
            banks: parts.kernels.banks.iter().map(bank).collect(),
            mixes: parts.voices.iter().map(|voices| voices.mix).collect(),
            training: parts.training.clone(),
        };
        let mut tensors = Vec::new();
        for (i, bank) in parts.kernels.banks.iter().enumerate() {
            let biases = bank.biases.iter().flatten().copied();
            tensors.push(numbers(
                format!("bank.{i}.biases"),
                vec![KERNELS, BIASES],
                biases,
            ));
        }
        for (i, voices) in parts.voices.iter().enumerate() {
            let weights = &voices.ridge.weights;
            let name = |part: &str| format!("checkpoint.{i}.{part}");
            let shape = vec![weights.nrows(), weights.ncols()];
            tensors.push(numbers(name("weights"), shape, weights.iter().copied()));
            let intercept = &voices.ridge.intercept;
            tensors.push(numbers(
                name("intercept"),
                vec![intercept.len()],
                intercept.iter().copied(),
            ));
            let Forest {
                nodes,
                shares,
                roots,
            } = &voices.forest;
            let whole = |f: fn(&Node) -> u32| nodes.iter().map(f).map(u32::to_le_bytes);
            let shape = || vec![nodes.len()];
            let tensor = |part, bytes: Vec<u8>| (name(part), Dtype::U32, shape(), bytes);
            tensors.push(tensor("inputs", whole(|n| n.input).flatten().collect()));
            tensors.push(tensor("children", whole(|n| n.child).flatten().collect()));
            tensors.push(numbers(name("cuts"), shape(), nodes.iter().map(|n| n.cut)));
            tensors.push(numbers(
                name("shares"),
                vec![shares.len()],
                shares.iter().copied(),
            ));
            let bytes = roots.iter().flat_map(|r| r.to_le_bytes()).collect();
            tensors.push((name("roots"), Dtype::U32, vec![roots.len()], bytes));
        }
        let unwritable =
            |e: &dyn std::fmt::Display| Error::Format(format!("cannot be written: {e}"));
        let views = tensors
            .iter()
            .map(|(name, kind, shape, data)| {
                Ok((name, TensorView::new(*kind, shape.clone(), data)?))
            })
            .collect::<std::result::Result<Vec<_>, safetensors::SafeTensorError>>()
            .map_err(|e| unwritable(&e))?;
        let header = serde_json::to_string(&header).map_err(|e| unwritable(&e))?;
        let metadata = HashMap::from([(KEY.to_owned(), header)]);
        safetensors::serialize(views, Some(metadata)).map_err(|e| unwritable(&e))
    }

    /// Reads what [`Model::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let header = read_header(bytes)?;
        check_header(&header)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let tensors = Tensors(&file);
        let (classes, channels) = (header.classes.len(), header.scale.mean.len());
        let banks = header.banks.into_iter().enumerate();
        let banks = banks
            .map(|(i, bank)| tensors.bank(i, bank, channels))
            .collect::<Result<_>>()?;
        let kernels = Kernels { banks };
        let at = header.checkpoints.iter().zip(&header.mixes).enumerate();
        let voices = at.map(|(i, (&points, &mix))| {
            let features = kernels.features() + channels;
            let inputs = tree_inputs_of(points, channels);
            let name = |part: &str| format!("checkpoint.{i}.{part}");
            let weights = tensors.numbers(&name("weights"), &[features, classes])?;
            let intercept = tensors.numbers(&name("intercept"), &[classes])?;
            let forest = tensors.forest(&name, inputs, classes)?;
            let shaped = Array2::from_shape_vec((features, classes), weights);
            let weights = shaped.map_err(|e| Error::Format(e.to_string()))?;
            let ridge = Ridge {
                weights,
                intercept: Array1::from(intercept),
            };
            Ok(Voices { ridge, forest, mix })
        });
        Ok(Model(Arc::new(Parts {
            voices: voices.collect::<Result<_>>()?,
            classes: header.classes,
            checkpoints: header.checkpoints,
            scale: header.scale,
            prior: header.class_shares,
            kernels,
            training: header.training,
        })))
    }
}

type Tensor = (String, Dtype, Vec<usize>, Vec<u8>);

fn numbers(name: String, shape: Vec<usize>, values: impl Iterator<Item = f32>) -> Tensor {
    (
        name,
        Dtype::F32,
        shape,
        values.flat_map(f32::to_le_bytes).collect(),
    )
}

fn damaged(error: safetensors::SafeTensorError) -> Error {
    Error::NotAModel(format!("as safetensors: {error}"))
}

fn read_header(bytes: &[u8]) -> Result<Header> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let Some(text) = metadata.metadata().as_ref().and_then(|m| m.get(KEY)) else {
        return Err(Error::NotAModel(format!("its metadata has no entry {KEY}")));
    };
    let bad = |e: serde_json::Error| Error::Format(format!("its {KEY} header is damaged: {e}"));
    // Read the version first, because a newer header may not parse at all.
    let Versioned { version } = serde_json::from_str(text).map_err(bad)?;
    if version > VERSION {
        return Err(Error::Format(format!(
            "it was written by a newer haltwise (format {version}, this one reads up to \
             {VERSION}): update haltwise"
        )));
    }
    serde_json::from_str(text).map_err(bad)
}

fn check_header(header: &Header) -> Result<()> {
    let refuse = |what: &str| Err(Error::Format(format!("its header is damaged: {what}")));
    let (classes, channels) = (header.classes.len(), header.scale.mean.len());
    if !(2..=MAX_CLASSES).contains(&classes) || header.class_shares.len() != classes {
        return refuse("the number of classes is impossible");
    }
    if !(1..=MAX_CHANNELS).contains(&channels) || header.scale.factor.len() != channels {
        return refuse("the number of channels is impossible");
    }
    let rising = header.checkpoints.is_sorted_by(|a, b| a < b);
    if !rising || header.checkpoints.first().is_none_or(|&first| first == 0) {
        return refuse("the checkpoints do not rise");
    }
    Checkpoints::check(&header.checkpoints)?;
    if header.mixes.len() != header.checkpoints.len()
        || header.training.checkpoints.len() != header.checkpoints.len()
    {
        return refuse("the checkpoints are not all described");
    }
    let mixes = header
        .mixes
        .iter()
        .flat_map(|mix| [mix.ridge as f32, mix.trees as f32]);
    let scale = header
        .scale
        .mean
        .iter()
        .chain(&header.scale.factor)
        .copied();
    if mixes
        .chain(scale)
        .chain(header.class_shares.iter().copied())
        .any(|x| !x.is_finite())
    {
        return refuse("a number is not finite");
    }
    for bank in &header.banks {
        if bank.dilation == 0 || bank.dilation > MAX_DILATION {
            return refuse("a dilation is impossible");
        }
    }
    Ok(())
}

/// The tensors of a file.
struct Tensors<'a>(&'a SafeTensors<'a>);

impl Tensors<'_> {
    /// The four-byte numbers of one tensor, which must have this type, and this shape if one
    /// is given.
    fn raw(&self, name: &str, kind: Dtype, shape: Option<&[usize]>) -> Result<Vec<[u8; 4]>> {
        let Ok(tensor) = self.0.tensor(name) else {
            return Err(Error::Format(format!("tensor {name} is missing")));
        };
        let expected = shape.map_or_else(|| "one dimension".into(), |s| format!("shape {s:?}"));
        let fits = shape.map_or(tensor.shape().len() == 1, |s| s == tensor.shape());
        if tensor.dtype() != kind || !fits {
            return Err(Error::Format(format!(
                "tensor {name} has type {:?} and shape {:?}, expected {kind:?} and {expected}",
                tensor.dtype(),
                tensor.shape()
            )));
        }
        Ok(tensor.data().as_chunks().0.to_vec())
    }

    fn numbers(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        self.finite(name, Some(shape))
    }

    fn finite(&self, name: &str, shape: Option<&[usize]>) -> Result<Vec<f32>> {
        let raw = self.raw(name, Dtype::F32, shape)?;
        let values: Vec<f32> = raw.into_iter().map(f32::from_le_bytes).collect();
        match values.iter().position(|x| !x.is_finite()) {
            None => Ok(values),
            Some(position) => Err(Error::Format(format!(
                "tensor {name} holds {} at position {position}",
                values[position]
            ))),
        }
    }

    fn whole(&self, name: &str, length: Option<usize>) -> Result<Vec<u32>> {
        let shape = length.map(|length| vec![length]);
        let raw = self.raw(name, Dtype::U32, shape.as_deref())?;
        Ok(raw.into_iter().map(u32::from_le_bytes).collect())
    }

    fn bank(&self, i: usize, header: BankHeader, channels: usize) -> Result<Bank> {
        let biases = self.numbers(&format!("bank.{i}.biases"), &[KERNELS, BIASES])?;
        let sets = match channels {
            1 => vec![vec![0]; KERNELS],
            _ => header.channels,
        };
        let fits =
            |set: &Vec<u16>| !set.is_empty() && set.iter().all(|&c| usize::from(c) < channels);
        if sets.len() != KERNELS || !sets.iter().all(fits) {
            let message = format!("its header is damaged: the channels of bank {i} are impossible");
            return Err(Error::Format(message));
        }
        Ok(Bank {
            differences: header.differences,
            dilation: header.dilation,
            channels: sets,
            biases: biases.as_chunks().0.to_vec(),
        })
    }

    fn forest(
        &self,
        name: &dyn Fn(&str) -> String,
        inputs: usize,
        classes: usize,
    ) -> Result<Forest> {
        let roots = self.whole(&name("roots"), None)?;
        let asked = self.whole(&name("inputs"), None)?;
        let children = self.whole(&name("children"), Some(asked.len()))?;
        let cuts = self.numbers(&name("cuts"), &[asked.len()])?;
        let shares = self.finite(&name("shares"), None)?;
        let nodes: Vec<Node> = asked
            .into_iter()
            .zip(cuts)
            .zip(children)
            .map(|((input, cut), child)| Node { input, cut, child })
            .collect();
        // Children come after their parents, so every walk ends.
        let fits = |(at, node): (usize, &Node)| {
            let child = node.child as usize;
            match node.input {
                PURE => child < classes,
                MIXED => child + classes <= shares.len(),
                input => (input as usize) < inputs && child > at && child + 1 < nodes.len(),
            }
        };
        if let Some(wrong) = nodes.iter().enumerate().position(|x| !fits(x)) {
            let name = name("inputs");
            return Err(Error::Format(format!(
                "node {wrong} of {name} leads nowhere"
            )));
        }
        if roots.iter().any(|&root| root as usize >= nodes.len()) {
            return Err(Error::Format(format!(
                "a tree of {} begins nowhere",
                name("roots")
            )));
        }
        Ok(Forest {
            nodes,
            shares,
            roots,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let read = file::read_up_to(path, LONGEST).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    read.ok_or_else(|| {
        let problem = Error::Format(format!(
            "it is longer than {LONGEST} bytes, and no model is; name another file"
        ));
        problem.in_file(path)
    })
}
