//! The ids met so far, by their hashes.

use std::collections::HashSet;

use rayon::prelude::*;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// How many lists the hashes of [`Ids::Later`] are in, by their first bits; each is sorted
/// within a cache.
const LISTS: usize = 64;

/// The most bytes that an id takes here, whatever its length.
pub(super) const BYTES_PER_ID: u64 = 16;

/// The ids met so far.
#[derive(Debug)]
pub(super) enum Ids {
    /// Repeats are detected at once. Two of 10⁹ different ids share a hash with probability
    /// 10⁻²¹.
    Now(HashSet<u128>),
    /// Repeats are searched for at the end. Many ids do not fit a cache, and looking up
    /// each would take longer than reading its sequence. Hashes are shorter, so two ids may
    /// share one: a repeat found this way must be checked again.
    Later(Vec<Vec<u64>>),
}

impl Ids {
    pub(super) fn now() -> Self {
        Self::Now(HashSet::new())
    }

    pub(super) fn later() -> Self {
        Self::Later(vec![Vec::new(); LISTS])
    }

    /// Adds an id; `false` if it is known to be a repeat.
    pub(super) fn insert(&mut self, id: &str) -> bool {
        match self {
            Self::Now(ids) => ids.insert(xxh3_128(id.as_bytes())),
            Self::Later(lists) => {
                let hash = xxh3_64(id.as_bytes());
                lists[(hash >> 32) as usize % LISTS].push(hash);
                true
            }
        }
    }

    /// Whether an id of [`Ids::Later`] seems to repeat, in one of the lists or across
    /// several.
    pub(super) fn any_twice(all: Vec<Self>) -> bool {
        let mut lists = vec![Vec::new(); LISTS];
        for own in all {
            if let Self::Later(own) = own {
                for (list, own) in std::iter::zip(&mut lists, own) {
                    list.push(own);
                }
            }
        }
        lists.into_par_iter().any(|list| {
            let mut hashes: Vec<u64> = list.concat();
            hashes.sort_unstable();
            hashes.windows(2).any(|pair| pair[0] == pair[1])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<u32>) -> Vec<String> {
        range.map(|i| format!("s{i}")).collect()
    }

    #[test]
    fn an_id_is_new_once() {
        let mut ids = Ids::now();
        assert!(names(0..1000).iter().all(|id| ids.insert(id)));
        assert!(!names(0..1000).iter().any(|id| ids.insert(id)));
    }

    #[test]
    fn repeats_are_found_whoever_met_them() {
        let met = |range| {
            let mut ids = Ids::later();
            assert!(names(range).iter().all(|id| ids.insert(id)));
            ids
        };
        assert!(!Ids::any_twice(vec![met(0..500), met(500..1000)]));
        assert!(Ids::any_twice(vec![met(0..501), met(500..1000)]));
        let mut twice = met(0..500);
        twice.insert("s7");
        assert!(Ids::any_twice(vec![twice]));
    }
}
