//! A substitute for a real classifier, for measurements: any number of sequences, each
//! computed from its number alone.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Sequences of two classes, told apart by a sequential test: each step adds a
/// noisy hint, the sign of the sum is the prediction, and the score grows with
/// its size. Read to the end, about 98 in 100 predictions are right.
///
/// Any sequence can be drawn without the ones before it, and only with operations that
/// every machine rounds alike. So the same seed gives the same numbers, in any order, on
/// any machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SyntheticClassifier {
    shortest: usize,
    longest: usize,
    drift: f64,
    seed: u64,
}

/// One sequence of a [`SyntheticClassifier`]; its buffers are reused.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DrawnSequence {
    /// The true class.
    pub label: u32,
    /// The predicted class at each step.
    pub predictions: Vec<u32>,
    /// The score at each step.
    pub scores: Vec<f32>,
}

impl SyntheticClassifier {
    /// Sequences of `shortest` to `longest` steps (at least one), all lengths equally
    /// likely.
    pub fn new(shortest: usize, longest: usize, seed: u64) -> Self {
        let longest = longest.max(1);
        Self {
            shortest: shortest.clamp(1, longest),
            longest,
            // At the end the sum is two standard deviations from 0.
            drift: 2.0 / (longest as f64).sqrt(),
            seed,
        }
    }

    /// Draws the sequence of this number.
    pub fn draw(&self, number: u64, into: &mut DrawnSequence) {
        let start = xxh3_64_with_seed(&number.to_le_bytes(), self.seed);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(start);
        let choices = (self.longest - self.shortest + 1) as u64;
        let steps = self.shortest + (rng.next_u64() % choices) as usize;
        into.label = (rng.next_u64() >> 63) as u32;
        into.predictions.clear();
        into.scores.clear();
        let mut sum = 0.0;
        for _ in 0..steps {
            sum += self.drift + noise(rng.next_u64());
            let wrong = u32::from(sum < 0.0);
            // The odds are exp(2·drift·sum). This curve is close, and needs no exponential,
            // which machines round differently.
            let odds = self.drift * sum.abs();
            into.predictions.push(into.label ^ wrong);
            into.scores
                .push((0.5 + 0.5 * odds / (1.0 + odds * odds).sqrt()) as f32);
        }
    }
}

/// Returns roughly a standard normal number: the sum of the four quarters of a word.
fn noise(word: u64) -> f64 {
    let quarters: u64 = (0..4).map(|i| word >> (16 * i) & 0xffff).sum();
    (quarters as f64 - 2.0 * 65_535.0) / (65_536.0 / 3_f64.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(synthetic: SyntheticClassifier, number: u64) -> DrawnSequence {
        let mut sequence = DrawnSequence::default();
        synthetic.draw(number, &mut sequence);
        sequence
    }

    #[test]
    fn a_sequence_depends_on_its_number_and_the_seed_alone() {
        let synthetic = SyntheticClassifier::new(3, 30, 7);
        let mut reused = drawn(synthetic, 5);
        synthetic.draw(6, &mut reused);
        assert_eq!(reused, drawn(synthetic, 6));
        assert_ne!(reused, drawn(synthetic, 5));
        assert_ne!(reused, drawn(SyntheticClassifier::new(3, 30, 8), 6));
    }

    #[test]
    fn lengths_and_scores_are_in_range_and_the_end_is_mostly_right() {
        let synthetic = SyntheticClassifier::new(2, 20, 0);
        let mut right = 0;
        let mut lengths = std::collections::BTreeSet::new();
        for number in 0..2_000 {
            let sequence = drawn(synthetic, number);
            lengths.insert(sequence.scores.len());
            assert!(sequence.scores.iter().all(|s| (0.5..=1.0).contains(s)));
            assert_eq!(sequence.predictions.len(), sequence.scores.len());
            right += u32::from(sequence.predictions.last() == Some(&sequence.label));
        }
        assert_eq!(lengths, (2..=20).collect());
        assert!((1_600..2_000).contains(&right), "{right}");
    }

    #[test]
    fn the_numbers_are_the_same_on_every_machine() {
        let sequence = drawn(SyntheticClassifier::new(4, 4, 1), 1);
        let bits: Vec<u32> = sequence.scores.iter().map(|s| s.to_bits()).collect();
        let expected = vec![1_064_883_270, 1_064_842_440, 1_065_138_407, 1_065_163_414];
        assert_eq!((sequence.label, bits), (1, expected));
    }
}
