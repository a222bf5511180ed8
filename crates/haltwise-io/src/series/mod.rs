//! Labelled sequences: the archive's formats in, one [`SeriesSet`] out.
//!
//! | format | extension | what is read |
//! | --- | --- | --- |
//! | aeon / tsml | `.ts` | one or many channels, unequal lengths, missing values |
//! | UCR | `.tsv`, `.txt`, `.csv` | one channel, the label first; fields separated by tabs, commas or blanks; NaN at the end of a line pads a short sequence |
//! | NumPy | `.npz` | `X` (n, steps, features) or (n, steps), `y` (n); optional `labels`, `split`, `lengths` |
//!
//! A folder with `NAME_TRAIN.*` and `NAME_TEST.*` is one dataset.
//!
//! ```
//! use haltwise_io::series::{Format, Missing, parse};
//!
//! let text = b"1\t0.5\t0.7\n-1\t0.1\tNaN\n";
//! let set = parse("tiny.tsv", text, Format::Ucr, Missing::Refuse)?;
//! assert_eq!(set.classes(), ["-1", "1"]);
//! assert_eq!(set.labels(), [1, 0]);
//! assert_eq!(set.sequence(1), [0.1]);
//! # Ok::<(), haltwise_io::Error>(())
//! ```

mod builtin;
mod draft;
mod npz;
mod read;
mod set;
mod split;
mod text;
mod ts;
mod ucr;

pub use builtin::{BUILTIN, builtin};
pub use draft::Missing;
pub use read::{Format, Part, parse, read, read_within};
pub use set::{Origin, SeriesSet};
pub use split::{SplitError, split};
