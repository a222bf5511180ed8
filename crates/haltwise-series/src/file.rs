//! Model files: read up to a bound, and written whole or not at all.

use haltwise_log::sync_folder_of;
use std::fs::File;
use std::io::{Read, Result, Write};
use std::path::Path;

/// Reads a whole file. `None` if it is longer than `longest` bytes.
pub fn read_up_to(path: &Path, longest: u64) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(longest + 1)
        .read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= longest).then_some(bytes))
}

/// Writes next to the target, flushes to disk, then renames onto the target: a reader never
/// sees half a file.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".haltwise-");
    // A temporary file is private, but the model should be as readable as any file.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut file = builder.tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    sync_folder_of(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_read_up_to_its_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        write_whole(&path, b"long before").unwrap();
        write_whole(&path, b"after").unwrap();
        assert_eq!(read_up_to(&path, 5).unwrap().unwrap(), b"after");
        assert_eq!(read_up_to(&path, 4).unwrap(), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write_whole(&folder.path().join("nowhere/model"), b"").is_err());
    }
}
