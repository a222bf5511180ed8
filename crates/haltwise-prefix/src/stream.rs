//! A series that arrives time point by time point.

use crate::error::{Error, Result};
use crate::kernels::Block;
use crate::model::{Model, Scratch};
use crate::scale::Prefix;

/// One live series. It shares the memory of its model.
///
/// The cost of a time point does not grow with the time that has passed. The memory is
/// bounded by the last checkpoint: after it, nothing is read.
#[derive(Clone, Debug)]
pub struct Stream {
    model: Model,
    points: usize,
    /// The one series.
    prefix: [Prefix; 1],
    block: Block<1>,
    scratch: Scratch<1>,
    latest: Vec<f32>,
}

impl Stream {
    pub(crate) fn new(model: Model) -> Self {
        Stream {
            points: 0,
            prefix: [Prefix::new(model.channels())],
            block: Block::new(&model.0.kernels, model.channels()),
            scratch: Scratch::default(),
            latest: model.0.prior.clone(),
            model,
        }
    }

    /// Takes in the next time point, one number per channel; NaN is a missing value. At a
    /// checkpoint, returns the probability of each class: to the bit what
    /// [`Model::answers`] says. After the last checkpoint it returns nothing.
    pub fn observe(&mut self, point: &[f32]) -> Result<Option<&[f32]>> {
        let parts = &*self.model.0;
        if point.len() != self.model.channels() {
            return Err(Error::Size(format!(
                "time point {} has {} numbers, but the model was fitted to {} channels",
                self.points + 1,
                point.len(),
                self.model.channels()
            )));
        }
        if let Some(channel) = point.iter().position(|x| x.is_infinite()) {
            let infinite = haltwise_series::Error::Infinite {
                sequence: 0,
                step: self.points + 1,
                feature: channel + 1,
                value: point[channel],
            };
            return Err(infinite.into());
        }
        self.points += 1;
        if parts
            .checkpoints
            .last()
            .is_none_or(|&last| self.points > last)
        {
            return Ok(None);
        }
        let [prefix] = &mut self.prefix;
        prefix.push(&parts.scale, point);
        self.block.push(prefix.latest().iter().map(|&x| [x]));
        parts.kernels.count(&mut self.block, self.points);
        let Ok(checkpoint) = parts.checkpoints.binary_search(&self.points) else {
            return Ok(None);
        };
        let latest = &mut self.latest;
        parts.voices[checkpoint].answer(
            &self.block,
            &self.prefix,
            self.points,
            &mut self.scratch,
            |_, answer| latest.copy_from_slice(answer),
        );
        Ok(Some(&self.latest))
    }

    /// The model that it asks.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How many time points it has taken in.
    pub fn points(&self) -> usize {
        self.points
    }

    /// How many checkpoints it has reached.
    pub fn reached(&self) -> usize {
        self.model.reached(self.points)
    }

    /// The latest answer; before the first checkpoint, how common each class was in training.
    pub fn latest(&self) -> &[f32] {
        &self.latest
    }
}
