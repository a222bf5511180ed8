//! Estimates how much there is to read, before reading it.

use std::path::PathBuf;

use super::ids::BYTES_PER_ID;
use super::parquet::Opened;
use super::steps::BYTES_PER_STEP;
use super::{Format, size};
use crate::error::Result;

/// How many sequences and steps files hold, as far as can be known without reading them:
/// exactly for Parquet with a row per sequence, an approximate upper bound for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Sequences.
    pub sequences: u64,
    /// Steps of all of them together.
    pub steps: u64,
    /// Bytes that reading alone needs, in addition to the result.
    pub reading: u64,
}

impl Extent {
    /// Estimates the content of the files.
    pub fn of(files: &[PathBuf]) -> Result<Self> {
        let mut extent = Self::default();
        for path in files {
            let bytes = size(path)?;
            let (sequences, steps, reading) = match Format::of(path)? {
                // Its metadata say more than its size does.
                Format::Parquet => {
                    let opened = Opened::open(path)?;
                    match opened.has_row_per_step() {
                        // The steps of a sequence may be anywhere in the file.
                        true => (
                            opened.rows() / 10,
                            opened.rows(),
                            BYTES_PER_STEP * opened.rows(),
                        ),
                        false => (opened.rows(), opened.steps(), 0),
                    }
                }
                other => {
                    let (sequence, step, held) = other.least_bytes();
                    (bytes / sequence, bytes / step, bytes * u64::from(held))
                }
            };
            extent.sequences += sequences;
            extent.steps += steps;
            extent.reading += reading + BYTES_PER_ID * sequences;
        }
        Ok(extent)
    }
}
