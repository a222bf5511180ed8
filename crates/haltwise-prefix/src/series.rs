//! The series to learn from and to answer about.

use crate::error::{Error, Result};
use crate::random::{Fnv, Random};

/// A borrowed set of series, stored time point by time point with `channels` numbers per point.
/// NaN is a missing value.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    values: &'a [f32],
    layout: Layout<'a>,
    /// The most points of a series.
    points: usize,
    channels: usize,
}

/// The place of each series, in points.
#[derive(Clone, Copy, Debug)]
enum Layout<'a> {
    /// All have the same length.
    Equal,
    /// Each has this many points, and is padded to the same length.
    Padded(&'a [u32]),
    /// Each starts at the end of the one before; one more start is the end of the last.
    Packed(&'a [usize]),
}

impl<'a> Series<'a> {
    /// Series of equal length. Refuses infinity, naming the place.
    pub fn new(values: &'a [f32], points: usize, channels: usize) -> Result<Self> {
        Self::rows(values, points, channels, Layout::Equal)
    }

    /// Series of unequal length, each padded to `points`; the padding is never read.
    pub fn with_lengths(
        values: &'a [f32],
        points: usize,
        channels: usize,
        lengths: &'a [u32],
    ) -> Result<Self> {
        Self::rows(values, points, channels, Layout::Padded(lengths))
    }

    /// Series of unequal length, one after the other without padding: `starts` gives the
    /// point at which each begins, and the end of the last one.
    ///
    /// ```
    /// use haltwise_prefix::Series;
    ///
    /// let series = Series::packed(&[1.0, 2.0, 3.0, 9.0], &[0, 3, 4], 1)?;
    /// assert_eq!(series.one(1), [9.0]);
    /// # Ok::<(), haltwise_prefix::Error>(())
    /// ```
    pub fn packed(values: &'a [f32], starts: &'a [usize], channels: usize) -> Result<Self> {
        check_size(values, channels)?;
        let ends = [starts.first(), starts.last()].map(|end| end.copied().unwrap_or(0));
        if ends[0] != 0 || ends[1].checked_mul(channels) != Some(values.len()) {
            return Err(Error::Size(format!(
                "the series start at point {} and end at point {}, but there are {} numbers, \
                 {channels} per point",
                ends[0],
                ends[1],
                values.len()
            )));
        }
        let not_after = |pair: &[usize]| pair[0] >= pair[1];
        if let Some(series) = starts.windows(2).position(not_after) {
            return Err(Error::EmptySeries { series });
        }
        let lengths = starts.windows(2).map(|pair| pair[1] - pair[0]);
        let series = Series {
            values,
            layout: Layout::Packed(starts),
            points: lengths.max().unwrap_or(0),
            channels,
        };
        series.check_values()?;
        Ok(series)
    }

    fn rows(values: &'a [f32], points: usize, channels: usize, layout: Layout<'a>) -> Result<Self> {
        if points == 0 && channels > 0 {
            return Err(Error::EmptySeries { series: 0 });
        }
        check_size(values, channels)?;
        let width = points.saturating_mul(channels);
        if !values.len().is_multiple_of(width) {
            return Err(Error::Size(format!(
                "{} numbers are not a whole number of series of {points} points × {channels} channels",
                values.len()
            )));
        }
        let series = Series {
            values,
            layout,
            points,
            channels,
        };
        series.check_lengths()?;
        series.check_values()?;
        Ok(series)
    }

    fn check_lengths(&self) -> Result<()> {
        let Layout::Padded(lengths) = self.layout else {
            return Ok(());
        };
        let rows = self.values.len() / (self.points * self.channels);
        if lengths.len() != rows {
            return Err(Error::Size(format!(
                "{} lengths for {rows} series",
                lengths.len(),
            )));
        }
        for (series, &length) in lengths.iter().enumerate() {
            if length == 0 {
                return Err(Error::EmptySeries { series });
            }
            if length as usize > self.points {
                return Err(Error::Size(format!(
                    "series {series} has length {length}, but there is room for {} points",
                    self.points
                )));
            }
        }
        Ok(())
    }

    fn check_values(&self) -> Result<()> {
        for series in 0..self.len() {
            for (index, &value) in self.one(series).iter().enumerate() {
                if value.is_infinite() {
                    return Err(Error::Infinite {
                        series,
                        point: index / self.channels + 1,
                        channel: index % self.channels + 1,
                        value,
                    });
                }
            }
        }
        Ok(())
    }

    /// A hash of the series, evenly distributed.
    pub(crate) fn hash(&self, row: usize) -> u64 {
        let mut hash = Fnv::default();
        for value in self.one(row) {
            hash.add(&value.to_bits().to_le_bytes());
        }
        Random::new(hash.finish(), 0).next()
    }

    /// The number of series; at least one.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self.layout {
            Layout::Equal => self.values.len() / (self.points * self.channels),
            Layout::Padded(lengths) => lengths.len(),
            Layout::Packed(starts) => starts.len() - 1,
        }
    }

    /// The most points of a series.
    pub fn points(&self) -> usize {
        self.points
    }

    /// Numbers per point.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// The number of points of series `index`.
    pub fn length(&self, index: usize) -> usize {
        match self.layout {
            Layout::Equal => self.points,
            Layout::Padded(lengths) => lengths[index] as usize,
            Layout::Packed(starts) => starts[index + 1] - starts[index],
        }
    }

    /// The numbers of series `index`, point by point, up to its own length.
    pub fn one(&self, index: usize) -> &'a [f32] {
        let start = match self.layout {
            Layout::Equal | Layout::Padded(_) => index * self.points,
            Layout::Packed(starts) => starts[index],
        };
        let points = start..start + self.length(index);
        &self.values[points.start * self.channels..points.end * self.channels]
    }
}

fn check_size(values: &[f32], channels: usize) -> Result<()> {
    if channels == 0 {
        return Err(Error::Size("a series needs at least one channel".into()));
    }
    if values.is_empty() {
        return Err(Error::NoSeries);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_read_is_refused() {
        assert!(matches!(Series::new(&[], 3, 1), Err(Error::NoSeries)));
        assert!(matches!(
            Series::new(&[1.0], 0, 1),
            Err(Error::EmptySeries { series: 0 })
        ));
        assert!(matches!(
            Series::with_lengths(&[1.0; 6], 3, 1, &[3, 0]),
            Err(Error::EmptySeries { series: 1 })
        ));
    }

    #[test]
    fn an_infinity_is_refused_and_named_but_not_beyond_the_end() {
        let mut values = [0.5; 12];
        values[9] = f32::INFINITY;
        let error = Series::new(&values, 3, 2).unwrap_err().to_string();
        assert!(
            error.contains("series 1, time point 2, channel 2"),
            "{error}"
        );
        assert!(Series::with_lengths(&values, 3, 2, &[3, 1]).is_ok());
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
    fn packed_series_are_those_that_were_padded() {
        let padded = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0];
        let packed = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        let padded = Series::with_lengths(&padded, 3, 2, &[3, 1]).unwrap();
        let packed = Series::packed(&packed, &[0, 3, 4], 2).unwrap();
        assert_eq!((packed.len(), packed.points()), (padded.len(), 3));
        for i in 0..2 {
            assert_eq!(packed.one(i), padded.one(i));
            assert_eq!(packed.length(i), padded.length(i));
        }
    }

    #[test]
    fn an_infinity_among_packed_series_is_named() {
        let error = Series::packed(&[1.0, 2.0, f32::INFINITY], &[0, 1, 3], 1).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("series 1, time point 2, channel 1"),
            "{error}"
        );
    }
}
