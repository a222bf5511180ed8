//! The inner loops: two matrix products and the gate functions.
//!
//! Everything here is generic over the SIMD level and `inline(always)`, so that each caller
//! is compiled once per level and chosen at run time. `M` is the number of output rows that
//! are kept in registers: eight vectors if a vector is one register (AVX-512), four if it
//! is two (AVX2).

use crate::simd::{SIMD_WIDTH, SimdArray};
use fearless_simd::{f32x16, i32x16, prelude::*};

/// The rows of a tile if a vector is one register, and if it is two. For a large tile that
/// needs no more rows than a small one, only that many are computed.
pub(crate) const LARGE_TILE: usize = 8;
pub(crate) const SMALL_TILE: usize = 4;

/// `acc[n] += Σ_k weights[k][n] · inputs[k]`: the first `N` rows of a tile of a product.
/// The weights are laid out for it, one group of `M` per input.
#[inline(always)]
pub(crate) fn product<S: Simd, const M: usize, const N: usize>(
    simd: S,
    weights: &[[f32; M]],
    inputs: &[SimdArray],
    mut acc: [f32x16<S>; N],
) -> [f32x16<S>; N] {
    for (w, x) in weights.iter().zip(inputs) {
        let x = x.load(simd);
        for m in 0..N {
            acc[m] = x.mul_add(f32x16::splat(simd, w[m]), acc[m]);
        }
    }
    acc
}

/// `acc[m] += Σ_lane rows[m][lane] · transposed[lane]`: a tile of a weight
/// gradient, summed over the sixteen sequences.
#[inline(always)]
pub(crate) fn outer<S: Simd, const M: usize>(
    simd: S,
    rows: &[SimdArray; M],
    transposed: &[SimdArray; SIMD_WIDTH],
    mut acc: [f32x16<S>; M],
) -> [f32x16<S>; M] {
    for (lane, x) in transposed.iter().enumerate() {
        let x = x.load(simd);
        for m in 0..M {
            acc[m] = x.mul_add(f32x16::splat(simd, rows[m].0[lane]), acc[m]);
        }
    }
    acc
}

/// Adding 1.5 · 2^23 rounds to a whole number and leaves it in the low bits.
const ROUND: f32 = 12_582_912.0;

/// `e^(scale · x)` for exponents within ±80. The relative error is 2e-7 near 0 and 6e-7 at
/// ±20, or 2e-6 if multiply-add is not fused.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: f32x16<S>, scale: f32) -> f32x16<S> {
    let to_log2 = f32x16::splat(simd, scale * std::f32::consts::LOG2_E);
    let shifted = x.mul_add(to_log2, ROUND);
    let whole = shifted - ROUND;
    power_of_two(simd, [shifted], [x.mul_add(to_log2, -whole)])[0]
}

/// `2^(n + f)` of each, n in the low bits of `shifted`: 2^n · p(f) with a
/// polynomial fitted to 2^f on [-1/2, 1/2] that is exact at 0.
#[inline(always)]
fn power_of_two<S: Simd, const N: usize>(
    simd: S,
    shifted: [f32x16<S>; N],
    f: [f32x16<S>; N],
) -> [f32x16<S>; N] {
    let [first, rest @ ..] = POWER_OF_TWO;
    let mut p = [f32x16::splat(simd, first); N];
    for c in rest {
        for (p, f) in p.iter_mut().zip(&f) {
            *p = p.mul_add(*f, c);
        }
    }
    for (p, shifted) in p.iter_mut().zip(&shifted) {
        *p = f32x16::from_bits(p.to_bits() + (shifted.to_bits() << 23));
    }
    p
}

const POWER_OF_TWO: [f32; 6] = [
    0.001_326_472_7,
    0.009_671_513,
    0.055_507_336,
    0.240_222_42,
    std::f32::consts::LN_2 - 1.9e-7,
    1.0,
];

/// `ln x` to 1e-7 for normal positive x: x = 2^e · (1 + f) with 1 + f within
/// [√½, √2), and a polynomial for ln(1 + f).
#[inline(always)]
pub(crate) fn ln<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let bits: i32x16<S> = x.bitcast();
    let exponent = (bits - std::f32::consts::FRAC_1_SQRT_2.to_bits() as i32) >> 23;
    let mantissa: f32x16<S> = (bits - (exponent << 23)).bitcast();
    let f = mantissa - 1.0;
    let mut p = f32x16::splat(simd, LOG_ONE_PLUS[6]);
    for c in LOG_ONE_PLUS[..6].iter().rev() {
        p = p.mul_add(f, *c);
    }
    let log = (f * f).mul_add(p.mul_add(f, -0.5), f);
    exponent
        .to_float::<f32x16<S>>()
        .mul_add(std::f32::consts::LN_2, log)
}

const LOG_ONE_PLUS: [f32; 7] = [
    0.333_341_66,
    -0.250_017,
    0.199_548_75,
    -0.165_644_26,
    0.149_779_93,
    -0.143_790_11,
    0.086_721_92,
];

/// σ(x).
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let [e] = bounded_exp2(simd, [x * -std::f32::consts::LOG2_E]);
    f32x16::splat(simd, 1.0) / (e + 1.0)
}

/// tanh of each.
#[inline(always)]
pub(crate) fn tanh<S: Simd, const N: usize>(simd: S, mut x: [f32x16<S>; N]) -> [f32x16<S>; N] {
    for x in &mut x {
        *x *= TANH_SCALE;
    }
    let mut e = bounded_exp2(simd, x);
    for e in &mut e {
        *e = (f32x16::splat(simd, 1.0) - *e) / (*e + 1.0);
    }
    e
}

const TANH_SCALE: f32 = -2.0 * std::f32::consts::LOG2_E;

/// The factors of the weights of the gates i, f, g, o in the layout. With them, a gate's
/// sum is the exponent z that its function needs: σ(x) is 1 / (1 + 2^z), and tanh(x) is (1
/// - 2^z) / (1 + 2^z).
pub(crate) const GATE_SCALES: [f32; 4] = [
    -std::f32::consts::LOG2_E,
    -std::f32::consts::LOG2_E,
    TANH_SCALE,
    -std::f32::consts::LOG2_E,
];

/// `2^z` of each, z held within ±20 log2 e: σ(−20) is 2e-9, and the product of four
/// `1 + e^20` stays finite.
///
/// All vectors take each step together, because one alone would mostly wait for its own
/// results.
#[inline(always)]
fn bounded_exp2<S: Simd, const N: usize>(simd: S, mut z: [f32x16<S>; N]) -> [f32x16<S>; N] {
    const BOUND: f32 = 20.0 * std::f32::consts::LOG2_E;
    let mut shifted = [f32x16::splat(simd, ROUND); N];
    for (z, shifted) in z.iter_mut().zip(&mut shifted) {
        *z = z.min(BOUND).max(-BOUND);
        *shifted += *z;
        *z -= *shifted - ROUND;
    }
    power_of_two(simd, shifted, z)
}

/// σ(i), σ(f), tanh(g), σ(o) from the scaled sums of some units, with one division for the
/// four. Divisions are the slowest instruction here, and approximate reciprocals differ
/// between manufacturers.
#[inline(always)]
pub(crate) fn gates<S: Simd, const M: usize>(simd: S, z: [f32x16<S>; M]) -> [f32x16<S>; M] {
    let one = f32x16::splat(simd, 1.0);
    let mut gates = bounded_exp2(simd, z);
    for unit in gates.as_chunks_mut::<4>().0 {
        let [i, f, e, o] = *unit;
        let [i, f, g, o] = [i + 1.0, f + 1.0, e + 1.0, o + 1.0];
        let (if_, go) = (i * f, g * o);
        let inverse = one / (if_ * go);
        let (per_if, per_go) = (inverse * go, inverse * if_);
        *unit = [per_if * f, per_if * i, (one - e) * (per_go * o), per_go * g];
    }
    gates
}

/// The cells and hidden states of some units after a step, if the gates themselves are not
/// needed: `f·c + i·g` over one denominator, and `o·tanh(c)` over another.
#[inline(always)]
pub(crate) fn cell_and_hidden<S: Simd, const M: usize, const U: usize>(
    simd: S,
    z: [f32x16<S>; M],
    mut cell: [f32x16<S>; U],
) -> ([f32x16<S>; U], [f32x16<S>; U]) {
    let one = f32x16::splat(simd, 1.0);
    let powers = bounded_exp2(simd, z);
    let powers = powers.as_chunks::<4>().0;
    let mut scaled = [one; U];
    for (u, [i, f, e, _]) in powers.iter().enumerate() {
        let [i, f, g] = [*i + 1.0, *f + 1.0, *e + 1.0];
        let ig = i * g;
        cell[u] = cell[u].mul_add(ig, (one - *e) * f) / (ig * f);
        scaled[u] = cell[u] * TANH_SCALE;
    }
    let mut hidden = bounded_exp2(simd, scaled);
    for (e, [_, _, _, o]) in hidden.iter_mut().zip(powers) {
        *e = (one - *e) / ((*o + 1.0) * (*e + 1.0));
    }
    (cell, hidden)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::levels;
    use fearless_simd::{Level, dispatch};

    /// Arguments and results, at every level.
    fn apply(
        xs: &[f32],
        f: fn(Level, [f32; SIMD_WIDTH]) -> [f32; SIMD_WIDTH],
    ) -> impl Iterator<Item = (f32, f32)> {
        let mut results = Vec::new();
        for level in levels() {
            for xs in xs.as_chunks::<SIMD_WIDTH>().0 {
                results.extend(xs.iter().copied().zip(f(level, *xs)));
            }
        }
        results.into_iter()
    }

    fn grid(limit: f32) -> Vec<f32> {
        (0..16_384)
            .map(|i| limit * (i as f32 - 8192.0) / 8192.0)
            .collect()
    }

    #[inline(always)]
    fn plain_exp<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
        exp(simd, x, 1.0)
    }

    #[inline(always)]
    fn one_tanh<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
        let [y] = tanh(simd, [x]);
        y
    }

    macro_rules! at_any_level {
        ($f:ident) => {{
            #[inline(always)]
            fn run<S: Simd>(simd: S, x: [f32; SIMD_WIDTH]) -> [f32; SIMD_WIDTH] {
                $f(simd, f32x16::simd_from(simd, x)).to_array()
            }
            |level: Level, x: [f32; SIMD_WIDTH]| dispatch!(level, simd => run(simd, x))
        }};
    }

    #[test]
    fn exp_is_accurate_relative_to_its_value() {
        let xs = grid(20.0);
        for (x, y) in apply(&xs, at_any_level!(plain_exp)) {
            let exact = f64::from(x).exp();
            let bound = 2e-7 + 8e-8 * f64::from(x.abs());
            assert!(
                (f64::from(y) / exact - 1.0).abs() < bound,
                "{x}: {y} {exact}"
            );
        }
        assert!(apply(&[0.0; 16], at_any_level!(plain_exp)).all(|(_, y)| y == 1.0));
    }

    #[test]
    fn ln_is_accurate() {
        let xs: Vec<f32> = grid(30.0).iter().map(|x| x.exp()).collect();
        for (x, y) in apply(&xs, at_any_level!(ln)) {
            let exact = f64::from(x).ln();
            let bound = 1e-7 * exact.abs().max(1.0) * 2.0;
            assert!((f64::from(y) - exact).abs() < bound, "{x}: {y} {exact}");
        }
    }

    #[test]
    fn sigmoid_and_tanh_are_accurate_to_2e_7() {
        for limit in [0.01, 1.0, 8.0, 100.0] {
            let xs = grid(limit);
            for (x, y) in apply(&xs, at_any_level!(sigmoid)) {
                let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
                assert!((f64::from(y) - exact).abs() < 2e-7, "{x}: {y} {exact}");
            }
            for (x, y) in apply(&xs, at_any_level!(one_tanh)) {
                let exact = f64::from(x).tanh();
                assert!((f64::from(y) - exact).abs() < 2e-7, "{x}: {y} {exact}");
            }
        }
    }

    #[test]
    fn the_shared_divisions_give_the_gates_the_cell_and_the_hidden_state() {
        #[inline(always)]
        fn run<S: Simd>(simd: S, sums: [f32; 4], cell: f32) -> [f32; 6] {
            let z = [0, 1, 2, 3].map(|k| f32x16::splat(simd, sums[k] * GATE_SCALES[k]));
            let [i, f, g, o] = gates(simd, z);
            let ([c], [h]) = cell_and_hidden(simd, z, [f32x16::splat(simd, cell)]);
            [i, f, g, o, c, h].map(|v| v.to_array()[3])
        }
        for (x, level) in grid(60.0)
            .into_iter()
            .flat_map(|x| levels().into_iter().map(move |l| (x, l)))
        {
            let (sums, cell) = ([x, -x, 0.5 * x, 0.3 - x], 0.1 * x);
            let got = dispatch!(level, simd => run(simd, sums, cell));
            let sigma = |v: f64| 1.0 / (1.0 + (-v).exp());
            let [i, f, g, o] = sums.map(f64::from);
            let [i, f, g, o] = [sigma(i), sigma(f), g.tanh(), sigma(o)];
            let c = f * f64::from(cell) + i * g;
            for (got, exact) in got.iter().zip([i, f, g, o, c, o * c.tanh()]) {
                let bound = 4e-7 * exact.abs().max(1.0);
                assert!(
                    (f64::from(*got) - exact).abs() < bound,
                    "{x}: {got} {exact}"
                );
            }
        }
    }
}
