//! Which datasets there are, and where what they need comes from.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use haltwise_io::series::{self, BUILTIN, Missing, Part, SeriesSet};

use super::Args;
use crate::data::{TISELAC_PART, in_folder, is_name, rank};
use crate::show;

/// A dataset, and the files that it is made from.
#[derive(Debug)]
pub(super) struct Dataset {
    name: String,
    source: Source,
    splits: Option<PathBuf>,
}

/// Where a dataset's traces come from.
#[derive(Debug)]
pub(super) enum Source {
    /// A trace file.
    Traces(PathBuf),
    /// Sequences that a model scores.
    Series(Series),
}

/// Sequences, and what is known about their model.
#[derive(Debug)]
pub(super) struct Series {
    name: String,
    /// The data folder's, or the built-in ones.
    folder: Option<PathBuf>,
    /// Which rows are held out.
    pub(super) rows: Option<PathBuf>,
    /// A model that was trained before.
    pub(super) checkpoint: Option<PathBuf>,
}

impl Dataset {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    pub(super) fn splits_file(&self) -> Option<&Path> {
        self.splits.as_deref()
    }
}

impl Series {
    pub(super) fn is_built_in(&self) -> bool {
        self.folder.is_none()
    }

    pub(super) fn read(&self) -> anyhow::Result<SeriesSet> {
        let set = match &self.folder {
            None => series::builtin(&self.name)?,
            Some(folder) => series::read(folder.join(&self.name), Part::Both, Missing::Refuse)?,
        };
        set.check_learnable()?;
        Ok(set)
    }
}

/// Parses `NAME=FILE`.
pub(super) fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if is_name(name) && !file.is_empty() => Ok((name.into(), file.into())),
        _ => Err("give NAME=FILE, the name in letters, digits, - and _".into()),
    }
}

/// All datasets of a run, the paper's first and in its order.
pub(super) fn datasets(args: &Args) -> anyhow::Result<Vec<Dataset>> {
    check_folders(args)?;
    let mut datasets = Vec::new();
    for (name, file) in &args.traces {
        datasets.push(Dataset {
            name: name.clone(),
            source: Source::Traces(file.clone()),
            splits: companion(args.splits_from.as_deref(), name, &["splits.npz"], true)?,
        });
    }
    for (name, asked_for) in names(args)? {
        if !args.traces.iter().any(|(other, _)| *other == name) {
            datasets.push(of_series(args, name, asked_for)?);
        }
    }
    datasets.sort_by_key(|d| (rank(&d.name), d.name.clone()));
    if let Some(twice) = datasets.windows(2).find(|d| d[0].name == d[1].name) {
        bail!("{} is given twice; give it once", twice[0].name);
    }
    Ok(datasets)
}

fn check_folders(args: &Args) -> anyhow::Result<()> {
    let folders = [
        ("--data", &args.data),
        ("--checkpoints", &args.checkpoints),
        ("--splits-from", &args.splits_from),
        ("--rows-from", &args.rows_from),
    ];
    for (option, folder) in folders {
        if let Some(folder) = folder.as_ref().filter(|f| !f.is_dir()) {
            bail!(
                "{}: {option} needs a folder, and this is none",
                show::file(folder)
            );
        }
    }
    Ok(())
}

/// The names of the datasets to read sequences of, and whether each was asked
/// for by name.
fn names(args: &Args) -> anyhow::Result<Vec<(String, bool)>> {
    if !args.dataset.is_empty() {
        return args.dataset.iter().map(|name| known(args, name)).collect();
    }
    // Trace files and nothing else: these are meant, and no other.
    if !args.traces.is_empty() && args.data.is_none() && args.checkpoints.is_none() {
        return Ok(Vec::new());
    }
    let mut names: Vec<String> = BUILTIN.map(str::to_owned).into();
    if let Some(folder) = &args.data {
        names.extend(in_folder(folder)?);
    }
    names.sort();
    names.dedup();
    Ok(names.into_iter().map(|name| (name, false)).collect())
}

/// A name that was asked for, if there is such a dataset.
fn known(args: &Args, name: &str) -> anyhow::Result<(String, bool)> {
    let present = args.data.as_deref().map(in_folder).transpose()?;
    let present = present.unwrap_or_default();
    let is_there = |name: &str| present.iter().any(|other| other == name);
    let traces = args.traces.iter().any(|(other, _)| other == name);
    if traces || is_there(name) || BUILTIN.contains(&name) {
        return Ok((name.to_owned(), true));
    }
    if name == "Tiselac" && is_there(TISELAC_PART) {
        show::warn(format_args!(
            "Tiselac is not in the data folder; {TISELAC_PART}, a part of it, stands in"
        ));
        return Ok((TISELAC_PART.to_owned(), true));
    }
    match &args.data {
        Some(folder) => bail!(
            "{}: there is no dataset {name} in it; `haltwise data` says how to get it",
            show::file(folder)
        ),
        None => bail!("{name} is not built in; give the folder that holds it with --data FOLDER"),
    }
}

fn of_series(args: &Args, name: String, asked_for: bool) -> anyhow::Result<Dataset> {
    let rows_from = args.rows_from.as_deref().or(args.splits_from.as_deref());
    let here = args.data.as_deref().map(in_folder).transpose()?;
    let here = here.is_some_and(|names| names.contains(&name));
    let checkpoint = companion(
        args.checkpoints.as_deref(),
        &name,
        &["pt", "safetensors"],
        asked_for,
    )?;
    let strict = asked_for && args.rows_from.is_some();
    Ok(Dataset {
        splits: companion(
            args.splits_from.as_deref(),
            &name,
            &["splits.npz"],
            asked_for,
        )?,
        source: Source::Series(Series {
            name: name.clone(),
            folder: args.data.clone().filter(|_| here),
            rows: companion(rows_from, &name, &["rows.npz"], strict)?,
            checkpoint,
        }),
        name,
    })
}

/// The file of a dataset in a folder that was given, under the first extension
/// that there is. Where a dataset was asked for by name, its file must be
/// there; one that was merely found does without, and the report says so.
fn companion(
    folder: Option<&Path>,
    name: &str,
    extensions: &[&str],
    must: bool,
) -> anyhow::Result<Option<PathBuf>> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    let files = extensions
        .iter()
        .map(|e| folder.join(format!("{name}.{e}")));
    let found = files.clone().find(|file| file.is_file());
    if found.is_none() {
        let first = files.clone().next().context("a file has an extension")?;
        let missing = format!("{}: there is no such file", show::file(&first));
        match must {
            true => bail!("{missing}; add it, or leave the option that names its folder away"),
            false => show::warn(format_args!("{missing}; {name} does without")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_needs_a_name_that_cannot_leave_the_folder() {
        assert_eq!(
            named_file("QuALITY=a=b.npz"),
            Ok(("QuALITY".into(), "a=b.npz".into()))
        );
        for wrong in ["a.npz", "=a.npz", "../x=a.npz", "x=", "a/b=c"] {
            assert!(named_file(wrong).is_err(), "{wrong}");
        }
    }
}
