//! Files that are nobody's business: those of a store have answers and labels in them.

use std::fs;
use std::io;
use std::path::Path;

/// Makes a folder, and those that it is in, for the user of this process alone. One that is
/// there stays as it is.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Takes a file of this process from all other users.
pub(crate) fn restrict(file: &Path) -> io::Result<()> {
    #[cfg(unix)]
    fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    #[cfg(not(unix))]
    let _ = file;
    Ok(())
}
