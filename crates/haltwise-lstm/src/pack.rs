//! Weights laid out for the kernels.
//!
//! The parameters are stored as in PyTorch. Before each step they are copied into tiles:
//! for every `M` outputs, the bias if there is one, then one group of `M` weights per
//! input. So a product reads memory from front to back.

use crate::kernel::GATE_SCALES;
use crate::shape::Shape;

/// One matrix in tiles of `M` outputs: `[tile][input][M]`, zero-padded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tiles {
    data: Vec<f32>,
    inputs: usize,
    outputs: usize,
}

impl Tiles {
    /// Fills the tiles from `at(input, output)`.
    #[inline(always)]
    fn fill<const M: usize>(
        &mut self,
        inputs: usize,
        outputs: usize,
        at: impl Fn(usize, usize) -> f32,
    ) {
        self.inputs = inputs;
        self.outputs = outputs;
        self.data.resize(outputs.div_ceil(M) * inputs * M, 0.0);
        for (tile, data) in self.data.chunks_exact_mut(inputs * M).enumerate() {
            let first = tile * M;
            let present = M.min(outputs - first);
            for (input, group) in data.as_chunks_mut::<M>().0.iter_mut().enumerate() {
                for (m, weight) in group.iter_mut().enumerate().take(present) {
                    *weight = at(input, first + m);
                }
            }
        }
    }

    /// The groups of tile `tile`, one per input.
    #[inline(always)]
    pub(crate) fn tile<const M: usize>(&self, tile: usize) -> &[[f32; M]] {
        let size = self.inputs * M;
        self.data[tile * size..(tile + 1) * size].as_chunks::<M>().0
    }

    /// How many outputs there are, without the padding.
    #[inline(always)]
    pub(crate) fn outputs(&self) -> usize {
        self.outputs
    }

    /// How many tiles of `M` outputs there are.
    #[inline(always)]
    pub(crate) fn count<const M: usize>(&self) -> usize {
        self.outputs.div_ceil(M)
    }
}

/// One recurrent layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedLayer {
    /// Bias, inputs, hidden units → gates, unit by unit: i, f, g, o of unit 0, …;
    /// times [`GATE_SCALES`].
    pub(crate) forward: Tiles,
    /// Gates → hidden units of the step before.
    pub(crate) to_hidden: Tiles,
    /// Gates → inputs; empty in the first layer, whose inputs need no gradient.
    pub(crate) to_input: Tiles,
}

/// All weights of a network, laid out for tiles of `M` rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packed {
    pub(crate) layers: Vec<PackedLayer>,
    /// Bias, hidden units → logits of all heads.
    pub(crate) heads: Tiles,
    /// Logits of all heads → hidden units.
    pub(crate) from_heads: Tiles,
}

impl Packed {
    /// Lays out `parameters`; `backward` says whether gradients will be needed.
    pub(crate) fn fill<const M: usize>(
        &mut self,
        shape: &Shape,
        parameters: &[f32],
        backward: bool,
    ) {
        let hidden = shape.hidden;
        self.layers.resize_with(shape.layers, PackedLayer::default);
        let mut rest = parameters;
        for (l, layer) in self.layers.iter_mut().enumerate() {
            let inputs = shape.inputs(l);
            let (w_ih, tail) = rest.split_at(4 * hidden * inputs);
            let (w_hh, tail) = tail.split_at(4 * hidden * hidden);
            let (bias, tail) = tail.split_at(4 * hidden);
            rest = tail;
            let row = |gate: usize| shape.gate_row(gate);
            layer
                .forward
                .fill::<M>(1 + inputs + hidden, 4 * hidden, |k, gate| {
                    let weight = match k {
                        0 => bias[row(gate)],
                        k if k <= inputs => w_ih[row(gate) * inputs + k - 1],
                        k => w_hh[row(gate) * hidden + k - 1 - inputs],
                    };
                    weight * GATE_SCALES[gate % 4]
                });
            if backward {
                let to_hidden = |gate: usize, unit: usize| w_hh[row(gate) * hidden + unit];
                layer.to_hidden.fill::<M>(4 * hidden, hidden, to_hidden);
            }
            if backward && l > 0 {
                let to_input = |gate: usize, input: usize| w_ih[row(gate) * inputs + input];
                layer.to_input.fill::<M>(4 * hidden, inputs, to_input);
            }
        }
        self.fill_heads::<M>(shape, rest, backward);
    }

    fn fill_heads<const M: usize>(&mut self, shape: &Shape, heads: &[f32], backward: bool) {
        let hidden = shape.hidden;
        let (weights, bias) = head_places(shape);
        self.heads
            .fill::<M>(1 + hidden, shape.outputs(), |k, output| match k {
                0 => heads[bias[output]],
                k => heads[weights[output] + k - 1],
            });
        if backward {
            self.from_heads
                .fill::<M>(shape.outputs(), hidden, |output, unit| {
                    heads[weights[output] + unit]
                });
        }
    }
}

/// The places of each output's weights and bias, counted from the first head.
pub(crate) fn head_places(shape: &Shape) -> (Vec<usize>, Vec<usize>) {
    let (hidden, classes) = (shape.hidden, shape.classes);
    let mut weights: Vec<usize> = (0..classes).map(|k| k * hidden).collect();
    let mut bias: Vec<usize> = (0..classes).map(|k| classes * hidden + k).collect();
    for single in 0..shape.outputs() - classes {
        let start = (classes + single) * (hidden + 1);
        weights.push(start);
        bias.push(start + hidden);
    }
    (weights, bias)
}
