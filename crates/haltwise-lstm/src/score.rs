//! Scoring: the outputs of the model for every prefix.

use crate::block::{Block, Blocks};
use crate::device::Device;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::gpu::{GpuEngine, Started};
use crate::heads::ScoreRows;
use crate::model::Model;
use crate::simd::SIMD_WIDTH;
use haltwise_series::Series;
use rayon::prelude::*;

/// How many blocks are scored before their results are returned: enough to keep many cores
/// busy, and few enough that memory stays constant.
const BLOCKS_TOGETHER: usize = 64;

/// The most numbers in the results of a run, unless a single block has more. One long
/// sequence pads all others in its run.
const MOST_NUMBERS: usize = 1 << 24;

/// The outputs of the model for a run of consecutive sequences. Rows are padded to `steps`,
/// the length of the longest in the run; beyond a sequence's own length everything is 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// The index of the first sequence.
    pub first: usize,
    /// The length of each sequence.
    pub lengths: Vec<usize>,
    /// Steps per row.
    pub steps: usize,
    /// Classes per step.
    pub classes: usize,
    /// `[sequence][step][class]`: class probabilities.
    pub probabilities: Vec<f32>,
    /// `[sequence][step]`: the most probable class, the first of equals.
    pub predictions: Vec<u32>,
    /// `[sequence][step]`: P(prediction right).
    pub confidence: Vec<f32>,
    /// `[sequence][step]`: P(full prediction right and this one wrong), if the model has
    /// that head.
    pub gap: Option<Vec<f32>>,
}

/// The scores of a set of sequences, a few hundred at a time, in order.
#[derive(Debug)]
pub struct ScoreStream<'a> {
    model: &'a Model,
    series: Series<'a>,
    device: Device,
    gpu: Option<GpuEngine>,
    /// The run that the GPU has already started.
    started: Option<Started>,
    /// The state of the CPU, once it is used.
    cpu: Option<(Engine, Blocks)>,
    given_up: Option<Error>,
    next: usize,
}

impl Model {
    /// Scores every prefix of every sequence, in parallel, a run of sequences at
    /// a time. A sequence's scores do not depend on the others.
    pub fn score<'a>(&'a self, series: Series<'a>) -> Result<ScoreStream<'a>> {
        self.score_on(series, Device::Cpu)
    }

    /// Does the same on another device, whose last digits differ. With [`Device::Auto`], if
    /// a GPU fails, the CPU continues.
    pub fn score_on<'a>(&'a self, series: Series<'a>, device: Device) -> Result<ScoreStream<'a>> {
        series.check_complete()?;
        let shape = *self.shape();
        if series.features() != shape.features {
            return Err(Error::Size(format!(
                "the sequences have {} features per step, the model reads {}",
                series.features(),
                shape.features
            )));
        }
        let (gpu, given_up) = GpuEngine::choose(device, &shape)?;
        let mut stream = ScoreStream {
            model: self,
            series,
            device,
            gpu,
            started: None,
            cpu: None,
            given_up,
            next: 0,
        };
        let loaded = match &mut stream.gpu {
            Some(gpu) => gpu.load(self.parameters()),
            None => Ok(()),
        };
        if let Err(error) = loaded {
            stream.give_up(error)?;
        }
        Ok(stream)
    }

    /// The approximate memory for scoring sequences of up to `steps` steps, without the
    /// sequences.
    pub fn working_memory(&self, steps: usize) -> u64 {
        Block::bytes(self.shape(), steps, false) * rayon::current_num_threads() as u64
    }

    /// The scores of all sequences at once.
    pub fn score_all(&self, series: Series<'_>) -> Result<Scores> {
        let mut all: Option<Scores> = None;
        for scores in self.score(series)? {
            let mut scores = scores?;
            scores.pad(series.steps());
            match &mut all {
                None => all = Some(scores),
                Some(all) => all.append(scores),
            }
        }
        Ok(all.unwrap_or_default())
    }
}

impl Scores {
    /// Pads rows with zeros to `steps`; a smaller number changes nothing.
    pub fn pad(&mut self, steps: usize) {
        fn rows<T: Copy + Default>(values: &mut Vec<T>, from: usize, to: usize) {
            if from == to {
                return;
            }
            let mut padded = Vec::with_capacity(values.len() / from.max(1) * to);
            for row in values.chunks_exact(from.max(1)) {
                padded.extend_from_slice(row);
                padded.resize(padded.len() + to - from, T::default());
            }
            *values = padded;
        }
        let (from, classes) = (self.steps, self.classes);
        let steps = steps.max(from);
        rows(&mut self.probabilities, from * classes, steps * classes);
        rows(&mut self.predictions, from, steps);
        rows(&mut self.confidence, from, steps);
        if let Some(gap) = &mut self.gap {
            rows(gap, from, steps);
        }
        self.steps = steps;
    }

    fn append(&mut self, other: Scores) {
        self.lengths.extend(other.lengths);
        self.probabilities.extend(other.probabilities);
        self.predictions.extend(other.predictions);
        self.confidence.extend(other.confidence);
        if let (Some(gap), Some(other)) = (&mut self.gap, other.gap) {
            gap.extend(other);
        }
    }

    /// The prediction at the last step of sequence `index`, counted from `first`.
    pub fn full_prediction(&self, index: usize) -> u32 {
        self.predictions[index * self.steps + self.lengths[index] - 1]
    }
}

impl Iterator for ScoreStream<'_> {
    type Item = Result<Scores>;

    fn next(&mut self) -> Option<Result<Scores>> {
        if self.next == self.series.len() {
            return None;
        }
        match self.next_on_gpu().transpose() {
            Some(Ok(scores)) => {
                self.next += scores.lengths.len();
                return Some(Ok(scores));
            }
            Some(Err(error)) => {
                if let Err(error) = self.give_up(error) {
                    // The stream is at its end.
                    self.next = self.series.len();
                    return Some(Err(error));
                }
            }
            None => {}
        }
        let rows: Vec<usize> = (self.next..self.run_end()).collect();
        self.next += rows.len();
        let (engine, blocks) = self.cpu.get_or_insert_with(|| {
            let shape = *self.model.shape();
            let mut engine = Engine::new(shape);
            engine.load(self.model.parameters(), false);
            (engine, Blocks::new(shape))
        });
        let scores = score_rows(self.model, &self.series, engine, blocks, &rows);
        Some(Ok(scores))
    }
}

impl ScoreStream<'_> {
    /// The GPU in use, by name; `None` on the CPU.
    pub fn gpu(&self) -> Option<&str> {
        self.gpu.as_ref().map(GpuEngine::name)
    }

    /// Why the GPU was given up, if it was.
    pub fn given_up(&self) -> Option<&Error> {
        self.given_up.as_ref()
    }

    /// The end of the run that starts with the next sequence. It is the block before the
    /// one whose longest sequence would make the run too large.
    fn run_end(&self) -> usize {
        let (first, all) = (self.next, self.series.len());
        let per_step = self.model.shape().classes + 3;
        let (mut end, mut longest) = (first, 0);
        while end < all && end < first + BLOCKS_TOGETHER * SIMD_WIDTH {
            let block = end..all.min(end + SIMD_WIDTH);
            let steps = block.clone().map(|row| self.series.length(row)).max();
            longest = longest.max(steps.unwrap_or(0));
            let numbers = (block.end - first)
                .saturating_mul(longest)
                .saturating_mul(per_step);
            if end > first && numbers > MOST_NUMBERS {
                break;
            }
            end = block.end;
        }
        end
    }

    /// Returns the next scores, if they come from a GPU. It starts the following scores
    /// first, so that the GPU need not wait.
    fn next_on_gpu(&mut self) -> Result<Option<Scores>> {
        let Some(gpu) = &mut self.gpu else {
            return Ok(None);
        };
        let together = gpu.together(self.series.len(), self.series.steps());
        let mut start = |first: usize| {
            let end = self.series.len().min(first + together);
            gpu.start(&self.series, first..end, self.model.normalisation())
        };
        let started = match self.started.take() {
            Some(started) => started,
            None => start(self.next)?,
        };
        if started.rows.end < self.series.len() {
            self.started = Some(start(started.rows.end)?);
        }
        gpu.finish(started, &self.series).map(Some)
    }

    /// Continues without the GPU, if that is allowed.
    fn give_up(&mut self, error: Error) -> Result<()> {
        if self.device != Device::Auto {
            return Err(error);
        }
        self.gpu = None;
        self.started = None;
        self.given_up = Some(error);
        Ok(())
    }
}

fn score_rows(
    model: &Model,
    series: &Series<'_>,
    engine: &Engine,
    blocks: &Blocks,
    rows: &[usize],
) -> Scores {
    let shape = *model.shape();
    let steps = rows
        .iter()
        .map(|&row| series.length(row))
        .max()
        .unwrap_or(0);
    let cells = rows.len() * steps;
    let mut scores = Scores {
        first: rows[0],
        lengths: rows.iter().map(|&r| series.length(r)).collect(),
        steps,
        classes: shape.classes,
        probabilities: vec![0.0; cells * shape.classes],
        predictions: vec![0; cells],
        confidence: vec![0.0; cells],
        gap: shape.gap_head.then(|| vec![0.0; cells]),
    };
    let width = SIMD_WIDTH * steps;
    let gaps: Vec<Option<&mut [f32]>> = match &mut scores.gap {
        Some(gap) => gap.chunks_mut(width).map(Some).collect(),
        None => rows.chunks(SIMD_WIDTH).map(|_| None).collect(),
    };
    scores
        .probabilities
        .par_chunks_mut(width * shape.classes)
        .zip(scores.predictions.par_chunks_mut(width))
        .zip(scores.confidence.par_chunks_mut(width))
        .zip(gaps)
        .zip(rows.par_chunks(SIMD_WIDTH))
        .for_each(
            |((((probabilities, predictions), confidence), gap), rows)| {
                let mut out = ScoreRows {
                    steps,
                    probabilities,
                    predictions,
                    confidence,
                    gap,
                };
                blocks.with(|block| {
                    block.load(series, rows, |_| 0, model.normalisation());
                    engine.score(block, &mut out);
                });
            },
        );
    scores
}
