//! The stored form of a plan, in a rule or in candidates.

use serde::{Deserialize, Serialize};

use super::{Ask, AtNever, LabelCheck, Method, Plan, PlanError, Promise, Purpose, ScreenBy, Terms};
use crate::data::score::ScoreSource;

/// The stored form of a plan.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredPlan {
    method: Method,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    promise: Option<Promise>,
    alpha: f64,
    delta: f64,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "by_word")]
    score: Option<ScoreSource<()>>,
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
    #[serde(default, skip_serializing_if = "Terms::is_default")]
    terms: Terms,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    looks: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label_check: Option<LabelCheck>,
    #[serde(default, skip_serializing_if = "Purpose::is_use")]
    purpose: Purpose,
}

impl From<Plan> for StoredPlan {
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
            purpose: plan.purpose,
            label_check: Some(plan.label_check).filter(|&check| check != LabelCheck::default()),
        }
    }
}

impl TryFrom<StoredPlan> for Plan {
    type Error = PlanError;

    fn try_from(record: StoredPlan) -> Result<Self, PlanError> {
        let mut ask = Ask {
            method: Some(record.method),
            promise: record.promise,
            alpha: Some(record.alpha),
            delta: Some(record.delta),
            score: record.score,
            fit_fraction: record.fit_fraction,
            screen_fraction: record.screen_fraction,
            seed: record.seed,
            grid_step: record.grid_step,
            screen_by: record.screen_by,
            looks: record.looks,
            label_check: record.label_check,
            purpose: Some(record.purpose).filter(|purpose| !purpose.is_use()),
            ..Ask::of_terms(record.terms)
        };
        // Without a share to set aside, other traces were given.
        ask.fit = ask.fits() && record.fit_fraction.is_none();
        ask.screen = ask.method().sets_aside_to_screen() && record.screen_fraction.is_none();
        match record.at_never {
            Some(at_never) => Self::new(ask)?.walking(at_never),
            None => Self::new(ask),
        }
    }
}

/// Stores a value by its word.
mod by_word {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    use crate::data::words::Word;

    pub(super) fn serialize<T: Word, S: Serializer>(
        value: &Option<T>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.serialize_some(value.word()),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, T: Word, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<T>, D::Error> {
        let word = Option::<String>::deserialize(from)?;
        word.map(|word| T::of(&word))
            .transpose()
            .map_err(D::Error::custom)
    }
}
