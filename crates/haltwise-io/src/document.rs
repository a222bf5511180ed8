//! Versioned JSON: the stored form of rules, candidates and evidence.

use std::fs::File;
use std::io::{self, Read as _, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::{CompactFormatter, Formatter};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::evidence_file::EVIDENCE;
use crate::memory::Size;
use crate::model_file::header_texts;
use crate::problem::{Checked, Problem};
use crate::proposal_file::PROPOSAL;
use crate::rule_file::RULE;
use crate::traces::Format;
use crate::write::write_whole;

/// A kind of file.
pub(crate) struct Kind {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// The format that every such file states.
    pub(crate) format: &'static str,
    /// The version that is written and read.
    pub(crate) version: u64,
    /// What to do about a damaged file.
    pub(crate) remedy: &'static str,
    /// What the file is, and the verb that reads it, for users who gave it to another verb.
    pub(crate) is: &'static str,
    pub(crate) verb: &'static str,
}

/// The longest document that is read; as values, it takes thirty times as much memory.
const LONGEST: u64 = 128 << 20;

/// All kinds there are.
const KINDS: [&Kind; 3] = [&RULE, &PROPOSAL, &EVIDENCE];

#[derive(Serialize)]
struct Document<'a, T> {
    format: &'a str,
    version: u64,
    written_by: &'a str,
    #[serde(flatten)]
    content: &'a T,
}

impl Kind {
    /// The text of a file.
    pub(crate) fn json<T: Serialize>(&self, content: &T) -> io::Result<String> {
        let document = Document {
            format: self.format,
            version: self.version,
            written_by: concat!("haltwise ", env!("CARGO_PKG_VERSION")),
            content,
        };
        let mut text = Vec::new();
        document.serialize(&mut serde_json::Serializer::with_formatter(
            &mut text,
            OnePerLine { depth: 0 },
        ))?;
        text.push(b'\n');
        let text = String::from_utf8(text).map_err(io::Error::other)?;
        // JSON strings hold no line breaks, so this can only be between two values.
        Ok(text.replace(", \n", ",\n"))
    }

    /// Writes a whole file, or nothing.
    pub(crate) fn write<T: Serialize>(&self, path: &Path, content: &T) -> Result<()> {
        write_whole(path, |out| out.write_all(self.json(content)?.as_bytes()))
    }

    /// Reads a file, or what a model file holds under the name of the format. Refuses one that is
    /// damaged, contradicts itself or was written in a newer format.
    pub(crate) fn read<T: DeserializeOwned>(&self, path: &Path) -> Result<T> {
        let name = self.name;
        let unreadable = |e: io::Error| {
            let problem = match e.kind() {
                io::ErrorKind::IsADirectory => {
                    Error::new(path, format_args!("it is a folder; name the {name} file"))
                }
                _ => Error::new(path, format_args!("cannot read it: {e}")),
            };
            problem.of_kind(ErrorKind::of_reading(&e)).caused_by(e)
        };
        let mut file = File::open(path).map_err(unreadable)?;
        let mut bytes = Vec::new();
        let mut start = (&mut file).take(Format::START);
        start.read_to_end(&mut bytes).map_err(unreadable)?;
        if let Some(mut texts) = header_texts(&mut bytes, &mut file).map_err(unreadable)? {
            let text = texts
                .remove(self.format)
                .ok_or_else(|| self.not_in_model(path))?;
            let found = self.parse(text.as_bytes());
            return found.map_err(|problem| problem.in_file(path));
        }
        // A file of another kind may be huge, and its start is enough to recognise it.
        if Format::seen(&bytes).is_none_or(|found| found == Format::Jsonl) {
            let mut rest = file.take(LONGEST);
            rest.read_to_end(&mut bytes).map_err(unreadable)?;
        }
        self.parse(&bytes).map_err(|problem| problem.in_file(path))
    }

    fn not_in_model(&self, path: &Path) -> Error {
        let what = format!("it is a model without a {0}; name the {0} file", self.name);
        Error::new(path, what).of_kind(ErrorKind::Format)
    }

    /// Reads the bytes of a file.
    pub(crate) fn parse<T: DeserializeOwned>(&self, bytes: &[u8]) -> Checked<T> {
        let Self {
            name,
            format,
            version: known,
            remedy,
            ..
        } = self;
        // "a rule", "an evidence".
        let a = match name.starts_with(['a', 'e', 'i', 'o', 'u']) {
            true => "an",
            false => "a",
        };
        if bytes.len() as u64 > LONGEST {
            return Err(Problem::new(format_args!(
                "it is longer than {}; no {name} file is: name another file, or {remedy} with fewer \
                 steps or thresholds",
                Size(LONGEST)
            ))
            .of_kind(ErrorKind::TooLarge));
        }
        let mut fields: Map<String, Value> = serde_json::from_slice(bytes).map_err(|e| {
            let what = match Format::seen(bytes) {
                _ if bytes.is_empty() => format!("it is empty; {remedy}, or copy it again"),
                _ if e.is_eof() => format!("it is cut short: {e}; {remedy}, or copy it again"),
                Some(found) if found != Format::Jsonl => format!(
                    "it is not {a} {name} file but {}; {a} {name} file is JSON",
                    found.called()
                ),
                _ => format!("it is not {a} {name} file, or a damaged one: {e}"),
            };
            Problem::format(what).caused_by(e)
        })?;
        let found = fields.remove("format");
        let found = found.as_ref().and_then(Value::as_str);
        if found != Some(*format) {
            let other = KINDS.into_iter().find(|kind| Some(kind.format) == found);
            return Err(Problem::format(match other {
                Some(Kind { is, verb, .. }) => {
                    format!("it is not {a} {name} file but {is}; `haltwise {verb}` takes it")
                }
                None => {
                    format!("it is not {a} {name} file: its \"format\" is not \"{format}\"")
                }
            }));
        }
        let version = fields.remove("version").and_then(|v| v.as_u64());
        let writer = fields.remove("written_by");
        let writer = writer
            .as_ref()
            .and_then(Value::as_str)
            .unwrap_or("an unknown version");
        match version {
            Some(version) if version == *known => {}
            Some(version) if version > 0 => {
                let remedy = match version > *known {
                    true => "use a newer haltwise",
                    false => *remedy,
                };
                return Err(Problem::unsupported(format_args!(
                    "it is {a} {name} file of format version {version}, written by {writer}; this \
                     program reads version {known}: {remedy}"
                )));
            }
            _ => {
                return Err(Problem::format(format_args!(
                    "the {name} file is damaged: it has no valid \"version\""
                )));
            }
        }
        serde_json::from_value(Value::Object(fields)).map_err(|e| {
            let what = format_args!("the {name} file is damaged: {e}; {remedy}");
            Problem::format(what).caused_by(e)
        })
    }
}

/// Compact JSON with a line for each field of the outermost object, and for each object in
/// a list there: easy to read, and to compare by line.
struct OnePerLine {
    depth: usize,
}

impl Formatter for OnePerLine {
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        if self.depth == 2 {
            out.write_all(b"\n    ")?;
        }
        self.depth += 1;
        CompactFormatter.begin_object(out)
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.depth == 0 {
            out.write_all(b"\n")?;
        }
        CompactFormatter.end_object(out)
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        CompactFormatter.begin_array(out)
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        CompactFormatter.end_array(out)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(match (self.depth, first) {
            (1, true) => b"\n  ",
            (1, false) => b",\n  ",
            (_, true) => b"",
            (_, false) => b", ",
        })
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
