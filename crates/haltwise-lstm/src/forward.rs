//! The way forward through one layer.

use crate::block::LayerTrace;
use crate::kernel::{gates, product, tanh};
use crate::lanes::Lanes;
use crate::pack::PackedLayer;
use fearless_simd::{f32x16, prelude::*};

/// Runs a layer over every step of its `inputs` (`[step][width]`).
///
/// Per unit: `i, f, o = σ(W·[x, h] + b)`, `g = tanh(W·[x, h] + b)`,
/// `c = f·c + i·g`, `h = o·tanh(c)`. With `KEEP`, what the way back needs is kept.
#[inline(always)]
pub(crate) fn layer_forward<S: Simd, const M: usize, const KEEP: bool>(
    simd: S,
    weights: &PackedLayer,
    inputs: &[Lanes],
    width: usize,
    units: usize,
    gate_stride: usize,
    trace: &mut LayerTrace,
) {
    let steps = inputs.len() / width;
    for t in 0..steps {
        let x = &inputs[t * width..(t + 1) * width];
        let (past, now) = trace.hidden.split_at_mut((t + 1) * units);
        let (before, hidden) = (&past[t * units..], &mut now[..units]);
        for tile in 0..weights.forward.count::<M>() {
            let w = weights.forward.tile::<M>(tile);
            let (bias, w) = w.split_at(1);
            let (w_input, w_hidden) = w.split_at(width);
            let z = bias[0].map(|b| f32x16::splat(simd, b));
            let z = product(simd, w_input, x, z);
            let z = product(simd, w_hidden, before, z);
            for (slot, z) in z.as_chunks::<4>().0.iter().enumerate() {
                let unit = tile * (M / 4) + slot;
                if unit == units {
                    break;
                }
                let [i, f, g, o] = gates(simd, *z);
                let row = if KEEP { t * units + unit } else { unit };
                let cell = f.mul_add(trace.cell[row].load(simd), i * g);
                let tanh_cell = tanh(simd, cell);
                hidden[unit].store(o * tanh_cell);
                if KEEP {
                    trace.cell[row + units].store(cell);
                    trace.tanh_cell[row].store(tanh_cell);
                    let kept = &mut trace.gates[t * gate_stride + 4 * unit..][..4];
                    for (kept, gate) in kept.iter_mut().zip([i, f, g, o]) {
                        kept.store(gate);
                    }
                } else {
                    trace.cell[row].store(cell);
                }
            }
        }
    }
}
