//! Real data for tests, where the machine has it.
#![allow(dead_code)] // not every test uses all of it

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

/// The folder of the real data, or `None`, saying so.
pub(crate) fn data_folder() -> Option<PathBuf> {
    let folder = std::env::var_os("HALTWISE_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    if folder.is_dir() {
        return Some(folder);
    }
    println!(
        "skipped: no data in {} (set HALTWISE_DATA)",
        folder.display()
    );
    None
}

/// One array of an `.npz` file, and its shape.
pub(crate) fn array<T: npyz::Deserialize>(
    path: &std::path::Path,
    name: &str,
) -> (Vec<usize>, Vec<T>) {
    let file = BufReader::new(File::open(path).unwrap());
    let mut archive = npyz::npz::NpzArchive::new(file).unwrap();
    let array = archive.by_name(name).unwrap().unwrap();
    let shape = array.shape().iter().map(|d| *d as usize).collect();
    (shape, array.into_vec().unwrap())
}

/// A whole number array of whatever width.
pub(crate) fn integers(path: &std::path::Path, name: &str) -> Vec<usize> {
    let file = BufReader::new(File::open(path).unwrap());
    let mut archive = npyz::npz::NpzArchive::new(file).unwrap();
    let descr = archive.by_name(name).unwrap().unwrap().dtype().descr();
    match descr.trim_matches('\'') {
        "<i8" => array::<i64>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        "<i4" => array::<i32>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        "<i2" => array::<i16>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        "|i1" => array::<i8>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        "<u4" => array::<u32>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        "<u2" => array::<u16>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        "|u1" => array::<u8>(path, name)
            .1
            .iter()
            .map(|v| *v as usize)
            .collect(),
        other => panic!("{name} holds {other}"),
    }
}

/// Some rows of a dataset.
pub(crate) struct Rows {
    pub(crate) values: Vec<f32>,
    pub(crate) labels: Vec<u32>,
    pub(crate) steps: usize,
    pub(crate) features: usize,
}

/// The rows that `golden/NAME.rows.npz` lists under `part`, `limit` at the most.
pub(crate) fn rows(name: &str, part: &str, limit: usize) -> Option<Rows> {
    let folder = data_folder()?;
    let (shape, all) = array::<f32>(&folder.join(format!("{name}.npz")), "X");
    let labels = integers(&folder.join(format!("{name}.npz")), "y");
    let list = folder.join(format!("../golden/{name}.rows.npz"));
    let mut picked = integers(&list, part);
    picked.truncate(limit);
    let width = shape[1] * shape[2];
    let mut values = Vec::with_capacity(picked.len() * width);
    for &row in &picked {
        values.extend_from_slice(&all[row * width..(row + 1) * width]);
    }
    Some(Rows {
        values,
        labels: picked.iter().map(|&r| labels[r] as u32).collect(),
        steps: shape[1],
        features: shape[2],
    })
}
