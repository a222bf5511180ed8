//! The forward pass through one layer.

use crate::block::LayerTrace;
use crate::kernel::{cell_and_hidden, gates, product, tanh};
use crate::pack::PackedLayer;
use crate::simd::{SimdArray, wide};
use fearless_simd::{f32x16, prelude::*};

/// Runs a layer over every step of its `inputs` (`[step][width]`).
///
/// Per unit: `i, f, o = σ(W·[x, h] + b)`, `g = tanh(W·[x, h] + b)`, `c = f·c + i·g`, `h =
/// o·tanh(c)`. With `KEEP`, the values that the backward pass needs are kept. A tile of `M`
/// gates is that of `U` units.
#[inline(always)]
pub(crate) fn layer_forward<S: Simd, const M: usize, const U: usize, const KEEP: bool>(
    simd: S,
    weights: &PackedLayer,
    inputs: &[SimdArray],
    width: usize,
    units: usize,
    gate_stride: usize,
    trace: &mut LayerTrace,
) {
    const { assert!(M == 4 * U) };
    let steps = inputs.len() / width;
    for t in 0..steps {
        let x = &inputs[t * width..(t + 1) * width];
        let (past, now) = trace.hidden.split_at_mut((t + 1) * units);
        let before = &past[t * units..];
        let row = if KEEP { t } else { 0 };
        let mut step = Step {
            gates: &mut trace.gates[row * gate_stride..(row + 1) * gate_stride],
            cell: &mut trace.cell[row * units..],
            after: if KEEP { units } else { 0 },
            tanh_cell: &mut trace.tanh_cell[row * units..],
            hidden: now,
        };
        for tile in 0..weights.forward.count::<M>() {
            let (bias, w) = weights.forward.tile::<M>(tile).split_at(1);
            let (w_input, w_hidden) = w.split_at(width);
            let z = bias[0].map(|b| f32x16::splat(simd, b));
            let z = product(simd, w_input, x, z);
            let z = product(simd, w_hidden, before, z);
            if wide::<S>() {
                step.advance::<S, M, U, KEEP>(simd, tile, z);
            } else {
                store(&mut step.gates[tile * M..(tile + 1) * M], z);
            }
        }
        // With the sums in one register each, the processor works ahead on the next product
        // while a tile's functions wait for their own results. With two registers each it
        // does not get that far; then unit after unit overlaps better.
        if !wide::<S>() {
            for tile in 0..weights.forward.count::<M>() {
                let z = load(simd, &step.gates[tile * M..(tile + 1) * M]);
                step.advance::<S, M, U, KEEP>(simd, tile, z);
            }
        }
    }
}

/// One step of one layer, and the memory after it. If the last tile has more units than the
/// layer, the extra unit reads and writes that memory: the first unit of the next step,
/// which is written later, or nothing. It is finite and never read as another unit's value.
struct Step<'a> {
    /// `[unit][i, f, g, o]`.
    gates: &'a mut [SimdArray],
    /// `[unit]`: the cell before this step, and, at offset `after`, the cell after it.
    cell: &'a mut [SimdArray],
    after: usize,
    /// `[unit]`: if it is kept.
    tanh_cell: &'a mut [SimdArray],
    /// `[unit]`.
    hidden: &'a mut [SimdArray],
}

impl Step<'_> {
    /// Computes the hidden state of a tile's units from the sums of their gates.
    #[inline(always)]
    fn advance<S: Simd, const M: usize, const U: usize, const KEEP: bool>(
        &mut self,
        simd: S,
        tile: usize,
        z: [f32x16<S>; M],
    ) {
        let units = tile * U..(tile + 1) * U;
        let after = self.after + units.start..self.after + units.end;
        let mut cell: [f32x16<S>; U] = load(simd, &self.cell[units.clone()]);
        if KEEP {
            let gates = gates(simd, z);
            let mut hidden = [f32x16::splat(simd, 0.0); U];
            for (cell, [i, f, g, _]) in cell.iter_mut().zip(gates.as_chunks::<4>().0) {
                *cell = f.mul_add(*cell, *i * *g);
            }
            let tanh_cell = tanh(simd, cell);
            for u in 0..U {
                hidden[u] = gates[4 * u + 3] * tanh_cell[u];
            }
            store(&mut self.gates[tile * M..(tile + 1) * M], gates);
            store(&mut self.cell[after], cell);
            store(&mut self.tanh_cell[units.clone()], tanh_cell);
            store(&mut self.hidden[units], hidden);
        } else {
            let (cell, hidden) = cell_and_hidden(simd, z, cell);
            store(&mut self.cell[after], cell);
            store(&mut self.hidden[units], hidden);
        }
    }
}

#[inline(always)]
fn load<S: Simd, const N: usize>(simd: S, from: &[SimdArray]) -> [f32x16<S>; N] {
    let mut values = [f32x16::splat(simd, 0.0); N];
    for (value, from) in values.iter_mut().zip(from) {
        *value = from.load(simd);
    }
    values
}

#[inline(always)]
fn store<S: Simd, const N: usize>(to: &mut [SimdArray], values: [f32x16<S>; N]) {
    for (to, value) in to.iter_mut().zip(values) {
        to.store(value);
    }
}
