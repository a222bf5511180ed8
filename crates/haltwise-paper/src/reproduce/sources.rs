//! The datasets of a run, and the source of their traces, models and splits.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use haltwise_io::series::{self, BUILTIN, Missing, Part, SeriesSet};

use super::{Event, Listener, Options};
use crate::datasets::{TISELAC_PART, in_folder, is_name, rank};

/// A dataset, and the files that it is made from.
#[derive(Debug)]
pub(super) struct Dataset {
    name: String,
    source: TracesFrom,
    splits: Option<PathBuf>,
}

/// The origin of a dataset's traces.
#[derive(Debug)]
pub(super) enum TracesFrom {
    /// A trace file.
    Traces(PathBuf),
    /// Sequences that a model scores.
    Series(Series),
}

/// Sequences, and the options for their model.
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

    pub(super) fn source(&self) -> &TracesFrom {
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
pub fn named_file(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if is_name(name) && !file.is_empty() => Ok((name.into(), file.into())),
        _ => Err("give NAME=FILE, the name in letters, digits, - and _".into()),
    }
}

/// All datasets of a run, the paper's first and in its order.
pub(super) fn datasets(options: &Options, tell: &Listener<'_>) -> anyhow::Result<Vec<Dataset>> {
    check_folders(options)?;
    let mut datasets = Vec::new();
    for (name, file) in &options.traces {
        datasets.push(Dataset {
            name: name.clone(),
            source: TracesFrom::Traces(file.clone()),
            splits: companion(
                options.splits_from.as_deref(),
                name,
                &["splits.npz"],
                true,
                tell,
            )?,
        });
    }
    for (name, asked_for) in names(options, tell)? {
        if !options.traces.iter().any(|(other, _)| *other == name) {
            datasets.push(of_series(options, name, asked_for, tell)?);
        }
    }
    datasets.sort_by_key(|d| (rank(&d.name), d.name.clone()));
    if let Some(twice) = datasets.windows(2).find(|d| d[0].name == d[1].name) {
        bail!("{} is given twice; give it once", twice[0].name);
    }
    Ok(datasets)
}

fn check_folders(options: &Options) -> anyhow::Result<()> {
    let folders = [
        ("--data", &options.data),
        ("--checkpoints", &options.checkpoints),
        ("--splits-from", &options.splits_from),
        ("--rows-from", &options.rows_from),
    ];
    for (option, folder) in folders {
        if let Some(folder) = folder.as_ref().filter(|f| !f.is_dir()) {
            bail!(
                "{}: {option} needs a folder, and this is none",
                folder.display()
            );
        }
    }
    Ok(())
}

/// The names of the datasets to read sequences of, and whether each was asked
/// for by name.
fn names(options: &Options, tell: &Listener<'_>) -> anyhow::Result<Vec<(String, bool)>> {
    if !options.datasets.is_empty() {
        return options
            .datasets
            .iter()
            .map(|name| known(options, name, tell))
            .collect();
    }
    // Trace files and nothing else: these are meant, and no other.
    if !options.traces.is_empty() && options.data.is_none() && options.checkpoints.is_none() {
        return Ok(Vec::new());
    }
    let mut names: Vec<String> = BUILTIN.map(str::to_owned).into();
    if let Some(folder) = &options.data {
        names.extend(in_folder(folder)?);
    }
    names.sort();
    names.dedup();
    Ok(names.into_iter().map(|name| (name, false)).collect())
}

/// A name that was asked for, if there is such a dataset.
fn known(options: &Options, name: &str, tell: &Listener<'_>) -> anyhow::Result<(String, bool)> {
    let present = options.data.as_deref().map(in_folder).transpose()?;
    let present = present.unwrap_or_default();
    let is_there = |name: &str| present.iter().any(|other| other == name);
    let traces = options.traces.iter().any(|(other, _)| other == name);
    if traces || is_there(name) || BUILTIN.contains(&name) {
        return Ok((name.to_owned(), true));
    }
    if name == "Tiselac" && is_there(TISELAC_PART) {
        tell(Event::Warning(format!(
            "Tiselac is not in the data folder; {TISELAC_PART}, a part of it, stands in"
        )));
        return Ok((TISELAC_PART.to_owned(), true));
    }
    match &options.data {
        Some(folder) => bail!(
            "{}: there is no dataset {name} in it; `haltwise data` says how to get it",
            folder.display()
        ),
        None => bail!("{name} is not built in; give the folder that holds it with --data FOLDER"),
    }
}

fn of_series(
    options: &Options,
    name: String,
    asked_for: bool,
    tell: &Listener<'_>,
) -> anyhow::Result<Dataset> {
    let rows_from = options
        .rows_from
        .as_deref()
        .or(options.splits_from.as_deref());
    let here = options.data.as_deref().map(in_folder).transpose()?;
    let here = here.is_some_and(|names| names.contains(&name));
    let checkpoint = companion(
        options.checkpoints.as_deref(),
        &name,
        &["pt", "safetensors"],
        asked_for,
        tell,
    )?;
    let strict = asked_for && options.rows_from.is_some();
    Ok(Dataset {
        splits: companion(
            options.splits_from.as_deref(),
            &name,
            &["splits.npz"],
            asked_for,
            tell,
        )?,
        source: TracesFrom::Series(Series {
            name: name.clone(),
            folder: options.data.clone().filter(|_| here),
            rows: companion(rows_from, &name, &["rows.npz"], strict, tell)?,
            checkpoint,
        }),
        name,
    })
}

/// The file of a dataset in the given folder, under the first extension that
/// exists. A dataset that was asked for by name must have one. A dataset that was
/// merely found does without, and the report says so.
fn companion(
    folder: Option<&Path>,
    name: &str,
    extensions: &[&str],
    must: bool,
    tell: &Listener<'_>,
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
        let missing = format!("{}: there is no such file", first.display());
        match must {
            true => bail!("{missing}; add it, or leave the option that names its folder away"),
            false => tell(Event::Warning(format!("{missing}; {name} does without"))),
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
