//! Text as bytes in order, packed or not, with a count of those read from the file.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Error, Read, Result};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

/// How much is read at a time.
const BUFFER: usize = 1 << 18;

/// A text file being read.
pub(super) struct Text<'a> {
    pub(super) reader: Box<dyn BufRead + 'a>,
    /// How many bytes of the file were read, before unpacking.
    pub(super) read: Rc<Cell<u64>>,
    /// How many bytes may still be read, after unpacking.
    allowance: Allowance,
}

/// How many bytes may still be read, for parsers without a bound of their own.
#[derive(Clone)]
pub(super) struct Allowance(Rc<Cell<u64>>);

impl Allowance {
    /// Allows this many more bytes, and those that a buffer may already hold.
    pub(super) fn allow(&self, bytes: u64) {
        self.0.set(bytes.saturating_add(BUFFER as u64));
    }

    /// Whether all allowed bytes were read.
    pub(super) fn is_used_up(&self) -> bool {
        self.0.get() == 0
    }
}

impl<'a> Text<'a> {
    pub(super) fn plain(reader: impl Read + 'a) -> Self {
        Self::new(reader, |counted| {
            Box::new(BufReader::with_capacity(BUFFER, counted))
        })
    }

    pub(super) fn gzipped(reader: impl Read + 'a) -> Self {
        Self::new(reader, |counted| {
            let packed = BufReader::with_capacity(BUFFER, counted);
            let plain = MultiGzDecoder::new(packed);
            Box::new(BufReader::with_capacity(BUFFER, plain))
        })
    }

    fn new<R: Read>(reader: R, wrap: impl FnOnce(Counted<R>) -> Box<dyn BufRead + 'a>) -> Self {
        let read = Rc::new(Cell::new(0));
        let counted = Counted {
            inner: reader,
            read: Rc::clone(&read),
        };
        let allowance = Allowance(Rc::new(Cell::new(u64::MAX)));
        let reader = Allowed {
            inner: wrap(counted),
            left: Rc::clone(&allowance.0),
        };
        Self {
            reader: Box::new(reader),
            read,
            allowance,
        }
    }

    /// The limit of reading.
    pub(super) fn allowance(&self) -> Allowance {
        self.allowance.clone()
    }
}

struct Allowed<'a> {
    inner: Box<dyn BufRead + 'a>,
    left: Rc<Cell<u64>>,
}

impl Read for Allowed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let n = self.fill_buf()?.read(buffer)?;
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Allowed<'_> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        let left = usize::try_from(self.left.get()).unwrap_or(usize::MAX);
        let buffer = self.inner.fill_buf()?;
        if left == 0 && !buffer.is_empty() {
            return Err(Error::other("more than may be read at a time"));
        }
        Ok(&buffer[..buffer.len().min(left)])
    }

    fn consume(&mut self, count: usize) {
        self.left.set(self.left.get().saturating_sub(count as u64));
        self.inner.consume(count);
    }
}

struct Counted<R> {
    inner: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}
