//! Parquet: batches of columns.

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;

use super::columns::Columns;
use super::intake::Intake;
use crate::problem::Problem;

/// How many bytes of values a batch should have: enough to decode in bulk,
/// little beside the traces themselves.
const BATCH_BYTES: u64 = 1 << 24;

/// Reads a Parquet file.
pub(super) fn read<R: ChunkReader + 'static>(
    reader: R,
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    let builder =
        unharmed(|| ParquetRecordBatchReaderBuilder::try_new(reader))?.map_err(damaged)?;
    let mut columns = Columns::find(builder.schema())?;
    let needed = columns.needed(builder.schema());
    let rows = row_count(builder.metadata());
    let batch_rows = batch_rows(builder.metadata());
    let mask = ProjectionMask::roots(builder.parquet_schema(), needed);
    let mut batches = unharmed(|| {
        builder
            .with_projection(mask)
            .with_batch_size(batch_rows)
            .build()
    })?
    .map_err(damaged)?;
    let mut done = 0;
    while let Some(batch) = unharmed(|| batches.next())? {
        let batch = batch.map_err(damaged)?;
        done += batch.num_rows() as u64;
        columns.read(&batch, intake)?;
        intake.done(done, rows);
    }
    columns.finish(intake)
}

fn row_count(metadata: &ParquetMetaData) -> u64 {
    u64::try_from(metadata.file_metadata().num_rows()).unwrap_or(0)
}

/// As many rows as make a batch of about [`BATCH_BYTES`].
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let groups = metadata.row_groups().iter();
    let bytes: u64 = groups.fold(0, |sum, group| {
        sum.saturating_add(u64::try_from(group.total_byte_size()).unwrap_or(0))
    });
    let per_row = bytes / row_count(metadata).max(1) + 1;
    (BATCH_BYTES / per_row).clamp(1, 1 << 16) as usize
}

pub(super) fn damaged(error: impl std::fmt::Display) -> Problem {
    Problem::new(format_args!(
        "it cannot be decoded ({error}); if it is cut short or damaged, write or copy it again"
    ))
}

/// Runs a decoder that is not ours, and that may panic on a damaged file.
pub(super) fn unharmed<T>(decode: impl FnOnce() -> T) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|_| damaged("its decoder gave up"))
}
