//! The dataset that comes with Haltwise, so that a first try needs no file.

use std::io::Read;

use flate2::read::ZlibDecoder;

use super::draft::{ClassOrder, Draft, Missing};
use super::set::SeriesSet;
use crate::error::{Error, ErrorKind, Result};
use crate::memory::{MEMORY, Memory};

/// The names of the built-in datasets.
pub const BUILTIN: [&str; 1] = ["PenDigits"];

/// A built-in dataset by name, in any case.
///
/// `PenDigits` is *Pen-Based Recognition of Handwritten Digits* by E. Alpaydin
/// and F. Alimoglu (UCI Machine Learning Repository,
/// <https://doi.org/10.24432/C5MG6K>, CC BY 4.0): 10992 digits, each as 8
/// points of the pen's path with x and y from 0 to 100. Its training and test
/// rows are mixed, and not told apart.
pub fn builtin(name: &str) -> Result<SeriesSet> {
    let [pendigits_name] = BUILTIN;
    if name.eq_ignore_ascii_case(pendigits_name) {
        return pendigits(pendigits_name);
    }
    Err(Error::new(
        name,
        format_args!("there is no such built-in dataset; there is {pendigits_name}"),
    )
    .of_kind(ErrorKind::NotFound))
}

/// Unpacks the columns that `data/build_pendigits.py` packed.
fn pendigits(name: &str) -> Result<SeriesSet> {
    const ROWS: usize = 10992;
    const STEPS: usize = 8;
    const FEATURES: usize = 2;
    const COLUMNS: usize = STEPS * FEATURES;
    let damaged = || {
        let damaged = Error::new(name, "the built-in data is damaged; install Haltwise again");
        damaged.of_kind(ErrorKind::Format)
    };

    let packed: &[u8] = include_bytes!("../../data/pendigits.z");
    let mut columns = vec![0; ROWS * (COLUMNS + 1)];
    ZlibDecoder::new(packed)
        .read_exact(&mut columns)
        .map_err(|_| damaged())?;

    let mut draft = Draft::new(Missing::Refuse, ClassOrder::Fixed, Memory::new(MEMORY));
    for digit in 0..10 {
        draft.class(&digit.to_string());
    }
    for row in 0..ROWS {
        // Coordinates are in the order of the set already: x and y of point 1,
        // then of point 2.
        let values: [f32; COLUMNS] = std::array::from_fn(|c| columns[c * ROWS + row].into());
        let digit = columns[COLUMNS * ROWS + row].into();
        draft
            .push(FEATURES, &values, digit, None)
            .map_err(|_| damaged())?;
    }
    Ok(draft.finish(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{Missing, Part, read};
    use super::*;

    #[test]
    fn pendigits_has_its_published_shape() {
        let set = builtin("pendigits").unwrap();
        assert_eq!((set.name(), set.len()), ("PenDigits", 10992));
        assert_eq!((set.t_max(), set.features()), (8, 2));
        assert!(set.equal_length());
        assert!(set.values().iter().all(|v| (0.0..=100.0).contains(v)));
        let mut counts = [0; 10];
        for &label in set.labels() {
            counts[label as usize] += 1;
        }
        assert_eq!(
            counts,
            [1143, 1143, 1144, 1055, 1144, 1055, 1056, 1142, 1055, 1055]
        );
    }

    #[test]
    fn pendigits_begins_with_a_well_known_eight() {
        let set = builtin("PenDigits").unwrap();
        assert_eq!(set.labels()[0], 8);
        assert_eq!(
            set.sequence(0),
            [
                47., 100., 27., 81., 57., 37., 26., 0., 0., 23., 56., 53., 100., 90., 40., 98.
            ]
        );
    }

    #[test]
    fn another_name_is_refused() {
        let message = builtin("MNIST").unwrap_err().to_string();
        assert!(message.contains("there is PenDigits"));
    }

    /// Values as whole numbers, and the label: rows that can be sorted.
    fn rows(set: &SeriesSet) -> Vec<(Vec<i32>, u32)> {
        let row = |i| {
            let values = set.sequence(i).iter().map(|&v| v as i32).collect();
            (values, set.labels()[i])
        };
        let mut rows: Vec<_> = (0..set.len()).map(row).collect();
        rows.sort();
        rows
    }

    #[test]
    fn pendigits_holds_the_rows_of_the_archives_copy() {
        let file =
            std::env::var_os("HALTWISE_DATA").map(|f| PathBuf::from(f).join("PenDigits.npz"));
        let Some(file) = file.filter(|file| file.is_file()) else {
            // Written to stderr directly, because the test runner hides the output of
            // passing tests.
            let note = "SKIPPED pendigits_holds_the_rows_of_the_archives_copy: no data; set HALTWISE_DATA\n";
            let _ = std::io::Write::write_all(&mut std::io::stderr(), note.as_bytes());
            return;
        };
        let archive = read(file, Part::Both, Missing::Refuse).unwrap();
        assert_eq!(rows(&archive), rows(&builtin("PenDigits").unwrap()));
    }
}
