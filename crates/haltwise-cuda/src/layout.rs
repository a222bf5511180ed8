//! The place at which the kernels expect each parameter.
//!
//! They work on whole groups of 32 units, so a layer is filled up with units whose weights
//! and biases are all zero. Such a unit's state is zero at every step, so it adds nothing to
//! any other; and as its outgoing weights are zero too, so are all of its gradients: Adam
//! leaves it as it is.

use crate::error::{Error, Result};
use std::ops::Range;

/// The most units of a layer: beyond, a group of blocks cannot hold its weights in registers.
pub const LARGEST_HIDDEN: usize = 512;

/// The sizes of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Numbers per step of the input.
    pub features: usize,
    /// Units of each layer.
    pub hidden: usize,
    /// Recurrent layers.
    pub layers: usize,
    /// Classes to tell apart.
    pub classes: usize,
    /// Heads of one output each, after the classes: the confidence and perhaps the gap.
    pub single_heads: usize,
}

/// The sizes of a network, and those with which it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    sizes: Sizes,
    /// Units, a multiple of 32.
    padded: usize,
}

/// A tensor, row by row: `rows × columns`, of which the padded one has more.
struct Tensor {
    /// Rows of each of `blocks` equal parts, as they are and padded.
    rows: [usize; 2],
    columns: [usize; 2],
    blocks: usize,
}

impl Layout {
    /// The layout of a network; refuses one that is too large.
    pub fn new(sizes: Sizes) -> Result<Self> {
        if sizes.hidden > LARGEST_HIDDEN {
            return Err(Error::TooLarge(format!(
                "layers of {} units do not fit: up to {LARGEST_HIDDEN} are held on the chip",
                sizes.hidden
            )));
        }
        let padded = sizes.hidden.next_multiple_of(32);
        Ok(Layout { sizes, padded })
    }

    /// The sizes, with units filled up.
    pub fn padded(&self) -> Sizes {
        Sizes {
            hidden: self.padded,
            ..self.sizes
        }
    }

    /// Per layer the input weights, the recurrent weights and the bias; then the heads.
    fn tensors(&self) -> Vec<Tensor> {
        let units = [self.sizes.hidden, self.padded];
        let mut tensors = Vec::new();
        for layer in 0..self.sizes.layers {
            let inputs = if layer == 0 {
                [self.sizes.features; 2]
            } else {
                units
            };
            for columns in [inputs, units, [1; 2]] {
                tensors.push(Tensor {
                    rows: units,
                    columns,
                    blocks: 4,
                });
            }
        }
        let heads = std::iter::repeat_n(1, self.sizes.single_heads);
        for outputs in std::iter::once(self.sizes.classes).chain(heads) {
            for columns in [units, [1; 2]] {
                tensors.push(Tensor {
                    rows: [outputs; 2],
                    columns,
                    blocks: 1,
                });
            }
        }
        tensors
    }

    /// How many parameters there are, padded or not.
    fn count(&self, which: usize) -> usize {
        let tensors = self.tensors();
        let sizes = tensors
            .iter()
            .map(|t| t.blocks * t.rows[which] * t.columns[which]);
        sizes.sum()
    }

    /// How many parameters there are with the padding.
    pub fn parameters(&self) -> usize {
        self.count(1)
    }

    /// Every run of numbers that lies together in both: where it is, and where it goes.
    fn runs(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let mut runs = Vec::new();
        let mut starts = [0, 0];
        for tensor in self.tensors() {
            for block in 0..tensor.blocks {
                for row in 0..tensor.rows[0] {
                    let at = |k: usize| {
                        let start = starts[k] + (block * tensor.rows[k] + row) * tensor.columns[k];
                        start..start + tensor.columns[0]
                    };
                    runs.push((at(0), at(1)));
                }
            }
            for (start, k) in starts.iter_mut().zip([0, 1]) {
                *start += tensor.blocks * tensor.rows[k] * tensor.columns[k];
            }
        }
        runs
    }

    /// Fills up with zeros.
    pub fn pad(&self, parameters: &[f32]) -> Vec<f32> {
        let mut padded = vec![0.0; self.parameters()];
        for (from, to) in self.runs() {
            padded[to].copy_from_slice(&parameters[from]);
        }
        padded
    }

    /// Takes the filling out again.
    pub fn unpad(&self, padded: &[f32], parameters: &mut [f32]) {
        for (to, from) in self.runs() {
            parameters[to].copy_from_slice(&padded[from]);
        }
    }

    /// The first places of a layer's input weights, recurrent weights and bias.
    pub(crate) fn layer(&self, layer: usize) -> [usize; 3] {
        let gates = 4 * self.padded;
        let first = gates * (self.sizes.features + self.padded + 1);
        let start = match layer {
            0 => 0,
            l => first + (l - 1) * gates * (2 * self.padded + 1),
        };
        let hidden = start + gates * self.inputs(layer);
        [start, hidden, hidden + gates * self.padded]
    }

    /// The first place of the heads.
    pub(crate) fn heads(&self) -> usize {
        let gates = 4 * self.padded;
        self.layer(self.sizes.layers - 1)[2] + gates
    }

    /// How many numbers each step of a layer reads.
    pub(crate) fn inputs(&self, layer: usize) -> usize {
        if layer == 0 {
            self.sizes.features
        } else {
            self.padded
        }
    }

    pub(crate) fn outputs(&self) -> usize {
        self.sizes.classes + self.sizes.single_heads
    }

    /// How far each parameter moves: a gate's bias stands for two of PyTorch's.
    pub(crate) fn factors(&self) -> Vec<f32> {
        let mut factors = vec![1.0; self.parameters()];
        for layer in 0..self.sizes.layers {
            let bias = self.layer(layer)[2];
            factors[bias..bias + 4 * self.padded].fill(2.0);
        }
        factors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<Layout> {
        let sizes = [
            (3, 5, 2, 4, 2),
            (1, 32, 1, 2, 1),
            (7, 33, 3, 9, 2),
            (2, 256, 2, 6, 1),
        ];
        let layouts = sizes.map(|(features, hidden, layers, classes, single_heads)| {
            Layout::new(Sizes {
                features,
                hidden,
                layers,
                classes,
                single_heads,
            })
        });
        layouts.into_iter().map(|l| l.expect("it fits")).collect()
    }

    #[test]
    fn padding_comes_off_again_and_adds_only_zeros() {
        for layout in layouts() {
            let parameters: Vec<f32> = (1..=layout.count(0)).map(|i| i as f32).collect();
            let padded = layout.pad(&parameters);
            let mut again = vec![0.0; parameters.len()];
            layout.unpad(&padded, &mut again);
            assert_eq!(again, parameters);
            let others = padded.iter().filter(|v| **v != 0.0).count();
            assert_eq!(others, parameters.len());
        }
    }

    #[test]
    fn places_follow_each_other() {
        for layout in layouts() {
            let gates = 4 * layout.padded;
            let mut end = 0;
            for l in 0..layout.sizes.layers {
                let [input, hidden, bias] = layout.layer(l);
                assert_eq!(input, end);
                assert_eq!(hidden, input + gates * layout.inputs(l));
                assert_eq!(bias, hidden + gates * layout.padded);
                end = bias + gates;
            }
            assert_eq!(layout.heads(), end);
            assert_eq!(
                layout.parameters(),
                end + layout.outputs() * (layout.padded + 1)
            );
        }
    }

    #[test]
    fn a_layer_that_does_not_fit_is_refused() {
        let sizes = Sizes {
            features: 1,
            hidden: 513,
            layers: 1,
            classes: 2,
            single_heads: 1,
        };
        let error = Layout::new(sizes).expect_err("too large").to_string();
        assert!(error.contains("513 units"), "{error}");
    }
}
