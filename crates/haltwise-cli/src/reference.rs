//! docs/cli.md, made from the arguments themselves: a test keeps it true, and writes it anew where
//! `HALTWISE_WRITE` is set.

mod options;

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use crate::Cli;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");

const HEAD: &str = "\
# The command line

Made from the program's own arguments; a test compares it with them. `haltwise VERB --help` says the
same on a terminal. Exit codes: 0 done, 1 failed, 2 wrong usage.

";

/// Text of a help message as Markdown: what looks like a tag or a star is meant literally, and
/// indented lines are code.
fn prose(text: &str) -> String {
    let mut out = String::new();
    let mut code = false;
    for line in text.trim_end().lines() {
        let indented = line.starts_with("  ") || code && line.is_empty();
        if indented != code {
            out.truncate(out.trim_end().len());
            out += if indented {
                "\n\n```text\n"
            } else {
                "\n```\n\n"
            };
            code = indented;
        }
        if indented {
            out += line.trim_end();
        } else {
            out += &line.replace('<', "&lt;").replace('*', "\\*");
        }
        out += "\n";
    }
    if code {
        out += "```\n";
    }
    out
}

/// How an argument is written: `-o`, `--output FILE`.
fn spelling(arg: &Arg) -> String {
    let mut ways = Vec::new();
    ways.extend(arg.get_short().map(|short| format!("-{short}")));
    ways.extend(arg.get_long().map(|long| format!("--{long}")));
    let takes = arg.get_action().takes_values();
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<&str> = names.iter().map(clap::builder::Str::as_str).collect();
    let many = arg.get_num_args().is_some_and(|many| many.max_values() > 1);
    let value = format!("{}{}", names.join(" "), if many { "…" } else { "" });
    match (ways.is_empty(), takes) {
        (true, _) => format!("`{value}`"),
        (false, true) => format!("`{} {value}`", ways.join("`, `")),
        (false, false) => format!("`{}`", ways.join("`, `")),
    }
}

/// An item of a list: what it is, what it does, its values and its default.
fn item(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    let mut out = format!("- {}: ", spelling(arg));
    let mut lines = prose(help.trim()).trim_end().replace("\n\n", " ");
    lines = lines.replace('\n', " ");
    out += &lines;
    let usual: Vec<String> = arg
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if arg.get_action().takes_values() && !usual.is_empty() {
        let _ = write!(out, " (default: {})", usual.join(" "));
    }
    if arg.is_required_set() && arg.get_long().is_some() {
        out += " (required)";
    }
    out += "\n";
    let values = arg.get_value_parser().possible_values();
    if let (true, Some(values)) = (arg.get_action().takes_values(), values) {
        for value in values.filter(|value| !value.is_hide_set()) {
            let _ = write!(out, "  - `{}`", value.get_name());
            if let Some(help) = value.get_help() {
                let _ = write!(out, ": {help}");
            }
            out += "\n";
        }
    }
    out
}

/// A verb with its arguments, and the verbs below it.
fn verb(command: &mut Command, names: &str, level: usize, out: &mut String) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let _ = write!(out, "{} {names}\n\n{}\n", "#".repeat(level), prose(&about));
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let _ = write!(out, "```text\n{usage}\n```\n\n");
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let args: Vec<&Arg> = args
        .filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
        .collect();
    let mut headings: Vec<Option<&str>> = Vec::new();
    for arg in &args {
        if !headings.contains(&arg.get_help_heading()) {
            headings.push(arg.get_help_heading());
        }
    }
    for heading in headings {
        if let Some(heading) = heading {
            let _ = write!(out, "{heading}:\n\n");
        }
        for arg in args.iter().filter(|arg| arg.get_help_heading() == heading) {
            *out += &item(arg);
        }
        *out += "\n";
    }
    if let Some(more) = command.get_after_long_help().or(command.get_after_help()) {
        let _ = writeln!(out, "{}", prose(&more.to_string()));
    }
    let below: Vec<String> = command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help" && !sub.is_hide_set())
        .map(|sub| sub.get_name().to_owned())
        .collect();
    for name in below {
        if let Some(sub) = command.find_subcommand_mut(&name) {
            verb(sub, &format!("{names} {name}"), level + 1, out);
        }
    }
}

/// The page.
fn reference() -> String {
    let mut command = Cli::command();
    command.build();
    let mut out = HEAD.to_owned();
    verb(&mut command, "haltwise", 2, &mut out);
    while out.contains("\n\n\n") {
        out = out.replace("\n\n\n", "\n\n");
    }
    out.trim_end().to_owned() + "\n"
}

/// Compares a file with what it should be; where `HALTWISE_WRITE` is set, writes it first.
#[track_caller]
fn held(path: &str, wanted: &str) {
    if std::env::var_os("HALTWISE_WRITE").is_some() {
        std::fs::write(path, wanted).expect("the file can be written");
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        wanted == written.replace("\r\n", "\n"),
        "{path} is not what the arguments and options say: \
         HALTWISE_WRITE=1 cargo test -p haltwise-cli --bin haltwise reference"
    );
}

#[test]
#[cfg(feature = "proxy")]
fn the_reference_is_what_the_arguments_say() {
    held(PAGE, &reference());
}
