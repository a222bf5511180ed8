//! The sequences, as the network reads them.

use crate::error::{Error, Result};
use crate::random::{Fnv, Random};

/// A borrowed set of sequences: `n × steps × features` numbers, row by row, and
/// where they are not all the same, the length of each.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    values: &'a [f32],
    lengths: Option<&'a [u32]>,
    steps: usize,
    features: usize,
}

impl<'a> Series<'a> {
    /// Sequences of equal length. Refuses NaN and infinity, naming the place.
    pub fn new(values: &'a [f32], steps: usize, features: usize) -> Result<Self> {
        Self::build(values, steps, features, None)
    }

    /// Sequences of unequal length, each padded to `steps`; what lies beyond a
    /// sequence's own length is never read.
    pub fn with_lengths(
        values: &'a [f32],
        steps: usize,
        features: usize,
        lengths: &'a [u32],
    ) -> Result<Self> {
        Self::build(values, steps, features, Some(lengths))
    }

    fn build(
        values: &'a [f32],
        steps: usize,
        features: usize,
        lengths: Option<&'a [u32]>,
    ) -> Result<Self> {
        if features == 0 {
            return Err(Error::Size("a series needs at least one feature".into()));
        }
        if steps == 0 {
            return Err(Error::EmptySequence { sequence: 0 });
        }
        if values.is_empty() {
            return Err(Error::NoSequences);
        }
        let width = steps.saturating_mul(features);
        if !values.len().is_multiple_of(width) {
            return Err(Error::Size(format!(
                "{} numbers are not a whole number of sequences of {steps} steps × {features} features",
                values.len()
            )));
        }
        let series = Series {
            values,
            lengths,
            steps,
            features,
        };
        series.check_lengths()?;
        series.check_values()?;
        Ok(series)
    }

    fn check_lengths(&self) -> Result<()> {
        let Some(lengths) = self.lengths else {
            return Ok(());
        };
        if lengths.len() != self.len() {
            return Err(Error::Size(format!(
                "{} lengths for {} sequences",
                lengths.len(),
                self.len()
            )));
        }
        for (sequence, &length) in lengths.iter().enumerate() {
            if length == 0 {
                return Err(Error::EmptySequence { sequence });
            }
            if length as usize > self.steps {
                return Err(Error::Size(format!(
                    "sequence {sequence} has length {length}, but there is room for {} steps",
                    self.steps
                )));
            }
        }
        Ok(())
    }

    fn check_values(&self) -> Result<()> {
        for sequence in 0..self.len() {
            for (index, &value) in self.sequence(sequence).iter().enumerate() {
                if !value.is_finite() {
                    return Err(Error::NotFinite {
                        sequence,
                        step: index / self.features + 1,
                        feature: index % self.features + 1,
                        value,
                    });
                }
            }
        }
        Ok(())
    }

    /// A number that another sequence would not have, evenly spread.
    pub(crate) fn hash(&self, row: usize) -> u64 {
        let mut hash = Fnv::default();
        for value in self.sequence(row) {
            hash.add(&value.to_bits().to_le_bytes());
        }
        Random::new(hash.finish(), 0).next()
    }

    /// How many sequences there are: at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.values.len() / (self.steps * self.features)
    }

    /// Steps of the longest sequence there is room for.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Numbers per step.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The number of steps of sequence `index`.
    pub fn length(&self, index: usize) -> usize {
        self.lengths.map_or(self.steps, |l| l[index] as usize)
    }

    /// The numbers of sequence `index`, step by step, up to its own length.
    pub fn sequence(&self, index: usize) -> &'a [f32] {
        let start = index * self.steps * self.features;
        &self.values[start..start + self.length(index) * self.features]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_read_is_refused() {
        assert!(matches!(Series::new(&[], 3, 1), Err(Error::NoSequences)));
        assert!(matches!(
            Series::new(&[1.0], 0, 1),
            Err(Error::EmptySequence { sequence: 0 })
        ));
        assert!(matches!(
            Series::with_lengths(&[1.0; 6], 3, 1, &[3, 0]),
            Err(Error::EmptySequence { sequence: 1 })
        ));
    }

    #[test]
    fn a_nan_is_refused_and_named_but_not_beyond_the_end() {
        let mut values = [0.5; 12];
        values[9] = f32::NAN;
        let error = Series::new(&values, 3, 2).unwrap_err().to_string();
        assert!(error.contains("sequence 1, step 2, feature 2"), "{error}");
        assert!(Series::with_lengths(&values, 3, 2, &[3, 1]).is_ok());
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(Series::new(&[0.0; 7], 3, 2).is_err());
        assert!(Series::with_lengths(&[0.0; 6], 3, 1, &[3]).is_err());
        assert!(Series::with_lengths(&[0.0; 6], 3, 1, &[3, 4]).is_err());
    }
}
