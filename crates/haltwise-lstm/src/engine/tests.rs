//! The kernels against the plain reference, at every SIMD level of this machine.

use super::*;
use crate::model::initial_parameters;
use crate::normalise::Normalisation;
use crate::reference::Reference;
use haltwise_series::{Random, Series};

pub(crate) const GAMMA: f32 = 0.2;

/// This machine's level and every lower one.
pub(crate) fn levels() -> Vec<Level> {
    let best = Level::new();
    #[cfg(target_arch = "x86_64")]
    return [
        Some(best),
        best.as_avx2().map(Level::Avx2),
        best.as_sse4_2().map(Level::Sse4_2),
        best.as_sse2().map(Level::Sse2),
    ]
    .into_iter()
    .flatten()
    .collect();
    #[cfg(not(target_arch = "x86_64"))]
    vec![best]
}

/// Random sequences of unequal length, with NaN after their ends, and a random network.
pub(crate) struct Sample {
    pub(crate) shape: Shape,
    pub(crate) values: Vec<f32>,
    pub(crate) lengths: Vec<u32>,
    pub(crate) labels: Vec<u32>,
    pub(crate) steps: usize,
    pub(crate) parameters: Vec<f32>,
}

impl Sample {
    pub(crate) fn new(shape: Shape, n: usize, steps: usize) -> Self {
        let mut random = Random::new(9, n as u64);
        let mut below = |k: usize| ((random.symmetric(0.5) + 0.5) * k as f32) as u32;
        let lengths: Vec<u32> = (0..n).map(|_| 1 + below(steps)).collect();
        let labels = (0..n).map(|_| below(shape.classes)).collect();
        let mut values = vec![f32::NAN; n * steps * shape.features];
        let width = steps * shape.features;
        for (row, length) in values.chunks_exact_mut(width).zip(&lengths) {
            row[..*length as usize * shape.features].fill_with(|| random.symmetric(2.0));
        }
        Sample {
            shape,
            values,
            lengths,
            labels,
            steps,
            parameters: initial_parameters(&shape, 5),
        }
    }

    pub(crate) fn series(&self) -> Series<'_> {
        let features = self.shape.features;
        Series::with_lengths(&self.values, self.steps, features, &self.lengths).unwrap()
    }

    pub(crate) fn prefixes(&self) -> usize {
        self.lengths.iter().map(|l| *l as usize).sum()
    }

    fn engine(&self, level: Level) -> Engine {
        let mut engine = Engine::at_level(self.shape, level);
        engine.load(&self.parameters, true);
        engine
    }

    fn load(&self, block: &mut Block, rows: &[usize]) {
        let identity = Normalisation::identity(self.shape.features);
        block.load(&self.series(), rows, |r| self.labels[r], &identity);
    }

    fn learn(&self, engine: &Engine, block: &mut Block, rows: &[usize]) -> (LossSums, Vec<u32>) {
        let mut sums = Gradients::new(&self.shape);
        self.load(block, rows);
        let loss = engine.learn(block, &mut sums, GAMMA, 0.01);
        let mut gradient = vec![0.0; self.parameters.len()];
        sums.write_to(&self.shape, &mut gradient);
        (loss, bits(&gradient))
    }

    fn evaluate(&self, engine: &Engine, block: &mut Block, rows: &[usize]) -> LossSums {
        self.load(block, rows);
        engine.evaluate(block, GAMMA)
    }

    fn score(&self, engine: &Engine, block: &mut Block, rows: &[usize]) -> Scored {
        let (cells, classes) = (rows.len() * self.steps, self.shape.classes);
        let mut probabilities = vec![0.0; cells * classes];
        let mut predictions = vec![0; cells];
        let mut confidence = vec![0.0; cells];
        let mut gap = self.shape.gap_head.then(|| vec![0.0; cells]);
        self.load(block, rows);
        let mut out = ScoreRows {
            steps: self.steps,
            probabilities: &mut probabilities,
            predictions: &mut predictions,
            confidence: &mut confidence,
            gap: gap.as_deref_mut(),
        };
        engine.score(block, &mut out);
        // Per cell: the outputs of all heads, then the prediction.
        (0..cells)
            .map(|cell| {
                let mut outputs = probabilities[cell * classes..(cell + 1) * classes].to_vec();
                outputs.push(confidence[cell]);
                outputs.extend(gap.iter().map(|gap| gap[cell]));
                (bits(&outputs), predictions[cell])
            })
            .collect()
    }

    /// All results of the network, with new blocks, bit by bit.
    pub(crate) fn all(&self, level: Level) -> (Scored, LossSums, (LossSums, Vec<u32>)) {
        let engine = self.engine(level);
        let rows: Vec<usize> = (0..self.lengths.len()).collect();
        let block = || Block::new(self.shape);
        (
            self.score(&engine, &mut block(), &rows),
            self.evaluate(&engine, &mut block(), &rows),
            self.learn(&engine, &mut block(), &rows),
        )
    }
}

pub(crate) type Scored = Vec<(Vec<u32>, u32)>;

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

fn widen(bits: &[u32]) -> Vec<f64> {
    let values = bits.iter().map(|b| f64::from(f32::from_bits(*b)));
    values.collect()
}

/// Shapes whose units and outputs end within, at and beyond tiles and vectors.
pub(crate) fn shapes() -> Vec<Shape> {
    let hidden = [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33];
    let classes = [2, 3, 4, 6, 7, 8, 10, 14, 15, 16, 22, 24, 33];
    let sizes = hidden.into_iter().zip(classes).enumerate();
    let shapes = sizes.flat_map(|(i, (hidden, classes))| {
        [false, true].map(|gap_head| Shape {
            features: [1, 2, 3, 10, 17][i % 5],
            hidden,
            layers: 1 + (i + usize::from(gap_head)) % 3,
            classes,
            gap_head,
        })
    });
    shapes.collect()
}

fn assert_close(what: &str, got: &[f64], expected: &[f64], bound: f64) {
    assert_eq!(got.len(), expected.len());
    for (k, (g, e)) in got.iter().zip(expected).enumerate() {
        assert!((g - e).abs() < bound, "{what}, {k}: {g}, expected {e}");
    }
}

#[test]
fn the_kernels_equal_the_reference_at_every_level() {
    for shape in shapes() {
        let sample = Sample::new(shape, 13, 11);
        let parameters = widen(&bits(&sample.parameters));
        let reference = Reference {
            shape,
            parameters: &parameters,
            gamma: f64::from(GAMMA),
        };
        let (series, prefixes) = (sample.series(), sample.prefixes() as f64);
        let (loss, gradient) = reference.loss(&series, &sample.labels);
        for level in levels() {
            let what = format!("{shape:?} at {level:?}");
            let (scores, evaluated, (learned, got)) = sample.all(level);
            for sums in [evaluated, learned] {
                assert!((sums.loss / prefixes - loss).abs() < 1e-5, "{what}");
            }
            assert_eq!(evaluated.right, learned.right);
            let got: Vec<f64> = widen(&got).iter().map(|g| g / (0.01 * prefixes)).collect();
            assert_close(&what, &got, &gradient, 1e-6);
            for i in 0..series.len() {
                let mut expected = reference.scores(series.sequence(i));
                expected.resize(sample.steps, vec![0.0; shape.outputs()]);
                for (t, expected) in expected.iter().enumerate() {
                    let (outputs, prediction) = &scores[i * sample.steps + t];
                    let outputs = widen(outputs);
                    assert_close(&what, &outputs, expected, 2e-6);
                    let best = outputs[..shape.classes].iter().copied().fold(0.0, f64::max);
                    assert_eq!(outputs[*prediction as usize], best, "{what}");
                }
            }
        }
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn levels_with_fused_multiply_add_agree_to_the_bit() {
    let best = Level::new();
    let (Some(_), Some(avx2)) = (best.as_avx512(), best.as_avx2()) else {
        println!("skipped: this machine has a single level with fused multiply-add");
        return;
    };
    for shape in shapes() {
        let sample = Sample::new(shape, 13, 11);
        let (wide, narrow) = (sample.all(best), sample.all(Level::Avx2(avx2)));
        assert_eq!(wide, narrow, "{shape:?}");
    }
}

#[test]
fn a_sequence_scores_the_same_alone_or_among_others() {
    for shape in shapes() {
        let sample = Sample::new(shape, SIMD_WIDTH, 9);
        let rows: Vec<usize> = (0..SIMD_WIDTH).collect();
        for level in levels() {
            let engine = sample.engine(level);
            let mut block = Block::new(shape);
            let together = sample.score(&engine, &mut block, &rows);
            for row in [0, 1, 7, SIMD_WIDTH - 1] {
                let alone = sample.score(&engine, &mut block, &[row]);
                assert_eq!(
                    alone,
                    together[row * 9..(row + 1) * 9],
                    "{shape:?} {level:?}"
                );
            }
        }
    }
}

/// Fills a block with NaN, except for the hidden state before the first step.
fn poison(block: &mut Block) {
    let nothing = SimdArray([f32::NAN; SIMD_WIDTH]);
    for layer in &mut block.layers {
        layer.hidden[block.shape.hidden..].fill(nothing);
        layer.cell.fill(nothing);
        layer.tanh_cell.fill(nothing);
        layer.gates.fill(nothing);
    }
    for lanes in [
        &mut block.inputs,
        &mut block.logits,
        &mut block.from_above,
        &mut block.from_later,
        &mut block.cell_from_later,
    ] {
        lanes.fill(nothing);
    }
    for lanes in &mut block.transposed {
        lanes.fill(nothing);
    }
}

#[test]
fn a_reused_block_gives_the_bits_of_a_new_one() {
    for shape in shapes() {
        let (large, small) = (Sample::new(shape, SIMD_WIDTH, 19), Sample::new(shape, 5, 6));
        let (many, few): (Vec<usize>, Vec<usize>) = ((0..SIMD_WIDTH).collect(), (0..5).collect());
        for level in levels() {
            let (scores, evaluated, learned) = small.all(level);
            let (before, engine) = (large.engine(level), small.engine(level));
            let mut block = Block::new(shape);
            for last in 0..3 {
                let what = format!("{shape:?} {level:?}, after {last}");
                let mut reused = || {
                    match last {
                        0 => drop(large.learn(&before, &mut block, &many)),
                        1 => drop(large.score(&before, &mut block, &many)),
                        _ => drop(large.evaluate(&before, &mut block, &many)),
                    }
                    poison(&mut block);
                    std::mem::replace(&mut block, Block::new(shape))
                };
                assert_eq!(small.score(&engine, &mut reused(), &few), scores, "{what}");
                let again = small.evaluate(&engine, &mut reused(), &few);
                assert_eq!(again, evaluated, "{what}");
                assert_eq!(small.learn(&engine, &mut reused(), &few), learned, "{what}");
            }
        }
    }
}
