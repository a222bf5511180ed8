//! Predicts from a few traces what more calibration traces would buy.
//!
//! A pilot set is cut in two at random, many times. From one half, as many sequences are
//! drawn as would be set aside to fit or to screen; from the other, as many as would
//! certify, with replacement. Then a rule is calibrated as usual. The forecast is how early
//! those rules halt, and how much that varies. It is a little cautious, because a score
//! fitted to half of the pilot is a little worse than one fitted to the real traces.

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::calibrate::Inputs;
use crate::data::identity::by_key;
use crate::data::outputs::Outputs;
use crate::plan::Plan;
use crate::propose::error::CalibrateError;
use crate::rule::Rule;

/// How many calibrations are tried for each size.
pub const DRAWS: usize = 16;

/// The expected value, and a range for 9 of 10 cases.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The mean.
    pub mean: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

impl Range {
    /// Makes the range of values between 0 and `most`.
    fn of(values: &[f64], most: f64) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
        let spread = (squares / (n - 1.0).max(1.0) * (1.0 + 1.0 / n)).sqrt();
        // Student's t with these degrees of freedom, 5% on either side; at least a fiftieth
        // of the mean, for variation that no half of a small set can show.
        let half = (1.75 * spread).max(0.02 * mean);
        // Observed values are possible, and values far beyond them are not, although a few
        // rules that read everything make the spread large.
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let largest = values.iter().copied().fold(0.0, f64::max);
        let low = (mean - half).max(0.8 * least).min(least);
        let high = (mean + half).min(1.25 * largest).max(largest);
        Self {
            mean,
            low: low.clamp(0.0, most),
            high: high.clamp(0.0, most),
        }
    }
}

/// What more traces would buy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// How many traces, before any are set aside.
    pub traces: u64,
    /// The mean halt step as a share of all.
    pub t_avg: Range,
    /// The mean cost, if costs are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Range>,
    /// The chance that a rule is certified that halts before the end.
    pub certified: f64,
}

/// Predicts the result of calibrating on a given number of traces. `done` is called after
/// every trial; returning `false` ends the forecast.
pub fn forecast(
    plan: &Plan,
    pilot: &Outputs,
    sizes: &[u64],
    seed: u64,
    done: impl Fn() -> bool + Sync,
) -> Result<Vec<Forecast>, CalibrateError> {
    let units = Units::of(pilot, plan)?;
    if units.0.len() < 2 {
        let n = pilot.len() as u64;
        return Err(CalibrateError::TooFew {
            n,
            missing: "certifying",
        });
    }
    let mut found = Vec::new();
    for &traces in sizes {
        let trial = |draw: usize| {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (draw as u64) << 32);
            let rule = match units.calibrated(plan, pilot, traces, &mut rng) {
                Ok(rule) => Some(rule),
                // The group is too rare to be in both halves, so it is too rare for a
                // promise.
                Err(CalibrateError::LostGroup { .. }) => None,
                Err(e) => return Err(e),
            };
            Ok(done().then(|| outcome(rule.as_ref())))
        };
        let trials: Vec<Option<Outcome>> = (0..DRAWS)
            .into_par_iter()
            .map(trial)
            .collect::<Result<_, CalibrateError>>()?;
        let trials: Vec<Outcome> = trials.into_iter().flatten().collect();
        if trials.len() < DRAWS {
            break;
        }
        let steps: Vec<f64> = trials.iter().map(|trial| trial.t_avg).collect();
        let costs: Option<Vec<f64>> = trials.iter().map(|trial| trial.cost).collect();
        let early = trials.iter().filter(|trial| trial.early).count();
        found.push(Forecast {
            traces,
            t_avg: Range::of(&steps, 1.0),
            cost: costs.map(|costs| Range::of(&costs, f64::INFINITY)),
            certified: early as f64 / DRAWS as f64,
        });
    }
    Ok(found)
}

/// The result of a trial.
struct Outcome {
    t_avg: f64,
    cost: Option<f64>,
    early: bool,
}

fn outcome(rule: Option<&Rule>) -> Outcome {
    let expected = rule.and_then(Rule::expected);
    Outcome {
        // A rule that never halts early reads everything.
        t_avg: expected.map_or(1.0, |expected| expected.t_avg),
        cost: expected.and_then(|expected| expected.cost),
        early: rule.is_some_and(Rule::halts_early),
    }
}

/// The units of a pilot: sequences that are drawn as one.
struct Units(Vec<Vec<usize>>);

impl Units {
    /// The units that the plan's weights admit.
    fn of(pilot: &Outputs, plan: &Plan) -> Result<Self, CalibrateError> {
        let who = plan.admission();
        let mut keyed = Vec::new();
        for i in 0..pilot.len() {
            let admitted = who.admit(pilot.key(i), &pilot.trace(i))?;
            keyed.extend(admitted.map(|key| (key, i)));
        }
        Ok(Self(by_key(keyed)))
    }

    /// Calibrates a rule on this many traces, drawn from the pilot.
    fn calibrated(
        &self,
        plan: &Plan,
        pilot: &Outputs,
        traces: u64,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Result<Rule, CalibrateError> {
        let certifying_share = plan.split().certifying_share();
        let certifying = (traces as f64 * certifying_share).round().max(1.0) as usize;
        let aside = (traces as usize).saturating_sub(certifying);
        let mut order: Vec<&[usize]> = self.0.iter().map(|unit| &unit[..]).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, rng.random_range(0..=i));
        }
        let needs_other = plan.fits() || plan.screens();
        let half = if needs_other { order.len() / 2 } else { 0 };
        let (others, certify) = order.split_at(half);
        let drawn = |from: &[&[usize]], n: usize, rng: &mut Xoshiro256PlusPlus, again: bool| {
            let mut units: Vec<&[usize]> = Vec::new();
            let mut sequences = 0;
            let mut next = 0;
            while sequences < n {
                let unit = match again {
                    true => from[rng.random_range(0..from.len())],
                    false if next < from.len() => from[next],
                    false => break,
                };
                next += 1;
                sequences += unit.len();
                units.push(unit);
            }
            pilot.drawn(&units)
        };
        let certify = drawn(certify, certifying, rng, true);
        // The other sequences are not needed twice: a copy teaches nothing.
        let (fit, screen) = match (plan.fits(), plan.screens()) {
            (true, true) => others.split_at(others.len() / 2),
            (true, false) => (others, &[][..]),
            _ => (&[][..], others),
        };
        let fit = drawn(fit, aside, rng, false);
        let screen = drawn(screen, aside, rng, false);
        let plan = plan.clone().for_others().unweighted();
        let found = plan.calibrate(Inputs {
            fit: plan.fits().then_some(&fit),
            screen: plan.screens().then_some(&screen),
            ..Inputs::one(&certify)
        })?;
        Ok(found.rule)
    }
}

/// The least size from which on little changes: within a few hundredths of the result of
/// the largest.
pub fn enough(found: &[Forecast]) -> Option<u64> {
    let last = found.last()?;
    let near = |forecast: &&Forecast| {
        forecast.t_avg.mean <= 1.05 * last.t_avg.mean && forecast.certified >= 0.95
    };
    let first = found.iter().find(near)?;
    (first.traces < last.traces).then_some(first.traces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_what_was_seen() {
        let range = Range::of(&[0.4, 0.5, 0.6, 0.95], 1.0);
        assert!((range.mean - 0.6125).abs() < 1e-12);
        assert!(range.low <= 0.4 && range.high >= 0.95 && range.high <= 1.0);
        let still = Range::of(&[0.5; 16], 1.0);
        assert!((still.low - 0.49).abs() < 1e-12 && (still.high - 0.51).abs() < 1e-12);
    }

    #[test]
    fn enough_is_where_little_changes() {
        let at = |traces, mean| Forecast {
            traces,
            t_avg: Range {
                mean,
                low: mean,
                high: mean,
            },
            cost: None,
            certified: 1.0,
        };
        let found = [at(200, 0.9), at(500, 0.6), at(1000, 0.51), at(5000, 0.5)];
        assert_eq!(enough(&found), Some(1000));
        assert_eq!(enough(&found[..2]), None);
    }
}
