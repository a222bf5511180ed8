//! The ids met so far.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_128;

/// How many parts the set is in: threads that add ids rarely meet at one.
const PARTS: usize = 64;

/// How many bytes an id takes here, about, whatever its length.
pub(super) const BYTES_PER_ID: u64 = 30;

/// Hashes of the ids met so far. Two of 10⁹ different ids share one with
/// probability 10⁻²¹.
#[derive(Debug)]
pub(super) struct Ids {
    parts: [Mutex<HashSet<u128, BuildHasherDefault<Itself>>>; PARTS],
}

impl Default for Ids {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl Ids {
    /// Adds an id; `false` if it was there.
    pub(super) fn insert(&self, id: &str) -> bool {
        let hash = xxh3_128(id.as_bytes());
        let part = &self.parts[(hash >> 64) as usize % PARTS];
        // Sets of numbers cannot be left half-changed.
        let mut part = part.lock().unwrap_or_else(PoisonError::into_inner);
        part.insert(hash)
    }
}

/// What is a hash already needs no hashing.
#[derive(Debug, Default)]
struct Itself(u64);

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for (byte, i) in bytes.iter().zip(0..8) {
            self.0 ^= u64::from(*byte) << (8 * i);
        }
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_new_once() {
        let ids = Ids::default();
        let names: Vec<String> = (0..1000).map(|i| format!("s{i}")).collect();
        assert!(names.iter().all(|id| ids.insert(id)));
        assert!(!names.iter().any(|id| ids.insert(id)));
    }
}
