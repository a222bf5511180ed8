//! temp
use haltwise_lstm::*;
use std::time::Instant;
fn main() {
    for (t, d, k, h, l) in [(8, 2, 10, 32, 1), (23, 10, 9, 32, 1), (46, 1, 24, 32, 1), (206, 3, 6, 256, 2)] {
        let big = h > 100;
        let steps = if big { 2 } else { 40 };
        let n = 64 * steps;
        let mut s = 1u64;
        let mut rnd = || { s = s.wrapping_mul(6364136223846793005).wrapping_add(1); ((s >> 40) as f32 / 16777216.0) - 0.5 };
        let x: Vec<f32> = (0..n * t * d).map(|_| rnd()).collect();
        let y: Vec<u32> = (0..n).map(|i| (i % k) as u32).collect();
        let data = Labelled::new(Series::new(&x, t, d).unwrap(), &y).unwrap();
        let vx: Vec<f32> = (0..t * d).map(|_| rnd()).collect();
        let val = Labelled::new(Series::new(&vx, t, d).unwrap(), &y[..1]).unwrap();
        let mut tr = Trainer::new(data, Some(val), (0..k).map(|i| i.to_string()).collect(), TrainOptions { hidden: h, layers: l, patience: 1000, ..Default::default() }).unwrap();
        tr.epoch().unwrap();
        let mut best = f64::MAX;
        for _ in 0..(if big { 3 } else { 20 }) {
            let t0 = Instant::now();
            tr.epoch().unwrap();
            best = best.min(t0.elapsed().as_secs_f64() / steps as f64);
        }
        let row = (0..l).map(|i| 2.0 * ((if i == 0 { d } else { h }) + h) as f64 * 4.0 * h as f64).sum::<f64>() + 2.0 * h as f64 * (k + 1) as f64;
        println!("{t} {h}: {:.3} ms, {:.1} GF/s", best * 1e3, row * 3.0 * 64.0 * t as f64 / best / 1e9);
    }
}
