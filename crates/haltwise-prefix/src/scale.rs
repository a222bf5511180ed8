//! The values as the model reads them: scaled, without gaps.

use haltwise_series::Series;
use serde::{Deserialize, Serialize};

/// No scaled value lies further from 0. Sums of such values stay finite.
const FARTHEST: f32 = 1e6;

/// Brings each channel to mean 0 and deviation 1 over the training series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Scale {
    /// The mean of each channel.
    pub(crate) mean: Vec<f32>,
    /// One over its deviation.
    pub(crate) factor: Vec<f32>,
}

impl Scale {
    pub(crate) fn of(series: &Series<'_>) -> Self {
        let channels = series.features();
        let sum_over = |number: &dyn Fn(usize, f64) -> f64| {
            let mut sums = vec![(0_u64, 0.0_f64); channels];
            for i in 0..series.len() {
                for point in series.sequence(i).chunks_exact(channels) {
                    for (c, (sum, &x)) in sums.iter_mut().zip(point).enumerate() {
                        if !x.is_nan() {
                            *sum = (sum.0 + 1, sum.1 + number(c, f64::from(x)));
                        }
                    }
                }
            }
            let mean = |&(count, sum): &(u64, f64)| sum / count.max(1) as f64;
            sums.iter().map(mean).collect::<Vec<f64>>()
        };
        let mean = sum_over(&|_, x| x);
        let variance = sum_over(&|c, x| (x - mean[c]) * (x - mean[c]));
        // A channel that never changes stays as it is.
        let factor = |v: &f64| {
            if *v > 1e-30 {
                v.sqrt().recip() as f32
            } else {
                1.0
            }
        };
        Scale {
            factor: variance.iter().map(factor).collect(),
            mean: mean.iter().map(|&m| m as f32).collect(),
        }
    }

    /// Writes the scaled time point over the one before it, so that a missing value keeps the
    /// last value seen. Before the first one it is 0, the mean.
    pub(crate) fn read(&self, point: &[f32], latest: &mut [f32]) {
        for (c, (x, to)) in point.iter().zip(latest).enumerate() {
            if !x.is_nan() {
                *to = ((x - self.mean[c]) * self.factor[c]).clamp(-FARTHEST, FARTHEST);
            }
        }
    }
}

impl Scale {
    /// The first `most` time points of a series, or all if there are fewer.
    pub(crate) fn prefix(&self, series: &[f32], channels: usize, most: usize) -> Prefix {
        let mut prefix = Prefix::new(channels);
        for point in series.chunks_exact(channels).take(most) {
            prefix.push(self, point);
        }
        prefix
    }
}

/// The scaled values of one series, as far as it has been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prefix {
    /// The values of each channel.
    pub(crate) values: Vec<Vec<f32>>,
    /// For each channel and time point, the sums of the values before it, of their squares, and
    /// of value times time.
    sums: Vec<Vec<[f64; 3]>>,
    latest: Vec<f32>,
}

impl Prefix {
    pub(crate) fn new(channels: usize) -> Self {
        Prefix {
            values: vec![Vec::new(); channels],
            sums: vec![vec![[0.0; 3]]; channels],
            latest: vec![0.0; channels],
        }
    }

    /// Reads the next time point.
    pub(crate) fn push(&mut self, scale: &Scale, point: &[f32]) {
        scale.read(point, &mut self.latest);
        for (c, &x) in self.latest.iter().enumerate() {
            let t = self.values[c].len() as f64;
            let [mut sum, mut squares, mut times] = self.sums[c][self.values[c].len()];
            let x64 = f64::from(x);
            sum += x64;
            squares += x64 * x64;
            times += x64 * t;
            self.sums[c].push([sum, squares, times]);
            self.values[c].push(x);
        }
    }

    /// The latest time point, scaled.
    pub(crate) fn latest(&self) -> &[f32] {
        &self.latest
    }

    /// The values at one time point, counted from 0.
    pub(crate) fn at(&self, point: usize) -> impl Iterator<Item = f32> {
        self.values.iter().map(move |values| values[point])
    }

    /// How many time points have been read.
    pub(crate) fn points(&self) -> usize {
        self.values.first().map_or(0, Vec::len)
    }

    /// Mean, deviation and slope of the values of a channel in a part of the prefix.
    pub(crate) fn moments(&self, channel: usize, from: usize, to: usize) -> [f32; 3] {
        let (a, b) = (self.sums[channel][from], self.sums[channel][to]);
        let n = (to - from) as f64;
        let [sum, squares, times] = [0, 1, 2].map(|i| b[i] - a[i]);
        let mean = sum / n;
        let variance = (squares / n - mean * mean).max(0.0);
        let middle = (from + to - 1) as f64 / 2.0;
        let spread = (n * n * n - n).max(1.0) / 12.0;
        let slope = (times - middle * sum) / spread;
        [mean as f32, variance.sqrt() as f32, slope as f32]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(scale: &Scale, points: &[f32]) -> Prefix {
        let mut prefix = Prefix::new(1);
        points.iter().for_each(|&x| prefix.push(scale, &[x]));
        prefix
    }

    #[test]
    fn a_missing_value_keeps_the_last_one_seen_and_is_the_mean_before_it() {
        let values = [1.0, 3.0, f32::NAN, 1.0, 3.0, f32::NAN];
        let scale = Scale::of(&Series::new(&values, 3, 1).unwrap());
        assert_eq!((scale.mean[0], scale.factor[0]), (2.0, 1.0));
        let read = prefix(&scale, &[f32::NAN, 5.0, f32::NAN, 1.0]);
        assert_eq!(read.values[0], [0.0, 3.0, 3.0, -1.0]);
    }

    #[test]
    fn a_constant_or_missing_channel_and_huge_values_stay_finite() {
        let values = [7.0, f32::NAN, 7.0, f32::NAN];
        let scale = Scale::of(&Series::new(&values, 2, 2).unwrap());
        let mut prefix = Prefix::new(2);
        for point in [[f32::MAX, f32::MIN], [7.0, f32::NAN]] {
            prefix.push(&scale, &point);
        }
        assert_eq!(prefix.values, [[FARTHEST, 0.0], [-FARTHEST, -FARTHEST]]);
        assert!(prefix.moments(0, 0, 2).iter().all(|x| x.is_finite()));
    }

    #[test]
    fn moments_are_those_of_the_part() {
        let scale = Scale {
            mean: vec![0.0],
            factor: vec![1.0],
        };
        let read = prefix(&scale, &[9.0, 1.0, 3.0, 5.0, -9.0]);
        let [mean, deviation, slope] = read.moments(0, 1, 4);
        assert_eq!((mean, slope), (3.0, 2.0));
        assert!((deviation - (8.0_f32 / 3.0).sqrt()).abs() < 1e-6);
        assert_eq!(read.moments(0, 0, 1), [9.0, 0.0, 0.0]);
    }
}
