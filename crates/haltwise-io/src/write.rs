//! Whole files or none: what is written goes beside its target first, and is
//! renamed onto it once complete.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// Writes a file so that a reader sees the old one or the whole new one, never
/// a part, and so that a full disk or a crash leaves the old one as it was.
pub fn write_whole<E: std::fmt::Display>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&File>) -> std::result::Result<(), E>,
) -> Result<()> {
    let failed = |problem: &dyn std::fmt::Display| {
        Error::new(path, format_args!("cannot write it: {problem}"))
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if path.is_dir() {
        return Err(failed(&"it is a folder; name a file in it"));
    }
    if !folder.is_dir() {
        return Err(failed(&format_args!(
            "the folder {} does not exist; create it first",
            folder.display()
        )));
    }
    let mut options = tempfile::Builder::new();
    // The permissions of an ordinary new file, not a temporary file's.
    #[cfg(unix)]
    options.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let beside = options
        .prefix(".haltwise-")
        .tempfile_in(folder)
        .map_err(|e| failed(&e))?;
    let mut out = BufWriter::with_capacity(1 << 20, beside.as_file());
    write(&mut out).map_err(|e| failed(&e))?;
    let finish = || -> io::Result<()> {
        out.flush()?;
        drop(out);
        beside.as_file().sync_all()
    };
    finish().map_err(|e| failed(&e))?;
    beside.persist(path).map_err(|e| failed(&e.error))?;
    Ok(())
}
