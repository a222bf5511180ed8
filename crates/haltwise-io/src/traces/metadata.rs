//! The metadata that is stored with traces.

#[cfg(feature = "columnar")]
use std::io::BufRead;
use std::io::{BufReader, Cursor, Read, Seek};
use std::path::Path;

#[cfg(feature = "columnar")]
use parquet::file::metadata::ParquetMetaDataReader;

#[cfg(feature = "columnar")]
use super::ChunkReader;
use super::Format;
#[cfg(feature = "columnar")]
use super::{arrow, parquet as parquet_file};
use crate::error::Result;
use crate::memory::{MEMORY, Memory};
use crate::npz::Archive;
use crate::problem::{Checked, Problem};

/// The entry that names the classifier: a JSON object of texts.
pub const CLASSIFIER: &str = "classifier";

/// Reads the metadata of a trace file that [`WriteOptions`](super::WriteOptions) stored.
/// JSONL and CSV have none.
pub fn read_metadata(path: &Path) -> Result<Vec<(String, String)>> {
    if !Format::of(path)?.has_metadata() {
        return Ok(Vec::new());
    }
    let (format, file) = Format::open(path)?;
    let read = || {
        if file.metadata().is_ok_and(|about| about.len() == 0) {
            return Err(Problem::format("it is empty"));
        }
        let again = file.try_clone().map_err(Problem::unreadable)?;
        format.metadata(BufReader::new(file), again)
    };
    read().map_err(|problem| problem.in_file(path))
}

/// Does the same for a file in memory. Messages call it `name`.
pub fn metadata_of_bytes(name: &str, bytes: &[u8]) -> Result<Vec<(String, String)>> {
    let path = Path::new(name);
    let format = Format::of(path)?;
    let read = || {
        format.refuse_another(bytes)?;
        let chunks = bytes::Bytes::copy_from_slice(bytes);
        format.metadata(Cursor::new(bytes), chunks)
    };
    read().map_err(|problem| problem.in_file(path))
}

pub(super) fn of_npz(reader: impl Read + Seek) -> Checked<Vec<(String, String)>> {
    const NAME: &str = "metadata";
    let mut archive = Archive::open(reader)?;
    if !archive.names().iter().any(|name| name == NAME) {
        return Ok(Vec::new());
    }
    let mut array = archive.array(NAME, &mut Memory::new(MEMORY))?;
    let mut text = String::new();
    // An array of that name with another shape is not ours.
    if array.rows() != 1 || array.row_values() != 1 || !array.is_text() {
        return Ok(Vec::new());
    }
    array.advance()?;
    array.text(&mut text)?;
    let fields: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&text).unwrap_or_default();
    let entry = |(key, value): (String, serde_json::Value)| Some((key, value.as_str()?.to_owned()));
    Ok(fields.into_iter().filter_map(entry).collect())
}

#[cfg(feature = "columnar")]
pub(super) fn of_parquet(file: &impl ChunkReader) -> Checked<Vec<(String, String)>> {
    let decode = || ParquetMetaDataReader::new().parse_and_finish(file);
    let metadata = parquet_file::unharmed(decode)?.map_err(parquet_file::undecodable)?;
    let pairs = metadata.file_metadata().key_value_metadata();
    let pairs = pairs.into_iter().flatten();
    Ok(pairs
        .filter_map(|pair| Some((pair.key.clone(), pair.value.clone()?)))
        .collect())
}

#[cfg(feature = "columnar")]
pub(super) fn of_arrow(reader: impl BufRead + Seek) -> Checked<Vec<(String, String)>> {
    let schema = arrow::read_schema(reader)?;
    let mut entries: Vec<_> = schema.metadata().clone().into_iter().collect();
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TraceWriter, WriteOptions};
    use haltwise::Sequence;

    #[test]
    fn metadata_is_read_back_from_every_format_that_has_a_place_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let entry = ("classifier".to_owned(), "{\"model\": \"é\\n\"}".to_owned());
        for name in ["t.npz", "t.parquet", "t.arrow", "t.jsonl", "t.csv"] {
            let path = folder.path().join(name);
            let write = |metadata| {
                let options = WriteOptions {
                    metadata,
                    ..WriteOptions::default()
                };
                let mut writer = TraceWriter::create(&path, options).unwrap();
                let sequence = Sequence {
                    predictions: Some(&[0]),
                    scores: Some(&[0.5]),
                    ..Sequence::default()
                };
                writer.write(sequence).unwrap();
                writer.finish().unwrap();
            };
            write(vec![entry.clone()]);
            let found = read_metadata(&path).unwrap();
            let has_a_place = !matches!(name, "t.jsonl" | "t.csv");
            assert_eq!(found.contains(&entry), has_a_place, "{name}");
            write(Vec::new());
            let found = read_metadata(&path).unwrap();
            assert!(found.iter().all(|(key, _)| key != "classifier"), "{name}");
        }
    }

    #[test]
    fn a_damaged_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["t.npz", "t.parquet", "t.arrow"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "not traces").unwrap();
            let error = read_metadata(&path).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
