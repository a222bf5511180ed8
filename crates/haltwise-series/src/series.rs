//! The series that classifiers learn from and answer about.

use crate::random::{Fnv, Random};

/// The result of functions that can fail.
type Result<T> = std::result::Result<T, Error>;

/// Why something is no series.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing to learn from or to answer about.
    #[error("there are no sequences: at least one is needed")]
    NoSequences,
    /// A sequence without steps.
    #[error("sequence {sequence} has length 0: drop it, or give it at least one step")]
    EmptySequence {
        /// Its index, from 0.
        sequence: usize,
    },
    /// An infinity in the input.
    #[error(
        "series {sequence}, time point {step}, channel {feature} is {value}: \
         give a finite number, or NaN if the value is missing"
    )]
    Infinite {
        /// Its index, from 0.
        sequence: usize,
        /// The step, from 1.
        step: usize,
        /// The feature, from 1.
        feature: usize,
        /// The value found.
        value: f32,
    },
    /// A missing value, for a classifier that needs all of them.
    #[error(
        "series {sequence}, time point {step}, channel {feature} is NaN: \
         fill in missing values before training or scoring"
    )]
    Missing {
        /// Its index, from 0.
        sequence: usize,
        /// The step, from 1.
        step: usize,
        /// The feature, from 1.
        feature: usize,
    },
    /// Slices whose sizes are inconsistent.
    #[error("{0}")]
    Size(String),
}

/// A borrowed set of sequences, stored step by step with `features` numbers per step. NaN is a
/// missing value.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    values: &'a [f32],
    layout: Layout<'a>,
    /// The most steps of a sequence.
    steps: usize,
    features: usize,
}

/// The place of each sequence, in steps.
#[derive(Clone, Copy, Debug)]
enum Layout<'a> {
    /// All have the same length.
    Equal,
    /// Each has this many steps, and is padded to the same length.
    Padded(&'a [u32]),
    /// Each starts at the end of the one before; one more start is the end of the last.
    Packed(&'a [usize]),
}

impl<'a> Series<'a> {
    /// Sequences of equal length. Refuses infinity, naming the place.
    pub fn new(values: &'a [f32], steps: usize, features: usize) -> Result<Self> {
        Self::rows(values, steps, features, Layout::Equal)
    }

    /// Sequences of unequal length, each padded to `steps`; the padding is never read.
    pub fn with_lengths(
        values: &'a [f32],
        steps: usize,
        features: usize,
        lengths: &'a [u32],
    ) -> Result<Self> {
        Self::rows(values, steps, features, Layout::Padded(lengths))
    }

    /// Sequences of unequal length, one after the other without padding: `starts` gives the
    /// step at which each begins, and the end of the last one.
    ///
    /// ```
    /// use haltwise_series::Series;
    ///
    /// let series = Series::packed(&[1.0, 2.0, 3.0, 9.0], &[0, 3, 4], 1)?;
    /// assert_eq!(series.sequence(1), [9.0]);
    /// # Ok::<(), haltwise_series::Error>(())
    /// ```
    pub fn packed(values: &'a [f32], starts: &'a [usize], features: usize) -> Result<Self> {
        check_size(values, features)?;
        let ends = [starts.first(), starts.last()].map(|end| end.copied().unwrap_or(0));
        if ends[0] != 0 || ends[1].checked_mul(features) != Some(values.len()) {
            return Err(Error::Size(format!(
                "the sequences start at step {} and end at step {}, but there are {} numbers, \
                 {features} per step",
                ends[0],
                ends[1],
                values.len()
            )));
        }
        let not_after = |pair: &[usize]| pair[0] >= pair[1];
        if let Some(sequence) = starts.windows(2).position(not_after) {
            return Err(Error::EmptySequence { sequence });
        }
        let lengths = starts.windows(2).map(|pair| pair[1] - pair[0]);
        let series = Series {
            values,
            layout: Layout::Packed(starts),
            steps: lengths.max().unwrap_or(0),
            features,
        };
        series.check_values()?;
        Ok(series)
    }

    fn rows(values: &'a [f32], steps: usize, features: usize, layout: Layout<'a>) -> Result<Self> {
        if steps == 0 && features > 0 {
            return Err(Error::EmptySequence { sequence: 0 });
        }
        check_size(values, features)?;
        let width = steps.saturating_mul(features);
        if !values.len().is_multiple_of(width) {
            return Err(Error::Size(format!(
                "{} numbers are not a whole number of sequences of {steps} steps × {features} features",
                values.len()
            )));
        }
        let series = Series {
            values,
            layout,
            steps,
            features,
        };
        series.check_lengths()?;
        series.check_values()?;
        Ok(series)
    }

    fn check_lengths(&self) -> Result<()> {
        let Layout::Padded(lengths) = self.layout else {
            return Ok(());
        };
        let rows = self.values.len() / (self.steps * self.features);
        if lengths.len() != rows {
            return Err(Error::Size(format!(
                "{} lengths for {rows} sequences",
                lengths.len(),
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
        match self.find(f32::is_infinite) {
            None => Ok(()),
            Some((sequence, step, feature, value)) => Err(Error::Infinite {
                sequence,
                step,
                feature,
                value,
            }),
        }
    }

    /// Refuses missing values, naming the first.
    pub fn check_complete(&self) -> Result<()> {
        match self.find(f32::is_nan) {
            None => Ok(()),
            Some((sequence, step, feature, _)) => Err(Error::Missing {
                sequence,
                step,
                feature,
            }),
        }
    }

    /// The first such value: its sequence from 0, its step and feature from 1.
    fn find(&self, is_so: impl Fn(f32) -> bool) -> Option<(usize, usize, usize, f32)> {
        (0..self.len()).find_map(|sequence| {
            let values = self.sequence(sequence);
            let index = values.iter().position(|&value| is_so(value))?;
            let (step, feature) = (index / self.features, index % self.features);
            Some((sequence, step + 1, feature + 1, values[index]))
        })
    }

    /// A hash of the sequence, evenly distributed.
    pub fn hash(&self, row: usize) -> u64 {
        let mut hash = Fnv::default();
        for value in self.sequence(row) {
            hash.add(&value.to_bits().to_le_bytes());
        }
        Random::new(hash.finish(), 0).next()
    }

    /// The number of sequences; at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self.layout {
            Layout::Equal => self.values.len() / (self.steps * self.features),
            Layout::Padded(lengths) => lengths.len(),
            Layout::Packed(starts) => starts.len() - 1,
        }
    }

    /// The most steps of a sequence.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Numbers per step.
    pub fn features(&self) -> usize {
        self.features
    }

    /// The number of steps of sequence `index`.
    pub fn length(&self, index: usize) -> usize {
        match self.layout {
            Layout::Equal => self.steps,
            Layout::Padded(lengths) => lengths[index] as usize,
            Layout::Packed(starts) => starts[index + 1] - starts[index],
        }
    }

    /// The numbers of sequence `index`, step by step, up to its own length.
    pub fn sequence(&self, index: usize) -> &'a [f32] {
        let start = match self.layout {
            Layout::Equal | Layout::Padded(_) => index * self.steps,
            Layout::Packed(starts) => starts[index],
        };
        let steps = start..start + self.length(index);
        &self.values[steps.start * self.features..steps.end * self.features]
    }
}

fn check_size(values: &[f32], features: usize) -> Result<()> {
    if features == 0 {
        return Err(Error::Size("a series needs at least one feature".into()));
    }
    if values.is_empty() {
        return Err(Error::NoSequences);
    }
    Ok(())
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
    fn an_infinity_is_refused_and_named_but_not_beyond_the_end() {
        let mut values = [0.5; 12];
        values[9] = f32::INFINITY;
        let error = Series::new(&values, 3, 2).unwrap_err().to_string();
        assert!(
            error.contains("series 1, time point 2, channel 2 is inf"),
            "{error}"
        );
        assert!(Series::with_lengths(&values, 3, 2, &[3, 1]).is_ok());
    }

    #[test]
    fn a_missing_value_is_named_where_all_are_needed() {
        let values = [1.0, 2.0, f32::NAN];
        let series = Series::packed(&values, &[0, 1, 3], 1).unwrap();
        let error = series.check_complete().unwrap_err().to_string();
        assert!(
            error.contains("series 1, time point 2, channel 1 is NaN"),
            "{error}"
        );
        let complete = Series::new(&values[..2], 2, 1).unwrap();
        assert_eq!(complete.check_complete(), Ok(()));
    }

    #[test]
    fn sizes_that_do_not_fit_are_refused() {
        assert!(Series::new(&[0.0; 7], 3, 2).is_err());
        assert!(Series::with_lengths(&[0.0; 6], 3, 1, &[3]).is_err());
        assert!(Series::with_lengths(&[0.0; 6], 3, 1, &[3, 4]).is_err());
        for starts in [
            &[][..],
            &[0],
            &[0, 2],
            &[0, 4],
            &[1, 3],
            &[0, 3, 3],
            &[0, 5, 3],
        ] {
            assert!(Series::packed(&[0.0; 3], starts, 1).is_err(), "{starts:?}");
        }
        assert!(Series::packed(&[0.0; 3], &[0, usize::MAX], 2).is_err());
    }

    #[test]
    fn packed_sequences_are_those_that_were_padded() {
        let padded = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0];
        let packed = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let padded = Series::with_lengths(&padded, 3, 2, &[3, 1]).unwrap();
        let packed = Series::packed(&packed, &[0, 3, 4], 2).unwrap();
        assert_eq!((packed.len(), packed.steps()), (padded.len(), 3));
        for i in 0..2 {
            assert_eq!(packed.sequence(i), padded.sequence(i));
            assert_eq!(packed.length(i), padded.length(i));
        }
    }
}
