//! The inner loops: two matrix products and the gate functions.
//!
//! Everything here is generic over the SIMD level and `inline(always)`, so that
//! each caller is compiled once per level and picked at run time. `M` is the
//! number of output rows that are kept in registers: eight vectors where a
//! vector is one register (AVX-512), four where it is two (AVX2).

use crate::lanes::{LANES, Lanes};
use fearless_simd::{f32x16, i32x16, prelude::*};

/// Whether a vector of sixteen is one register at this SIMD level.
#[inline(always)]
pub(crate) const fn wide<S: Simd>() -> bool {
    S::f32s::LEN >= LANES
}

/// `acc[m] += Σ_k weights[k][m] · inputs[k]`: a tile of a product with weights
/// that were laid out for it, one group of `M` per input.
#[inline(always)]
pub(crate) fn product<S: Simd, const M: usize>(
    simd: S,
    weights: &[[f32; M]],
    inputs: &[Lanes],
    mut acc: [f32x16<S>; M],
) -> [f32x16<S>; M] {
    for (w, x) in weights.iter().zip(inputs) {
        let x = x.load(simd);
        for m in 0..M {
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
    rows: &[Lanes; M],
    transposed: &[Lanes; LANES],
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

/// `e^(scale · x)` for exponents within ±80, to 2e-7 of its value near 0 and 6e-7
/// at ±20: 2^n · p(f) with a polynomial fitted to 2^f on [-1/2, 1/2] that is exact
/// at 0.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: f32x16<S>, scale: f32) -> f32x16<S> {
    // Adding 1.5 · 2^23 rounds to a whole number and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let to_log2 = f32x16::splat(simd, scale * std::f32::consts::LOG2_E);
    let shifted = x.mul_add(to_log2, ROUND);
    let whole = shifted - ROUND;
    let f = x.mul_add(to_log2, -whole);
    let mut p = f32x16::splat(simd, POWER_OF_TWO[4]);
    for c in POWER_OF_TWO[..4].iter().rev() {
        p = p.mul_add(f, *c);
    }
    p = p.mul_add(f, 1.0);
    f32x16::from_bits(p.to_bits() + (shifted.to_bits() << 23))
}

const POWER_OF_TWO: [f32; 5] = [
    std::f32::consts::LN_2 - 1.9e-7,
    0.240_222_42,
    0.055_507_336,
    0.009_671_513,
    0.001_326_472_7,
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

/// The bound on a gate's input: σ(−20) is 2e-9, and the product of four
/// `1 + e^20` stays finite.
const SATURATED: f32 = 20.0;

/// `1 + e^(-scale · x)`, and the exponential itself.
#[inline(always)]
fn denominator<S: Simd>(simd: S, x: f32x16<S>, scale: f32) -> (f32x16<S>, f32x16<S>) {
    let bound = SATURATED / scale;
    let e = exp(simd, x.min(bound).max(-bound), -scale);
    (e + 1.0, e)
}

/// σ(x).
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    f32x16::splat(simd, 1.0) / denominator(simd, x, 1.0).0
}

/// tanh(x).
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: f32x16<S>) -> f32x16<S> {
    let (d, e) = denominator(simd, x, 2.0);
    (f32x16::splat(simd, 1.0) - e) / d
}

/// σ(i), σ(f), tanh(g), σ(o) with one division for the four: divisions are the
/// slowest instruction here, and approximate reciprocals differ between makers.
#[inline(always)]
pub(crate) fn gates<S: Simd>(simd: S, z: [f32x16<S>; 4]) -> [f32x16<S>; 4] {
    let one = f32x16::splat(simd, 1.0);
    let (i, _) = denominator(simd, z[0], 1.0);
    let (f, _) = denominator(simd, z[1], 1.0);
    let (g, e) = denominator(simd, z[2], 2.0);
    let (o, _) = denominator(simd, z[3], 1.0);
    let (if_, go) = (i * f, g * o);
    let inverse = one / (if_ * go);
    let (per_if, per_go) = (inverse * go, inverse * if_);
    [per_if * f, per_if * i, (one - e) * (per_go * o), per_go * g]
}

#[cfg(test)]
mod tests {
    use super::*;
    use fearless_simd::{Level, dispatch};

    fn apply(xs: &[f32], f: fn(Level, [f32; LANES]) -> [f32; LANES]) -> Vec<f32> {
        let mut out = Vec::new();
        for chunk in xs.chunks_exact(LANES) {
            out.extend(f(Level::new(), std::array::from_fn(|i| chunk[i])));
        }
        out
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

    macro_rules! at_any_level {
        ($f:ident) => {{
            #[inline(always)]
            fn run<S: Simd>(simd: S, x: [f32; LANES]) -> [f32; LANES] {
                $f(simd, f32x16::simd_from(simd, x)).to_array()
            }
            |level: Level, x: [f32; LANES]| dispatch!(level, simd => run(simd, x))
        }};
    }

    #[test]
    fn exp_is_accurate_relative_to_its_value() {
        let xs = grid(20.0);
        for (x, y) in xs.iter().zip(apply(&xs, at_any_level!(plain_exp))) {
            let exact = f64::from(*x).exp();
            let bound = 2e-7 + 2e-8 * f64::from(x.abs());
            assert!(
                (f64::from(y) / exact - 1.0).abs() < bound,
                "{x}: {y} {exact}"
            );
        }
        assert_eq!(apply(&[0.0; 16], at_any_level!(plain_exp))[0], 1.0);
    }

    #[test]
    fn ln_is_accurate() {
        let xs: Vec<f32> = grid(30.0).iter().map(|x| x.exp()).collect();
        for (x, y) in xs.iter().zip(apply(&xs, at_any_level!(ln))) {
            let exact = f64::from(*x).ln();
            let bound = 1e-7 * exact.abs().max(1.0) * 2.0;
            assert!((f64::from(y) - exact).abs() < bound, "{x}: {y} {exact}");
        }
    }

    #[test]
    fn sigmoid_and_tanh_are_accurate_to_2e_7() {
        for limit in [0.01, 1.0, 8.0, 100.0] {
            let xs = grid(limit);
            for (x, y) in xs.iter().zip(apply(&xs, at_any_level!(sigmoid))) {
                let exact = 1.0 / (1.0 + (-f64::from(*x)).exp());
                assert!((f64::from(y) - exact).abs() < 2e-7, "{x}: {y} {exact}");
            }
            for (x, y) in xs.iter().zip(apply(&xs, at_any_level!(tanh))) {
                let exact = f64::from(*x).tanh();
                assert!((f64::from(y) - exact).abs() < 2e-7, "{x}: {y} {exact}");
            }
        }
    }

    #[test]
    fn the_shared_division_gives_the_same_gates() {
        #[inline(always)]
        fn run<S: Simd>(simd: S, x: f32) -> [f32; 4] {
            let z = [x, -x, 0.5 * x, 0.3 - x].map(|v| f32x16::splat(simd, v));
            gates(simd, z).map(|g| g.to_array()[3])
        }
        for x in grid(60.0) {
            let got = dispatch!(Level::new(), simd => run(simd, x));
            let sigma = |v: f64| 1.0 / (1.0 + (-v).exp());
            let x = f64::from(x);
            let exact = [sigma(x), sigma(-x), (0.5 * x).tanh(), sigma(0.3 - x)];
            for (g, e) in got.iter().zip(exact) {
                assert!((f64::from(*g) - e).abs() < 4e-7, "{x}: {got:?} {exact:?}");
            }
        }
    }
}
