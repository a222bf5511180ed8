//! The answers so far: a record per answer in a durable log. A run that ended early
//! continues from it and asks nothing twice.

use std::fs::{self, File, TryLockError};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use haltwise_log::{ErrorKind, Log, sync_folder_of};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::answer::Answer;
use crate::error::Error;
use crate::reply::Tokens;

const FORMAT: &str = "haltwise-journal-2";

/// The first version: a JSON object per line, without checksums.
const FIRST_FORMAT: &str = "haltwise-journal-1";

/// How often what was written is forced to the disk: a program that is killed
/// loses nothing, a machine that loses power this much.
const SYNC: Duration = Duration::from_secs(1);

#[derive(Serialize, Deserialize, PartialEq)]
struct Header {
    format: String,
    /// A digest of all that the answers depend on.
    key: String,
}

/// One answer.
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
    log: Log,
    synced: Instant,
}

impl Journal {
    /// Opens a journal or begins one, for this program alone, and reads what is
    /// in it. A last line that was cut short is dropped; any other damage is an
    /// error, and nothing is changed. A journal of the first version is written
    /// anew as one of this.
    pub(crate) fn open<E: DeserializeOwned>(
        path: &Path,
        key: &str,
    ) -> crate::Result<(Self, Vec<E>)> {
        renew(path, key)?;
        let mut entries = Vec::new();
        let (log, _) = Log::open(path, &header(FORMAT, key)?, &mut |record| {
            entries.push(parse(record)?);
            Ok(())
        })
        .map_err(refused)?;
        let journal = Self {
            path: path.to_path_buf(),
            log,
            synced: Instant::now(),
        };
        Ok((journal, entries))
    }

    pub(crate) fn add(&mut self, entry: &impl Serialize) -> crate::Result<()> {
        let record = serde_json::to_string(entry).map_err(|e| Error::file(&self.path, e))?;
        self.log.append([record.as_str()]).map_err(refused)?;
        if self.synced.elapsed() > SYNC {
            self.log.sync().map_err(refused)?;
            self.synced = Instant::now();
        }
        Ok(())
    }

    /// Everything in it, as the next run would read it.
    pub(crate) fn entries<E: DeserializeOwned>(&mut self) -> crate::Result<Vec<E>> {
        let mut entries = Vec::new();
        let read = self.log.reread(&mut |record| {
            entries.push(parse(record)?);
            Ok(())
        });
        read.map_err(refused)?;
        Ok(entries)
    }
}

fn header(format: &str, key: &str) -> crate::Result<String> {
    let header = Header {
        format: format.to_owned(),
        key: key.to_owned(),
    };
    serde_json::to_string(&header).map_err(|e| Error::file(Path::new("journal"), e))
}

fn parse<E: DeserializeOwned>(record: &str) -> Result<E, String> {
    serde_json::from_str(record).map_err(|e| format!("it is no answer: {e}"))
}

/// An error of the log, in the words of a journal.
fn refused(error: haltwise_log::Error) -> Error {
    let path = error.path();
    match error.kind() {
        ErrorKind::NoLog => Error::file(path, NO_JOURNAL),
        ErrorKind::OtherHeader(found) => match serde_json::from_str::<Header>(found) {
            Ok(found) if found.format == FORMAT => Error::file(path, OTHER),
            _ => Error::file(path, NO_JOURNAL),
        },
        ErrorKind::Damaged(line) => Error::file(
            path,
            format_args!(
                "line {line} is damaged, and the journal was left as it is; remove that line, \
                 and only its answer is asked for again"
            ),
        ),
        ErrorKind::Locked => Error::file(path, BUSY),
        ErrorKind::Io(e) => Error::file(path, format_args!("cannot read or write it: {e}")),
        kind => Error::file(path, format_args!("{kind:?}")),
    }
}

const NO_JOURNAL: &str = "it is there, but is no journal; name another output";

const OTHER: &str = "it was begun with other questions, another model or other options; name \
    another output, and its answers are kept for those";

const BUSY: &str = "another program is writing it; wait until that has ended";

/// Writes a journal of the first version anew, beside it and then in its place;
/// leaves anything else alone.
fn renew(path: &Path, key: &str) -> crate::Result<()> {
    let unreadable = |e| Error::file(path, format_args!("cannot read it: {e}"));
    let file = match File::open(path) {
        Ok(file) => file,
        // It is for the log to make one, or to say what is wrong.
        Err(_) => return Ok(()),
    };
    let mut input = BufReader::new(&file);
    let mut first = Vec::new();
    let limit = 1 << 16;
    input
        .by_ref()
        .take(limit)
        .read_until(b'\n', &mut first)
        .map_err(unreadable)?;
    let Ok(old) = serde_json::from_slice::<Header>(&first) else {
        return Ok(());
    };
    if old.format != FIRST_FORMAT {
        return Ok(());
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(Error::file(path, BUSY)),
        Err(TryLockError::Error(e)) => return Err(Error::file(path, e)),
    }
    if old.key != key {
        return Err(Error::file(path, OTHER));
    }
    let mut text = Vec::new();
    input.read_to_end(&mut text).map_err(unreadable)?;
    let entries = first_entries(&text).map_err(|e| Error::file(path, e))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let failed = |e| Error::file(&beside, format_args!("cannot write it: {e}"));
    // What a run that was killed here left behind.
    match fs::remove_file(&beside) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let (mut journal, _) = Journal::open::<Entry>(&beside, key)?;
    for entry in &entries {
        journal.add(entry)?;
    }
    journal.log.sync().map_err(refused)?;
    fs::rename(&beside, path)
        .and_then(|()| sync_folder_of(path))
        .map_err(failed)
}

/// The entries of a journal of the first version, its first line aside: all but a
/// last one that was cut short.
fn first_entries(text: &[u8]) -> Result<Vec<Entry>, String> {
    let lines = text.split_inclusive(|&b| b == b'\n');
    let whole = lines.take_while(|line| line.ends_with(b"\n")).enumerate();
    whole
        .map(|(i, line)| {
            serde_json::from_slice(line).map_err(|_| {
                format!(
                    "line {} is damaged, and the journal was left as it is; remove that line, \
                     and only its answer is asked for again",
                    i + 2
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let (mut journal, old) = Journal::open::<Entry>(&path, "k").unwrap();
        assert_eq!(old, []);
        (0..3).for_each(|q| journal.add(&entry(q)).unwrap());
        assert_eq!(journal.entries::<Entry>().unwrap().len(), 3);
        drop(journal);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, old) = Journal::open::<Entry>(&path, "k").unwrap();
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
        let (mut journal, _) = Journal::open::<Entry>(&path, "k").unwrap();
        (0..3).for_each(|q| journal.add(&entry(q)).unwrap());
        drop(journal);
        let whole = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        for at in 1..3 {
            let mut damaged = lines.clone();
            damaged[at] = "garbage";
            let damaged = damaged.join("\n") + "\n";
            std::fs::write(&path, &damaged).unwrap();
            let error = Journal::open::<Entry>(&path, "k").unwrap_err().to_string();
            let expected = format!("line {} is damaged", at + 1);
            assert!(error.contains(&expected), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), damaged);
            // The remedy works.
            std::fs::write(&path, damaged.replace("garbage\n", "")).unwrap();
            assert_eq!(Journal::open::<Entry>(&path, "k").unwrap().1.len(), 2);
        }
    }

    #[test]
    fn a_journal_of_something_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        drop(Journal::open::<Entry>(&path, "k").unwrap());
        let error = |key| Journal::open::<Entry>(&path, key).unwrap_err().to_string();
        assert!(error("l").contains("begun with other questions"));
        std::fs::write(&path, "precious").unwrap();
        assert!(error("k").contains("is no journal"));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_journal_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let _first = Journal::open::<Entry>(&path, "k").unwrap();
        let error = Journal::open::<Entry>(&path, "k").unwrap_err().to_string();
        assert!(error.contains("another program is writing it"), "{error}");
    }

    /// As the first version wrote it.
    fn first_version(key: &str, entries: &[Entry]) -> String {
        let mut text = header(FIRST_FORMAT, key).unwrap() + "\n";
        for entry in entries {
            text += &(serde_json::to_string(entry).unwrap() + "\n");
        }
        text
    }

    #[test]
    fn journals_of_the_first_version_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let entries: Vec<Entry> = (0..3).map(entry).collect();
        let text = first_version("k", &entries);
        // Also one that was cut short in its last line.
        for (text, kept) in [(&text[..], 3), (&text[..text.len() - 5], 2)] {
            fs::write(&path, text).unwrap();
            assert!(
                Journal::open::<Entry>(&path, "l")
                    .unwrap_err()
                    .to_string()
                    .contains(OTHER)
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), text, "left as it is");
            // What a killed run may have left does not matter.
            fs::write(folder.path().join("journal.new"), "half").unwrap();
            let (mut journal, old) = Journal::open::<Entry>(&path, "k").unwrap();
            assert_eq!(old, entries[..kept]);
            journal.add(&entry(7)).unwrap();
            drop(journal);
            let (_, old) = Journal::open::<Entry>(&path, "k").unwrap();
            assert_eq!((old.len(), &old[kept]), (kept + 1, &entry(7)));
        }
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 1, "nothing else is left");
    }

    #[test]
    fn damage_in_the_first_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let text = first_version("k", &[entry(0), entry(1)]).replace("\"question\":0", "garbage");
        fs::write(&path, &text).unwrap();
        let error = Journal::open::<Entry>(&path, "k").unwrap_err().to_string();
        assert!(error.contains("line 2 is damaged"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
