//! The file itself: lines with checksums. The last line may be cut short.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, ErrorKind};
use crate::file_id::FileId;
use crate::folder::sync_folder_of;
use crate::tail::Dropped;

/// The separator of the records of a commit. JSON never contains it.
pub(crate) const BETWEEN: char = '\u{1e}';

/// The hexadecimal digits of a checksum.
const DIGITS: usize = 16;

/// Takes each record. Its error message becomes an error that names the line.
pub type Read<'a> = dyn FnMut(&str) -> Result<(), String> + 'a;

/// A log that is open for writing, by this program alone.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    id: FileId,
    /// The offset of the next line.
    end: u64,
    /// How many bytes are on the disk for certain.
    synced: u64,
    /// Whether anything is behind that. The next append removes it.
    has_tail: bool,
    line: Vec<u8>,
}

/// The contents of a log when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// How many records are in it, the header aside.
    pub records: u64,
    /// What stands at its end and is no part of it.
    pub dropped: Option<Dropped>,
}

/// The good lines of a file.
struct Lines {
    header: Option<String>,
    /// How many bytes they have.
    bytes: u64,
    opened: Opened,
}

impl Log {
    /// Opens a log or begins one, and reads its records. Damage before the last good
    /// line, or another header, is an error, and nothing is changed.
    /// [`Opened::dropped`] reports the bytes behind the last good line. They stay in
    /// the file until the first append, so a caller may still refuse the log.
    pub fn open(path: &Path, header: &str, read: &mut Read<'_>) -> Result<(Self, Opened), Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::io(path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(Error::new(path, ErrorKind::Locked)),
            Err(TryLockError::Error(e)) => return Err(Error::io(path)(e)),
        }
        let found = lines(path, &file, Some(header), read)?;
        let mut log = Self {
            path: path.to_path_buf(),
            id: FileId::of(&file).map_err(Error::io(path))?,
            file,
            end: found.bytes,
            synced: found.bytes,
            has_tail: found.opened.dropped.is_some(),
            line: Vec::new(),
        };
        log.seek(log.end)?;
        if found.header.is_none() {
            log.append([header])?;
            log.sync()?;
        }
        // Also for a log that was there: the program that began it may have been killed
        // before it came to this.
        sync_folder_of(path).map_err(Error::io(path))?;
        Ok((log, found.opened))
    }

    /// Reads the records of a log, which another program may be writing: a last
    /// line that is not whole yet is left for the next time. Returns the header.
    pub fn read(path: &Path, read: &mut Read<'_>) -> Result<String, Error> {
        Self::inspect(path, read).map(|(header, _)| header)
    }

    /// Reads the records of a log as [`read`](Self::read) does, and also says what
    /// stands at its end and was passed over. Changes nothing.
    pub fn inspect(path: &Path, read: &mut Read<'_>) -> Result<(String, Opened), Error> {
        let file = File::open(path).map_err(Error::io(path))?;
        let found = lines(path, &file, None, read)?;
        match found.header {
            Some(header) => Ok((header, found.opened)),
            None => Err(Error::new(path, ErrorKind::NoLog)),
        }
    }

    /// Reads the records again, all that were appended so far.
    pub fn reread(&mut self, read: &mut Read<'_>) -> Result<(), Error> {
        self.seek(0)?;
        lines(&self.path, &self.file, None, read)?;
        self.seek(self.end)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the file another name, in place of whatever has that.
    pub fn rename(&mut self, to: &Path) -> Result<(), Error> {
        std::fs::rename(&self.path, to).map_err(Error::io(to))?;
        self.path = to.to_path_buf();
        Ok(())
    }

    /// Which file it is.
    pub(crate) fn id(&self) -> FileId {
        self.id
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Appends a commit of records: one write, of all or, should it fail, of none.
    /// It is on the disk after the next [`sync`](Self::sync).
    pub fn append<'r>(&mut self, records: impl IntoIterator<Item = &'r str>) -> Result<(), Error> {
        let mut text = String::new();
        for record in records {
            check(&self.path, record)?;
            if !text.is_empty() {
                text.push(BETWEEN);
            }
            text.push_str(record);
        }
        self.append_joined(&text)
    }

    /// The same for records that were checked and joined.
    pub(crate) fn append_joined(&mut self, text: &str) -> Result<(), Error> {
        if self.has_tail {
            self.cut()?;
        }
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        // A checksum of 16 digits, a space, the records, the end.
        let written = writeln!(line, "{:016x} {text}", xxh3_64(text.as_bytes()))
            .and_then(|()| self.file.write_all(&line));
        let length = line.len() as u64;
        self.line = line;
        if let Err(error) = written {
            // Cut off the part that was written. If that fails, the next append tries
            // again, or the next opening of the log drops it.
            self.has_tail = true;
            let _ = self.cut();
            return Err(Error::io(&self.path)(error));
        }
        self.end += length;
        Ok(())
    }

    /// Forces appended lines to the disk. If that fails, the lines since the last sync are no
    /// longer part of the log, and the caller must append them again: a system may drop what it
    /// could not write, and call the next attempt a success. It also fails if the file was moved
    /// or removed, because later readers would not find the lines.
    pub fn sync(&mut self) -> Result<(), Error> {
        let synced = self.file.sync_data().map_err(Error::io(&self.path));
        let synced = synced.and_then(|()| is_in_place(self.id, &self.path));
        match synced {
            Ok(()) => self.synced = self.end,
            Err(_) => {
                self.end = self.synced;
                self.has_tail = true;
            }
        }
        synced
    }

    /// Drops the bytes behind the last good line.
    fn cut(&mut self) -> Result<(), Error> {
        self.file.set_len(self.end).map_err(Error::io(&self.path))?;
        self.seek(self.end)?;
        self.has_tail = false;
        Ok(())
    }

    fn seek(&mut self, to: u64) -> Result<(), Error> {
        let moved = self.file.seek(SeekFrom::Start(to));
        moved.map(drop).map_err(Error::io(&self.path))
    }
}

/// Refuses to go on with a log that nobody would find at its path.
pub(crate) fn is_in_place(id: FileId, path: &Path) -> Result<(), Error> {
    match id.is_at(path) {
        true => Ok(()),
        false => Err(Error::new(path, ErrorKind::Misplaced)),
    }
}

/// Refuses a record that could be taken for two.
pub(crate) fn check(path: &Path, record: &str) -> Result<(), Error> {
    if record.is_empty() || record.bytes().any(|b| b < b' ') {
        return Err(Error::new(path, ErrorKind::ControlCharacter));
    }
    Ok(())
}

/// Adds a record to those of a commit.
pub(crate) fn join(text: &mut String, record: &str) {
    if !text.is_empty() {
        text.push(BETWEEN);
    }
    text.push_str(record);
}

/// Reads the lines of a file up to the first that is not whole. If a whole one
/// comes after that, it was not cut short but damaged.
fn lines(
    path: &Path,
    file: &File,
    header: Option<&str>,
    read: &mut Read<'_>,
) -> Result<Lines, Error> {
    let mut found = Lines {
        header: None,
        bytes: 0,
        opened: Opened::default(),
    };
    let mut input = BufReader::with_capacity(1 << 20, file);
    let (mut line, mut number) = (Vec::new(), 0);
    loop {
        line.clear();
        let length = input
            .read_until(b'\n', &mut line)
            .map_err(Error::io(path))?;
        if length == 0 {
            break;
        }
        number += 1;
        let dropped = &mut found.opened.dropped;
        let Some(text) = whole(&line) else {
            dropped.get_or_insert(Dropped::at(number)).add(&line);
            // A file that is no log must not pass for a log with a cut-off header.
            if number == 1 && !starts(&line, header) {
                return Err(Error::new(path, ErrorKind::NoLog));
            }
            continue;
        };
        if let Some(dropped) = dropped {
            return Err(Error::new(path, ErrorKind::Damaged(dropped.line)));
        }
        found.bytes += length as u64;
        if found.header.is_none() {
            if header.is_some_and(|header| header != text) {
                return Err(Error::new(path, ErrorKind::OtherHeader(text.to_owned())));
            }
            found.header = Some(text.to_owned());
            continue;
        }
        for record in text.split(BETWEEN) {
            found.opened.records += 1;
            read(record).map_err(|e| Error::new(path, ErrorKind::Refused(number, e)))?;
        }
    }
    Ok(found)
}

/// The text of a line that is whole.
fn whole(line: &[u8]) -> Option<&str> {
    checked(line.strip_suffix(b"\n")?)
}

/// The text of a line without its end, if its checksum is right.
pub(crate) fn checked(line: &[u8]) -> Option<&str> {
    let (sum, text) = std::str::from_utf8(line).ok()?.split_at_checked(DIGITS)?;
    let text = text.strip_prefix(' ')?;
    let sum = u64::from_str_radix(sum, 16).ok()?;
    (sum == xxh3_64(text.as_bytes())).then_some(text)
}

/// Whether a line is the beginning of the first line of a log, perhaps filled up
/// with zeros, as file systems do after a power failure.
fn starts(mut line: &[u8], header: Option<&str>) -> bool {
    while let Some(shorter) = line.strip_suffix(b"\0") {
        line = shorter;
    }
    header.is_some_and(|header| {
        let first = format!("{:016x} {header}\n", xxh3_64(header.as_bytes()));
        first.as_bytes().starts_with(line)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tail::Cause;

    const HEADER: &str = r#"{"format":"test"}"#;

    fn open(path: &Path) -> Result<(Log, Vec<String>, Opened), Error> {
        let mut records = Vec::new();
        let (log, opened) = Log::open(path, HEADER, &mut |record| {
            records.push(record.to_owned());
            Ok(())
        })?;
        Ok((log, records, opened))
    }

    fn refusal(path: &Path) -> String {
        open(path).unwrap_err().to_string()
    }

    #[test]
    fn a_log_cut_anywhere_goes_on_from_its_last_whole_commit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let commits = [vec!["a"], vec!["b", "ü", "c"], vec!["{\"d\": 1}"]];
        let (mut log, ..) = open(&path).unwrap();
        for commit in &commits {
            log.append(commit.iter().copied()).unwrap();
        }
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        for cut in 0..whole.len() {
            // As it was cut, and as file systems may leave it: filled with zeros.
            for zeros in [0, 7] {
                let mut bytes = whole[..cut].to_vec();
                bytes.resize(cut + zeros, 0);
                std::fs::write(&path, &bytes).unwrap();
                let (mut log, records, opened) = open(&path).unwrap();
                let kept = commits
                    .iter()
                    .scan(0, |sum, commit| {
                        *sum += commit.len();
                        Some(*sum)
                    })
                    .filter(|&sum| sum <= records.len())
                    .count();
                assert_eq!(records, commits[..kept].concat(), "{cut}");
                assert_eq!(opened.records, records.len() as u64);
                for commit in &commits[kept..] {
                    log.append(commit.iter().copied()).unwrap();
                }
                drop(log);
                assert_eq!(std::fs::read(&path).unwrap(), whole, "cut at {cut}");
            }
        }
    }

    #[test]
    fn damage_before_the_last_line_is_named_and_nothing_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, ..) = open(&path).unwrap();
        for record in ["first", "second", "third"] {
            log.append([record]).unwrap();
        }
        drop(log);
        let whole = std::fs::read(&path).unwrap();
        let place = String::from_utf8_lossy(&whole).find("second").unwrap();
        for (at, line) in [(place, 3), (place - 3, 3), (20, 1)] {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            let message = refusal(&path);
            let expected = if line == 1 {
                "no log"
            } else {
                "line 3 is damaged"
            };
            assert!(message.contains(expected), "{message}");
            assert_eq!(std::fs::read(&path).unwrap(), damaged);
        }
    }

    /// Three commits; the last has two records.
    fn three_commits(path: &Path) -> Vec<u8> {
        let (mut log, ..) = open(path).unwrap();
        log.append(["first"]).unwrap();
        log.append(["second"]).unwrap();
        log.append(["{\"third\": 3}", "fourth"]).unwrap();
        drop(log);
        std::fs::read(path).unwrap()
    }

    fn last_line(bytes: &[u8]) -> usize {
        let before = &bytes[..bytes.len() - 1];
        before.iter().rposition(|&b| b == b'\n').unwrap() + 1
    }

    #[test]
    fn a_flipped_bit_in_the_last_line_is_reported_as_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let whole = three_commits(&path);
        for at in last_line(&whole)..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                std::fs::write(&path, &damaged).unwrap();
                let (_, records, opened) = open(&path).unwrap();
                // A digit of the checksum in upper case means the same.
                if damaged[at].eq_ignore_ascii_case(&whole[at]) && records.len() == 4 {
                    continue;
                }
                let dropped = opened.dropped.unwrap();
                assert_eq!(dropped.cause, Cause::Damaged, "byte {at}, bit {bit}");
                assert_eq!((records.len(), dropped.line), (2, 4));
                assert_eq!(dropped.bytes as usize, whole.len() - last_line(&whole));
                // Nothing is removed before something is appended.
                assert_eq!(std::fs::read(&path).unwrap(), damaged);
                let mut seen = 0;
                let (_, inspected) = Log::inspect(&path, &mut |_| {
                    seen += 1;
                    Ok(())
                })
                .unwrap();
                assert_eq!((inspected, seen), (opened, 2));
            }
        }
    }

    #[test]
    fn damage_says_how_many_records_it_took() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let whole = three_commits(&path);
        let mut damaged = whole.clone();
        let third = String::from_utf8_lossy(&whole).find("third").unwrap();
        damaged[third] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let dropped = open(&path).unwrap().2.dropped.unwrap();
        assert_eq!((dropped.lines, dropped.records), (1, 2));
        let said = dropped.to_string();
        assert!(said.contains("line 4 is damaged"), "{said}");
        assert!(said.contains("2 records"), "{said}");
    }

    #[test]
    fn a_write_that_was_cut_short_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let whole = three_commits(&path);
        let last = last_line(&whole);
        for cut in last + 1..whole.len() {
            for zeros in [0, 1, 512] {
                let mut bytes = whole[..cut].to_vec();
                bytes.resize(cut + zeros, 0);
                std::fs::write(&path, &bytes).unwrap();
                let dropped = open(&path).unwrap().2.dropped.unwrap();
                assert_eq!(dropped.cause, Cause::Torn, "{cut} {zeros}");
                assert_eq!((dropped.line, dropped.lines, dropped.records), (4, 1, 0));
                assert_eq!(dropped.bytes as usize, cut + zeros - last);
            }
        }
        // The block with the end of the line reached the disk, the one before did not.
        let mut hole = whole.clone();
        hole[last..whole.len() - 5].fill(0);
        std::fs::write(&path, &hole).unwrap();
        let dropped = open(&path).unwrap().2.dropped.unwrap();
        assert_eq!(dropped.cause, Cause::Torn);
        assert!(dropped.to_string().contains("cut short"), "{dropped}");
    }

    #[test]
    fn what_is_no_log_or_for_something_else_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        for text in ["precious", "precious\n", "\n", "0123456789abcdef {}\n"] {
            std::fs::write(&path, text).unwrap();
            assert!(refusal(&path).contains("no log"), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        std::fs::remove_file(&path).unwrap();
        drop(Log::open(&path, "another", &mut |_| Ok(())).unwrap());
        let error = open(&path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OtherHeader(found) if found == "another"));
        let missing = Log::read(&folder.path().join("none"), &mut |_| Ok(()));
        assert!(matches!(missing.unwrap_err().kind(), ErrorKind::Io(_)));
    }

    #[test]
    fn a_log_has_one_writer_and_any_number_of_readers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (mut log, ..) = open(&path).unwrap();
        log.append(["a", "b"]).unwrap();
        assert!(refusal(&path).contains("another program is writing it"));
        let mut seen = 0;
        let header = Log::read(&path, &mut |_| {
            seen += 1;
            Ok(())
        });
        assert_eq!((header.unwrap().as_str(), seen), (HEADER, 2));
        let refused = Log::read(&path, &mut |record| Err(format!("{record} is unwelcome")));
        let message = refused.unwrap_err().to_string();
        assert!(message.ends_with("line 2: a is unwelcome"), "{message}");
    }

    #[test]
    fn what_could_be_taken_for_two_records_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (mut log, ..) = open(&folder.path().join("log")).unwrap();
        for record in ["a\nb", "a\u{1e}b", ""] {
            let error = log.append([record]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::ControlCharacter));
        }
        log.append(["good"]).unwrap();
    }
}
