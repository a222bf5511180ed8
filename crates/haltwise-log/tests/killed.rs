//! A writer that is killed at any moment, or whose disk is full, loses nothing
//! that it acknowledged. The writer is this program, started again.
#![cfg(unix)]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use haltwise_log::{Committer, Log};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const HEADER: &str = "numbers";

/// How often the writer is killed.
const KILLS: u64 = 1000;

/// Appends rising numbers and prints each that is on the disk, until it is killed. Prints
/// why it cannot write, and goes on once it can.
fn writer(path: &Path) {
    let mut next = 0_u64;
    let (log, _) = Log::open(path, HEADER, &mut |record| {
        next = record.split(' ').next().unwrap().parse::<u64>().unwrap() + 1;
        Ok(())
    })
    .unwrap();
    println!("open");
    let committer = Committer::new(log, |_, _| {});
    loop {
        // Groups of several, of several kilobytes, so that a kill may cut them.
        let long = "x".repeat((next * 37 % 3000) as usize);
        let mut last = 0;
        for _ in 0..=next % 5 {
            last = committer.append(&format!("{next} {long}")).unwrap();
            next += 1;
        }
        if let Err(error) = committer.wait(last) {
            assert_eq!(committer.ready(), Err(error.clone()));
            println!("failed {error}");
            while committer.wait(last).is_err() {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(committer.ready(), Ok(()));
        }
        println!("{}", next - 1);
    }
}

fn start(path: &Path, wrap: &str) -> Child {
    let this = std::env::current_exe().unwrap();
    Command::new("sh")
        .args([
            "-c",
            &format!("{wrap} exec \"$0\" --exact the_writer --nocapture"),
        ])
        .arg(this)
        .env("HALTWISE_TEST_WRITER", path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Not a test by itself: what the others start.
#[test]
fn the_writer() {
    if let Some(path) = std::env::var_os("HALTWISE_TEST_WRITER") {
        writer(Path::new(&path));
        std::io::stdout().flush().unwrap();
        std::process::exit(0);
    }
}

/// All numbers in a log; they must be 0, 1, 2, …
fn numbers(path: &Path) -> u64 {
    let mut next = 0;
    Log::read(path, &mut |record| {
        assert_eq!(record.split(' ').next().unwrap(), next.to_string());
        next += 1;
        Ok(())
    })
    .unwrap();
    next
}

/// The last number that a line of output acknowledges.
fn acknowledged(line: &str) -> Option<u64> {
    line.trim().parse().ok()
}

#[test]
fn a_thousand_kills_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut rng = SmallRng::seed_from_u64(15);
    let (mut kills, mut total) = (0, 0);
    let begun = Instant::now();
    for _ in 0..KILLS {
        let mut child = start(&path, "");
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while line.trim() != "open" {
            line.clear();
            assert!(output.read_line(&mut line).unwrap() > 0, "it did not start");
        }
        std::thread::sleep(Duration::from_micros(rng.random_range(0..3000)));
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        // A last line of output may be cut short as well.
        let whole = rest.rfind('\n').map_or("", |end| &rest[..end]);
        let last = whole.lines().filter_map(acknowledged).next_back();
        let (found, again) = (numbers(&path), numbers(&path));
        assert_eq!(found, again);
        assert!(found >= total, "a record that was there is gone");
        assert!(last.is_none_or(|last| found > last), "{last:?} {found}");
        total = found;
        // Long enough to be cut, short enough to be read a thousand times.
        if std::fs::metadata(&path).unwrap().len() > 4 << 20 {
            std::fs::remove_file(&path).unwrap();
            total = 0;
        }
    }
    println!("{kills} kills in {:?}", begun.elapsed());
}

/// Files may not grow beyond half a megabyte: a short write, then an error, as on
/// a disk that is full. Then they may.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_loses_nothing_that_was_acknowledged_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut child = start(&path, "trap '' XFSZ; ulimit -S -f 1000;");
    let output = BufReader::new(child.stdout.take().unwrap());
    let mut lines = output.lines().map(Result::unwrap);
    let mut last = 0;
    let failed = lines.by_ref().find(|line| {
        last = acknowledged(line).unwrap_or(last);
        line.starts_with("failed")
    });
    let failed = failed.unwrap();
    assert!(failed.contains("the log cannot be written"), "{failed}");
    assert!(last > 0 && numbers(&path) > last);
    // It goes on with room, without having been started again.
    let lifted = Command::new("prlimit")
        .args(["--fsize=unlimited", "--pid", &child.id().to_string()])
        .status();
    assert!(lifted.unwrap().success());
    let mut after = 0;
    for line in lines.by_ref() {
        after = acknowledged(&line).unwrap_or(after);
        if after > last + 100 {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(after > last + 100 && numbers(&path) > after);
}
