//! One array of NumPy's `.npy` format, read row by row along its first axis.

use std::fmt;
use std::io::Read;

use half::f16;

use super::classes::Classes;
use super::problem::Problem;

const MAGIC: &[u8] = b"\x93NUMPY";

/// NumPy itself refuses longer headers.
const MAX_HEADER: usize = 10_000;

/// How much is allocated ahead of the data: a header may claim anything.
const CHUNK: usize = 1 << 20;

/// What an array's header says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) dtype: Dtype,
    pub(super) fortran: bool,
    pub(super) shape: Vec<usize>,
}

/// The type of an array's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dtype {
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
    pub(super) fn read(reader: &mut impl Read) -> Result<Self, Problem> {
        let mut start = [0; 8];
        read_exact(reader, &mut start)?;
        if !start.starts_with(MAGIC) {
            return Err(Problem::new("it is not an array of NumPy's"));
        }
        let mut length = [0; 4];
        let wide = start[6] >= 2;
        read_exact(reader, &mut length[..if wide { 4 } else { 2 }])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MAX_HEADER {
            return Err(Problem::new(format_args!(
                "its header is {length} bytes long; the file is damaged"
            )));
        }
        let mut text = vec![0; length];
        read_exact(reader, &mut text)?;
        Self::parse(&String::from_utf8_lossy(&text))
    }

    /// Parses the Python dict literal that a header is.
    fn parse(text: &str) -> Result<Self, Problem> {
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
        let (descr, fortran, shape) = parse()
            .ok_or_else(|| Problem::new("its header cannot be understood; the file is damaged"))?;
        Ok(Self {
            dtype: Dtype::parse(descr)?,
            fortran,
            shape,
        })
    }

    /// How many values a row has; `None` where that cannot be counted.
    fn row_values(&self) -> Option<usize> {
        self.shape
            .iter()
            .skip(1)
            .try_fold(1_usize, |product, &n| product.checked_mul(n))
    }

    /// How many bytes the values take.
    fn bytes(&self) -> Option<u64> {
        let rows = *self.shape.first()?;
        let values = self.row_values()?.checked_mul(rows)?;
        u64::try_from(values.checked_mul(self.dtype.size)?).ok()
    }
}

impl Dtype {
    fn parse(descr: &str) -> Result<Self, Problem> {
        let unknown = || Problem::new("its type cannot be understood; save plain numbers");
        let text = descr
            .strip_prefix('\'')
            .and_then(|rest| rest.split_once('\''))
            .ok_or_else(unknown)?
            .0;
        let mut letters = text.chars();
        let order = letters.next().ok_or_else(unknown)?;
        let kind = letters.next().ok_or_else(unknown)?;
        if kind == 'O' {
            return Err(Problem::new(
                "it holds Python objects, which may run code when read; \
                 save rows of equal length as numbers, padded, with `lengths` beside them",
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

/// An array whose rows are read one after the other.
pub(super) struct Array<'a> {
    name: &'static str,
    header: Header,
    rows: Rows<'a>,
    /// The bytes of the row under way.
    row: Vec<u8>,
    row_values: usize,
    next: usize,
}

enum Rows<'a> {
    /// In C order rows lie one after the other.
    Stream(Box<dyn Read + 'a>),
    /// In Fortran order they lie across the array, which is loaded whole.
    Whole(Vec<u8>),
}

impl<'a> Array<'a> {
    /// Reads the header and checks that the array has this many axes and,
    /// given the size of its entry, is all there.
    pub(super) fn open(
        name: &'static str,
        axes: &'static [&'static str],
        size: u64,
        mut reader: impl Read + 'a,
    ) -> Result<Self, Problem> {
        let mut counted = Counted(&mut reader, 0);
        let header = Header::read(&mut counted)?;
        let header_bytes = counted.1;
        if header.shape.len() != axes.len() {
            return Err(Problem::new(format_args!(
                "its shape is {}; ({}) is needed",
                Shape(&header.shape),
                axes.join(", ")
            )));
        }
        let damaged = || {
            Problem::new(format_args!(
                "its shape {} does not fit its {} bytes; the file is damaged, so save it again",
                Shape(&header.shape),
                size.saturating_sub(header_bytes)
            ))
        };
        let bytes = header.bytes().ok_or_else(damaged)?;
        if bytes.checked_add(header_bytes) != Some(size) {
            return Err(damaged());
        }
        let row_values = header.row_values().ok_or_else(damaged)?;
        let rows = if header.fortran && axes.len() > 1 {
            let mut whole = Vec::new();
            fill(&mut reader, &mut whole, bytes as usize)?;
            Rows::Whole(whole)
        } else {
            Rows::Stream(Box::new(reader))
        };
        Ok(Self {
            name,
            header,
            rows,
            row: Vec::new(),
            row_values,
            next: 0,
        })
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.header.shape
    }

    /// Moves on to the next row.
    pub(super) fn advance(&mut self) -> Result<(), Problem> {
        let size = self.header.dtype.size;
        match &mut self.rows {
            Rows::Stream(reader) => {
                self.row.clear();
                fill(reader, &mut self.row, self.row_values * size)?;
            }
            Rows::Whole(whole) => {
                self.row.clear();
                gather(whole, &self.header.shape, self.next, size, &mut self.row);
            }
        }
        self.next += 1;
        Ok(())
    }

    /// Checks that nothing follows the last row, which also makes the archive
    /// compare its checksum.
    pub(super) fn end(&mut self) -> Result<(), Problem> {
        if let Rows::Stream(reader) = &mut self.rows {
            let mut more = [0];
            let n = reader.read(&mut more).map_err(broken)?;
            if n > 0 {
                return Err(Problem::new(
                    "it is longer than it says; the file is damaged",
                ));
            }
        }
        Ok(())
    }

    /// The first values of the row as floats.
    pub(super) fn floats(&self, take: usize, out: &mut Vec<f32>) -> Result<(), Problem> {
        let Dtype {
            kind,
            big_endian,
            size,
        } = self.header.dtype;
        out.clear();
        let bytes = &self.row[..take * size];
        // One loop per type and byte order, each of which the compiler widens.
        macro_rules! decode {
            ($type:ty, $to_f32:expr) => {{
                let values = bytes.as_chunks().0.iter();
                match big_endian {
                    true => out.extend(values.map(|b| $to_f32(<$type>::from_be_bytes(*b)))),
                    false => out.extend(values.map(|b| $to_f32(<$type>::from_le_bytes(*b)))),
                }
            }};
        }
        match (kind, size) {
            ('f', 2) => decode!(f16, f16::to_f32),
            ('f', 4) => decode!(f32, |v| v),
            ('f', 8) => decode!(f64, |v| v as f32),
            _ => return Err(self.wrong_type("float16, float32 or float64", "np.float32")),
        }
        Ok(())
    }

    /// The first values of the row as integers from 0.
    pub(super) fn integers(&self, take: usize, out: &mut Vec<u32>) -> Result<(), Problem> {
        let Dtype {
            kind,
            big_endian,
            size,
        } = self.header.dtype;
        out.clear();
        let bytes = &self.row[..take * size];
        let mut bad = None;
        macro_rules! decode {
            ($type:ty) => {{
                let mut sound = true;
                let mut convert = |v: $type| {
                    sound &= u32::try_from(v).is_ok();
                    v as u32
                };
                let values = bytes.as_chunks().0;
                let read = match big_endian {
                    true => <$type>::from_be_bytes,
                    false => <$type>::from_le_bytes,
                };
                match big_endian {
                    true => out.extend(values.iter().map(|b| convert(<$type>::from_be_bytes(*b)))),
                    false => out.extend(values.iter().map(|b| convert(<$type>::from_le_bytes(*b)))),
                }
                if !sound {
                    let mut all = values.iter().map(|b| read(*b)).enumerate();
                    bad = all
                        .find(|&(_, v)| u32::try_from(v).is_err())
                        .map(|(t, v)| (t, i128::from(v)));
                }
            }};
        }
        match (kind, size) {
            ('i', 1) => decode!(i8),
            ('i', 2) => decode!(i16),
            ('i', 4) => decode!(i32),
            ('i', 8) => decode!(i64),
            ('u' | 'b', 1) => decode!(u8),
            ('u', 2) => decode!(u16),
            ('u', 4) => decode!(u32),
            ('u', 8) => decode!(u64),
            _ => return Err(self.wrong_type("integers", "np.int64")),
        }
        match bad {
            None => Ok(()),
            Some((t, value)) if self.header.shape.len() > 1 => {
                Err(Classes::not_a_class(value).at(format_args!("step {}", t + 1)))
            }
            Some((_, value)) => Err(Problem::new(format_args!(
                "{value} is out of range; integers from 0 to {} are possible",
                u32::MAX
            ))),
        }
    }

    /// The row's one value as text.
    pub(super) fn text(&self, out: &mut String) -> Result<(), Problem> {
        out.clear();
        let dtype = self.header.dtype;
        let not_text = || Problem::new("it is not valid text");
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
            'i' | 'u' if dtype.size <= 8 => {
                let mut bytes = self.row.clone();
                if dtype.big_endian {
                    bytes.reverse();
                }
                let negative = dtype.kind == 'i' && bytes.last().is_some_and(|b| b & 0x80 != 0);
                bytes.resize(16, if negative { 0xff } else { 0 });
                let number = bytes.try_into().map_or(0, i128::from_le_bytes);
                out.push_str(&number.to_string());
            }
            _ => return Err(self.wrong_type("strings or integers", "str")),
        }
        // NumPy pads text with zeros.
        out.truncate(out.trim_end_matches('\0').len());
        Ok(())
    }

    fn wrong_type(&self, wanted: &str, remedy: &str) -> Problem {
        Problem::new(format_args!(
            "its type is {}; {wanted} are needed: save {}.astype({remedy})",
            self.header.dtype, self.name
        ))
    }
}

/// Collects one row of an array in Fortran order. The first axis runs fastest,
/// the last slowest; out they come the other way round.
fn gather(whole: &[u8], shape: &[usize], row: usize, size: usize, out: &mut Vec<u8>) {
    let rows = shape[0];
    let steps = shape.get(1).copied().unwrap_or(1);
    let classes = shape.get(2).copied().unwrap_or(1);
    for t in 0..steps {
        for k in 0..classes {
            let at = (row + rows * (t + steps * k)) * size;
            out.extend_from_slice(&whole[at..at + size]);
        }
    }
}

/// Reads until there are this many bytes, allocating no further ahead than [`CHUNK`].
pub(super) fn fill(reader: &mut impl Read, out: &mut Vec<u8>, count: usize) -> Result<(), Problem> {
    while out.len() < count {
        let from = out.len();
        out.resize(count.min(from + CHUNK.max(from)), 0);
        read_exact(reader, &mut out[from..])?;
    }
    Ok(())
}

fn read_exact(reader: &mut impl Read, out: &mut [u8]) -> Result<(), Problem> {
    reader.read_exact(out).map_err(broken)
}

fn broken(error: std::io::Error) -> Problem {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Problem::new("it ends too early; the file is cut short, so save or copy it again")
        }
        _ => Problem::new(format_args!("cannot read on: {error}; the file is damaged")),
    }
}

/// A shape as Python prints it.
pub(super) struct Shape<'a>(pub(super) &'a [usize]);

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
pub(super) fn header(descr: &str, shape: &[usize]) -> Vec<u8> {
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
    fn a_shape_that_cannot_be_is_refused_before_anything_is_allocated() {
        let huge = usize::MAX / 2;
        for shape in [&[huge, huge][..], &[1, huge], &[huge, 1]] {
            let bytes = header("<f8", shape);
            let opened = Array::open("scores", &["n", "T"], bytes.len() as u64 + 8, &bytes[..]);
            let problem = opened.map(|_| ()).unwrap_err();
            assert!(format!("{problem:?}").contains("does not fit"));
        }
    }
}
