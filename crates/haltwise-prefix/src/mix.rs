//! One answer from two voices, calibrated.

use serde::{Deserialize, Serialize};

/// How much each voice counts: the answer is the softmax of `ridge · scores + trees · ln votes`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Mix {
    pub(crate) ridge: f64,
    pub(crate) trees: f64,
}

/// Added to votes before their logarithm: no tree for a class is not proof against it.
const LEAST_VOTE: f32 = 0.01;

impl Mix {
    /// The mix with the least log-loss of out-of-sample answers. It is convex in both weights,
    /// so Newton's method finds it. It also is the temperature: the answers are calibrated.
    pub(crate) fn fit(scores: &[f32], votes: &[f32], labels: &[u32], classes: usize) -> Self {
        let rows: Vec<Row> = labels
            .iter()
            .enumerate()
            .map(|(i, &label)| {
                let part = i * classes..(i + 1) * classes;
                Row::new(&scores[part.clone()], votes.get(part), label)
            })
            .collect();
        let mut weights = [4.0, 0.5];
        if votes.is_empty() {
            weights[1] = 0.0;
        }
        let mut loss = Derivatives::at(&rows, weights);
        for _ in 0..50 {
            let Some(next) = loss.step(&rows, weights) else {
                break;
            };
            let gain = loss.value - next.1.value;
            (weights, loss) = next;
            if gain < 1e-9 {
                break;
            }
        }
        let [ridge, trees] = weights;
        Mix { ridge, trees }
    }

    /// Turns scores and votes into probabilities, in the place of the scores.
    pub(crate) fn answer(&self, scores: &mut [f32], votes: &[f32]) {
        let mut most = f32::NEG_INFINITY;
        for (k, score) in scores.iter_mut().enumerate() {
            *score *= self.ridge as f32;
            if let Some(vote) = votes.get(k) {
                *score += self.trees as f32 * libm::logf(vote + LEAST_VOTE);
            }
            most = most.max(*score);
        }
        let mut sum = 0.0;
        for score in scores.iter_mut() {
            *score = libm::expf(*score - most);
            sum += *score;
        }
        scores.iter_mut().for_each(|p| *p /= sum);
    }
}

/// What the voices say about one series.
struct Row {
    voices: Vec<[f64; 2]>,
    label: usize,
}

impl Row {
    fn new(scores: &[f32], votes: Option<&[f32]>, label: u32) -> Self {
        let log_vote = |k: usize| votes.map_or(0.0, |v| libm::log(f64::from(v[k] + LEAST_VOTE)));
        let voices = scores
            .iter()
            .enumerate()
            .map(|(k, &s)| [f64::from(s), log_vote(k)]);
        Row {
            voices: voices.collect(),
            label: label as usize,
        }
    }
}

/// The mean log-loss and its derivatives by the weights.
struct Derivatives {
    value: f64,
    first: [f64; 2],
    /// By the first twice, by both, by the second twice.
    second: [f64; 3],
}

impl Derivatives {
    fn at(rows: &[Row], weights: [f64; 2]) -> Self {
        let mut all = Derivatives {
            value: 0.0,
            first: [0.0; 2],
            second: [0.0; 3],
        };
        let mut p = Vec::new();
        for row in rows {
            p.clear();
            p.extend(
                row.voices
                    .iter()
                    .map(|v| weights[0] * v[0] + weights[1] * v[1]),
            );
            let most = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let at_label = p[row.label] - most;
            p.iter_mut().for_each(|z| *z = libm::exp(*z - most));
            let sum: f64 = p.iter().sum();
            all.value += libm::log(sum) - at_label;
            let (mut mean, mut products) = ([0.0; 2], [0.0; 3]);
            for (p, [a, b]) in p.iter().zip(&row.voices) {
                let p = p / sum;
                mean[0] += p * a;
                mean[1] += p * b;
                products[0] += p * a * a;
                products[1] += p * a * b;
                products[2] += p * b * b;
            }
            for (i, m) in mean.iter().enumerate() {
                all.first[i] += m - row.voices[row.label][i];
            }
            all.second[0] += products[0] - mean[0] * mean[0];
            all.second[1] += products[1] - mean[0] * mean[1];
            all.second[2] += products[2] - mean[1] * mean[1];
        }
        let n = rows.len() as f64;
        all.value /= n;
        all.first.iter_mut().for_each(|x| *x /= n);
        all.second.iter_mut().for_each(|x| *x /= n);
        all
    }

    /// The next weights and the lower loss there; no weight falls below 0 or above a bound.
    fn step(&self, rows: &[Row], weights: [f64; 2]) -> Option<([f64; 2], Derivatives)> {
        let [mut a, mut b, mut c] = self.second;
        a += 1e-9;
        c += 1e-9;
        let [mut g, mut h] = self.first;
        // A weight at 0 that wants to fall stays, and the other moves alone.
        if weights[0] <= 0.0 && g > 0.0 {
            (a, b, g) = (1.0, 0.0, 0.0);
        }
        if weights[1] <= 0.0 && h > 0.0 {
            (b, c, h) = (0.0, 1.0, 0.0);
        }
        let determinant = a * c - b * b;
        let direction = if determinant > 1e-18 {
            [(b * h - c * g) / determinant, (b * g - a * h) / determinant]
        } else {
            [-g / a, -h / c]
        };
        let mut length = 1.0;
        while length > 1e-6 {
            let to = [0, 1].map(|i| (weights[i] + length * direction[i]).clamp(0.0, 200.0));
            let there = Derivatives::at(rows, to);
            if there.value < self.value {
                return Some((to, there));
            }
            length /= 2.0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_voice_that_knows_nothing_is_not_heard_and_answers_are_calibrated() {
        // Three in four answers of the ridge are right.
        let labels: Vec<u32> = (0..400).map(|i| i % 2).collect();
        let said = |i: usize| (i as u32 + u32::from((i / 2).is_multiple_of(4))) % 2;
        let scores: Vec<f32> = (0..400)
            .flat_map(|i| [1.0 - said(i) as f32, said(i) as f32])
            .collect();
        let votes: Vec<f32> = (0..400)
            .flat_map(|i| {
                if i / 8 % 2 == 0 {
                    [0.9, 0.1]
                } else {
                    [0.1, 0.9]
                }
            })
            .collect();
        let mix = Mix::fit(&scores, &votes, &labels, 2);
        assert!(mix.trees < 0.01, "{mix:?}");
        let mut answer = [0.0, 1.0];
        mix.answer(&mut answer, &[0.5, 0.5]);
        assert!((answer[1] - 0.75).abs() < 0.01, "{answer:?}");
    }

    #[test]
    fn a_perfect_voice_does_not_become_infinite() {
        let labels: Vec<u32> = (0..50).map(|i| i % 2).collect();
        let scores: Vec<f32> = labels
            .iter()
            .flat_map(|&l| [1.0 - l as f32, l as f32])
            .collect();
        let mix = Mix::fit(&scores, &[], &labels, 2);
        assert!(mix.ridge.is_finite() && mix.trees == 0.0);
        let mut answer = [0.0, 1.0];
        mix.answer(&mut answer, &[]);
        assert!(answer[1] > 0.99 && answer.iter().sum::<f32>() <= 1.001);
    }
}
