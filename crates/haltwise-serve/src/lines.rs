//! Bytes that come in pieces, into lines.

use crate::fault::{Fault, FaultKind};

/// A line, unless it is longer than one may be.
pub(crate) fn bounded(line: &[u8], longest: usize) -> Result<&[u8], Fault> {
    if line.len() > longest {
        return Err(too_long(longest));
    }
    Ok(line)
}

fn too_long(longest: usize) -> Fault {
    let problem = format!("the line has more than {longest} bytes");
    let remedy = "send shorter lines, or start the server with a larger --max-line";
    Fault::new(FaultKind::Unusable, problem, remedy)
}

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

    /// How many bytes wait for the end of their line.
    pub(crate) fn unfinished(&self) -> usize {
        self.rest.len()
    }

    /// Shows the lines that a piece completes, and the number of the first of
    /// them, counted from 1. Blank ones are left out, but counted.
    pub(crate) fn push<T>(
        &mut self,
        piece: &[u8],
        take: impl FnOnce(&[Result<&[u8], Fault>], u64) -> T,
    ) -> Option<T> {
        // Only what is new is searched: what waits has no end of a line.
        let Some(end) = piece.iter().rposition(|&b| b == b'\n') else {
            self.wait(piece);
            return None;
        };
        let (whole, rest) = piece.split_at(end + 1);
        self.rest.extend_from_slice(whole);
        let found = self.show(self.rest.len(), take);
        self.rest.clear();
        self.wait(rest);
        found
    }

    /// Keeps the beginning of a line until its end comes, unless it is too long.
    fn wait(&mut self, piece: &[u8]) {
        if self.passing || self.rest.len() + piece.len() > self.longest {
            self.passing = true;
            self.rest = Vec::new();
        } else {
            self.rest.extend_from_slice(piece);
        }
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
            if std::mem::take(&mut self.passing) {
                lines.push(Err(too_long(self.longest)));
                continue;
            }
            lines.push(bounded(line, self.longest).map(<[u8]>::trim_ascii));
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

    #[test]
    fn a_long_line_in_many_pieces_is_searched_once() {
        let (mut lines, length) = (Lines::new(1 << 20), 512 << 10);
        let begun = std::time::Instant::now();
        for _ in 0..length {
            assert!(lines.push(b"x", |_, _| ()).is_none());
        }
        let found = lines.push(b"\n", |lines, _| lines[0].clone().map(<[u8]>::len));
        assert_eq!(found, Some(Ok(length)));
        // To search what waits again for each piece takes a minute.
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }
}
