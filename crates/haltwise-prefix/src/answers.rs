//! What a model says about the prefixes of series.

/// For each series and checkpoint, the probability of each class.
///
/// A series is answered at each checkpoint that it reaches. If it ends between two
/// checkpoints, its last answer is the one at the last checkpoint that it reached; the
/// values after that are not read. If it ends before the first checkpoint, the model says how
/// common each class was in training. Entries past the end of a series repeat its last
/// answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answers {
    pub(crate) probabilities: Vec<f32>,
    pub(crate) reached: Vec<u32>,
    pub(crate) checkpoints: usize,
    pub(crate) classes: usize,
}

impl Answers {
    /// The number of series.
    pub fn len(&self) -> usize {
        self.reached.len()
    }

    /// Whether there are no series.
    pub fn is_empty(&self) -> bool {
        self.reached.is_empty()
    }

    /// The number of checkpoints.
    pub fn checkpoints(&self) -> usize {
        self.checkpoints
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How many checkpoints a series reaches.
    pub fn reached(&self, series: usize) -> usize {
        self.reached[series] as usize
    }

    /// The probability of each class at a checkpoint, counted from 0.
    pub fn at(&self, series: usize, checkpoint: usize) -> &[f32] {
        let start = (series * self.checkpoints + checkpoint) * self.classes;
        &self.probabilities[start..start + self.classes]
    }

    pub(crate) fn at_mut(&mut self, series: usize, checkpoint: usize) -> &mut [f32] {
        let start = (series * self.checkpoints + checkpoint) * self.classes;
        &mut self.probabilities[start..start + self.classes]
    }

    /// Past the end of each series, repeats its last answer.
    pub(crate) fn repeat_last(&mut self) {
        for series in 0..self.len() {
            let reached = self.reached(series);
            if let Some(last) = reached.checked_sub(1) {
                let last = self.at(series, last).to_vec();
                for checkpoint in reached..self.checkpoints {
                    self.at_mut(series, checkpoint).copy_from_slice(&last);
                }
            }
        }
    }

    /// The most probable class at a checkpoint and its probability. The first of equals.
    pub fn best(&self, series: usize, checkpoint: usize) -> (u32, f32) {
        best(self.at(series, checkpoint))
    }

    /// The last answer about each series.
    pub fn last(&self, series: usize) -> &[f32] {
        self.at(series, self.checkpoints - 1)
    }

    /// All probabilities: series by series, checkpoint by checkpoint, class by class.
    pub fn probabilities(&self) -> &[f32] {
        &self.probabilities
    }
}

/// The most probable class and its probability. The first of equals.
pub(crate) fn best(probabilities: &[f32]) -> (u32, f32) {
    let mut best = (0, f32::NEG_INFINITY);
    for (class, &p) in (0..).zip(probabilities) {
        if p > best.1 {
            best = (class, p);
        }
    }
    best
}
