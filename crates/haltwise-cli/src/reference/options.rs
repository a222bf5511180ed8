//! The faces of the heart's list of options in other languages, made from the list itself: a test
//! keeps them true, and writes them anew where `HALTWISE_WRITE` is set.

use std::fmt::Write as _;

use haltwise::plan::{Kind, OPTIONS, OptionSpec, Section, camel_case, spelt};

use super::held;

const PYTHON: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../python/haltwise/_options.py"
);
const TYPESCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/npm/index.d.ts");

/// The widest line of Python, less the deepest place where its text is put.
const WIDTH: usize = 100 - 8;

const PYTHON_HEAD: &str = "\
\"\"\"What can be asked of a calibration, as the heart declares it.

Not to be edited: `HALTWISE_WRITE=1 cargo test -p haltwise-cli --bin haltwise reference` writes this
file, and the same test compares it with the list.
\"\"\"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypedDict

";

/// The name of a type: `ScreenBy` for `screen_by`.
fn type_name(option: &OptionSpec) -> String {
    let name = camel_case(option.name);
    let (head, tail) = name.split_at(1);
    head.to_uppercase() + tail
}

/// A union of words in double quotes.
fn quoted(words: &[(&str, &str)], between: &str) -> String {
    let words: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
    words.join(between)
}

/// What an option takes, as Python's checkers read it.
fn annotation(option: &OptionSpec) -> String {
    match option.kind {
        Kind::Number => "float | None".into(),
        Kind::Count => "int | None".into(),
        Kind::Counts => "Sequence[int] | None".into(),
        Kind::Word(_) => format!("{} | None", type_name(option)),
        // Arrays stand for columns as well.
        Kind::Column | Kind::Costs => "Any".into(),
    }
}

/// The default, as Python writes it.
fn default(option: &OptionSpec, usual: &str) -> String {
    match option.kind {
        Kind::Word(_) => format!("{usual:?}"),
        _ => usual.to_owned(),
    }
}

/// Breaks a text into lines of limited length.
fn wrapped(text: &str, indent: &str, out: &mut String) {
    let mut line = indent.to_owned();
    for word in text.split(' ') {
        if line.trim().is_empty() {
            line += word;
        } else if line.chars().count() + 1 + word.chars().count() > WIDTH {
            *out += &format!("{line}\n");
            line = format!("{indent}{word}");
        } else {
            line += &format!(" {word}");
        }
    }
    *out += &format!("{line}\n");
}

/// What an option does, as NumPy documents parameters.
fn numpydoc(option: &OptionSpec) -> String {
    let ticked = |name: &str| format!("`{name}`");
    let kind = match option.kind {
        Kind::Number => "float",
        Kind::Count => "int",
        Kind::Counts => "sequence of int",
        Kind::Word(_) => "str",
        Kind::Column => "str or array of (n)",
        Kind::Costs => "str, array of (n, T), or array of (T)",
    };
    let value = option.usual.filter(|usual| !usual.contains(' '));
    let usual = value.map(|usual| format!("default {}", default(option, usual)));
    let mut out = format!(
        "{} : {kind}, {}\n",
        option.name,
        usual.unwrap_or_else(|| "optional".into())
    );
    let mut help = option.help(ticked) + ".";
    if let (Some(usual), None) = (option.usual, value) {
        help += &format!(" By default {usual}.");
    }
    wrapped(&help, "    ", &mut out);
    if let Kind::Word(words) = option.kind {
        for (word, help) in words {
            let help = spelt(help, ticked);
            wrapped(&format!("``{word:?}``: {help}."), "    ", &mut out);
        }
    }
    out
}

/// `_options.py`.
fn python() -> String {
    let mut out = PYTHON_HEAD.to_owned();
    for option in OPTIONS {
        if let Kind::Word(words) = option.kind {
            let name = type_name(option);
            let words = quoted(words, ", ");
            let _ = writeln!(out, "{name} = Literal[{words}]");
        }
    }
    out += "\n\nclass Options(TypedDict, total=False):\n";
    out += "    \"\"\"Options by name; None asks for what is usual.\"\"\"\n\n";
    for option in OPTIONS {
        let _ = writeln!(out, "    {}: {}", option.name, annotation(option));
    }
    out += "\n\nclass Option(NamedTuple):\n    \"\"\"One option, for signatures and docstrings.\"\"\"\n";
    out += "\n    annotation: str\n    default: Any\n    doc: str\n";
    out += "\n\n#: All that `calibrate` takes.\nOPTIONS: dict[str, Option] = {\n";
    let rows = |out: &mut String, wanted: fn(&OptionSpec) -> bool| {
        for option in OPTIONS.iter().filter(|option| wanted(option)) {
            let value = option.default_value();
            let value = value.map_or("None".into(), |usual| default(option, usual));
            let _ = write!(
                out,
                "    \"{}\": Option(\n        \"{}\",\n        {value},\n        \"\"\"\\\n{}\"\"\",\n    ),\n",
                option.name,
                annotation(option),
                numpydoc(option)
            );
        }
        *out += "}\n";
    };
    rows(&mut out, |option| option.section != Section::Evidence);
    out += "\n#: What evidence that is gathered apart from calibrating takes beside those.\n";
    out += "EVIDENCE: dict[str, Option] = {\n";
    rows(&mut out, |option| option.section == Section::Evidence);
    out
}

/// The fields of the interface `Options`, and the text around them.
fn typescript(written: &str) -> String {
    let ticked = |name: &str| format!("`{}`", camel_case(name));
    let mut fields = String::new();
    for option in OPTIONS.iter().filter(|o| o.section != Section::Evidence) {
        let usual = option.usual.map(|usual| format!(" By default {usual}."));
        let kind = match option.kind {
            Kind::Number | Kind::Count => "number".into(),
            Kind::Counts => "number[]".into(),
            Kind::Word(words) => quoted(words, " | "),
            Kind::Column => "string".into(),
            Kind::Costs => "string | number[]".into(),
        };
        let _ = write!(
            fields,
            "  /** {}.{} */\n  {}?: {kind};\n",
            option.help(ticked),
            usual.unwrap_or_default(),
            camel_case(option.name),
        );
    }
    let start = "export interface Options {\n";
    let (before, rest) = written.split_once(start).unwrap_or((written, "\n}\n"));
    let after = rest.split_once("\n}\n").map_or("", |(_, after)| after);
    format!("{before}{start}{fields}}}\n{after}")
}

#[test]
fn python_takes_the_options_of_the_list() {
    held(PYTHON, &python());
}

#[test]
fn typescript_takes_the_options_of_the_list() {
    let written = std::fs::read_to_string(TYPESCRIPT).unwrap_or_default();
    held(TYPESCRIPT, &typescript(&written.replace("\r\n", "\n")));
}
