//! A rule as a table of numbers, for the flash memory of a device.
//!
//! A table has words of 64 bits, little-endian: a name, a checksum, four words and an
//! intercept that describe the rest, the thresholds (two to a word), and the weights of a
//! learned score. A table is used in place: loading checks it and copies nothing.

use core::iter;

use crate::gap_score::{Features, GapScore, GapScoreError};
use crate::rule::{Rule, RuleError};
use crate::score::ScoreKind;

/// The first word of a table.
const NAME: u64 = u64::from_le_bytes(*b"haltwise");

/// The version of the layout.
const VERSION: u32 = 1;

/// The codes of the sources of scores.
const CONFIDENCE: u32 = 0;
const MAX_PROBABILITY: u32 = 1;
const MARGIN: u32 = 2;
const GAP: u32 = 3;

const READS_ON: u32 = 1;
const USES_SCORE: u32 = 2;
const PREDICTS: u32 = 4;
const SOME_GROUPS: u32 = 8;

/// Why bytes are not a rule.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The bytes are not aligned to words of 64 bits.
    #[error("the address of the rule's table must be divisible by 8")]
    Unaligned,
    /// The bytes are something else.
    #[error("this is not the table of a rule")]
    NotATable,
    /// A newer version of Haltwise wrote them.
    #[error("the table of the rule has version {found}, newer than {VERSION}")]
    Newer {
        /// The version.
        found: u32,
    },
    /// Some bytes are missing or changed.
    #[error("the table of the rule is cut short or damaged: its checksum is wrong")]
    Damaged,
    /// Its numbers contradict each other.
    #[error("the table of the rule contradicts itself")]
    Unsound,
    /// The learned score is invalid.
    #[error(transparent)]
    GapScore(#[from] GapScoreError),
    /// The rule is invalid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// The processor is big-endian.
    #[error("tables are for little-endian processors")]
    BigEndian,
    /// There are more steps or classes than a table can hold.
    #[error("the rule has more steps or classes than a table can hold")]
    TooLarge,
}

impl<'a> Rule<'a> {
    /// Loads the rule whose table is in these bytes. Their address must be divisible by 8.
    /// The table is checked as a rule file is, except for the promise, which is not in a
    /// table.
    pub fn load(bytes: &'a [u8]) -> Result<Self, TableError> {
        if bytes.as_ptr().align_offset(8) != 0 {
            return Err(TableError::Unaligned);
        }
        Self::from_words(bytemuck::try_cast_slice(bytes).map_err(|_| TableError::Damaged)?)
    }

    /// Does the same with the words of a table.
    pub fn from_words(words: &'a [u64]) -> Result<Self, TableError> {
        let [NAME, sum, body @ ..] = words else {
            return Err(TableError::NotATable);
        };
        if let Some(&first) = body.first()
            && halves(first).0 > VERSION
        {
            let (found, _) = halves(first);
            return Err(TableError::Newer { found });
        }
        if checksum(body.iter().copied()) != *sum {
            return Err(TableError::Damaged);
        }
        let rule = Self::from_checked_words(words)?;
        if let ScoreKind::Gap(score) = rule.source() {
            GapScore::new(score.features(), score.weights(), score.intercept())?;
        }
        let (source, classes) = (rule.source(), rule.classes());
        let sound = Self::new(rule.thresholds(), source, classes, rule.reads_on())?;
        Ok(sound.in_some_groups(rule.some_groups()))
    }

    /// Does the same, in no time, with words that [`from_words`](Self::from_words) accepted
    /// before. Other words are not dangerous: they are refused, or halt a stream at an
    /// unexpected step.
    pub fn from_checked_words(words: &'a [u64]) -> Result<Self, TableError> {
        if cfg!(target_endian = "big") {
            return Err(TableError::BigEndian);
        }
        let [NAME, _, a, b, c, d, intercept, rest @ ..] = words else {
            return Err(TableError::Damaged);
        };
        let ((version, t_max), (classes, flags)) = (halves(*a), halves(*b));
        let ((kind, zero), (fitted, end)) = (halves(*c), halves(*d));
        let size = |n: u32| usize::try_from(n).map_err(|_| TableError::TooLarge);
        let (t_max, classes) = (size(t_max)?, size(classes)?);
        let (fitted, end) = (size(fitted)?, size(end)?);
        let (thresholds, weights) = rest
            .split_at_checked(t_max.div_ceil(2))
            .ok_or(TableError::Unsound)?;
        let thresholds: &[f32] =
            bytemuck::try_cast_slice(thresholds).map_err(|_| TableError::Unsound)?;
        let weights: &[f64] = bytemuck::try_cast_slice(weights).map_err(|_| TableError::Unsound)?;
        let (thresholds, padding) = thresholds
            .split_at_checked(t_max)
            .ok_or(TableError::Unsound)?;

        let plain = weights.is_empty() && (fitted, end, *intercept) == (0, 0, 0);
        let source = match kind {
            CONFIDENCE if plain => ScoreKind::Confidence,
            MAX_PROBABILITY if plain => ScoreKind::MaxProbability,
            MARGIN if plain => ScoreKind::Margin,
            GAP => {
                let features = Features {
                    uses_score: flags & USES_SCORE != 0,
                    classes: fitted,
                    t_max: end,
                    predicts: flags & PREDICTS != 0,
                };
                let intercept = f64::from_bits(*intercept);
                ScoreKind::Gap(GapScore::trusted(features, weights, intercept))
            }
            _ => return Err(TableError::Unsound),
        };
        let learned = if kind == GAP {
            USES_SCORE | PREDICTS
        } else {
            0
        };
        let spare = flags & !(READS_ON | SOME_GROUPS | learned) != 0 || zero != 0;
        if version != VERSION || spare || padding.iter().any(|p| p.to_bits() != 0) {
            return Err(TableError::Unsound);
        }
        let classes = (classes > 0).then_some(classes);
        let reads_on = flags & READS_ON != 0;
        let rule = Self::trusted(thresholds, source, classes, reads_on);
        Ok(rule.in_some_groups(flags & SOME_GROUPS != 0))
    }

    /// The table of the rule, word by word; an error if it has more steps or classes than a
    /// table can hold.
    pub fn words(&self) -> Result<impl Iterator<Item = u64> + Clone + use<'a>, TableError> {
        let number = |n: usize| u32::try_from(n).map_err(|_| TableError::TooLarge);
        let (kind, score) = match self.source() {
            ScoreKind::Confidence => (CONFIDENCE, None),
            ScoreKind::MaxProbability => (MAX_PROBABILITY, None),
            ScoreKind::Margin => (MARGIN, None),
            ScoreKind::Gap(score) => (GAP, Some(score)),
        };
        let features = score.map(|score| score.features());
        let flags = [
            (READS_ON, self.reads_on()),
            (USES_SCORE, features.is_some_and(|f| f.uses_score)),
            (PREDICTS, features.is_some_and(|f| f.predicts)),
            (SOME_GROUPS, self.some_groups()),
        ];
        let flags = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| flag);
        let thresholds = self.thresholds();
        let head = [
            word(VERSION, number(thresholds.len())?),
            word(number(self.classes().unwrap_or(0))?, flags.sum()),
            word(kind, 0),
            word(
                number(features.map_or(0, |f| f.classes))?,
                number(features.map_or(0, |f| f.t_max))?,
            ),
            score.map_or(0, |score| score.intercept().to_bits()),
        ];
        let pair = |pair: &[f32]| match *pair {
            [a, b] => word(a.to_bits(), b.to_bits()),
            [a] => word(a.to_bits(), 0),
            _ => 0,
        };
        let weights = score.map_or(&[][..], |score| score.weights());
        let body = head
            .into_iter()
            .chain(thresholds.chunks(2).map(pair))
            .chain(weights.iter().map(|w| w.to_bits()));
        Ok([NAME, checksum(body.clone())].into_iter().chain(body))
    }
}

fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// FNV-1a, word by word, with a final mix so that every bit counts.
fn checksum(words: impl Iterator<Item = u64>) -> u64 {
    let stir = |sum: u64, word: u64| {
        let sum = (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        sum ^ sum >> 29
    };
    words
        .chain(iter::once(NAME))
        .fold(0xcbf2_9ce4_8422_2325, stir)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn bytes(words: &[u64]) -> &[u8] {
        bytemuck::cast_slice(words)
    }

    fn rules(check: impl Fn(Rule<'_>)) {
        let weights: Vec<f64> = (0..26).map(|i| f64::from(i) - 7.5).collect();
        let features = Features {
            uses_score: true,
            classes: 3,
            t_max: 5,
            predicts: true,
        };
        let both = GapScore::new(features, &weights, 0.25).unwrap();
        let features = Features {
            classes: 0,
            ..features
        };
        let alone = GapScore::new(features, &weights[..11], -0.25).unwrap();
        for source in [
            ScoreKind::Confidence,
            ScoreKind::MaxProbability,
            ScoreKind::Margin,
            ScoreKind::Gap(both),
            ScoreKind::Gap(alone),
        ] {
            for thresholds in [&[0.5][..], &[f32::INFINITY, 0.25], &[0.0, 1.0, 0.5]] {
                for classes in [None, Some(3)] {
                    for reads_on in [false, true] {
                        let rule = Rule::new(thresholds, source, classes, reads_on).unwrap();
                        check(rule);
                        check(rule.in_some_groups(true));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_written_loads_equal() {
        rules(|rule| {
            let words: Vec<u64> = rule.words().unwrap().collect();
            assert_eq!(Rule::load(bytes(&words)), Ok(rule));
        });
    }

    #[test]
    fn every_changed_bit_and_every_other_length_is_noticed() {
        rules(|rule| {
            let mut words: Vec<u64> = rule.words().unwrap().collect();
            for cut in 0..words.len() {
                assert!(Rule::load(bytes(&words[..cut])).is_err());
            }
            for bit in 0..64 * words.len() {
                words[bit / 64] ^= 1 << (bit % 64);
                assert!(Rule::load(bytes(&words)).is_err(), "bit {bit}");
                words[bit / 64] ^= 1 << (bit % 64);
            }
            assert!(Rule::load(&bytes(&words)[..8 * words.len() - 1]).is_err());
            words.push(0);
            assert!(Rule::load(bytes(&words)).is_err());
            let moved = &bytes(&words)[1..];
            assert_eq!(Rule::load(moved), Err(TableError::Unaligned));
        });
    }

    proptest! {
        /// Words with a correct checksum give an error, or a rule whose table they are.
        #[test]
        fn hostile_words_do_no_harm(
            a in any::<[u32; 8]>(), small in any::<[bool; 8]>(),
            rest in prop::collection::vec(any::<f64>().prop_map(f64::to_bits), 0..40),
        ) {
            let half = |i: usize| if small[i] { a[i] % 8 } else { a[i] };
            let word = |i| word(half(i), half(i + 1));
            let head = [self::word(VERSION, half(0)), word(1), word(3), word(5), 0];
            let body = head.into_iter().chain(rest);
            let words: Vec<u64> = [NAME, checksum(body.clone())].into_iter().chain(body).collect();
            if let Ok(rule) = Rule::load(bytes(&words)) {
                prop_assert_eq!(rule.words().unwrap().collect::<Vec<_>>(), words);
            }
        }
    }
}
