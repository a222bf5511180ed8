//! Arrow's own format: a stream of messages, or a file around such a stream.
//!
//! This module reads the messages, and the Arrow crate only decodes them. The crate would
//! accept a stream that is cut off between two messages, and would allocate whatever a
//! packed buffer claims to unpack to.

use std::io::{BufRead, Read, Seek, SeekFrom};

use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{Message, RecordBatch as BatchMessage, root_as_message};
use arrow_schema::Schema;

use super::batches::Batches;
use super::intake::Intake;
use super::parquet::{damaged, undecodable, unharmed};
use crate::memory::{MEMORY, Memory};
use crate::npy::fill;
use crate::problem::{Checked, Problem};

/// The first and last bytes of a file around a stream.
const FILE: &[u8] = b"ARROW1";

/// The first bytes of the first version of Feather.
const FEATHER_1: &[u8] = b"FEA1";

/// The bytes before the length of every message.
const CONTINUES: [u8; 4] = [0xff; 4];

/// The end of a stream: a message without length.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

/// How many times smaller than its content a packed buffer can be. Zstandard needs at least
/// 4 bytes for each 128 KiB.
const MOST_PACKED: usize = 1 << 15;

/// How many times a message may be in memory: as stored, unpacked, and converted.
const COPIES: u64 = 4;

/// Reads a stream or a file.
pub(super) fn read<R: BufRead + Seek>(mut reader: R, intake: &mut Intake<'_>) -> Checked {
    find_stream(&mut reader)?;
    let size = intake.file_size();
    let mut decoder = StreamDecoder::new();
    let mut batches = None;
    let mut done = 0;
    loop {
        let message = read_message(&mut reader, &intake.memory)?;
        let ends = message == END;
        done += message.len() as u64;
        let mut buffer = Buffer::from_vec(message);
        while !buffer.is_empty() {
            let decoded = unharmed(|| decoder.decode(&mut buffer))?.map_err(undecodable)?;
            if let Some(batch) = decoded {
                let batches = match &mut batches {
                    Some(batches) => batches,
                    none => none.insert(Batches::find(&batch.schema(), intake.columns)?),
                };
                batches.read(&batch, intake)?;
            }
        }
        if ends {
            break;
        }
        intake.done(done, size);
    }
    match (batches, decoder.schema()) {
        (Some(batches), _) => batches.finish(intake),
        (None, Some(schema)) => Batches::find(&schema, intake.columns).map(|_| ()),
        (None, None) => Err(damaged("it has no schema")),
    }
}

/// Reads the schema, which comes first.
pub(super) fn read_schema<R: BufRead + Seek>(mut reader: R) -> Checked<Schema> {
    find_stream(&mut reader)?;
    let message = read_message(&mut reader, &Memory::new(MEMORY))?;
    let header = root_as_message(&message[END.len()..]).map_err(damaged)?;
    let schema = header.header_as_schema();
    let schema = schema.ok_or_else(|| damaged("it has no schema"))?;
    unharmed(|| try_fb_to_schema(schema))?.map_err(undecodable)
}

/// Moves to the start of the stream.
fn find_stream<R: BufRead + Seek>(reader: &mut R) -> Checked {
    let start = reader.fill_buf().map_err(undecodable)?;
    if start.starts_with(FEATHER_1) {
        return Err(Problem::unsupported(
            "it is Feather of the first version; write it again as version 2, or as Parquet",
        ));
    }
    if !start.starts_with(FILE) {
        return Ok(());
    }
    let mut end = [0; FILE.len()];
    reader
        .seek(SeekFrom::End(-(FILE.len() as i64)))
        .and_then(|_| reader.read_exact(&mut end))
        .and_then(|()| reader.seek(SeekFrom::Start(FILE.len() as u64)))
        .map_err(undecodable)?;
    if end != FILE {
        return Err(damaged("its end is missing"));
    }
    // Zeros pad the file to the first message, 8 bytes or 64.
    while reader.fill_buf().map_err(undecodable)?.first() == Some(&0) {
        reader.consume(1);
    }
    Ok(())
}

/// Reads the next message, including its length. A message is in memory as stored and
/// unpacked, and is then converted.
fn read_message(reader: &mut impl Read, memory: &Memory) -> Checked<Vec<u8>> {
    let check = |bytes: u64| memory.check("a batch of rows", bytes.saturating_mul(COPIES));
    let mut message = Vec::new();
    fill(reader, &mut message, END.len())?;
    if !message.starts_with(&CONTINUES) {
        return Err(damaged("a message does not start where it should"));
    }
    if message == END {
        return Ok(message);
    }
    let length = message.iter().skip(CONTINUES.len()).rev();
    let length = length.fold(0, |sum, &byte| sum << 8 | usize::from(byte));
    let start = message.len();
    check(length as u64)?;
    fill(reader, &mut message, start + length)?;
    let header = root_as_message(&message[start..]).map_err(damaged)?;
    let body_bytes = usize::try_from(header.bodyLength()).map_err(undecodable)?;
    let body = message.len();
    let end = body
        .checked_add(body_bytes)
        .ok_or_else(|| damaged("a message has no end"))?;
    check(end as u64)?;
    fill(reader, &mut message, end)?;
    let header = root_as_message(&message[start..body]).map_err(damaged)?;
    let unpacked = unpacked_bytes(&header, &message[body..])?;
    check(unpacked.saturating_add(end as u64))?;
    Ok(message)
}

/// The bytes that packed buffers unpack to; no buffer may claim more than is possible.
fn unpacked_bytes(header: &Message<'_>, body: &[u8]) -> Checked<u64> {
    let dictionary = header.header_as_dictionary_batch();
    let batch = header
        .header_as_record_batch()
        .or_else(|| dictionary.and_then(|d| d.data()));
    match batch {
        Some(batch) if batch.compression().is_some() => unpacked_buffers(&batch, body),
        _ => Ok(0),
    }
}

fn unpacked_buffers(batch: &BatchMessage<'_>, body: &[u8]) -> Checked<u64> {
    let mut sum = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let place = || {
            let from = usize::try_from(buffer.offset()).ok()?;
            let bytes = usize::try_from(buffer.length()).ok()?;
            body.get(from..from.checked_add(bytes)?)
        };
        let bytes = place().ok_or_else(|| damaged("a buffer lies outside its message"))?;
        let Some(claim) = bytes.first_chunk() else {
            continue;
        };
        let claim = i64::from_le_bytes(*claim);
        // −1 marks a buffer that was not worth packing.
        let most = i64::try_from(bytes.len().saturating_mul(MOST_PACKED)).unwrap_or(i64::MAX);
        if !(-1..=most).contains(&claim) {
            return Err(damaged(format_args!(
                "a buffer of {} bytes claims to unpack to {claim}",
                bytes.len()
            )));
        }
        sum = sum.saturating_add(u64::try_from(claim).unwrap_or(0));
    }
    Ok(sum)
}
