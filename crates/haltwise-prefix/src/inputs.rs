//! What ridge and trees read of a prefix.

use crate::random::Random;
use crate::scale::Prefix;

/// The most values of a prefix that the trees choose from; longer ones are thinned evenly.
const MOST_VALUES: usize = 2048;
/// Intervals are halves, quarters and so on: as deep as this, and not shorter than two points.
const DEPTH: u32 = 6;

/// One number that a tree may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TreeInput {
    /// The value of a channel at a time point.
    Value { channel: usize, at: usize },
    /// Mean, deviation or slope of a channel in an interval.
    Moment {
        channel: usize,
        from: usize,
        to: usize,
        which: usize,
    },
}

impl TreeInput {
    pub(crate) fn of(self, prefix: &Prefix) -> f32 {
        match self {
            TreeInput::Value { channel, at } => prefix.values[channel][at],
            TreeInput::Moment {
                channel,
                from,
                to,
                which,
            } => prefix.moments(channel, from, to)[which],
        }
    }

    /// The most inputs of a prefix with up to so many points.
    pub(crate) fn most(points: usize, channels: usize) -> usize {
        let values = (points * channels).min(MOST_VALUES + channels);
        values + channels * 3 * intervals(points).len()
    }

    /// All inputs of a prefix with so many points.
    pub(crate) fn all(points: usize, channels: usize) -> Vec<TreeInput> {
        let mut all = Vec::new();
        let apart = (points * channels).div_ceil(MOST_VALUES);
        for channel in 0..channels {
            // From the end, so that the latest value is always among them.
            for back in (0..points).step_by(apart) {
                all.push(TreeInput::Value {
                    channel,
                    at: points - 1 - back,
                });
            }
            for (from, to) in intervals(points) {
                let moment = |which| TreeInput::Moment {
                    channel,
                    from,
                    to,
                    which,
                };
                all.extend((0..3).map(moment));
            }
        }
        all
    }
}

/// The dyadic intervals of a prefix, and those shifted by half their length.
fn intervals(points: usize) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for depth in 0..DEPTH {
        let halves = 2_usize << depth;
        if points < halves {
            break;
        }
        // Interval i spans the half lengths i and i + 1.
        let end = |half: usize| half * points / halves;
        all.extend((0..halves - 1).map(|i| (end(i), end(i + 2))));
    }
    all
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

/// What ridge reads: the share of time points at which each convolution exceeded each bias,
/// the latest values, and random units where the prefix is short.
pub(crate) fn ridge_inputs(
    counts: impl Iterator<Item = u32>,
    prefix: &Prefix,
    points: usize,
    units: &RandomUnits,
    to: &mut Vec<f32>,
) {
    to.clear();
    let share = 1.0 / points as f32;
    to.extend(counts.map(|count| count as f32 * share));
    to.extend(prefix.values.iter().map(|values| values[points - 1]));
    units.append(prefix, points, to);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_halves_and_their_shifts() {
        assert_eq!(intervals(1), []);
        assert_eq!(intervals(2), [(0, 2)]);
        assert_eq!(intervals(5), [(0, 5), (0, 2), (1, 3), (2, 5)]);
        assert_eq!(
            intervals(1000).len(),
            (1..=6).map(|d| (1 << d) - 1).sum::<usize>()
        );
        assert!(intervals(1000).iter().all(|(from, to)| from + 2 <= *to));
    }

    #[test]
    fn the_inputs_of_a_long_prefix_are_bounded_and_have_the_latest_value() {
        let inputs = TreeInput::all(100_000, 3);
        assert!(inputs.len() <= 2048 + 3 + 3 * 3 * 120);
        for channel in 0..3 {
            let latest = TreeInput::Value {
                channel,
                at: 99_999,
            };
            assert!(inputs.contains(&latest));
        }
    }
}
