//! A problem on its way up: what is wrong, and where in the file.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;
use std::path::Path;

use crate::error::{Cause, Error, ErrorKind};

/// What is wrong, with the place as far as it is known yet: each level that
/// the problem passes through puts its own place in front.
#[derive(Debug)]
pub(crate) struct Problem {
    place: String,
    what: String,
    kind: ErrorKind,
    source: Option<Cause>,
}

impl Problem {
    /// A value that is wrong.
    pub(crate) fn new(what: impl Display) -> Self {
        Self {
            place: String::new(),
            what: what.to_string(),
            kind: ErrorKind::Data,
            source: None,
        }
    }

    /// A file that is not what it should be, or damaged.
    pub(crate) fn format(what: impl Display) -> Self {
        Self::new(what).of_kind(ErrorKind::Format)
    }

    /// Things that do not go together.
    pub(crate) fn conflict(what: impl Display) -> Self {
        Self::new(what).of_kind(ErrorKind::Conflict)
    }

    /// Something sound that is not read here.
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

    /// A file of which some was read, and then no more.
    pub(crate) fn cut_off(error: io::Error) -> Self {
        Self::new(format_args!("cannot read on: {error}"))
            .of_kind(ErrorKind::of_reading(&error))
            .caused_by(error)
    }

    pub(crate) fn of_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// Says what caused it; its words are in the problem's already.
    pub(crate) fn caused_by(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Says where, seen from outside.
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

/// The fault of text that is not UTF-8.
pub(crate) const NOT_TEXT: &str = "it is not UTF-8 text; save it as UTF-8";

/// At most this many characters of a text, and a mark if there are more.
pub(crate) fn cut(text: &str, most: usize) -> (&str, &'static str) {
    match text.char_indices().nth(most) {
        Some((end, _)) => (&text[..end], "…"),
        None => (text, ""),
    }
}

/// Text from a file, in quotes and cut to a length fit for a message.
pub(crate) fn quoted(text: &str) -> String {
    let (start, more) = cut(text, ENOUGH);
    format!("{start:?}{more}")
}

/// Names from a file, each cut to a length fit for a message, and of many only
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

/// What a check says.
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
