//! The files in the folder of a store, by their names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// How the names of trace files begin that are not complete.
const UNFINISHED: &str = ".haltwise-";

pub(super) fn log_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("_log-{number:08}"))
}

/// The numbers of the logs in a folder.
pub(super) fn logs(folder: &Path) -> Result<Vec<u64>, Error> {
    let mut numbers = Vec::new();
    for name in names(folder)? {
        if let Some(number) = name.strip_prefix("_log-") {
            numbers.extend(number.parse::<u64>());
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The folders with trace files: this one, and those from before alarms.
pub(super) fn trace_folders(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut folders = vec![folder.to_path_buf()];
    let names = names(folder)?;
    let before = names.iter().filter(|name| name.starts_with("_before-"));
    folders.extend(before.map(|name| folder.join(name)));
    Ok(folders)
}

/// The trace files in a folder.
pub(super) fn trace_names(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut names = names(folder)?;
    names.retain(|name| name.starts_with("audits-"));
    names.sort();
    Ok(names.iter().map(|name| folder.join(name)).collect())
}

pub(super) fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let failed = |e: std::io::Error| Error::file(folder, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.push(
            entry
                .map_err(failed)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    Ok(names)
}

/// Removes the files that a server had not finished when it was killed. Nothing else does, and
/// they have answers in them.
pub(super) fn remove_unfinished(folder: &Path) -> Result<(), Error> {
    let is_unfinished = |name: &str| {
        let is_ours = name.starts_with("_log-") || name.starts_with("_audits-");
        name.starts_with(UNFINISHED) || is_ours && name.ends_with(".new")
    };
    for folder in trace_folders(folder)? {
        for name in names(&folder)?
            .into_iter()
            .filter(|name| is_unfinished(name))
        {
            let path = folder.join(name);
            // A folder there is none of ours.
            if path.is_file() {
                remove_if_there(&path).map_err(|e| Error::file(&path, e))?;
            }
        }
    }
    Ok(())
}

/// The name of a log before it has its own.
pub(super) fn beside(log: &Path) -> PathBuf {
    log.with_extension("new")
}

pub(super) fn remove_if_there(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use haltwise_io::{TraceWriter, WriteOptions};

    use super::*;

    #[test]
    fn a_trace_file_that_is_not_complete_is_known_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audits-00000001.parquet");
        let _writer = TraceWriter::create(&path, WriteOptions::default()).unwrap();
        let names = names(folder.path()).unwrap();
        assert!(
            matches!(&*names, [name] if name.starts_with(UNFINISHED)),
            "{names:?}"
        );
    }
}
