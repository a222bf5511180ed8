//! Series as NumPy arrays: `X` (n, steps, features) or (n, steps) and `y` (n); optional
//! `labels` (names; `y` then holds positions in them, from 0), `split` (0 train, 1 test)
//! and `lengths` (the steps of each sequence; the rest in `X` is padding, and is not read).

use std::io::{Read, Seek};

use super::draft::{ClassOrder, Draft, Missing, class_name};
use super::set::Origin;
use crate::memory::Memory;
use crate::npy::{Array, Shape};
use crate::npz::{Archive, Listed};
use crate::problem::{Checked, Problem, quoted};

/// The memory of the other arrays for a sequence, in lists that double as they grow, and of
/// a class name in addition to its text.
const PER_SEQUENCE: u64 = 2 * size_of::<(u32, usize, Origin)>() as u64;
const PER_NAME: u64 = 128;

/// Reads an NPZ file. `X`, by far the largest array, is read last and sequence by sequence,
/// so that it is not in memory together with the set.
pub(super) fn read(
    reader: impl Read + Seek,
    missing: Missing,
    mut memory: Memory,
) -> Checked<Draft> {
    let mut archive = Archive::open(reader)?;
    let found = archive.names();
    check_names(&found)?;
    let has = |name: &str| found.iter().any(|f| f == name);

    let (n, steps, features) = with(&mut archive, "X", memory, |x| extent(&x))?;
    memory.take(
        "one entry for each sequence",
        PER_SEQUENCE.saturating_mul(n as u64),
    )?;
    let mut draft = Draft::new(missing, ClassOrder::Sorted, memory);
    let mut lengths = None;
    let mut origins = None;
    let named = has("labels");
    if named {
        draft = Draft::new(missing, ClassOrder::Fixed, memory);
        with(&mut archive, "labels", memory, |names| {
            check_names_fit(&names, memory)?;
            declare(names, &mut draft)
        })?;
    }
    if has("split") {
        origins = Some(with(&mut archive, "split", memory, |split| {
            one_each(split, n, |number| origin(whole(number)?))
        })?);
    }
    if has("lengths") {
        lengths = Some(with(&mut archive, "lengths", memory, |lengths| {
            let beyond = "more steps than X has";
            one_each(lengths, n, |number| position(whole(number)?, steps, beyond))
        })?);
    }
    let classes = with(&mut archive, "y", memory, |y| match named {
        true => one_each(y, n, |class| known_class(class, &draft)),
        false => {
            check_names_fit(&y, memory)?;
            one_each(y, n, |class| Ok(draft.class(&name(class)?)))
        }
    })?;

    with(&mut archive, "X", memory, |mut x| {
        let mut values = Vec::new();
        for (i, class) in classes.into_iter().enumerate() {
            let steps = lengths.as_ref().map_or(steps, |lengths| lengths[i]);
            let origin = origins.as_ref().map(|origins| origins[i]);
            x.advance()?;
            x.numbers(steps * features, &mut values)?;
            finite(&values)
                .and_then(|()| draft.push(features, &values, class, origin))
                .map_err(|problem| problem.at(format_args!("sequence {}", i + 1)))?;
        }
        x.end()?;
        Ok(draft)
    })
}

fn check_names(found: &[String]) -> Checked {
    for name in ["X", "y"] {
        if !found.iter().any(|f| f == name) {
            return Err(Problem::format(format_args!(
                "there is no array {name}; series need X (n, steps, features) and y (n); \
                 found are {}",
                Listed(found)
            )));
        }
    }
    Ok(())
}

/// Processes an array that is there.
fn with<T>(
    archive: &mut Archive<impl Read + Seek>,
    name: &str,
    mut memory: Memory,
    make: impl FnOnce(Array<'_>) -> Checked<T>,
) -> Checked<T> {
    let made = archive.array(name, &mut memory).and_then(make);
    made.map_err(|problem| problem.at(format_args!("array {name}")))
}

/// Refuses more names than fit, assuming that all differ.
fn check_names_fit(names: &Array<'_>, memory: Memory) -> Checked {
    let each = PER_NAME.saturating_add(2 * names.row_bytes());
    memory.check(
        "the names of the classes",
        each.saturating_mul(names.rows() as u64),
    )
}

/// Sequences, steps and features of `X`.
fn extent(x: &Array<'_>) -> Checked<(usize, usize, usize)> {
    let shape = Shape(x.shape());
    let extent = match *x.shape() {
        [n, steps] => (n, steps, 1),
        [n, steps, features] => (n, steps, features),
        _ => {
            return Err(Problem::format(format_args!(
                "its shape is {shape}; give (n, steps, features) or (n, steps)"
            )));
        }
    };
    if x.shape().contains(&0) {
        return Err(Problem::new(format_args!(
            "it holds no values (its shape is {shape}); give sequences of at least one step"
        )));
    }
    Ok(extent)
}

/// Refuses infinite values; NaN marks a missing one.
fn finite(values: &[f32]) -> Checked {
    match values.iter().any(|value| value.is_infinite()) {
        true => Err(Problem::new(
            "a value is not a finite number of 32 bits; correct or rescale it",
        )),
        false => Ok(()),
    }
}

/// Converts the elements of an array that has one for each of `n` sequences.
fn one_each<T>(
    array: Array<'_>,
    n: usize,
    convert: impl FnMut(&Array<'_>) -> Checked<T>,
) -> Checked<Vec<T>> {
    if array.shape() != [n] {
        return Err(Problem::conflict(format_args!(
            "its shape is {} where X has {n} sequences; give one element for each",
            Shape(array.shape())
        )));
    }
    elements(array, "sequence", convert)
}

/// Converts the elements of an array that has one axis.
fn elements<T>(
    mut array: Array<'_>,
    what: &str,
    mut convert: impl FnMut(&Array<'_>) -> Checked<T>,
) -> Checked<Vec<T>> {
    let mut out = Vec::new();
    for i in 0..array.rows() {
        array.advance()?;
        let place = |problem: Problem| problem.at(format_args!("{what} {}", i + 1));
        out.push(convert(&array).map_err(place)?);
    }
    array.end()?;
    Ok(out)
}

/// Adds the classes named by `labels`.
fn declare(names: Array<'_>, draft: &mut Draft) -> Checked {
    match *names.shape() {
        [0] => Err(Problem::new(
            "it holds no names; name every class, or leave it out",
        )),
        [_] => elements(names, "class", |element| {
            let name = name(element)?;
            match draft.known_class(&name) {
                None => Ok(draft.class(&name)),
                Some(_) => Err(Problem::new(format_args!(
                    "the name {} is there twice; name each class once",
                    quoted(&name)
                ))),
            }
        })
        .map(|_| ()),
        _ => Err(Problem::format(format_args!(
            "its shape is {}; give one name for each class",
            Shape(names.shape())
        ))),
    }
}

/// The class of an element of `y`, by name or by position in `labels`.
fn known_class(element: &Array<'_>, draft: &Draft) -> Checked<u32> {
    if element.is_text() {
        let name = name(element)?;
        return draft.known_class(&name).ok_or_else(|| {
            Problem::conflict(format_args!(
                "{} is not among the names in labels; add it there",
                quoted(&name)
            ))
        });
    }
    let beyond = "beyond the last of labels, counted from 0";
    let class = position(whole(element)?, draft.classes() - 1, beyond)?;
    Ok(class as u32)
}

fn origin(number: i128) -> Checked<Origin> {
    match number {
        0 => Ok(Origin::Train),
        1 => Ok(Origin::Test),
        _ => Err(Problem::new(format_args!(
            "{number} is neither 0 (train) nor 1 (test)"
        ))),
    }
}

/// A number from 0 to `last`.
fn position(number: i128, last: usize, beyond: &str) -> Checked<usize> {
    match usize::try_from(number) {
        Ok(position) if position <= last => Ok(position),
        _ if number < 0 => Err(Problem::new(format_args!(
            "{number} is negative; correct it"
        ))),
        _ => Err(Problem::new(format_args!(
            "{number} is {beyond}; correct it"
        ))),
    }
}

fn whole(element: &Array<'_>) -> Checked<i128> {
    element
        .whole()
        .ok_or_else(|| Problem::format("it must be a whole number; convert the array"))
}

/// The name of a class; numbers are also names.
fn name(element: &Array<'_>) -> Checked<String> {
    if !element.is_text() {
        return Ok(whole(element)?.to_string());
    }
    let mut text = String::new();
    element.text(&mut text)?;
    match text.trim() {
        "" => Err(Problem::new("the name is empty; give every class one")),
        name => Ok(class_name(name)),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write};
    use std::path::Path;

    use half::f16;
    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::super::SeriesSet;
    use super::*;
    use crate::memory::MEMORY;

    fn parse(bytes: &[u8], missing: Missing) -> Checked<Draft> {
        super::read(Cursor::new(bytes), missing, Memory::new(MEMORY))
    }

    /// An array as NPY: `npy("<i8", "(2,)", …)`.
    fn npy(descr: &str, shape: &str, data: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
        ordered("False", descr, shape, data)
    }

    fn ordered(
        fortran: &str,
        descr: &str,
        shape: &str,
        data: impl IntoIterator<Item = impl AsRef<[u8]>>,
    ) -> Vec<u8> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        let mut out = b"\x93NUMPY\x01\x00".to_vec();
        out.extend((header.len() as u16).to_le_bytes());
        out.extend(header.as_bytes());
        data.into_iter()
            .for_each(|element| out.extend(element.as_ref()));
        out
    }

    fn floats(shape: &str, values: &[f32]) -> Vec<u8> {
        npy("<f4", shape, values.iter().map(|v| v.to_le_bytes()))
    }

    fn ints(values: &[i64]) -> Vec<u8> {
        let shape = format!("({},)", values.len());
        npy("<i8", &shape, values.iter().map(|v| v.to_le_bytes()))
    }

    fn npz(arrays: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, bytes) in arrays {
            zip.start_file(format!("{name}.npy"), SimpleFileOptions::default())
                .unwrap();
            zip.write_all(bytes).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn read(arrays: &[(&str, Vec<u8>)]) -> SeriesSet {
        let draft = parse(&npz(arrays), Missing::Refuse);
        draft
            .map_err(|p| p.in_file(Path::new("toy.npz")))
            .unwrap()
            .finish("toy".into())
    }

    fn refusal(arrays: &[(&str, Vec<u8>)]) -> String {
        let problem = parse(&npz(arrays), Missing::Refuse).unwrap_err();
        problem.in_file(Path::new("toy.npz")).to_string()
    }

    #[test]
    fn three_dimensions_names_split_and_lengths() {
        let set = read(&[
            (
                "X",
                floats("(2, 2, 2)", &[1., 2., 3., 4., 5., 6., f32::NAN, 0.]),
            ),
            ("y", ints(&[1, 0])),
            (
                "labels",
                npy(">U2", "(2,)", ["\0\0\0b\0\0\0\0", "\0\0\0a\0\0\0c"]),
            ),
            ("split", npy("|u1", "(2,)", [[0u8], [1]])),
            ("lengths", ints(&[2, 1])),
        ]);
        assert_eq!(set.classes(), ["b", "ac"]);
        assert_eq!(set.labels(), [1, 0]);
        assert_eq!(set.sequence(0), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(set.sequence(1), [5.0, 6.0]);
        assert_eq!(set.origins(), [Some(Origin::Train), Some(Origin::Test)]);
    }

    #[test]
    fn two_dimensions_and_labels_that_are_values() {
        let x = npy(
            ">i2",
            "(2, 3)",
            [[0u8, 1], [0, 2], [0, 3], [255, 255], [0, 0], [1, 0]],
        );
        let set = read(&[("X", x.clone()), ("y", ints(&[10, 9]))]);
        assert_eq!(set.features(), 1);
        assert_eq!(set.values(), [1.0, 2.0, 3.0, -1.0, 0.0, 256.0]);
        assert_eq!(
            (set.classes()[0].as_str(), set.labels()),
            ("9", &[1, 0][..])
        );
        let set = read(&[("X", x), ("y", npy("|S4", "(2,)", ["walk", "run\0"]))]);
        assert_eq!(set.classes(), ["run", "walk"]);
    }

    #[test]
    fn fortran_order_and_half_precision_are_read() {
        // X[i, t, k] = 100 i + 10 t + k, with i running fastest.
        let values = [0, 100, 10, 110, 20, 120, 1, 101, 11, 111, 21, 121];
        let halves = values.map(|v: i32| f16::from_f32(v as f32).to_be_bytes());
        let x = ordered("True", ">f2", "(2, 3, 2)", halves);
        let set = read(&[("X", x), ("y", ints(&[0, 1])), ("lengths", ints(&[3, 2]))]);
        assert_eq!(set.sequence(0), [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
        assert_eq!(set.sequence(1), [100.0, 101.0, 110.0, 111.0]);
    }

    #[test]
    fn whole_numbers_may_be_stored_as_floats_or_bools() {
        let x = || ("X", floats("(2, 1)", &[1.0, 2.0]));
        let y = npy("<f8", "(2,)", [3f64.to_be_bytes(), (-3f64).to_be_bytes()]);
        let big = npy(">f8", "(2,)", [3f64.to_be_bytes(), (-3f64).to_be_bytes()]);
        assert!(refusal(&[x(), ("y", y)]).contains("array y, sequence 1"));
        assert_eq!(read(&[x(), ("y", big)]).classes(), ["-3", "3"]);
        let bools = npy("|b1", "(2,)", [[1u8], [0]]);
        let set = read(&[x(), ("y", bools.clone()), ("split", bools)]);
        assert_eq!(set.labels(), [1, 0]);
        assert_eq!(set.origins(), [Some(Origin::Test), Some(Origin::Train)]);
    }

    #[test]
    fn what_follows_a_short_sequence_is_not_looked_at() {
        let x = floats("(1, 3)", &[1.0, f32::INFINITY, f32::NAN]);
        let set = read(&[("X", x), ("y", ints(&[0])), ("lengths", ints(&[1]))]);
        assert_eq!(set.values(), [1.0]);
    }

    #[test]
    fn names_given_in_the_file_keep_their_order_even_as_numbers() {
        let x = floats("(1, 1)", &[1.0]);
        let set = read(&[("X", x), ("y", ints(&[0])), ("labels", ints(&[7, 3]))]);
        assert_eq!(set.classes(), ["7", "3"]);
    }

    #[test]
    fn what_is_malformed_is_refused_with_its_place() {
        let x = || ("X", floats("(2, 2)", &[1.0, 2.0, 3.0, 4.0]));
        let y = || ("y", ints(&[0, 1]));
        let infinite = floats("(2, 1)", &[0.0, f32::INFINITY]);
        let fraction = npy("<f8", "(2,)", [0.5f64.to_le_bytes(), 1f64.to_le_bytes()]);
        for (arrays, expected) in [
            (vec![x()], "there is no array y"),
            (vec![x()], "found are X"),
            (vec![y()], "there is no array X"),
            (
                vec![("X", floats("(2,)", &[1.0, 2.0])), y()],
                "array X: its shape is (2,)",
            ),
            (
                vec![("X", floats("(2, 0)", &[])), y()],
                "array X: it holds no values",
            ),
            (
                vec![("X", floats("(0, 3)", &[])), ("y", ints(&[]))],
                "array X: it holds no values",
            ),
            (
                vec![("X", floats("(2, 9)", &[1.0])), y()],
                "array X: its shape (2, 9) does not fit its 4 bytes",
            ),
            (
                vec![("X", floats("(99999999999, 99999999999)", &[1.0])), y()],
                "does not fit its 4 bytes",
            ),
            (
                vec![("X", npy("|O", "(2, 2)", [b"x"])), y()],
                "array X: it holds Python objects",
            ),
            (
                vec![("X", infinite), y()],
                "array X, sequence 2: a value is not a finite number",
            ),
            (
                vec![x(), ("y", ints(&[0]))],
                "array y: its shape is (1,) where X has 2",
            ),
            (
                vec![x(), ("y", fraction)],
                "array y, sequence 1: it must be a whole number",
            ),
            (
                vec![x(), y(), ("labels", ints(&[5]))],
                "array y, sequence 2: 1 is beyond",
            ),
            (
                vec![x(), y(), ("labels", ints(&[]))],
                "array labels: it holds no names",
            ),
            (
                vec![x(), y(), ("labels", ints(&[5, 5]))],
                "array labels, class 2: the name \"5\" is there twice",
            ),
            (
                vec![x(), y(), ("labels", npy("|S1", "(2, 1)", ["a", "b"]))],
                "array labels: its shape is (2, 1)",
            ),
            (
                vec![x(), ("y", npy("|S1", "(2,)", ["a", "\0"]))],
                "array y, sequence 2: the name is empty",
            ),
            (
                vec![x(), ("y", npy("|S1", "(2,)", [b"a", b"\xff"]))],
                "array y, sequence 2: it is not valid text",
            ),
            (
                vec![("X", npy("|S1", "(2, 1)", ["a", "b"])), y()],
                "array X: its type is bytes; numbers are needed",
            ),
            (
                vec![x(), y(), ("split", ints(&[0, 2]))],
                "array split, sequence 2: 2 is neither",
            ),
            (
                vec![x(), y(), ("lengths", ints(&[1, 3]))],
                "array lengths, sequence 2: 3 is more",
            ),
            (
                vec![x(), y(), ("lengths", ints(&[-1, 1]))],
                "sequence 1: -1 is negative",
            ),
            (
                vec![x(), y(), ("lengths", ints(&[0, 1]))],
                "sequence 1: the sequence has no steps",
            ),
            (
                vec![("X", b"junk".to_vec()), y()],
                "array X: it ends too early",
            ),
            (
                vec![("X", floats("(2, 1)", &[0.0, f32::NAN])), y()],
                "array X, sequence 2, channel 1, step 1: the value is missing",
            ),
        ] {
            let message = refusal(&arrays);
            assert!(message.contains(expected), "{expected:?}: {message}");
        }
        assert!(parse(b"", Missing::Refuse).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes, Missing::Fill);
        }

        #[test]
        fn no_array_makes_it_panic(
            descr in "[<>|=]?([fiubUSO][0-9]{0,2})?",
            fortran in any::<bool>(),
            shape in "[(]?[0-9]{0,3}(, ?[0-9]{0,3}){0,3}[)]?",
            data in prop::collection::vec(any::<u8>(), 0..64),
            y in prop::collection::vec(-2i64..4, 0..4),
        ) {
            let fortran = if fortran { "True" } else { "False" };
            let array = ordered(fortran, &descr, &shape, [data]);
            let _ = parse(&npz(&[("X", array.clone()), ("y", ints(&y))]), Missing::Fill);
            let x = floats("(2, 1)", &[1.0, 2.0]);
            let _ = parse(&npz(&[("X", x), ("y", array.clone()), ("lengths", array)]), Missing::Fill);
        }
    }
}
