//! Series whose class can be learned.

use haltwise_prefix::{Checkpoints, FitOptions, Fitted, Series, fit};
use std::ops::ControlFlow;

/// Noise with, from a random time on, a wave whose period is that of the class. All channels
/// show it, the later ones more faintly.
pub(crate) struct Waves {
    pub(crate) values: Vec<f32>,
    pub(crate) labels: Vec<u32>,
    pub(crate) points: usize,
    pub(crate) channels: usize,
}

impl Waves {
    pub(crate) fn new(n: usize, points: usize, channels: usize, seed: u64) -> Self {
        let mut state = seed;
        let mut unit = move || {
            // Knuth's generator: enough for noise.
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let labels: Vec<u32> = (0..n as u32).map(|i| i % 3).collect();
        let mut values = Vec::with_capacity(n * points * channels);
        for &label in &labels {
            let begin = unit() * points as f32 / 4.0;
            for t in 0..points {
                let phase = (t as f32 - begin).max(0.0) / [2.5, 4.0, 9.0][label as usize];
                for channel in 0..channels {
                    let wave = 2.0 * phase.sin() / (1 + channel) as f32;
                    values.push(5.0 + wave + unit() - 0.5);
                }
            }
        }
        Waves {
            values,
            labels,
            points,
            channels,
        }
    }

    pub(crate) fn series(&self) -> Series<'_> {
        Series::new(&self.values, self.points, self.channels).unwrap()
    }

    pub(crate) fn fit(&self) -> Fitted {
        fit_to(&self.series(), &self.labels, Checkpoints::Number(6))
    }
}

pub(crate) fn names() -> Vec<String> {
    ["short", "middle", "long"].map(String::from).to_vec()
}

pub(crate) fn fit_to(series: &Series<'_>, labels: &[u32], checkpoints: Checkpoints) -> Fitted {
    let options = FitOptions {
        checkpoints,
        trees: 25,
        seed: 3,
    };
    fit(series, labels, names(), &options, |_| {
        ControlFlow::Continue(())
    })
    .unwrap()
}
