//! From a dataset to a trace file: the one given, or the held-out sequences
//! scored by a checkpoint or by a model that is trained here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use haltwise_io::read_integers;
use haltwise_io::series::{SeriesSet, split};
use haltwise_lstm::{Epoch, Labelled, Model, TrainOptions, Trainer};
use haltwise_report::format::{count as number, count_of as count};
use serde::Serialize;
use xxhash_rust::xxh3::Xxh3Default;

use super::sources::{self, Dataset, TracesFrom};
use super::splits::Splits;
use super::{Event, Listener, Options, cache};
use crate::classifier::{series_of, write_traces};
use crate::datasets::TISELAC_PART;

/// How often the state of a training is saved: what an interruption may cost.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// What traces are made from: part of the key of all that follows from them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    /// A trace file, by its digest.
    File(String),
    /// Sequences scored by a checkpoint.
    Checkpoint {
        model: String,
        series: String,
        rows: String,
    },
    /// Sequences scored by a model that is trained here.
    Trained {
        series: String,
        rows: String,
        options: TrainOptions,
    },
}

/// The origin of a dataset's traces, and the sequences, where there are any.
pub(super) struct Prepared {
    pub(super) record: Origin,
    series: Option<(SeriesSet, Rows)>,
    words: String,
}

/// Which sequences train, validate and are held out.
struct Rows {
    train: Vec<usize>,
    validation: Vec<usize>,
    heldout: Vec<usize>,
}

impl Prepared {
    /// The origin of the results, in words.
    pub(super) fn note(&self, splits: &Splits) -> String {
        let splits = match splits.drawn() {
            true => "The splits are random, drawn by seed.",
            false => "The splits are those of a file.",
        };
        format!("{} {splits}", self.words)
    }
}

/// Where given traces come from, and what stands beside them in the table.
fn words_for(dataset: &str, path: &Path) -> String {
    let words = format!("The traces are those of {}.", file_name(path));
    match dataset.starts_with("QuALITY") {
        true => words + " The paper's rows are another model's, Vicuna-13B's, on 4,609 questions.",
        false => words,
    }
}

/// Reads what the traces of a dataset are made from.
pub(super) fn origin(
    options: &Options,
    dataset: &Dataset,
    tell: &Listener<'_>,
) -> anyhow::Result<Prepared> {
    let series = match dataset.source() {
        TracesFrom::Traces(path) => {
            return Ok(Prepared {
                record: Origin::File(cache::file_digest(path)?),
                series: None,
                words: words_for(dataset.name(), path),
            });
        }
        TracesFrom::Series(series) => series,
    };
    tell(Event::Doing("reading".into()));
    let set = series.read()?;
    let rows = rows(options, series, &set)?;
    let digests = (digest_of(&set), rows.digest());
    let record = match &series.checkpoint {
        Some(path) => Origin::Checkpoint {
            model: cache::file_digest(path)?,
            series: digests.0,
            rows: digests.1,
        },
        None => Origin::Trained {
            series: digests.0,
            rows: digests.1,
            options: train_options(options, dataset.name()),
        },
    };
    Ok(Prepared {
        record,
        words: words(dataset.name(), series, &rows),
        series: Some((set, rows)),
    })
}

fn words(name: &str, series: &sources::Series, rows: &Rows) -> String {
    let heldout = count(rows.heldout.len() as u64, "sequence", "sequences");
    let mut text = match &series.checkpoint {
        Some(path) => format!("{heldout}, held out, scored by {}.", file_name(path)),
        None => format!(
            "{heldout}, held out, scored by a model trained here on {} others.",
            number(rows.train.len() as u64)
        ),
    };
    if series.checkpoint.is_some() && series.rows.is_none() {
        text += " Which sequences that model was trained on is not known: if these are among \
                 them, the results flatter it.";
    }
    if name == TISELAC_PART {
        text += " This is a part of Tiselac, one derived band of ten and a tenth of the pixels, \
                 so it is not comparable with the paper's row.";
    }
    text
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The paper's network for a dataset.
fn train_options(options: &Options, name: &str) -> TrainOptions {
    let (hidden, layers) = match name {
        "WalkingSittingStanding" => (256, 2),
        _ => (32, 1),
    };
    TrainOptions {
        hidden,
        layers,
        max_epochs: options.max_epochs,
        seed: options.seed,
        ..TrainOptions::default()
    }
}

/// The rows that a file names, or 70% to train, 10% to validate and 20% to hold
/// out, as the paper has it.
fn rows(options: &Options, series: &sources::Series, set: &SeriesSet) -> anyhow::Result<Rows> {
    let Some(path) = &series.rows else {
        let mut parts = split(set.len(), &[0.7, 0.1, 0.2], options.seed)?.into_iter();
        let mut next = || parts.next().unwrap_or_default();
        return Ok(Rows {
            train: next(),
            validation: next(),
            heldout: next(),
        });
    };
    if series.is_built_in() {
        bail!(
            "{}: it numbers the rows of {}.npz, and the built-in dataset has them in another \
             order; give the folder that holds the file with --data FOLDER",
            path.display(),
            set.name()
        );
    }
    let mut seen = vec![None; set.len()];
    let mut part = |name| named_rows(path, name, &mut seen);
    let heldout = part("heldout")?;
    let validation = part("validation")?;
    // A checkpoint has been trained; what on does not matter any more.
    let train = match series.checkpoint {
        Some(_) => Vec::new(),
        None => part("train")?,
    };
    Ok(Rows {
        train,
        validation,
        heldout,
    })
}

/// Reads one array of rows. A row may occur once in all of them: what trained
/// the model must not be held out.
fn named_rows(
    path: &Path,
    name: &'static str,
    seen: &mut [Option<&'static str>],
) -> anyhow::Result<Vec<usize>> {
    let rows = read_integers(path, name)?.values;
    let n = seen.len();
    if rows.is_empty() {
        bail!("{}: `{name}` names no row", path.display());
    }
    rows.into_iter()
        .map(|row| match seen.get_mut(row as usize) {
            None => bail!(
                "{}: `{name}` names row {row}, but the dataset has {n} (rows 0 to {})",
                path.display(),
                n - 1
            ),
            Some(Some(other)) => bail!(
                "{}: row {row} is in `{other}` and again in `{name}`",
                path.display()
            ),
            Some(free) => {
                *free = Some(name);
                Ok(row as usize)
            }
        })
        .collect()
}

impl Rows {
    fn digest(&self) -> String {
        let mut hash = Xxh3Default::new();
        for part in [&self.train, &self.validation, &self.heldout] {
            hash.update(&(part.len() as u64).to_le_bytes());
            for &row in part {
                hash.update(&(row as u64).to_le_bytes());
            }
        }
        format!("{:032x}", hash.digest128())
    }
}

/// The digest of sequences in their order, which rows refer to.
fn digest_of(set: &SeriesSet) -> String {
    let mut hash = Xxh3Default::new();
    hash.update(&(set.features() as u64).to_le_bytes());
    for i in 0..set.len() {
        hash.update(&set.labels()[i].to_le_bytes());
        hash.update(&(set.steps(i) as u64).to_le_bytes());
        for value in set.sequence(i) {
            hash.update(&value.to_le_bytes());
        }
    }
    for class in set.classes() {
        hash.update(class.as_bytes());
        hash.update(&[0]);
    }
    format!("{:032x}", hash.digest128())
}

/// The trace files of a dataset.
pub(super) struct TraceFiles {
    /// The sequences that are split.
    pub(super) heldout: PathBuf,
    /// The validation sequences, which the adaptive method fits to; where there
    /// are none, it sets some of the calibration part aside.
    pub(super) validation: Option<PathBuf>,
}

/// The trace files of a dataset; written, unless they are there already.
pub(super) fn traces(
    options: &Options,
    dataset: &Dataset,
    prepared: &Prepared,
    tell: &Listener<'_>,
) -> anyhow::Result<TraceFiles> {
    let (series, (set, rows)) = match (dataset.source(), &prepared.series) {
        (TracesFrom::Series(series), Some(sequences)) => (series, sequences),
        (TracesFrom::Traces(path), _) => {
            return Ok(TraceFiles {
                heldout: path.clone(),
                validation: None,
            });
        }
        (TracesFrom::Series(_), None) => bail!("the sequences have not been read"),
    };
    let name = dataset.name();
    let file = |of: &str| options.output.join(format!("traces/{name}{of}.parquet"));
    let (heldout, validation) = (file(""), file(".validation"));
    let model_key = cache::key(&prepared.record)?;
    let key = cache::key(&("with probabilities", &prepared.record))?;
    if !cache::is_current(&heldout, &key)? || !cache::is_current(&validation, &key)? {
        let model = match &series.checkpoint {
            Some(checkpoint) => load(checkpoint, set)?,
            None => trained(options, name, &model_key, set, rows, tell)?,
        };
        for (path, rows) in [(&heldout, &rows.heldout), (&validation, &rows.validation)] {
            tell(Event::Stage("scoring", rows.len()));
            let done = |n| tell(Event::Advanced(n));
            let set = set.select(rows);
            let written = write_traces(&model, &set, rows, path, true, options.device, done)?;
            if let Some(why) = written.gpu_failed {
                tell(Event::Warning(why));
            }
            cache::record(path, &key)?;
        }
    }
    Ok(TraceFiles {
        heldout,
        validation: Some(validation),
    })
}

fn load(path: &Path, set: &SeriesSet) -> anyhow::Result<Model> {
    let model = Model::load(path)?;
    let shape = model.shape();
    let (features, classes) = (set.features(), set.classes().len());
    if (shape.features, shape.classes) != (features, classes) {
        bail!(
            "{}: this model reads {} and tells {} apart, but {} has {} and {}",
            path.display(),
            count(shape.features as u64, "feature", "features"),
            count(shape.classes as u64, "class", "classes"),
            set.name(),
            count(features as u64, "feature", "features"),
            count(classes as u64, "class", "classes"),
        );
    }
    Ok(model)
}

/// The model trained here, in this run or in an earlier one.
fn trained(
    options: &Options,
    name: &str,
    key: &str,
    set: &SeriesSet,
    rows: &Rows,
    tell: &Listener<'_>,
) -> anyhow::Result<Model> {
    let path = options.output.join(format!("models/{name}.safetensors"));
    if cache::is_current(&path, key)? {
        return Ok(Model::load(&path)?);
    }
    // The key in its name keeps the states of other options apart.
    let state = format!("models/{name}-{}.training", &key[..8]);
    let state = options.output.join(state);
    let (train, validation) = (set.select(&rows.train), set.select(&rows.validation));
    let trainer = Trainer::new(
        Labelled::new(series_of(&train)?, train.labels())?,
        Some(Labelled::new(series_of(&validation)?, validation.labels())?),
        set.classes().to_vec(),
        train_options(options, name),
    )?;
    let mut trainer = trainer.on(options.device)?;
    if state.is_file() {
        trainer
            .resume(&state)
            .context("an interrupted training cannot go on; remove its file to begin anew")?;
    }
    train_on(&mut trainer, &state, tell)?;
    let model = trainer.model()?;
    model.save(&path)?;
    cache::record(&path, key)?;
    // The model is complete: the way there is not needed any more.
    if state.is_file() {
        fs::remove_file(&state)
            .with_context(|| format!("{}: cannot remove it", state.display()))?;
    }
    Ok(model)
}

/// Trains to the end, and saves the state of it now and then.
fn train_on(trainer: &mut Trainer<'_>, state: &Path, tell: &Listener<'_>) -> anyhow::Result<()> {
    tell(Event::Doing("training, first epoch".into()));
    let mut saved: Option<Instant> = None;
    let mut best: Option<Epoch> = None;
    while let Some(epoch) = trainer.epoch()? {
        if epoch.best {
            best = Some(epoch);
        }
        let best = best.map_or_else(String::new, |b| {
            format!(", best {:.4} in epoch {}", b.validation_loss, b.epoch)
        });
        tell(Event::Doing(format!(
            "training, epoch {}, validation loss {:.4}{best}",
            epoch.epoch, epoch.validation_loss
        )));
        if saved.is_none_or(|at| at.elapsed() > SAVE_EVERY) {
            trainer.save_state(state)?;
            saved = Some(Instant::now());
        }
    }
    Ok(())
}
