//! A network that is ready to run: its weights laid out for this processor.

use crate::backward::{Flow, Rows, layer_backward, narrow_gradient, weight_gradient};
use crate::block::Block;
use crate::forward::layer_forward;
use crate::heads::{LossSums, ScoreRows, Targets, heads_loss, heads_scores};
use crate::kernel::{LARGE_TILE, SMALL_TILE};
use crate::pack::{Packed, head_places};
use crate::shape::Shape;
use crate::simd::{SIMD_WIDTH, SimdArray, wide};
use fearless_simd::{Level, dispatch, prelude::*};

/// The weights of a network, laid out for the best available SIMD level.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    level: Level,
    shape: Shape,
    packed: Packed,
    /// Whether the weights are also laid out for the backward pass.
    backward: bool,
}

/// The gradients of one block of sequences.
#[derive(Clone, Debug)]
pub(crate) struct Gradients {
    layers: Vec<LayerGradients>,
    /// `[output][unit / 16]`, outputs padded to whole tiles.
    heads: Vec<SimdArray>,
    /// `[output / 16]`.
    head_bias: Vec<SimdArray>,
}

#[derive(Clone, Debug)]
struct LayerGradients {
    /// `[gate][unit / 16]`, gates unit by unit, padded to whole tiles.
    recurrent: Vec<SimdArray>,
    /// `[gate][input / 16]`; empty in the first layer.
    input: Vec<SimdArray>,
    /// `[input][gate / 16]` in the first layer; the bias as the last row in every layer.
    narrow: Vec<SimdArray>,
}

impl Gradients {
    pub(crate) fn new(shape: &Shape) -> Self {
        let gates = shape.gates().next_multiple_of(LARGE_TILE);
        let outputs = shape.outputs().next_multiple_of(LARGE_TILE);
        let vectors = shape.hidden.div_ceil(SIMD_WIDTH);
        let zeros = |n: usize| vec![SimdArray::ZERO; n];
        let layers = (0..shape.layers).map(|l| LayerGradients {
            recurrent: zeros(gates * vectors),
            input: zeros(if l > 0 { gates * vectors } else { 0 }),
            narrow: zeros((1 + raw_inputs(shape, l)) * gates.div_ceil(SIMD_WIDTH)),
        });
        Gradients {
            layers: layers.collect(),
            heads: zeros(outputs * vectors),
            head_bias: zeros(outputs.div_ceil(SIMD_WIDTH)),
        }
    }

    fn clear(&mut self) {
        for layer in &mut self.layers {
            layer.recurrent.fill(SimdArray::ZERO);
            layer.input.fill(SimdArray::ZERO);
            layer.narrow.fill(SimdArray::ZERO);
        }
        self.heads.fill(SimdArray::ZERO);
        self.head_bias.fill(SimdArray::ZERO);
    }

    /// Adds the gradients of other sequences.
    pub(crate) fn add(&mut self, other: &Gradients) {
        let add = |sums: &mut [SimdArray], others: &[SimdArray]| {
            for (sum, other) in sums.iter_mut().zip(others) {
                for (sum, other) in sum.0.iter_mut().zip(other.0) {
                    *sum += other;
                }
            }
        };
        for (layer, other) in self.layers.iter_mut().zip(&other.layers) {
            add(&mut layer.recurrent, &other.recurrent);
            add(&mut layer.input, &other.input);
            add(&mut layer.narrow, &other.narrow);
        }
        add(&mut self.heads, &other.heads);
        add(&mut self.head_bias, &other.head_bias);
    }

    /// Writes these gradients to `out`, in the layout of the parameters.
    pub(crate) fn write_to(&self, shape: &Shape, out: &mut [f32]) {
        let hidden = shape.hidden;
        let vectors = shape.gates().div_ceil(SIMD_WIDTH);
        let mut rest = out;
        for (l, layer) in self.layers.iter().enumerate() {
            let inputs = shape.inputs(l);
            let (w_ih, tail) = rest.split_at_mut(4 * hidden * inputs);
            let (w_hh, tail) = tail.split_at_mut(4 * hidden * hidden);
            let (bias, tail) = tail.split_at_mut(4 * hidden);
            rest = tail;
            let raw = raw_inputs(shape, l);
            for gate in 0..shape.gates() {
                let row = shape.gate_row(gate);
                let narrow = |input: usize| {
                    layer.narrow[input * vectors + gate / SIMD_WIDTH].0[gate % SIMD_WIDTH]
                };
                bias[row] = narrow(raw);
                let w_ih = &mut w_ih[row * inputs..(row + 1) * inputs];
                for (input, w) in w_ih.iter_mut().enumerate().take(raw) {
                    *w = narrow(input);
                }
                if raw == 0 {
                    write_row(&layer.input, gate, w_ih);
                }
                write_row(&layer.recurrent, gate, &mut w_hh[row * hidden..][..hidden]);
            }
        }
        let (weights, bias) = head_places(shape);
        for output in 0..shape.outputs() {
            write_row(&self.heads, output, &mut rest[weights[output]..][..hidden]);
            rest[bias[output]] = self.head_bias[output / SIMD_WIDTH].0[output % SIMD_WIDTH];
        }
    }
}

/// How many inputs of a layer are handled by [`narrow_gradient`].
fn raw_inputs(shape: &Shape, layer: usize) -> usize {
    if layer == 0 { shape.features } else { 0 }
}

fn write_row(sums: &[SimdArray], row: usize, out: &mut [f32]) {
    let vectors = out.len().div_ceil(SIMD_WIDTH);
    let sums = &sums[row * vectors..(row + 1) * vectors];
    for (out, sum) in out.chunks_mut(SIMD_WIDTH).zip(sums) {
        out.copy_from_slice(&sum.0[..out.len()]);
    }
}

/// Calls a function with the tile for the SIMD level, which is known at compile time.
macro_rules! tiled {
    ($f:ident::<$S:ident $(, $flag:ident)?>($($arg:expr),*)) => {
        if wide::<$S>() {
            $f::<$S, LARGE_TILE $(, $flag)?>($($arg),*)
        } else {
            $f::<$S, SMALL_TILE $(, $flag)?>($($arg),*)
        }
    };
}

impl Engine {
    pub(crate) fn new(shape: Shape) -> Self {
        Self::at_level(shape, Level::new())
    }

    pub(crate) fn at_level(shape: Shape, level: Level) -> Self {
        Engine {
            level,
            shape,
            packed: Packed::default(),
            backward: false,
        }
    }

    /// Loads new parameters; `backward` says whether gradients are wanted.
    pub(crate) fn load(&mut self, parameters: &[f32], backward: bool) {
        #[inline(always)]
        fn fill<S: Simd>(
            _: S,
            packed: &mut Packed,
            shape: &Shape,
            parameters: &[f32],
            backward: bool,
        ) {
            if wide::<S>() {
                packed.fill::<LARGE_TILE>(shape, parameters, backward);
            } else {
                packed.fill::<SMALL_TILE>(shape, parameters, backward);
            }
        }
        self.backward = backward;
        let (packed, shape) = (&mut self.packed, &self.shape);
        dispatch!(self.level, simd => fill(simd, packed, shape, parameters, backward));
    }

    /// Computes the loss of a block and its gradients.
    pub(crate) fn learn(
        &self,
        block: &mut Block,
        gradients: &mut Gradients,
        gamma: f32,
        weight: f32,
    ) -> LossSums {
        debug_assert!(
            self.backward,
            "the weights were loaded without the way back"
        );
        block.reserve(true);
        gradients.clear();
        self.forward::<true>(block);
        let sums = self.loss::<true>(block, gamma, weight);
        self.backward(block, gradients);
        sums
    }

    /// The loss of a block.
    pub(crate) fn evaluate(&self, block: &mut Block, gamma: f32) -> LossSums {
        block.reserve(false);
        self.forward::<false>(block);
        self.loss::<false>(block, gamma, 1.0)
    }

    /// Writes the outputs of the network for every prefix of a block to `out`.
    pub(crate) fn score(&self, block: &mut Block, out: &mut ScoreRows<'_>) {
        block.reserve(false);
        self.forward::<false>(block);
        let (weights, shape) = (&self.packed, &self.shape);
        let steps = block.steps;
        let Block {
            layers,
            logits,
            lengths,
            ..
        } = block;
        if let Some(top) = layers.last() {
            let (hidden, z) = (top.states(steps, shape.hidden), logits);
            #[inline(always)]
            fn run<S: Simd>(
                simd: S,
                weights: &Packed,
                shape: &Shape,
                lengths: &[usize; SIMD_WIDTH],
                hidden: &[SimdArray],
                z: &mut [SimdArray],
                out: &mut ScoreRows<'_>,
            ) {
                tiled!(heads_scores::<S>(
                    simd, weights, shape, lengths, hidden, z, out
                ));
            }
            dispatch!(self.level, simd => run(simd, weights, shape, lengths, hidden, z, out));
        }
    }

    fn forward<const KEEP: bool>(&self, block: &mut Block) {
        #[inline(always)]
        fn run<S: Simd, const KEEP: bool>(simd: S, packed: &Packed, block: &mut Block) {
            if wide::<S>() {
                layers_forward::<S, LARGE_TILE, { LARGE_TILE / 4 }, KEEP>(simd, packed, block);
            } else {
                layers_forward::<S, SMALL_TILE, { SMALL_TILE / 4 }, KEEP>(simd, packed, block);
            }
        }
        let packed = &self.packed;
        dispatch!(self.level, simd => run::<_, KEEP>(simd, packed, block));
    }

    fn loss<const GRADIENT: bool>(&self, block: &mut Block, gamma: f32, weight: f32) -> LossSums {
        #[inline(always)]
        fn run<S: Simd, const GRADIENT: bool>(
            simd: S,
            weights: &Packed,
            targets: &Targets<'_>,
            hidden: &[SimdArray],
            logits: &mut [SimdArray],
            from_above: &mut [SimdArray],
        ) -> LossSums {
            tiled!(heads_loss::<S, GRADIENT>(
                simd, weights, targets, hidden, logits, from_above
            ))
        }
        let targets = Targets {
            shape: &self.shape,
            lengths: &block.lengths,
            labels: &block.labels,
            gamma,
            weight,
        };
        let Some(top) = block.layers.last() else {
            return LossSums::default();
        };
        let hidden = top.states(block.steps, self.shape.hidden);
        let (packed, logits, above) = (&self.packed, &mut block.logits, &mut block.from_above);
        dispatch!(self.level, simd => run::<_, GRADIENT>(simd, packed, &targets, hidden, logits, above))
    }

    fn backward(&self, block: &mut Block, gradients: &mut Gradients) {
        #[inline(always)]
        fn run<S: Simd>(simd: S, packed: &Packed, block: &mut Block, gradients: &mut Gradients) {
            tiled!(layers_backward::<S>(simd, packed, block, gradients));
        }
        let packed = &self.packed;
        dispatch!(self.level, simd => run(simd, packed, block, gradients));
    }
}

#[inline(always)]
fn layers_forward<S: Simd, const M: usize, const U: usize, const KEEP: bool>(
    simd: S,
    packed: &Packed,
    block: &mut Block,
) {
    let (shape, gate_stride) = (block.shape, block.gate_stride());
    for (l, weights) in packed.layers.iter().enumerate() {
        let (below, here) = block.layers.split_at_mut(l);
        let inputs = match below.last() {
            Some(below) => below.states(block.steps, shape.hidden),
            None => &block.inputs,
        };
        let (width, units) = (shape.inputs(l), shape.hidden);
        layer_forward::<S, M, U, KEEP>(
            simd,
            weights,
            inputs,
            width,
            units,
            gate_stride,
            &mut here[0],
        );
    }
}

#[inline(always)]
fn layers_backward<S: Simd, const M: usize>(
    simd: S,
    packed: &Packed,
    block: &mut Block,
    gradients: &mut Gradients,
) {
    let (units, steps) = (block.shape.hidden, block.steps);
    let gate_stride = block.gate_stride();
    if let Some(top) = block.layers.last() {
        let logits = Rows {
            lanes: &block.logits,
            stride: block.logit_stride(),
            used: block.shape.outputs(),
        };
        let (hidden, room) = (top.states(steps, units), &mut block.transposed);
        weight_gradient::<S, M>(simd, logits, hidden, units, room, &mut gradients.heads);
        narrow_gradient::<S, M>(simd, logits, &[], 0, &mut gradients.head_bias);
    }
    for (l, sums) in gradients.layers.iter_mut().enumerate().rev() {
        let (below, here) = block.layers.split_at_mut(l);
        let (weights, trace) = (&packed.layers[l], &mut here[0]);
        let mut flow = Flow {
            from_above: &mut block.from_above,
            from_later: &mut block.from_later,
            cell_from_later: &mut block.cell_from_later,
        };
        if l == 0 {
            layer_backward::<S, M, false>(simd, weights, units, gate_stride, trace, &mut flow);
        } else {
            layer_backward::<S, M, true>(simd, weights, units, gate_stride, trace, &mut flow);
        }
        let gates = Rows {
            lanes: &trace.gates,
            stride: gate_stride,
            used: block.shape.gates(),
        };
        let room = &mut block.transposed;
        match below.last() {
            Some(below) => {
                let inputs = below.states(steps, units);
                weight_gradient::<S, M>(simd, gates, inputs, units, room, &mut sums.input);
                narrow_gradient::<S, M>(simd, gates, &[], 0, &mut sums.narrow);
            }
            None => {
                let (inputs, width) = (&block.inputs, block.shape.features);
                narrow_gradient::<S, M>(simd, gates, inputs, width, &mut sums.narrow);
            }
        }
        let before = &trace.hidden[..steps * units];
        weight_gradient::<S, M>(simd, gates, before, units, room, &mut sums.recurrent);
    }
}

#[cfg(test)]
pub(crate) mod tests;
