//! Writes whole files or none: content is written next to its target, and renamed onto it
//! once complete.

use std::error::Error as StdError;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use haltwise_log::sync_folder_of;
use tempfile::NamedTempFile;

use crate::error::{Cause, Error, ErrorKind, Result};

/// Writes a file so that a reader sees the old one or the whole new one, never a part. A
/// full disk or a crash leaves the old one unchanged.
pub fn write_whole<E: Into<Box<dyn StdError + Send + Sync>>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::result::Result<(), E>,
) -> Result<()> {
    let whole = WholeFile::create(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, whole.beside.as_file());
    write(&mut out).map_err(|e| failed(path, e))?;
    out.flush().map_err(|e| failed(path, e))?;
    drop(out);
    whole.commit()
}

/// A problem with writing a file.
pub(crate) fn cannot_write(path: &Path, problem: impl Display) -> Error {
    let error = Error::new(path, format_args!("cannot write it: {problem}"));
    error.of_kind(ErrorKind::Output)
}

/// A problem of another library with writing a file.
pub(crate) fn failed(path: &Path, source: impl Into<Cause>) -> Error {
    let source = source.into();
    let kind = kind_of(&*source);
    cannot_write(path, &source).of_kind(kind).caused_by(source)
}

/// Why a file could not be written, however deep the operating system's error is nested.
fn kind_of(error: &(dyn StdError + 'static)) -> ErrorKind {
    let known = error.downcast_ref::<io::Error>().map(io::Error::kind);
    match (known, error.source()) {
        (Some(io::ErrorKind::NotFound), _) => ErrorKind::NotFound,
        (Some(io::ErrorKind::PermissionDenied), _) => ErrorKind::Permission,
        (None, Some(source)) => kind_of(source),
        _ => ErrorKind::Output,
    }
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a path that clearly cannot be written to.
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    writable(path.as_ref()).map(drop)
}

/// The file that is replaced when a path is written to, unless it cannot be.
fn writable(path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        return Err(cannot_write(path, "it is a folder; name a file in it"));
    }
    // A link stays a link: its target is replaced. A device or a pipe cannot be replaced,
    // and must not be.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if target.exists() && !target.is_file() {
        return Err(cannot_write(path, "it is not an ordinary file"));
    }
    let folder = folder_of(&target);
    if folder.exists() && !folder.is_dir() {
        let problem = format!(
            "{} is a file, not a folder; name a file in a folder",
            folder.display()
        );
        return Err(cannot_write(path, problem));
    }
    if !folder.is_dir() {
        let problem = format!(
            "the folder {} does not exist; create it first",
            folder.display()
        );
        return Err(cannot_write(path, problem).of_kind(ErrorKind::NotFound));
    }
    Ok(target)
}

/// A file that is written next to its target. If dropped before [`commit`], it leaves no
/// trace.
///
/// [`commit`]: WholeFile::commit
#[derive(Debug)]
pub(crate) struct WholeFile {
    path: PathBuf,
    beside: NamedTempFile,
}

impl WholeFile {
    /// Starts a file, unless it clearly cannot be written.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let target = writable(path)?;
        let mut options = tempfile::Builder::new();
        // Use the permissions of an ordinary new file, not of a temporary file.
        #[cfg(unix)]
        options.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let beside = options
            .prefix(".haltwise-")
            .tempfile_in(folder_of(&target))
            .map_err(|e| failed(path, e))?;
        Ok(Self {
            path: target,
            beside,
        })
    }

    /// Puts the whole file in its place, with content and name on disk.
    pub(crate) fn commit(self) -> Result<()> {
        let Self { path, beside } = self;
        beside.as_file().sync_all().map_err(|e| failed(&path, e))?;
        beside.persist(&path).map_err(|e| failed(&path, e.error))?;
        sync_folder_of(&path).map_err(|e| failed(&path, e))
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Through the file itself, because its errors do not name the temporary path.
        self.beside.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.beside.as_file_mut().flush()
    }
}

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.beside.as_file_mut().seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_fails_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rule.json");
        std::fs::write(&path, "old").unwrap();
        let full = write_whole(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        let full = full.unwrap_err();
        assert!(full.to_string().contains("cannot write it"));
        assert_eq!(full.kind(), ErrorKind::Output);
        assert!(full.source().is_some());
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_permission_that_lacks_is_known_however_deep_it_lies() {
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let path = Path::new("rule.json");
        assert_eq!(failed(path, denied()).kind(), ErrorKind::Permission);
        let deep = parquet::errors::ParquetError::External(Box::new(denied()));
        assert_eq!(failed(path, deep).kind(), ErrorKind::Permission);
        assert_eq!(failed(path, "it is").kind(), ErrorKind::Output);
    }

    #[test]
    fn a_write_that_succeeds_replaces_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rule.json");
        std::fs::write(&path, "old").unwrap();
        write_whole(&path, |out| out.write_all(b"new")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_place_that_cannot_be_written_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &Path| write_whole(path, |out| out.write_all(b"x")).unwrap_err();
        assert!(write(folder.path()).to_string().contains("it is a folder"));
        assert_eq!(write(folder.path()).kind(), ErrorKind::Output);
        let nowhere = folder.path().join("no/rule.json");
        assert!(write(&nowhere).to_string().contains("does not exist"));
        assert_eq!(write(&nowhere).kind(), ErrorKind::NotFound);
        let file = folder.path().join("file.txt");
        std::fs::write(&file, "x").unwrap();
        let message = write(&file.join("rule.json")).to_string();
        assert!(
            message.contains("file.txt is a file, not a folder"),
            "{message}"
        );
    }
}
