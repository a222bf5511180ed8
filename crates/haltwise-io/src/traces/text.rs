//! Text as bytes that come in order, packed or not, with a count of those
//! read from the file.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Result};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;

/// How much is read at a time.
const BUFFER: usize = 1 << 18;

/// A text file being read.
pub(super) struct Text<'a> {
    pub(super) reader: Box<dyn BufRead + 'a>,
    /// How many bytes of the file were read, before unpacking.
    pub(super) read: Rc<Cell<u64>>,
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
        Self {
            reader: wrap(counted),
            read,
        }
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
