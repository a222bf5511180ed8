//! The shape of a network, and the place of each tensor in its parameters.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The most parameters of a network: far above any that suits the method, and far below
/// what would exhaust memory on a damaged file.
pub(crate) const MAX_PARAMETERS: usize = 1 << 28;

/// The sizes that make a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// Numbers per step of the input.
    pub features: usize,
    /// Units of each recurrent layer.
    pub hidden: usize,
    /// Recurrent layers.
    pub layers: usize,
    /// The number of classes.
    pub classes: usize,
    /// Whether a third head estimates the gap: full prediction right, this one wrong.
    pub gap_head: bool,
}

/// One tensor: its name in PyTorch's state dict, its size, its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) rows: usize,
    /// Zero for a bias, which has one dimension.
    pub(crate) columns: usize,
    pub(crate) start: usize,
    /// PyTorch keeps two biases per gate, whose gradients are equal. Here they are one,
    /// their sum, which therefore moves twice as far per step.
    pub(crate) merged: bool,
}

impl Tensor {
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.rows * self.columns.max(1)
    }

    pub(crate) fn dimensions(&self) -> Vec<usize> {
        match self.columns {
            0 => vec![self.rows],
            columns => vec![self.rows, columns],
        }
    }
}

impl Shape {
    /// Checks the sizes: at least one feature, unit and layer, and two classes.
    pub fn check(&self) -> Result<()> {
        let Shape {
            features,
            hidden,
            layers,
            classes,
            ..
        } = *self;
        if classes < 2 {
            return Err(Error::OneClass { classes });
        }
        if features == 0 || hidden == 0 || layers == 0 {
            return Err(Error::Shape(
                "features, hidden units and layers must each be at least 1".into(),
            ));
        }
        let largest = features.max(hidden).max(classes);
        if largest > 1 << 16 || layers > 64 || self.parameters() > MAX_PARAMETERS {
            return Err(Error::Shape(format!(
                "{features} features, {layers} layers of {hidden} units and {classes} classes \
                 are more than this model supports"
            )));
        }
        Ok(())
    }

    /// How many numbers each step of layer `layer` reads.
    pub(crate) fn inputs(&self, layer: usize) -> usize {
        if layer == 0 {
            self.features
        } else {
            self.hidden
        }
    }

    /// The gates of a layer, four per unit.
    pub(crate) fn gates(&self) -> usize {
        4 * self.hidden
    }

    /// The row of a gate in PyTorch's tensors, which are ordered by gate: all i, all f, all
    /// g, all o. Here the order is by unit.
    pub(crate) fn gate_row(&self, gate: usize) -> usize {
        (gate % 4) * self.hidden + gate / 4
    }

    /// Outputs of all heads together: the classes, the confidence, the gap.
    pub(crate) fn outputs(&self) -> usize {
        self.classes + 1 + usize::from(self.gap_head)
    }

    /// How many parameters the network has, the two biases of a gate counted as one.
    pub fn parameters(&self) -> usize {
        let gates = self.hidden * 4;
        let recurrent: usize = (0..self.layers)
            .map(|l| gates * (self.inputs(l) + self.hidden + 1))
            .sum();
        recurrent + self.outputs() * (self.hidden + 1)
    }

    /// Every tensor, in the order in which the parameters are stored: per layer
    /// the input weights, the recurrent weights and the bias; then per head its
    /// weights and its bias.
    pub(crate) fn tensors(&self) -> Vec<Tensor> {
        let mut tensors: Vec<Tensor> = Vec::new();
        let mut add = |name: String, rows: usize, columns: usize, merged: bool| {
            let start = tensors.last().map_or(0, |t| t.range().end);
            tensors.push(Tensor {
                name,
                rows,
                columns,
                start,
                merged,
            });
        };
        let gates = self.hidden * 4;
        for l in 0..self.layers {
            add(format!("lstm.weight_ih_l{l}"), gates, self.inputs(l), false);
            add(format!("lstm.weight_hh_l{l}"), gates, self.hidden, false);
            add(format!("lstm.bias_ih_l{l}"), gates, 0, true);
        }
        let mut head = |name: &str, rows: usize| {
            add(format!("{name}.weight"), rows, self.hidden, false);
            add(format!("{name}.bias"), rows, 0, false);
        };
        head("fc_scores", self.classes);
        head("fc_is_correct", 1);
        if self.gap_head {
            head("fc_gap", 1);
        }
        tensors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_tile_the_parameters() {
        let shape = Shape {
            features: 3,
            hidden: 5,
            layers: 2,
            classes: 4,
            gap_head: true,
        };
        let mut end = 0;
        for tensor in shape.tensors() {
            assert_eq!(tensor.start, end);
            end = tensor.range().end;
        }
        assert_eq!(end, shape.parameters());
    }
}
