//! Parquet, and Arrow's own files: batches of columns.

use std::io::{BufRead, Seek};
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_ipc::reader::{FileReader, StreamReader};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;

use super::columns::Columns;
use super::intake::Intake;
use super::problem::Problem;

/// How many bytes of values a batch should have: enough to decode in bulk,
/// little beside the traces themselves.
const BATCH_BYTES: u64 = 1 << 24;

/// How a file of Arrow's begins that can be read from any place in it.
const ARROW_FILE: &[u8] = b"ARROW1";

/// How the first version of Feather began.
const FEATHER_1: &[u8] = b"FEA1";

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
    read_batches(&mut batches, rows, &mut columns, intake)?;
    columns.finish(intake)
}

fn row_count(metadata: &ParquetMetaData) -> Option<u64> {
    u64::try_from(metadata.file_metadata().num_rows()).ok()
}

/// As many rows as make a batch of about [`BATCH_BYTES`].
fn batch_rows(metadata: &ParquetMetaData) -> usize {
    let groups = metadata.row_groups().iter();
    let bytes: u64 = groups.fold(0, |sum, group| {
        sum.saturating_add(u64::try_from(group.total_byte_size()).unwrap_or(0))
    });
    let rows = row_count(metadata).unwrap_or(0);
    let per_row = bytes / rows.max(1) + 1;
    (BATCH_BYTES / per_row).clamp(1, 1 << 16) as usize
}

/// Reads a file or a stream of Arrow's.
pub(super) fn read_arrow<R: BufRead + Seek>(
    mut reader: R,
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    let start = reader.fill_buf().map_err(damaged)?;
    if start.starts_with(FEATHER_1) {
        return Err(Problem::new(
            "it is Feather of the first version; write it again as version 2, or as Parquet",
        ));
    }
    if start.starts_with(ARROW_FILE) {
        let batches = unharmed(|| FileReader::try_new(reader, None))?.map_err(damaged)?;
        let mut columns = Columns::find(&batches.schema())?;
        read_ipc(batches, &mut columns, intake)?;
        columns.finish(intake)
    } else {
        let batches = unharmed(|| StreamReader::try_new(reader, None))?.map_err(damaged)?;
        let mut columns = Columns::find(&batches.schema())?;
        read_ipc(batches, &mut columns, intake)?;
        columns.finish(intake)
    }
}

fn read_ipc(
    mut batches: impl RecordBatchReader,
    columns: &mut Columns,
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    read_batches(&mut batches, None, columns, intake)
}

fn read_batches<E: std::fmt::Display>(
    batches: &mut impl Iterator<Item = Result<RecordBatch, E>>,
    rows: Option<u64>,
    columns: &mut Columns,
    intake: &mut Intake<'_>,
) -> Result<(), Problem> {
    let mut done = 0;
    while let Some(batch) = unharmed(|| batches.next())? {
        let batch = batch.map_err(damaged)?;
        done += batch.num_rows() as u64;
        columns.read(&batch, intake)?;
        if let Some(rows) = rows {
            intake.done(done, rows);
        }
    }
    Ok(())
}

fn damaged(error: impl std::fmt::Display) -> Problem {
    Problem::new(format_args!(
        "it cannot be decoded ({error}); if it is cut short or damaged, write or copy it again"
    ))
}

/// Runs a decoder that is not ours, and that may panic on a damaged file.
fn unharmed<T>(decode: impl FnOnce() -> T) -> Result<T, Problem> {
    catch_unwind(AssertUnwindSafe(decode)).map_err(|_| damaged("its decoder gave up"))
}
