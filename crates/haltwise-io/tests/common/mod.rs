//! Finds real data for tests of this crate and others.

use std::io::Write;
use std::path::PathBuf;

/// The folder of the real data, or `None`, said aloud, where there is none.
pub fn data_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("HALTWISE_DATA").map(PathBuf::from);
    let found = folder.filter(|folder| folder.is_dir());
    if found.is_none() {
        // Past the test runner, which keeps what passing tests print to itself.
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED {test}: no data; set HALTWISE_DATA"
        );
    }
    found
}
