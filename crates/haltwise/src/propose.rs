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

use std::collections::HashMap;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::bets::{Bets, Profile};
use crate::candidates::{Candidates, FamilyKind};
use crate::certify::{Promise, Proof, few_labels_shares, rho};
use crate::counts::Counts;
use crate::fit::{Aim, FEW, Target, fit, right_share};
use crate::halt::halts_of_block;
use crate::level::Alpha;
use crate::levels::members;
use crate::loss::{Loss, Measure, TOP};
use crate::outputs::Outputs;
use crate::parts::Fitting;
use crate::plan::{Plan, ScoreWord};
use crate::pvalue::binomial_tail;
use crate::score::ScoreSource;
use crate::survey::Survey;
use crate::table::count_rule;
use crate::terms::{Cost, Terms};
use crate::thresholds::Thresholds;
use crate::trace::{Block, Traces};
use haltwise_stream::{StepError, log_odds, probability};
use libm::log as ln;

/// The shares of δ: see [`propose`].
///
/// They follow from the plan, from how many traces there are and from whether labels are
/// missing, and from nothing else: fitting traces may help to certify the families that are
/// the same for all data, so that nothing about those, their levels least of all, may
/// depend on what any trace says.
struct Shares {
    /// Of the best curves.
    best: f64,
    /// Of the walk along the best curve, or of the curves for another test.
    second: f64,
    /// Of each family of thresholds on the plain score.
    plain: &'static [(Plain, f64)],
    clock: f64,
}

/// Below this many fitting traces, they hardly tell curves apart.
const FEW_FITTED: usize = 120;

/// From this many on, curves are worth more than all that needs no fit, and a score can
/// be refined.
const MANY_FITTED: usize = 300;

/// Below this α, the clock would have to strike late.
const SMALL_ALPHA: f64 = 0.075;

impl Shares {
    /// The fewer traces there are to fit to, the more is worth what has nothing to be
    /// fitted, and where they were set aside may be certified on them too: thresholds of
    /// the plain score and, most of all, the clock.
    fn of(plan: &Plan, promise: Promise, certifying: &Survey, fitted: usize) -> Self {
        let few_labels = few_labels(plan, certifying);
        let shares = |best, second, plain, clock| Self {
            best,
            second,
            plain,
            clock,
        };
        let shares = match promise {
            // The second family is for the test that uses the labels there are.
            Promise::Marginal if few_labels => shares(0.6, 0.1, &[(Plain::Lower, 0.2)][..], 0.1),
            Promise::Conditional if few_labels => {
                shares(0.5, 0.2, &[(STEEP, 0.08), (LOW, 0.02)], 0.2)
            }
            Promise::Marginal if fitted < FEW_FITTED => {
                shares(0.15, 0.02, &[(Plain::Lower, 0.48)], 0.35)
            }
            Promise::Marginal if fitted < MANY_FITTED => {
                shares(0.4, 0.05, &[(Plain::Lower, 0.35)], 0.2)
            }
            Promise::Marginal if refines(plan, fitted) => {
                shares(0.94, 0.02, &[(Plain::Lower, 0.02)], 0.02)
            }
            Promise::Marginal => shares(0.85, 0.05, &[(Plain::Lower, 0.05)], 0.05),
            Promise::Conditional if fitted < FEW_FITTED => {
                shares(0.05, 0.03, &[(STEEP, 0.26), (LOW, 0.04)], 0.62)
            }
            Promise::Conditional if fitted < MANY_FITTED && plan.alpha().get() < SMALL_ALPHA => {
                shares(0.43, 0.02, &[(GENTLE, 0.47), (LOW, 0.05)], 0.03)
            }
            Promise::Conditional if fitted < MANY_FITTED => shares(
                0.3,
                0.05,
                &[(STEEP, 0.15), (LOW, 0.05), (CLOSING, 0.3)],
                0.15,
            ),
            Promise::Conditional => {
                shares(0.5, 0.1, &[(STEEP, 0.08), (LOW, 0.02), (CLOSING, 0.1)], 0.2)
            }
        };
        // Whoever asked for the learned score gets no other, and the curves its share.
        match plan.score() {
            Some(ScoreWord::Gap) => Self {
                best: 1.0 - shares.second - shares.clock,
                plain: &[],
                ..shares
            },
            _ => shares,
        }
    }
}

/// Whether a learned score is refined: for the average over all, which groups may not
/// share, from so many traces that it does not learn them by heart.
fn refines(plan: &Plan, fitted: usize) -> bool {
    let learns = plan.score().and_then(ScoreWord::plain).is_none();
    let over_all = plan.promise() == Some(Promise::Marginal) && plan.terms().by.is_none();
    learns && over_all && fitted >= MANY_FITTED
}

/// Whether labels are needed that not all certifying traces have.
fn few_labels(plan: &Plan, certifying: &Survey) -> bool {
    plan.terms().loss == Loss::Gap && certifying.unlabelled > 0
}

/// Thresholds of the plain score, the same for all data.
#[derive(Clone, Copy)]
enum Plain {
    /// One curve that falls a little over time, ever lower.
    Lower,
    /// A threshold that falls from the step on at which it opens: ever earlier ones.
    Walk {
        /// Where it opens.
        from: f64,
        /// How far its log-odds fall while the time since the beginning grows e-fold.
        falls: f64,
        /// Past so many times the step where it opens, everyone halts.
        closes: Option<f64>,
    },
}

const STEEP: Plain = Plain::falling(0.9, 1.0);

const GENTLE: Plain = Plain::falling(0.87, 0.5);

/// For scores that are never far from even odds.
const LOW: Plain = Plain::falling(0.6, 0.15);

/// The clock, and before it strikes who is sure.
const CLOSING: Plain = Plain::Walk {
    from: 0.8,
    falls: 0.0,
    closes: Some(1.3),
};

impl Plain {
    /// A walk that never closes.
    const fn falling(from: f64, falls: f64) -> Self {
        Self::Walk {
            from,
            falls,
            closes: None,
        }
    }

    /// The rules in the order of their tests. At each step they are what they are
    /// however long sequences may be.
    fn rules(self, t_max: usize) -> Vec<Thresholds> {
        let (from, falls, closes) = match self {
            Self::Lower => return ever_lower(t_max),
            Self::Walk {
                from,
                falls,
                closes,
            } => (log_odds(from), falls, closes),
        };
        opening(
            t_max,
            |step| step + 1 + step / 32,
            |opens, t| {
                let times = (t + 1) as f64 / (opens + 1) as f64;
                match closes {
                    Some(closes) if times > closes => 0.0,
                    _ => fallen(from, falls, times),
                }
            },
        )
    }
}

/// A threshold whose log-odds were `from` and have fallen since time was so many times
/// shorter.
fn fallen(from: f64, falls: f64, times: f64) -> f32 {
    probability(from - falls * ln(times))
}

/// The p-values that a family's curves are screened for, in units of the level that
/// they aim at: the first is the reference, the others are ever bolder.
const LEVELS: [f64; 4] = [0.5, 2.0, 8.0, 50.0];

/// The same for the cautious curves before the reference, which are held to it
/// once half of all have halted: that is where bolder ones tend to fail.
const STRICT_LEVELS: [f64; 3] = [1e-3, 1e-2, 1e-1];

/// Where the gap is promised on average, curves before the strictest are higher by
/// so much, in log-odds, than the one behind them.
const STRICTER: [f64; 3] = [0.5, 1.0, 2.0];

/// This many curves are bolder than any that promise to pass.
const BOLDER_LEVELS: usize = 6;

/// Each of them is screened with this many standard deviations of caution less.
const LESS_CAUTION: f64 = 0.4;

/// Rules of a walk before it comes to where its curve opens.
const WALK_LINKS: u32 = 10;

/// The sizes of the steps from one curve of a family to the next.
const FINE: [f64; 3] = [0.5, 0.25, 0.12];

/// Rules between two curves of a family, the first curve included.
const PER_LINK: usize = 4;

/// The price of a gap over budget, in units of its standard deviation.
const OVER_BUDGET: f64 = 5.0;

/// The price of a curve that is not flat.
const NOT_FLAT: f64 = 0.002;

/// Counts are raised by this many standard deviations: the certifying traces may
/// be less kind than the fitting ones.
const CAUTION: f64 = 0.7;

/// This many more for the cautious curves, from the one next to the reference on,
/// and this many less for the bold ones, where a thousand times as many certify
/// as fit; where as many do, nothing. Many traces tell a gap just above α from
/// one just below, which the fitting traces cannot.
const MORE_CAUTION: [f64; 3] = [0.7, 1.4, 2.1];

/// The labelled alone are looked at from this many on.
const LABELLED: usize = 150;

/// Thresholds that get ever lower are this many, and fall so far, in log-odds, while
/// the time since the beginning grows e-fold.
const LOWER_LEVELS: u8 = 200;
const LOWER_FALLS: f64 = 0.15;

/// Up to this step the clock may strike at each; after it, at ever fewer.
const CLOCK_STEPS: usize = 384;

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
    let fixed = wanted.and_then(ScoreWord::plain);
    let plain_source = fixed.clone().unwrap_or_else(|| outputs.plain_source());
    let shares = Shares::of(plan, promise, certifying, outputs.len());
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
        sources.push(Source {
            source: plain_source,
            scores,
            falling: Vec::new(),
        });
    }
    if let Some(learned) = learned {
        sources.push(Source {
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
    families.extend(shares.plain.iter().map(|&(shape, share)| Family {
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
struct Source {
    source: ScoreSource,
    /// For each fitting trace, one per step.
    scores: Vec<Vec<f32>>,
    /// One threshold, ever lower, in log-odds, where the score was made for that.
    falling: Vec<f64>,
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

/// A way of looking at the fitting traces: with what losses, and within which
/// budgets in each group.
struct View {
    promise: Promise,
    measure: Measure,
    groups: Vec<Group>,
}

impl View {
    /// The mean loss that the test will grant every group once all have halted.
    fn granted(&self) -> f64 {
        let of_group = |Group { levels, .. }: &Group| {
            let all = levels.certifying as f64;
            levels.budgets[0].gaps(all) / all
        };
        self.groups.iter().map(of_group).fold(1.0, f64::min)
    }
}

/// The sequences of a group, and what the test will grant it.
struct Group {
    members: Vec<usize>,
    levels: Levels,
}

/// How the test will be made, and the ways to look at the fitting traces for it:
/// of several, the one that promises most is taken.
fn views(
    outputs: &Outputs,
    plan: &Plan,
    promise: Promise,
    certifying: &Survey,
    plain: &ScoreSource,
    aim: f64,
) -> Result<(Proof, Vec<View>), StepError> {
    let (terms, alpha, delta) = (plan.terms(), plan.alpha().get(), plan.level().get());
    let groups = members_of_groups(outputs, terms, certifying);
    let total: u64 = certifying.groups.values().sum();
    // How many of each group will certify, in sequences.
    let of_group = |name: &str| match certifying.groups.get(name) {
        Some(&n) => n as f64 * certifying.sequences() as f64 / total as f64,
        None => certifying.sequences() as f64,
    };
    let view = |measure, only_labelled: bool, (share, kind): (f64, Kind<'_>)| View {
        promise,
        measure,
        groups: groups
            .iter()
            .map(|(name, all)| {
                let kept = |i: &&usize| !only_labelled || outputs.is_labelled(**i);
                let members: Vec<usize> = all.iter().filter(kept).copied().collect();
                let part = members.len() as f64 / all.len().max(1) as f64;
                let n = of_group(name) * if only_labelled { part } else { 1.0 };
                let n = match terms.unit.is_some() {
                    true => n * units(outputs, &members) as f64 / members.len().max(1) as f64,
                    false => n,
                };
                let levels = Levels::new((n as usize).max(1), share * aim, kind);
                Group { members, levels }
            })
            .collect(),
    };
    let loss = terms.loss;
    if few_labels(plan, certifying) {
        let right = right_share(outputs);
        let labelled = 1.0 - certifying.unlabelled as f64 / certifying.sequences() as f64;
        let disagreements = Measure::of(Loss::Disagreement);
        let shares = few_labels_shares(labelled);
        let [of_free, of_both, of_alone] = shares;
        let free = view(disagreements, false, (of_free, Kind::Binomial(alpha)));
        let kind = Kind::FewLabels {
            right,
            labelled,
            alpha,
            level: delta * of_both / 2.0,
        };
        let mut views = vec![free, view(disagreements, false, (of_both, kind))];
        // From a handful of labelled traces, curves cannot be told apart.
        if outputs.labelled() >= LABELLED {
            let alone = (of_alone, Kind::Binomial(alpha));
            views.push(view(Measure::default(), true, alone));
        }
        let proof = Proof::FewLabels {
            right,
            labelled,
            shares,
        };
        return Ok((proof, views));
    }
    if loss.is_binary() && terms.unit.is_none() {
        // Where fitting traces lack labels, a disagreement may be a gap.
        let seen = match loss {
            Loss::Gap if !all_labelled(outputs) => Loss::Disagreement,
            loss => loss,
        };
        let only = view(Measure::of(seen), false, (1.0, Kind::Binomial(alpha)));
        return Ok((Proof::Binomial, vec![only]));
    }
    let exact = Measure {
        loss,
        binary: loss.is_binary(),
    };
    let traces = outputs.measured(plain, exact)?;
    let profile = profile(&traces, plan.alpha(), terms.unit.is_some());
    if profile.is_binary() && terms.unit.is_none() {
        let whole = Measure { loss, binary: true };
        let only = view(whole, false, (1.0, Kind::Binomial(alpha)));
        return Ok((Proof::Binomial, vec![only]));
    }
    let kind = Kind::Bets(&profile, alpha, delta);
    let only = view(exact, false, (1.0, kind));
    Ok((Proof::Bets(profile), vec![only]))
}

/// Fitting traces may lack labels that the certifying ones have.
fn all_labelled(outputs: &Outputs) -> bool {
    outputs.labelled() == outputs.len()
}

/// The sequences of each group; of one without a name where there are none.
fn members_of_groups(
    outputs: &Outputs,
    terms: &Terms,
    certifying: &Survey,
) -> Vec<(String, Vec<usize>)> {
    if terms.by.is_none() {
        return vec![(String::new(), (0..outputs.len()).collect())];
    }
    let names = certifying.groups.keys().cloned();
    let mut groups: Vec<(String, Vec<usize>)> = names.map(|name| (name, Vec::new())).collect();
    for i in 0..outputs.len() {
        let trace = outputs.trace(i);
        let name = terms.group(&trace).unwrap_or_default();
        if let Ok(g) = groups.binary_search_by(|group| group.0.as_str().cmp(&name)) {
            groups[g].1.push(i);
        }
    }
    groups
}

/// How many units these sequences are of.
fn units(outputs: &Outputs, members: &[usize]) -> usize {
    let mut keys: Vec<_> = members.iter().map(|&i| outputs.key(i)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.len()
}

/// The losses that bets are to expect: about those where a rule will be tested,
/// with a mean of some three fifths of α. They are taken from the first step where
/// all could stop at that price; or else from the cheapest, with this many more
/// losses of 0 that the price is right.
pub(crate) fn profile(traces: &Traces, alpha: Alpha, by_unit: bool) -> Profile {
    let whole = (u64::from(TOP) / traces.measure().unit()) as u8;
    let units = by_unit.then(|| members(traces));
    let at = |t: usize| -> Vec<u8> {
        let of_block = |block: &Block| -> Vec<u8> {
            let loss = |i: usize| block.loss(t.min(block.last(i) as usize), i) * whole;
            (0..block.len).map(loss).collect()
        };
        let losses: Vec<u8> = traces.blocks.iter().flat_map(of_block).collect();
        let Some(units) = &units else {
            return losses;
        };
        let mean = |unit: &Vec<usize>| {
            let sum: u64 = unit.iter().map(|&i| u64::from(losses[i])).sum();
            sum.div_ceil(unit.len() as u64) as u8
        };
        units.iter().map(mean).collect()
    };
    let aim = 0.6 * alpha.get() * f64::from(TOP);
    let mean = |losses: &[u8]| {
        losses.iter().map(|&l| f64::from(l)).sum::<f64>() / losses.len().max(1) as f64
    };
    let mut cheapest: Option<(f64, Vec<u8>)> = None;
    for losses in (0..traces.t_max()).map(at) {
        let mean = mean(&losses);
        if mean > 0.0 && cheapest.as_ref().is_none_or(|cheapest| mean < cheapest.0) {
            cheapest = Some((mean, losses));
        }
        if mean <= aim {
            break;
        }
    }
    let Some((mean, mut losses)) = cheapest else {
        return Profile::default();
    };
    let zeros = (mean / aim - 1.0).max(0.0) * losses.len() as f64;
    losses.extend(std::iter::repeat_n(0, zeros as usize));
    Profile::of(losses)
}

/// Everyone halts at one step, from the last but one back.
fn clock(t_max: usize) -> Vec<Thresholds> {
    let after = |step: usize| step + 1 + step.saturating_sub(CLOCK_STEPS) / 64;
    opening(t_max, after, |_, _| 0.0)
}

/// Rules that open at ever earlier steps, given by where one opens and its threshold
/// at a step.
///
/// They do not depend on the data, although they begin at the longest sequence: a
/// rule that would open later halts no one early, has no gap and so the least
/// p-value there can be; it passes whenever any other would.
fn opening(
    t_max: usize,
    after: impl Fn(usize) -> usize,
    threshold: impl Fn(usize, usize) -> f32,
) -> Vec<Thresholds> {
    let steps = std::iter::successors(Some(0), |&step| Some(after(step)));
    let steps: Vec<usize> = steps.take_while(|step| step + 1 < t_max).collect();
    let rule = |opens: usize| {
        let at = |t: usize| match t < opens {
            true => f32::INFINITY,
            false => threshold(opens, t),
        };
        Thresholds::from_valid((0..t_max).map(at).collect())
    };
    steps.into_iter().rev().map(rule).collect()
}

/// Thresholds for all steps that fall a little over time, so that who hovers just
/// below one is halted later; from 1 down to 0 at the first step, and these two at all.
fn ever_lower(t_max: usize) -> Vec<Thresholds> {
    let rule = |level: u8| {
        let first = log_odds(f64::from(level) / f64::from(LOWER_LEVELS));
        let at = |t: usize| match level {
            0 => 0.0,
            LOWER_LEVELS => 1.0,
            _ => fallen(first, LOWER_FALLS, (t + 1) as f64),
        };
        Thresholds::from_valid((0..t_max).map(at).collect())
    };
    (0..=LOWER_LEVELS).rev().map(rule).collect()
}

/// For a p-value: how many gaps among this many halted give it.
struct Budget {
    /// Numbers of halted, rising, and the gaps; between two of them, linear.
    knots: Vec<(f64, f64)>,
}

impl Budget {
    /// Up to this many halted there is a knot at each number.
    const DENSE: u64 = 256;

    /// The gaps that the test of a kind will grant.
    fn of(kind: Kind<'_>, most: usize, level: f64) -> Self {
        match kind {
            Kind::Binomial(alpha) => Self::new(most, level, alpha),
            Kind::FewLabels {
                right,
                labelled,
                alpha,
                level: of_labels,
            } => {
                // Of each ρ, the numbers of halted for which it is taken.
                let mut budgets: Vec<(f64, Self)> = Vec::new();
                let mut knot = |halted: u64| {
                    let halted = halted as f64;
                    let rho = rho(halted, right, labelled, alpha, of_labels);
                    if budgets.last().is_none_or(|(last, _)| *last != rho) {
                        budgets.push((rho, Self::new(most, level, (alpha / rho).min(0.99))));
                    }
                    let gaps = budgets
                        .last()
                        .map_or(-1.0, |(_, budget)| budget.gaps(halted));
                    (halted, gaps)
                };
                let next = |&halted: &u64| Some(halted + 1 + halted / 64);
                let halted = std::iter::successors(Some(1), next);
                let halted = halted.take_while(|&n| n <= 2 * most as u64 + 2);
                let knots: Vec<(f64, f64)> = halted.map(&mut knot).collect();
                Self {
                    knots: std::iter::once((0.0, -1.0)).chain(knots).collect(),
                }
            }
            Kind::Bets(profile, alpha, delta) => {
                let bets = Bets::new(profile, alpha, delta, most as u64);
                let knot = |halted: u64| {
                    let halted = halted as f64;
                    (halted, bets.budget(profile, halted, level))
                };
                let next = |&halted: &u64| Some(halted + 1 + halted / 64);
                let halted = std::iter::successors(Some(1), next);
                let knots = halted.take_while(|&n| n <= 2 * most as u64 + 2);
                Self {
                    knots: std::iter::once((0.0, -1.0))
                        .chain(knots.map(knot))
                        .collect(),
                }
            }
        }
    }

    fn new(most: usize, level: f64, alpha: f64) -> Self {
        // This many halted without a gap are just enough.
        let enough = ln(level) / ln(1.0 - alpha);
        let tail = |gaps: u64, halted: u64| binomial_tail(gaps, halted, alpha);
        let mut knots = vec![(0.0, -1.0)];
        // How many gap counts pass: 0 to `passing` − 1.
        let (mut passing, mut halted) = (0_u64, 0_u64);
        while halted <= most as u64 {
            halted += 1 + halted.saturating_sub(Self::DENSE) / 64;
            passing = first_failing(passing, |gaps| tail(gaps, halted) <= level);
            let gaps = match passing.checked_sub(1) {
                None => halted as f64 / enough - 1.0,
                Some(last) => {
                    // Between the last count that passes and the next, by the
                    // logarithm of the p-value.
                    let log = |gaps| ln(tail(gaps, halted).max(1e-300));
                    let (below, above) = (log(last), log(passing));
                    last as f64 + (ln(level) - below) / (above - below).max(1e-9)
                }
            };
            knots.push((halted as f64, gaps));
        }
        Self { knots }
    }

    fn gaps(&self, halted: f64) -> f64 {
        let after = self.knots.partition_point(|&(m, _)| m <= halted);
        let after = after.clamp(1, self.knots.len() - 1);
        let ((m, gaps), (next_m, next_gaps)) = (self.knots[after - 1], self.knots[after]);
        gaps + (next_gaps - gaps) * (halted - m) / (next_m - m)
    }
}

/// The first number, from one on, that does not pass, where none after it does:
/// by ever larger strides, then between the last two. A tail costs O(√n), and
/// with millions of halted the next number is tens of thousands away.
fn first_failing(from: u64, passes: impl Fn(u64) -> bool) -> u64 {
    if !passes(from) {
        return from;
    }
    let (mut passing, mut stride) = (from, 1);
    while passes(passing + stride) {
        passing += stride;
        stride *= 2;
    }
    while stride > 1 {
        stride /= 2;
        if passes(passing + stride) {
            passing += stride;
        }
    }
    passing + 1
}

/// A budget that is another's until this many have halted, and the caution with
/// which it is kept to.
struct Limit<'l> {
    early: &'l Budget,
    late: &'l Budget,
    from: f64,
    caution: f64,
}

impl Limit<'_> {
    fn gaps(&self, halted: f64) -> f64 {
        match halted < self.from {
            true => self.early.gaps(halted),
            false => self.late.gaps(halted),
        }
    }
}

/// How a test will be made: of gaps against α, or by bets at α and δ where such
/// losses are expected.
#[derive(Clone, Copy)]
enum Kind<'k> {
    Binomial(f64),
    Bets(&'k Profile, f64, f64),
    FewLabels {
        right: f64,
        labelled: f64,
        alpha: f64,
        level: f64,
    },
}

/// The budgets of all levels.
struct Levels {
    certifying: usize,
    budgets: [Budget; LEVELS.len()],
    strict: [Budget; STRICT_LEVELS.len()],
}

impl Levels {
    /// `first` is the level that curves are screened for.
    fn new(certifying: usize, first: f64, kind: Kind<'_>) -> Self {
        let budget = |level: f64| {
            let level = (level * first).min(0.5);
            Budget::of(kind, certifying, level)
        };
        Self {
            certifying,
            budgets: LEVELS.map(budget),
            strict: STRICT_LEVELS.map(budget),
        }
    }

    /// The limit of a bold curve, or of the reference, where this many certify
    /// for each that fits.
    fn bold(&self, i: usize, scale: f64) -> Limit<'_> {
        let less = i.checked_sub(1).map_or(0.0, |i| MORE_CAUTION[i]);
        Limit {
            early: &self.budgets[i],
            late: &self.budgets[i],
            from: 0.0,
            caution: CAUTION - many(scale) * less,
        }
    }

    /// The limit of a cautious curve, where this many certify for each that fits.
    fn strict(&self, i: usize, scale: f64) -> Limit<'_> {
        let more = MORE_CAUTION[STRICT_LEVELS.len() - 1 - i];
        Limit {
            early: &self.budgets[0],
            late: &self.strict[i],
            from: 0.5 * self.certifying as f64,
            caution: CAUTION + many(scale) * more,
        }
    }
}

/// Which limit a curve is held to, in every group.
enum Limited {
    /// That of a bold curve, or of the reference, which is the first.
    Bold(usize),
    Strict(usize),
    /// Bolder than any, as if the fitting traces had been unkind.
    Bolder(usize),
}

impl Limited {
    fn of<'l>(&self, levels: &'l Levels, scale: f64) -> Limit<'l> {
        match *self {
            Self::Bold(0) => levels.bold(0, 1.0),
            Self::Bold(i) => levels.bold(i, scale),
            Self::Strict(i) => levels.strict(i, scale),
            Self::Bolder(i) => {
                let bold = levels.bold(LEVELS.len() - 1, scale);
                let less = LESS_CAUTION * (i + 1) as f64;
                Limit {
                    caution: bold.caution - less,
                    ..bold
                }
            }
        }
    }
}

/// How many halt at each step under thresholds, and what they lose.
fn halted_at(traces: &Traces, curve: &[f32]) -> Vec<Counts> {
    let thresholds = traces.thresholds(curve);
    if traces.measure().binary {
        let mut packed = vec![0; curve.len()];
        for block in &traces.blocks {
            count_rule(block, &thresholds, &mut packed);
        }
        return packed.into_iter().map(Counts::unpack).collect();
    }
    let mut counts = vec![Counts::default(); curve.len()];
    for block in &traces.blocks {
        for halt in halts_of_block(&thresholds, block) {
            counts[halt.step as usize].halted += 1;
            counts[halt.step as usize].gaps += u64::from(halt.loss);
        }
    }
    counts
}

/// Whether many certify for each that fits: 0 if one does, 1 if a thousand do.
fn many(scale: f64) -> f64 {
    (libm::log10(scale) / 3.0).clamp(0.0, 1.0)
}

/// Where a curve opens, the log-odds at its knots, and its price.
#[derive(Debug, Clone)]
struct Start {
    opens: usize,
    knots: Vec<f64>,
    value: f64,
}

/// The fitting traces, and what curves are screened for.
struct Screen<'v> {
    source: &'v ScoreSource,
    /// One threshold, ever lower, in log-odds, where the score was made for that.
    falling: &'v [f64],
    promise: Promise,
    groups: Vec<Screened<'v>>,
    /// What has been spent by each step.
    costs: Option<&'v [f64]>,
    t_max: usize,
    /// The logarithm of each step, counted from 1.
    logs: Vec<f64>,
    /// How many fitting traces there are.
    len: usize,
    /// Certifying traces per fitting trace.
    scale: f64,
}

/// The fitting traces of a group.
struct Screened<'v> {
    traces: Traces,
    levels: &'v Levels,
    scale: f64,
}

impl<'v> Screen<'v> {
    fn new(
        outputs: &Outputs,
        view: &'v View,
        judged: &'v Source,
        costs: Option<&'v [f64]>,
    ) -> Self {
        let Source {
            source,
            scores,
            falling,
        } = judged;
        let screened = |group: &'v Group| {
            let members = as_they_halt(&group.members, scores);
            let traces = outputs.with_scores(source.clone(), view.measure, members, |i| &scores[i]);
            Screened {
                scale: group.levels.certifying as f64 / traces.len().max(1) as f64,
                levels: &group.levels,
                traces,
            }
        };
        let groups: Vec<Screened<'_>> = view.groups.iter().map(screened).collect();
        let len: usize = groups.iter().map(|group| group.traces.len()).sum();
        let certifying: usize = groups.iter().map(|group| group.levels.certifying).sum();
        Self {
            source,
            falling,
            promise: view.promise,
            costs,
            t_max: outputs.t_max(),
            logs: logs_of_steps(outputs.t_max()),
            len,
            scale: certifying as f64 / len.max(1) as f64,
            groups,
        }
    }

    /// The thresholds of a curve.
    fn curve(&self, opens: usize, knots: &[f64]) -> Vec<f32> {
        let mut thresholds = vec![f32::INFINITY; self.t_max];
        let (from, to) = (self.logs[opens], self.logs[self.t_max - 1]);
        let links = (knots.len() - 1) as f64;
        for (t, threshold) in thresholds.iter_mut().enumerate().skip(opens) {
            let along = match to > from && links > 0.0 {
                true => (self.logs[t] - from) / (to - from) * links,
                false => 0.0,
            };
            let k = (along as usize).min(knots.len().saturating_sub(2));
            let next = knots[(k + 1).min(knots.len() - 1)];
            *threshold = probability(knots[k] + (next - knots[k]) * (along - k as f64));
        }
        thresholds
    }

    /// The price of a curve: its mean halt time or cost, and a penalty where it
    /// is over budget in any group.
    fn value(&self, opens: usize, knots: &[f64], limit: &Limited) -> f64 {
        let curve = self.curve(opens, knots);
        let (mut spent, mut worst) = (0.0, 0.0_f64);
        let (tested_from, not_flat) = match self.promise {
            Promise::Conditional => (opens, NOT_FLAT),
            // Nothing but the sum of all steps can go wrong.
            Promise::Marginal => (self.t_max - 1, NOT_FLAT / 4.0),
        };
        for group in &self.groups {
            let limit = limit.of(group.levels, self.scale);
            let mut halted_by = Counts::default();
            let unit = group.traces.measure().unit() as f64;
            for (t, at) in halted_at(&group.traces, &curve).into_iter().enumerate() {
                halted_by += at;
                let price = self.costs.map_or((t + 1) as f64, |costs| costs[t]);
                spent += price * at.halted as f64;
                if t < tested_from {
                    continue;
                }
                let halted = group.scale * halted_by.halted as f64;
                let gaps = halted_by.gaps as f64 / unit;
                let gaps = group.scale * (gaps + limit.caution * (gaps + 1.0).sqrt());
                worst = worst.max((gaps - limit.gaps(halted)) / (halted + 1.0).sqrt());
            }
        }
        let most = self.costs.map_or(self.t_max as f64, |c| c[self.t_max - 1]);
        let mean = spent / self.len as f64 / most;
        let bends: f64 = knots.windows(2).map(|k| (k[1] - k[0]).powi(2)).sum();
        mean + OVER_BUDGET * worst + not_flat * bends
    }

    /// The best curve that opens at a step.
    fn start(&self, opens: usize) -> Start {
        let wanted = if self.len < FEW { 2 } else { 4 };
        let left = self.t_max.saturating_sub(opens + 1);
        let n = wanted.min(left).max(1);
        let mut search = self.search(opens, &Limited::Bold(0));
        let mut flat = |level: i32| search.start(vec![f64::from(level) / 4.0; n]);
        // From even odds down to a thousandth.
        let mut best = flat(-4);
        for other in (-3..28).map(flat) {
            if other.value < best.value {
                best = other;
            }
        }
        search.descend(best.knots, &[1.0, 0.5, 0.25, 0.12], 6)
    }

    /// A search among the curves that open at a step.
    fn search<'s>(&'s self, opens: usize, limit: &'s Limited) -> Search<'s, 'v> {
        Search {
            screen: self,
            opens,
            limit,
            known: HashMap::new(),
        }
    }

    /// The best curve near another one that opens at the same step.
    fn descend(&self, start: &Start, limit: &Limited) -> Start {
        let mut search = self.search(start.opens, limit);
        search.descend(start.knots.clone(), &FINE, 3)
    }

    /// The best step to open at, sought on a coarse grid and then around its
    /// best.
    fn best_start(&self) -> Start {
        if !self.falling.is_empty() {
            let mut search = self.search(0, &Limited::Bold(0));
            let flat = self.falling.iter().map(|&knot| search.start(vec![knot]));
            let flat: Vec<Start> = flat.collect();
            return flat[cheapest(&flat)].clone();
        }
        let grid = start_steps(self.t_max);
        let tried = |steps: Vec<usize>| -> Vec<Start> {
            let starts = steps.into_par_iter().map(|opens| self.start(opens));
            starts.collect()
        };
        let coarse = tried(grid.clone());
        let i = cheapest(&coarse);
        let fine = tried(around(&grid, i));
        let mut best = coarse[i].clone();
        if let Some(finer) = fine.get(cheapest(&fine))
            && finer.value < best.value
        {
            best = finer.clone();
        }
        best
    }

    /// The rules around a curve, in the order of their tests.
    fn family(&self, start: &Start, order: Order) -> Vec<Thresholds> {
        let mut rules = match order {
            Order::Boldness => self.ever_bolder(start),
            Order::Walk => self.walk(start),
            Order::Falling => self
                .falling
                .iter()
                .map(|&knot| self.curve(0, &[knot]))
                .collect(),
        };
        // What does not differ from the rule before needs no second test.
        rules.dedup();
        rules.into_iter().map(Thresholds::from_valid).collect()
    }

    /// From the strictest to the boldest, some between each two.
    fn ever_bolder(&self, start: &Start) -> Vec<Vec<f32>> {
        let descend = |from: &Start, limit| self.descend(from, &limit);
        let mut chain = vec![start.clone()];
        for i in (0..STRICT_LEVELS.len()).rev() {
            chain.insert(0, descend(&chain[0], Limited::Strict(i)));
        }
        if self.promise == Promise::Marginal {
            // On average over all, who halts hardly anyone passes.
            for stricter in STRICTER {
                let knots = chain[0].knots.iter().map(|knot| knot + stricter);
                let knots = knots.collect();
                chain.insert(0, Start { knots, ..chain[0] });
            }
        }
        for i in 1..LEVELS.len() {
            chain.push(descend(&chain[chain.len() - 1], Limited::Bold(i)));
        }
        // Should the fitting traces have been unkind: also from an earlier step on.
        let grid = start_steps(self.t_max);
        for i in 0..BOLDER_LEVELS {
            let last = &chain[chain.len() - 1];
            let mut next = descend(last, Limited::Bolder(i));
            if let Some(&opens) = grid.iter().rev().find(|&&step| step < last.opens) {
                let earlier = Start {
                    opens,
                    ..next.clone()
                };
                let earlier = descend(&earlier, Limited::Bolder(i));
                if earlier.value < next.value {
                    next = earlier;
                }
            }
            chain.push(next);
        }
        let mut rules = Vec::new();
        for pair in chain.windows(2) {
            rules.push(self.curve(pair[0].opens, &pair[0].knots));
            for i in (1..PER_LINK).take_while(|_| pair[0].opens == pair[1].opens) {
                let share = i as f64 / PER_LINK as f64;
                let between = std::iter::zip(&pair[0].knots, &pair[1].knots)
                    .map(|(a, b)| a + (b - a) * share);
                let knots: Vec<f64> = between.collect();
                rules.push(self.curve(pair[0].opens, &knots));
            }
        }
        rules.extend(chain.last().map(|last| self.curve(last.opens, &last.knots)));
        rules
    }

    /// One curve, a little bolder than the reference, from ever earlier steps on;
    /// before it opens, as high as there.
    ///
    /// Where the first rule of the other family fails, be it too bold or so strict
    /// that too few halt, so do all. Here the first is safe, and each only adds
    /// halts before those of the last.
    fn walk(&self, start: &Start) -> Vec<Vec<f32>> {
        let Start { opens, knots, .. } = self.descend(start, &Limited::Bold(1));
        let mut curve = self.curve(opens, &knots);
        let height = curve[opens];
        curve[..opens].fill(height);
        let (from, to) = (self.logs[opens], self.logs[self.t_max - 1]);
        let links = f64::from(WALK_LINKS);
        let after = (1..WALK_LINKS).rev().map(|k| {
            let along = from + (to - from) * f64::from(k) / links;
            (libm::exp(along) as usize).clamp(opens, self.t_max - 1)
        });
        let before = std::iter::successors(Some(opens), |&opens| match opens {
            0 => None,
            _ => Some((opens as f64 / 1.1) as usize),
        });
        let rule = |opens: usize| {
            let mut rule = curve.clone();
            rule[..opens].fill(f32::INFINITY);
            rule
        };
        after.chain(before).map(rule).collect()
    }
}

/// A search for cheap curves.
struct Search<'s, 'v> {
    screen: &'s Screen<'v>,
    opens: usize,
    limit: &'s Limited,
    /// The price of every curve that was looked at, by the bits of its knots: a quarter
    /// of all looks are at curves that were seen before.
    known: HashMap<Vec<u64>, f64>,
}

impl Search<'_, '_> {
    /// A curve with its price.
    fn start(&mut self, knots: Vec<f64>) -> Start {
        let bits = knots.iter().map(|knot| knot.to_bits()).collect();
        let price = || self.screen.value(self.opens, &knots, self.limit);
        let value = *self.known.entry(bits).or_insert_with(price);
        Start {
            opens: self.opens,
            knots,
            value,
        }
    }

    /// Goes from one curve to ever cheaper ones: a knot, all knots, or two
    /// neighbours against each other, up or down, in steps of falling size.
    fn descend(&mut self, knots: Vec<f64>, sizes: &[f64], sweeps: usize) -> Start {
        let n = knots.len();
        let mut directions: Vec<Vec<f64>> = Vec::new();
        let unit = |at: usize| (0..n).map(|i| f64::from(i == at)).collect::<Vec<_>>();
        directions.extend((0..n).map(unit));
        if n > 1 {
            directions.push(vec![1.0; n]);
        }
        for j in 1..n {
            let mut against = unit(j - 1);
            against[j] = -1.0;
            directions.push(against);
        }
        let mut best = self.start(knots);
        for &size in sizes {
            for _ in 0..sweeps {
                let before = best.value;
                for direction in &directions {
                    for sign in [size, -size] {
                        while self.improve(&mut best, direction, sign) {}
                    }
                }
                if best.value == before {
                    break;
                }
            }
        }
        best
    }

    fn improve(&mut self, best: &mut Start, direction: &[f64], by: f64) -> bool {
        let moved = std::iter::zip(&best.knots, direction).map(|(k, d)| k + by * d);
        let moved = self.start(moved.collect());
        let better = moved.value < best.value - 1e-9;
        if better {
            *best = moved;
        }
        better
    }
}

/// Those who halt at about the same step side by side, as far as can be told without a
/// curve: by the step at which their scores are first as high as those of three quarters
/// ever get. Nothing that is counted depends on the order, but words of sequences that
/// halt together are counted in less time.
fn as_they_halt(members: &[usize], scores: &[Vec<f32>]) -> Vec<usize> {
    let highest = |&i: &usize| scores[i].iter().copied().fold(0.0, f32::max);
    let mut heights: Vec<f32> = members.iter().map(highest).collect();
    heights.sort_unstable_by(f32::total_cmp);
    let high = heights.get(heights.len() / 4).copied().unwrap_or(0.0);
    let first = |&i: &usize| scores[i].iter().position(|&score| score >= high);
    let mut members = members.to_vec();
    members.sort_by_cached_key(|i| first(i).unwrap_or(usize::MAX));
    members
}

fn logs_of_steps(t_max: usize) -> Vec<f64> {
    (1..=t_max).map(|t| ln(t as f64)).collect()
}

/// How the rules of a family follow each other.
#[derive(Clone, Copy)]
enum Order {
    /// Ever bolder curves.
    Boldness,
    /// One curve, from ever earlier steps on.
    Walk,
    /// One threshold for all steps, ever lower.
    Falling,
}

/// The place of the cheapest, the first of equals.
fn cheapest(starts: &[Start]) -> usize {
    let mut best = 0;
    for (i, start) in starts.iter().enumerate() {
        if start.value < starts[best].value {
            best = i;
        }
    }
    best
}

/// Up to three steps on either side of a step of the grid, before the next.
fn around(grid: &[usize], i: usize) -> Vec<usize> {
    let before = if i > 0 { grid[i - 1] } else { grid[i] };
    let after = grid.get(i + 1).copied().unwrap_or(grid[i]);
    let between = |from: usize, to: usize| (1..4).map(move |k| from + (to - from) * k / 4);
    let steps = between(before, grid[i]).chain(between(grid[i], after));
    let mut steps: Vec<usize> = steps.filter(|step| !grid.contains(step)).collect();
    steps.dedup();
    steps
}

/// The (0-based) steps at which curves are tried to open, further apart the
/// later they are.
fn start_steps(t_max: usize) -> Vec<usize> {
    let before = (0.6 * t_max as f64 - 1.0).max(1.0);
    let mut steps = vec![0];
    while let Some(&last) = steps.last() {
        let next = (last + 1).max((1.35 * last as f64 + 0.5) as usize);
        if next as f64 >= before {
            break;
        }
        steps.push(next);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failing_number_is_found_from_anywhere_before_it() {
        for last in 0..70_u64 {
            for from in 0..=last + 1 {
                assert_eq!(first_failing(from, |n| n <= last), last + 1);
            }
        }
    }

    #[test]
    fn a_budget_is_what_the_test_will_grant() {
        let level = 0.005;
        let budget = Budget::new(3000, level, 0.1);
        for halted in [10, 60, 300, 1000, 3000] {
            let gaps = budget.gaps(halted as f64);
            let (floor, ceiling) = (gaps.floor(), gaps.ceil());
            if floor >= 0.0 && halted <= 256 {
                assert!(binomial_tail(floor as u64, halted, 0.1) <= level);
            }
            // Beyond the dense part, interpolating may be off by a little.
            let slack = if halted <= 256 { 0 } else { 1 };
            assert!(binomial_tail(ceiling.max(0.0) as u64 + slack, halted, 0.1) > level);
        }
        assert!(budget.gaps(40.0) < 0.0, "too few to pass at all");
    }

    #[test]
    fn a_curve_goes_through_its_knots_and_never_halts_before_it_opens() {
        let source = ScoreSource::Confidence;
        let screen = Screen {
            source: &source,
            falling: &[],
            promise: Promise::Conditional,
            groups: Vec::new(),
            costs: None,
            t_max: 16,
            logs: logs_of_steps(16),
            len: 1,
            scale: 1.0,
        };
        let curve = screen.curve(3, &[2.0, 0.0, 1.0]);
        assert!(curve[..3].iter().all(|&t| t == f32::INFINITY));
        assert_eq!(curve[3], probability(2.0));
        assert_eq!(curve[7], probability(0.0), "half way, by the logarithm");
        assert_eq!(curve[15], probability(1.0));
        assert_eq!(screen.curve(0, &[1.5]), [probability(1.5); 16]);
    }

    #[test]
    fn who_halts_at_about_the_same_step_stands_together() {
        let scores = [[0.1, 0.9], [0.9, 0.9], [0.2, 0.1], [0.3, 0.8], [0.8, 0.2]];
        let scores = scores.map(|scores| scores.to_vec());
        // Three quarters come to 0.8: two of them at once, two at the second step.
        assert_eq!(as_they_halt(&[0, 1, 2, 3, 4], &scores), [1, 4, 0, 3, 2]);
        assert_eq!(as_they_halt(&[3, 1], &scores), [1, 3]);
        assert_eq!(as_they_halt(&[], &scores), [0; 0]);
    }

    #[test]
    fn the_clock_goes_back_from_the_last_step_but_one() {
        let rules = clock(4);
        assert_eq!(rules.len(), 3);
        let never = f32::INFINITY;
        assert_eq!(rules[0].values(), [never, never, 0.0, 0.0]);
        assert_eq!(rules[2].values(), [0.0; 4]);
        assert!(clock(5000).len() < 2 * CLOCK_STEPS);
        // Longer sequences only add rules in front.
        let (few, many) = (clock(900), clock(1000));
        let opens = |rule: &Thresholds| rule.opens().unwrap();
        let many: Vec<usize> = many.iter().map(opens).collect();
        assert!(many.ends_with(&few.iter().map(opens).collect::<Vec<_>>()));
        assert!(clock(1).is_empty());
    }

    #[test]
    fn a_walk_of_plain_thresholds_opens_ever_earlier_and_may_close() {
        let rules = CLOSING.rules(6);
        let opens = |rule: &Thresholds| rule.opens().unwrap();
        assert_eq!(rules.iter().map(opens).collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        let never = f32::INFINITY;
        assert_eq!(rules[1].values(), [never, never, never, 0.8, 0.8, 0.0]);
        assert_eq!(rules[4].values(), [0.8, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let falling = STEEP.rules(6);
        assert_eq!(falling[3].values()[1], 0.9);
        assert!(
            (falling[3].values()[3] - 0.818).abs() < 1e-3,
            "9 to 1, then 9 to 2"
        );
    }

    #[test]
    fn what_is_the_same_for_all_data_does_not_depend_on_how_long_sequences_are() {
        for plain in [STEEP, GENTLE, LOW, CLOSING, Plain::Lower] {
            let (short, long) = (plain.rules(20), plain.rules(300));
            let long = &long[long.len() - short.len()..];
            for (short, long) in std::iter::zip(&short, long) {
                assert_eq!(short.values(), &long.values()[..20]);
            }
        }
    }

    #[test]
    fn whatever_is_planned_all_of_delta_is_shared_out() {
        let planned = |alpha, promise, score, fitted, unlabelled, by: Option<&str>| {
            let ask = crate::Ask {
                alpha: Some(alpha),
                promise: Some(promise),
                score,
                by: by.map(str::to_owned),
                ..crate::Ask::default()
            };
            let certifying = Survey {
                unlabelled,
                ..Survey::default()
            };
            let shares = Shares::of(&Plan::new(ask).unwrap(), promise, &certifying, fitted);
            let plain: f64 = shares.plain.iter().map(|(_, share)| share).sum();
            let sum = shares.best + shares.second + plain + shares.clock;
            assert!(
                (sum - 1.0).abs() < 1e-12,
                "{sum} of delta: {alpha}, {promise:?}, {fitted}"
            );
        };
        for alpha in [0.05, 0.1] {
            for promise in [Promise::Conditional, Promise::Marginal] {
                for fitted in [1, 119, 120, 299, 300, 1_000_000] {
                    planned(alpha, promise, None, fitted, 0, None);
                    planned(alpha, promise, None, fitted, 0, Some("site"));
                    planned(alpha, promise, None, fitted, 50, None);
                    planned(alpha, promise, Some(ScoreWord::Gap), fitted, 0, None);
                    planned(alpha, promise, Some(ScoreWord::Gap), fitted, 50, None);
                }
            }
        }
    }

    #[test]
    fn starts_are_tried_closely_first() {
        assert_eq!(start_steps(1), [0]);
        assert_eq!(start_steps(8), [0, 1, 2, 3]);
        let grid = start_steps(46);
        assert_eq!(grid[5..], [5, 7, 9, 12, 16, 22]);
        assert_eq!(around(&grid, 9), [13, 14, 15, 17, 19, 20]);
        assert_eq!(around(&grid, 0), [0; 0]);
    }
}
