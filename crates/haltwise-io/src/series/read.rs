//! From a path to a set: which files make up the dataset, and which reader reads them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, Cursor, Read, Seek};
use std::path::{Path, PathBuf};

use super::draft::{Draft, Missing};
use super::set::{Origin, SeriesSet};
use super::{npz, ts, ucr};
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{MEMORY, Memory};
use crate::problem::Problem;

/// The formats that series come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `.ts` of the aeon and tsml archive.
    Ts,
    /// UCR text: the label first, then the values of one channel.
    Ucr,
    /// NumPy arrays `X` and `y`.
    Npz,
}

impl Format {
    /// The format of a file with this name.
    pub fn of(path: impl AsRef<Path>) -> Option<Self> {
        match extension(path.as_ref()).as_str() {
            "ts" => Some(Self::Ts),
            "tsv" | "txt" | "csv" => Some(Self::Ucr),
            "npz" => Some(Self::Npz),
            _ => None,
        }
    }
}

/// Which half of a published dataset to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Part {
    /// Both, the training half first.
    #[default]
    Both,
    /// The sequences published for training.
    Train,
    /// The sequences published for testing.
    Test,
}

/// Reads a dataset: a file; a folder with `NAME_TRAIN.*` and `NAME_TEST.*`, or with one
/// file `NAME.ts`, `NAME.tsv` or `NAME.npz`; or `FOLDER/NAME` if the folder holds several
/// datasets.
///
/// If a folder has one dataset in several formats, `.ts` comes before `.tsv`, `.npz`,
/// `.txt` and `.csv`. Both halves are read even if one is requested, so that a label means
/// the same class in either.
///
/// Reading takes no more than [`MEMORY`](crate::MEMORY).
pub fn read(path: impl AsRef<Path>, part: Part, missing: Missing) -> Result<SeriesSet> {
    read_within(MEMORY, path, part, missing)
}

/// Does the same, within this many bytes of memory.
pub fn read_within(
    memory: u64,
    path: impl AsRef<Path>,
    part: Part,
    missing: Missing,
) -> Result<SeriesSet> {
    let path = path.as_ref();
    let how = How {
        missing,
        memory: Memory::new(memory),
    };
    let (name, draft) = if path.is_file() {
        (dataset_name(path), read_file(path, how)?)
    } else {
        let (name, files) = find(path)?;
        (name, read_dataset(path, &files, part, how)?)
    };
    take_part(path, draft.finish(name), part)
}

/// Reads the content of one file. `path` is for messages and for the name of the set; if
/// the name ends in `_TRAIN` or `_TEST`, also for the origin of its sequences.
pub fn parse(
    path: impl AsRef<Path>,
    bytes: &[u8],
    format: Format,
    missing: Missing,
) -> Result<SeriesSet> {
    let path = path.as_ref();
    let how = How {
        missing,
        memory: Memory::new(MEMORY),
    };
    Ok(draft(path, bytes, format, how)?.finish(dataset_name(path)))
}

/// How to read a file.
#[derive(Debug, Clone, Copy)]
struct How {
    missing: Missing,
    memory: Memory,
}

fn read_file(path: &Path, mut how: How) -> Result<Draft> {
    let Some(format) = Format::of(path) else {
        return Err(Error::new(
            path,
            "this kind of file is not known; give .ts, .tsv, .txt, .csv or .npz",
        )
        .of_kind(ErrorKind::Unsupported));
    };
    let unreadable = |e| Problem::unreadable(e).in_file(path);
    if format == Format::Npz {
        // Read from the file itself, so that its bytes are not in memory together with the
        // set.
        let file = File::open(path).map_err(unreadable)?;
        return checked(path, read_npz(path, BufReader::new(file), how)?);
    }
    // The file may grow while it is read; only its original length is read.
    let file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let fits = how.memory.take("the text of the file", size);
    fits.map_err(|problem| problem.in_file(path))?;
    let mut bytes = Vec::new();
    file.take(size)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    draft(path, &bytes, format, how)
}

fn read_npz(path: &Path, reader: impl Read + Seek, how: How) -> Result<Draft> {
    npz::read(reader, how.missing, how.memory).map_err(|problem| problem.in_file(path))
}

fn draft(path: &Path, bytes: &[u8], format: Format, how: How) -> Result<Draft> {
    let draft = match format {
        Format::Ts => ts::parse(path, bytes, how.missing, how.memory),
        Format::Ucr => ucr::parse(path, bytes, how.missing, how.memory),
        Format::Npz => read_npz(path, Cursor::new(bytes), how),
    }?;
    checked(path, draft)
}

/// Checks that a draft has sequences, and sets their half from the file's name.
fn checked(path: &Path, mut draft: Draft) -> Result<Draft> {
    if draft.is_empty() {
        return Err(Error::new(
            path,
            "there are no sequences in it; give a file with at least one",
        ));
    }
    if let (_, Some(origin)) = halves(&stem(path)) {
        draft.set_origin(origin);
    }
    Ok(draft)
}

/// The files of one dataset, in one format.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Files {
    Whole(PathBuf),
    Halves {
        train: Option<PathBuf>,
        test: Option<PathBuf>,
    },
}

fn read_dataset(path: &Path, files: &Files, part: Part, how: How) -> Result<Draft> {
    match files {
        Files::Whole(file) => read_file(file, how),
        Files::Halves {
            train: Some(train),
            test: Some(test),
        } => {
            // The second is in memory together with the first until they are joined.
            let half = How {
                memory: how.memory.share(2),
                ..how
            };
            let mut both = read_file(train, how)?;
            both.append(read_file(test, half)?)
                .map_err(|problem| problem.in_file(test))?;
            Ok(both)
        }
        Files::Halves {
            train: Some(only),
            test: None,
        } if part == Part::Train => read_file(only, how),
        Files::Halves {
            train: None,
            test: Some(only),
        } if part == Part::Test => read_file(only, how),
        Files::Halves { train, test } => {
            let (lacking, present) = match train {
                Some(_) => ("_TEST", "training"),
                None => ("_TRAIN", "test"),
            };
            let one = train.as_deref().or(test.as_deref());
            if let Some((one, other)) = one.and_then(|one| Some((one, other_half(one, lacking)?))) {
                let name = |file: &Path| file.file_name().map(PathBuf::from).unwrap_or_default();
                let (one, other) = (name(one), name(&other));
                return Err(Error::new(
                    path,
                    format_args!(
                        "its halves are in two formats, {} and {}; write both in one",
                        one.display(),
                        other.display()
                    ),
                )
                .of_kind(ErrorKind::Conflict));
            }
            Err(Error::new(
                path,
                format_args!(
                    "the {lacking} file of the dataset is not there; add it, \
                     or ask for the {present} half alone"
                ),
            )
            .of_kind(ErrorKind::NotFound))
        }
    }
}

fn take_part(path: &Path, set: SeriesSet, part: Part) -> Result<SeriesSet> {
    let (wanted, word) = match part {
        Part::Both => return Ok(set),
        Part::Train => (Origin::Train, "training"),
        Part::Test => (Origin::Test, "test"),
    };
    let origins = set.origins().iter().enumerate();
    let positions: Vec<usize> = origins
        .filter(|(_, origin)| **origin == Some(wanted))
        .map(|(i, _)| i)
        .collect();
    if positions.is_empty() {
        return Err(Error::new(
            path,
            format_args!("no sequence in it is marked as {word} data; ask for both halves"),
        ));
    }
    Ok(set.select(&positions))
}

/// The one dataset in a folder, or the one named by `FOLDER/NAME`.
fn find(path: &Path) -> Result<(String, Files)> {
    let (folder, wanted) = if path.is_dir() {
        (path, None)
    } else {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        (folder, path.file_name().and_then(OsStr::to_str))
    };
    let missing_path = || {
        let missing = Error::new(path, "there is no such file, folder or dataset");
        missing.of_kind(ErrorKind::NotFound)
    };
    if !path.is_dir() && (wanted.is_none() || !folder.is_dir()) {
        return Err(missing_path());
    }
    let mut datasets = datasets(folder)?;
    match wanted {
        Some(wanted) => datasets.retain(|(name, _)| name == wanted),
        None => prefer_folder_name(folder, &mut datasets),
    }
    match (datasets.pop(), &datasets[..]) {
        (Some(only), []) => Ok(only),
        (Some(last), others) => {
            let names: Vec<&str> = others.iter().map(|(name, _)| name.as_str()).collect();
            Err(Error::new(
                path,
                format_args!(
                    "the folder holds several datasets ({}, {}); name one, as {}",
                    names.join(", "),
                    last.0,
                    folder.join(&last.0).display()
                ),
            )
            .of_kind(ErrorKind::Conflict))
        }
        (None, _) if wanted.is_some() => Err(missing_path()),
        (None, _) => Err(Error::new(
            path,
            "there is no dataset in this folder; give one with NAME_TRAIN and NAME_TEST files \
             (.ts, .tsv, .txt, .csv) or with one NAME.ts, NAME.tsv or NAME.npz",
        )
        .of_kind(ErrorKind::NotFound)),
    }
}

/// A folder named after one of its datasets means that one.
fn prefer_folder_name(folder: &Path, datasets: &mut Vec<(String, Files)>) {
    let own = folder.file_name().and_then(OsStr::to_str);
    if datasets.iter().any(|(name, _)| Some(name.as_str()) == own) {
        datasets.retain(|(name, _)| Some(name.as_str()) == own);
    }
}

/// Every dataset in a folder by name, each in the format that comes first.
fn datasets(folder: &Path) -> Result<Vec<(String, Files)>> {
    let unreadable = |e: io::Error| {
        Error::new(folder, format_args!("cannot read the folder: {e}"))
            .of_kind(ErrorKind::of_reading(&e))
            .caused_by(e)
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let file = entry.map_err(unreadable)?.path();
        if file.is_file() && preference(&file).is_some() {
            files.push(file);
        }
    }
    files.sort_by_key(|file| (dataset_name(file), preference(file), file.clone()));

    let mut found: Vec<(String, Files)> = Vec::new();
    for same_dataset in files.chunk_by(|a, b| dataset_name(a) == dataset_name(b)) {
        let candidates: Vec<Files> = same_dataset
            .chunk_by(|a, b| preference(a) == preference(b))
            .map(in_one_format)
            .collect();
        // A complete dataset in a later format is preferred to a half in an earlier one.
        let complete = candidates.iter().find(|files| files.is_complete());
        if let (Some(files), Some(file)) = (complete.or(candidates.first()), same_dataset.first()) {
            found.push((dataset_name(file), files.clone()));
        }
    }
    Ok(found)
}

/// The other half of a dataset, if it is there with another extension.
fn other_half(one: &Path, lacking: &str) -> Option<PathBuf> {
    let wanted = format!("{}{lacking}", dataset_name(one));
    let entries = fs::read_dir(one.parent()?).ok()?;
    let files = entries.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|file| file.is_file() && Format::of(file).is_some())
        .find(|file| stem(file) == wanted)
}

impl Files {
    fn is_complete(&self) -> bool {
        !matches!(self, Self::Halves { train, test } if train.is_none() || test.is_none())
    }
}

fn in_one_format(files: &[PathBuf]) -> Files {
    let half = |origin| {
        let of = |file: &&PathBuf| halves(&stem(file)).1 == origin;
        files.iter().find(of).cloned()
    };
    match half(None) {
        Some(whole) => Files::Whole(whole),
        None => Files::Halves {
            train: half(Some(Origin::Train)),
            test: half(Some(Origin::Test)),
        },
    }
}

/// The order in which formats are preferred. `.txt` and `.csv` files are datasets only if
/// their names mark them as halves, because such files may hold anything.
fn preference(file: &Path) -> Option<usize> {
    let extension = extension(file);
    let rank = ["ts", "tsv", "npz", "txt", "csv"]
        .iter()
        .position(|&known| known == extension)?;
    let is_half = halves(&stem(file)).1.is_some();
    (rank < 3 || is_half).then_some(rank)
}

fn dataset_name(path: &Path) -> String {
    halves(&stem(path)).0.to_owned()
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn extension(path: &Path) -> String {
    path.extension()
        .map(|extension| extension.to_string_lossy().to_ascii_lowercase())
        .unwrap_or_default()
}

/// The name of a dataset, and the half that a file of it holds.
fn halves(stem: &str) -> (&str, Option<Origin>) {
    if let Some(name) = stem.strip_suffix("_TRAIN") {
        (name, Some(Origin::Train))
    } else if let Some(name) = stem.strip_suffix("_TEST") {
        (name, Some(Origin::Test))
    } else {
        (stem, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn read(path: impl AsRef<Path>, part: Part) -> Result<SeriesSet> {
        super::read(path, part, Missing::Refuse)
    }

    fn refusal(path: impl AsRef<Path>, part: Part) -> String {
        read(path, part).unwrap_err().to_string()
    }

    const TRAIN: &str = "2\t1\t2\n10\t3\t4\n";
    const TEST: &str = "1\t5\t6\t7\n2\t8\tNaN\tNaN\n";

    #[test]
    fn halves_in_two_formats_are_not_called_missing() {
        let ts = "@univariate true\n@classLabel true 1 2\n@data\n1,2:1\n";
        let folder = folder(&[("A_TRAIN.tsv", "1\t1\t2\n"), ("A_TEST.ts", ts)]);
        let message = read(folder.path(), Part::Both).unwrap_err().to_string();
        assert!(
            message.contains("its halves are in two formats, A_TEST.ts and A_TRAIN.tsv"),
            "{message}"
        );
    }

    #[test]
    fn two_halves_are_one_dataset_with_classes_matched_by_name() {
        let folder = folder(&[
            ("Toy_TRAIN.tsv", TRAIN),
            ("Toy_TEST.tsv", TEST),
            ("README.txt", "?"),
        ]);
        let set = read(folder.path(), Part::Both).unwrap();
        assert_eq!(set.name(), "Toy");
        assert_eq!(set.classes(), ["1", "2", "10"]);
        assert_eq!(set.labels(), [1, 2, 0, 1]);
        assert_eq!(set.lengths().collect::<Vec<_>>(), [2, 2, 3, 1]);
        let origins = [Origin::Train, Origin::Train, Origin::Test, Origin::Test];
        assert_eq!(set.origins(), origins.map(Some));
    }

    #[test]
    fn one_half_on_request_keeps_the_labels_of_the_whole() {
        let folder = folder(&[("Toy_TRAIN.tsv", TRAIN), ("Toy_TEST.tsv", TEST)]);
        let test = read(folder.path(), Part::Test).unwrap();
        assert_eq!(test.classes(), ["1", "2", "10"]);
        assert_eq!(test.labels(), [0, 1]);
        let train = read(folder.path().join("Toy"), Part::Train).unwrap();
        assert_eq!(train.labels(), [1, 2]);
    }

    #[test]
    fn a_single_file_is_what_it_is() {
        let folder = folder(&[("Toy_TRAIN.tsv", TRAIN), ("Toy_TEST.tsv", TEST)]);
        let file = folder.path().join("Toy_TRAIN.tsv");
        let set = read(&file, Part::Both).unwrap();
        assert_eq!((set.name(), set.len()), ("Toy", 2));
        assert_eq!(read(&file, Part::Train).unwrap(), set);
        assert!(refusal(&file, Part::Test).contains("no sequence in it is marked as test data"));
    }

    #[test]
    fn a_lone_half_is_read_only_when_asked_for() {
        let folder = folder(&[("Toy_TRAIN.txt", "1 2 3\n")]);
        assert!(
            refusal(folder.path(), Part::Both)
                .contains("the _TEST file of the dataset is not there")
        );
        assert_eq!(read(folder.path(), Part::Train).unwrap().len(), 1);
    }

    #[test]
    fn of_several_formats_the_first_complete_one_is_read() {
        let ts = "@classLabel true 2 1\n@data\n0:1\n";
        let folder = folder(&[
            ("Toy_TRAIN.ts", ts),
            ("Toy_TRAIN.tsv", TRAIN),
            ("Toy_TEST.tsv", TEST),
            ("Toy_TRAIN.txt", "junk"),
        ]);
        assert_eq!(read(folder.path(), Part::Both).unwrap().len(), 4);
        fs::write(folder.path().join("Toy_TEST.ts"), ts).unwrap();
        assert_eq!(read(folder.path(), Part::Both).unwrap().len(), 2);
    }

    #[test]
    fn a_folder_of_several_datasets_wants_a_name() {
        let folder = folder(&[("A.tsv", "1\t2\n"), ("B.tsv", "1\t2\n1\t3\n")]);
        let message = refusal(folder.path(), Part::Both);
        assert!(
            message.contains("several datasets (A, B); name one"),
            "{message}"
        );
        assert_eq!(read(folder.path().join("B"), Part::Both).unwrap().len(), 2);
        assert!(refusal(folder.path().join("C"), Part::Both).contains("no such file"));
        let own = folder.path().join("A");
        fs::create_dir(&own).unwrap();
        for name in ["A.tsv", "B.tsv"] {
            fs::copy(folder.path().join(name), own.join(name)).unwrap();
        }
        assert_eq!(read(&own, Part::Both).unwrap().name(), "A");
    }

    #[test]
    fn what_cannot_be_a_dataset_is_refused() {
        let folder = folder(&[
            ("x.arff", ""),
            ("T_TRAIN.ts", "@classLabel true a\n@data\n1:a\n"),
            ("T_TEST.ts", "@classLabel true a\n@data\n1:2:a\n"),
        ]);
        assert!(refusal(folder.path().join("x.arff"), Part::Both).contains("not known; give .ts"));
        let message = refusal(folder.path(), Part::Both);
        assert!(
            message.contains("T_TEST.ts: its sequences have 2 channels"),
            "{message}"
        );
        assert!(refusal("/no/such/place", Part::Both).contains("no such file"));
        let empty = tempfile::tempdir().unwrap();
        assert!(refusal(empty.path(), Part::Both).contains("there is no dataset in this folder"));
    }
}
