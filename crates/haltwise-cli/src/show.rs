//! What people see: words, numbers, colours on a terminal, progress.

use std::borrow::Cow;
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::{Context, anyhow, bail};
use haltwise::traces::Classifier;
use haltwise::{Outputs, Rule};
use haltwise_io::{
    CLASSIFIER, Columns, Format, check_writable, read_metadata, trace_files, write_whole,
};
pub(crate) use haltwise_report::format::{count as number, count_of as count, level};
use indicatif::{ProgressBar, ProgressStyle};

/// The exit code of what Ctrl-C ended, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The exit code of what SIGTERM ended.
#[cfg(unix)]
pub(crate) const TERMINATED: u8 = 143;

/// A heading.
pub(crate) const HEADING: Style = Style::new().bold();
/// The style of good news.
pub(crate) const GOOD: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)));
/// What to look at twice.
pub(crate) const CAREFUL: Style =
    Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)));
const BAD: Style = Style::new()
    .bold()
    .fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)));

/// What stands for the escape character in our own codes until a text is shown, so
/// that they can be told from others; no text has this character.
const OURS: char = '\u{fdd0}';

/// What follows it in the codes of our styles, and at their end.
const CODES: [&str; 5] = ["[0m", "[1m", "[31m", "[32m", "[33m"];

/// Text in a style; plain where the output is not a terminal.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    let ours = |code: String| code.replace('\u{1b}', OURS.encode_utf8(&mut [0; 3]));
    let (start, end) = (style.render().to_string(), style.render_reset().to_string());
    format!("{}{text}{}", ours(start), ours(end))
}

/// A text as it may be shown: whatever could make a terminal do something, and
/// may come from a file or a server, is written out as JSON does it (`\u001b`),
/// except line breaks and our own styles.
fn harmless(text: &str) -> Cow<'_, str> {
    let odd = |c: char| c == OURS || c.is_control() && c != '\n';
    if !text.contains(odd) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(odd) {
        let (before, found) = rest.split_at(at);
        shown += before;
        let mut chars = found.chars();
        let c = chars.next().unwrap_or(OURS);
        rest = chars.as_str();
        if c == OURS && CODES.iter().any(|code| rest.starts_with(code)) {
            shown.push('\u{1b}');
        } else {
            shown += &format!("\\u{:04x}", u32::from(c));
        }
    }
    Cow::Owned(shown + rest)
}

/// Prints to standard output, without escape codes if it is no terminal. If its
/// reader has gone, the work goes on without a word.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_as_is(&harmless(text))
}

/// The same for text that has nothing of others in it.
pub(crate) fn print_as_is(text: &str) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints a value as one line of JSON.
pub(crate) fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    Ok(print(&(serde_json::to_string(value)? + "\n"))?)
}

/// Says on standard error what went wrong.
pub(crate) fn error(error: &anyhow::Error) {
    note(format_args!("{}: {}", styled(BAD, "error"), causes(error)));
}

/// An error and what caused it, in one line.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut said = Vec::new();
    for cause in error.chain() {
        said.push(cause.to_string());
        if says_its_cause(cause) {
            break;
        }
    }
    said.join(": ")
}

/// Whether an error's own words hold those of its cause.
fn says_its_cause(error: &(dyn Error + 'static)) -> bool {
    error.is::<haltwise_io::Error>()
        || error.is::<haltwise_lstm::Error>()
        || error.is::<haltwise_prefix::Error>()
        || error.is::<haltwise_report::PngError>()
        || error.is::<zip::result::ZipError>()
}

/// Reads a file of text.
pub(crate) fn read_text(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| file(path).to_string())?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => bail!("{}: it is not UTF-8 text; save it as UTF-8", file(path)),
    }
}

/// Prints a warning on standard error.
pub(crate) fn warn(text: impl std::fmt::Display) {
    note(format_args!("{}: {text}", styled(CAREFUL, "warning")));
}

/// Says on standard error what goes on.
pub(crate) fn note(text: impl std::fmt::Display) {
    // The reader may be gone, or the disk full. The work goes on.
    let text = text.to_string();
    let _ = writeln!(anstream::stderr(), "{}", harmless(&text));
}

pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}

/// A progress bar on standard error, hidden where that is no terminal.
pub(crate) fn bar(style: &str) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::hidden();
    if io::stderr().is_terminal() {
        bar.set_style(ProgressStyle::with_template(style)?.progress_chars("=> "));
        bar.set_draw_target(indicatif::ProgressDrawTarget::stderr_with_hz(8));
    }
    Ok(bar)
}

/// Reads the rule that is named before traces; where one of those is it, says so.
pub(crate) fn read_rule(path: &Path, traces: &[PathBuf]) -> anyhow::Result<Rule> {
    haltwise_io::read_rule(path).map_err(|error| {
        let rule = traces.iter().find(|t| haltwise_io::read_rule(t).is_ok());
        match rule {
            Some(rule) => anyhow!(
                "{}: it is not the rule, but {} is; name the rule first, then the traces",
                file(path),
                file(rule)
            ),
            None => error.into(),
        }
    })
}

/// Reads trace files, with all that they say.
pub(crate) fn read_outputs(paths: &[PathBuf], columns: &Columns) -> anyhow::Result<Outputs> {
    reading(|progress| haltwise_io::read_outputs(&trace_files(paths)?, columns, progress))
}

/// Reads files with a progress bar on a terminal if it takes long.
pub(crate) fn reading<T>(
    read: impl FnOnce(&mut dyn FnMut(u64, u64)) -> haltwise_io::Result<T>,
) -> anyhow::Result<T> {
    let bar = bar("reading {bytes} of {total_bytes} [{bar:30}] {eta} left")?;
    let mut shown = false;
    let found = read(&mut |done, total| {
        // Small files are read before a bar could be seen.
        if !shown && bar.elapsed() > Duration::from_millis(400) {
            bar.set_length(total);
            shown = true;
        }
        if shown {
            bar.set_position(done);
        }
    });
    bar.finish_and_clear();
    Ok(found?)
}

/// Refuses, before any work, an output that cannot be written, or that is one of the
/// inputs and would be lost.
pub(crate) fn check_output<P: AsRef<Path>>(output: &Path, inputs: &[P]) -> anyhow::Result<()> {
    check_writable(output)?;
    let Ok(target) = output.canonicalize() else {
        return Ok(());
    };
    let same = |input: &P| input.as_ref().canonicalize().is_ok_and(|i| i == target);
    match inputs.iter().any(same) {
        true => bail!(
            "{}: it is read, so it cannot be written to as well; give another output",
            file(output)
        ),
        false => Ok(()),
    }
}

/// Refuses an output for a rule that could be taken for traces.
pub(crate) fn check_rule_output<P: AsRef<Path>>(output: &Path, inputs: &[P]) -> anyhow::Result<()> {
    check_output(output, inputs)?;
    if Format::of(output).is_ok() {
        bail!(
            "{}: a rule is a JSON file, and this is the name of a trace file; write it to {}",
            file(output),
            file(&output.with_extension("json"))
        );
    }
    Ok(())
}

/// Refuses an output for a page that nothing would open as one.
pub(crate) fn check_page_output<P: AsRef<Path>>(output: &Path, inputs: &[P]) -> anyhow::Result<()> {
    check_output(output, inputs)?;
    let extension = output.extension().map(|e| e.to_ascii_lowercase());
    if extension.is_some_and(|e| e != "html" && e != "htm") {
        bail!(
            "{}: the report is an HTML file; write it to {}",
            file(output),
            file(&output.with_extension("html"))
        );
    }
    Ok(())
}

/// The classifier whose traces the files hold, where they say so. A rule is for
/// one: files of different ones are refused.
pub(crate) fn classifier(paths: &[PathBuf]) -> anyhow::Result<Option<Classifier>> {
    let mut found: Option<(PathBuf, Option<Classifier>)> = None;
    for path in trace_files(paths)? {
        let metadata = read_metadata(&path)?;
        let named = metadata.into_iter().find(|(name, _)| name == CLASSIFIER);
        let parsed = named.map(|(_, text)| serde_json::from_str(&text));
        let classifier = parsed
            .transpose()
            .with_context(|| format!("{}: its metadata about the classifier", file(&path)))?;
        match &found {
            Some((other, first)) if *first != classifier => bail!(
                "{} and {} are traces of different classifiers",
                file(other),
                file(&path)
            ),
            Some(_) => {}
            None => found = Some((path, classifier)),
        }
    }
    Ok(found.and_then(|(_, classifier)| classifier))
}

/// Writes a page, whole or not at all.
pub(crate) fn write_page(path: &Path, page: &str) -> haltwise_io::Result<()> {
    write_whole(path, |out| out.write_all(page.as_bytes()))
}

/// A share as a percentage, to one decimal.
pub(crate) fn percent(share: f64) -> String {
    let text = format!("{:.1}", 100.0 * share);
    format!("{}%", text.strip_suffix(".0").unwrap_or(&text))
}

/// A share as a percentage with one decimal, for columns.
pub(crate) fn percent_column(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// A file's name as it was given.
pub(crate) fn file(path: &Path) -> impl std::fmt::Display {
    path.display()
}

/// A path as a shell reads it, in quotes where it needs them.
pub(crate) fn in_shell(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "_-./+,:@%=".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Lines of words, each column as wide as its widest word.
pub(crate) fn columns<const N: usize>(lines: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for line in lines {
        for (width, word) in widths.iter_mut().zip(line) {
            *width = word.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for line in lines {
        let padded = line.iter().zip(widths);
        let padded: Vec<String> = padded
            .map(|(word, width)| format!("{word:<width$}"))
            .collect();
        text += padded.join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// Wraps words to lines of at most 88 columns, each indented by two.
pub(crate) fn paragraph(text: &str) -> String {
    let mut lines = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if width == 0 || width + 1 + length > 88 {
            lines += if width == 0 { "  " } else { "\n  " };
            width = 2;
        } else {
            lines.push(' ');
            width += 1;
        }
        lines += word;
        width += length;
    }
    lines + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(percent(0.1), "10%");
        assert_eq!(percent(0.0512), "5.1%");
    }

    #[test]
    fn control_characters_are_written_out_and_styles_are_not() {
        let hostile = "a\u{1b}[2Jb\u{9b}31m\u{7}\r\tc\u{7f}\nd\u{1b}[32m";
        let shown = "a\\u001b[2Jb\\u009b31m\\u0007\\u000d\\u0009c\\u007f\nd\\u001b[32m";
        assert_eq!(harmless(hostile), shown);
        for style in [HEADING, GOOD, CAREFUL, BAD] {
            let text = harmless(&styled(style, hostile)).into_owned();
            assert_eq!(text, format!("{style}{shown}{style:#}"));
        }
        // No code is made that is not ours.
        let forged = harmless("\u{fdd0}]0;title\u{fdd0}[2J\u{fdd0}");
        assert_eq!(forged, "\\ufdd0]0;title\\ufdd0[2J\\ufdd0");
        assert!(matches!(harmless("plain\ntext: é…"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_json() {
        let value = "\u{1b}\u{7f}\u{9b}\u{fdd0}\n";
        let text = serde_json::to_string(value).unwrap();
        let shown = harmless(&text);
        assert!(!shown.contains(char::is_control));
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), value);
    }

    #[test]
    fn a_cause_is_said_once() {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let said = haltwise_lstm::Error::Io {
            path: "m.safetensors".into(),
            source: missing(),
        };
        let said = anyhow::Error::from(said).context("cannot resume");
        let expected = format!("cannot resume: m.safetensors: {}", missing());
        assert_eq!(causes(&said), expected);
        let absent = haltwise_io::read_rule(Path::new("absent.json")).unwrap_err();
        let expected = format!("cannot go on: {absent}");
        let said = causes(&anyhow::Error::from(absent).context("cannot go on"));
        assert_eq!(said, expected);
        let unsaid = anyhow::Error::from(missing()).context("m.safetensors");
        assert_eq!(causes(&unsaid), format!("m.safetensors: {}", missing()));
    }

    #[test]
    fn paths_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(in_shell(Path::new("demo/rule.json")), "demo/rule.json");
        assert_eq!(in_shell(Path::new("my demo/a")), "'my demo/a'");
        assert_eq!(in_shell(Path::new("it's")), r"'it'\''s'");
    }

    #[test]
    fn text_that_is_no_utf_8_is_called_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("template.txt");
        std::fs::write(&path, [0xff]).unwrap();
        let said = causes(&read_text(&path).unwrap_err());
        let expected = "template.txt: it is not UTF-8 text; save it as UTF-8";
        assert!(said.ends_with(expected), "{said}");
        let said = causes(&read_text(folder.path().join("absent").as_path()).unwrap_err());
        let missing = io::Error::from_raw_os_error(2);
        assert!(said.ends_with(&format!("absent: {missing}")), "{said}");
    }

    #[test]
    fn paragraphs_stay_within_the_width() {
        let text = paragraph(&"word ".repeat(60));
        assert!(
            text.lines()
                .all(|line| line.len() <= 88 && line.starts_with("  w"))
        );
    }
}
