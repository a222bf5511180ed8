//! The backward pass through one layer, and the gradients of its weights.

use crate::block::{LayerTrace, STEPS_TOGETHER};
use crate::kernel::{SMALL_TILE, outer, product};
use crate::pack::{PackedLayer, Tiles};
use crate::simd::{SIMD_WIDTH, SimdArray, lane_sums, transpose_into};
use fearless_simd::{f32x16, prelude::*};

/// The gradients that enter a layer, and room for those that leave it.
pub(crate) struct Flow<'a> {
    /// `[step][unit]`, from the layer above; afterwards, for the layer below.
    pub(crate) from_above: &'a mut [SimdArray],
    /// `[unit]`, from the step after.
    pub(crate) from_later: &'a mut [SimdArray],
    /// `[unit]`, the cell's gradient from the step after.
    pub(crate) cell_from_later: &'a mut [SimdArray],
}

/// Runs a layer backwards. The gates of every step are replaced by the gradients of their
/// inputs; with `BELOW`, `from_above` is replaced by the gradients of the layer's inputs.
#[inline(always)]
pub(crate) fn layer_backward<S: Simd, const M: usize, const BELOW: bool>(
    simd: S,
    weights: &PackedLayer,
    units: usize,
    gate_stride: usize,
    trace: &mut LayerTrace,
    flow: &mut Flow<'_>,
) {
    flow.from_later.fill(SimdArray::ZERO);
    flow.cell_from_later.fill(SimdArray::ZERO);
    let steps = flow.from_above.len() / units;
    for t in (0..steps).rev() {
        let above = &mut flow.from_above[t * units..(t + 1) * units];
        let gates = &mut trace.gates[t * gate_stride..][..4 * units];
        for unit in 0..units {
            let dh = above[unit].load(simd) + flow.from_later[unit].load(simd);
            let gates = &mut gates[4 * unit..][..4];
            let dc = &mut flow.cell_from_later[unit];
            let row = t * units + unit;
            unit_backward(
                simd,
                dh,
                trace.cell[row].load(simd),
                trace.tanh_cell[row].load(simd),
                gates,
                dc,
            );
        }
        if t > 0 {
            times::<S, M>(simd, &weights.to_hidden, gates, flow.from_later);
        }
        if BELOW {
            times::<S, M>(simd, &weights.to_input, gates, above);
        }
    }
}

/// One unit at one step: computes the gradients of its gates' inputs, and of the cell
/// before, from the gradient of its output.
#[inline(always)]
fn unit_backward<S: Simd>(
    simd: S,
    dh: f32x16<S>,
    cell_before: f32x16<S>,
    tanh_cell: f32x16<S>,
    gates: &mut [SimdArray],
    cell_from_later: &mut SimdArray,
) {
    let one = f32x16::splat(simd, 1.0);
    let [i, f, g, o] = [0, 1, 2, 3].map(|k| gates[k].load(simd));
    let dc = (dh * o).mul_add(one - tanh_cell * tanh_cell, cell_from_later.load(simd));
    cell_from_later.store(dc * f);
    gates[0].store(dc * g * (i * (one - i)));
    gates[1].store(dc * cell_before * (f * (one - f)));
    gates[2].store(dc * i * (one - g * g));
    gates[3].store(dh * tanh_cell * (o * (one - o)));
}

/// `outputs = weights · inputs`, without a bias.
#[inline(always)]
pub(crate) fn times<S: Simd, const M: usize>(
    simd: S,
    weights: &Tiles,
    inputs: &[SimdArray],
    outputs: &mut [SimdArray],
) {
    for (tile, outputs) in outputs.chunks_mut(M).enumerate() {
        let zero = [f32x16::splat(simd, 0.0); M];
        let sums = product(simd, weights.tile::<M>(tile), inputs, zero);
        for (output, sum) in outputs.iter_mut().zip(sums) {
            output.store(sum);
        }
    }
}

/// The terms of a weight gradient: `[step][stride]`; the first `used` of each step count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) lanes: &'a [SimdArray],
    pub(crate) stride: usize,
    pub(crate) used: usize,
}

/// Adds `Σ rows ⊗ inputs` over steps and sequences to `sums`
/// (`[row][input / 16]`). `inputs` is `[step][width]`; `room`, `[width / 16][step]`,
/// is for the transposed inputs.
///
/// It processes a few steps at a time, so that rows and inputs, which may be larger than
/// any cache, are read from memory only once.
#[inline(always)]
pub(crate) fn weight_gradient<S: Simd, const M: usize>(
    simd: S,
    rows: Rows<'_>,
    inputs: &[SimdArray],
    width: usize,
    room: &mut [[SimdArray; SIMD_WIDTH]],
    sums: &mut [SimdArray],
) {
    let vectors = width.div_ceil(SIMD_WIDTH);
    let Rows {
        lanes,
        stride,
        used,
    } = rows;
    for (rows, inputs) in lanes
        .chunks(stride * STEPS_TOGETHER)
        .zip(inputs.chunks(width * STEPS_TOGETHER))
    {
        for (t, inputs) in inputs.chunks_exact(width).enumerate() {
            for (vector, inputs) in inputs.chunks(SIMD_WIDTH).enumerate() {
                transpose_into(simd, inputs, &mut room[vector * STEPS_TOGETHER + t]);
            }
        }
        for first in (0..used).step_by(M) {
            let sums = &mut sums[first * vectors..];
            let rows = rows.chunks_exact(stride).map(|rows| &rows[first..]);
            for (vector, transposed) in room.chunks_exact(STEPS_TOGETHER).enumerate() {
                let (rows, sums) = (rows.clone(), &mut sums[vector..]);
                if M == SMALL_TILE || used - first > SMALL_TILE {
                    gradient_tile::<S, M>(simd, rows, transposed, vectors, sums);
                } else {
                    gradient_tile::<S, SMALL_TILE>(simd, rows, transposed, vectors, sums);
                }
            }
        }
    }
}

/// The contribution of a few steps to a tile of [`weight_gradient`]'s sums.
#[inline(always)]
fn gradient_tile<'a, S: Simd, const N: usize>(
    simd: S,
    rows: impl Iterator<Item = &'a [SimdArray]>,
    transposed: &[[SimdArray; SIMD_WIDTH]],
    vectors: usize,
    sums: &mut [SimdArray],
) {
    let mut acc = [f32x16::splat(simd, 0.0); N];
    for (n, acc) in acc.iter_mut().enumerate() {
        *acc = sums[n * vectors].load(simd);
    }
    for (rows, transposed) in rows.zip(transposed) {
        if let Some(rows) = rows.first_chunk::<N>() {
            acc = outer(simd, rows, transposed, acc);
        }
    }
    for (n, acc) in acc.iter().enumerate() {
        sums[n * vectors].store(*acc);
    }
}

/// Adds the sums of `rows` over steps and sequences, times each of the few raw `inputs` and
/// times 1, to `sums` (`[input, then 1][row / 16]`). With few inputs, a vector of them
/// would be mostly empty, so the lanes are summed instead.
#[inline(always)]
pub(crate) fn narrow_gradient<S: Simd, const M: usize>(
    simd: S,
    rows: Rows<'_>,
    inputs: &[SimdArray],
    width: usize,
    sums: &mut [SimdArray],
) {
    let vectors = rows.used.div_ceil(SIMD_WIDTH);
    for vector in 0..vectors {
        // Process two factors at a time, so that the rows are read half as often.
        for pair in (0..=width).step_by(2) {
            let mut partial = [[f32x16::splat(simd, 0.0); SIMD_WIDTH]; 2];
            for first in (0..SIMD_WIDTH.min(rows.used - vector * SIMD_WIDTH)).step_by(M) {
                let mut acc = [[f32x16::splat(simd, 0.0); M]; 2];
                for (t, rows) in rows.lanes.chunks_exact(rows.stride).enumerate() {
                    let rows = rows.get(vector * SIMD_WIDTH + first..);
                    let Some(rows) = rows.and_then(|r| r.first_chunk::<M>()) else {
                        continue;
                    };
                    let factors = [0, 1].map(|k| match inputs.get(t * width + pair + k) {
                        Some(x) if pair + k < width => x.load(simd),
                        _ => f32x16::splat(simd, 1.0),
                    });
                    for (m, row) in rows.iter().enumerate() {
                        let row = row.load(simd);
                        acc[0][m] = row.mul_add(factors[0], acc[0][m]);
                        acc[1][m] = row.mul_add(factors[1], acc[1][m]);
                    }
                }
                for (partial, acc) in partial.iter_mut().zip(acc) {
                    partial[first..first + M].copy_from_slice(&acc);
                }
            }
            for (k, partial) in partial.into_iter().enumerate() {
                if pair + k <= width {
                    let sum = &mut sums[(pair + k) * vectors + vector];
                    sum.store(sum.load(simd) + lane_sums(partial));
                }
            }
        }
    }
}
