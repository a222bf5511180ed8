//! Real data for tests, if the machine has it.
#![allow(dead_code, unused_imports)] // not every test uses all of it

#[allow(unreachable_pub)]
#[path = "../../../haltwise-io/tests/common/mod.rs"]
mod data;

use std::path::{Path, PathBuf};

use haltwise_io::series::{Missing, Part, SeriesSet, read};
use haltwise_io::{Columns, read_integers, visit_traces};

pub(crate) use data::data_folder;

/// The rows of a dataset that `golden/NAME.rows.npz` lists under `part`; at most `limit`.
pub(crate) fn rows(name: &str, part: &str, limit: usize) -> Option<SeriesSet> {
    let folder = data_folder()?;
    let all = read(
        folder.join(format!("{name}.npz")),
        Part::Both,
        Missing::Refuse,
    )
    .unwrap();
    let list = folder.join(format!("../golden/{name}.rows.npz"));
    let picked: Vec<usize> = read_integers(&list, part)
        .unwrap()
        .values
        .iter()
        .map(|&row| row as usize)
        .take(limit)
        .collect();
    Some(all.select(&picked))
}

/// Stored traces, step after step and sequence after sequence.
#[derive(Default)]
pub(crate) struct StoredTraces {
    pub(crate) labels: Vec<u32>,
    pub(crate) predictions: Vec<u32>,
    pub(crate) scores: Vec<f32>,
}

pub(crate) fn stored_traces(path: &Path) -> StoredTraces {
    let mut all = StoredTraces::default();
    visit_traces(&[path], &Columns::default(), &mut |_, _| {}, &mut |row| {
        all.labels.extend(row.label());
        all.predictions.extend_from_slice(row.predictions());
        all.scores.extend_from_slice(row.scores());
        Ok(())
    })
    .unwrap();
    all
}
