use super::*;
use crate::scale::Scale;
use serde::Deserialize;

fn prefix(channels: usize, points: impl Iterator<Item = f32>) -> Prefix {
    let scale = Scale {
        mean: vec![0.0; channels],
        factor: vec![1.0; channels],
    };
    let values: Vec<f32> = points.collect();
    scale.prefix(&values, channels, usize::MAX)
}

fn noise(channels: usize, points: usize, seed: u64) -> Prefix {
    let mut random = Random::new(seed, 0);
    prefix(
        channels,
        (0..points * channels).map(|_| random.unit() - 0.5),
    )
}

/// The counts of the first bias of each kernel at `to`, by the listing of one convolution.
fn listed(bank: &Bank, series: &Prefix, to: usize) -> Vec<u32> {
    let above = |k: usize| {
        bank.convolve(series, k)
            .into_iter()
            .take(to)
            .map(move |x| (k, x))
    };
    (0..KERNELS)
        .map(|k| above(k).filter(|&(k, x)| x > bank.biases[k][0]).count() as u32)
        .collect()
}

#[test]
fn counts_are_those_of_the_plain_listing_however_they_are_cut() {
    for channels in [1, 3] {
        let series: Vec<Prefix> = (0..5).map(|i| noise(channels, 150, i)).collect();
        let mut random = Random::new(1, 0);
        let kernels = Kernels::draw(|i| &series[i], 5, channels, 150, &mut random);
        assert!(kernels.features() <= Kernels::most_features());
        let mut blocks = [
            Block::<4>::new(&kernels, channels),
            Block::new(&kernels, channels),
        ];
        for block in &mut blocks {
            for t in 0..150 {
                let lanes = |c: usize| [0, 1, 2, 3].map(|l| series[l].values[c][t]);
                block.push((0..channels).map(lanes));
            }
        }
        let [block, whole] = &mut blocks;
        kernels.count(whole, 150);
        for to in [1, 2, 70, 71, 150] {
            kernels.count(block, to);
            for (lane, series) in series[..4].iter().enumerate() {
                let counts: Vec<u32> = block.counts().iter().map(|all| all[lane]).collect();
                let mut of_bank = counts.chunks_exact(KERNELS * BIASES);
                for bank in &kernels.banks {
                    let firsts = of_bank.next().unwrap().iter().step_by(BIASES);
                    assert!(firsts.eq(&listed(bank, series, to)));
                }
            }
        }
        assert!(block.counts() == whole.counts());
    }
}

#[test]
fn every_simd_level_counts_alike() {
    let series = noise(1, 90, 3);
    let mut random = Random::new(1, 0);
    let kernels = Kernels::draw(|_| &series, 1, 1, 90, &mut random);
    let counts = |level: Level| {
        let mut block = Block::<16>::new(&kernels, 1);
        (0..90).for_each(|t| block.push(std::iter::once([series.values[0][t]; 16])));
        kernels.count_at(level, &mut block, 90);
        block.counts
    };
    assert_eq!(counts(Level::new()), counts(Level::baseline()));
}

#[test]
fn dilations_grow_up_to_kernels_as_long_as_the_series() {
    assert_eq!(dilations(1), [1]);
    assert_eq!(dilations(9), [1]);
    assert_eq!(dilations(17), [1, 2]);
    let long = dilations(1025);
    assert_eq!((long[0], long[7], long.len()), (1, 128, 8));
}

#[test]
fn biases_lie_within_the_convolutions_that_they_are_quantiles_of() {
    let sorted = [1.0, 2.0, 4.0];
    assert_eq!(
        [0.0, 0.25, 0.5, 0.75].map(|q| quantile(&sorted, q)),
        [1.0, 1.5, 2.0, 3.0]
    );
    let mut random = Random::new(5, 0);
    for channels in [1, 2, 9, 40] {
        let sets: Vec<_> = (0..200)
            .map(|_| some_channels(channels, &mut random))
            .collect();
        assert!(sets.iter().all(|set| set.is_sorted_by(|a, b| a < b)));
        assert!(sets.iter().flatten().all(|&c| usize::from(c) < channels));
        assert!(sets.iter().all(|set| (1..=9).contains(&set.len())));
    }
}

/// aeon centres its kernels, and pads half of them with zeros. If a kernel lies inside the
/// series, its value is ours half a kernel later. So aeon's features without padding are the
/// shares of our convolutions at the points that a whole kernel lies before.
#[test]
fn kernels_inside_the_series_give_the_features_of_aeons_minirocket() {
    #[derive(Deserialize)]
    struct Golden {
        series: Vec<Vec<f32>>,
        /// Dilation, kernel, bias, and the feature of each series.
        features: Vec<Vec<f32>>,
    }
    let golden = include_str!("../../tests/golden/minirocket.json");
    let golden: Golden = serde_json::from_str(golden).unwrap();
    assert!(golden.features.len() > 50);
    for row in golden.features {
        let [dilation, kernel, bias, shares @ ..] = &row[..] else {
            panic!("a short row");
        };
        let bank = Bank {
            differences: false,
            dilation: *dilation as usize,
            channels: vec![vec![0]; KERNELS],
            biases: vec![[*bias; BIASES]; KERNELS],
        };
        for (values, share) in golden.series.iter().zip(shares) {
            let inside = (TAPS - 1) * bank.dilation;
            let series = prefix(1, values.iter().copied());
            let convolved = bank.convolve(&series, *kernel as usize);
            let above = convolved[inside..].iter().filter(|&x| x > bias).count();
            let found = above as f32 / (values.len() - inside) as f32;
            assert!((found - share).abs() < 1e-5, "{row:?}: {found}");
        }
    }
}
