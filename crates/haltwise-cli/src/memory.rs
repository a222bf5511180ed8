//! How much memory traces may take.

use std::path::PathBuf;

use haltwise::Plan;
use haltwise::corridor::Room;
use haltwise_io::{Columns, Files, LEAST_MEMORY};

use crate::show::{self, count};

/// The memory that traces may take.
#[derive(clap::Args)]
pub(crate) struct MemoryArgs {
    /// Stay within this much memory, such as 4GiB, at least 256MiB. Larger sets are read twice. If
    /// the screening part does not fit, a sample is used
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    memory: u64,
}

/// The memory that reading may take.
#[derive(clap::Args)]
pub(crate) struct MemoryLimit {
    /// Stay within this much memory, such as 4GiB, at least 256MiB
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = bytes)]
    memory: u64,
}

impl MemoryLimit {
    /// The bytes to stay within.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory
    }
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
    if bytes.is_nan() || bytes < LEAST_MEMORY as f64 {
        return Err("it must be at least 256MiB".into());
    }
    Ok(bytes as u64)
}

/// Notes that are printed without being asked for.
const NOTABLE: u64 = 1 << 30;

impl MemoryArgs {
    /// The bytes to stay within.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory
    }

    /// The files, as a source that keeps within the memory. Says how much they take if it is much.
    pub(crate) fn files<'p>(
        &self,
        paths: &[PathBuf],
        plan: &Plan,
        progress: &'p mut dyn FnMut(u64, u64),
    ) -> haltwise_io::Result<Files<'p>> {
        let columns = Columns::of(plan.terms());
        let files = Files::new(paths, self.memory, progress)?.with(columns);
        let needed = files.needed(plan.grid())?;
        if needed.bytes > NOTABLE || needed.room != Room::All {
            show::note(format!(
                "{} of {} in all take about {}",
                count(needed.extent.sequences, "sequence", "sequences"),
                count(needed.extent.steps, "step", "steps"),
                size(needed.bytes)
            ));
        }
        if needed.room != Room::All {
            show::note(format!(
                "that is more than --memory {}: they are read twice",
                size(self.memory)
            ));
        }
        Ok(files)
    }
}

/// A number of bytes in words.
pub(crate) fn size(bytes: u64) -> String {
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
}
