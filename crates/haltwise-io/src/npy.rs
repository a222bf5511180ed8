//! One array of NumPy's `.npy` format, read row by row along its first axis.

use std::fmt;
use std::io::Read;

use half::f16;

use crate::error::ErrorKind;
use crate::memory::Memory;
use crate::problem::{Checked, Problem};

const MAGIC: &[u8] = b"\x93NUMPY";

/// NumPy itself refuses longer headers.
const MAX_HEADER: usize = 10_000;

/// How much is allocated ahead of the data, because a header may claim any size.
const CHUNK: usize = 1 << 20;

/// The content of an array's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) dtype: Dtype,
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<usize>,
}

/// The type of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dtype {
    /// NumPy's letter: `f`, `i`, `u`, `b`, `U`, `S`, …
    kind: char,
    big_endian: bool,
    /// Bytes per value.
    size: usize,
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.kind {
            'f' => "float",
            'i' => "int",
            'u' => "uint",
            'c' => "complex",
            'b' => return f.write_str("bool"),
            'U' => return f.write_str("str"),
            'S' => return f.write_str("bytes"),
            'O' => return f.write_str("object"),
            other => return write!(f, "{other}{}", self.size),
        };
        write!(f, "{name}{}", self.size * 8)
    }
}

impl Header {
    /// Reads the header; the values follow.
    pub(crate) fn read(reader: &mut impl Read) -> Checked<Self> {
        let mut start = [0; 8];
        read_exact(reader, &mut start)?;
        if !start.starts_with(MAGIC) {
            return Err(Problem::format("it is not an array of NumPy's"));
        }
        let width = match start[6] {
            1 => 2,
            2 | 3 => 4,
            version => {
                return Err(Problem::unsupported(format_args!(
                    "its version {version} of NumPy's format is not known; \
                     save it with numpy.savez"
                )));
            }
        };
        let mut length = [0; 4];
        read_exact(reader, &mut length[..width])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(Problem::format(format_args!(
                "its header is {length} bytes long; the file is damaged"
            )));
        }
        let mut text = vec![0; length];
        read_exact(reader, &mut text)?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Parses the Python dict literal that a header is.
    fn parse(text: &str) -> Checked<Self> {
        let value = |key: &str| {
            let after = text.split_once(&format!("'{key}':"))?.1;
            Some(after.trim_start())
        };
        let parse = || -> Option<(&str, bool, Vec<usize>)> {
            let descr = value("descr")?;
            let fortran = value("fortran_order")?.starts_with("True");
            let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
            let numbers = shape.split(',').map(str::trim).filter(|s| !s.is_empty());
            let shape = numbers.map(|s| s.parse().ok()).collect::<Option<_>>()?;
            Some((descr, fortran, shape))
        };
        let (descr, fortran, shape) = parse().ok_or_else(|| {
            Problem::format("its header cannot be understood; the file is damaged")
        })?;
        Ok(Self {
            dtype: Dtype::parse(descr)?,
            fortran,
            shape,
        })
    }

    /// How many values a row has; `None` if the number overflows.
    fn row_values(&self) -> Option<usize> {
        let mut axes = self.shape.iter().skip(1);
        axes.try_fold(1_usize, |product, &n| product.checked_mul(n))
    }

    /// How many rows there are: one if there are no axes.
    fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// How many bytes the values take.
    fn bytes(&self) -> Option<usize> {
        let values = self.row_values()?.checked_mul(self.rows())?;
        values.checked_mul(self.dtype.size)
    }
}

impl Dtype {
    fn parse(descr: &str) -> Checked<Self> {
        let unknown = || Problem::format("its type cannot be understood; save plain numbers");
        let text = descr
            .strip_prefix('\'')
            .and_then(|rest| rest.split_once('\''))
            .ok_or_else(unknown)?
            .0;
        let mut letters = text.chars();
        let order = letters.next().ok_or_else(unknown)?;
        let kind = letters.next().ok_or_else(unknown)?;
        if kind == 'O' {
            return Err(Problem::unsupported(
                "it holds Python objects, which may run code when read; save names as \
                 .astype(str), and rows of unequal length as numbers, padded, with `lengths` \
                 beside them",
            ));
        }
        // Dates carry their unit after the size.
        let digits = letters.as_str().split('[').next().unwrap_or_default();
        let count: usize = digits.parse().map_err(|_| unknown())?;
        let size = if kind == 'U' { 4 } else { 1 };
        Ok(Self {
            kind,
            big_endian: order == '>',
            size: count.checked_mul(size).ok_or_else(unknown)?,
        })
    }
}

/// Converts the first values of an array's row, with one loop per type and byte order, so
/// that the compiler can vectorise each.
macro_rules! decode {
    ($array:expr, $take:expr, $out:expr, $type:ty, $convert:expr) => {{
        let bytes = &$array.row[..$take * size_of::<$type>()];
        let values = bytes.as_chunks().0.iter();
        match $array.header.dtype.big_endian {
            true => $out.extend(values.map(|b| $convert(<$type>::from_be_bytes(*b)))),
            false => $out.extend(values.map(|b| $convert(<$type>::from_le_bytes(*b)))),
        }
    }};
}

/// An array whose rows are read one after the other.
pub(crate) struct Array<'a> {
    name: &'a str,
    header: Header,
    reader: Box<dyn Read + 'a>,
    /// The bytes of the current row.
    row: Vec<u8>,
    row_values: usize,
    next: usize,
    bytes: usize,
    /// All bytes of an array in Fortran order, where a row is not contiguous.
    whole: Vec<u8>,
}

impl<'a> Array<'a> {
    /// Reads the header and checks that the array is complete, given the size of its entry.
    pub(crate) fn open(name: &'a str, size: u64, mut reader: impl Read + 'a) -> Checked<Self> {
        let mut counted = Counted(&mut reader, 0);
        let header = Header::read(&mut counted)?;
        let left = size.saturating_sub(counted.1);
        let damaged = || {
            Problem::format(format_args!(
                "its shape {} does not fit its {left} bytes; the file is damaged, so save it again",
                Shape(&header.shape),
            ))
        };
        let row_values = header.row_values().ok_or_else(damaged)?;
        let bytes = header.bytes().ok_or_else(damaged)?;
        if bytes as u64 != left {
            return Err(damaged());
        }
        Ok(Self {
            name,
            header,
            reader: Box::new(reader),
            row: Vec::new(),
            row_values,
            next: 0,
            bytes,
            whole: Vec::new(),
        })
    }

    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// How many rows there are; an array without axes is one row of one value.
    pub(crate) fn rows(&self) -> usize {
        self.header.rows()
    }

    /// How many values each row has.
    pub(crate) fn row_values(&self) -> usize {
        self.row_values
    }

    /// How many bytes reading it takes at a time: a row as stored and as numbers of 32
    /// bits; in Fortran order all rows, because no row is contiguous.
    fn working_bytes(&self) -> u64 {
        let Dtype { size, .. } = self.header.dtype;
        let row = self.row_values.saturating_mul(size + 4) as u64;
        row.saturating_add(if self.is_held_whole() {
            self.bytes as u64
        } else {
            0
        })
    }

    /// How many bytes a row has.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.row_values.saturating_mul(self.header.dtype.size) as u64
    }

    fn is_held_whole(&self) -> bool {
        self.header.fortran && self.header.shape.len() > 1
    }

    /// Reserves the memory for reading it.
    pub(crate) fn take_memory(&self, memory: &mut Memory) -> Checked {
        let what = match self.is_held_whole() {
            true => {
                "an array in Fortran order, which is held whole (save np.ascontiguousarray of it),"
            }
            false => "a row",
        };
        memory.take(what, self.working_bytes())
    }

    /// Whether the values are text, not numbers.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.header.dtype.kind, 'U' | 'S')
    }

    /// Moves on to the next row.
    pub(crate) fn advance(&mut self) -> Checked {
        let size = self.header.dtype.size;
        self.row.clear();
        if self.is_held_whole() {
            fill(&mut self.reader, &mut self.whole, self.bytes)?;
            // An array without bytes may claim any shape, too large to iterate over.
            if self.bytes > 0 {
                let (rows, axes) = (self.rows(), &self.header.shape[1..]);
                gather(&self.whole, axes, self.next, rows, size, &mut self.row);
            }
        } else {
            fill(&mut self.reader, &mut self.row, self.row_values * size)?;
        }
        self.next += 1;
        Ok(())
    }

    /// Checks that nothing follows the last row. This also makes the archive compare its
    /// checksum.
    pub(crate) fn end(&mut self) -> Checked {
        match self.reader.read(&mut [0]).map_err(broken)? {
            0 => Ok(()),
            _ => Err(Problem::format(
                "it is longer than it says; the file is damaged",
            )),
        }
    }

    /// The first values of the row, which must be floats.
    pub(crate) fn floats(&self, take: usize, out: &mut Vec<f32>) -> Checked {
        match self.header.dtype.kind {
            'f' => self.numbers(take, out),
            _ => Err(self.not_floats()),
        }
    }

    /// The first values of the row, floats or integers, rounded to 32 bits.
    pub(crate) fn numbers(&self, take: usize, out: &mut Vec<f32>) -> Checked {
        out.clear();
        let Dtype { kind, size, .. } = self.header.dtype;
        match (kind, size) {
            ('f', 2) => decode!(self, take, out, f16, f16::to_f32),
            ('f', 4) => decode!(self, take, out, f32, |v| v),
            ('f', 8) => decode!(self, take, out, f64, |v| v as f32),
            ('i', 1) => decode!(self, take, out, i8, f32::from),
            ('i', 2) => decode!(self, take, out, i16, f32::from),
            ('i', 4) => decode!(self, take, out, i32, |v| v as f32),
            ('i', 8) => decode!(self, take, out, i64, |v| v as f32),
            ('u' | 'b', 1) => decode!(self, take, out, u8, f32::from),
            ('u', 2) => decode!(self, take, out, u16, f32::from),
            ('u', 4) => decode!(self, take, out, u32, |v| v as f32),
            ('u', 8) => decode!(self, take, out, u64, |v| v as f32),
            ('f', _) => return Err(self.not_floats()),
            _ => return Err(self.wrong_type("numbers", "np.float32")),
        }
        Ok(())
    }

    /// The first values of the row as integers from 0. The first invalid value is passed to
    /// `refuse` with its position.
    pub(crate) fn integers(
        &self,
        take: usize,
        out: &mut Vec<u32>,
        refuse: impl Fn(usize, i128) -> Problem,
    ) -> Checked {
        out.clear();
        let mut sound = true;
        // Looking for the invalid value only if there is one keeps this loop vectorised.
        macro_rules! integers {
            ($type:ty) => {
                decode!(self, take, out, $type, |v: $type| {
                    sound &= u32::try_from(v).is_ok();
                    v as u32
                })
            };
        }
        let Dtype { kind, size, .. } = self.header.dtype;
        match (kind, size) {
            ('i', 1) => integers!(i8),
            ('i', 2) => integers!(i16),
            ('i', 4) => integers!(i32),
            ('i', 8) => integers!(i64),
            ('u' | 'b', 1) => integers!(u8),
            ('u', 2) => integers!(u16),
            ('u', 4) => integers!(u32),
            ('u', 8) => integers!(u64),
            _ => return Err(self.wrong_type("integers", "np.int64")),
        }
        if sound {
            return Ok(());
        }
        let values = self.row.chunks_exact(size).take(take);
        let mut numbers = values.filter_map(|v| self.whole_number(v)).enumerate();
        match numbers.find(|&(_, number)| u32::try_from(number).is_err()) {
            Some((i, number)) => Err(refuse(i, number)),
            None => Ok(()),
        }
    }

    /// The row's single value as a class; −1 means unknown. Any other value goes to
    /// `refuse`.
    pub(crate) fn class(
        &self,
        missing: Option<i128>,
        refuse: impl Fn(i128) -> Problem,
    ) -> Checked<Option<u32>> {
        match (self.header.dtype.kind, self.whole()) {
            ('i' | 'u' | 'b', Some(number)) if Some(number) == missing => Ok(None),
            ('i' | 'u' | 'b', Some(number)) => match u32::try_from(number) {
                Ok(class) => Ok(Some(class)),
                Err(_) => Err(refuse(number)),
            },
            _ => Err(self.wrong_type("integers", "np.int64")),
        }
    }

    /// The row's single value, a float or an integer.
    pub(crate) fn number(&self) -> Checked<f64> {
        match (self.float(&self.row), self.whole()) {
            (Some(number), _) => Ok(number),
            (None, Some(number)) => Ok(number as f64),
            (None, None) => Err(self.wrong_type("numbers", "np.float64")),
        }
    }

    /// The row's single value as a whole number, even if a float holds it.
    pub(crate) fn whole(&self) -> Option<i128> {
        self.whole_number(&self.row)
    }

    fn whole_number(&self, value: &[u8]) -> Option<i128> {
        let Dtype { kind, size, .. } = self.header.dtype;
        match (kind, size) {
            ('u' | 'b', 1..) => return Some(self.bits(value)?.into()),
            ('i', 1..) => {
                // Shifting up and down again extends the sign.
                let unused = 64 - 8 * size;
                return Some((((self.bits(value)? << unused) as i64) >> unused).into());
            }
            _ => {}
        }
        let float = self.float(value)?;
        // Up to 2⁵³ a float holds every whole number.
        let is_whole = float.fract() == 0.0 && float.abs() <= 2f64.powi(53);
        is_whole.then_some(float as i128)
    }

    /// A value as a float, if it is one.
    fn float(&self, value: &[u8]) -> Option<f64> {
        let Dtype { kind, size, .. } = self.header.dtype;
        let bits = self.bits(value)?;
        match (kind, size) {
            ('f', 2) => Some(f16::from_bits(bits as u16).to_f64()),
            ('f', 4) => Some(f32::from_bits(bits as u32).into()),
            ('f', 8) => Some(f64::from_bits(bits)),
            _ => None,
        }
    }

    /// The bits of a value of at most 8 bytes.
    fn bits(&self, value: &[u8]) -> Option<u64> {
        let Dtype {
            big_endian, size, ..
        } = self.header.dtype;
        let mut bytes = [0; 8];
        let used = bytes.get_mut(..size).filter(|u| u.len() == value.len())?;
        used.copy_from_slice(value);
        if big_endian {
            used.reverse();
        }
        Some(u64::from_le_bytes(bytes))
    }

    /// The row's single value as text.
    pub(crate) fn text(&self, out: &mut String) -> Checked {
        out.clear();
        let dtype = self.header.dtype;
        let not_text = || Problem::format("it is not valid text");
        match dtype.kind {
            'U' => {
                for &code in self.row.as_chunks().0 {
                    let code = match dtype.big_endian {
                        true => u32::from_be_bytes(code),
                        false => u32::from_le_bytes(code),
                    };
                    out.push(char::from_u32(code).ok_or_else(not_text)?);
                }
            }
            'S' => out.push_str(std::str::from_utf8(&self.row).map_err(|_| not_text())?),
            kind => match self.whole() {
                Some(number) if matches!(kind, 'i' | 'u') => out.push_str(&number.to_string()),
                Some(number) if kind == 'b' => {
                    out.push_str(if number == 0 { "false" } else { "true" });
                }
                _ => return Err(self.wrong_type("strings, integers or booleans", "str")),
            },
        }
        // NumPy pads text with zeros.
        out.truncate(out.trim_end_matches('\0').len());
        Ok(())
    }

    fn not_floats(&self) -> Problem {
        self.wrong_type("float16, float32 or float64", "np.float32")
    }

    fn wrong_type(&self, wanted: &str, remedy: &str) -> Problem {
        Problem::format(format_args!(
            "its type is {}; {wanted} are needed: save {}.astype({remedy})",
            self.header.dtype, self.name
        ))
    }
}

/// Collects a part of an array in Fortran order: the values along these axes, from the one
/// at `at`. The first axis of the input runs fastest; the output has the last axis fastest.
fn gather(whole: &[u8], axes: &[usize], at: usize, stride: usize, size: usize, out: &mut Vec<u8>) {
    match axes {
        [] => out.extend_from_slice(&whole[at * size..][..size]),
        [n, rest @ ..] => {
            for i in 0..*n {
                gather(whole, rest, at + i * stride, stride * n, size, out);
            }
        }
    }
}

/// The problem of a number that is not an integer from 0.
pub(crate) fn out_of_range(number: i128) -> Problem {
    Problem::new(format_args!(
        "{number} is out of range; integers from 0 to {} are possible",
        u32::MAX
    ))
}

/// Reads until there are this many bytes, allocating no further ahead than [`CHUNK`].
pub(crate) fn fill(reader: &mut impl Read, out: &mut Vec<u8>, count: usize) -> Checked {
    while out.len() < count {
        let from = out.len();
        out.resize(count.min(from + CHUNK.max(from)), 0);
        read_exact(reader, &mut out[from..])?;
    }
    Ok(())
}

fn read_exact(reader: &mut impl Read, out: &mut [u8]) -> Checked {
    reader.read_exact(out).map_err(broken)
}

fn broken(error: std::io::Error) -> Problem {
    let problem = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Problem::new("it ends too early; the file is cut short, so save or copy it again")
        }
        _ => Problem::new(format_args!("cannot read on: {error}; the file is damaged")),
    };
    problem
        .of_kind(ErrorKind::of_reading(&error))
        .caused_by(error)
}

/// A shape as Python prints it.
pub(crate) struct Shape<'a>(pub(crate) &'a [usize]);

impl fmt::Display for Shape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        match self.0.len() {
            1 => write!(f, "({},)", numbers[0]),
            _ => write!(f, "({})", numbers.join(", ")),
        }
    }
}

struct Counted<'a, R>(&'a mut R, u64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(buffer)?;
        self.1 += n as u64;
        Ok(n)
    }
}

/// The header of an array in C order, as NumPy writes it.
pub(crate) fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
    let dict = format!(
        "{{'descr': '{descr}', 'fortran_order': False, 'shape': {}, }}",
        Shape(shape)
    );
    // The values start at a multiple of 64 bytes, after a newline.
    let used = MAGIC.len() + 4 + dict.len() + 1;
    let length = (used.next_multiple_of(64) - MAGIC.len() - 4) as u16;
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend(length.to_le_bytes());
    out.extend(dict.as_bytes());
    out.resize(MAGIC.len() + 4 + usize::from(length) - 1, b' ');
    out.push(b'\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_write_we_read() {
        let bytes = header("<f4", &[3, 4, 5]);
        assert_eq!(bytes.len() % 64, 0);
        let read = Header::read(&mut &bytes[..]).unwrap();
        assert_eq!(read.shape, [3, 4, 5]);
        assert_eq!(read.dtype.to_string(), "float32");
        assert!(!read.fortran);
    }

    #[test]
    fn headers_of_other_writers_are_understood() {
        let header = Header::parse("{'shape':(7,),'fortran_order':True,'descr':'>i2'}").unwrap();
        assert_eq!(header.shape, [7]);
        assert!(header.fortran && header.dtype.big_endian);
        assert_eq!(
            Header::parse("{'descr': '<U3', 'fortran_order': False, 'shape': (), }")
                .unwrap()
                .dtype
                .size,
            12
        );
    }

    #[test]
    fn objects_and_nonsense_are_refused() {
        let objects = Header::parse("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}");
        assert!(format!("{objects:?}").contains("Python objects"));
        for text in [
            "",
            "{}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
            "{'descr': '<f', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<U99999999999999999999', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<U9999999999999999999', 'fortran_order': False, 'shape': (2,)}",
        ] {
            assert!(Header::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_shape_of_nothing_is_not_walked_through() {
        let huge = "(1073741824, 1073741824)";
        for text in [
            format!("{{'descr': '<U0', 'fortran_order': True, 'shape': {huge}}}"),
            "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 9999999999999, 0)}".into(),
        ] {
            let length = (text.len() as u16).to_le_bytes();
            let bytes = [MAGIC, &[1, 0], &length, text.as_bytes()].concat();
            let mut array = Array::open("X", bytes.len() as u64, &bytes[..]).unwrap();
            array.advance().unwrap();
            array.end().unwrap();
        }
    }

    #[test]
    fn a_shape_that_cannot_be_is_refused_before_anything_is_allocated() {
        let huge = usize::MAX / 2;
        for shape in [&[huge, huge][..], &[1, huge], &[huge, 1]] {
            let bytes = header("<f8", shape);
            let opened = Array::open("scores", bytes.len() as u64 + 8, &bytes[..]);
            let problem = opened.map(|_| ()).unwrap_err();
            assert!(format!("{problem:?}").contains("does not fit"));
        }
    }
}
