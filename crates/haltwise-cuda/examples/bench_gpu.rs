//! Milliseconds per training step and sequences scored per second on a GPU, medians by the
//! GPU's own clock, for the shapes of the paper's datasets; one JSON object each.
//!
//! `cargo run --release -p haltwise-cuda --example bench_gpu`; `bench/pytorch_gpu.py` measures the
//! same by PyTorch.

use haltwise_cuda::{Batch, Gpu, Layout, Network, Sizes};
use std::error::Error;
use std::time::Instant;

const BATCH: usize = 64;

/// Steps, features, classes, hidden units, layers.
const SHAPES: [(usize, usize, usize, usize, usize); 4] = [
    (8, 2, 10, 32, 1),
    (23, 10, 9, 32, 1),
    (46, 1, 24, 32, 1),
    (206, 3, 6, 256, 2),
];

/// Numbers that look like noise, always the same.
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

fn filled(
    network: &Network,
    n: usize,
    steps: usize,
    sizes: Sizes,
    learn: bool,
) -> Result<Batch, Box<dyn Error>> {
    let values = noise(n * steps * sizes.features);
    let mut batch = network.batch(n, steps, learn)?;
    let of = |i: usize| (steps, (i % sizes.classes) as u32);
    batch.set(of, |i, t, f| values[(i * steps + t) * sizes.features + f]);
    Ok(batch)
}

/// Milliseconds to score `n` sequences, in as many batches as they need: the GPU works on the next
/// while the last is fetched.
fn score(network: &mut Network, n: usize, batch: &Batch) -> Result<f64, Box<dyn Error>> {
    let before = network.gpu().moment()?;
    let mut under_way = network.start_scoring(batch)?;
    for _ in 1..n.div_ceil(batch.sequences()) {
        let next = network.start_scoring(batch)?;
        network.finish_scoring(std::mem::replace(&mut under_way, next))?;
    }
    network.finish_scoring(under_way)?;
    let after = network.gpu().moment()?;
    network.gpu().wait()?;
    Ok(f64::from(before.milliseconds_to(&after)?))
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    drop(Gpu::open(0)?);
    eprintln!("opened in {:.2} s", start.elapsed().as_secs_f64());
    for (steps, features, classes, hidden, layers) in SHAPES {
        let sizes = Sizes {
            features,
            hidden,
            layers,
            classes,
            single_heads: 1,
        };
        let layout = Layout::new(sizes)?;
        let mut network = Network::new(Gpu::open(0)?, layout)?;
        let scale = 2.0 / (hidden as f32).sqrt();
        let mut weights = noise(
            4 * hidden * (features + hidden + 1)
                + (layers - 1) * 4 * hidden * (2 * hidden + 1)
                + (classes + 1) * (hidden + 1),
        );
        weights.iter_mut().for_each(|w| *w *= scale);
        network.set_parameters(&weights)?;
        let batch = filled(&network, BATCH, steps, sizes, true)?;
        let step = |network: &mut Network| -> Result<f64, Box<dyn Error>> {
            let before = network.gpu().moment()?;
            network.learn(&batch, 0.2, 1.0 / (BATCH * steps) as f32, false)?;
            network.step(1e-4, 1.0)?;
            let after = network.gpu().moment()?;
            network.gpu().wait()?;
            Ok(f64::from(before.milliseconds_to(&after)?))
        };
        for _ in 0..5 {
            step(&mut network)?;
        }
        let alone: Result<Vec<f64>, _> = (0..50).map(|_| step(&mut network)).collect();
        // As in training: the host runs ahead.
        let before = network.gpu().moment()?;
        for _ in 0..50 {
            network.learn(&batch, 0.2, 1.0 / (BATCH * steps) as f32, false)?;
            network.step(1e-4, 1.0)?;
        }
        let after = network.gpu().moment()?;
        network.gpu().wait()?;
        let in_a_row = f64::from(before.milliseconds_to(&after)?) / 50.0;
        let mut scored = Vec::new();
        let many = network.capacity(usize::MAX, steps, false);
        // The last as a large set is scored: batch after batch.
        for n in [BATCH, 256, 512, 1024, 4096, many, 16 * many] {
            let together = network.capacity(n, steps, false).min(n);
            let batch = filled(&network, together, steps, sizes, false)?;
            score(&mut network, n, &batch)?;
            let times: Result<Vec<f64>, _> =
                (0..10).map(|_| score(&mut network, n, &batch)).collect();
            let rounded = n.next_multiple_of(together);
            scored.push((n.to_string(), 1e3 * rounded as f64 / median(times?)));
        }
        println!(
            "{{\"shape\": [{steps}, {features}, {classes}, {hidden}, {layers}], \
             \"ms_per_step\": {:.3}, \"ms_in_a_row\": {in_a_row:.3}, \"scored_per_s\": {{{}}}}}",
            median(alone?),
            scored
                .iter()
                .map(|(n, rate)| format!("\"{n}\": {rate:.0}"))
                .collect::<Vec<_>>()
                .join(", "),
        );
    }
    Ok(())
}
