//! Sixteen sequences side by side.
//!
//! Every number of the network is computed for sixteen sequences at once, one per SIMD
//! lane. No sum crosses lanes in the forward pass. So a sequence gets the same bits in any
//! batch, and on any processor with fused multiply-add.

use fearless_simd::{f32x8, f32x16, prelude::*};

/// How many sequences are processed together.
pub(crate) const SIMD_WIDTH: usize = 16;

/// One number of sixteen sequences: a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(align(64))]
pub(crate) struct SimdArray(pub(crate) [f32; SIMD_WIDTH]);

impl SimdArray {
    pub(crate) const ZERO: SimdArray = SimdArray([0.0; SIMD_WIDTH]);

    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, simd: S) -> f32x16<S> {
        f32x16::load_array_ref(simd, &self.0)
    }

    #[inline(always)]
    pub(crate) fn store<S: Simd>(&mut self, value: f32x16<S>) {
        value.store_array(&mut self.0);
    }
}

/// Whether a vector of sixteen is one register at this SIMD level.
#[inline(always)]
pub(crate) const fn wide<S: Simd>() -> bool {
    S::f32s::LEN >= SIMD_WIDTH
}

/// Writes the transpose of up to sixteen rows; missing rows are zero.
#[inline(always)]
pub(crate) fn transpose_into<S: Simd>(
    simd: S,
    rows: &[SimdArray],
    to: &mut [SimdArray; SIMD_WIDTH],
) {
    match rows.first_chunk() {
        Some(rows) => transpose_all(simd, rows, to),
        None => {
            let mut all = [SimdArray::ZERO; SIMD_WIDTH];
            all[..rows.len()].copy_from_slice(rows);
            transpose_all(simd, &all, to);
        }
    }
}

#[inline(always)]
fn transpose_all<S: Simd>(
    simd: S,
    rows: &[SimdArray; SIMD_WIDTH],
    to: &mut [SimdArray; SIMD_WIDTH],
) {
    if wide::<S>() {
        let mut all = [f32x16::splat(simd, 0.0); SIMD_WIDTH];
        for (row, from) in all.iter_mut().zip(rows) {
            *row = from.load(simd);
        }
        for (to, column) in to.iter_mut().zip(transpose(all)) {
            to.store(column);
        }
        return;
    }
    // Transpose by quarters: sixteen vectors of two registers each need more registers than
    // there are.
    const HALF: usize = SIMD_WIDTH / 2;
    for (top, left) in [(0, 0), (0, HALF), (HALF, 0), (HALF, HALF)] {
        let mut quarter = [f32x8::splat(simd, 0.0); HALF];
        for (row, from) in quarter.iter_mut().zip(&rows[top..top + HALF]) {
            *row = f32x8::from_slice(simd, &from.0[left..left + HALF]);
        }
        for _ in 0..3 {
            let halves = quarter;
            for i in 0..HALF / 2 {
                quarter[2 * i] = halves[i].zip_low(halves[i + HALF / 2]);
                quarter[2 * i + 1] = halves[i].zip_high(halves[i + HALF / 2]);
            }
        }
        for (to, column) in to[left..left + HALF].iter_mut().zip(quarter) {
            column.store_slice(&mut to.0[top..top + HALF]);
        }
    }
}

/// Transposes sixteen vectors of sixteen with four perfect shuffles.
#[inline(always)]
fn transpose<S: Simd>(mut rows: [f32x16<S>; SIMD_WIDTH]) -> [f32x16<S>; SIMD_WIDTH] {
    // Plain loops: the closure of `array::from_fn` would be compiled without the
    // instructions of the SIMD level.
    for _ in 0..4 {
        let halves = rows;
        for i in 0..SIMD_WIDTH / 2 {
            rows[2 * i] = halves[i].zip_low(halves[i + SIMD_WIDTH / 2]);
            rows[2 * i + 1] = halves[i].zip_high(halves[i + SIMD_WIDTH / 2]);
        }
    }
    rows
}

/// The sum over the lanes of each of sixteen vectors, always in the same order.
#[inline(always)]
pub(crate) fn lane_sums<S: Simd>(rows: [f32x16<S>; SIMD_WIDTH]) -> f32x16<S> {
    let mut sums = transpose(rows);
    let mut width = SIMD_WIDTH / 2;
    while width > 0 {
        for i in 0..width {
            sums[i] += sums[i + width];
        }
        width /= 2;
    }
    sums[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::levels;
    use fearless_simd::dispatch;

    fn grid() -> [SimdArray; SIMD_WIDTH] {
        std::array::from_fn(|r| SimdArray(std::array::from_fn(|c| (r * SIMD_WIDTH + c) as f32)))
    }

    #[inline(always)]
    fn transposed<S: Simd>(simd: S, rows: &[SimdArray]) -> [SimdArray; SIMD_WIDTH] {
        let mut out = [SimdArray::ZERO; SIMD_WIDTH];
        transpose_into(simd, rows, &mut out);
        out
    }

    #[inline(always)]
    fn sums<S: Simd>(simd: S, rows: &[SimdArray; SIMD_WIDTH]) -> [f32; SIMD_WIDTH] {
        let mut out = SimdArray::ZERO;
        out.store(lane_sums(rows.map(|row| row.load(simd))));
        out.0
    }

    #[test]
    fn transposing_swaps_rows_and_columns() {
        let rows = grid();
        for (level, present) in levels().into_iter().flat_map(|l| [(l, 16), (l, 8), (l, 3)]) {
            let out = dispatch!(level, simd => transposed(simd, &rows[..present]));
            for (r, row) in out.iter().enumerate() {
                for (c, value) in row.0.iter().enumerate() {
                    let expected = rows[..present].get(c).map_or(0.0, |row| row.0[r]);
                    assert_eq!(*value, expected, "{level:?}");
                }
            }
        }
    }

    #[test]
    fn lane_sums_add_up_each_vector() {
        let rows = grid();
        for level in levels() {
            let out = dispatch!(level, simd => sums(simd, &rows));
            for (row, sum) in rows.iter().zip(out) {
                assert_eq!(row.0.iter().sum::<f32>(), sum);
            }
        }
    }
}
