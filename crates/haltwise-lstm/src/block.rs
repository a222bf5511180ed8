//! Sixteen sequences and their values in the network.

use crate::kernel::LARGE_TILE;
use crate::normalise::Normalisation;
use crate::shape::Shape;
use crate::simd::{SIMD_WIDTH, SimdArray};
use haltwise_series::Series;
use std::sync::Mutex;

/// The values of one layer, step by step, that its backward pass needs. After the last unit
/// there is room to complete a tile.
#[derive(Clone, Debug, Default)]
pub(crate) struct LayerTrace {
    /// `[step + 1][unit]`: the hidden state, zero before the first step.
    pub(crate) hidden: Vec<SimdArray>,
    /// `[step + 1][unit]`: the cell; a single row if no gradient is wanted.
    pub(crate) cell: Vec<SimdArray>,
    /// `[step][unit]`: tanh of the cell.
    pub(crate) tanh_cell: Vec<SimdArray>,
    /// `[step][unit][i, f, g, o]`: the gates, later replaced by the gradients of their
    /// inputs; a single row if no gradient is wanted. Padded to whole tiles.
    pub(crate) gates: Vec<SimdArray>,
}

impl LayerTrace {
    /// `[step][unit]`: the hidden state after each step.
    pub(crate) fn states(&self, steps: usize, units: usize) -> &[SimdArray] {
        &self.hidden[units..(steps + 1) * units]
    }
}

/// The number of steps whose weight gradients are summed together: their inputs to one
/// vector of sums fill a quarter of the first-level cache, and each sum is loaded and
/// stored once for all of them.
pub(crate) const STEPS_TOGETHER: usize = 8;

/// Up to sixteen sequences and all that the network computed for them.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) shape: Shape,
    /// The length of the longest sequence.
    pub(crate) steps: usize,
    /// Lengths; 0 in a lane that holds no sequence.
    pub(crate) lengths: [usize; SIMD_WIDTH],
    pub(crate) labels: [u32; SIMD_WIDTH],
    /// `[step][feature]`.
    pub(crate) inputs: Vec<SimdArray>,
    pub(crate) layers: Vec<LayerTrace>,
    /// `[step][output]`: the logits of all heads, then their gradients; a single row if no
    /// gradient is wanted. Padded.
    pub(crate) logits: Vec<SimdArray>,
    /// `[step][unit]`: the gradient of a layer's hidden state, from the layer above.
    pub(crate) from_above: Vec<SimdArray>,
    /// `[unit]`: the gradient of the hidden state, from the step after.
    pub(crate) from_later: Vec<SimdArray>,
    /// `[unit]`: the same for the cell.
    pub(crate) cell_from_later: Vec<SimdArray>,
    /// `[unit / 16][step]`: room for a few steps of a hidden state, lanes and
    /// units exchanged.
    pub(crate) transposed: Vec<[SimdArray; SIMD_WIDTH]>,
}

impl Block {
    pub(crate) fn new(shape: Shape) -> Self {
        Block {
            shape,
            steps: 0,
            lengths: [0; SIMD_WIDTH],
            labels: [0; SIMD_WIDTH],
            inputs: Vec::new(),
            layers: vec![LayerTrace::default(); shape.layers],
            logits: Vec::new(),
            from_above: Vec::new(),
            from_later: Vec::new(),
            cell_from_later: Vec::new(),
            transposed: Vec::new(),
        }
    }

    /// The approximate number of bytes of a block whose longest sequence has this many
    /// steps, including the outputs for its sequences.
    pub(crate) fn bytes(shape: &Shape, steps: usize, backward: bool) -> u64 {
        let per_layer = if backward {
            8 * shape.hidden
        } else {
            shape.hidden
        };
        let kept = if backward {
            shape.outputs() + shape.hidden
        } else {
            0
        };
        let per_step = shape.features + shape.layers * per_layer + kept + shape.outputs() + 1;
        (per_step * size_of::<SimdArray>()) as u64 * steps as u64
    }

    /// Gates of a step, padded to whole tiles.
    pub(crate) fn gate_stride(&self) -> usize {
        self.shape.gates().next_multiple_of(LARGE_TILE)
    }

    /// Logits of a step, padded so that sixteen at a time can be transposed.
    pub(crate) fn logit_stride(&self) -> usize {
        self.shape.outputs().next_multiple_of(SIMD_WIDTH)
    }

    /// Loads the sequences `rows` of `series`, one per lane.
    pub(crate) fn load(
        &mut self,
        series: &Series<'_>,
        rows: &[usize],
        labels: impl Fn(usize) -> u32,
        normalisation: &Normalisation,
    ) {
        let features = self.shape.features;
        self.lengths = [0; SIMD_WIDTH];
        self.labels = [0; SIMD_WIDTH];
        self.steps = rows.iter().map(|&r| series.length(r)).max().unwrap_or(0);
        self.inputs.clear();
        self.inputs.resize(self.steps * features, SimdArray::ZERO);
        for (lane, &row) in rows.iter().enumerate().take(SIMD_WIDTH) {
            let steps = self.inputs.chunks_exact_mut(features);
            for (inputs, values) in steps.zip(series.sequence(row).chunks_exact(features)) {
                for (feature, (input, value)) in inputs.iter_mut().zip(values).enumerate() {
                    input.0[lane] = normalisation.apply(feature, *value);
                }
            }
            self.lengths[lane] = series.length(row);
            self.labels[lane] = labels(row);
        }
    }

    /// Reserves memory for the forward pass, and for the backward pass if wanted.
    pub(crate) fn reserve(&mut self, backward: bool) {
        let (steps, hidden) = (self.steps, self.shape.hidden);
        let gates = self.gate_stride();
        for layer in &mut self.layers {
            let padded = |rows: usize| rows * hidden + LARGE_TILE / 4 - 1;
            // The first row stays zero: there is no step before the first.
            layer.hidden.resize(padded(steps + 1), SimdArray::ZERO);
            let kept = if backward { steps } else { 0 };
            layer.cell.resize(padded(kept + 1), SimdArray::ZERO);
            layer.cell[..hidden].fill(SimdArray::ZERO);
            layer.tanh_cell.resize(padded(kept), SimdArray::ZERO);
            layer.gates.resize(kept.max(1) * gates, SimdArray::ZERO);
        }
        let rows = if backward { steps } else { 1 };
        self.logits
            .resize(rows * self.logit_stride(), SimdArray::ZERO);
        if backward {
            self.from_above.resize(steps * hidden, SimdArray::ZERO);
            self.from_later.resize(hidden, SimdArray::ZERO);
            self.cell_from_later.resize(hidden, SimdArray::ZERO);
            let room = hidden.div_ceil(SIMD_WIDTH) * STEPS_TOGETHER;
            self.transposed.resize(room, [SimdArray::ZERO; SIMD_WIDTH]);
        }
    }
}

/// One block for each thread, which keeps it. A block with 46 steps fills a core's
/// second-level cache, so a second one would displace the first.
#[derive(Debug)]
pub(crate) struct Blocks {
    shape: Shape,
    by_thread: Vec<Mutex<Block>>,
}

impl Blocks {
    /// Blocks for the threads of the current pool.
    pub(crate) fn new(shape: Shape) -> Self {
        let threads = 0..rayon::current_num_threads();
        Blocks {
            shape,
            by_thread: threads.map(|_| Block::new(shape).into()).collect(),
        }
    }

    /// Lends the calling thread its block. A thread of another pool may find it in use, or
    /// have none of its own: it gets a new one, and never waits.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Block) -> R) -> R {
        let thread = rayon::current_thread_index().unwrap_or(0);
        match self.by_thread.get(thread).map(Mutex::try_lock) {
            Some(Ok(mut block)) => work(&mut block),
            _ => work(&mut Block::new(self.shape)),
        }
    }
}
