//! What ridge and trees read of a prefix.

use crate::random::Random;
use crate::scale::Prefix;

/// The most values of a prefix that the trees choose from; longer ones are thinned evenly.
const MOST_VALUES: usize = 2048;
/// Intervals are halves, quarters and so on: as deep as this, and not shorter than two points.
const DEPTH: u32 = 6;

/// What the trees read: values, and mean, deviation and slope of intervals, channel by channel.
pub(crate) fn tree_inputs(prefix: &Prefix, points: usize, to: &mut Vec<f32>) {
    to.clear();
    let apart = apart(points, prefix.values.len());
    for (channel, values) in prefix.values.iter().enumerate() {
        // From the end, so that the latest value is always among them.
        to.extend(values[..points].iter().rev().step_by(apart));
        for (from, ends) in intervals(points) {
            to.extend(prefix.moments(channel, from, ends));
        }
    }
}

/// How many numbers the trees read of a prefix with so many points.
pub(crate) fn tree_inputs_of(points: usize, channels: usize) -> usize {
    let values = points.div_ceil(apart(points, channels));
    channels * (values + 3 * intervals(points).count())
}

/// The distance between the values that the trees read.
fn apart(points: usize, channels: usize) -> usize {
    (points * channels).div_ceil(MOST_VALUES)
}

/// The dyadic intervals of a prefix, and those shifted by half their length.
fn intervals(points: usize) -> impl Iterator<Item = (usize, usize)> {
    let depths = (0..DEPTH).map(|depth| 2_usize << depth);
    let depths = depths.take_while(move |&halves| halves <= points);
    depths.flat_map(move |halves| {
        // Interval i spans the half lengths i and i + 1.
        let end = move |half: usize| half * points / halves;
        (0..halves - 1).map(move |i| (end(i), end(i + 2)))
    })
}

/// Random units beside the shares where a prefix is so short that convolutions say little.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RandomUnits {
    /// For each unit, its weights of all values and its offset.
    weights: Vec<f32>,
    inputs: usize,
}

/// A prefix with more values than this has no random units.
const SHORT: usize = 64;
/// The number of random units.
const UNITS: usize = 512;

impl RandomUnits {
    /// The units for a prefix with so many values; none if it is long.
    pub(crate) fn draw(values: usize, seed: u64) -> Self {
        let units = if values <= SHORT && values > 0 {
            UNITS
        } else {
            0
        };
        let mut random = Random::new(seed, 1 << 40 | values as u64);
        // Nearly normal, with deviation 1.
        let mut normal = || (0..4).fold(-2.0, |sum, _| sum + random.unit()) * 1.732_050_8;
        RandomUnits {
            weights: (0..units * (values + 1)).map(|_| normal()).collect(),
            inputs: values,
        }
    }

    /// How many numbers they add to what ridge reads: the units and the values themselves.
    pub(crate) fn features(&self) -> usize {
        match self.weights.len() / (self.inputs + 1) {
            0 => 0,
            units => units + self.inputs,
        }
    }

    fn append(&self, prefix: &Prefix, points: usize, to: &mut Vec<f32>) {
        if self.weights.is_empty() {
            return;
        }
        let values = prefix.values.iter().flat_map(|v| &v[..points]);
        for unit in self.weights.chunks_exact(self.inputs + 1) {
            let sum = unit.iter().zip(values.clone()).map(|(w, x)| w * x);
            to.push(sum.fold(unit[self.inputs], |sum, x| sum + x).max(0.0));
        }
        to.extend(values);
    }
}

/// What the ridge reads of a prefix beside the shares of the convolutions: the latest values,
/// and random units where the prefix is short.
pub(crate) fn ridge_inputs(prefix: &Prefix, points: usize, units: &RandomUnits, to: &mut Vec<f32>) {
    to.clear();
    to.extend(prefix.values.iter().map(|values| values[points - 1]));
    units.append(prefix, points, to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Scale;

    #[test]
    fn intervals_are_halves_and_their_shifts() {
        let all = |points| intervals(points).collect::<Vec<_>>();
        assert_eq!(all(1), []);
        assert_eq!(all(2), [(0, 2)]);
        assert_eq!(all(5), [(0, 5), (0, 2), (1, 3), (2, 5)]);
        assert_eq!(
            all(1000).len(),
            (1..=6).map(|d| (1 << d) - 1).sum::<usize>()
        );
        assert!(all(1000).iter().all(|(from, to)| from + 2 <= *to));
    }

    #[test]
    fn the_inputs_of_a_long_prefix_are_bounded_and_have_the_latest_value() {
        let scale = Scale {
            mean: vec![0.0; 3],
            factor: vec![1.0; 3],
        };
        let values: Vec<f32> = (0..30_000).map(|i| i as f32).collect();
        let prefix = scale.prefix(&values, 3, usize::MAX);
        for points in [1, 2, 700, 10_000] {
            let mut inputs = Vec::new();
            tree_inputs(&prefix, points, &mut inputs);
            assert_eq!(inputs.len(), tree_inputs_of(points, 3));
            assert!(inputs.len() <= 2048 + 3 + 3 * 3 * 120);
            for channel in 0..3 {
                let latest = ((points - 1) * 3 + channel) as f32;
                assert!(inputs.contains(&latest));
            }
        }
    }
}
