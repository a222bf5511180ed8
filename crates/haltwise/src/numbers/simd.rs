//! Sixty-four sequences at a time: a word of bits and an array of numbers.

use fearless_simd::prelude::*;
use fearless_simd::{f32x16, u8x64, u32x16};

/// How many sequences share a word.
pub(crate) const SIMD_WIDTH: usize = 64;

/// One number for each of 64 sequences.
pub(crate) type SimdArray<T> = [T; SIMD_WIDTH];

/// Numbers that are compared 64 at a time.
pub(crate) trait SimdNumber: Copy + PartialOrd {
    /// One bit per lane: is the number at least this?
    fn at_least<S: Simd>(simd: S, lanes: &SimdArray<Self>, least: Self) -> u64;
}

impl SimdNumber for u8 {
    #[inline(always)]
    fn at_least<S: Simd>(simd: S, lanes: &SimdArray<Self>, least: Self) -> u64 {
        u8x64::load_array_ref(simd, lanes)
            .simd_ge(least)
            .to_bitmask()
    }
}

impl SimdNumber for f32 {
    #[inline(always)]
    fn at_least<S: Simd>(simd: S, lanes: &SimdArray<Self>, least: Self) -> u64 {
        let mut bits = 0;
        for (i, sixteen) in lanes.as_chunks::<16>().0.iter().enumerate() {
            let reached = f32x16::load_array_ref(simd, sixteen).simd_ge(least);
            bits |= reached.to_bitmask() << (16 * i);
        }
        bits
    }
}

impl SimdNumber for u32 {
    #[inline(always)]
    fn at_least<S: Simd>(simd: S, lanes: &SimdArray<Self>, least: Self) -> u64 {
        let mut bits = 0;
        for (i, sixteen) in lanes.as_chunks::<16>().0.iter().enumerate() {
            let reached = u32x16::load_array_ref(simd, sixteen).simd_ge(least);
            bits |= reached.to_bitmask() << (16 * i);
        }
        bits
    }
}

/// One bit per lane: does the condition hold? Simple enough for the compiler to vectorise.
#[inline(always)]
pub(crate) fn mask(holds: impl Fn(usize) -> bool) -> u64 {
    let mut bytes = [0_u8; SIMD_WIDTH];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from(holds(i));
    }
    // Turns eight bytes of 0 or 1 into eight bits: the product moves byte j's bit to bit 56
    // + j, and no two of its partial sums meet.
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().enumerate().fold(0, |bits, (j, &word)| {
        let byte = u64::from_le_bytes(word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits | byte << (8 * j)
    })
}

/// The positions of the bits that are set, lowest first.
#[inline(always)]
pub(crate) fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (word != 0).then(|| {
            let i = word.trailing_zeros() as usize;
            word &= word - 1;
            i
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fearless_simd::dispatch;

    #[test]
    fn lanes_are_compared_each_for_itself() {
        let level = fearless_simd::Level::new();
        let lanes: SimdArray<u8> = std::array::from_fn(|i| (i * 89 % 256) as u8);
        for least in [0, 1, 127, 128, 200, 255] {
            let expected = mask(|i| lanes[i] >= least);
            let (wide, scores) = (lanes.map(u32::from), lanes.map(f32::from));
            dispatch!(level, simd => {
                assert_eq!(SimdNumber::at_least(simd, &lanes, least), expected);
                assert_eq!(SimdNumber::at_least(simd, &wide, u32::from(least)), expected);
                assert_eq!(SimdNumber::at_least(simd, &scores, f32::from(least)), expected);
                assert_eq!(SimdNumber::at_least(simd, &scores, f32::INFINITY), 0);
            });
        }
    }

    #[test]
    fn a_mask_has_each_lane_at_its_own_bit() {
        for pattern in [
            0,
            !0,
            1,
            1 << 63,
            0xdead_beef_0123_4567,
            0x5555_5555_5555_5555_u64,
        ] {
            assert_eq!(mask(|i| pattern >> i & 1 == 1), pattern);
            assert_eq!(ones(pattern).fold(0, |word, i| word | 1_u64 << i), pattern);
        }
    }
}
