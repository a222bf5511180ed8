//! Series as NumPy arrays: `X` (n, steps, features) or (n, steps) and `y` (n);
//! optional `labels` (names, of which `y` holds positions from 0), `split`
//! (0 train, 1 test) and `lengths` (the steps of each sequence; what follows
//! them in `X` is padding).

use std::io::{Cursor, Read};

use zip::ZipArchive;
use zip::result::ZipError;

use super::draft::{ClassOrder, Draft, Missing, Problem, class_name};
use super::set::Origin;

type Result<T> = std::result::Result<T, Problem>;

/// Reads an NPZ file's content.
pub(super) fn parse(bytes: &[u8], missing: Missing) -> Result<Draft> {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).map_err(|e| {
        Problem::new(format!(
            "this is not an NPZ file, or it is damaged ({e}); write it with numpy.savez"
        ))
    })?;
    let x = required(&mut zip, "X")?;
    let y = required(&mut zip, "y")?;
    let names = optional(&mut zip, "labels")?;
    let split = optional(&mut zip, "split")?;
    let lengths = optional(&mut zip, "lengths")?;

    let (n, steps, features) = x.extent()?;
    for array in [Some(&y), split.as_ref(), lengths.as_ref()] {
        array.map_or(Ok(()), |array| array.check_one_each(n))?;
    }
    let values = x.floats()?;
    let lengths = match lengths {
        Some(array) => array.positions("more steps than X has", steps)?,
        None => vec![steps; n],
    };
    let origins = match split {
        Some(array) => array.origins()?,
        None => vec![None; n],
    };
    let (mut draft, classes) = classes(missing, &y, names.as_ref())?;
    for (i, sequence) in values.chunks_exact(steps * features).enumerate() {
        let sequence = &sequence[..lengths[i] * features];
        draft
            .push(features, sequence, classes[i], origins[i])
            .map_err(|problem| problem.inside(format!("array X, sequence {}", i + 1)))?;
    }
    Ok(draft)
}

/// A draft that knows the classes, and the class of each sequence.
fn classes(missing: Missing, y: &Array, names: Option<&Array>) -> Result<(Draft, Vec<u32>)> {
    let Some(names) = names else {
        let mut draft = Draft::new(missing, ClassOrder::Sorted);
        let classes = y.texts()?.iter().map(|name| draft.class(name)).collect();
        return Ok((draft, classes));
    };
    if names.data.is_empty() {
        return Err(names.wrong("it holds no names; name every class, or leave it out"));
    }
    let mut draft = Draft::new(missing, ClassOrder::Fixed);
    for name in names.texts()? {
        if draft.known_class(&name).is_some() {
            return Err(names.wrong(format!(
                "the name {name:?} is there twice; name each class once"
            )));
        }
        draft.class(&name);
    }
    let classes = if y.kind.is_text() {
        y.texts()?
            .iter()
            .map(|name| {
                draft.known_class(name).ok_or_else(|| {
                    y.wrong(format!(
                        "{name:?} is not among the names in labels; add it there"
                    ))
                })
            })
            .collect::<Result<_>>()?
    } else {
        let last = names.shape.iter().product::<usize>() - 1;
        y.positions("beyond the last of labels, counted from 0", last)?
            .into_iter()
            .map(|position| position as u32)
            .collect()
    };
    Ok((draft, classes))
}

type Zip<'a> = ZipArchive<Cursor<&'a [u8]>>;

fn required(zip: &mut Zip<'_>, name: &'static str) -> Result<Array> {
    optional(zip, name)?.ok_or_else(|| {
        Problem::new(format!(
            "there is no array {name}; series need X (n, steps, features) and y (n)"
        ))
    })
}

fn optional(zip: &mut Zip<'_>, name: &'static str) -> Result<Option<Array>> {
    let placed = |problem: String| Problem::at(problem, format!("array {name}"));
    match zip.by_name(&format!("{name}.npy")) {
        Ok(member) => Array::read(name, member).map(Some).map_err(placed),
        Err(ZipError::FileNotFound) => Ok(None),
        Err(e) => Err(placed(format!(
            "it cannot be unpacked ({e}); write the file again"
        ))),
    }
}

/// The types of numbers and text that a series file may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    F4,
    F8,
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    /// Text of so many UTF-32 characters.
    Wide(usize),
    /// Text of so many bytes.
    Narrow(usize),
}

impl Kind {
    fn of(descr: &str) -> Option<Self> {
        let text_length = |digits: &str| digits.parse().ok().filter(|&length| length > 0);
        Some(match descr {
            "f4" => Self::F4,
            "f8" => Self::F8,
            "i1" => Self::I1,
            "i2" => Self::I2,
            "i4" => Self::I4,
            "i8" => Self::I8,
            "u1" | "b1" => Self::U1,
            "u2" => Self::U2,
            "u4" => Self::U4,
            "u8" => Self::U8,
            _ => match descr.split_at_checked(1)? {
                ("U", digits) => Self::Wide(text_length(digits)?),
                ("S", digits) => Self::Narrow(text_length(digits)?),
                _ => return None,
            },
        })
    }

    /// Bytes per number or, in text, per character.
    fn unit(self) -> usize {
        match self {
            Self::I1 | Self::U1 | Self::Narrow(_) => 1,
            Self::I2 | Self::U2 => 2,
            Self::F4 | Self::I4 | Self::U4 | Self::Wide(_) => 4,
            Self::F8 | Self::I8 | Self::U8 => 8,
        }
    }

    /// Bytes per element.
    fn size(self) -> Option<usize> {
        match self {
            Self::Wide(length) | Self::Narrow(length) => self.unit().checked_mul(length),
            _ => Some(self.unit()),
        }
    }

    fn is_text(self) -> bool {
        matches!(self, Self::Wide(_) | Self::Narrow(_))
    }
}

/// One array, its elements in C order and little-endian.
#[derive(Debug)]
struct Array {
    name: &'static str,
    kind: Kind,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl Array {
    /// Reads an NPY stream. Memory grows with what is there, not with what the
    /// header promises.
    fn read(name: &'static str, mut from: impl Read) -> std::result::Result<Self, String> {
        let header = read_header(&mut from)?;
        let (big_endian, kind) = element_type(&header)?;
        if field(&header, "fortran_order")?.starts_with("True") {
            return Err("it is in Fortran order; save numpy.ascontiguousarray(…) of it".into());
        }
        let shape = shape(field(&header, "shape")?)?;
        let size = shape
            .iter()
            .try_fold(kind.size().unwrap_or(usize::MAX), |size, &d| {
                size.checked_mul(d)
            })
            .ok_or_else(|| format!("its shape {shape:?} is impossibly large"))?;
        let mut data = Vec::new();
        from.take(size as u64)
            .read_to_end(&mut data)
            .map_err(|e| format!("it is damaged ({e}); write the file again"))?;
        if data.len() != size {
            return Err(format!(
                "it ends after {} of {size} bytes; write the file again",
                data.len()
            ));
        }
        if big_endian {
            data.chunks_exact_mut(kind.unit()).for_each(<[u8]>::reverse);
        }
        Ok(Self {
            name,
            kind,
            shape,
            data,
        })
    }

    fn wrong(&self, problem: impl Into<String>) -> Problem {
        Problem::at(problem, format!("array {}", self.name))
    }

    fn wrong_at(&self, i: usize, problem: String) -> Problem {
        Problem::at(problem, format!("array {}, sequence {}", self.name, i + 1))
    }

    /// Sequences, steps and features of `X`.
    fn extent(&self) -> Result<(usize, usize, usize)> {
        let extent = match self.shape[..] {
            [n, steps] => (n, steps, 1),
            [n, steps, features] => (n, steps, features),
            _ => {
                return Err(self.wrong(format!(
                    "its shape is {:?}; give (n, steps, features) or (n, steps)",
                    self.shape
                )));
            }
        };
        if self.data.is_empty() {
            return Err(self.wrong(format!(
                "it holds no values (its shape is {:?}); give sequences of at least one step",
                self.shape
            )));
        }
        Ok(extent)
    }

    fn check_one_each(&self, n: usize) -> Result<()> {
        if self.shape == [n] {
            return Ok(());
        }
        Err(self.wrong(format!(
            "its shape is {:?} where X has {n} sequences; give one element for each",
            self.shape
        )))
    }

    /// The values of `X`, with NaN for those that are missing.
    fn floats(&self) -> Result<Vec<f32>> {
        let values: Vec<f32> = match self.kind {
            Kind::F4 => self.decode(f32::from_le_bytes),
            Kind::F8 => self.decode(|b| f64::from_le_bytes(b) as f32),
            Kind::U8 => self.decode(|b| u64::from_le_bytes(b) as f32),
            _ => self.integers()?.into_iter().map(|v| v as f32).collect(),
        };
        match values.iter().position(|v| v.is_infinite()) {
            None => Ok(values),
            Some(i) => {
                let each = values.len() / self.shape[0];
                let problem = "a value is not a finite number of 32 bits; correct or rescale it";
                Err(self.wrong_at(i / each, problem.into()))
            }
        }
    }

    /// Whole numbers, also where they are stored as floats.
    fn integers(&self) -> Result<Vec<i64>> {
        let whole = |value: f64| {
            // Up to 2⁵³ a float holds every whole number.
            let is_whole = value.fract() == 0.0 && value.abs() <= 2f64.powi(53);
            is_whole.then_some(value as i64)
        };
        let numbers: Option<Vec<i64>> = match self.kind {
            Kind::I1 => Some(self.decode(|b| i8::from_le_bytes(b).into())),
            Kind::I2 => Some(self.decode(|b| i16::from_le_bytes(b).into())),
            Kind::I4 => Some(self.decode(|b| i32::from_le_bytes(b).into())),
            Kind::I8 => Some(self.decode(i64::from_le_bytes)),
            Kind::U1 => Some(self.decode(|b| u8::from_le_bytes(b).into())),
            Kind::U2 => Some(self.decode(|b| u16::from_le_bytes(b).into())),
            Kind::U4 => Some(self.decode(|b| u32::from_le_bytes(b).into())),
            Kind::U8 => self.try_decode(|b| u64::from_le_bytes(b).try_into().ok()),
            Kind::F4 => self.try_decode(|b| whole(f32::from_le_bytes(b).into())),
            Kind::F8 => self.try_decode(|b| whole(f64::from_le_bytes(b))),
            Kind::Wide(_) | Kind::Narrow(_) => None,
        };
        numbers.ok_or_else(|| self.wrong("it must hold whole numbers; convert it"))
    }

    /// Whole numbers from 0 to `last`.
    fn positions(&self, beyond: &str, last: usize) -> Result<Vec<usize>> {
        let check = |(i, number): (usize, i64)| match usize::try_from(number) {
            Ok(position) if position <= last => Ok(position),
            Ok(_) => Err(self.wrong_at(i, format!("{number} is {beyond}; correct it"))),
            Err(_) => Err(self.wrong_at(i, format!("{number} is negative; correct it"))),
        };
        self.integers()?
            .into_iter()
            .enumerate()
            .map(check)
            .collect()
    }

    fn origins(&self) -> Result<Vec<Option<Origin>>> {
        let origin = |(i, number)| match number {
            0 => Ok(Some(Origin::Train)),
            1 => Ok(Some(Origin::Test)),
            _ => Err(self.wrong_at(i, format!("{number} is neither 0 (train) nor 1 (test)"))),
        };
        self.integers()?
            .into_iter()
            .enumerate()
            .map(origin)
            .collect()
    }

    /// Names of classes; numbers are names as well.
    fn texts(&self) -> Result<Vec<String>> {
        let size = self.kind.size().unwrap_or(1);
        let text = |(i, element): (usize, &[u8])| {
            let text = match self.kind {
                Kind::Wide(_) => wide(element),
                _ => String::from_utf8(element.to_vec()).ok(),
            };
            let name = text.as_deref().map(|t| t.trim_end_matches('\0').trim());
            match name {
                Some(name) if !name.is_empty() => Ok(class_name(name)),
                Some(_) => Err(self.wrong_at(i, "the name is empty; give every class one".into())),
                None => Err(self.wrong_at(i, "the name is not valid text; correct it".into())),
            }
        };
        if self.kind.is_text() {
            self.data.chunks_exact(size).enumerate().map(text).collect()
        } else {
            Ok(self.integers()?.iter().map(i64::to_string).collect())
        }
    }

    fn decode<const N: usize, T>(&self, element: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.data
            .as_chunks()
            .0
            .iter()
            .map(|&b| element(b))
            .collect()
    }

    fn try_decode<const N: usize, T>(
        &self,
        element: impl Fn([u8; N]) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.data
            .as_chunks()
            .0
            .iter()
            .map(|&b| element(b))
            .collect()
    }
}

fn wide(element: &[u8]) -> Option<String> {
    let (units, _) = element.as_chunks();
    units
        .iter()
        .map(|&unit| char::from_u32(u32::from_le_bytes(unit)))
        .collect()
}

/// The text of an NPY header: a Python dictionary of three entries.
fn read_header(from: &mut impl Read) -> std::result::Result<String, String> {
    let damaged = |_| "it is cut short; write the file again".to_string();
    let mut start = [0; 8];
    from.read_exact(&mut start).map_err(damaged)?;
    if !start.starts_with(b"\x93NUMPY") {
        return Err("it is not an NPY array; write the file with numpy.savez".into());
    }
    let length = match start[6] {
        1 => {
            let mut length = [0; 2];
            from.read_exact(&mut length).map_err(damaged)?;
            u16::from_le_bytes(length).into()
        }
        2 | 3 => {
            let mut length = [0; 4];
            from.read_exact(&mut length).map_err(damaged)?;
            u32::from_le_bytes(length)
        }
        version => return Err(format!("its NPY version {version} is not known")),
    };
    let mut header = Vec::new();
    from.take(length.into())
        .read_to_end(&mut header)
        .map_err(damaged)?;
    String::from_utf8(header).map_err(|_| "its header is not text; write the file again".into())
}

/// What follows `'key':` in the header.
fn field<'a>(header: &'a str, key: &str) -> std::result::Result<&'a str, String> {
    header
        .split_once(&format!("'{key}':"))
        .map(|(_, value)| value.trim_start())
        .ok_or_else(|| format!("its header has no {key}; write the file with numpy.savez"))
}

fn element_type(header: &str) -> std::result::Result<(bool, Kind), String> {
    let value = field(header, "descr")?;
    let descr = value.strip_prefix('\'').and_then(|v| v.split_once('\''));
    descr
        .and_then(|(descr, _)| {
            let (order, kind) = descr.split_at_checked(1)?;
            Some((order == ">", Kind::of(kind)?))
        })
        .ok_or_else(|| {
            "its element type is not supported; give numbers (float32, int64, …) or text \
             (astype(str))"
                .into()
        })
}

fn shape(value: &str) -> std::result::Result<Vec<usize>, String> {
    let inside = value.strip_prefix('(').and_then(|v| v.split_once(')'));
    inside
        .and_then(|(inside, _)| {
            let dimensions = inside.split(',').map(str::trim).filter(|d| !d.is_empty());
            dimensions.map(|d| d.parse().ok()).collect()
        })
        .ok_or_else(|| "its header has no shape; write the file with numpy.savez".into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use proptest::prelude::*;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::super::SeriesSet;
    use super::*;

    /// An array as NPY: `npy("<i8", "(2,)", …)`.
    fn npy(descr: &str, shape: &str, data: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Vec<u8> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
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
            (vec![y()], "there is no array X"),
            (
                vec![("X", floats("(2,)", &[1.0, 2.0])), y()],
                "array X: its shape is [2]",
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
                "it ends after 4 of 72 bytes",
            ),
            (
                vec![("X", floats("(99999999999, 99999999999)", &[1.0])), y()],
                "impossibly large",
            ),
            (
                vec![("X", npy("|O", "(2, 2)", [b"x"])), y()],
                "element type is not supported",
            ),
            (
                vec![("X", infinite), y()],
                "array X, sequence 2: a value is not a finite number",
            ),
            (
                vec![x(), ("y", ints(&[0]))],
                "array y: its shape is [1] where X has 2",
            ),
            (
                vec![x(), ("y", fraction)],
                "array y: it must hold whole numbers",
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
                "array labels: the name \"5\" is there twice",
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
                "array X: it is cut short",
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
            shape in "[(]?[0-9]{0,3}(, ?[0-9]{0,3}){0,3}[)]?",
            data in prop::collection::vec(any::<u8>(), 0..64),
            y in prop::collection::vec(-2i64..4, 0..4),
        ) {
            let array = npy(&descr, &shape, [data]);
            let _ = parse(&npz(&[("X", array.clone()), ("y", ints(&y))]), Missing::Fill);
            let x = floats("(2, 1)", &[1.0, 2.0]);
            let _ = parse(&npz(&[("X", x), ("y", array.clone()), ("lengths", array)]), Missing::Fill);
        }
    }
}
