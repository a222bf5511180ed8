//! NumPy's archive of arrays, and reading arrays of integers from an archive.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use zip::ZipArchive;
use zip::result::ZipError;

use crate::error::{ErrorKind, Result};
use crate::memory::{MEMORY, Memory};
use crate::npy::{Array, out_of_range};
use crate::problem::{Checked, Problem, listed};

/// How much of an array is unpacked at a time.
const BUFFER: usize = 1 << 17;

/// An open archive.
pub(crate) struct Archive<R>(ZipArchive<R>);

impl<R: Read + Seek> Archive<R> {
    pub(crate) fn open(reader: R) -> Checked<Self> {
        ZipArchive::new(reader).map(Self).map_err(not_whole)
    }

    /// The names of the arrays.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0
            .file_names()
            .filter_map(std::result::Result::ok)
            .map(|name| name.strip_suffix(".npy").unwrap_or(&name).to_owned())
            .collect()
    }

    /// Opens an array before its first row, and reserves the memory for reading it.
    pub(crate) fn array<'a>(
        &'a mut self,
        name: &'a str,
        memory: &mut Memory,
    ) -> Checked<Array<'a>> {
        let entry = self.0.by_name(&format!("{name}.npy")).map_err(not_whole)?;
        let size = entry.size();
        let array = Array::open(name, size, BufReader::with_capacity(BUFFER, entry))?;
        array.take_memory(memory)?;
        Ok(array)
    }
}

fn not_whole(error: ZipError) -> Problem {
    let kind = match &error {
        ZipError::Io(error) => ErrorKind::of_reading(error),
        ZipError::UnsupportedArchive(_) => ErrorKind::Unsupported,
        _ => ErrorKind::Format,
    };
    Problem::new(format_args!(
        "it is not a whole .npz archive ({error}); save or copy it again"
    ))
    .of_kind(kind)
    .caused_by(error)
}

/// Names of arrays, for a message.
pub(crate) struct Listed<'a>(pub(crate) &'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(self.0.iter().map(String::as_str)))
    }
}

/// An array of integers from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integers {
    /// The length of each axis; empty for a single number.
    pub shape: Vec<usize>,
    /// The values, those along the last axis side by side.
    pub values: Vec<u32>,
}

/// Reads an array of integers from 0 in an `.npz` file: the rows or splits of
/// a dataset, for example.
///
/// It may have any number of axes, in C or Fortran order, and integers of any
/// width and byte order.
///
/// ```no_run
/// # use std::path::Path;
/// let order = haltwise_io::read_integers(Path::new("splits.npz"), "order")?;
/// for split in order.values.chunks(order.shape[1]) {
///     println!("the first row of this split is {}", split[0]);
/// }
/// # Ok::<(), haltwise_io::Error>(())
/// ```
pub fn read_integers(path: &Path, name: &str) -> Result<Integers> {
    File::open(path)
        .map_err(Problem::unreadable)
        .and_then(|file| integers(BufReader::new(file), name))
        .map_err(|problem| problem.in_file(path))
}

fn integers(reader: impl Read + Seek, name: &str) -> Checked<Integers> {
    let mut archive = Archive::open(reader)?;
    let found = archive.names();
    if !found.iter().any(|f| f == name) {
        return Err(Problem::format(format_args!(
            "there is no array {name}; found are {}",
            Listed(&found)
        )));
    }
    let mut memory = Memory::new(MEMORY);
    archive
        .array(name, &mut memory)
        .and_then(|array| all_integers(array, memory))
        .map_err(|problem| problem.at(name))
}

fn all_integers(mut array: Array<'_>, memory: Memory) -> Checked<Integers> {
    let shape = array.shape().to_vec();
    let take = array.row_values();
    // A row without values has no bytes, so a damaged file may claim any number of rows.
    let rows = if take == 0 { 0 } else { array.rows() };
    memory.check("the array", 8 * (rows as u64).saturating_mul(take as u64))?;
    let (mut row, mut values) = (Vec::new(), Vec::new());
    for i in 0..rows {
        array.advance()?;
        array.integers(take, &mut row, |k, number| {
            let problem = out_of_range(number);
            match shape.len() {
                0 => problem,
                1 => problem.at(format_args!("row {}", i + 1)),
                _ => problem.at(format_args!("row {}, value {}", i + 1, k + 1)),
            }
        })?;
        values.extend_from_slice(&row);
    }
    array.end()?;
    Ok(Integers { shape, values })
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};

    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::npy::header;

    fn archive(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in arrays {
            let options = SimpleFileOptions::default();
            zip.start_file(format!("{name}.npy"), options).unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn array(descr: &str, shape: &[usize], values: &[&[u8]]) -> Vec<u8> {
        [&header(descr, shape)[..], &values.concat()].concat()
    }

    fn read(bytes: Vec<u8>, name: &str) -> std::result::Result<Integers, String> {
        let read = integers(Cursor::new(bytes), name);
        read.map_err(|problem| problem.in_file(Path::new("toy.npz")).to_string())
    }

    #[test]
    fn any_number_of_axes_and_either_byte_order() {
        let bytes = || {
            archive(&[
                ("n_test", array("<i8", &[], &[&7_i64.to_le_bytes()])),
                ("rows", array(">u2", &[3], &[b"\0\x01\x01\0\xff\xff"])),
                ("none", array("<i8", &[4, 0], &[])),
                (
                    "cube",
                    array("|u1", &[2, 1, 2, 2], &[b"\0\x01\x02\x03\x04\x05\x06\x07"]),
                ),
            ])
        };
        for (name, shape, values) in [
            ("n_test", &[][..], &[7][..]),
            ("rows", &[3], &[1, 256, 65535]),
            ("none", &[4, 0], &[]),
            ("cube", &[2, 1, 2, 2], &[0, 1, 2, 3, 4, 5, 6, 7]),
        ] {
            let read = read(bytes(), name).unwrap();
            assert_eq!(
                (&read.shape[..], &read.values[..]),
                (shape, values),
                "{name}"
            );
        }
    }

    #[test]
    fn fortran_order_comes_out_in_c_order() {
        let dict = "{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3, 1, 2)}";
        let mut bytes = b"\x93NUMPY\x01\0".to_vec();
        bytes.extend((dict.len() as u16).to_le_bytes());
        bytes.extend(dict.as_bytes());
        // At [i, j, 0, k] lies 6 i + 2 j + k, with i running fastest.
        bytes.extend([0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11]);
        let read = read(archive(&[("a", bytes)]), "a").unwrap();
        assert_eq!(read.values, (0..12).collect::<Vec<_>>());
    }

    #[test]
    fn refusals_name_the_file_the_array_and_the_place() {
        let arrays = || {
            archive(&[
                ("order", array("|i1", &[2, 2], &[b"\x01\x02\x03\xff"])),
                ("wide", array("<u8", &[2], &[&[0; 8], &[1; 8]])),
                ("scores", array("<f4", &[1], &[&[0; 4]])),
                ("short", array("<i4", &[2], &[&[0; 4]])),
                ("vast", array("<i4", &[usize::MAX, 2], &[&[0; 4]])),
            ])
        };
        for (name, expected) in [
            (
                "orders",
                "toy.npz: there is no array orders; found are order, wide, scores, short, vast",
            ),
            (
                "order",
                "toy.npz: order, row 2, value 2: -1 is out of range; integers from 0",
            ),
            ("wide", "toy.npz: wide, row 2: 72340172838076673 is out of"),
            (
                "scores",
                "toy.npz: scores: its type is float32; integers are needed",
            ),
            ("short", "toy.npz: short: its shape (2,) does not fit its 4"),
            ("vast", "does not fit"),
        ] {
            let message = read(arrays(), name).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let message = read_integers(Path::new("absent.npz"), "a").unwrap_err();
        assert_eq!(message.to_string(), "absent.npz: there is no such file");
        let message = read(archive(&[]), "a").unwrap_err();
        assert!(message.ends_with("found are none"), "{message}");
        assert!(read(b"junk".to_vec(), "a").is_err());
    }

    #[test]
    fn a_damaged_file_cannot_claim_rows_without_end() {
        let bytes = archive(&[("a", array("<i4", &[usize::MAX, 0], &[]))]);
        assert!(read(bytes, "a").unwrap().values.is_empty());
    }

    proptest! {
        #[test]
        fn no_change_of_bytes_makes_it_panic(
            at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>(),
        ) {
            let whole = array(">i4", &[2, 2], &[&[0; 16]]);
            let at = at.index(whole.len());
            let mut bytes = whole;
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            let _ = read(archive(&[("a", bytes)]), "a");
        }
    }
}
