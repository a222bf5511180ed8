//! Results kept between runs. Each lies beside a key of everything it was made
//! from. If the key differs, the result is made again.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use haltwise_io::write_whole;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use crate::experiment::DatasetResults;

/// A digest of bytes: tells files apart, and is no defence against forgery.
pub(super) fn digest(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

/// The digest of a file's content.
pub(super) fn file_digest(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| format!("{}: cannot read it", path.display()))?;
    Ok(digest(&bytes))
}

/// The key of a thing: the digest of a description of all it is made from.
pub(super) fn key(inputs: &impl Serialize) -> anyhow::Result<String> {
    Ok(digest(&serde_json::to_vec(inputs)?))
}

/// Writes a value as JSON, whole or not at all.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> anyhow::Result<()> {
    let mut json = serde_json::to_vec_pretty(value)?;
    json.push(b'\n');
    write_bytes(path, &json)
}

/// Writes a file, whole or not at all.
pub(super) fn write_bytes(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    Ok(write_whole(path, |out| {
        std::io::Write::write_all(out, bytes)
    })?)
}

/// Makes a folder of the output, and clears it of the unfinished files that a
/// run leaves when it is killed while it writes one. Those of the last minute may
/// belong to a run that is alive.
pub(super) fn prepare(folder: &Path) -> anyhow::Result<()> {
    let cannot = || format!("{}: cannot make the folder", folder.display());
    fs::create_dir_all(folder).with_context(cannot)?;
    for entry in fs::read_dir(folder).with_context(cannot)?.flatten() {
        let unfinished = entry
            .file_name()
            .to_string_lossy()
            .starts_with(".haltwise-");
        let modified = entry.metadata().and_then(|about| about.modified());
        let age = modified.ok().and_then(|at| at.elapsed().ok());
        if unfinished && age.is_some_and(|age| age > Duration::from_secs(60)) {
            // One that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct CachedResults {
    key: String,
    results: DatasetResults,
}

/// The results in a file, if they were made from the same.
pub(super) fn results(path: &Path, key: &str) -> anyhow::Result<Option<DatasetResults>> {
    let cached: Option<CachedResults> = read_json(path)?;
    Ok(cached.filter(|k| k.key == key).map(|k| k.results))
}

/// Keeps the results of a dataset.
pub(super) fn keep(path: &Path, key: &str, results: &DatasetResults) -> anyhow::Result<()> {
    let cached = CachedResults {
        key: key.to_owned(),
        results: results.clone(),
    };
    write_json(path, &cached)
}

/// What stands beside a file that is no JSON, such as a model: its key, and its
/// own digest, so that a file someone replaced is not taken for ours.
#[derive(Serialize, Deserialize)]
struct MadeFrom {
    key: String,
    digest: String,
}

/// Whether a file is the one that was made from the same.
pub(super) fn is_current(path: &Path, key: &str) -> anyhow::Result<bool> {
    let record: Option<MadeFrom> = read_json(&beside(path))?;
    Ok(match record {
        Some(record) if record.key == key && path.is_file() => record.digest == file_digest(path)?,
        _ => false,
    })
}

/// Records what a file was made from.
pub(super) fn record(path: &Path, key: &str) -> anyhow::Result<()> {
    let record = MadeFrom {
        key: key.to_owned(),
        digest: file_digest(path)?,
    };
    write_json(&beside(path), &record)
}

fn beside(path: &Path) -> PathBuf {
    path.with_extension("key.json")
}

/// `None` where there is no file, or one that holds something else: it is made
/// again.
fn read_json<T: for<'de> Deserialize<'de>>(path: &Path) -> anyhow::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e).with_context(|| format!("{}: cannot read it", path.display())),
    }
}
