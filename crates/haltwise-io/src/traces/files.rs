//! Which files a set of traces consists of, and whether they change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::Format;
use crate::error::{Error, ErrorKind, Result};
use crate::problem::Problem;

/// Finds the trace files that paths stand for: files, folders of them, and patterns such as
/// `day-*.parquet`. Folders are searched at any depth, in the order of names. Names that
/// start with `.` or `_` are skipped, because engines mark files without data that way.
///
/// A file that is named twice, by any path, is refused: its sequences would count twice,
/// and a guarantee that rests on the counts would be void.
pub fn trace_files<P: AsRef<Path>>(paths: &[P]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let before = files.len();
        if path.is_dir() {
            add_folder(path, &mut files)?;
        } else if is_pattern(path) {
            add_matches(path, &mut files)?;
        } else {
            files.push(path.to_path_buf());
        }
        if files.len() == before {
            let none = Error::new(
                path,
                "there is no trace file in it (NPZ, Parquet, Arrow, JSONL or CSV)",
            );
            return Err(none.of_kind(ErrorKind::NotFound));
        }
    }
    super::refuse_twice(&files)?;
    Ok(files)
}

fn add_folder(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let unreadable = |e| Problem::unreadable(e).in_file(folder);
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        entries.push(entry.map_err(unreadable)?.path());
    }
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(['.', '_']) {
            continue;
        }
        if path.is_dir() {
            add_folder(&path, files)?;
            continue;
        }
        // A file that is silently left out might be the one with the hard sequences.
        Format::of(&path).map_err(|_| {
            let problem = "it is not a trace file; move it out of the folder, or name the files \
                           by a pattern";
            Error::new(&path, problem).of_kind(ErrorKind::Unsupported)
        })?;
        files.push(path);
    }
    Ok(())
}

/// Whether a path that does not exist is meant as a pattern.
fn is_pattern(path: &Path) -> bool {
    !path.exists() && path.to_string_lossy().contains(['*', '?', '['])
}

fn add_matches(pattern: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let matches =
        glob::glob(&pattern.to_string_lossy()).map_err(|e| Error::new(pattern, &e).caused_by(e))?;
    for path in matches {
        let path = path.map_err(|e| {
            let kind = ErrorKind::of_reading(e.error());
            Error::new(pattern, &e).of_kind(kind).caused_by(e)
        })?;
        match path.is_dir() {
            true => add_folder(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}

/// The outside of files (such as size and time), to detect changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    paths: Vec<PathBuf>,
    files: Vec<(PathBuf, u64, Option<SystemTime>)>,
}

impl Snapshot {
    /// Records the current state of the files that paths stand for.
    pub fn new<P: AsRef<Path>>(paths: &[P]) -> Result<Self> {
        let mut files = Vec::new();
        for path in trace_files(paths)? {
            let found = fs::metadata(&path).map_err(|e| Problem::unreadable(e).in_file(&path))?;
            files.push((path, found.len(), found.modified().ok()));
        }
        Ok(Self {
            paths: paths.iter().map(|p| p.as_ref().to_path_buf()).collect(),
            files,
        })
    }

    /// The files, in the order they are read.
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(path, ..)| path.clone()).collect()
    }

    /// Refuses files that were added, removed or changed since: what was read is then
    /// neither the old set nor the new one.
    pub fn check_unchanged(&self) -> Result<()> {
        let now = Self::new(&self.paths)?;
        let changed = "it changed while it was read; run again when nothing writes there";
        for before in &self.files {
            if !now.files.contains(before) {
                return Err(Error::new(&before.0, changed).of_kind(ErrorKind::Conflict));
            }
        }
        for after in &now.files {
            if !self.files.contains(after) {
                let problem = "it appeared while the others were read; run again when nothing \
                               writes there";
                return Err(Error::new(&after.0, problem).of_kind(ErrorKind::Conflict));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        folder
    }

    fn found(folder: &Path, path: &str) -> std::result::Result<Vec<String>, String> {
        let files = trace_files(&[folder.join(path)]).map_err(|e| e.to_string())?;
        let name = |f: &PathBuf| f.strip_prefix(folder).unwrap().display().to_string();
        Ok(files.iter().map(name).collect())
    }

    #[test]
    fn folders_and_patterns_stand_for_their_files() {
        let names = [
            "b.parquet",
            "a/2.parquet",
            "a/10.parquet",
            "_SUCCESS",
            ".x.crc",
            "c.csv",
        ];
        let folder = folder(&names);
        let all = ["a/10.parquet", "a/2.parquet", "b.parquet", "c.csv"];
        assert_eq!(found(folder.path(), "").unwrap(), all);
        assert_eq!(found(folder.path(), "*.parquet").unwrap(), ["b.parquet"]);
        assert_eq!(found(folder.path(), "c.csv").unwrap(), ["c.csv"]);
        assert!(
            found(folder.path(), "d*.csv")
                .unwrap_err()
                .contains("no trace file")
        );
    }

    #[test]
    fn a_file_that_is_no_trace_is_not_passed_over() {
        let folder = folder(&["a.parquet", "notes.txt"]);
        let message = found(folder.path(), "").unwrap_err();
        assert!(
            message.contains("notes.txt: it is not a trace file"),
            "{message}"
        );
    }

    #[test]
    fn a_file_named_by_two_paths_is_refused() {
        let folder = folder(&["a.parquet"]);
        let paths = [folder.path().to_path_buf(), folder.path().join("a.parquet")];
        assert!(
            trace_files(&paths)
                .unwrap_err()
                .to_string()
                .contains("named twice")
        );
    }

    #[test]
    fn files_that_come_go_or_change_are_noticed() {
        let folder = folder(&["a.parquet", "b.parquet"]);
        let snapshot = Snapshot::new(&[folder.path()]).unwrap();
        snapshot.check_unchanged().unwrap();
        let refusal = || snapshot.check_unchanged().unwrap_err().to_string();
        let c = folder.path().join("c.parquet");
        fs::write(&c, "new").unwrap();
        assert!(refusal().contains("c.parquet: it appeared"));
        fs::remove_file(&c).unwrap();
        fs::write(folder.path().join("a.parquet"), "longer than before").unwrap();
        assert!(refusal().contains("a.parquet: it changed"));
        fs::remove_file(folder.path().join("a.parquet")).unwrap();
        assert!(refusal().contains("a.parquet: it changed"));
    }
}
