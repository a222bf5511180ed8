//! The paper's datasets: which there are, which are here, whether they are what
//! they should be, and how to import the others.

mod content;
mod import;
mod known;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use haltwise_io::series::{self, BUILTIN, Missing, Part, SeriesSet};
use serde::Serialize;

pub use content::{Content, Shape};
pub use import::{Import, Imported, import};
pub use known::{KNOWN, Known, TISELAC_PART, rank};

/// One dataset: the paper's facts about it, and the content that was read.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: String,
    /// `None` for a dataset that is not the paper's.
    #[serde(flatten)]
    pub known: Option<&'static Known>,
    /// Its place; `None` if it is not at hand.
    pub place: Option<String>,
    /// Its content, if it was read.
    pub found: Option<Content>,
    /// Whether the content is right; `None` if nothing is known to compare with.
    pub verified: Option<bool>,
    /// Why it cannot be read.
    pub problem: Option<String>,
}

/// The paper's datasets, in the order of its table, then all others in the folder,
/// which need not exist yet. With `verify`, those at hand are read and compared.
pub fn statuses(folder: Option<&Path>, verify: bool) -> anyhow::Result<Vec<Status>> {
    let present = match folder {
        Some(folder) if folder.exists() => in_folder(folder)?,
        _ => Vec::new(),
    };
    let papers = KNOWN.iter().map(|known| (known.name, Some(known)));
    let others = present.iter().filter(|name| Known::find(name).is_none());
    let all = papers.chain(others.map(|name| (&name[..], None)));
    let status = |(name, known): (&str, Option<&'static Known>)| {
        let here = folder.filter(|_| present.iter().any(|other| other == name));
        let mut status = Status {
            name: name.to_owned(),
            known,
            place: place(here, name),
            found: None,
            verified: None,
            problem: None,
        };
        if verify && status.place.is_some() {
            status.verify(here);
        }
        status
    };
    Ok(all.map(status).collect())
}

impl Status {
    /// Whether the dataset cannot be read, or is not what it should be.
    pub fn is_wrong(&self) -> bool {
        self.verified == Some(false) || self.problem.is_some()
    }

    /// Reads the dataset from the folder that holds it, or the built-in one.
    fn verify(&mut self, here: Option<&Path>) {
        match read(here, &self.name) {
            Err(problem) => self.problem = Some(problem.to_string()),
            Ok(set) => {
                let found = Content::of(&set);
                self.verified = self.known.and_then(|known| known.agrees(&found));
                self.found = Some(found);
            }
        }
    }
}

/// The place of a dataset: in the folder, which comes first, or built in.
fn place(here: Option<&Path>, name: &str) -> Option<String> {
    match here {
        Some(folder) => Some(files_of(folder, name)),
        None => BUILTIN.contains(&name).then(|| "built in".to_owned()),
    }
}

fn read(here: Option<&Path>, name: &str) -> haltwise_io::Result<SeriesSet> {
    match here {
        Some(folder) => series::read(folder.join(name), Part::Both, Missing::Refuse),
        None => series::builtin(name),
    }
}

/// The folder or the files that a dataset is in.
fn files_of(folder: &Path, name: &str) -> String {
    let own = folder.join(name);
    if own.exists() {
        return own.display().to_string();
    }
    let mut files = entries(folder).unwrap_or_default();
    files.retain(|file| file.is_file() && dataset_of(file).as_deref() == Some(name));
    files.sort();
    let names = files.iter().map(|file| file.display().to_string());
    names.collect::<Vec<_>>().join(", ")
}

/// The names of the datasets in a folder: `NAME.npz`, `NAME.ts`, `NAME.tsv`,
/// `NAME_TRAIN` files, or a folder `NAME` that holds its `NAME_TRAIN` file.
pub fn in_folder(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for path in entries(folder)? {
        if path.is_file() {
            names.extend(dataset_of(&path));
            continue;
        }
        let own = path.file_name().and_then(|name| name.to_str());
        let own = own.filter(|name| is_name(name)).map(str::to_owned);
        // A folder that may not be read holds nothing for us.
        let inside = entries(&path).unwrap_or_default();
        if own.is_some() && inside.iter().any(|file| dataset_of(file) == own) {
            names.extend(own);
        }
    }
    Ok(names.into_iter().collect())
}

fn entries(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("{}: cannot read the folder", folder.display());
    fs::read_dir(folder)
        .with_context(unreadable)?
        .map(|entry| Ok(entry.with_context(unreadable)?.path()))
        .collect()
}

/// The dataset that a file belongs to, by its name.
fn dataset_of(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    let whole = match file.extension()?.to_str()? {
        "npz" | "ts" | "tsv" => true,
        "txt" | "csv" => false,
        _ => return None,
    };
    let half = ["_TRAIN", "_TEST"]
        .iter()
        .find_map(|half| stem.strip_suffix(half));
    let name = half.or(whole.then_some(stem))?;
    is_name(name).then(|| name.to_owned())
}

/// Whether a text can be the name of a dataset, and of a file anywhere.
pub fn is_name(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !text.is_empty() && text.len() <= 100 && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_dataset_of_their_name() {
        let of = |name: &str| dataset_of(Path::new(name));
        assert_eq!(of("a/Crop.npz").as_deref(), Some("Crop"));
        assert_eq!(of("Crop_TRAIN.txt").as_deref(), Some("Crop"));
        assert_eq!(of("Crop_TEST.ts").as_deref(), Some("Crop"));
        for other in [
            "notes.txt",
            "Crop.traces.npz",
            "README.md",
            ".npz",
            "_TRAIN.ts",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn the_built_in_dataset_has_its_checksum() {
        let set = series::builtin("PenDigits").unwrap();
        let known = Known::find("PenDigits").unwrap();
        assert_eq!(known.agrees(&Content::of(&set)), Some(true));
    }
}
