//! Scoring: what the model says about every prefix.

use crate::block::Blocks;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::heads::ScoreRows;
use crate::lanes::LANES;
use crate::model::Model;
use crate::series::Series;
use rayon::prelude::*;

/// Blocks that are scored before their results are handed out: enough to keep
/// many cores busy, few enough that memory stays flat.
const BLOCKS_TOGETHER: usize = 64;

/// What the model says about a run of consecutive sequences. Rows are padded to
/// `steps`; beyond a sequence's own length everything is 0.
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
    /// `[sequence][step]`: P(full prediction right and this one wrong), where the
    /// model has that head.
    pub gap: Option<Vec<f32>>,
}

/// The scores of a set of sequences, some hundreds at a time, in order.
#[derive(Debug)]
pub struct ScoreStream<'a> {
    model: &'a Model,
    series: Series<'a>,
    engine: Engine,
    blocks: Blocks,
    next: usize,
}

impl Model {
    /// Scores every prefix of every sequence, in parallel, a run of sequences at
    /// a time. A sequence's scores do not depend on the others.
    pub fn score<'a>(&'a self, series: Series<'a>) -> Result<ScoreStream<'a>> {
        let shape = *self.shape();
        if series.features() != shape.features {
            return Err(Error::Size(format!(
                "the sequences have {} features per step, the model reads {}",
                series.features(),
                shape.features
            )));
        }
        let mut engine = Engine::new(shape);
        engine.load(self.parameters(), false);
        Ok(ScoreStream {
            model: self,
            series,
            engine,
            blocks: Blocks::new(shape),
            next: 0,
        })
    }

    /// The scores of all sequences at once.
    pub fn score_all(&self, series: Series<'_>) -> Result<Scores> {
        let mut all: Option<Scores> = None;
        for scores in self.score(series)? {
            match &mut all {
                None => all = Some(scores),
                Some(all) => all.append(scores),
            }
        }
        Ok(all.unwrap_or_default())
    }
}

impl Scores {
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
    type Item = Scores;

    fn next(&mut self) -> Option<Scores> {
        let end = self.series.len().min(self.next + BLOCKS_TOGETHER * LANES);
        if self.next == end {
            return None;
        }
        let rows: Vec<usize> = (self.next..end).collect();
        self.next = end;
        Some(self.score_rows(&rows))
    }
}

impl ScoreStream<'_> {
    fn score_rows(&self, rows: &[usize]) -> Scores {
        let (steps, shape) = (self.series.steps(), *self.model.shape());
        let cells = rows.len() * steps;
        let mut scores = Scores {
            first: rows[0],
            lengths: rows.iter().map(|&r| self.series.length(r)).collect(),
            steps,
            classes: shape.classes,
            probabilities: vec![0.0; cells * shape.classes],
            predictions: vec![0; cells],
            confidence: vec![0.0; cells],
            gap: shape.gap_head.then(|| vec![0.0; cells]),
        };
        let width = LANES * steps;
        let gaps: Vec<Option<&mut [f32]>> = match &mut scores.gap {
            Some(gap) => gap.chunks_mut(width).map(Some).collect(),
            None => rows.chunks(LANES).map(|_| None).collect(),
        };
        scores
            .probabilities
            .par_chunks_mut(width * shape.classes)
            .zip(scores.predictions.par_chunks_mut(width))
            .zip(scores.confidence.par_chunks_mut(width))
            .zip(gaps)
            .zip(rows.par_chunks(LANES))
            .for_each(
                |((((probabilities, predictions), confidence), gap), rows)| {
                    let mut out = ScoreRows {
                        steps,
                        probabilities,
                        predictions,
                        confidence,
                        gap,
                    };
                    self.blocks.with(|block| {
                        block.load(&self.series, rows, |_| 0, self.model.normalisation());
                        self.engine.score(block, &mut out);
                    });
                },
            );
        scores
    }
}
