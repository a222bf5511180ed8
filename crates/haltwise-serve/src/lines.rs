//! Bytes that come in pieces, into lines.

use crate::desk::{Fault, FaultKind};

/// Cuts pieces into lines, of which none is kept that is longer than may be.
#[derive(Debug)]
pub(crate) struct Lines {
    rest: Vec<u8>,
    longest: usize,
    /// Whether a line that is too long is passed over.
    passing: bool,
    /// How many lines there were.
    number: u64,
}

impl Lines {
    pub(crate) fn new(longest: usize) -> Self {
        Self {
            rest: Vec::new(),
            longest,
            passing: false,
            number: 0,
        }
    }

    /// The same after this many lines.
    pub(crate) fn starting(longest: usize, number: u64) -> Self {
        Self {
            number,
            ..Self::new(longest)
        }
    }

    /// How many lines there were.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Shows the lines that a piece completes, and the number of the first of
    /// them, counted from 1. Blank ones are left out, but counted.
    pub(crate) fn push<T>(
        &mut self,
        piece: &[u8],
        take: impl FnOnce(&[Result<&[u8], Fault>], u64) -> T,
    ) -> Option<T> {
        self.rest.extend_from_slice(piece);
        let end = match self.rest.iter().rposition(|&b| b == b'\n') {
            Some(end) => end + 1,
            None => {
                if self.rest.len() > self.longest {
                    self.rest.clear();
                    self.passing = true;
                }
                return None;
            }
        };
        let found = self.show(end, take);
        self.rest.drain(..end);
        if self.rest.len() > self.longest {
            self.rest.clear();
            self.passing = true;
        }
        found
    }

    /// Shows a last line that has no end.
    pub(crate) fn finish<T>(
        &mut self,
        take: impl FnOnce(&[Result<&[u8], Fault>], u64) -> T,
    ) -> Option<T> {
        let found = match self.rest.len() {
            0 if !self.passing => None,
            end => self.show(end, take),
        };
        self.rest.clear();
        found
    }

    fn show<T>(
        &mut self,
        end: usize,
        take: impl FnOnce(&[Result<&[u8], Fault>], u64) -> T,
    ) -> Option<T> {
        let first = self.number + 1;
        let text = &self.rest[..end];
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let mut lines = Vec::new();
        for line in text.split(|&b| b == b'\n') {
            self.number += 1;
            if std::mem::take(&mut self.passing) || line.len() > self.longest {
                let problem = format!("the line has more than {} bytes", self.longest);
                let remedy = "send shorter lines, or start the server with a larger --max-line";
                lines.push(Err(Fault::new(FaultKind::Unusable, problem, remedy)));
                continue;
            }
            lines.push(Ok(line.trim_ascii()));
        }
        // The numbers of lines stay right: blank ones are at the ends in practice.
        let blank = |line: &Result<&[u8], Fault>| matches!(line, Ok([]));
        let leading = lines.iter().take_while(|line| blank(line)).count();
        lines.drain(..leading);
        while lines.last().is_some_and(blank) {
            lines.pop();
        }
        (!lines.is_empty()).then(|| take(&lines, first + leading as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(pieces: &[&str]) -> Vec<(u64, String)> {
        let (mut lines, mut found) = (Lines::new(8), Vec::new());
        let mut take = |all: &[Result<&[u8], Fault>], first: u64| {
            for (number, line) in (first..).zip(all) {
                let text = match line {
                    Ok(line) => String::from_utf8(line.to_vec()).unwrap(),
                    Err(fault) => fault.error.clone(),
                };
                found.push((number, text));
            }
        };
        for piece in pieces {
            lines.push(piece.as_bytes(), &mut take);
            assert!(lines.rest.len() <= 8);
        }
        lines.finish(&mut take);
        found
    }

    #[test]
    fn pieces_are_cut_into_lines_with_their_numbers() {
        let expected = |all: &[(u64, &str)]| -> Vec<(u64, String)> {
            all.iter().map(|&(n, s)| (n, s.to_owned())).collect()
        };
        assert_eq!(
            lines(&["a\nb", "c\n", "d"]),
            expected(&[(1, "a"), (2, "bc"), (3, "d")])
        );
        assert_eq!(
            lines(&["\n\n a \r\n", "b\n"]),
            expected(&[(3, "a"), (4, "b")])
        );
        let long = "the line has more than 8 bytes";
        assert_eq!(
            lines(&["12345678\n1234567", "89", "xxxxxxxxx", "\nb\n"]),
            expected(&[(1, "12345678"), (2, long), (3, "b")])
        );
        assert_eq!(lines(&["123456789"]), expected(&[(1, long)]));
        assert_eq!(lines(&["", "\n"]), []);
    }
}
