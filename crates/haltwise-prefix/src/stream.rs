//! A series that arrives time point by time point.

use crate::error::{Error, Result};
use crate::model::Model;

/// One live series. It owns what it needs of the model.
///
/// The cost of a time point does not grow with the time that has passed. The memory is
/// bounded by the last checkpoint.
#[derive(Clone, Debug)]
pub struct Stream {
    model: Model,
    points: usize,
}

impl Stream {
    pub(crate) fn new(model: Model) -> Self {
        Stream { model, points: 0 }
    }

    /// Takes in the next time point, one number per channel; NaN is a missing value. At a
    /// checkpoint, returns the probability of each class: to the bit what
    /// [`Model::answers`] says. After the last checkpoint it returns nothing.
    pub fn observe(&mut self, point: &[f32]) -> Result<Option<&[f32]>> {
        if point.len() != self.model.channels() {
            return Err(Error::Size(format!(
                "a time point has {} numbers, but the model was fitted to {} channels",
                point.len(),
                self.model.channels()
            )));
        }
        self.points += 1;
        let here = self.model.checkpoints().binary_search(&self.points).is_ok();
        Ok(here.then_some(&self.model.0.prior[..]))
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
        &self.model.0.prior
    }
}
