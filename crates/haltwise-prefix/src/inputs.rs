//! What trees read of a prefix.

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

/// How many numbers the trees read of a prefix with this many points.
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
