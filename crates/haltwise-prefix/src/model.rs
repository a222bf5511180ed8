//! A fitted model.

use crate::answers::Answers;
use crate::error::{Error, Result};
use crate::forest::Forest;
use crate::inputs::tree_inputs;
use crate::kernels::{Block, Kernels};
use crate::mix::Mix;
use crate::record::TrainingRecord;
use crate::ridge::Ridge;
use crate::scale::{Prefix, Scale};
use crate::stream::Stream;
use haltwise_series::Series;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// The series that are read side by side.
pub(crate) const LANES: usize = 16;

/// A classifier that answers for every prefix of a series. Copies share their memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Model(pub(crate) Arc<Parts>);

#[derive(Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) classes: Vec<String>,
    pub(crate) checkpoints: Vec<usize>,
    pub(crate) scale: Scale,
    /// How common each class was in training.
    pub(crate) prior: Vec<f32>,
    pub(crate) kernels: Kernels,
    /// What answers at each checkpoint.
    pub(crate) voices: Vec<Voices>,
    pub(crate) training: TrainingRecord,
}

/// Ridge and trees of one checkpoint, what they read, and how much each counts.
#[derive(Debug, PartialEq)]
pub(crate) struct Voices {
    pub(crate) ridge: Ridge,
    pub(crate) forest: Forest,
    pub(crate) mix: Mix,
}

/// Memory to answer about `L` series in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch<const L: usize> {
    inputs: Vec<f32>,
    latest: Vec<[f32; L]>,
    scores: Vec<[f32; L]>,
    votes: Vec<f32>,
}

impl Voices {
    /// The probabilities of the classes after a prefix of `points` of each series that has as
    /// many. `answer` takes them with the number of the series.
    pub(crate) fn answer<const L: usize>(
        &self,
        block: &Block<L>,
        prefixes: &[Prefix],
        points: usize,
        scratch: &mut Scratch<L>,
        mut answer: impl FnMut(usize, &[f32]),
    ) {
        let Scratch {
            inputs,
            latest,
            scores,
            votes,
        } = scratch;
        let reaching = || {
            prefixes
                .iter()
                .enumerate()
                .filter(|(_, p)| p.points() >= points)
        };
        latest.clear();
        latest.resize(prefixes.first().map_or(0, |p| p.values.len()), [0.0; L]);
        for (lane, prefix) in reaching() {
            latest
                .iter_mut()
                .zip(prefix.at(points - 1))
                .for_each(|(all, x)| all[lane] = x);
        }
        self.ridge
            .score(block.counts(), 1.0 / points as f32, latest, scores);
        let mut row = vec![0.0; scores.len()];
        for (lane, prefix) in reaching() {
            votes.clear();
            if !self.forest.roots.is_empty() {
                tree_inputs(prefix, points, inputs);
                votes.resize(row.len(), 0.0);
                self.forest.vote(|input| inputs[input], votes);
            }
            row.iter_mut()
                .zip(&*scores)
                .for_each(|(to, all)| *to = all[lane]);
            self.mix.answer(&mut row, votes);
            answer(lane, &row);
        }
    }
}

/// Up to [`LANES`] series side by side. A series that has ended repeats its last point.
pub(crate) fn block_of(kernels: &Kernels, prefixes: &[Prefix]) -> Block<LANES> {
    let channels = prefixes.first().map_or(0, |prefix| prefix.values.len());
    let mut block = Block::new(kernels, channels);
    let points = prefixes.iter().map(Prefix::points).max().unwrap_or(0);
    for t in 0..points {
        block.push((0..channels).map(|c| {
            let mut point = [0.0; LANES];
            for (to, prefix) in point.iter_mut().zip(prefixes) {
                *to = prefix.values[c][t.min(prefix.points() - 1)];
            }
            point
        }));
    }
    block
}

impl Model {
    /// The name of each class, in the order of the labels.
    pub fn classes(&self) -> &[String] {
        &self.0.classes
    }

    /// The numbers of time points after which the model answers.
    pub fn checkpoints(&self) -> &[usize] {
        &self.0.checkpoints
    }

    /// The numbers per time point.
    pub fn channels(&self) -> usize {
        self.0.scale.mean.len()
    }

    /// How the model was fitted, with its out-of-sample accuracy.
    pub fn training(&self) -> &TrainingRecord {
        &self.0.training
    }

    /// How common each class was in training.
    pub fn class_shares(&self) -> &[f32] {
        &self.0.prior
    }

    /// How many checkpoints a series of this length reaches.
    pub fn reached(&self, length: usize) -> usize {
        self.checkpoints().partition_point(|&c| c <= length)
    }

    /// What the model says about each series at each checkpoint, on all cores of rayon's pool.
    pub fn answers(&self, series: &Series<'_>) -> Result<Answers> {
        self.answers_to(series, 0..series.len())
    }

    /// The same for some of the series, so that the answers about many fit into memory.
    pub fn answers_to(&self, series: &Series<'_>, rows: Range<usize>) -> Result<Answers> {
        if series.features() != self.channels() {
            return Err(Error::Size(format!(
                "the series have {} channels, but the model was fitted to {}",
                series.features(),
                self.channels()
            )));
        }
        if rows.end > series.len() {
            return Err(Error::Size(format!(
                "series {} was asked for, but there are {}",
                rows.end,
                series.len()
            )));
        }
        let each = self.checkpoints().len();
        let mut answers = Answers {
            probabilities: self.0.prior.repeat(each * rows.len()),
            reached: rows
                .clone()
                .map(|i| self.reached(series.length(i)) as u32)
                .collect(),
            checkpoints: each,
            classes: self.classes().len(),
        };
        let width = LANES * each * answers.classes;
        let groups = answers.probabilities.par_chunks_mut(width).enumerate();
        groups.for_each_init(Scratch::default, |scratch, (group, answers)| {
            let first = rows.start + group * LANES;
            self.answer_block(
                series,
                first..(first + LANES).min(rows.end),
                scratch,
                answers,
            );
        });
        answers.repeat_last();
        Ok(answers)
    }

    fn answer_block(
        &self,
        series: &Series<'_>,
        rows: Range<usize>,
        scratch: &mut Scratch<LANES>,
        answers: &mut [f32],
    ) {
        let parts = &*self.0;
        let longest = rows.clone().map(|i| series.length(i)).max().unwrap_or(0);
        let reached = self.reached(longest);
        let Some(&last) = parts.checkpoints[..reached].last() else {
            return;
        };
        let read = |i: usize| {
            parts
                .scale
                .prefix(series.sequence(i), self.channels(), last)
        };
        let prefixes: Vec<Prefix> = rows.clone().map(read).collect();
        let mut block = block_of(&parts.kernels, &prefixes);
        let classes = parts.classes.len();
        for (checkpoint, voices) in parts.voices[..reached].iter().enumerate() {
            let points = parts.checkpoints[checkpoint];
            parts.kernels.count(&mut block, points);
            voices.answer(&block, &prefixes, points, scratch, |lane, answer| {
                let start = (lane * parts.checkpoints.len() + checkpoint) * classes;
                answers[start..start + classes].copy_from_slice(answer);
            });
        }
    }

    /// A series that arrives time point by time point.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }
}
