//! Natural logarithms, several at a time.
//!
//! They take most of the time of a learned score. They have no branches here, so a compiler
//! can use vectors. Every operation is rounded as IEEE 754 says, so they are the same on
//! any machine.

/// Returns the logarithm of each, bit for bit as `libm::log`, for positive, finite numbers
/// that are not subnormal.
#[inline(always)]
pub(crate) fn ln<const N: usize>(x: [f64; N]) -> [f64; N] {
    x.map(of_one)
}

/// The bits of 1, and of a number a little below √½, as `libm` has it.
const ONE: u64 = 0x3ff0_0000_0000_0000;
const ROOT: u64 = 0x3fe6_a09e_0000_0000;

/// 2^52, whose last bit counts ones, and its bits.
const COUNTER: f64 = 4_503_599_627_370_496.0;
const COUNTER_BITS: u64 = 0x4330_0000_0000_0000;

/// ln 2, the first 32 bits and the rest.
const LN_2: [f64; 2] = [6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10];

/// The coefficients of fdlibm's polynomial for (ln(1 + f) − 2s) / s, where s = f / (2 + f),
/// by powers of s²; the error is below 2^-58.45.
const BY_SQUARES: [f64; 7] = [
    6.666_666_666_666_735e-1,
    3.999_999_999_940_942e-1,
    2.857_142_874_366_239e-1,
    2.222_219_843_214_978_4e-1,
    1.818_357_216_161_805e-1,
    1.531_383_769_920_937_3e-1,
    1.479_819_860_511_658_6e-1,
];

#[inline(always)]
fn of_one(x: f64) -> f64 {
    // x = 2^k (1 + f), with 1 + f between √½ and √2.
    let shifted = x.to_bits().wrapping_add(ONE - ROOT);
    let k = f64::from_bits(shifted >> 52 | COUNTER_BITS) - (COUNTER + 1023.0);
    let f = f64::from_bits((shifted & !(0xfff << 52)) + ROOT) - 1.0;
    let half_square = 0.5 * f * f;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    // Added up in the order in which `libm` does.
    let [c1, c2, c3, c4, c5, c6, c7] = BY_SQUARES;
    let even = w * (c2 + w * (c4 + w * c6));
    let odd = z * (c1 + w * (c3 + w * (c5 + w * c7)));
    s * (half_square + (odd + even)) + k * LN_2[1] - half_square + f + k * LN_2[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agrees(x: f64) {
        let [alone] = ln([x]);
        let [first, second] = ln([x, 0.5]);
        assert_eq!(alone.to_bits(), libm::log(x).to_bits(), "{x:e}");
        assert_eq!(first.to_bits(), alone.to_bits());
        assert_eq!(second.to_bits(), libm::log(0.5).to_bits());
    }

    #[test]
    fn logarithms_of_counts_and_of_borders_are_libms() {
        (1..=100_000).for_each(|n| agrees(f64::from(n)));
        for x in [f64::MIN_POSITIVE, f64::MAX, core::f64::consts::SQRT_2] {
            let near = [x.next_down(), x, x.next_up(), 1.0 / x];
            near.into_iter().filter(|x| x.is_normal()).for_each(agrees);
        }
        for p in 0..=10_000 {
            let p = f64::from(p) / 10_000.0;
            [p + 1e-9, p + 1e-6, p + 1e-3].into_iter().for_each(agrees);
        }
    }

    proptest! {
        #[test]
        fn any_logarithm_is_libms(bits in any::<u64>(), p in 1e-9..2.0) {
            let x = f64::from_bits(bits & !(1 << 63));
            if x.is_normal() {
                agrees(x);
            }
            agrees(p);
        }
    }
}
