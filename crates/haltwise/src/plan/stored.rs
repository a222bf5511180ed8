//! A plan as it is stored in a rule or in candidates.

use serde::{Deserialize, Serialize};

use super::{Ask, AtNever, Method, Plan, PlanError, Promise, ScoreWord, ScreenBy, Terms};

/// A plan as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    method: Method,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promise: Option<Promise>,
    alpha: f64,
    delta: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    score: Option<ScoreWord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fit_fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    screen_fraction: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grid_step: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_never: Option<AtNever>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    screen_by: Option<ScreenBy>,
    #[serde(default, skip_serializing_if = "Terms::is_usual")]
    terms: Terms,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    looks: Vec<u64>,
}

impl From<Plan> for Record {
    fn from(plan: Plan) -> Self {
        Self {
            method: plan.method,
            promise: plan
                .promise
                .filter(|_| plan.promise != plan.method.promise()),
            alpha: plan.alpha.get(),
            delta: plan.delta.get(),
            score: plan.score,
            fit_fraction: plan.split.fit_fraction,
            screen_fraction: plan.split.screen_fraction,
            seed: (plan.split.splits() || plan.terms.weight.is_some()).then_some(plan.split.seed),
            grid_step: (plan.method != Method::Adaptive).then(|| plan.grid.step()),
            at_never: (plan.method == Method::Conditional).then_some(plan.at_never),
            screen_by: plan.method.screens().then_some(plan.screen_by),
            terms: plan.terms,
            looks: plan.looks,
        }
    }
}

impl TryFrom<Record> for Plan {
    type Error = PlanError;

    fn try_from(record: Record) -> Result<Self, PlanError> {
        let fits = record.method == Method::Adaptive || record.score == Some(ScoreWord::Gap);
        Self::new(Ask {
            method: Some(record.method),
            promise: record.promise,
            alpha: Some(record.alpha),
            delta: Some(record.delta),
            score: record.score,
            // Where no share was to be cut off, the traces were others.
            fit: fits && record.fit_fraction.is_none(),
            fit_fraction: record.fit_fraction,
            screen: record.method == Method::Conditional && record.screen_fraction.is_none(),
            screen_fraction: record.screen_fraction,
            seed: record.seed,
            grid_step: record.grid_step,
            at_never: record.at_never,
            screen_by: record.screen_by,
            looks: record.looks,
            ..Ask::of_terms(record.terms)
        })
    }
}
