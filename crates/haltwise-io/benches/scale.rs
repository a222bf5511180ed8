//! Calibrating Parquet, compared with the least it could cost: decoding the same columns on
//! the same threads, and doing nothing with them.
//!
//!     make bench-scale
//!     cargo bench -p haltwise-io --bench scale -- 1000000x100 10000000x100
//!
//! Each measurement runs in its own process, so that its peak memory is also its own.
//! Traces are made up in the temporary folder (`TMPDIR`) and removed.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use haltwise::simulate::{DrawnSequence, SyntheticClassifier};
use haltwise::{Inputs, Method, Plan, Sequence};
use haltwise_io::{Files, LEAST_MEMORY, TraceWriter, WriteOptions, trace_files};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rayon::prelude::*;

/// How often each measurement is made; the fastest counts.
const TIMES: usize = 3;

const FILES: u64 = 8;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("measure") => measure(&args[1], Path::new(&args[2])),
        _ => compare(&args),
    }
}

/// Measures every size, alternating decoding and calibrating.
fn compare(args: &[String]) {
    let sizes: Vec<(u64, usize)> = args.iter().filter_map(|arg| size(arg)).collect();
    let default = || [100_000, 200_000, 400_000].map(|n| (n, 100)).to_vec();
    let sizes = if sizes.is_empty() { default() } else { sizes };
    println!(
        "{:>10} {:>5}  {:<10} {:>8} {:>8} {:>7} {:>12} {:>9}",
        "sequences", "steps", "what", "wall s", "cpu s", "ratio", "steps/s", "peak MiB"
    );
    for (n, steps) in sizes {
        let folder = tempfile::tempdir().unwrap();
        generate(folder.path(), n, steps);
        let mut best = [Measured::WORST; 3];
        for _ in 0..TIMES {
            for (what, best) in std::iter::zip(WHAT, &mut best) {
                *best = best.quicker(in_process(what, folder.path()));
            }
        }
        for (what, m) in std::iter::zip(WHAT, best) {
            println!(
                "{n:>10} {steps:>5}  {what:<10} {:>8.2} {:>8.2} {:>7.2} {:>12.2e} {:>9}",
                m.wall,
                m.cpu,
                m.cpu / best[0].cpu,
                n as f64 * steps as f64 / m.wall,
                m.peak >> 10,
            );
        }
    }
}

const WHAT: [&str; 3] = ["decode", "calibrate", "stream"];

/// Parses "1000000x100": this many sequences of this many steps.
fn size(text: &str) -> Option<(u64, usize)> {
    let (n, steps) = text.split_once('x')?;
    Some((n.parse().ok()?, steps.parse().ok()?))
}

fn generate(folder: &Path, n: u64, steps: usize) {
    let synthetic = SyntheticClassifier::new(steps, steps, 0);
    (0..FILES).into_par_iter().for_each(|file| {
        let path = folder.join(format!("part-{file}.parquet"));
        let mut writer = TraceWriter::create(path, WriteOptions::default()).unwrap();
        let mut sequence = DrawnSequence::default();
        for number in n * file / FILES..n * (file + 1) / FILES {
            synthetic.draw(number, &mut sequence);
            let id = number.to_string();
            let sequence = Sequence {
                id: Some(&id),
                label: Some(sequence.label),
                predictions: Some(&sequence.predictions),
                scores: Some(&sequence.scores),
                ..Sequence::default()
            };
            writer.write(sequence).unwrap();
        }
        writer.finish().unwrap();
    });
}

#[derive(Clone, Copy)]
struct Measured {
    wall: f64,
    cpu: f64,
    /// The most memory, in KiB.
    peak: u64,
}

impl Measured {
    const WORST: Self = Self {
        wall: f64::INFINITY,
        cpu: f64::INFINITY,
        peak: 0,
    };

    fn quicker(self, other: Self) -> Self {
        Self {
            wall: self.wall.min(other.wall),
            cpu: self.cpu.min(other.cpu),
            peak: self.peak.max(other.peak),
        }
    }
}

fn in_process(what: &str, folder: &Path) -> Measured {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command
        .args(["measure", what])
        .arg(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace();
    Measured {
        wall: numbers.next().unwrap().parse().unwrap(),
        cpu: numbers.next().unwrap().parse().unwrap(),
        peak: numbers.next().unwrap().parse().unwrap(),
    }
}

/// Does one thing to the traces, and prints the elapsed seconds, the seconds of all cores,
/// and the peak memory.
fn measure(what: &str, folder: &Path) {
    let start = Instant::now();
    match what {
        "decode" => decode(&trace_files(&[folder]).unwrap()),
        "calibrate" => calibrate(folder, u64::MAX),
        _ => stream(folder),
    }
    let wall = start.elapsed().as_secs_f64();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11..13]
        .iter()
        .map(|f| f.parse::<f64>().unwrap())
        .sum();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .unwrap();
    println!(
        "{wall} {} {}",
        ticks / 100.0,
        peak.trim_end_matches("kB").trim()
    );
}

/// Decodes the columns of traces and drops them.
fn decode(files: &[PathBuf]) {
    let groups = |file: &PathBuf| {
        let metadata = SerializedFileReader::new(File::open(file).unwrap()).unwrap();
        (0..metadata.metadata().num_row_groups())
            .map(move |group| (file.clone(), group))
            .collect()
    };
    let pieces: Vec<(PathBuf, usize)> = files.iter().flat_map::<Vec<_>, _>(groups).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut values = 0;
        while let Some((file, group)) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            let builder =
                ParquetRecordBatchReaderBuilder::try_new(File::open(file).unwrap()).unwrap();
            let schema = builder.schema().clone();
            let columns =
                ["id", "label", "predictions", "scores"].map(|name| schema.index_of(name).unwrap());
            let mask = ProjectionMask::roots(builder.parquet_schema(), columns);
            let bytes: i64 = builder
                .metadata()
                .row_groups()
                .iter()
                .map(|g| g.total_byte_size())
                .sum();
            let rows = (1 << 21) / (bytes / builder.metadata().file_metadata().num_rows() + 1);
            let batches = builder
                .with_projection(mask)
                .with_row_groups(vec![*group])
                .with_batch_size(rows as usize)
                .build()
                .unwrap();
            for batch in batches {
                values += std::hint::black_box(batch.unwrap()).num_rows();
            }
        }
        values
    };
    let threads = rayon::current_num_threads();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .for_each(|worker| assert!(worker.join().unwrap() > 0));
    });
}

/// Goes once through the files, and keeps one byte of each score if they fit.
fn calibrate(folder: &Path, memory: u64) {
    let mut quiet = |_, _| {};
    let files = Files::new(&[folder], memory, &mut quiet).unwrap();
    let plan = Plan::of(Method::Conditional);
    let found = plan.calibrate(Inputs::one(&files)).unwrap();
    assert!(found.rule.halts_early());
}

/// Goes twice through the files, and keeps a tenth of the screening part.
fn stream(folder: &Path) {
    let mut quiet = |_, _| {};
    let plan = Plan::of(Method::Conditional);
    let files = Files::new(&[folder], u64::MAX, &mut quiet).unwrap();
    let needed = files.needed(plan.grid()).unwrap();
    let fixed = LEAST_MEMORY + needed.extent.reading;
    calibrate(folder, fixed + (needed.bytes - fixed) / 20);
}
