//! How much memory a set of traces takes, and whether it may.

use haltwise::{Grid, SetAside};
use haltwise_io::{Extent, Snapshot};

use crate::show::{self, count};

/// The memory that traces may take.
#[derive(clap::Args)]
pub(crate) struct MemoryArgs {
    /// The memory to stay within, such as 4GiB, at least 256MiB: traces that need more are read
    /// twice, and screened on a sample where their screening part alone does not fit
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    memory: u64,
}

/// Reads a number of bytes: 500MB, 4GiB, 4G (as 4GiB).
fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1_u64,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        _ => return Err("give a number and a unit, such as 500MB or 4GiB".into()),
    };
    let number: f64 = digits
        .trim()
        .parse()
        .map_err(|_| "give a number and a unit, such as 500MB or 4GiB".to_owned())?;
    let bytes = number * unit as f64;
    if bytes >= u64::MAX as f64 {
        return Err("no machine has so much; give less, such as 64GiB".into());
    }
    if bytes.is_nan() || bytes < LEAST as f64 {
        return Err("it must be at least 256MiB".into());
    }
    Ok(bytes as u64)
}

/// Buffers and tables take this much whatever is read.
const LEAST: u64 = 256 << 20;

/// What is worth telling unasked.
const NOTABLE: u64 = 1 << 30;

/// How a set of traces is to be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Plan {
    /// Once, and kept.
    Keep,
    /// Twice: a share of the sequences is kept for screening, at most this one;
    /// the others are counted and let go.
    Stream(f64),
}

impl Plan {
    /// As much of a part as fits: those with the smallest draws.
    pub(crate) fn sample(self, part: SetAside) -> SetAside {
        let Self::Stream(share) = self else {
            return part;
        };
        let fits = SetAside::share(share, part.seed);
        if fits.below >= part.below {
            return part;
        }
        let percent = show::percent(share);
        show::note(format!("screening on {percent} of them, which fits"));
        fits
    }
}

impl MemoryArgs {
    /// Estimates what the traces take, and says so if it is much.
    pub(crate) fn plan(&self, snapshot: &Snapshot, grid: &Grid) -> anyhow::Result<Plan> {
        let extent = Extent::of(&snapshot.files())?;
        let kept = kept(extent, grid);
        let needed = LEAST + extent.reading + kept;
        if needed > NOTABLE || needed > self.memory {
            show::note(format!(
                "{} of {} in all take about {}",
                count(extent.sequences, "sequence", "sequences"),
                count(extent.steps, "step", "steps"),
                size(needed)
            ));
        }
        if needed <= self.memory {
            return Ok(Plan::Keep);
        }
        let left = self.memory.saturating_sub(LEAST + extent.reading);
        if left == 0 {
            anyhow::bail!(
                "to know that no id comes twice takes {}, more than --memory; give more, or cut \
                 the traces into parts (see haltwise evidence)",
                size(LEAST + extent.reading)
            );
        }
        show::note(format!(
            "that is more than --memory {}: they are read twice",
            size(self.memory)
        ));
        Ok(Plan::Stream(left as f64 / kept as f64))
    }
}

/// The bytes that keeping traces takes.
fn kept(extent: Extent, grid: &Grid) -> u64 {
    // A byte per score where the grid allows it, a bit per prediction, a length
    // and a key per sequence.
    let score = if grid.thresholds().len() <= 255 {
        8
    } else {
        32
    };
    // Sequences of unequal length are filled up, to twice their size at most.
    // If all are equally long, this divides.
    let filled = match extent.steps % extent.sequences.max(1) {
        0 => extent.steps,
        _ => 2 * extent.steps,
    };
    filled.saturating_mul(score + 1) / 8 + 12 * extent.sequences
}

/// A number of bytes in words.
fn size(bytes: u64) -> String {
    match bytes >> 30 {
        0 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        assert_eq!(bytes("4GiB"), Ok(4 << 30));
        assert_eq!(bytes("4g"), Ok(4 << 30));
        assert_eq!(bytes("1.5 GB"), Ok(1_500_000_000));
        assert_eq!(bytes("300000000"), Ok(300_000_000));
        for bad in ["", "GB", "4 apples", "-1GB", "1KB", "nanGB", "1e99GB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert!(bytes("1KB").unwrap_err().contains("at least"));
        assert!(bytes("99999999999GiB").unwrap_err().contains("give less"));
    }

    #[test]
    fn a_billion_steps_take_little_more_than_a_byte_each() {
        let extent = Extent {
            sequences: 10_000_000,
            steps: 1_000_000_000,
            reading: 0,
        };
        assert_eq!(size(kept(extent, &Grid::default())), "1.2 GiB");
        let fine = Grid::new(0.001).unwrap();
        assert!(kept(extent, &fine) > 3 * kept(extent, &Grid::default()));
    }
}
