//! A problem on its way up: what is wrong, and where in the file.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use crate::error::{Cause, Error, ErrorKind};

/// A problem, and its place as far as it is known. Each level that the problem passes
/// through adds its own place in front.
#[derive(Debug)]
pub(crate) struct Problem {
    place: String,
    what: String,
    kind: ErrorKind,
    source: Option<Cause>,
}

impl Problem {
    /// A wrong value.
    pub(crate) fn new(what: impl Display) -> Self {
        Self {
            place: String::new(),
            what: what.to_string(),
            kind: ErrorKind::Data,
            source: None,
        }
    }

    /// A file of the wrong kind, or a damaged one.
    pub(crate) fn format(what: impl Display) -> Self {
        Self::new(what).of_kind(ErrorKind::Format)
    }

    /// Things that conflict.
    pub(crate) fn conflict(what: impl Display) -> Self {
        Self::new(what).of_kind(ErrorKind::Conflict)
    }

    /// A sound thing that is not supported here.
    pub(crate) fn unsupported(what: impl Display) -> Self {
        Self::new(what).of_kind(ErrorKind::Unsupported)
    }

    /// A file that cannot be opened or read.
    pub(crate) fn unreadable(error: io::Error) -> Self {
        let problem = match error.kind() {
            io::ErrorKind::NotFound => Self::new("there is no such file"),
            io::ErrorKind::PermissionDenied => {
                Self::new("it may not be read: permission denied; ask its owner for read access")
            }
            _ => Self::new(format_args!("cannot read it: {error}")),
        };
        problem
            .of_kind(ErrorKind::of_reading(&error))
            .caused_by(error)
    }

    /// A file that could be read only in part.
    pub(crate) fn cut_off(error: io::Error) -> Self {
        Self::new(format_args!("cannot read on: {error}"))
            .of_kind(ErrorKind::of_reading(&error))
            .caused_by(error)
    }

    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the cause; the problem already includes its message.
    pub(crate) fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Adds an outer place.
    pub(crate) fn at(mut self, place: impl Display) -> Self {
        self.place = match self.place.as_str() {
            "" => place.to_string(),
            inner => format!("{place}, {inner}"),
        };
        self
    }

    pub(crate) fn in_file(self, path: &Path) -> Error {
        let mut error = Error::new(path, self.what).of_kind(self.kind);
        if !self.place.is_empty() {
            error = error.at(self.place);
        }
        match self.source {
            Some(source) => error.caused_by(source),
            None => error,
        }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.what),
            place => write!(f, "{place}: {}", self.what),
        }
    }
}

/// The most characters of a file's own text that a message shows.
const ENOUGH: usize = 60;

/// The message for text that is not UTF-8.
pub(crate) const NOT_TEXT: &str = "it is not UTF-8 text; save it as UTF-8";

/// Cuts a text to this many characters, with a mark if there are more.
pub(crate) fn cut(text: &str, most: usize) -> (&str, &'static str) {
    match text.char_indices().nth(most) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    }
}

/// Quotes text from a file, cut to a length fit for a message.
pub(crate) fn quoted(text: &str) -> String {
    let (start, more) = cut(text, ENOUGH);
    format!("{start:?}{more}")
}

/// Lists names from a file, each cut to a length fit for a message; if there are many, only
/// the first.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 20;
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names.iter().take(MOST).map(|name| {
        let (start, more) = cut(name, ENOUGH);
        format!("{}{more}", start.escape_debug())
    });
    let shown: Vec<String> = shown.collect();
    match (shown.is_empty(), names.len().saturating_sub(MOST)) {
        (true, _) => "none".into(),
        (_, 0) => shown.join(", "),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The result of a check.
pub(crate) type Checked<T = ()> = Result<T, Problem>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_for_messages() {
        assert_eq!(quoted("a\tb"), r#""a\tb""#);
        assert_eq!(quoted(&"é".repeat(70)), format!("\"{}\"…", "é".repeat(60)));
        assert_eq!(listed([]), "none");
        assert_eq!(listed(["id", "a\u{1}"]), "id, a\\u{1}");
        let many = vec!["x".repeat(100_000); 22];
        let text = listed(many.iter().map(String::as_str));
        assert!(text.len() < 1400, "{}", text.len());
        assert!(text.ends_with("… and 2 more"), "{text}");
    }
}
