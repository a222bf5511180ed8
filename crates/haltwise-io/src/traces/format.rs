//! The formats of trace files: how each is recognised, what it can hold, and which reader
//! it has.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _};
use std::path::Path;

use super::intake::Intake;
use super::text::Text;
use super::{ChunkReader, csv, jsonl, metadata, npz};
#[cfg(feature = "columnar")]
use super::{arrow, parquet};
use crate::error::{Error, ErrorKind, Result};
use crate::problem::{Checked, Problem};

/// A kind of trace file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// NumPy's archive of arrays, `.npz`.
    Npz,
    /// `.parquet`.
    Parquet,
    /// Arrow's file or stream, `.arrow`, `.feather` or `.ipc`.
    Arrow,
    /// One JSON object per line, `.jsonl` or `.ndjson`, optionally with `.gz`.
    Jsonl,
    /// Comma-separated values, `.csv`, optionally with `.gz`.
    Csv,
}

/// The properties of a format.
struct About {
    /// Its extensions, the usual one first.
    extensions: &'static [&'static str],
    /// What to call a file with another extension.
    called: &'static str,
    /// Whether it is text, which may be packed and cannot hold metadata.
    is_text: bool,
    /// Whether it can hold columns of values per step, such as costs.
    has_step_columns: bool,
    /// Whether a step has a row of its own.
    has_row_per_step: bool,
}

impl Format {
    /// All formats.
    pub const ALL: [Self; 5] = [
        Self::Npz,
        Self::Parquet,
        Self::Arrow,
        Self::Jsonl,
        Self::Csv,
    ];

    fn about(self) -> About {
        let columnar = About {
            extensions: &[],
            called: "",
            is_text: false,
            has_step_columns: true,
            has_row_per_step: false,
        };
        let text = About {
            is_text: true,
            has_step_columns: false,
            ..columnar
        };
        match self {
            Self::Npz => About {
                extensions: &["npz"],
                called: "an archive of NumPy's",
                has_step_columns: false,
                ..columnar
            },
            Self::Parquet => About {
                extensions: &["parquet"],
                called: "a Parquet file",
                ..columnar
            },
            Self::Arrow => About {
                extensions: &["arrow", "feather", "ipc"],
                called: "an Arrow file",
                ..columnar
            },
            Self::Jsonl => About {
                extensions: &["jsonl", "ndjson"],
                called: "JSON",
                ..text
            },
            Self::Csv => About {
                extensions: &["csv"],
                called: "CSV",
                has_row_per_step: true,
                ..text
            },
        }
    }

    /// The extensions of its files, the usual one first.
    pub fn extensions(self) -> &'static [&'static str] {
        self.about().extensions
    }

    /// The usual extension of each format, for help texts: `.npz .parquet …`.
    pub fn usual_extensions() -> String {
        let usual = Self::ALL
            .iter()
            .filter_map(|format| format.extensions().first());
        let usual: Vec<String> = usual.map(|extension| format!(".{extension}")).collect();
        usual.join(" ")
    }

    /// Whether it can hold metadata, such as the classifier.
    pub fn has_metadata(self) -> bool {
        !self.about().is_text
    }

    /// Whether it can hold costs per step.
    pub fn has_costs(self) -> bool {
        self.about().has_step_columns
    }

    /// The least number of bytes of a sequence and of a step, and whether the whole file is
    /// in memory while it is read. A step takes at least four bytes, in digits or
    /// otherwise.
    #[cfg(feature = "columnar")]
    pub(super) fn least_bytes(self) -> (u64, u64, bool) {
        match self.about().has_row_per_step {
            true => (100, 10, true),
            false => (40, 4, false),
        }
    }

    /// The format of a file extension.
    pub fn of(path: &Path) -> Result<Self> {
        let refused = |message: &str| Error::new(path, message).of_kind(ErrorKind::Unsupported);
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_lowercase();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let extension = plain
            .rsplit_once('.')
            .map_or("", |(_, extension)| extension);
        let mut all = Self::ALL.into_iter();
        let Some(format) = all.find(|format| format.extensions().contains(&extension)) else {
            return Err(match extension {
                "json" => refused(JSON),
                _ => refused(&unknown()),
            });
        };
        if plain != name && !format.about().is_text {
            let text = Self::ALL
                .into_iter()
                .filter(|format| format.about().is_text);
            let text: Vec<String> = text.map(|format| format.ending()).collect();
            let only = format!(
                "unpack it first: only {} are read as .gz",
                text.join(" and ")
            );
            return Err(refused(&only));
        }
        Ok(format)
    }

    /// Its usual extension, with the dot.
    fn ending(self) -> String {
        format!(
            ".{}",
            self.extensions().first().copied().unwrap_or_default()
        )
    }

    /// This many bytes at the start of a file determine its format.
    pub(crate) const START: u64 = 256;

    /// Opens a file, which must not begin like one of another format.
    pub(super) fn open(path: &Path) -> Result<(Self, File)> {
        let format = Self::of(path)?;
        let open = || {
            let mut file = File::open(path).map_err(Problem::unreadable)?;
            let mut start = Vec::new();
            // A file that cannot be read is reported by its reader.
            let _ = file.by_ref().take(Self::START).read_to_end(&mut start);
            file.rewind().map_err(Problem::unreadable)?;
            format.refuse_another(&start)?;
            Ok(file)
        };
        let file = open().map_err(|problem: Problem| problem.in_file(path))?;
        Ok((format, file))
    }

    /// Refuses a file that begins like another format: its name is wrong.
    pub(super) fn refuse_another(self, start: &[u8]) -> Checked {
        match Self::seen(start) {
            Some(found) if found != self => Err(Problem::format(format_args!(
                "it is {}, whatever its name says; rename it to end in {}",
                found.called(),
                found.ending()
            ))),
            Some(_) | None => Ok(()),
        }
    }

    /// What to call a file of this format with another extension.
    pub(crate) fn called(self) -> &'static str {
        self.about().called
    }

    /// The format that the first bytes of a file show.
    pub(crate) fn seen(start: &[u8]) -> Option<Self> {
        // A zip archive of other content is not a trace file.
        let first_entry = |length: &[u8]| {
            let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
            start.get(30..30 + length)
        };
        match start {
            [b'P', b'A', b'R', b'1', ..] => Some(Self::Parquet),
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => Some(Self::Arrow),
            [b'P', b'K', 3, 4, ..] => {
                let name = first_entry(start.get(26..28)?)?;
                name.ends_with(b".npy").then_some(Self::Npz)
            }
            [b'{', ..] => Some(Self::Jsonl),
            _ => None,
        }
    }

    /// The metadata that is stored with traces.
    #[cfg(feature = "columnar")]
    pub(super) fn metadata(
        self,
        reader: impl io::BufRead + io::Seek,
        chunks: impl ChunkReader + 'static,
    ) -> Checked<Vec<(String, String)>> {
        match self {
            Self::Npz => metadata::of_npz(reader),
            Self::Parquet => metadata::of_parquet(&chunks),
            Self::Arrow => metadata::of_arrow(reader),
            Self::Jsonl | Self::Csv => Ok(Vec::new()),
        }
    }

    /// The metadata that is stored with traces.
    #[cfg(not(feature = "columnar"))]
    pub(super) fn metadata(
        self,
        reader: impl io::Read + io::Seek,
        _: impl ChunkReader,
    ) -> Checked<Vec<(String, String)>> {
        match self {
            Self::Npz => metadata::of_npz(reader),
            Self::Parquet | Self::Arrow => Err(Problem::unsupported(super::NO_COLUMNS)),
            Self::Jsonl | Self::Csv => Ok(Vec::new()),
        }
    }
}

const JSON: &str = "it is JSON, as rules are, and no trace file; traces in JSON have one sequence per \
    line, and end in .jsonl";

fn unknown() -> String {
    let all = Format::ALL.iter().flat_map(|format| format.extensions());
    let mut known: Vec<String> = all.map(|extension| format!(".{extension}")).collect();
    let last = known.pop().unwrap_or_default();
    format!(
        "its extension is none of a trace file; known are {} and {last}",
        known.join(", ")
    )
}

pub(super) fn read_file(
    path: &Path,
    format: Format,
    file: File,
    intake: &mut Intake<'_>,
) -> Checked {
    let zipped = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("gz"));
    match format {
        Format::Jsonl if zipped => return jsonl::read(Text::gzipped(file), intake),
        Format::Csv if zipped => return csv::read(Text::gzipped(file), intake),
        _ => {}
    }
    // Only the arrays of NumPy's archives are opened one by one.
    let opened = Cell::new(Some(file));
    let open = || opened.take().map_or_else(|| File::open(path), Ok);
    read_format(format, &|| open().map(BufReader::new), open, intake)
}

pub(super) fn read_format<R: io::BufRead + io::Seek, C: ChunkReader + 'static>(
    format: Format,
    open: &dyn Fn() -> io::Result<R>,
    chunks: impl FnOnce() -> io::Result<C>,
    intake: &mut Intake<'_>,
) -> Checked {
    if intake.file_size() == 0 {
        return Err(Problem::format("it is empty; write it again"));
    }
    let reader = || open().map_err(Problem::unreadable);
    match format {
        Format::Npz => npz::read(open, intake),
        #[cfg(feature = "columnar")]
        Format::Parquet => parquet::read(chunks().map_err(Problem::unreadable)?, intake),
        #[cfg(feature = "columnar")]
        Format::Arrow => arrow::read(reader()?, intake),
        #[cfg(not(feature = "columnar"))]
        Format::Parquet | Format::Arrow => {
            chunks().map_err(Problem::unreadable)?;
            Err(Problem::unsupported(super::NO_COLUMNS))
        }
        Format::Jsonl => jsonl::read(Text::plain(reader()?), intake),
        Format::Csv => csv::read(Text::plain(reader()?), intake),
    }
}
