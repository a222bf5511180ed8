//! The limit of the memory that reading takes.

use std::fmt;

use crate::error::ErrorKind;
use crate::problem::{Checked, Problem};

/// The default limit of a reader's memory.
pub const MEMORY: u64 = 4 << 30;

/// The memory needed to parse a line, as a multiple of its length: a class of two
/// characters becomes 32 bytes, in a list that doubles as it grows.
const PARSED: u64 = 64;

/// The memory that a reader may take, and how much of it is in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    limit: u64,
    taken: u64,
}

impl Memory {
    /// Allows this many bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, taken: 0 }
    }

    /// One of several equal shares.
    pub(crate) fn share(self, of: usize) -> Self {
        Self::new(self.limit / of.max(1) as u64)
    }

    /// The longest line that may be read now.
    pub(crate) fn longest_line(&self) -> u64 {
        self.left() / PARSED
    }

    /// Takes this many bytes permanently.
    pub(crate) fn take(&mut self, what: impl fmt::Display, bytes: u64) -> Checked {
        self.check(what, bytes)?;
        self.taken += bytes;
        Ok(())
    }

    /// Refuses what would need more bytes than are left.
    pub(crate) fn check(&self, what: impl fmt::Display, bytes: u64) -> Checked {
        if bytes <= self.left() {
            return Ok(());
        }
        Err(Problem::new(format_args!(
            "{what} would take {}, but reading may take {} of memory; allow more memory, or cut the \
             data into smaller parts",
            Size(self.taken.saturating_add(bytes)),
            Size(self.limit),
        ))
        .of_kind(ErrorKind::TooLarge))
    }

    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.taken)
    }
}

/// A number of bytes in words.
pub(crate) struct Size(pub(crate) u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.into_iter().find(|&(shift, _)| bytes >> shift > 0) {
            Some((shift, unit)) => {
                write!(f, "{:.1} {unit}", bytes as f64 / (1_u64 << shift) as f64)
            }
            None => write!(f, "{bytes} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_not_there_any_more() {
        let mut memory = Memory::new(640);
        assert_eq!(memory.longest_line(), 10);
        memory.take("a", 320).unwrap();
        assert_eq!(memory.longest_line(), 5);
        assert!(memory.check("b", 320).is_ok());
        let refused = memory.take("the ids", 5 << 20).unwrap_err().to_string();
        assert!(
            refused.starts_with("the ids would take 5.0 MiB, but reading may take 640 bytes"),
            "{refused}"
        );
        assert!(memory.take("b", 320).is_ok());
        assert!(memory.take("c", u64::MAX).is_err());
    }
}
