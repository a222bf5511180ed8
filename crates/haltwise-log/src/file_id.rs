//! Which file a path leads to.

use std::fs::File;
use std::io;
use std::path::Path;

/// Tells an open file from all others, whatever its name is. It holds for as long as the file is
/// open: after that, the system may give it to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    #[cfg(unix)]
    device_and_inode: (u64, u64),
}

impl FileId {
    /// That of an open file.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|about| Self::new(&about))
    }

    /// Whether a path leads to the file. On systems that cannot tell, it does.
    pub fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|about| Self::new(&about) == *self)
    }

    #[cfg(unix)]
    fn new(about: &std::fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            device_and_inode: (about.dev(), about.ino()),
        }
    }

    #[cfg(not(unix))]
    fn new(_: &std::fs::Metadata) -> Self {
        Self {}
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_known_by_any_name_and_another_of_its_name_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("b"));
        let file = File::create(&path).unwrap();
        let id = FileId::of(&file).unwrap();
        assert!(id.is_at(&path) && !id.is_at(&other));
        std::fs::rename(&path, &other).unwrap();
        std::fs::write(&path, "").unwrap();
        assert!(id.is_at(&other) && !id.is_at(&path));
    }
}
