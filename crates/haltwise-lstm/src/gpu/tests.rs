//! Tests that need no GPU; and, with names that begin with `gpu`, tests of the kernels
//! against the float64 reference. Without a GPU those are skipped with a message; `make
//! test-gpu` requires them.

use super::*;
use crate::engine::tests::{GAMMA, Sample, shapes};
use crate::model::Model;
use crate::reference::Reference;
use crate::train::Trainer;
use fearless_simd::Level;
use std::io::Write;

fn shape(features: usize, hidden: usize, layers: usize, classes: usize, gap_head: bool) -> Shape {
    Shape {
        features,
        hidden,
        layers,
        classes,
        gap_head,
    }
}

/// Whether there is a GPU; if not, prints which test is skipped.
fn gpu_there() -> bool {
    let there = Gpu::open(0);
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    if let Err(error) = &there {
        let asked = std::env::var_os("HALTWISE_REQUIRE_GPU").is_some();
        assert!(!asked, "{error}");
        // Written to stderr directly, because the test runner hides the output of passing
        // tests.
        let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {error}");
    }
    there.is_ok()
}

#[test]
fn a_padded_network_is_the_same_network() {
    for shape in shapes() {
        let layout = layout(&shape).unwrap();
        let sample = Sample::new(shape, 5, 7);
        let padded = Sample {
            shape: Shape {
                hidden: layout.padded().hidden,
                ..shape
            },
            parameters: layout.pad(&sample.parameters),
            ..Sample::new(shape, 5, 7)
        };
        let (scores, loss, (_, gradient)) = sample.all(Level::new());
        let (same_scores, same_loss, (_, same)) = padded.all(Level::new());
        assert!((loss.loss - same_loss.loss).abs() < 1e-4, "{shape:?}");
        let floats =
            |bits: &[u32]| -> Vec<f32> { bits.iter().map(|b| f32::from_bits(*b)).collect() };
        for ((a, p), (b, q)) in scores.iter().zip(&same_scores) {
            assert_eq!(p, q, "{shape:?}");
            for (a, b) in floats(a).iter().zip(floats(b)) {
                assert!((a - b).abs() < 1e-6, "{shape:?}: {a} {b}");
            }
        }
        // The gradients of the padding are zero, so it stays unchanged.
        let (gradient, same) = (floats(&gradient), floats(&same));
        let mut unpadded = vec![0.0; gradient.len()];
        layout.unpad(&same, &mut unpadded);
        assert_eq!(layout.pad(&unpadded), same, "{shape:?}");
        for (a, b) in gradient.iter().zip(unpadded) {
            assert!((a - b).abs() < 1e-6, "{shape:?}: {a} {b}");
        }
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error_or_the_cpu() {
    let large = shape(3, 256, 2, 6, false);
    let error = GpuEngine::choose(Device::Cuda(99), &large).unwrap_err();
    let words = error.to_string();
    assert!(
        words.starts_with("cuda:99 cannot be used: there is no "),
        "{words}"
    );
    assert!(
        words.ends_with("The device `cpu` does without it"),
        "{words}"
    );
    assert!(GpuEngine::choose(Device::Cpu, &large).unwrap().0.is_none());
    let small = shape(3, 32, 1, 6, false);
    assert!(GpuEngine::choose(Device::Auto, &small).unwrap().0.is_none());
    let (found, _) = GpuEngine::choose(Device::Auto, &large).unwrap();
    assert_eq!(found.is_some(), Gpu::open(0).is_ok());
    let huge = shape(3, 600, 1, 6, false);
    assert!(GpuEngine::choose(Device::Auto, &huge).unwrap().0.is_none());
    let error = GpuEngine::choose(Device::Cuda(0), &huge)
        .unwrap_err()
        .to_string();
    assert!(error.contains("600 units"), "{error}");
}

/// Loss and gradients on the GPU, with the batch in `parts` consecutive parts.
fn learn(sample: &Sample, parts: usize) -> (f64, Vec<f32>) {
    let mut engine = GpuEngine::open(0, &sample.shape).unwrap();
    engine.load(&sample.parameters).unwrap();
    let series = sample.series();
    let data = Labelled::new(series, &sample.labels).unwrap();
    let rows: Vec<usize> = (0..series.len()).collect();
    let identity = Normalisation::identity(sample.shape.features);
    let weight = 1.0 / sample.prefixes() as f32;
    for (i, rows) in rows.chunks(rows.len().div_ceil(parts)).enumerate() {
        let batch = fill(&engine.network, &data, rows, &identity, true).unwrap();
        engine.network.learn(&batch, GAMMA, weight, i > 0).unwrap();
    }
    let (loss, _) = engine.network.take_loss().unwrap();
    let mut gradient = vec![0.0; sample.parameters.len()];
    engine.network.gradients(&mut gradient).unwrap();
    (loss / sample.prefixes() as f64, gradient)
}

fn farthest(got: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let gaps = got
        .iter()
        .zip(expected)
        .map(|(g, e)| (f64::from(*g) - e).abs());
    gaps.fold(0.0, |a, b| if b > a || b.is_nan() { b } else { a })
}

fn scores(sample: &Sample, device: Device) -> Scores {
    let classes = (0..sample.shape.classes).map(|k| k.to_string()).collect();
    let identity = Normalisation::identity(sample.shape.features);
    let model = Model::new(
        sample.shape,
        sample.parameters.clone(),
        classes,
        identity,
        None,
    );
    let model = model.unwrap();
    let mut parts = model.score_on(sample.series(), device).unwrap();
    assert_eq!(parts.gpu().is_some(), device != Device::Cpu);
    let mut all = parts.next().unwrap().unwrap();
    for part in parts {
        let part = part.unwrap();
        all.lengths.extend(part.lengths);
        all.probabilities.extend(part.probabilities);
        all.predictions.extend(part.predictions);
        all.confidence.extend(part.confidence);
        if let (Some(gap), Some(more)) = (&mut all.gap, part.gap) {
            gap.extend(more);
        }
    }
    all
}

/// The bounds are the same as for the CPU's kernels.
fn equals_the_reference(sample: &Sample) {
    let parameters: Vec<f64> = sample.parameters.iter().map(|p| f64::from(*p)).collect();
    let reference = Reference {
        shape: sample.shape,
        parameters: &parameters,
        gamma: f64::from(GAMMA),
    };
    let series = sample.series();
    let what = format!("{:?}, {} × {}", sample.shape, series.len(), sample.steps);
    let (expected_loss, expected) = reference.loss(&series, &sample.labels);
    let (loss, gradient) = learn(sample, 1);
    let worst = farthest(&gradient, &expected);
    let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
    let relative = norm(
        &mut gradient
            .iter()
            .zip(&expected)
            .map(|(g, e)| f64::from(*g) - e),
    ) / norm(&mut expected.iter().copied());
    let scores = scores(sample, Device::Cuda(0));
    let (k, mut farthest_score) = (sample.shape.classes, 0.0f64);
    for i in 0..series.len() {
        let mut rows = reference.scores(series.sequence(i));
        rows.resize(sample.steps, vec![0.0; sample.shape.outputs()]);
        for (t, row) in rows.iter().enumerate() {
            let cell = i * sample.steps + t;
            let mut got = scores.probabilities[cell * k..(cell + 1) * k].to_vec();
            let best = got.iter().copied().fold(0.0, f32::max);
            assert_eq!(got[scores.predictions[cell] as usize], best, "{what}");
            got.push(scores.confidence[cell]);
            got.extend(scores.gap.iter().map(|gap| gap[cell]));
            farthest_score = farthest_score.max(farthest(&got, row));
        }
    }
    println!(
        "{what}: loss {:.1e}, gradients {worst:.1e} (relative {relative:.1e}), scores {farthest_score:.1e}",
        (loss - expected_loss).abs(),
    );
    assert!(
        (loss - expected_loss).abs() < 1e-5,
        "{what}: {loss} {expected_loss}"
    );
    assert!(worst < 1e-6, "{what}: gradients differ by {worst}");
    assert!(
        farthest_score < 2e-6,
        "{what}: scores differ by {farthest_score}"
    );
}

#[test]
fn gpu_small_networks_equal_the_reference() {
    if gpu_there() {
        for shape in shapes() {
            equals_the_reference(&Sample::new(shape, 13, 11));
        }
    }
}

#[test]
fn gpu_large_networks_equal_the_reference() {
    if gpu_there() {
        for (hidden, layers) in [
            (64, 2),
            (100, 1),
            (128, 3),
            (130, 2),
            (256, 2),
            (300, 1),
            (512, 2),
        ] {
            let gap = hidden % 128 == 0;
            equals_the_reference(&Sample::new(shape(3, hidden, layers, 6, gap), 13, 9));
        }
        // Tests wide slices, and more sequences than run together.
        for (hidden, n) in [
            (96, 1300),
            (256, 70),
            (256, 200),
            (256, 500),
            (512, 100),
            (320, 250),
        ] {
            equals_the_reference(&Sample::new(shape(2, hidden, 1, 5, true), n, 3));
        }
        // Tests two layers at the same time, in narrow and wide slices, and in parts of
        // them.
        for (features, n) in [(1, 60), (5, 100), (3, 250), (16, 300), (3, 500)] {
            equals_the_reference(&Sample::new(shape(features, 256, 2, 6, true), n, 5));
        }
    }
}

/// From this many on, each block takes its sequences through all layers by itself. The CPU
/// has its own tests against the reference.
#[test]
fn gpu_many_sequences_equal_the_cpu() {
    if gpu_there() {
        for (features, hidden, layers, n, steps) in [
            (3, 128, 1, 3000, 9),
            (2, 130, 3, 2500, 5),
            (1, 256, 1, 4000, 7),
            (3, 256, 2, 1100, 40),
            (3, 256, 2, 2300, 6),
            (32, 256, 2, 4300, 3),
            (3, 256, 2, 10_000, 3),
            (2, 320, 2, 3000, 4),
            (5, 512, 2, 2600, 3),
        ] {
            let gap = layers == 2;
            let sample = Sample::new(shape(features, hidden, layers, 6, gap), n, steps);
            let (gpu, cpu) = (
                scores(&sample, Device::Cuda(0)),
                scores(&sample, Device::Cpu),
            );
            let wide = |v: &[f32]| v.iter().copied().map(f64::from).collect::<Vec<f64>>();
            let mut worst = farthest(&gpu.probabilities, &wide(&cpu.probabilities));
            worst = worst.max(farthest(&gpu.confidence, &wide(&cpu.confidence)));
            if let (Some(gpu), Some(cpu)) = (&gpu.gap, &cpu.gap) {
                worst = worst.max(farthest(gpu, &wide(cpu)));
            }
            println!("{:?}, {n} × {steps}: scores {worst:.1e}", sample.shape);
            assert_eq!(gpu.lengths, cpu.lengths);
            assert!(worst < 2e-6, "{:?}: scores differ by {worst}", sample.shape);
            assert_eq!(gpu, scores(&sample, Device::Cuda(0)));
        }
    }
}

#[test]
fn gpu_long_sequences_equal_the_reference() {
    if gpu_there() {
        equals_the_reference(&Sample::new(shape(3, 256, 2, 6, false), 8, 206));
    }
}

#[test]
fn gpu_parts_of_a_batch_add_up_and_runs_repeat_to_the_bit() {
    if gpu_there() {
        let sample = Sample::new(shape(3, 200, 2, 6, true), 64, 40);
        let (loss, gradient) = learn(&sample, 1);
        assert_eq!(learn(&sample, 1), (loss, gradient.clone()));
        let (in_parts, parts) = learn(&sample, 3);
        assert!((loss - in_parts).abs() < 1e-9);
        let whole: Vec<f64> = gradient.iter().map(|g| f64::from(*g)).collect();
        assert!(farthest(&parts, &whole) < 1e-7);
        assert_eq!(
            scores(&sample, Device::Cuda(0)),
            scores(&sample, Device::Cuda(0))
        );
    }
}

/// Sequences whose first feature shows which of three classes they belong to, more clearly
/// over time.
fn learnable(n: usize) -> (Vec<f32>, Vec<u32>) {
    let labels: Vec<u32> = (0..n).map(|i| (i * 7 % 3) as u32).collect();
    let mut random = haltwise_series::Random::new(4, 0);
    let values = labels.iter().flat_map(|label| {
        let level = *label as f32 - 1.0;
        (0..12)
            .map(|t| level * t as f32 / 12.0 + random.symmetric(1.0))
            .collect::<Vec<_>>()
    });
    (values.collect(), labels)
}

fn trainer<'a>(values: &'a [f32], labels: &'a [u32], device: Device) -> Trainer<'a> {
    let series = Series::new(values, 12, 1).unwrap();
    let options = TrainOptions {
        hidden: 96,
        layers: 2,
        max_epochs: 6,
        seed: 2,
        ..TrainOptions::default()
    };
    let names = ["a", "b", "c"].map(String::from).to_vec();
    let data = Labelled::new(series, labels).unwrap();
    Trainer::new(data, None, names, options)
        .unwrap()
        .on(device)
        .unwrap()
}

#[test]
fn gpu_training_follows_the_cpu() {
    if !gpu_there() {
        return;
    }
    let (values, labels) = learnable(900);
    let run = |device| {
        let mut trainer = trainer(&values, &labels, device);
        std::iter::from_fn(|| trainer.epoch().unwrap()).collect::<Vec<_>>()
    };
    let (cpu, gpu) = (run(Device::Cpu), run(Device::Cuda(0)));
    assert_eq!(gpu, run(Device::Auto));
    for (cpu, gpu) in cpu.iter().zip(&gpu) {
        println!(
            "{:.6} {:.6}, {:.6} {:.6}",
            cpu.train_loss, gpu.train_loss, cpu.validation_loss, gpu.validation_loss
        );
        assert!((cpu.train_loss - gpu.train_loss).abs() < 1e-3);
        assert!((cpu.validation_loss - gpu.validation_loss).abs() < 1e-3);
    }
    assert!(gpu[5].validation_loss < 0.8 * gpu[0].validation_loss);
}

#[test]
fn gpu_runs_resume_to_the_bit_and_on_the_cpu() {
    if !gpu_there() {
        return;
    }
    let (values, labels) = learnable(300);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let mut whole = trainer(&values, &labels, Device::Cuda(0));
    for _ in 0..3 {
        whole.epoch().unwrap();
    }
    whole.save_state(&path).unwrap();
    let mut again = trainer(&values, &labels, Device::Cuda(0));
    again.resume(&path).unwrap();
    let mut on_cpu = trainer(&values, &labels, Device::Cpu);
    on_cpu.resume(&path).unwrap();
    while let Some(epoch) = whole.epoch().unwrap() {
        assert_eq!(again.epoch().unwrap(), Some(epoch));
        let cpu = on_cpu.epoch().unwrap().unwrap();
        assert!((cpu.validation_loss - epoch.validation_loss).abs() < 1e-3);
    }
    assert_eq!(whole.model().unwrap(), again.model().unwrap());
}

#[test]
fn gpu_that_fails_loses_nothing() {
    if !gpu_there() {
        return;
    }
    let (values, labels) = learnable(300);
    // A weight too large for its products: training refuses to go on.
    let spoil = |trainer: &mut Trainer<'_>| trainer.state.parameters[5] = 2000.0;
    let mut asked = trainer(&values, &labels, Device::Cuda(0));
    asked.epoch().unwrap();
    spoil(&mut asked);
    let before = asked.state.parameters.clone();
    let error = asked.epoch().unwrap_err().to_string();
    assert!(
        error.contains("cuda:0 cannot be used: a weight is 2000"),
        "{error}"
    );
    assert_eq!(
        (asked.state.parameters.clone(), asked.state.epochs),
        (before, 1)
    );
    let mut auto = trainer(&values, &labels, Device::Auto);
    auto.epoch().unwrap();
    spoil(&mut auto);
    let mut cpu = trainer(&values, &labels, Device::Cpu);
    cpu.state = auto.state.clone();
    assert_eq!(auto.epoch().unwrap(), cpu.epoch().unwrap());
    assert!(auto.gpu().is_none());
    assert!(
        auto.given_up()
            .unwrap()
            .to_string()
            .contains("a weight is 2000")
    );
}
