//! Scaling the inputs to mean 0 and deviation 1.

use crate::error::{Error, Result};
use haltwise_series::Series;
use serde::{Deserialize, Serialize};

/// The mean and the divisor of each feature, applied before the network. They are measured
/// on the training part alone and kept in the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Normalisation {
    /// The mean of each feature.
    pub mean: Vec<f32>,
    /// The standard deviation of each feature; 1 for a constant one.
    pub deviation: Vec<f32>,
}

impl Normalisation {
    /// Leaves every feature as it is.
    pub fn identity(features: usize) -> Self {
        Normalisation {
            mean: vec![0.0; features],
            deviation: vec![1.0; features],
        }
    }

    /// One finite mean and one positive deviation per feature.
    pub(crate) fn check(&self, features: usize) -> Result<()> {
        if self.mean.len() != features || self.deviation.len() != features {
            return Err(Error::Size(format!(
                "the normalisation has {} means and {} deviations for {features} features",
                self.mean.len(),
                self.deviation.len()
            )));
        }
        let fine = |m: &f32, d: &f32| m.is_finite() && d.is_finite() && *d > 0.0;
        let pairs = self.mean.iter().zip(&self.deviation);
        match pairs.enumerate().find(|(_, (m, d))| !fine(m, d)) {
            None => Ok(()),
            Some((feature, (mean, deviation))) => Err(Error::Format(format!(
                "the normalisation of feature {} has mean {mean} and deviation {deviation}: \
                 it needs a finite mean and a positive deviation",
                feature + 1
            ))),
        }
    }

    /// The mean and deviation of each feature over the sequences `rows`.
    pub(crate) fn measure(series: &Series<'_>, rows: &[usize]) -> Self {
        let features = series.features();
        let mut result = Normalisation::identity(features);
        for feature in 0..features {
            let values = || {
                rows.iter()
                    .flat_map(|&r| series.sequence(r).iter().skip(feature).step_by(features))
                    .map(|v| f64::from(*v))
            };
            let count = values().count().max(1) as f64;
            let mean = values().sum::<f64>() / count;
            let variance = values().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
            result.mean[feature] = mean as f32;
            let deviation = variance.sqrt() as f32;
            if deviation.is_normal() {
                result.deviation[feature] = deviation;
            }
        }
        result
    }

    #[inline]
    pub(crate) fn apply(&self, feature: usize, value: f32) -> f32 {
        (value - self.mean[feature]) / self.deviation[feature]
    }
}
