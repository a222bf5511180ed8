//! What was answered so far: a line per answer, so that a run that ends early
//! goes on where it was, and nothing is asked twice.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::error::Error;
use crate::reply::Tokens;

const FORMAT: &str = "haltwise-journal-1";

/// How often what was written is forced to the disk: a program that is killed
/// loses nothing, a machine that loses power this much.
const SYNC: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize, PartialEq)]
struct Header {
    format: String,
    /// A digest of all that the answers depend on.
    key: String,
}

/// One answer of a reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The question's place, from 0.
    pub(crate) question: usize,
    /// The part up to which was read, from 0.
    pub(crate) part: usize,
    pub(crate) probs: Vec<f32>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) missing: String,
    #[serde(flatten)]
    pub(crate) tokens: Tokens,
}

impl Entry {
    pub(crate) fn into_answer(self) -> Answer {
        Answer {
            probs: self.probs,
            missing: self.missing,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl Journal {
    /// Opens a journal or begins one, for this program alone, and reads what is
    /// in it. A last line that was cut short is dropped; any other damage is an
    /// error, and nothing is changed.
    pub(crate) fn open<E: DeserializeOwned>(
        path: &Path,
        key: &str,
    ) -> crate::Result<(Self, Vec<E>)> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|e| Error::file(path, format_args!("cannot open it: {e}")))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::file(
                    path,
                    "another program is writing it; wait until that has ended",
                ));
            }
            Err(TryLockError::Error(e)) => return Err(Error::file(path, e)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text)
            .map_err(|e| Error::file(path, format_args!("cannot read it: {e}")))?;
        let header = Header {
            format: FORMAT.to_owned(),
            key: key.to_owned(),
        };
        let (entries, good) = parse(&text, &header).map_err(|e| Error::file(path, e))?;
        let mut journal = Self {
            path: path.to_path_buf(),
            file,
            synced: Instant::now(),
        };
        journal.cut(good)?;
        if good == 0 {
            journal.write(&header)?;
        }
        Ok((journal, entries))
    }

    pub(crate) fn add(&mut self, entry: &impl Serialize) -> crate::Result<()> {
        self.write(entry)?;
        if self.synced.elapsed() > SYNC {
            self.file.sync_data().map_err(|e| self.cannot_write(&e))?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// Everything in it, as the next run would read it.
    pub(crate) fn entries<E: DeserializeOwned>(&mut self) -> crate::Result<Vec<E>> {
        let mut text = Vec::new();
        let read = self
            .file
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.file.read_to_end(&mut text));
        read.map_err(|e| Error::file(&self.path, format_args!("cannot read it: {e}")))?;
        let first = text.split_inclusive(|&b| b == b'\n').next();
        let good = first.map_or(0, <[u8]>::len);
        let (entries, _) = parse_entries(&text, good).map_err(|e| Error::file(&self.path, e))?;
        Ok(entries)
    }

    fn cut(&mut self, at: usize) -> crate::Result<()> {
        let cut = self.file.set_len(at as u64);
        cut.and_then(|()| self.file.seek(SeekFrom::End(0)))
            .map(drop)
            .map_err(|e| self.cannot_write(&e))
    }

    fn write(&mut self, line: &impl Serialize) -> crate::Result<()> {
        let line = serde_json::to_string(line).map_err(|e| Error::file(&self.path, e))?;
        // One write: a line is there or cut short, never mixed with another.
        let written = self.file.write_all((line + "\n").as_bytes());
        written.map_err(|e| self.cannot_write(&e))
    }

    fn cannot_write(&self, error: &std::io::Error) -> Error {
        Error::file(&self.path, format_args!("cannot write it: {error}"))
    }
}

/// The entries of a journal, and how many of its bytes are good.
fn parse<E: DeserializeOwned>(text: &[u8], expected: &Header) -> Result<(Vec<E>, usize), String> {
    let first = text.split_inclusive(|&b| b == b'\n').next();
    let Some(first) = first.filter(|line| line.ends_with(b"\n")) else {
        return match text.is_empty()
            || serde_json::to_vec(expected).is_ok_and(|h| h.starts_with(text))
        {
            true => Ok((Vec::new(), 0)),
            false => Err(NO_JOURNAL.into()),
        };
    };
    let header: Header = serde_json::from_slice(first).map_err(|_| NO_JOURNAL)?;
    if header != *expected {
        return Err(
            "it was begun with other questions, another model or other options; name another \
             output, and its answers are kept for those"
                .into(),
        );
    }
    parse_entries(text, first.len())
}

const NO_JOURNAL: &str = "it is there, but is no journal; name another output";

/// The entries after the first line, and how many bytes are good: all but a last
/// line that was cut short.
fn parse_entries<E: DeserializeOwned>(
    text: &[u8],
    first: usize,
) -> Result<(Vec<E>, usize), String> {
    let (mut entries, mut good) = (Vec::new(), first);
    let lines = text[first..].split_inclusive(|&b| b == b'\n');
    for (i, line) in lines.take_while(|line| line.ends_with(b"\n")).enumerate() {
        let entry = serde_json::from_slice(line).map_err(|_| {
            format!(
                "line {} is damaged, and the journal was left as it is; remove that line, and \
                 only its answer is asked for again",
                i + 2
            )
        })?;
        entries.push(entry);
        good += line.len();
    }
    Ok((entries, good))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path, key: &str) -> crate::Result<(Journal, Vec<Entry>)> {
        Journal::open(path, key)
    }

    fn entry(question: usize) -> Entry {
        Entry {
            question,
            part: 1,
            probs: vec![0.1, 0.9],
            missing: String::new(),
            tokens: Tokens { sent: 5, cached: 3 },
        }
    }

    #[test]
    fn a_journal_cut_anywhere_goes_on_from_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, old) = open(&path, "k").unwrap();
        assert_eq!(old, []);
        (0..3).for_each(|q| journal.add(&entry(q)).unwrap());
        assert_eq!(journal.entries::<Entry>().unwrap().len(), 3);
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, old) = open(&path, "k").unwrap();
            assert!(old.iter().enumerate().all(|(q, e)| *e == entry(q)), "{cut}");
            (old.len()..3).for_each(|q| journal.add(&entry(q)).unwrap());
            drop(journal);
            assert_eq!(std::fs::read(&path).unwrap(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn damage_before_the_last_line_is_named_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let (mut journal, _) = open(&path, "k").unwrap();
        (0..3).for_each(|q| journal.add(&entry(q)).unwrap());
        drop(journal);
        let whole = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        for at in 1..4 {
            let mut damaged = lines.clone();
            damaged[at] = "garbage";
            let damaged = damaged.join("\n") + "\n";
            std::fs::write(&path, &damaged).unwrap();
            let error = open(&path, "k").unwrap_err().to_string();
            let expected = format!("line {} is damaged", at + 1);
            assert!(error.contains(&expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
            // The remedy works.
            std::fs::write(&path, damaged.replace("garbage\n", "")).unwrap();
            assert_eq!(open(&path, "k").unwrap().1.len(), 2);
        }
    }

    #[test]
    fn a_journal_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        drop(open(&path, "k").unwrap());
        let error = |key| open(&path, key).unwrap_err().to_string();
        assert!(error("l").contains("begun with other questions"));
        std::fs::write(&path, "precious").unwrap();
        assert!(error("k").contains("is no journal"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_journal_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let _first = open(&path, "k").unwrap();
        let error = open(&path, "k").unwrap_err().to_string();
        assert!(error.contains("another program is writing it"), "{error}");
    }
}
