//! Sixty-four sequences at a time: a word of bits beside an array of numbers.
//!
//! The loops here are plain enough for the compiler to vectorise on any CPU,
//! without intrinsics.

/// How many sequences share a word.
pub(crate) const LANES: usize = 64;

/// One number for each of 64 sequences.
pub(crate) type Lanes<T> = [T; LANES];

/// One bit per lane: does the condition hold?
#[inline(always)]
pub(crate) fn mask(holds: impl Fn(usize) -> bool) -> u64 {
    let mut bytes = [0_u8; LANES];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from(holds(i));
    }
    // Eight bytes of 0 or 1 to eight bits: the product moves byte j's bit to
    // bit 56 + j, and no two of its partial sums meet.
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
