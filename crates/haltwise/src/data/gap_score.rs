//! The learned score as it is stored. What it computes from a step, and what it
//! remembers of those before, is in `haltwise_stream`, which live streams use.

use haltwise_stream as live;
use haltwise_stream::{Features, GapScoreError};
use serde::{Deserialize, Serialize};

/// What a learned score remembers of a sequence.
pub(crate) type Memory = live::Memory<Vec<f32>>;

/// What a learned score looks at, and the weight of each.
///
/// The fields are what a live stream needs, so they travel in the rule file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "StoredGapScore", into = "StoredGapScore")]
pub struct GapScore {
    features: Features,
    /// One per feature; the larger the sum, the safer it is to stop.
    weights: Vec<f64>,
    /// What is added to the sum.
    intercept: f64,
}

/// A learned score as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredGapScore {
    /// Whether the step's own score is used; else the largest probability
    /// stands in for it.
    uses_score: bool,
    /// How many class probabilities a step has; 0 where they are not used.
    classes: usize,
    /// The step that counts as the end.
    t_max: usize,
    /// Whether classes are predicted.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    predicts: bool,
    weights: Vec<f64>,
    intercept: f64,
}

fn yes() -> bool {
    true
}

fn is_yes(predicts: &bool) -> bool {
    *predicts
}

impl TryFrom<StoredGapScore> for GapScore {
    type Error = GapScoreError;

    fn try_from(record: StoredGapScore) -> Result<Self, GapScoreError> {
        let features = Features {
            uses_score: record.uses_score,
            classes: record.classes,
            t_max: record.t_max,
            predicts: record.predicts,
        };
        live::GapScore::new(features, &record.weights, record.intercept)?;
        Ok(Self::new(features, record.weights, record.intercept))
    }
}

impl From<GapScore> for StoredGapScore {
    fn from(score: GapScore) -> Self {
        Self {
            uses_score: score.features.uses_score,
            classes: score.features.classes,
            t_max: score.features.t_max,
            predicts: score.features.predicts,
            weights: score.weights,
            intercept: score.intercept,
        }
    }
}

impl GapScore {
    pub(crate) fn new(features: Features, weights: Vec<f64>, intercept: f64) -> Self {
        Self {
            features,
            weights,
            intercept,
        }
    }

    /// What computes it.
    pub(crate) fn live(&self) -> live::GapScore<'_> {
        live::GapScore::trusted(self.features, &self.weights, self.intercept)
    }

    /// The memory of a sequence that has not begun.
    pub(crate) fn memory(&self) -> Memory {
        Memory::new(vec![0.0; self.features.room()])
    }

    /// Appends the bytes of its numbers.
    pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.features.uses_score));
        if !self.features.predicts {
            out.push(u8::MAX);
        }
        for number in [self.features.classes, self.features.t_max] {
            out.extend((number as u64).to_le_bytes());
        }
        let numbers = self.weights.iter().chain([&self.intercept]);
        out.extend(numbers.flat_map(|number| number.to_le_bytes()));
    }

    /// How many class probabilities it needs at a step; 0 if it needs none.
    pub fn classes(&self) -> usize {
        self.features.classes
    }

    /// Whether it needs the score that comes with a step.
    pub fn uses_score(&self) -> bool {
        self.features.uses_score
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Features = Features {
        uses_score: true,
        classes: 3,
        t_max: 4,
        predicts: true,
    };

    #[test]
    fn a_stored_score_that_does_not_fit_itself_is_refused() {
        let score = GapScore::new(BOTH, vec![0.5; BOTH.count()], -1.0);
        let json = serde_json::to_value(&score).unwrap();
        let back: GapScore = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(back, score);
        let mut short = json.clone();
        short["weights"].as_array_mut().unwrap().pop();
        assert!(serde_json::from_value::<GapScore>(short).is_err());
        let mut more = json;
        more["classes"] = 4.into();
        assert!(serde_json::from_value::<GapScore>(more).is_err());
    }
}
