//! Measures milliseconds per training step and sequences scored per second for the four
//! shapes of the paper's datasets, with the share of this machine's peak.
//!
//! `cargo run --release -p haltwise-lstm --example bench_train [-- --json] [--shape N]`

use fearless_simd::{Level, dispatch, prelude::*};
use haltwise_lstm::{Labelled, Model, Series, TrainOptions, Trainer};
use rayon::prelude::*;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

const BATCH: usize = 64;

/// Steps, features, classes, hidden units, layers.
type Dimensions = (usize, usize, usize, usize, usize);

const SHAPES: [Dimensions; 4] = [
    (8, 2, 10, 32, 1),
    (23, 10, 9, 32, 1),
    (46, 1, 24, 32, 1),
    (206, 3, 6, 256, 2),
];

/// Numbers that look like noise, and are always the same.
fn noise(n: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| next()).collect()
}

/// The shortest run of `f` among at least two, and as many as fit into about `budget`.
fn shortest(budget: Duration, mut f: impl FnMut()) -> Duration {
    f();
    let start = Instant::now();
    let mut best = Duration::MAX;
    let mut runs = 0;
    while runs < 2 || start.elapsed() < budget {
        let run = Instant::now();
        f();
        best = best.min(run.elapsed());
        runs += 1;
    }
    best
}

/// Multiplications and additions of the forward pass of one sequence.
fn flops_forward((steps, features, classes, hidden, layers): Dimensions) -> f64 {
    let recurrent: usize = (0..layers)
        .map(|l| (if l == 0 { features } else { hidden } + hidden) * 4 * hidden)
        .sum();
    2.0 * steps as f64 * (recurrent + hidden * (classes + 1)) as f64
}

/// Fused multiply-adds per second of all cores together, times two.
fn peak_flops() -> f64 {
    const ROUNDS: usize = 200_000;
    #[inline(always)]
    fn chains<S: Simd>(simd: S, rounds: usize) -> usize {
        let mut acc = [S::f32s::splat(simd, 0.5); 12];
        let (a, b) = (
            S::f32s::splat(simd, black_box(0.999)),
            S::f32s::splat(simd, black_box(1e-3)),
        );
        for _ in 0..rounds {
            for acc in &mut acc {
                *acc = acc.mul_add(a, b);
            }
        }
        black_box(acc);
        12 * S::f32s::LEN
    }
    let threads = rayon::current_num_threads();
    let level = Level::new();
    let mut width = 0;
    let time = shortest(Duration::from_millis(300), || {
        width = (0..threads)
            .into_par_iter()
            .map(|_| dispatch!(level, simd => chains(simd, ROUNDS)))
            .sum();
    });
    2.0 * (width * ROUNDS) as f64 / time.as_secs_f64()
}

/// Seconds per training step and sequences scored per second.
fn measure(dimensions: Dimensions) -> Result<(f64, f64), Box<dyn Error>> {
    let (steps, features, classes, hidden, layers) = dimensions;
    let large = hidden > 100;
    // Use few steps per measurement: on a busy machine some then run undisturbed.
    let (batches, budget) = if large { (1, 4.0) } else { (4, 1.5) };
    let budget = Duration::from_secs_f64(budget);
    let n = BATCH * batches;
    let values = noise(n * steps * features);
    let labels: Vec<u32> = (0..n).map(|i| (i % classes) as u32).collect();
    let series = Series::new(&values, steps, features)?;
    let data = Labelled::new(series, &labels)?;
    // Validate on one step of one sequence, so that an epoch is its training steps.
    let one = Labelled::new(Series::new(&values[..features], 1, features)?, &labels[..1])?;
    let options = TrainOptions {
        hidden,
        layers,
        patience: usize::MAX,
        max_epochs: usize::MAX,
        ..TrainOptions::default()
    };
    let names = (0..classes).map(|k| k.to_string()).collect();
    let mut trainer = Trainer::new(data, Some(one), names, options)?;
    let mut failed = None;
    let epoch = shortest(budget, || failed = trainer.epoch().err().or(failed.take()));
    if let Some(error) = failed {
        return Err(error.into());
    }
    let scored = score_rate(&trainer.model()?, dimensions, budget)?;
    Ok((epoch.as_secs_f64() / batches as f64, scored))
}

fn score_rate(
    model: &Model,
    (steps, features, _, hidden, _): Dimensions,
    budget: Duration,
) -> Result<f64, Box<dyn Error>> {
    let n = if hidden > 100 { 256 } else { 4096 };
    let values = noise(n * steps * features);
    let series = Series::new(&values, steps, features)?;
    let time = shortest(budget, || {
        for scores in model.score(series).into_iter().flatten() {
            black_box(&scores);
        }
    });
    Ok(n as f64 / time.as_secs_f64())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let json = arguments.iter().any(|a| a == "--json");
    let only = arguments.iter().position(|a| a == "--shape");
    let only: Option<usize> = only.and_then(|i| arguments.get(i + 1)?.parse().ok());
    let peak = peak_flops();
    if !json {
        println!(
            "{} threads, {:?}, peak {:.0} GFLOP/s",
            rayon::current_num_threads(),
            Level::new(),
            peak / 1e9
        );
        println!(
            "shape (T, d, K, H, L)      ms/step  GFLOP/s  of peak   scored/s  GFLOP/s  of peak"
        );
    }
    for (index, dimensions) in SHAPES.into_iter().enumerate() {
        if only.is_some_and(|only| only != index) {
            continue;
        }
        let (step, scored) = measure(dimensions)?;
        let forward = flops_forward(dimensions);
        // The backward pass has two more products of the same size.
        let training = 3.0 * forward * BATCH as f64 / step;
        let scoring = forward * scored;
        if json {
            println!(
                "{{\"shape\": {index}, \"ms_per_step\": {}, \"scored_per_s\": {scored}, \"train_of_peak\": {}, \"score_of_peak\": {}}}",
                step * 1e3,
                training / peak,
                scoring / peak
            );
        } else {
            println!(
                "{:<24} {:>9.3} {:>8.0} {:>7.0}% {:>10.0} {:>8.0} {:>7.0}%",
                format!("{dimensions:?}"),
                step * 1e3,
                training / 1e9,
                100.0 * training / peak,
                scored,
                scoring / 1e9,
                100.0 * scoring / peak
            );
        }
    }
    Ok(())
}
