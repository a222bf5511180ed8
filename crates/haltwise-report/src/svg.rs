//! A small SVG writer: elements that escape what they are given, numbers with
//! one decimal, and paths that stay short.

use std::fmt::{self, Display, Write};

/// An element with its attributes and what is inside it.
#[derive(Debug, Clone)]
pub(crate) struct Element {
    name: &'static str,
    attributes: String,
    children: Vec<Child>,
}

#[derive(Debug, Clone)]
enum Child {
    Element(Element),
    Text(String),
}

impl Element {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            attributes: String::new(),
            children: Vec::new(),
        }
    }

    pub(crate) fn attr(mut self, name: &str, value: impl Display) -> Self {
        let value = escape(&value.to_string());
        // Writing to a string cannot fail.
        let _ = write!(self.attributes, " {name}=\"{value}\"");
        self
    }

    /// An attribute in the units of the drawing.
    pub(crate) fn at(self, name: &str, value: f64) -> Self {
        self.attr(name, number(value))
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.children.push(Child::Text(text.into()));
        self
    }

    pub(crate) fn child(mut self, child: Self) -> Self {
        self.children.push(Child::Element(child));
        self
    }

    pub(crate) fn children(mut self, children: impl IntoIterator<Item = Self>) -> Self {
        self.children
            .extend(children.into_iter().map(Child::Element));
        self
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let (name, attributes) = (self.name, &self.attributes);
        write!(f, "{:depth$}<{name}{attributes}", "")?;
        if self.children.is_empty() {
            return writeln!(f, "/>");
        }
        f.write_str(">")?;
        // White space counts inside text, so text stays on its element's line.
        let holds_text = self.children.iter().any(|c| matches!(c, Child::Text(_)));
        if !holds_text {
            writeln!(f)?;
        }
        for child in &self.children {
            match child {
                Child::Text(text) => f.write_str(&escape(text))?,
                Child::Element(element) => element.write(f, depth + 1)?,
            }
        }
        let depth = if holds_text { 0 } else { depth };
        writeln!(f, "{:depth$}</{name}>", "")
    }
}

impl Display for Element {
    /// One element per line, so that a changed picture is a readable change.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// Text that is safe inside an element or an attribute. Characters that XML
/// forbids become the sign for "unknown character".
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(c),
            '\u{FFFE}' | '\u{FFFF}' => safe.push('\u{FFFD}'),
            c if c.is_control() => safe.push('\u{FFFD}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A coordinate with one decimal at the most: a tenth of a unit is below what
/// a screen shows.
pub(crate) fn number(value: f64) -> String {
    tenths(in_tenths(value))
}

fn in_tenths(value: f64) -> i64 {
    (value * 10.0).round() as i64
}

fn tenths(value: i64) -> String {
    let (sign, size) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    match (size / 10, size % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (0, part) => format!("{sign}.{part}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    }
}

/// The data of a path along the points, in steps relative to the last point.
/// A point in the middle of a straight line is left out: a hundred curves of
/// two hundred steps would weigh several times as much with them.
pub(crate) fn path(points: &[(f64, f64)]) -> String {
    let points: Vec<(i64, i64)> = points
        .iter()
        .map(|&(x, y)| (in_tenths(x), in_tenths(y)))
        .collect();
    let mut data = String::new();
    let mut last = (0, 0);
    for (i, &(x, y)) in points.iter().enumerate() {
        let next = points.get(i + 1);
        if i > 0 && next.is_some_and(|&next| on_a_line(last, (x, y), next)) {
            continue;
        }
        let (dx, dy) = (tenths(x - last.0), tenths(y - last.1));
        let command = if i == 0 { "M" } else { "l" };
        let between = if dy.starts_with('-') { "" } else { " " };
        let _ = write!(data, "{command}{dx}{between}{dy}");
        last = (x, y);
    }
    data
}

fn on_a_line(a: (i64, i64), b: (i64, i64), c: (i64, i64)) -> bool {
    (b.0 - a.0) * (c.1 - a.1) == (c.0 - a.0) * (b.1 - a.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_escaped() {
        let element = Element::new("text")
            .attr("class", "\"><script>")
            .text("a < b & \u{1} c");
        assert_eq!(
            element.to_string(),
            "<text class=\"&quot;&gt;&lt;script&gt;\">a &lt; b &amp; \u{FFFD} c</text>\n"
        );
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(-0.04), "0");
        assert_eq!(number(-0.36), "-.4");
        assert_eq!(number(12.0), "12");
        assert_eq!(number(3.25), "3.3");
    }

    #[test]
    fn a_path_skips_points_on_a_straight_line() {
        let points = [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 0.5)];
        assert_eq!(path(&points), "M0 1l2 0l1-.5");
        assert_eq!(path(&[]), "");
    }
}
