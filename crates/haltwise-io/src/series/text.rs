//! Lines and numbers, shared by the text formats.

use std::path::Path;

use crate::error::{Error, ErrorKind, Result};
use crate::memory::Memory;
use crate::problem::{Problem, quoted};

/// One line that is not blank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) bytes: &'a [u8],
}

impl<'a> Line<'a> {
    /// Refuses a line that would take too much memory to parse.
    pub(super) fn check_room(self, path: &Path, memory: &Memory) -> Result<()> {
        let bytes = PARSED * self.bytes.len() as u64;
        let fits = memory.check("the line", bytes);
        fits.map_err(|p| p.at(format_args!("line {}", self.number)).in_file(path))
    }

    /// The line as text. It is checked per line, because comments in the archive's files
    /// need not be UTF-8.
    pub(super) fn text(self, path: &Path) -> Result<&'a str> {
        std::str::from_utf8(self.bytes).map_err(|_| {
            Error::new(path, "this is not UTF-8 text; save the file as plain UTF-8")
                .of_kind(ErrorKind::Format)
                .at(format_args!("line {}", self.number))
        })
    }
}

/// The memory needed to parse a line, as a multiple of its length: a value of two
/// characters becomes four bytes, in two lists that double as they grow.
const PARSED: u64 = 32;

/// The lines of a file, without those that are blank.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    bytes
        .split(|&byte| byte == b'\n')
        .enumerate()
        .map(|(i, line)| Line {
            number: i + 1,
            bytes: line.trim_ascii(),
        })
        .filter(|line| !line.bytes.is_empty())
}

/// A finite number, or NaN if the field marks a missing value.
pub(super) fn number(field: &str) -> std::result::Result<f32, &'static str> {
    match field.parse::<f32>() {
        Ok(value) if value.is_infinite() => {
            Err("is not a finite number of 32 bits; correct or rescale it")
        }
        Ok(value) => Ok(value),
        Err(_) if field == "?" => Ok(f32::NAN),
        Err(_) if field.is_empty() => {
            Err("is an empty field; give a number, or ? for a missing value")
        }
        Err(_) => Err("is not a number; correct it, or write ? for a missing value"),
    }
}

/// A field that should have been a number.
pub(super) fn bad_field(field: &str, why: &str, place: String) -> Problem {
    Problem::new(format_args!("{} {why}", quoted(field))).at(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_skipped_but_counted() {
        let found: Vec<_> = lines(b"\xef\xbb\xbfa\r\n\n  \nb")
            .map(|line| (line.number, line.bytes))
            .collect();
        assert_eq!(found, [(1, &b"a"[..]), (4, &b"b"[..])]);
        assert_eq!(lines(b"").count(), 0);
    }

    #[test]
    fn a_number_is_finite_or_missing() {
        assert_eq!(number("-1.5e2"), Ok(-150.0));
        assert!(number("?").unwrap().is_nan());
        assert!(number("NaN").unwrap().is_nan());
        for wrong in ["", "inf", "1e39", "1,2", "one", "(0"] {
            assert!(number(wrong).is_err(), "{wrong}");
        }
    }
}
