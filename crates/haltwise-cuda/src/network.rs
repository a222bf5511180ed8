//! A network on a GPU: its weights, what Adam remembers, and room for a batch.

mod capacity;

use crate::error::{Error, Result};
use crate::launch::{
    Arriving, Buffer, Gpu, Heads, Moment, Recurrence, ScoreBuffers, Sums, Targets, WAVE, Waiting,
    Way,
};
use crate::layout::{Layout, Sizes};

/// A network on a GPU.
#[derive(Debug)]
pub struct Network {
    gpu: Gpu,
    layout: Layout,
    parameters: Buffer<f32>,
    /// Adam's running means of the gradients and of their squares.
    moments: [Buffer<f32>; 2],
    gradients: Buffer<f32>,
    factors: Buffer<f32>,
    /// The summed loss and the right full predictions since they were last taken.
    total: Buffer<f64>,
    room: Room,
    /// Bytes that a batch may take up.
    budget: usize,
    /// How many batches were scored.
    scorings: usize,
}

/// What a batch needs on its way.
#[derive(Debug)]
struct Room {
    waiting: Waiting,
    inputs: Buffer<f32>,
    targets: Targets,
    layers: Vec<LayerRoom>,
    /// Inputs times weights, and on the way back, the slopes of the gates.
    projected: Buffer<f32>,
    /// The gradients of a layer's states, as seen from above.
    above: Buffer<f32>,
    logits: Buffer<f32>,
    predictions: Buffer<i32>,
    loss: Buffer<f32>,
    ring: Buffer<u32>,
    /// The weights, as they are taken where there are many sequences.
    packed: Buffer<u32>,
    parts: Buffer<f32>,
    scores: ScoreBuffers,
    /// Scores on this side, of every other batch.
    arriving: [ArrivingScores; 2],
}

/// Scores on their way to this side.
#[derive(Debug)]
struct ArrivingScores {
    probabilities: Arriving<f32>,
    predictions: Arriving<i32>,
    confidence: Arriving<f32>,
    gap: Arriving<f32>,
}

impl ArrivingScores {
    fn new() -> Self {
        ArrivingScores {
            probabilities: Arriving::new(),
            predictions: Arriving::new(),
            confidence: Arriving::new(),
            gap: Arriving::new(),
        }
    }
}

/// A batch that is being scored.
#[derive(Debug)]
pub struct Scoring {
    number: usize,
    cells: usize,
    done: Moment,
}

#[derive(Debug)]
struct LayerRoom {
    states: Buffer<f32>,
    gates: Buffer<f32>,
    cells: Buffer<f32>,
}

/// Sequences to learn from, to judge by or to score: made by [`Network::batch`], then filled.
#[derive(Clone, Debug)]
pub struct Batch {
    sizes: Recurrence,
    features: usize,
    sequences: usize,
    inputs: Vec<f32>,
    lengths: Vec<i32>,
    labels: Vec<i32>,
}

impl Batch {
    /// Fills all places: `of(place)` is a sequence's length and label, `value(place, step, feature)`
    /// what it is up to its length. Some places at a time, step by step, as the steps lie in memory.
    pub fn set(
        &mut self,
        of: impl Fn(usize) -> (usize, u32),
        value: impl Fn(usize, usize, usize) -> f32,
    ) {
        const TOGETHER: usize = 64;
        let (features, width) = (self.features, self.sizes.batch() * self.features);
        for first in (0..self.sequences).step_by(TOGETHER) {
            let places = first..self.sequences.min(first + TOGETHER);
            for place in places.clone() {
                let (length, label) = of(place);
                self.lengths[place] = length as i32;
                self.labels[place] = label as i32;
            }
            let lengths = &self.lengths;
            let steps = self.inputs.chunks_exact_mut(width.max(1));
            for (t, row) in steps.enumerate() {
                for place in places.clone().filter(|&p| t < lengths[p] as usize) {
                    let inputs = &mut row[place * features..(place + 1) * features];
                    for (feature, input) in inputs.iter_mut().enumerate() {
                        *input = value(place, t, feature);
                    }
                }
            }
        }
    }

    /// How many sequences there is a place for.
    pub fn sequences(&self) -> usize {
        self.sequences
    }
}

/// What a network says about a batch, sequence by sequence; zero beyond a sequence's end.
#[derive(Clone, Debug, Default)]
pub struct Scored {
    /// `[sequence][step][class]`.
    pub probabilities: Vec<f32>,
    /// `[sequence][step]`.
    pub predictions: Vec<i32>,
    /// `[sequence][step]`.
    pub confidence: Vec<f32>,
    /// `[sequence][step]`, where there is that head.
    pub gap: Option<Vec<f32>>,
}

/// The largest number that a weight may reach: beyond, float16 ends.
const LARGEST_WEIGHT: f32 = 1000.0;

/// How many numbers may be said about the sequences that are scored together.
const SCORED_TOGETHER: usize = 1 << 26;

impl Network {
    /// Room for a network; the weights are all zero.
    pub fn new(gpu: Gpu, layout: Layout) -> Result<Self> {
        let count = layout.parameters();
        let zeros = |n: usize| Buffer::<f32>::zeros(&gpu, n);
        let layer = || -> Result<LayerRoom> {
            Ok(LayerRoom {
                states: zeros(1)?,
                gates: zeros(1)?,
                cells: zeros(1)?,
            })
        };
        let layers: Result<Vec<LayerRoom>> = (0..layout.padded().layers).map(|_| layer()).collect();
        let room = Room {
            waiting: Waiting::new(),
            inputs: zeros(1)?,
            targets: Targets::new(&gpu)?,
            layers: layers?,
            projected: zeros(1)?,
            above: zeros(1)?,
            logits: zeros(1)?,
            predictions: Buffer::zeros(&gpu, 1)?,
            loss: zeros(1)?,
            ring: Buffer::zeros(&gpu, 1)?,
            packed: Buffer::zeros(&gpu, 1)?,
            parts: zeros(1)?,
            scores: ScoreBuffers::new(&gpu)?,
            arriving: [ArrivingScores::new(), ArrivingScores::new()],
        };
        let mut factors = zeros(count)?;
        factors.write(&gpu, &layout.factors())?;
        let mut network = Network {
            parameters: zeros(count)?,
            moments: [zeros(count)?, zeros(count)?],
            gradients: zeros(count)?,
            factors,
            total: Buffer::zeros(&gpu, 2)?,
            budget: 0,
            scorings: 0,
            room,
            layout,
            gpu,
        };
        // Others may want some memory too.
        network.budget = network.gpu.memory()?.0 / 2;
        if network.capacity(1, 1, true) == 0 {
            return Err(network.full());
        }
        Ok(network)
    }

    /// The GPU that it is on.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn full(&self) -> Error {
        match self.gpu.memory() {
            Ok((free, total)) => Error::Full {
                free: free >> 20,
                total: total >> 20,
            },
            Err(error) => error,
        }
    }

    /// Takes over weights.
    pub fn set_parameters(&mut self, parameters: &[f32]) -> Result<()> {
        let padded = self.layout.pad(parameters);
        if let Some(large) = padded.iter().find(|w| w.abs() > LARGEST_WEIGHT) {
            return Err(Error::TooLarge(format!(
                "a weight is {large}: the GPU's products hold weights up to {LARGEST_WEIGHT}"
            )));
        }
        self.parameters.write(&self.gpu, &padded)
    }

    /// Takes over what Adam remembers.
    pub fn set_moments(&mut self, first: &[f32], second: &[f32]) -> Result<()> {
        for (buffer, values) in self.moments.iter_mut().zip([first, second]) {
            buffer.write(&self.gpu, &self.layout.pad(values))?;
        }
        Ok(())
    }

    fn fetch(&self, from: &Buffer<f32>, to: &mut [f32]) -> Result<()> {
        let mut padded = vec![0.0; self.layout.parameters()];
        from.read(&self.gpu, &mut padded)?;
        self.layout.unpad(&padded, to);
        Ok(())
    }

    /// Brings the weights back.
    pub fn parameters(&self, to: &mut [f32]) -> Result<()> {
        self.fetch(&self.parameters, to)
    }

    /// Brings back what Adam remembers.
    pub fn moments(&self, first: &mut [f32], second: &mut [f32]) -> Result<()> {
        self.fetch(&self.moments[0], first)?;
        self.fetch(&self.moments[1], second)
    }

    /// Brings back the gradients of what was learnt from last.
    pub fn gradients(&self, to: &mut [f32]) -> Result<()> {
        self.fetch(&self.gradients, to)
    }

    /// An empty batch for `sequences` sequences of up to `steps` steps; no more than the
    /// [`capacity`](Network::capacity). `backward` says whether it is to be learnt from.
    pub fn batch(&self, sequences: usize, steps: usize, backward: bool) -> Result<Batch> {
        let sizes = self.layout.padded();
        let slices = |eights: &usize| sequences.div_ceil(8 * eights);
        let (way, eights) = if !backward && sequences > self.by_groups(backward) {
            let fits = |eights: &usize| slices(eights) <= self.gpu.blocks;
            (Way::Many, self.many_cuts().into_iter().find(fits))
        } else if !backward && self.waves() > 0 {
            let fits = |eights: &usize| slices(eights) <= self.waves();
            (Way::Wave, WAVE.into_iter().find(fits))
        } else {
            let fits = |eights: &usize| slices(eights) <= self.slices(*eights, backward);
            (Way::Layers, self.cuts(backward).into_iter().find(fits))
        };
        let Some(eights) = eights.filter(|_| sequences > 0) else {
            return Err(Error::TooLarge(format!(
                "{sequences} sequences are more than can be worked on together"
            )));
        };
        let recurrence = Recurrence {
            steps,
            hidden: sizes.hidden,
            eights,
            slices: slices(&eights),
            way,
        };
        let width = recurrence.batch();
        Ok(Batch {
            sizes: recurrence,
            features: sizes.features,
            sequences,
            inputs: vec![0.0; steps * width * sizes.features],
            lengths: vec![0; width],
            labels: vec![0; width],
        })
    }

    /// The loss of a batch, added to the [total](Network::take_loss), and its gradients, each
    /// prefix with `weight`; with `add`, added to those that are there.
    pub fn learn(&mut self, batch: &Batch, gamma: f32, weight: f32, add: bool) -> Result<()> {
        self.run(batch, true)?;
        self.losses(batch, gamma, Some(weight))?;
        self.heads_back(batch, add)?;
        for layer in (0..self.layout.padded().layers).rev() {
            self.layer_back(batch, layer, add)?;
        }
        Ok(())
    }

    /// The loss of a batch, added to the [total](Network::take_loss).
    pub fn evaluate(&mut self, batch: &Batch, gamma: f32) -> Result<()> {
        self.run(batch, false)?;
        self.losses(batch, gamma, None)
    }

    /// A step of Adam along the gradients. `rate` is the learning rate and `scale` what the
    /// root of the second moment is multiplied by, both corrected for the first steps.
    pub fn step(&mut self, rate: f32, scale: f32) -> Result<()> {
        let [first, second] = &mut self.moments;
        self.gpu.adam(
            self.layout.parameters(),
            &mut self.parameters,
            [first, second],
            &self.gradients,
            &self.factors,
            rate,
            scale,
        )
    }

    /// The summed loss and the number of right full predictions since this was last asked.
    pub fn take_loss(&mut self) -> Result<(f64, usize)> {
        let mut total = [0.0; 2];
        self.total.read(&self.gpu, &mut total)?;
        self.total.write(&self.gpu, &[0.0; 2])?;
        Ok((total[0], total[1] as usize))
    }

    /// Has the network score every prefix of a batch. The GPU works on while the host turns to
    /// something else; [`Network::finish_scoring`] waits for the result. Two at the most may be
    /// under way.
    pub fn start_scoring(&mut self, batch: &Batch) -> Result<Scoring> {
        self.run(batch, false)?;
        let (steps, width, rows) = (batch.sizes.steps, batch.sizes.batch(), batch.sizes.rows());
        let heads = self.heads();
        let gap = heads.outputs > heads.classes + 1;
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        let out = &mut room.scores;
        out.probabilities.reserve(gpu, rows * heads.classes)?;
        out.predictions.reserve(gpu, rows)?;
        out.confidence.reserve(gpu, rows)?;
        out.gap.reserve(gpu, if gap { rows } else { 0 })?;
        gpu.scores(
            (steps, width),
            heads,
            &room.logits,
            &room.predictions,
            &room.targets,
            out,
        )?;
        let cells = batch.sequences * steps;
        let number = self.scorings;
        self.scorings += 1;
        let to = &mut room.arriving[number % 2];
        to.probabilities
            .ask(gpu, &out.probabilities, cells * heads.classes)?;
        to.predictions.ask(gpu, &out.predictions, cells)?;
        to.confidence.ask(gpu, &out.confidence, cells)?;
        if gap {
            to.gap.ask(gpu, &out.gap, cells)?;
        }
        Ok(Scoring {
            number,
            cells,
            done: gpu.moment()?,
        })
    }

    /// What the network says about every prefix of a batch.
    pub fn finish_scoring(&self, scoring: Scoring) -> Result<Scored> {
        let heads = self.heads();
        if self.scorings > scoring.number + 2 {
            return Err(Error::Driver("too many batches were under way".into()));
        }
        scoring.done.wait()?;
        let (from, cells) = (&self.room.arriving[scoring.number % 2], scoring.cells);
        let gap = heads.outputs > heads.classes + 1;
        Ok(Scored {
            probabilities: from.probabilities.take(cells * heads.classes)?,
            predictions: from.predictions.take(cells)?,
            confidence: from.confidence.take(cells)?,
            gap: gap.then(|| from.gap.take(cells)).transpose()?,
        })
    }

    fn heads(&self) -> Heads {
        let sizes = self.layout.padded();
        Heads {
            hidden: sizes.hidden,
            classes: sizes.classes,
            outputs: self.layout.outputs(),
            start: self.layout.heads(),
        }
    }

    /// From the inputs of a batch to its logits; with `keep`, what the way back needs is kept.
    fn run(&mut self, batch: &Batch, keep: bool) -> Result<()> {
        let sizes = batch.sizes;
        let (rows, width) = (sizes.rows(), sizes.batch());
        let heads = self.heads();
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        room.waiting.send(gpu, &batch.inputs, &mut room.inputs)?;
        room.targets.write(gpu, &batch.lengths, &batch.labels)?;
        room.logits.reserve(gpu, rows * heads.outputs)?;
        room.predictions.reserve(gpu, rows)?;
        match sizes.way {
            Way::Layers => self.run_layers(sizes, keep)?,
            Way::Wave => self.run_wave(sizes)?,
            Way::Many => self.run_many(sizes)?,
        }
        match self.room.layers.last() {
            Some(top) => self.gpu.logits(
                rows,
                heads,
                &top.states,
                width,
                &self.parameters,
                &mut self.room.logits,
                &mut self.room.predictions,
            ),
            None => Ok(()),
        }
    }

    /// From the inputs to the states of the second of two layers.
    fn run_wave(&mut self, sizes: Recurrence) -> Result<()> {
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        let Some(top) = room.layers.last_mut() else {
            return Ok(());
        };
        let features = self.layout.padded().features;
        let rows = sizes.rows() + sizes.batch();
        top.states.reserve(gpu, rows * sizes.hidden)?;
        gpu.wave(
            sizes,
            features,
            &self.parameters,
            &room.inputs,
            &mut room.ring,
            &mut top.states,
        )
    }

    /// From the inputs to the states of the last layer, a block for each slice.
    fn run_many(&mut self, sizes: Recurrence) -> Result<()> {
        let (rows, width, hidden) = (sizes.rows(), sizes.batch(), sizes.hidden);
        let Sizes {
            features, layers, ..
        } = self.layout.padded();
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        let matrix = 4 * hidden * hidden;
        room.packed.reserve(gpu, matrix * (2 * layers - 1))?;
        for layer in 0..layers {
            let [w_input, w_hidden, _] = self.layout.layer(layer);
            let (start, depth) = match layer {
                0 => (0, hidden),
                l => (matrix * (2 * l - 1), 2 * hidden),
            };
            let (from, to) = (&self.parameters, &mut room.packed);
            if layer > 0 {
                gpu.pack_weights(hidden, from, w_input, to, start, 0, depth)?;
            }
            gpu.pack_weights(hidden, from, w_hidden, to, start, depth - hidden, depth)?;
        }
        let Some(top) = room.layers.last_mut() else {
            return Ok(());
        };
        top.cells.reserve(gpu, width * layers * hidden)?;
        top.states.reserve(gpu, (rows + width) * hidden)?;
        gpu.many(
            sizes,
            (features, layers),
            &self.parameters,
            &room.packed,
            &room.inputs,
            &mut top.cells,
            &mut top.states,
        )
    }

    /// From the inputs to the states of all layers, layer by layer; with `keep`, what the way back
    /// needs is kept.
    fn run_layers(&mut self, sizes: Recurrence, keep: bool) -> Result<()> {
        let (rows, width, hidden) = (sizes.rows(), sizes.batch(), sizes.hidden);
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        room.projected.reserve(gpu, rows * 4 * hidden)?;
        room.ring.reserve(gpu, sizes.ring(keep))?;
        for layer in 0..room.layers.len() {
            let [w_input, w_hidden, bias] = self.layout.layer(layer);
            let shape = (rows, 4 * hidden, self.layout.inputs(layer));
            let (below, here) = room.layers.split_at_mut(layer);
            match below.last() {
                None => gpu.project_inputs(
                    shape,
                    &room.inputs,
                    &self.parameters,
                    w_input,
                    bias,
                    &mut room.projected,
                )?,
                Some(below) => gpu.project(
                    shape,
                    &below.states,
                    width,
                    &self.parameters,
                    w_input,
                    bias,
                    &mut room.projected,
                )?,
            }
            let here = &mut here[0];
            here.states.reserve(gpu, (rows + width) * hidden)?;
            if keep {
                here.gates.reserve(gpu, rows * 4 * hidden)?;
                here.cells.reserve(gpu, (rows + width) * hidden)?;
            }
            gpu.forward(
                sizes,
                &self.parameters,
                w_hidden,
                &room.projected,
                &mut room.ring,
                &mut here.states,
                keep.then_some((&mut here.gates, &mut here.cells)),
            )?;
        }
        Ok(())
    }

    fn losses(&mut self, batch: &Batch, gamma: f32, weight: Option<f32>) -> Result<()> {
        let heads = self.heads();
        let room = &mut self.room;
        room.loss.reserve(&self.gpu, batch.sizes.rows())?;
        self.gpu.losses(
            (batch.sizes.steps, batch.sizes.batch()),
            heads,
            &mut room.logits,
            &room.predictions,
            &room.targets,
            gamma,
            weight,
            &mut room.loss,
            &mut self.total,
        )
    }

    /// The gradients of the heads, and of the top layer's states.
    fn heads_back(&mut self, batch: &Batch, add: bool) -> Result<()> {
        let heads = self.heads();
        let (rows, width) = (batch.sizes.rows(), batch.sizes.batch());
        let (hidden, classes, outputs) = (heads.hidden, heads.classes, heads.outputs);
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        room.above.reserve(gpu, rows * hidden)?;
        gpu.heads_back(rows, heads, &room.logits, &self.parameters, &mut room.above)?;
        let Some(top) = room.layers.last() else {
            return Ok(());
        };
        let shape = (rows, outputs, hidden);
        let count =
            gpu.narrow_gradient(shape, &room.logits, &top.states, width, &mut room.parts)?;
        let weights = Sums {
            count,
            stride: (outputs + 1) * hidden,
            offset: 0,
            rows: classes,
            columns: hidden,
            steps: (hidden, 1),
        };
        let to = (&mut self.gradients, heads.start);
        gpu.sum_parts(weights, &room.parts, to, add)?;
        let single = heads.start + classes * (hidden + 1);
        let weights = Sums {
            offset: classes * hidden,
            rows: outputs - classes,
            steps: (hidden + 1, 1),
            ..weights
        };
        gpu.sum_parts(weights, &room.parts, (&mut self.gradients, single), add)?;
        let shape = (rows, 0, outputs);
        let count = gpu.narrow_gradient(shape, &room.logits, &room.logits, 0, &mut room.parts)?;
        let biases = Sums {
            count,
            stride: outputs,
            offset: 0,
            rows: 1,
            columns: classes,
            steps: (1, 1),
        };
        let to = heads.start + classes * hidden;
        gpu.sum_parts(biases, &room.parts, (&mut self.gradients, to), add)?;
        let biases = Sums {
            offset: classes,
            columns: outputs - classes,
            steps: (1, hidden + 1),
            ..biases
        };
        let to = (&mut self.gradients, single + hidden);
        gpu.sum_parts(biases, &room.parts, to, add)
    }

    /// The gradients of a layer, and of the states of the layer below.
    fn layer_back(&mut self, batch: &Batch, layer: usize, add: bool) -> Result<()> {
        let sizes = batch.sizes;
        let (rows, width, hidden) = (sizes.rows(), sizes.batch(), sizes.hidden);
        let [w_input, w_hidden, bias] = self.layout.layer(layer);
        let (gpu, room) = (&mut self.gpu, &mut self.room);
        let (below, here) = room.layers.split_at(layer);
        let here = &here[0];
        let gates = 4 * hidden;
        gpu.backward(
            sizes,
            &self.parameters,
            w_hidden,
            &room.above,
            &here.gates,
            &here.cells,
            &mut room.ring,
            &mut room.projected,
        )?;
        let slopes = &room.projected;
        if layer > 0 {
            let shape = (rows, hidden, gates);
            gpu.project_back(shape, slopes, &self.parameters, w_input, &mut room.above)?;
        }
        let shape = (gates, hidden, rows);
        let (states, to) = (&here.states, (&mut self.gradients, w_hidden));
        // Row r of the states is the one before step r.
        gpu.weight_gradient(shape, slopes, states, 0, &mut room.parts, to, add)?;
        let few = if layer == 0 { batch.features } else { 0 };
        let shape = (rows, few, gates);
        let count = gpu.narrow_gradient(shape, &room.inputs, slopes, 0, &mut room.parts)?;
        let sums = Sums {
            count,
            stride: (few + 1) * gates,
            offset: few * gates,
            rows: 1,
            columns: gates,
            steps: (1, 1),
        };
        gpu.sum_parts(sums, &room.parts, (&mut self.gradients, bias), add)?;
        match below.last() {
            Some(below) => {
                let shape = (gates, hidden, rows);
                let (states, to) = (&below.states, (&mut self.gradients, w_input));
                gpu.weight_gradient(shape, slopes, states, width, &mut room.parts, to, add)
            }
            None => {
                let sums = Sums {
                    offset: 0,
                    rows: few,
                    steps: (1, few),
                    ..sums
                };
                gpu.sum_parts(sums, &room.parts, (&mut self.gradients, w_input), add)
            }
        }
    }
}
