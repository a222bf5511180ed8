//! Whole files or none: what is written goes beside its target first, and is
//! renamed onto it once complete.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};

/// Writes a file so that a reader sees the old one or the whole new one, never
/// a part, and so that a full disk or a crash leaves the old one as it was.
pub fn write_whole<E: Display>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::result::Result<(), E>,
) -> Result<()> {
    let whole = WholeFile::create(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, whole.beside.as_file());
    write(&mut out).map_err(|e| cannot_write(path, e))?;
    out.flush().map_err(|e| cannot_write(path, e))?;
    drop(out);
    whole.commit()
}

/// A problem with writing a file.
pub(crate) fn cannot_write(path: &Path, problem: impl Display) -> Error {
    Error::new(path, format_args!("cannot write it: {problem}"))
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Refuses a path that, as is plain already, no file can be written to.
pub fn check_writable(path: impl AsRef<Path>) -> Result<()> {
    writable(path.as_ref()).map(drop)
}

/// The file that is replaced when a path is written to, unless it cannot be.
fn writable(path: &Path) -> Result<PathBuf> {
    if path.is_dir() {
        return Err(cannot_write(path, "it is a folder; name a file in it"));
    }
    // A link stays a link: what it points to is replaced. A device or a
    // pipe cannot be replaced, and must not be.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    if target.exists() && !target.is_file() {
        return Err(cannot_write(path, "it is not an ordinary file"));
    }
    let folder = folder_of(&target);
    if folder.exists() && !folder.is_dir() {
        let problem = format_args!(
            "{} is a file, not a folder; name a file in a folder",
            folder.display()
        );
        return Err(cannot_write(path, problem));
    }
    if !folder.is_dir() {
        let problem = format_args!(
            "the folder {} does not exist; create it first",
            folder.display()
        );
        return Err(cannot_write(path, problem));
    }
    Ok(target)
}

/// A file that is written beside its target. Dropped before [`commit`], it
/// leaves no trace.
///
/// [`commit`]: WholeFile::commit
#[derive(Debug)]
pub(crate) struct WholeFile {
    path: PathBuf,
    beside: NamedTempFile,
}

impl WholeFile {
    /// Starts a file, unless it is plain already that it cannot be.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let target = writable(path)?;
        let mut options = tempfile::Builder::new();
        // The permissions of an ordinary new file, not a temporary file's.
        #[cfg(unix)]
        options.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let beside = options
            .prefix(".haltwise-")
            .tempfile_in(folder_of(&target))
            .map_err(|e| cannot_write(path, e))?;
        Ok(Self {
            path: target,
            beside,
        })
    }

    /// Puts the file, all of it on disk, in its place.
    pub(crate) fn commit(self) -> Result<()> {
        let Self { path, beside } = self;
        beside
            .as_file()
            .sync_all()
            .map_err(|e| cannot_write(&path, e))?;
        beside
            .persist(&path)
            .map_err(|e| cannot_write(&path, e.error))?;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Through the file itself: its errors do not name the passing path.
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
        assert!(full.unwrap_err().to_string().contains("cannot write it"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
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
        let nowhere = folder.path().join("no/rule.json");
        assert!(write(&nowhere).to_string().contains("does not exist"));
        let file = folder.path().join("file.txt");
        std::fs::write(&file, "x").unwrap();
        let message = write(&file.join("rule.json")).to_string();
        assert!(
            message.contains("file.txt is a file, not a folder"),
            "{message}"
        );
    }
}
