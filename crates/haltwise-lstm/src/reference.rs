//! The network in plain loops and double precision: the reference for the kernels.

use crate::pack::head_places;
use crate::shape::Shape;
use haltwise_series::Series;

/// One step of one layer.
#[derive(Clone, Default)]
struct Step {
    input: Vec<f64>,
    before: Vec<f64>,
    cell_before: Vec<f64>,
    /// `[i, f, g, o][unit]`.
    gates: [Vec<f64>; 4],
    cell: Vec<f64>,
    hidden: Vec<f64>,
}

pub(crate) struct Reference<'a> {
    pub(crate) shape: Shape,
    pub(crate) parameters: &'a [f64],
    pub(crate) gamma: f64,
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn binary_loss(logit: f64, target: f64) -> f64 {
    logit.max(0.0) - logit * target + (-logit.abs()).exp().ln_1p()
}

impl Reference<'_> {
    /// The first places of a layer's input weights, recurrent weights and bias.
    fn layer_places(&self, layer: usize) -> [usize; 3] {
        let tensors = self.shape.tensors();
        [0, 1, 2].map(|k| tensors[3 * layer + k].start)
    }

    fn heads_start(&self) -> usize {
        self.shape.tensors()[3 * self.shape.layers].start
    }

    fn layer(&self, layer: usize, inputs: &[Vec<f64>]) -> Vec<Step> {
        let h = self.shape.hidden;
        let [w_ih, w_hh, bias] = self.layer_places(layer);
        let p = self.parameters;
        let (mut hidden, mut cell) = (vec![0.0; h], vec![0.0; h]);
        let mut steps = Vec::new();
        for x in inputs {
            let gate = |row: usize| {
                let mut z = p[bias + row];
                for (k, x) in x.iter().enumerate() {
                    z += p[w_ih + row * x_len(inputs) + k] * x;
                }
                for (k, v) in hidden.iter().enumerate() {
                    z += p[w_hh + row * h + k] * v;
                }
                z
            };
            let gates: [Vec<f64>; 4] = std::array::from_fn(|g| {
                (0..h)
                    .map(|u| gate(g * h + u))
                    .map(|z| if g == 2 { z.tanh() } else { sigmoid(z) })
                    .collect()
            });
            let mut step = Step {
                input: x.clone(),
                before: hidden.clone(),
                cell_before: cell.clone(),
                gates,
                ..Step::default()
            };
            for u in 0..h {
                cell[u] = step.gates[1][u] * cell[u] + step.gates[0][u] * step.gates[2][u];
                hidden[u] = step.gates[3][u] * cell[u].tanh();
            }
            step.cell.clone_from(&cell);
            step.hidden.clone_from(&hidden);
            steps.push(step);
        }
        steps
    }

    fn logits(&self, hidden: &[f64]) -> Vec<f64> {
        let (weights, bias) = head_places(&self.shape);
        let p = &self.parameters[self.heads_start()..];
        (0..self.shape.outputs())
            .map(|o| {
                let products = hidden
                    .iter()
                    .enumerate()
                    .map(|(u, h)| p[weights[o] + u] * h);
                p[bias[o]] + products.sum::<f64>()
            })
            .collect()
    }

    fn forward(&self, values: &[f32]) -> Vec<Vec<Step>> {
        let mut inputs: Vec<Vec<f64>> = values
            .chunks(self.shape.features)
            .map(|x| x.iter().map(|v| f64::from(*v)).collect())
            .collect();
        let mut layers = Vec::new();
        for l in 0..self.shape.layers {
            let steps = self.layer(l, &inputs);
            inputs = steps.iter().map(|s| s.hidden.clone()).collect();
            layers.push(steps);
        }
        layers
    }

    /// Per step: class probabilities, confidence, gap estimate.
    pub(crate) fn scores(&self, values: &[f32]) -> Vec<Vec<f64>> {
        let k = self.shape.classes;
        let top = self.forward(values).pop().unwrap();
        top.iter()
            .map(|step| {
                let z = self.logits(&step.hidden);
                let mut out = softmax(&z[..k]);
                out.extend(z[k..].iter().map(|z| sigmoid(*z)));
                out
            })
            .collect()
    }

    /// The mean loss per prefix and its gradient.
    pub(crate) fn loss(&self, series: &Series<'_>, labels: &[u32]) -> (f64, Vec<f64>) {
        let prefixes: usize = (0..series.len()).map(|i| series.length(i)).sum();
        let weight = 1.0 / prefixes as f64;
        let mut gradient = vec![0.0; self.parameters.len()];
        let mut loss = 0.0;
        for (i, &label) in labels.iter().enumerate() {
            let layers = self.forward(series.sequence(i));
            let top = layers.last().unwrap();
            let (sum, slopes) = self.heads(top, label as usize, weight);
            loss += sum * weight;
            self.backward(&layers, &slopes, &mut gradient);
        }
        (loss, gradient)
    }

    /// The summed loss of one sequence, and the gradients of its logits.
    fn heads(&self, top: &[Step], label: usize, weight: f64) -> (f64, Vec<Vec<f64>>) {
        let k = self.shape.classes;
        let all: Vec<Vec<f64>> = top.iter().map(|s| self.logits(&s.hidden)).collect();
        let right = |z: &Vec<f64>| argmax(&z[..k]) == label;
        let full = right(all.last().unwrap());
        let mut loss = 0.0;
        let slopes = all.iter().map(|z| {
            let mut slope = softmax(&z[..k]);
            loss -= slope[label].ln();
            slope[label] -= 1.0;
            let targets = [right(z), full && !right(z)];
            for (logit, target) in z[k..].iter().zip(targets) {
                let target = f64::from(u8::from(target));
                loss += self.gamma * binary_loss(*logit, target);
                slope.push(self.gamma * (sigmoid(*logit) - target));
            }
            slope.iter().map(|s| s * weight).collect()
        });
        let slopes = slopes.collect();
        (loss, slopes)
    }

    fn backward(&self, layers: &[Vec<Step>], slopes: &[Vec<f64>], gradient: &mut [f64]) {
        let (h, start) = (self.shape.hidden, self.heads_start());
        let (weights, bias) = head_places(&self.shape);
        let steps = slopes.len();
        let mut from_above = vec![vec![0.0; h]; steps];
        for t in 0..steps {
            let hidden = &layers.last().unwrap()[t].hidden;
            for (o, slope) in slopes[t].iter().enumerate() {
                gradient[start + bias[o]] += slope;
                for u in 0..h {
                    gradient[start + weights[o] + u] += slope * hidden[u];
                    from_above[t][u] += slope * self.parameters[start + weights[o] + u];
                }
            }
        }
        for (l, trace) in layers.iter().enumerate().rev() {
            from_above = self.layer_backward(l, trace, &from_above, gradient);
        }
    }

    fn layer_backward(
        &self,
        layer: usize,
        trace: &[Step],
        from_above: &[Vec<f64>],
        gradient: &mut [f64],
    ) -> Vec<Vec<f64>> {
        let (h, width) = (self.shape.hidden, self.shape.inputs(layer));
        let [w_ih, w_hh, bias] = self.layer_places(layer);
        let p = self.parameters;
        let (mut dh_later, mut dc_later) = (vec![0.0; h], vec![0.0; h]);
        let mut below = vec![vec![0.0; width]; trace.len()];
        for (t, step) in trace.iter().enumerate().rev() {
            let mut dz = vec![0.0; 4 * h];
            for u in 0..h {
                let dh = from_above[t][u] + dh_later[u];
                let [i, f, g, o] = std::array::from_fn(|k| step.gates[k][u]);
                let tanh = step.cell[u].tanh();
                let dc = dc_later[u] + dh * o * (1.0 - tanh * tanh);
                dz[u] = dc * g * i * (1.0 - i);
                dz[h + u] = dc * step.cell_before[u] * f * (1.0 - f);
                dz[2 * h + u] = dc * i * (1.0 - g * g);
                dz[3 * h + u] = dh * tanh * o * (1.0 - o);
                dc_later[u] = dc * f;
            }
            dh_later = vec![0.0; h];
            for (row, dz) in dz.iter().enumerate() {
                gradient[bias + row] += dz;
                for k in 0..width {
                    gradient[w_ih + row * width + k] += dz * step.input[k];
                    below[t][k] += dz * p[w_ih + row * width + k];
                }
                for k in 0..h {
                    gradient[w_hh + row * h + k] += dz * step.before[k];
                    dh_later[k] += dz * p[w_hh + row * h + k];
                }
            }
        }
        below
    }
}

fn x_len(inputs: &[Vec<f64>]) -> usize {
    inputs[0].len()
}

fn argmax(z: &[f64]) -> usize {
    (0..z.len()).fold(0, |best, k| if z[k] > z[best] { k } else { best })
}

fn softmax(z: &[f64]) -> Vec<f64> {
    let largest = z.iter().copied().fold(f64::MIN, f64::max);
    let e: Vec<f64> = z.iter().map(|z| (z - largest).exp()).collect();
    let sum: f64 = e.iter().sum();
    e.iter().map(|e| e / sum).collect()
}

mod tests {
    use super::*;
    use crate::adam::Adam;
    use crate::block::Block;
    use crate::engine::{Engine, Gradients};
    use crate::normalise::Normalisation;
    use crate::simd::SIMD_WIDTH;
    use serde::Deserialize;

    /// One case of the stored float64 PyTorch values.
    #[derive(Deserialize)]
    struct Golden {
        shape: Shape,
        steps: usize,
        gamma: f64,
        lengths: Vec<u32>,
        labels: Vec<u32>,
        values: Vec<f32>,
        parameters: Vec<f64>,
        loss: f64,
        gradients: Vec<f64>,
        adam_steps: usize,
        after_adam: Vec<f64>,
    }

    impl Golden {
        fn all() -> Vec<Golden> {
            serde_json::from_str(include_str!("../tests/golden/gradients.json")).unwrap()
        }

        fn series(&self) -> Series<'_> {
            let features = self.shape.features;
            Series::with_lengths(&self.values, self.steps, features, &self.lengths).unwrap()
        }
    }

    /// Loss and gradient by the kernels, in blocks of sixteen.
    fn fast(
        shape: Shape,
        parameters: &[f32],
        series: &Series<'_>,
        labels: &[u32],
        gamma: f32,
    ) -> (f64, Vec<f32>) {
        let mut engine = Engine::new(shape);
        engine.load(parameters, true);
        let identity = Normalisation::identity(shape.features);
        let prefixes: usize = (0..series.len()).map(|i| series.length(i)).sum();
        let rows: Vec<usize> = (0..series.len()).collect();
        let (mut block, mut sums) = (Block::new(shape), Gradients::new(&shape));
        let mut total = Gradients::new(&shape);
        let mut loss = 0.0;
        for rows in rows.chunks(SIMD_WIDTH) {
            block.load(series, rows, |r| labels[r], &identity);
            let weight = 1.0 / prefixes as f32;
            loss += engine.learn(&mut block, &mut sums, gamma, weight).loss;
            total.add(&sums);
        }
        let mut gradient = vec![0.0; parameters.len()];
        total.write_to(&shape, &mut gradient);
        (loss / prefixes as f64, gradient)
    }

    fn assert_close(what: &str, got: &[f64], expected: &[f64], bound: f64) {
        assert_eq!(got.len(), expected.len());
        for (k, (g, e)) in got.iter().zip(expected).enumerate() {
            assert!(
                (g - e).abs() < bound,
                "{what}, parameter {k}: {g}, expected {e}"
            );
        }
    }

    fn widen(values: &[f32]) -> Vec<f64> {
        values.iter().map(|v| f64::from(*v)).collect()
    }

    fn narrow(values: &[f64]) -> Vec<f32> {
        values.iter().map(|v| *v as f32).collect()
    }

    #[test]
    fn the_reference_equals_pytorch() {
        for case in Golden::all() {
            let reference = Reference {
                shape: case.shape,
                parameters: &case.parameters,
                gamma: case.gamma,
            };
            let (loss, gradient) = reference.loss(&case.series(), &case.labels);
            assert!((loss - case.loss).abs() < 1e-10);
            assert_close("reference", &gradient, &case.gradients, 1e-10);
        }
    }

    #[test]
    fn the_kernels_equal_pytorch() {
        for case in Golden::all() {
            let parameters = narrow(&case.parameters);
            let (loss, gradient) = fast(
                case.shape,
                &parameters,
                &case.series(),
                &case.labels,
                case.gamma as f32,
            );
            assert!((loss - case.loss).abs() < 1e-6);
            assert_close("kernels", &widen(&gradient), &case.gradients, 1e-6);
        }
    }

    #[test]
    fn adam_with_merged_biases_equals_pytorch_with_two() {
        for case in Golden::all() {
            let mut parameters = narrow(&case.parameters);
            let mut adam = Adam::new(&case.shape);
            for _ in 0..case.adam_steps {
                let gamma = case.gamma as f32;
                let (_, gradient) =
                    fast(case.shape, &parameters, &case.series(), &case.labels, gamma);
                adam.step(&mut parameters, &gradient, 1e-3);
            }
            assert_close("Adam", &widen(&parameters), &case.after_adam, 1e-5);
        }
    }

    #[test]
    fn the_reference_equals_finite_differences() {
        for case in Golden::all() {
            let mut parameters = case.parameters.clone();
            let loss = |parameters: &[f64]| {
                let (shape, gamma) = (case.shape, case.gamma);
                let reference = Reference {
                    shape,
                    parameters,
                    gamma,
                };
                reference.loss(&case.series(), &case.labels)
            };
            let (_, gradient) = loss(&parameters);
            for k in 0..parameters.len() {
                let (at, step) = (parameters[k], 1e-5);
                parameters[k] = at + step;
                let (above, _) = loss(&parameters);
                parameters[k] = at - step;
                let (below, _) = loss(&parameters);
                parameters[k] = at;
                let slope = (above - below) / (2.0 * step);
                assert!((slope - gradient[k]).abs() < 1e-8, "{k}: {slope}");
            }
        }
    }
}
