//! The splits of a dataset's traces: a test part, a part that screens, a part
//! that certifies.

use std::path::Path;

use anyhow::{Context, bail};
use haltwise_io::read_integers;
use rand::SeedableRng;
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use haltwise_report::format::{count as number, count_of as count};

use super::sources::Dataset;
use super::{Options, cache};

const SPLITS: usize = 100;

/// The origin of the splits: part of the key of the results.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Origin {
    Drawn {
        splits: usize,
        seed: u64,
    },
    File {
        digest: String,
        splits: Option<usize>,
    },
}

pub(super) fn origin(dataset: &Dataset, options: &Options) -> anyhow::Result<Origin> {
    Ok(match dataset.splits_file() {
        None => Origin::Drawn {
            splits: options.splits.unwrap_or(SPLITS),
            seed: options.seed,
        },
        Some(path) => Origin::File {
            digest: cache::file_digest(path)?,
            splits: options.splits,
        },
    })
}

/// Permutations of the traces, each dealt in the same way.
#[derive(Debug)]
pub(super) struct Splits {
    orders: Vec<Vec<usize>>,
    n_test: usize,
    drawn: bool,
}

/// One split: positions of traces.
#[derive(Debug, Clone, Copy)]
pub(super) struct Split<'a> {
    pub(super) test: &'a [usize],
    /// Both calibration parts, which the marginal method uses as one.
    pub(super) calibration: &'a [usize],
    pub(super) screening: &'a [usize],
    pub(super) certifying: &'a [usize],
}

impl Splits {
    pub(super) fn len(&self) -> usize {
        self.orders.len()
    }

    /// Whether they were drawn here, not read from a file.
    pub(super) fn drawn(&self) -> bool {
        self.drawn
    }

    pub(super) fn split(&self, s: usize) -> Split<'_> {
        let (test, calibration) = self.orders[s].split_at(self.n_test);
        let (screening, certifying) = calibration.split_at(calibration.len() / 2);
        Split {
            test,
            calibration,
            screening,
            certifying,
        }
    }
}

/// The splits of `n` traces, which were read from `traces`.
pub(super) fn load(
    dataset: &Dataset,
    options: &Options,
    n: usize,
    traces: &Path,
) -> anyhow::Result<Splits> {
    match dataset.splits_file() {
        Some(path) => from_file(path, options.splits, n, traces),
        None if n < 3 => bail!(
            "{}: {} cannot be split in three; give more",
            traces.display(),
            count(n as u64, "trace", "traces")
        ),
        None => Ok(draw(options.splits.unwrap_or(SPLITS), n, options.seed)),
    }
}

/// A third tests, a third screens, a third certifies.
fn draw(splits: usize, n: usize, seed: u64) -> Splits {
    let order = |s: usize| {
        let mut order: Vec<usize> = (0..n).collect();
        // A seed of its own for each split: more splits begin with the same.
        let seed = xxh3_64_with_seed(&(s as u64).to_le_bytes(), seed);
        order.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
        order
    };
    Splits {
        orders: (0..splits).map(order).collect(),
        n_test: n / 3,
        drawn: true,
    }
}

fn from_file(
    path: &Path,
    wanted: Option<usize>,
    n: usize,
    traces: &Path,
) -> anyhow::Result<Splits> {
    let order = read_integers(path, "order")?;
    let &[found, width] = &order.shape[..] else {
        bail!(
            "{}: `order` has {} axes; it must have two, splits × traces",
            path.display(),
            order.shape.len()
        );
    };
    if width != n {
        bail!(
            "{}: its splits are of {}, but there are {} in {}; these splits belong to other \
             traces",
            path.display(),
            count(width as u64, "trace", "traces"),
            number(n as u64),
            traces.display()
        );
    }
    let splits = wanted.unwrap_or(found);
    if splits > found || splits == 0 {
        bail!(
            "{}: it has {}, and {} are asked for",
            path.display(),
            count(found as u64, "split", "splits"),
            number(splits as u64)
        );
    }
    let n_test = test_size(path, n)?;
    let rows = order.values.chunks(n).take(splits).enumerate();
    let orders = rows
        .map(|(s, row)| {
            permutation(row, n)
                .with_context(|| format!("{}: `order`, split {}", path.display(), s + 1))
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Splits {
        orders,
        n_test,
        drawn: false,
    })
}

/// How many of `n` traces test, as the file has it.
fn test_size(path: &Path, n: usize) -> anyhow::Result<usize> {
    let n_test = read_integers(path, "n_test")?;
    let &[n_test] = &n_test.values[..] else {
        bail!("{}: `n_test` must be a single number", path.display());
    };
    let n_test = n_test as usize;
    if n_test == 0 || n_test + 2 > n {
        bail!(
            "{}: `n_test` is {n_test} of {n}; it must leave something to test, to screen and to \
             certify on",
            path.display()
        );
    }
    Ok(n_test)
}

/// Refuses a position past the end, and one that comes twice: it could both
/// screen and certify, which voids the guarantee.
fn permutation(row: &[u32], n: usize) -> anyhow::Result<Vec<usize>> {
    let mut seen = vec![false; n];
    row.iter()
        .map(|&position| {
            let i = position as usize;
            match seen.get_mut(i) {
                None => bail!("position {i} is past the last trace, {}", n - 1),
                Some(true) => bail!("position {i} comes twice"),
                Some(seen) => {
                    *seen = true;
                    Ok(i)
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_deals_every_trace_once_in_thirds() {
        let splits = draw(3, 20, 7);
        for s in 0..splits.len() {
            let split = splits.split(s);
            assert_eq!(
                (
                    split.test.len(),
                    split.screening.len(),
                    split.certifying.len()
                ),
                (6, 7, 7)
            );
            let mut all = [split.test, split.screening, split.certifying].concat();
            assert_eq!(split.calibration, &all[6..]);
            all.sort_unstable();
            assert_eq!(all, (0..20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn more_splits_begin_with_the_same() {
        assert_eq!(draw(2, 50, 1).orders, draw(5, 50, 1).orders[..2]);
        assert_ne!(draw(2, 50, 1).orders, draw(2, 50, 2).orders);
    }

    #[test]
    fn a_row_that_is_no_permutation_is_refused() {
        let refusal = |row: &[u32]| permutation(row, 3).unwrap_err().to_string();
        assert_eq!(refusal(&[0, 1, 3]), "position 3 is past the last trace, 2");
        assert_eq!(refusal(&[0, 1, 1]), "position 1 comes twice");
        assert_eq!(permutation(&[2, 0, 1], 3).unwrap(), [2, 0, 1]);
    }
}
