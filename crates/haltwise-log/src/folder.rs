//! The names of files, which are in their folder.

use std::io;
use std::path::Path;

/// Forces the name of a file to the disk. After a power failure, a file that was created or
/// renamed is only there if its folder was synced. Does nothing on systems that cannot sync a
/// folder.
pub fn sync_folder_of(file: &Path) -> io::Result<()> {
    #[cfg(unix)]
    {
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        std::fs::File::open(folder)?.sync_all()?;
    }
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_synced_whether_or_not_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        sync_folder_of(&folder.path().join("file")).unwrap();
        sync_folder_of(Path::new("file")).unwrap();
        let missing = sync_folder_of(&folder.path().join("none/file"));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
