//! Proposing candidate rules (the screening of the method `adaptive`).
//!
//! A rule is a threshold curve: log-odds that are linear in the logarithm of
//! the step between a few knots, "never" before a first step. On the fitting
//! traces the curve is sought that halts earliest on average while, by every
//! step, the gaps stay within the budget that the test on the certifying traces
//! will grant: how many gaps among this many halted still give a p-value below
//! δ's share. From that curve families are spun, each in the order in which it
//! will be tested: stricter curves before it, bolder ones behind it; and the curve
//! from ever earlier steps on. Beside them stand rules that depend on no trace at
//! all, so that every trace may certify them: thresholds of the score that the traces
//! came with, and the clock.
//!
//! All of this is a heuristic and may look at the fitting traces as it likes.
//! The guarantee comes from certifying, which asks only that the score, the
//! families, their order and their shares of δ were fixed without the
//! certifying traces; see `docs/validity.md`.

use haltwise_stream::StepError;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::curves::{Order, Screen, Start};
use super::fit::{Aim, Target, fit};
use super::plain::clock;
use super::shares::{Shares, refines};
use super::views::{all_labelled, views};
use crate::data::loss::Loss;
use crate::data::outputs::Outputs;
use crate::data::roles::Fitting;
use crate::data::score::ScoreSource;
use crate::data::survey::Survey;
use crate::data::terms::{Cost, Terms};
use crate::numbers::thresholds::Thresholds;
use crate::plan::Plan;
use crate::tables::candidates::{Candidates, FamilyKind};
use crate::testing::fixed_sequence::{Promise, Proof};

/// Candidates and their share of δ.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Family {
    pub(crate) kind: FamilyKind,
    pub(crate) share: f64,
    /// What is judged, where that is not the proposal's score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<ScoreSource>,
    pub(crate) candidates: Candidates,
}

/// What was fitted and proposed.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) score: ScoreSource,
    pub(crate) families: Vec<Family>,
    pub(crate) proof: Proof,
    /// What has been spent by each step, on average; `None` where every step
    /// costs as much.
    pub(crate) costs: Option<Vec<f64>>,
}

/// Fits a score and proposes candidates for certifying on traces that look like
/// these.
///
/// Of the certifying traces only their number, their groups and the longest
/// length are used, which say nothing about gaps; curves never halt at steps that
/// no fitting trace has.
pub(crate) fn propose(
    fitting: &Fitting,
    plan: &Plan,
    certifying: &Survey,
) -> Result<Proposed, StepError> {
    let outputs = fitting.outputs();
    let wanted = plan.score();
    let promise = plan.promise().unwrap_or(Promise::Conditional);
    let costs = costs(
        outputs,
        plan.terms(),
        certifying.longest.max(outputs.t_max()),
    );
    let fixed = wanted.and_then(ScoreSource::plain);
    let plain_source = fixed.clone().unwrap_or_else(|| outputs.plain_source());
    let shares = Shares::of(plan, certifying, outputs.len());
    // Where curves have a small share, a rule that is bold enough for half of δ is still
    // the better guess.
    let aim = shares.best.max(0.5) * plan.level().get();
    let (proof, views) = views(outputs, plan, promise, certifying, &plain_source, aim)?;
    let target = match plan.terms().loss {
        Loss::Gap if !all_labelled(outputs) => Target::FewLabels,
        loss => Target::Loss(loss),
    };
    let learned = match fixed {
        Some(_) => None,
        None => {
            // With few labels, the test counts something else than what is learned.
            let refines = refines(plan, outputs.len()) && matches!(target, Target::Loss(_));
            let aim = refines.then(|| Aim {
                loss: views[0].granted(),
                costs: costs.as_deref(),
            });
            fit(fitting, plan.alpha(), target, aim)?
        }
    };
    let mut sources = Vec::new();
    if learned.is_none() || wanted.is_none() {
        let all = (0..outputs.len()).into_par_iter();
        let scores = all.map(|i| plain_source.scores(outputs.steps(i)));
        let scores = scores.collect::<Result<Vec<_>, _>>()?;
        sources.push(ScoredSource {
            source: plain_source,
            scores,
            falling: Vec::new(),
        });
    }
    if let Some(learned) = learned {
        sources.push(ScoredSource {
            source: ScoreSource::Gap(Box::new(learned.score)),
            scores: learned.held_out,
            falling: learned.falling,
        });
    }
    // Of all scores, the one whose best curve is the cheapest.
    let spent = costs.as_deref();
    let screens = |view: usize| {
        let view = &views[view];
        sources.iter().map(move |source| {
            let screen = Screen::new(outputs, view, source, spent);
            let start = screen.best_start();
            (screen, start)
        })
    };
    let Some((screen, start)) = screens(0).reduce(cheaper) else {
        unreachable!("there is a score");
    };
    // Curves for the first test and, where there are others, for whichever of them
    // promises most.
    let others = (1..views.len()).flat_map(screens);
    let other = others.filter(|(other, _)| other.source == screen.source);
    let other = other.reduce(cheaper);
    let second = match &other {
        Some((other, start)) => (other, start, Order::Boldness, shares.second),
        None => (&screen, &start, Order::Walk, shares.second),
    };
    let order = match screen.falling.is_empty() {
        true => Order::Boldness,
        false => Order::Falling,
    };
    let curves = vec![(&screen, &start, order, shares.best), second];
    let longest = certifying.longest.max(screen.t_max);
    let family = |kind, share, rules: Vec<Thresholds>| Family {
        kind,
        share,
        score: None,
        candidates: Candidates::list(rules.into_iter().map(|rule| rule.extended(longest))),
    };
    let mut families: Vec<Family> = curves
        .into_par_iter()
        .map(|(screen, start, order, share)| {
            family(FamilyKind::Curves, share, screen.family(start, order))
        })
        .collect();
    let plain = &sources[0].source;
    families.extend(shares.plain(promise).map(|(shape, share)| Family {
        score: Some(plain).filter(|plain| *plain != screen.source).cloned(),
        ..family(FamilyKind::Plain, share, shape.rules(longest))
    }));
    families.push(family(FamilyKind::Clock, shares.clock, clock(longest)));
    families.retain(|family| !family.candidates.is_empty());
    Ok(Proposed {
        score: screen.source.clone(),
        families,
        proof,
        costs,
    })
}

/// A score that may be judged.
pub(super) struct ScoredSource {
    pub(super) source: ScoreSource,
    /// For each fitting trace, one per step.
    pub(super) scores: Vec<Vec<f32>>,
    /// One threshold, ever lower, in log-odds, where the score was made for that.
    pub(super) falling: Vec<f64>,
}

/// A way to screen, and its best curve.
type Best<'v> = (Screen<'v>, Start);

/// The one whose best curve is the cheaper, the first of equals.
fn cheaper<'v>(a: Best<'v>, b: Best<'v>) -> Best<'v> {
    if b.1.value < a.1.value { b } else { a }
}

/// What has been spent by each step, on average over the sequences that have
/// it; rising, also where fewer and fewer do.
fn costs(outputs: &Outputs, terms: &Terms, t_max: usize) -> Option<Vec<f64>> {
    Some(match terms.cost.as_ref()? {
        Cost::Steps(costs) => Cost::spent(Cost::of_steps(costs, t_max)),
        Cost::Column(_) => {
            let (mut sums, mut n) = (vec![0.0; t_max], vec![0.0_f64; t_max]);
            for costs in (0..outputs.len()).filter_map(|i| outputs.costs(i)) {
                for (t, &cost) in costs.iter().enumerate().take(t_max) {
                    sums[t] += f64::from(cost);
                    n[t] += 1.0;
                }
            }
            Cost::spent(std::iter::zip(sums, n).map(|(sum, n)| sum / n.max(1.0)))
        }
    })
}
