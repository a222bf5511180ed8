//! Fits a model, and answers about its own training series, each left out.

use crate::answers::{Answers, best};
use crate::error::{Error, Result};
use crate::forest::{Forest, Table};
use crate::inputs::{tree_inputs, tree_inputs_of};
use crate::kernels::{Block, Kernels};
use crate::mix::Mix;
use crate::model::{LANES, Model, Parts, Voices, block_of};
use crate::options::{FitOptions, MOST_USUAL};
use crate::record::{CheckpointRecord, TrainingRecord};
use crate::ridge::Ridge;
use crate::scale::{Prefix, Scale};
use haltwise_series::seen::hashes_to_keep;
use haltwise_series::{Random, Series};
use ndarray::{Array2, Axis};
use rayon::prelude::*;
use std::ops::ControlFlow;
use std::sync::Arc;

/// A model, and what it says about its own training series.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The model.
    pub model: Model,
    /// For each training series, what the model says about it when it is left out: the ridge
    /// in closed form, the trees by those that did not see it.
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
    check(series, labels, classes.len())?;
    let checkpoints = options.checkpoints.lengths(series)?;
    let mut fit = Fit::new(series, labels, classes.len(), options, &checkpoints);
    let mut voices = Vec::with_capacity(checkpoints.len());
    for (done, &points) in (1..).zip(&checkpoints) {
        voices.push(fit.checkpoint(points));
        let accuracy = fit.records.last().map_or(0.0, |record| record.accuracy);
        let checkpoints = checkpoints.len();
        if progress(Progress {
            done,
            checkpoints,
            points,
            accuracy,
        })
        .is_break()
        {
            return Err(Error::Stopped);
        }
    }
    let training = TrainingRecord {
        options: options.clone(),
        trained_on: series.len(),
        checkpoints: fit.records,
        version: env!("CARGO_PKG_VERSION").into(),
        seen: hashes_to_keep((0..series.len()).map(|i| series.hash(i))),
    };
    let mut out_of_sample = fit.answers;
    out_of_sample.repeat_last();
    let model = Model(Arc::new(Parts {
        classes,
        checkpoints,
        scale: fit.scale,
        prior: fit.prior,
        kernels: fit.kernels,
        voices,
        training,
    }));
    Ok(Fitted {
        model,
        out_of_sample,
    })
}

fn check(series: &Series<'_>, labels: &[u32], classes: usize) -> Result<()> {
    if labels.len() != series.len() {
        let (labels, series) = (labels.len(), series.len());
        return Err(Error::Size(format!("{labels} labels for {series} series")));
    }
    if series.features() > MAX_CHANNELS || classes > MAX_CLASSES {
        return Err(Error::TooLarge(format!(
            "{} channels and {classes} classes are too many: a model has at most \
             {MAX_CHANNELS} channels and {MAX_CLASSES} classes",
            series.features()
        )));
    }
    if let Some(at) = labels.iter().position(|&label| label as usize >= classes) {
        let label = labels[at];
        return Err(Error::Label {
            series: at,
            label,
            classes,
        });
    }
    if labels.iter().all(|&label| label == labels[0]) {
        let (series, label) = (labels.len(), labels[0]);
        return Err(Error::OneLabel { series, label });
    }
    Ok(())
}

/// The most numbers per time point.
pub(crate) const MAX_CHANNELS: usize = 4096;
/// The most classes.
pub(crate) const MAX_CLASSES: usize = 4096;

/// A fit under way. Checkpoints are fitted one after the other, so that only the counts of one
/// are in memory.
struct Fit<'a> {
    labels: &'a [u32],
    lengths: Vec<usize>,
    classes: usize,
    options: &'a FitOptions,
    scale: Scale,
    prior: Vec<f32>,
    prefixes: Vec<Prefix>,
    kernels: Kernels,
    blocks: Vec<Block<LANES>>,
    /// The penalty of the checkpoint before, where the search for the next begins.
    penalty: i32,
    answers: Answers,
    records: Vec<CheckpointRecord>,
}

impl<'a> Fit<'a> {
    fn new(
        series: &Series<'_>,
        labels: &'a [u32],
        classes: usize,
        options: &'a FitOptions,
        checkpoints: &[usize],
    ) -> Self {
        let (n, channels) = (series.len(), series.features());
        let last = checkpoints.last().copied().unwrap_or(0);
        let scale = Scale::of(series);
        let read = |i: usize| scale.prefix(series.sequence(i), channels, last);
        let prefixes: Vec<Prefix> = (0..n).into_par_iter().map(read).collect();
        let mut random = Random::new(options.seed, 0);
        let kernels = Kernels::draw(|i| &prefixes[i], n, channels, last, &mut random);
        let groups = prefixes.par_chunks(LANES);
        let blocks = groups.map(|group| block_of(&kernels, group)).collect();
        let mut prior = vec![0.0; classes];
        labels
            .iter()
            .for_each(|&label| prior[label as usize] += 1.0);
        prior.iter_mut().for_each(|p| *p /= n as f32);
        let lengths: Vec<usize> = (0..n).map(|i| series.length(i)).collect();
        let reached = |length: usize| checkpoints.partition_point(|&c| c <= length);
        let answers = Answers {
            probabilities: prior.repeat(n * checkpoints.len()),
            reached: lengths
                .iter()
                .map(|&length| reached(length) as u32)
                .collect(),
            checkpoints: checkpoints.len(),
            classes,
        };
        let records = Vec::new();
        Fit {
            labels,
            lengths,
            classes,
            options,
            scale,
            prior,
            prefixes,
            kernels,
            blocks,
            penalty: 4,
            answers,
            records,
        }
    }

    /// Fits both voices to the series that reach a checkpoint, and keeps what they say about
    /// these series.
    fn checkpoint(&mut self, points: usize) -> Voices {
        let kernels = &self.kernels;
        self.blocks.par_iter_mut().for_each(|block| {
            if block.points() >= points {
                kernels.count(block, points);
            }
        });
        let rows: Vec<usize> = (0..self.lengths.len())
            .filter(|&i| self.lengths[i] >= points)
            .collect();
        let labels: Vec<u32> = rows.iter().map(|&i| self.labels[i]).collect();
        let features = self.features(&rows, points);
        // Neighbouring checkpoints need similar penalties: after the first, one side each time.
        let sides: &[i32] = match self.records.len() {
            0 => &[-1, 1],
            done if done.is_multiple_of(2) => &[1],
            _ => &[-1],
        };
        let fitted = Ridge::fit(features, &labels, self.classes, self.penalty, sides);
        self.penalty = fitted.penalty;
        let (forest, votes) = self.trees(&rows, &labels, points);

        let mut scores = fitted.left_out.into_raw_vec_and_offset().0;
        let mix = Mix::fit(&scores, &votes, &labels, self.classes);
        let checkpoint = self.records.len();
        let mut record = CheckpointRecord {
            series: rows.len(),
            ..Default::default()
        };
        let all = scores.chunks_exact_mut(self.classes);
        for (j, ((&i, &label), row)) in rows.iter().zip(&labels).zip(all).enumerate() {
            mix.answer(row, votes.get(j * self.classes..).unwrap_or(&[]));
            self.answers.at_mut(i, checkpoint).copy_from_slice(row);
            record.accuracy += f64::from(u8::from(best(row).0 == label));
            record.log_loss -= libm::log(f64::from(row[label as usize]).max(1e-30));
        }
        record.accuracy /= rows.len() as f64;
        record.log_loss /= rows.len() as f64;
        self.records.push(record);
        Voices {
            ridge: fitted.ridge,
            forest,
            mix,
        }
    }

    /// What the ridge reads of each row.
    fn features(&self, rows: &[usize], points: usize) -> Array2<f32> {
        let width = self.kernels.features() + self.scale.mean.len();
        let share = 1.0 / points as f32;
        let mut features = Array2::zeros((rows.len(), width));
        let to: Vec<_> = features.axis_iter_mut(Axis(0)).zip(rows).collect();
        to.into_par_iter()
            .with_min_len(64)
            .for_each(|(mut to, &i)| {
                let counts = self.blocks[i / LANES].counts().iter();
                let shares = counts.map(|all| all[i % LANES] as f32 * share);
                let all = shares.chain(self.prefixes[i].at(points - 1));
                to.iter_mut().zip(all).for_each(|(to, x)| *to = x);
            });
        features
    }

    /// Trees, and what those that did not see a row vote about it; nothing without trees.
    fn trees(&self, rows: &[usize], labels: &[u32], points: usize) -> (Forest, Vec<f32>) {
        if self.options.trees == 0 {
            return (Forest::default(), Vec::new());
        }
        let prefixes = rows.par_iter().with_min_len(64).map(|&i| &self.prefixes[i]);
        let inputs = prefixes.map(|prefix| {
            let mut inputs = Vec::new();
            tree_inputs(prefix, points, &mut inputs);
            inputs
        });
        let inputs: Vec<Vec<f32>> = inputs.collect();
        let mut columns = vec![0.0; tree_inputs_of(points, self.scale.mean.len()) * rows.len()];
        let each = columns.par_chunks_exact_mut(rows.len()).enumerate();
        each.for_each(|(input, column)| {
            column
                .iter_mut()
                .zip(&inputs)
                .for_each(|(x, row)| *x = row[input]);
        });
        let table = Table {
            columns: &columns,
            labels,
            classes: self.classes,
        };
        Forest::grow(table, self.options.trees, self.options.seed, points as u64)
    }
}

/// The most memory in bytes that [`fit`] needs for this many series of this length, besides
/// the series themselves and the model.
pub fn working_memory(series: usize, points: usize, channels: usize, classes: usize) -> usize {
    let features = Kernels::most_features() + channels;
    let inputs = tree_inputs_of(points, channels).max(tree_inputs_of(points.min(2048), channels));
    // Values, their differences, and the sums that moments are made of.
    let prefixes = points * channels * (3 * size_of::<f32>() + 3 * size_of::<f64>());
    // The counts, the features made of them, and a block of them turned.
    let each = prefixes + 2 * size_of::<f32>() * features + 2 * size_of::<f32>() * inputs;
    let each = each + size_of::<f32>() * classes * (MOST_USUAL + 8);
    // The Gram matrix, one with a penalty, and two that are decomposed.
    let system = 4 * size_of::<f32>() * features.min(series).pow(2);
    let blocks = 2 * size_of::<f32>() * features * 256 * rayon::current_num_threads();
    series * each + system + blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_grows_with_the_series_and_is_dominated_by_the_features() {
        let small = working_memory(1500, 140, 1, 5);
        let large = working_memory(13_309, 96, 1, 7);
        assert!((30 << 20..200 << 20).contains(&small), "{small}");
        assert!((200 << 20..900 << 20).contains(&large), "{large}");
    }
}
