//! Our own small generator and a hash, so that a seed gives the same model in every release.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The stream numbered `stream` of `seed`: streams do not overlap in practice.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed);
        let start = random.next() ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Random(start)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform on [0, 1).
    pub(crate) fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform on 0..n, by the high half of a product: the bias is below n / 2^64.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }
}

/// FNV-1a: a hash that is the same in every release.
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_and_a_stream_fix_the_numbers() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next(), random.next()]
        };
        assert_eq!(numbers(3, 1), numbers(3, 1));
        assert_ne!(numbers(3, 1), numbers(3, 2));
        assert_ne!(numbers(3, 1), numbers(4, 1));
    }

    #[test]
    fn uniform_numbers_fill_their_range() {
        let mut random = Random::new(1, 0);
        let (mut sum, mut seen) = (0.0, [0; 7]);
        for _ in 0..10_000 {
            let x = random.unit();
            assert!((0.0..1.0).contains(&x));
            sum += x;
            seen[random.below(7)] += 1;
        }
        assert!((sum / 10_000.0 - 0.5).abs() < 0.01);
        assert!(seen.iter().all(|&n| n > 1200));
    }
}
