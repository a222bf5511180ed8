//! What stands behind the last good line of a log: a write that was cut short, or damage.

use std::fmt;

use crate::file::{BETWEEN, checked};

/// Why the end of a log is no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A write was cut short, as by a kill or a power failure. Nothing that was acknowledged
    /// is lost.
    Torn,
    /// A line was complete once and has changed since. Its record is lost, although it may
    /// have been acknowledged.
    Damaged,
}

/// The end of a log that is no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// Its first line, counted from 1.
    pub line: u64,
    /// How many lines it has. A last line without an end counts.
    pub lines: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// How many records its damaged lines seem to have.
    pub records: u64,
    /// Why it is no part of the log.
    pub cause: Cause,
}

impl Dropped {
    /// An end that begins at a line, without anything in it yet.
    pub(crate) fn at(line: u64) -> Self {
        Self {
            line,
            lines: 0,
            bytes: 0,
            records: 0,
            cause: Cause::Torn,
        }
    }

    /// Adds a line that is not whole.
    pub(crate) fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        self.bytes += line.len() as u64;
        if was_whole(line) {
            let between = line.iter().filter(|&&b| b == BETWEEN as u8).count();
            self.records += 1 + between as u64;
            self.cause = Cause::Damaged;
        }
    }
}

/// Whether a line that is not whole was whole once. A write that was cut short has no end, or
/// zeros where a block of it did not reach the disk.
fn was_whole(line: &[u8]) -> bool {
    if line.windows(2).any(|pair| pair == [0, 0]) {
        return false;
    }
    match line.split_last() {
        Some((b'\n', _)) => true,
        // Its end alone is wrong. One zero is rather a file that was filled up.
        Some((&end, line)) => end != 0 && checked(line).is_some(),
        None => false,
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, bytes, .. } = self;
        match self.cause {
            Cause::Torn => write!(
                f,
                "the last write was cut short, so {bytes} bytes from line {line} on were dropped; \
                 nothing that was acknowledged is lost"
            ),
            Cause::Damaged => {
                let (lines, records) =
                    (counted(self.lines, "line"), counted(self.records, "record"));
                write!(
                    f,
                    "line {line} is damaged: its checksum is wrong; {lines} at the end of the log \
                     with about {records} ({bytes} bytes) dropped, and what they said is lost; \
                     check the disk and its memory"
                )
            }
        }
    }
}

fn counted(n: u64, thing: &str) -> String {
    match n {
        1 => format!("1 {thing}"),
        _ => format!("{n} {thing}s"),
    }
}
