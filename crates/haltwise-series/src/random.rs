//! Our own small generator and a hash, so that a seed gives the same model in every release and on
//! every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream numbered `stream` of `seed`: streams do not overlap in practice.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Random(seed);
        let start = random.next() ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Random(start)
    }

    /// Uniform on all numbers of 64 bits.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform on [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform on [-bound, bound).
    pub fn symmetric(&mut self, bound: f32) -> f32 {
        (2.0 * self.unit() - 1.0) * bound
    }

    /// Uniform on 0..n, by the high half of a product: the bias is below n / 2^64.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Puts `items` in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// FNV-1a: a hash that is the same in every release.
#[derive(Clone, Debug)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds bytes to what is hashed.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The hash of all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_is_a_permutation_fixed_by_its_seed() {
        let shuffled = |seed, stream| {
            let mut items: Vec<usize> = (0..100).collect();
            Random::new(seed, stream).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(3, 1), shuffled(3, 1));
        assert_ne!(shuffled(3, 1), shuffled(3, 2));
        assert_ne!(shuffled(3, 1), shuffled(4, 1));
        let mut sorted = shuffled(3, 1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn uniform_numbers_fill_their_range() {
        let mut random = Random::new(1, 0);
        let mut sum = 0.0;
        for _ in 0..10_000 {
            let x = random.symmetric(0.5);
            assert!((-0.5..0.5).contains(&x));
            sum += x;
        }
        assert!((sum / 10_000.0).abs() < 0.01);
    }
}
