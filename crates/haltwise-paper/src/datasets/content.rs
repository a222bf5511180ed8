//! The size of a dataset, and a checksum of its values.

use std::fmt;

use haltwise_io::series::SeriesSet;
use haltwise_report::format::count_of as count;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

/// The size of a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// How many sequences.
    pub sequences: usize,
    /// How many steps the longest has.
    pub steps: usize,
    /// How many numbers each step has.
    pub features: usize,
    /// How many classes.
    pub classes: usize,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} × {} × {}, {}",
            count(self.sequences as u64, "sequence", "sequences"),
            count(self.steps as u64, "step", "steps"),
            count(self.features as u64, "feature", "features"),
            count(self.classes as u64, "class", "classes")
        )
    }
}

/// The content of a dataset, as read.
#[derive(Debug, Serialize)]
pub struct Content {
    /// Its size.
    pub shape: Shape,
    /// A checksum of labels and values, whatever the order of the rows.
    pub checksum: String,
}

impl Content {
    /// The content of these sequences.
    pub fn of(set: &SeriesSet) -> Self {
        Self {
            shape: Shape {
                sequences: set.len(),
                steps: set.t_max(),
                features: set.features(),
                classes: set.classes().len(),
            },
            checksum: checksum(set),
        }
    }
}

/// A checksum of labels and values that neither the file format nor the order
/// of the rows changes: the sum of a hash per sequence. A hash is XXH3 (128
/// bits) of the label and the values, little-endian, values as 32-bit floats.
fn checksum(set: &SeriesSet) -> String {
    let mut bytes = Vec::new();
    let mut sum = 0_u128;
    for i in 0..set.len() {
        bytes.clear();
        bytes.extend_from_slice(&set.labels()[i].to_le_bytes());
        for value in set.sequence(i) {
            // −0 and 0 are the same number, and some writers drop the sign.
            bytes.extend_from_slice(&(value + 0.0).to_le_bytes());
        }
        sum = sum.wrapping_add(xxh3_128(&bytes));
    }
    format!("{sum:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use haltwise_io::series::{Format, Missing, parse};

    fn of(text: &str) -> String {
        checksum(&parse("a.tsv", text.as_bytes(), Format::Ucr, Missing::Refuse).unwrap())
    }

    #[test]
    fn the_order_of_rows_and_the_writing_of_numbers_do_not_matter() {
        assert_eq!(of("1\t0.5\t-0.0\n2\t3\t4\n"), of("2,3.0,4\n1,5e-1,0\n"));
    }

    #[test]
    fn a_value_a_label_and_a_row_do() {
        let one = of("1\t0.5\t1\n2\t3\t4\n");
        for other in [
            "1\t0.5\t1\n2\t3\t4.5\n",
            "2\t0.5\t1\n1\t3\t4\n",
            "1\t0.5\t1\n2\t3\t4\n2\t3\t4\n",
        ] {
            assert_ne!(one, of(other), "{other}");
        }
    }
}
