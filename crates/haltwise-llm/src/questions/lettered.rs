//! Options that stand in the text of a question, each after its letter.

use std::iter::zip;

use crate::letters::OPTIONS;

/// Takes a question and its options apart: lines that begin with (A), or else
/// with A. or A), in the alphabet's order.
pub(super) fn lettered_options(text: &str) -> (&str, Vec<String>) {
    let in_brackets = option_starts(text, true);
    let starts = if in_brackets.len() >= *OPTIONS.start() {
        in_brackets
    } else {
        option_starts(text, false)
    };
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let options = zip(starts.iter().copied(), ends)
        .map(|(start, end)| without_letter(&text[start..end]).trim().to_owned())
        .collect();
    let question = &text[..starts.first().copied().unwrap_or(text.len())];
    (question, options)
}

/// The places at which the lines of the options begin.
fn option_starts(text: &str, in_brackets: bool) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let brackets = line.trim_start().starts_with('(');
        if brackets == in_brackets && first_letter(line) == Some(starts.len()) {
            starts.push(at);
        }
        at += line.len();
    }
    starts
}

/// Which option's letter a text begins with, from 0.
pub(super) fn first_letter(text: &str) -> Option<usize> {
    let text = text.trim();
    let bare = text.strip_prefix('(').unwrap_or(text);
    let letter = bare.bytes().next().filter(u8::is_ascii_uppercase)?;
    let after = bare[1..].chars().next();
    let ends = if bare.len() < text.len() {
        after == Some(')')
    } else {
        matches!(after, None | Some('.' | ')' | ':'))
    };
    ends.then(|| usize::from(letter - b'A'))
}

fn without_letter(text: &str) -> &str {
    let text = text.trim_start();
    let bare = text.strip_prefix('(').unwrap_or(text);
    bare.get(2..).unwrap_or_default()
}
