//! Accuracy and time on real sets: `cargo run --release -p haltwise-prefix --example
//! bench_prefix -- FOLDER NAME...`
//!
//! Training and test part are pooled and drawn anew. The folder has archives `NAME.npz` or
//! pairs `NAME_TRAIN.tsv` and `NAME_TEST.tsv`. Options: `--most N` series to fit and to judge
//! at the most [1500], `--share S` of the series to fit [0.667], `--checkpoints N` [12],
//! `--seeds N` [1]. Seconds are those of one core.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise_io::series::{Missing, Part, SeriesSet, read, split};
use haltwise_prefix::{Checkpoints, FitOptions, Series, fit};
use std::ops::ControlFlow;
use std::path::Path;

/// The shares of a series after which accuracy is shown.
const SHARES: [f64; 5] = [0.2, 0.3, 0.5, 0.6, 1.0];

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut option = |name: &str, usual: f64| {
        let Some(at) = arguments.iter().position(|a| a == name) else {
            return usual;
        };
        let value = arguments[at + 1].parse().expect("an option needs a number");
        arguments.drain(at..at + 2);
        value
    };
    let most = option("--most", 1500.0) as usize;
    let share = option("--share", 2.0 / 3.0);
    let checkpoints = option("--checkpoints", 12.0) as usize;
    let seeds = option("--seeds", 1.0) as u64;
    let [folder, names @ ..] = &arguments[..] else {
        panic!("give a folder and the names of sets");
    };
    println!(
        "{:28}{:>30}  left out at half  fit s  answer s  model MB",
        "",
        format!("right at {SHARES:?}")
    );
    let mut sums = [0.0; 5];
    for name in names {
        let set = pooled(Path::new(folder), name);
        let mut means = [0.0; 5];
        for seed in 0..seeds {
            let run = Run::of(&set, share, most, checkpoints, seed);
            println!("{name:28}{run}");
            for (mean, right) in means.iter_mut().zip(run.right) {
                *mean += right / seeds as f64;
            }
        }
        for (sum, mean) in sums.iter_mut().zip(means) {
            *sum += mean / names.len() as f64;
        }
    }
    println!("{:28}{}", "mean", row(&sums));
}

fn pooled(folder: &Path, name: &str) -> SeriesSet {
    let archive = folder.join(format!("{name}.npz"));
    let path = if archive.exists() {
        archive
    } else {
        folder.join(name)
    };
    read(path, Part::Both, Missing::Refuse).expect("a readable set")
}

struct Run {
    right: [f64; 5],
    left_out: f64,
    fit_seconds: f64,
    answer_seconds: f64,
    megabytes: f64,
}

impl Run {
    fn of(set: &SeriesSet, share: f64, most: usize, checkpoints: usize, seed: u64) -> Self {
        let n = set.len() as f64;
        let mine = share.min(most as f64 / n);
        let new = (1.0 - share).min(most as f64 / n);
        let parts = split(set.len(), &[mine, new, 1.0 - mine - new], seed).unwrap();
        let [mine, new] = [0, 1].map(|i| set.select(&parts[i]));
        let series = |set| -> Series<'_> {
            let set: &SeriesSet = set;
            Series::packed(set.values(), set.starts(), set.features()).unwrap()
        };
        let options = FitOptions {
            checkpoints: Checkpoints::Number(checkpoints),
            seed,
            ..FitOptions::default()
        };
        let begin = processor_seconds();
        let classes = set.classes().to_vec();
        let fitted = fit(&series(&mine), mine.labels(), classes, &options, |_| {
            ControlFlow::Continue(())
        });
        let model = fitted.unwrap().model;
        let fit_seconds = processor_seconds() - begin;
        let begin = processor_seconds();
        let answers = model.answers(&series(&new)).unwrap();
        let answer_seconds = processor_seconds() - begin;
        let longest = model.checkpoints().last().copied().unwrap() as f64;
        let at = SHARES.map(|s| {
            model
                .reached((s * longest).round() as usize)
                .saturating_sub(1)
        });
        let right = at.map(|checkpoint| {
            let right = |i: &usize| answers.best(*i, checkpoint).0 == new.labels()[*i];
            (0..new.len()).filter(right).count() as f64 / new.len() as f64
        });
        Run {
            right,
            left_out: model.training().checkpoints[at[2]].accuracy,
            fit_seconds,
            answer_seconds,
            megabytes: model.to_bytes().map_or(0.0, |b| b.len() as f64 / 1e6),
        }
    }
}

/// What this process has used of all cores, on Linux: other work on the machine counts less.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    // Times of the user and of the system, in hundredths.
    let ticks = fields
        .skip(11)
        .take(2)
        .map(|x| x.parse::<f64>().unwrap_or(0.0));
    ticks.sum::<f64>() / 100.0
}

fn row(right: &[f64]) -> String {
    right.iter().map(|r| format!("{r:6.3}")).collect()
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}  {:16.3}  {:5.1}  {:8.2}  {:8.1}",
            row(&self.right),
            self.left_out,
            self.fit_seconds,
            self.answer_seconds,
            self.megabytes
        )
    }
}
