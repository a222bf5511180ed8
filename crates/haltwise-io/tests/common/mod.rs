//! Finds real data for tests of this crate and others.

use std::io::Write;
use std::path::PathBuf;

/// The folder of the real data; without one, prints a message and returns `None`.
pub fn data_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("HALTWISE_DATA").map(PathBuf::from);
    let found = folder.filter(|folder| folder.is_dir());
    if found.is_none() {
        // Written to stderr directly, because the test runner hides the output of passing
        // tests.
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: no data; set HALTWISE_DATA"
        );
    }
    found
}
