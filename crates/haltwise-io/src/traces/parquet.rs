//! Parquet: batches of columns.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow_schema::ArrowError;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;

use super::Format;
use super::batches::Batches;
use super::columns::Columns;
use super::intake::Intake;
use crate::error::ErrorKind;
use crate::problem::Problem;

/// How many bytes of values a batch should have: enough to decode in bulk, and little
/// compared with the traces themselves.
const BATCH_BYTES: u64 = 1 << 21;

/// The memory of a list's value while it is decoded: the value and its levels.
const BYTES_PER_VALUE: u64 = 8;

/// Reads a Parquet file.
pub(super) fn read<R: ChunkReader + 'static>(
    reader: R,
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    let file = Opened::new(&reader)?;
    let all = (0..file.groups()).collect();
    file.read(reader, all, intake)
}

/// A Parquet file whose metadata was read.
#[derive(Clone)]
pub(super) struct Opened(ArrowReaderMetadata);

impl Opened {
    /// Reads the metadata of a file.
    pub(super) fn open(path: &Path) -> crate::error::Result<Self> {
        let (_, file) = Format::open(path)?;
        let opened = match parquet::file::reader::Length::len(&file) == 0 {
            true => Err(Problem::format("it is empty")),
            false => Self::new(&file),
        };
        opened.map_err(|problem| problem.in_file(path))
    }

    fn new<R: ChunkReader>(reader: &R) -> Result<Self, Problem> {
        let options = ArrowReaderOptions::default();
        let metadata = unharmed(|| ArrowReaderMetadata::load(reader, options))?;
        let opened = Self(metadata.map_err(undecodable)?);
        let in_groups = (0..opened.groups()).map(|group| opened.rows_of(group));
        let (said, found) = (opened.rows(), in_groups.fold(0, u64::saturating_add));
        if said != found {
            return Err(damaged(format_args!(
                "its metadata says {said} rows, its parts have {found}"
            )));
        }
        Ok(opened)
    }

    /// How many row groups there are.
    pub(super) fn groups(&self) -> usize {
        self.0.metadata().num_row_groups()
    }

    /// How many rows the metadata says there are.
    pub(super) fn rows(&self) -> u64 {
        row_count(self.0.metadata())
    }

    /// How many rows a row group has.
    pub(super) fn rows_of(&self, group: usize) -> u64 {
        u64::try_from(self.0.metadata().row_group(group).num_rows()).unwrap_or(0)
    }

    /// How many bytes a row group takes in the file.
    pub(super) fn bytes_of(&self, group: usize) -> u64 {
        u64::try_from(self.0.metadata().row_group(group).compressed_size()).unwrap_or(0)
    }

    /// Whether each row group can be read on its own.
    pub(super) fn groups_stand_alone(&self, columns: &Columns) -> Result<bool, Problem> {
        let schema = self.0.schema();
        Ok(Batches::find(schema, columns)?.rows_stand_alone(schema))
    }

    /// Whether a row is a step, not a sequence.
    pub(super) fn has_row_per_step(&self) -> bool {
        Batches::has_row_per_step(self.0.schema())
    }

    /// How many steps all sequences have together.
    pub(super) fn steps(&self) -> u64 {
        let mut steps = 0;
        for group in self.0.metadata().row_groups() {
            // Lists of lists have a value per class, so the other columns are tried first.
            let values = |name: &str| {
                let mut columns = group.columns().iter();
                let found =
                    columns.find(|c| c.column_path().parts().first().is_some_and(|p| p == name));
                found.map(|column| u64::try_from(column.num_values()).unwrap_or(0))
            };
            let of_group = ["scores", "predictions", "score", "probs"]
                .into_iter()
                .find_map(values);
            steps += of_group.unwrap_or(0);
        }
        steps
    }

    /// Refuses columns whose compression is not supported.
    fn check_compression(&self, groups: &[usize], needed: &[usize]) -> Result<(), Problem> {
        let metadata = self.0.metadata();
        let schema = metadata.file_metadata().schema_descr();
        for &group in groups {
            for (i, column) in metadata.row_group(group).columns().iter().enumerate() {
                let codec = column.compression();
                let unread = matches!(codec, Compression::BROTLI(_) | Compression::LZO);
                if unread && needed.contains(&schema.get_column_root_idx(i)) {
                    return Err(Problem::unsupported(format_args!(
                        "its compression is not read here ({codec}); write it again with zstd, \
                         snappy, gzip, lz4 or none"
                    )));
                }
            }
        }
        Ok(())
    }

    /// Reads some row groups.
    pub(super) fn read<R: ChunkReader + 'static>(
        &self,
        reader: R,
        groups: Vec<usize>,
        intake: &mut Intake<'_>,
    ) -> Result<(), Problem> {
        let schema = self.0.schema();
        let skipped = (0..groups.first().copied().unwrap_or(0)).map(|group| self.rows_of(group));
        let mut wanted = Batches::find(schema, intake.columns)?.after(skipped.sum());
        let needed = wanted.needed().to_vec();
        self.check_compression(&groups, &needed)?;
        let rows: u64 = groups.iter().map(|&group| self.rows_of(group)).sum();
        let metadata = self.0.metadata();
        intake.memory.check("a row", bytes_per_row(metadata))?;
        let batch_rows = batch_rows(metadata);
        let mut batches = unharmed(|| {
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(reader, self.0.clone());
            let mask = ProjectionMask::roots(builder.parquet_schema(), needed);
            builder
                .with_projection(mask)
                .with_row_groups(groups)
                .with_batch_size(batch_rows)
                .build()
        })?
        .map_err(undecodable)?;
        let mut done = 0;
        while let Some(batch) = unharmed(|| batches.next())? {
            let batch = batch.map_err(undecodable)?;
            done += batch.num_rows() as u64;
            wanted.read(&batch, intake)?;
            intake.done(done, rows);
        }
        if done != rows {
            return Err(damaged(format_args!(
                "its metadata says {rows} rows, {done} were found"
            )));
        }
        wanted.finish(intake)
    }
}

fn row_count(metadata: &ParquetMetaData) -> u64 {
    u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0)
}

/// As many rows as make a batch of about [`BATCH_BYTES`].
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    (BATCH_BYTES / bytes_per_row(metadata)).clamp(1, 1 << 16) as usize
}

/// The approximate number of bytes of a decoded row.
fn bytes_per_row(metadata: &ParquetMetaData) -> u64 {
    let size = |size: i64| u64::try_from(size).unwrap_or(0);
    let groups = metadata.row_groups().iter();
    let bytes: u64 = groups.fold(0, |sum, group| {
        // Repeated values take almost no space in the file.
        let values = group
            .columns()
            .iter()
            .map(|column| size(column.num_values()));
        let decoded = values
            .fold(0, u64::saturating_add)
            .saturating_mul(BYTES_PER_VALUE);
        sum.saturating_add(size(group.total_byte_size()).max(decoded))
    });
    bytes / row_count(metadata).max(1) + 1
}

/// A damaged file, or one with the wrong content.
pub(super) fn damaged(what: impl Display) -> Problem {
    Problem::format(format_args!(
        "it cannot be decoded ({what}); if it is cut short or damaged, write or copy it again"
    ))
}

/// The same, for the error of an external decoder.
pub(super) fn undecodable(error: impl Error + Send + Sync + 'static) -> Problem {
    damaged(&error).of_kind(kind_of(&error)).caused_by(error)
}

/// The kind of a decoder's error: the machine, an unsupported feature, or the content.
fn kind_of(error: &(dyn Error + 'static)) -> ErrorKind {
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return ErrorKind::of_reading(error);
    }
    let unknown = matches!(error.downcast_ref(), Some(ParquetError::NYI(_)))
        || matches!(error.downcast_ref(), Some(ArrowError::NotYetImplemented(_)));
    match error.source() {
        _ if unknown => ErrorKind::Unsupported,
        Some(source) => kind_of(source),
        None => ErrorKind::Format,
    }
}

/// Runs an external decoder, which may panic on a damaged file.
pub(super) fn unharmed<T>(decode: impl FnOnce() -> T) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|_| damaged("its decoder gave up"))
}

#[cfg(test)]
mod tests {
    use haltwise::Sequence;

    use super::*;
    use crate::{TraceWriter, WriteOptions};

    #[test]
    fn values_that_repeat_make_no_large_batches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("same.parquet");
        let mut writer = TraceWriter::create(&path, WriteOptions::default()).unwrap();
        let steps = 100_000;
        for _ in 0..20 {
            let sequence = Sequence {
                label: Some(0),
                predictions: Some(&vec![0; steps]),
                scores: Some(&vec![0.5; steps]),
                ..Sequence::default()
            };
            writer.write(sequence).unwrap();
        }
        writer.finish().unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 20_000);
        let opened = Opened::open(&path).unwrap();
        let per_batch = batch_rows(opened.0.metadata()) * steps * 2 * 4;
        assert!(per_batch as u64 <= BATCH_BYTES, "{per_batch}");
    }
}
