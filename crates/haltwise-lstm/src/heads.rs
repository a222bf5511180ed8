//! The heads: from the hidden state to probabilities and to the loss.

use crate::backward::times;
use crate::kernel::{SMALL_TILE, exp, ln, product, sigmoid};
use crate::pack::{Packed, Tiles};
use crate::shape::Shape;
use crate::simd::{SIMD_WIDTH, SimdArray, transpose_into};
use fearless_simd::{f32x16, prelude::*};

/// The sums of a pass over labelled sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct LossSums {
    /// The loss, summed over prefixes.
    pub(crate) loss: f64,
    /// The number of sequences whose full prediction is right.
    pub(crate) right: usize,
}

/// `logits = heads · hidden + bias`.
#[inline(always)]
fn logits<S: Simd, const M: usize>(
    simd: S,
    heads: &Tiles,
    hidden: &[SimdArray],
    out: &mut [SimdArray],
) {
    for (tile, out) in out.chunks_exact_mut(M).enumerate().take(heads.count::<M>()) {
        let weights = heads.tile::<M>(tile);
        if M == SMALL_TILE || heads.outputs() - tile * M > SMALL_TILE {
            logits_tile::<S, M, M>(simd, weights, hidden, out);
        } else {
            logits_tile::<S, M, SMALL_TILE>(simd, weights, hidden, out);
        }
    }
}

#[inline(always)]
fn logits_tile<S: Simd, const M: usize, const N: usize>(
    simd: S,
    weights: &[[f32; M]],
    hidden: &[SimdArray],
    out: &mut [SimdArray],
) {
    let (bias, weights) = weights.split_at(1);
    let mut z = [f32x16::splat(simd, 0.0); N];
    for (z, bias) in z.iter_mut().zip(bias[0]) {
        *z = f32x16::splat(simd, bias);
    }
    for (out, z) in out.iter_mut().zip(product(simd, weights, hidden, z)) {
        out.store(z);
    }
}

/// The softmax of the class logits, in place.
struct Softmax<S: Simd> {
    /// The class of the largest logit, the first of equals.
    argmax: f32x16<S>,
    /// ln Σ exp(logit).
    log_sum: f32x16<S>,
    /// 1 / Σ exp(logit − largest).
    scale: f32x16<S>,
}

/// Replaces class logits by exp(logit − largest).
#[inline(always)]
fn softmax<S: Simd>(simd: S, classes: &mut [SimdArray]) -> Softmax<S> {
    let mut largest = classes[0].load(simd);
    let mut argmax = f32x16::splat(simd, 0.0);
    let mut class = argmax;
    for logit in &classes[1..] {
        class += 1.0;
        let logit = logit.load(simd);
        let larger = logit.simd_gt(largest);
        largest = larger.select(logit, largest);
        argmax = larger.select(class, argmax);
    }
    let mut sum = f32x16::splat(simd, 0.0);
    for logit in classes.iter_mut() {
        // Below e^-80 a probability is 0 for every purpose.
        let e = exp(simd, (logit.load(simd) - largest).max(-80.0), 1.0);
        logit.store(e);
        sum += e;
    }
    Softmax {
        argmax,
        log_sum: ln(simd, sum) + largest,
        scale: f32x16::splat(simd, 1.0) / sum,
    }
}

/// Binary cross-entropy of σ(logit) against `target`, and its derivative.
#[inline(always)]
fn binary<S: Simd>(simd: S, logit: f32x16<S>, target: f32x16<S>) -> (f32x16<S>, f32x16<S>) {
    let zero = f32x16::splat(simd, 0.0);
    let magnitude = logit.abs().min(80.0);
    let soft = ln(simd, exp(simd, magnitude, -1.0) + 1.0);
    let loss = logit.max(zero) - logit * target + soft;
    (loss, sigmoid(simd, logit) - target)
}

/// The targets of the loss for the sequences of a block.
#[derive(Clone, Debug)]
pub(crate) struct Targets<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) lengths: &'a [usize; SIMD_WIDTH],
    pub(crate) labels: &'a [u32; SIMD_WIDTH],
    /// The weight of the binary losses.
    pub(crate) gamma: f32,
    /// One over the number of prefixes in the batch.
    pub(crate) weight: f32,
}

/// Computes the loss of every prefix and, with `GRADIENT`, its gradients: those of the
/// logits in `all_logits` (`[step][stride]`, else a single row), and those of the hidden
/// state in `from_above` (`[step][unit]`). `hidden` is `[step][unit]`.
///
/// Steps run backwards because the gap head's target asks whether the *full*
/// prediction was right. No gradient flows through the targets.
#[inline(always)]
pub(crate) fn heads_loss<S: Simd, const M: usize, const GRADIENT: bool>(
    simd: S,
    weights: &Packed,
    targets: &Targets<'_>,
    hidden: &[SimdArray],
    all_logits: &mut [SimdArray],
    from_above: &mut [SimdArray],
) -> LossSums {
    let Shape {
        classes,
        hidden: units,
        gap_head,
        ..
    } = *targets.shape;
    let steps = hidden.len() / units;
    let stride = all_logits.len() / if GRADIENT { steps.max(1) } else { 1 };
    let (zero, one) = (f32x16::splat(simd, 0.0), f32x16::splat(simd, 1.0));
    let labels = f32x16::simd_from(simd, targets.labels.map(|l| l as f32));
    let lengths = f32x16::simd_from(simd, targets.lengths.map(|l| l as f32));
    let mut full_right = zero;
    let mut sums = LossSums::default();
    for t in (0..steps).rev() {
        let row = if GRADIENT { t } else { 0 };
        let z = &mut all_logits[row * stride..(row + 1) * stride];
        logits::<S, M>(simd, &weights.heads, &hidden[t * units..(t + 1) * units], z);

        let (step, (z_classes, z_single)) = ((t + 1) as f32, z.split_at_mut(classes));
        let running = lengths.simd_ge(step);
        let label_logit = pick(simd, z_classes, labels);
        let Softmax {
            argmax,
            log_sum,
            scale,
        } = softmax(simd, z_classes);
        let right = argmax.simd_eq(labels).select(one, zero);
        full_right = lengths.simd_eq(step).select(right, full_right);

        let (mut binary_loss, confidence_slope) = binary(simd, z_single[0].load(simd), right);
        let mut gap_slope = zero;
        if gap_head {
            let gap = full_right * (one - right);
            let (loss, slope) = binary(simd, z_single[1].load(simd), gap);
            binary_loss += loss;
            gap_slope = slope;
        }
        let loss = binary_loss.mul_add(targets.gamma, log_sum - label_logit);
        sums.loss += f64::from(running.select(loss, zero).reduce_sum());

        if GRADIENT {
            let weight = running.select(f32x16::splat(simd, targets.weight), zero);
            let binary_weight = weight * targets.gamma;
            let mut class = zero;
            for p in z_classes {
                let target = labels.simd_eq(class).select(one, zero);
                p.store((p.load(simd) * scale - target) * weight);
                class += 1.0;
            }
            z_single[0].store(confidence_slope * binary_weight);
            if gap_head {
                z_single[1].store(gap_slope * binary_weight);
            }
            let from_above = &mut from_above[t * units..(t + 1) * units];
            times::<S, M>(simd, &weights.from_heads, z, from_above);
        }
    }
    sums.right = full_right.reduce_sum() as usize;
    sums
}

/// The logit of each sequence's label.
#[inline(always)]
fn pick<S: Simd>(simd: S, classes: &[SimdArray], labels: f32x16<S>) -> f32x16<S> {
    let mut picked = f32x16::splat(simd, 0.0);
    let mut class = picked;
    for logit in classes {
        picked = labels.simd_eq(class).select(logit.load(simd), picked);
        class += 1.0;
    }
    picked
}

/// Space for the scores of a block's sequences. Rows are `steps` long.
#[derive(Debug)]
pub(crate) struct ScoreRows<'a> {
    pub(crate) steps: usize,
    /// `[sequence][step][class]`.
    pub(crate) probabilities: &'a mut [f32],
    /// `[sequence][step]`.
    pub(crate) predictions: &'a mut [u32],
    /// `[sequence][step]`.
    pub(crate) confidence: &'a mut [f32],
    /// `[sequence][step]`, if the model has that head.
    pub(crate) gap: Option<&'a mut [f32]>,
}

/// Writes class probabilities, predictions, confidence and the gap head's estimate for
/// every step of every sequence. `hidden` is `[step][unit]`; `z` has room for the logits of
/// a step.
#[inline(always)]
pub(crate) fn heads_scores<S: Simd, const M: usize>(
    simd: S,
    weights: &Packed,
    shape: &Shape,
    lengths: &[usize; SIMD_WIDTH],
    hidden: &[SimdArray],
    z: &mut [SimdArray],
    out: &mut ScoreRows<'_>,
) {
    let classes = shape.classes;
    let mut by_lane = [SimdArray::ZERO; SIMD_WIDTH];
    for (t, hidden) in hidden.chunks_exact(shape.hidden).enumerate() {
        logits::<S, M>(simd, &weights.heads, hidden, z);
        let Softmax { argmax, scale, .. } = softmax(simd, &mut z[..classes]);
        for p in &mut z[..classes] {
            p.store(p.load(simd) * scale);
        }
        for (first, values) in (0..classes).step_by(SIMD_WIDTH).zip(z.chunks(SIMD_WIDTH)) {
            transpose_into(simd, values, &mut by_lane);
            let count = SIMD_WIDTH.min(classes - first);
            for (lane, length) in lengths.iter().enumerate() {
                if t < *length {
                    let start = (lane * out.steps + t) * classes + first;
                    copy_few(
                        &by_lane[lane].0,
                        &mut out.probabilities[start..start + count],
                    );
                }
            }
        }
        let argmax = argmax.to_array();
        let confidence = sigmoid(simd, z[classes].load(simd)).to_array();
        // The gap head's logit if there is one; otherwise the confidence again.
        let gap = sigmoid(simd, z[shape.outputs() - 1].load(simd)).to_array();
        for (lane, length) in lengths.iter().enumerate() {
            if t < *length {
                let cell = lane * out.steps + t;
                out.predictions[cell] = argmax[lane] as u32;
                out.confidence[cell] = confidence[lane];
                if let Some(out) = &mut out.gap {
                    out[cell] = gap[lane];
                }
            }
        }
    }
}

/// Copies as much of `from` as fits into `to`; a library call would cost more than this
/// loop.
#[inline(always)]
fn copy_few(from: &[f32; SIMD_WIDTH], to: &mut [f32]) {
    let (eights, rest) = to.as_chunks_mut::<8>();
    for (to, from) in eights.iter_mut().zip(from.as_chunks::<8>().0) {
        *to = *from;
    }
    let copied = 8 * eights.len();
    for (to, from) in rest.iter_mut().zip(&from[copied..]) {
        *to = *from;
    }
}
