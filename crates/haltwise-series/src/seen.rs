//! Which series a model was trained on: enough hashes of them to recognise them again.

use crate::Series;

/// How many hashes a model keeps: enough to recognise one series in a thousand.
const KEPT: usize = 2048;

/// The sorted hashes to keep of the series that training saw; if there are many, only the smallest.
pub fn hashes_to_keep(hashes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut hashes: Vec<u64> = hashes.collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(KEPT);
    hashes
}

/// The approximate share of these series that training has seen with exactly the same values;
/// `None` if that is not known. `kept` are the hashes that the model kept.
///
/// If the model kept only the smallest hashes, only series with equally small hashes are
/// compared: a random part of them.
pub fn share_of(kept: &[u64], series: &Series<'_>) -> Option<f64> {
    let largest = match kept.len() {
        KEPT.. => *kept.last()?,
        _ => u64::MAX,
    };
    let hashes = (0..series.len()).map(|i| series.hash(i));
    let (mut looked_at, mut seen) = (0, 0);
    for hash in hashes.filter(|hash| *hash <= largest) {
        looked_at += 1;
        seen += usize::from(kept.binary_search(&hash).is_ok());
    }
    (looked_at > 0 && !kept.is_empty()).then(|| seen as f64 / looked_at as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_training_saw_is_found_also_among_many() {
        let values: Vec<f32> = (0..10_000).map(|i| i as f32).collect();
        let all = Series::new(&values, 2, 1).unwrap();
        for trained_on in [100, 3000] {
            let kept = hashes_to_keep((0..trained_on).map(|i| all.hash(i)));
            assert_eq!(kept.len(), trained_on.min(KEPT));
            let part = |from: usize, to: usize| {
                let part = Series::new(&values[2 * from..2 * to], 2, 1).unwrap();
                share_of(&kept, &part).unwrap()
            };
            assert_eq!(part(0, trained_on), 1.0);
            assert_eq!(part(trained_on, 5000), 0.0);
            let half = part(trained_on / 2, trained_on / 2 + trained_on);
            assert!((half - 0.5).abs() < 0.05, "{half}");
        }
        assert_eq!(share_of(&[], &all), None);
    }
}
