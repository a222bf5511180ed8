//! Splitting by seed and fractions.

use std::fmt;

use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;

/// Fractions that are not a valid split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitError(String);

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SplitError {}

/// Deals the positions `0..n` into one part per fraction, at random by seed.
///
/// Every position is in exactly one part, and each part is in ascending order. Sizes are
/// `n` times the fraction, rounded down. The remaining positions go, one each, to the parts
/// that lost most by rounding (among equals, the earlier part). The fractions must not be
/// negative and must add up to 1.
///
/// ```
/// let parts = haltwise_io::series::split(10, &[0.8, 0.2], 0)?;
/// assert_eq!((parts[0].len(), parts[1].len()), (8, 2));
/// # Ok::<(), haltwise_io::series::SplitError>(())
/// ```
pub fn split(n: usize, fractions: &[f64], seed: u64) -> Result<Vec<Vec<usize>>, SplitError> {
    check(fractions)?;
    let mut positions: Vec<usize> = (0..n).collect();
    positions.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    let mut rest = &positions[..];
    let parts = sizes(n, fractions).into_iter().map(|size| {
        // Fractions may add up to slightly more than 1, and sizes to more than n.
        let (part, after) = rest.split_at(size.min(rest.len()));
        rest = after;
        let mut part = part.to_vec();
        part.sort_unstable();
        part
    });
    Ok(parts.collect())
}

fn check(fractions: &[f64]) -> Result<(), SplitError> {
    if let Some(wrong) = fractions.iter().find(|f| !(0.0..=1.0).contains(*f)) {
        return Err(SplitError(format!(
            "the fraction {wrong} is not between 0 and 1"
        )));
    }
    let sum: f64 = fractions.iter().sum();
    // The tolerance for decimal fractions written by hand.
    if (sum - 1.0).abs() > 1e-9 {
        return Err(SplitError(format!(
            "the fractions add up to {sum}; they must add up to 1"
        )));
    }
    Ok(())
}

/// Sizes by largest remainder.
fn sizes(n: usize, fractions: &[f64]) -> Vec<usize> {
    let exact: Vec<f64> = fractions.iter().map(|f| f * n as f64).collect();
    let mut sizes: Vec<usize> = exact.iter().map(|e| e.floor() as usize).collect();
    let mut by_loss: Vec<usize> = (0..sizes.len()).collect();
    by_loss.sort_by(|&a, &b| exact[b].fract().total_cmp(&exact[a].fract()));
    let left = n.saturating_sub(sizes.iter().sum());
    for &part in by_loss.iter().cycle().take(left) {
        sizes[part] += 1;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_split_and_another_seed_another() {
        let parts = split(100, &[0.5, 0.5], 7).unwrap();
        assert_eq!(parts, split(100, &[0.5, 0.5], 7).unwrap());
        assert_ne!(parts, split(100, &[0.5, 0.5], 8).unwrap());
    }

    #[test]
    fn the_split_of_a_seed_stays_what_it_is() {
        let parts = split(12, &[0.5, 0.25, 0.25], 0).unwrap();
        assert_eq!(
            parts,
            [vec![0, 1, 3, 5, 6, 11], vec![2, 7, 9], vec![4, 8, 10]]
        );
    }

    #[test]
    fn sizes_are_exact_and_leftovers_go_where_most_was_lost() {
        assert_eq!(sizes(100, &[0.29, 0.71]), [29, 71]);
        assert_eq!(sizes(10992, &[0.6, 0.2, 0.2]), [6595, 2199, 2198]);
        assert_eq!(sizes(3, &[0.25, 0.25, 0.25, 0.25]), [1, 1, 1, 0]);
        assert_eq!(sizes(0, &[1.0]), [0]);
    }

    #[test]
    fn fractions_that_do_not_split_are_refused() {
        for wrong in [&[][..], &[0.5], &[0.7, 0.7], &[1.5, -0.5], &[f64::NAN, 1.0]] {
            assert!(split(10, wrong, 0).is_err(), "{wrong:?}");
        }
        assert!(split(10, &[0.1; 10], 0).is_ok());
    }

    proptest! {
        #[test]
        fn every_position_is_in_exactly_one_part(
            n in 0usize..500,
            weights in prop::collection::vec(0u32..100, 1..6),
            seed: u64,
        ) {
            let total: u32 = weights.iter().sum();
            prop_assume!(total > 0);
            let fractions: Vec<f64> = weights.iter().map(|&w| f64::from(w) / f64::from(total)).collect();
            let parts = split(n, &fractions, seed).unwrap();
            for (part, fraction) in parts.iter().zip(&fractions) {
                prop_assert!((part.len() as f64 - fraction * n as f64).abs() < 1.0 + 1e-9);
            }
            let mut all: Vec<usize> = parts.concat();
            all.sort_unstable();
            prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }
}
