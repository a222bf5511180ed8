//! Proposing candidate rules (the screening of the method `adaptive`).
//!
//! A rule is a threshold curve: log-odds that are linear in the logarithm of the step
//! between a few knots, and "never" before a first step. On the fitting traces, the search
//! finds the curve that halts earliest on average while, by every step, the gaps stay
//! within a budget. The budget is what the test on the certifying traces will allow: how
//! many gaps among this many halted still give a p-value below δ's share. Families are
//! built from that curve, each in the order in which it will be tested: stricter curves
//! before it, bolder ones after it; and the curve opening at earlier and earlier steps.
//! Other families depend on no trace at all, so that every trace may certify them:
//! thresholds of the score that the traces came with, and the clock.
//!
//! All of this is a heuristic, and may look at the fitting traces without restriction. The
//! guarantee comes from certifying, which asks only that the score, the families, their
//! order and their shares of δ were fixed without the certifying traces; see
//! `docs/validity.md`.

use haltwise_stream::StepError;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::curves::{Order, Screen, Start};
use super::fit::{Aim, Target, fit};
use super::plain::clock;
use super::shares::{GroupShares, Shares, refines};
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
    /// The score to judge, if it is not the proposal's score.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) score: Option<ScoreSource>,
    pub(crate) candidates: Candidates,
}

/// The result of fitting and proposing.
#[derive(Debug)]
pub(crate) struct Proposed {
    pub(crate) score: ScoreSource,
    pub(crate) families: Vec<Family>,
    pub(crate) proof: Proof,
    /// The mean total cost up to each step; `None` if every step costs the same.
    pub(crate) costs: Option<Vec<f64>>,
}

/// Fits a score and proposes candidates for certifying on traces that look like
/// these.
///
/// Only the number, the groups and the longest length of the certifying traces are used,
/// which say nothing about gaps. Curves never halt at steps that no fitting trace has.
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
    // If curves have a small share, a rule that is bold enough for half of δ is still the
    // better guess.
    let groups = GroupShares::of(plan, certifying.groups.len());
    let aim = groups.all * shares.best.max(0.5) * plan.level().get();
    let (proof, views) = views(outputs, plan, promise, certifying, &plain_source, aim)?;
    let target = match plan.terms().loss {
        Loss::Gap if !all_labelled(outputs) => Target::FewLabels,
        loss => Target::Loss(loss),
    };
    let learned = match fixed {
        Some(_) => None,
        None => {
            // With few labels, the test counts something other than what is learned.
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
    // Choose the score whose best curve is the cheapest.
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
    // Curves for the first test and, if there are others, for the most promising of them.
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
    /// A series of falling thresholds, each for all steps, in log-odds, if the score was
    /// made for that.
    pub(super) falling: Vec<f64>,
}

/// A screen, and its best curve.
type Best<'v> = (Screen<'v>, Start);

/// Returns the cheaper of the two best curves, the first of equals.
fn cheaper<'v>(a: Best<'v>, b: Best<'v>) -> Best<'v> {
    if b.1.value < a.1.value { b } else { a }
}

/// The mean total cost up to each step, over the sequences that reach it. It rises even if
/// fewer and fewer sequences do.
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
