//! Every promise, checked in cases where the truth is known. Sequences are drawn from a
//! finite population, so a rule's effect on the population is its effect on average.
//! Populations are as hard as possible: just above α, everywhere, in one group only, at one
//! step only. Each test has a counterpart that ignores what the promise is about, and that
//! must be caught.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;

use haltwise::corridor::{CalibrateError, Source};
use haltwise::evaluate::{EvaluateError, Evaluation, Evaluator};
use haltwise::plan::*;
use haltwise::rule::{Promise, Rule};
use haltwise::score::ScoreSource;
use haltwise::terms::*;
use haltwise::traces::*;
use haltwise::*;
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use rayon::prelude::*;

const CALIBRATIONS: u64 = 10_000;
const ALPHA: f64 = 0.1;
const DELTA: f64 = 0.1;
const STEPS: usize = 5;

/// One sequence of a population.
#[derive(Debug, Clone, Default)]
struct Drawn {
    label: Option<u32>,
    predictions: Vec<u32>,
    scores: Vec<f32>,
    losses: Option<Vec<f32>>,
    group: Option<String>,
    unit: Option<String>,
    weight: Option<f64>,
    costs: Option<Vec<f32>>,
}

impl Drawn {
    /// A sequence that is right at its end, and wrong before if it has a gap.
    fn new(gap: bool, rng: &mut Xoshiro256PlusPlus) -> Self {
        let mut predictions = vec![u32::from(!gap); STEPS];
        predictions[STEPS - 1] = 1;
        Self {
            label: Some(1),
            predictions,
            scores: (0..STEPS).map(|_| rng.random()).collect(),
            ..Self::default()
        }
    }

    fn given(&self) -> Sequence<'_> {
        Sequence {
            label: self.label,
            predictions: Some(&self.predictions),
            scores: Some(&self.scores),
            losses: self.losses.as_deref(),
            about: About {
                group: self.group.as_deref(),
                unit: self.unit.as_deref(),
                weight: self.weight,
                costs: self.costs.as_deref(),
            },
            ..Sequence::default()
        }
    }
}

fn outputs<'d>(all: impl IntoIterator<Item = &'d Drawn>) -> Outputs {
    let mut outputs = Outputs::new();
    for drawn in all {
        outputs.push(drawn.given()).unwrap();
    }
    outputs
}

/// A population of `n` sequences, `gaps` of which have a gap.
fn population(n: usize, gaps: usize) -> Vec<Drawn> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(n as u64);
    (0..n).map(|i| Drawn::new(i < gaps, &mut rng)).collect()
}

fn plan(ask: Ask) -> Plan {
    Plan::new(Ask {
        alpha: Some(ALPHA),
        delta: Some(DELTA),
        fit: true,
        score: Some(ScoreSource::Confidence),
        ..ask
    })
    .unwrap()
}

/// How many of 10,000 calibrations broke the promise. Each calibration draws new sequences
/// by `draw`, and its rule is held to `terms` on the population.
fn broken(
    plan: &Plan,
    population: &[Drawn],
    n: usize,
    terms: &Terms,
    draw: impl Fn(&mut Xoshiro256PlusPlus, usize) -> Vec<Drawn> + Sync,
) -> u64 {
    broken_as(&Held::to(plan, terms), plan, population, n, draw)
}

/// The terms that rules are held to.
struct Held {
    terms: Terms,
    promise: Promise,
}

impl Held {
    fn to(plan: &Plan, terms: &Terms) -> Self {
        Self {
            terms: terms.clone(),
            promise: plan.promise().unwrap(),
        }
    }
}

/// Does the same, but holds rules to other terms than those planned.
fn broken_as(
    held: &Held,
    plan: &Plan,
    population: &[Drawn],
    n: usize,
    draw: impl Fn(&mut Xoshiro256PlusPlus, usize) -> Vec<Drawn> + Sync,
) -> u64 {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let fit = outputs(&draw(&mut rng, n));
    let given = Inputs::one(&fit).to_certify(ToCertify {
        t_max: STEPS,
        sequences: Some(n as u64),
    });
    let (proposal, _) = plan.propose(given).unwrap();
    broken_by(population, held, |rng| {
        let evidence = outputs(&draw(rng, n)).count(&proposal).unwrap();
        vec![proposal.certify(&evidence).unwrap()]
    })
}

/// How many of 10,000 calibrations gave a rule that breaks the promise.
fn broken_by(
    population: &[Drawn],
    held: &Held,
    calibrate: impl Fn(&mut Xoshiro256PlusPlus) -> Vec<Rule> + Sync,
) -> u64 {
    let rules: Vec<Vec<Rule>> = (0..CALIBRATIONS)
        .into_par_iter()
        .map(|seed| calibrate(&mut Xoshiro256PlusPlus::seed_from_u64(1_000 + seed)))
        .collect();
    let mut known: HashMap<(Vec<u32>, String, String), bool> = HashMap::new();
    let mut breaks = |rule: &Rule| {
        let bits = rule.thresholds().values().iter().map(|v| v.to_bits());
        let score = serde_json::to_string(rule.source()).unwrap();
        *known
            .entry((bits.collect(), score, format!("{:?}", rule.halts_in())))
            .or_insert_with(|| self::breaks(rule, population, held))
    };
    let mut any = |rules: Vec<Rule>| rules.iter().any(&mut breaks);
    rules.into_iter().map(|rules| u64::from(any(rules))).sum()
}

/// Whether a rule breaks a promise to a population.
fn breaks(rule: &Rule, population: &[Drawn], held: &Held) -> bool {
    let Held { terms, promise } = held;
    if !rule.halts_early() {
        return false;
    }
    // To hold a rule to other terms than its own, the test changes its file.
    let mut stored = serde_json::to_value(rule).unwrap();
    let mut screened = stored.as_object_mut().unwrap().clone();
    for field in ["trail", "families"] {
        screened.insert(field.into(), serde_json::json!([]));
    }
    for field in ["promise", "chosen", "proof", "groups", "halts_in"] {
        screened.remove(field);
    }
    screened.insert("promise".into(), serde_json::Value::Null);
    screened.insert("method".into(), "screen-only".into());
    screened.insert("terms".into(), serde_json::to_value(terms).unwrap());
    let screened: Rule = serde_json::from_value(screened.into()).unwrap();
    let mut evaluator = Evaluator::for_rule(&screened);
    let mut checker = Checker::new();
    for (i, drawn) in population.iter().enumerate() {
        let trace = checker.check(drawn.given()).unwrap();
        evaluator.push(Key::new(None, i as u64), &trace).unwrap();
    }
    let found = evaluator.finish().unwrap();
    let thresholds = rule.thresholds().values().iter();
    let opens = thresholds.take_while(|&&v| v == f32::INFINITY).count();
    let first = match promise {
        Promise::Marginal => STEPS,
        Promise::Conditional => opens + 1,
    };
    let above = |steps: &[haltwise::evaluate::StepResult]| {
        let tested = steps.iter().filter(|step| step.t >= first);
        tested
            .filter_map(|step| step.gap_by)
            .any(|gap| gap > ALPHA + 1e-9)
    };
    // A group that is read to its end loses nothing.
    let halts = |group: &String| rule.halts_in().is_none_or(|groups| groups.contains(group));
    let mut groups = found.by_group.iter();
    match found.by_group.is_empty() {
        true => above(&found.by_step),
        false => groups.any(|group| halts(&group.group) && above(&group.by_step)),
    }
}

/// If calibrations fail with probability δ, more than this many fail with a probability of
/// 10⁻⁶.
fn most() -> u64 {
    let deviation = (CALIBRATIONS as f64 * DELTA * (1.0 - DELTA)).sqrt();
    (CALIBRATIONS as f64 * DELTA + 4.9 * deviation) as u64
}

fn simple(population: &[Drawn]) -> impl Fn(&mut Xoshiro256PlusPlus, usize) -> Vec<Drawn> + Sync {
    |rng, n| {
        let pick = |_| population[rng.random_range(0..population.len())].clone();
        (0..n).map(pick).collect()
    }
}

fn kept(what: &str, broken: u64) {
    assert!(broken <= most(), "{what}: {broken} of {CALIBRATIONS}");
}

fn caught(what: &str, broken: u64) {
    assert!(broken > most(), "{what}: only {broken} of {CALIBRATIONS}");
}

#[test]
fn disagreements_are_kept_below_alpha_without_a_label() {
    let mut all = population(1_000, 101);
    for drawn in &mut all {
        drawn.label = None;
    }
    let terms = Terms {
        loss: Loss::Disagreement,
        ..Terms::default()
    };
    let asked = plan(Ask::of_terms(terms.clone()));
    kept(
        "everywhere",
        broken(&asked, &all, 300, &terms, simple(&all)),
    );
    // The gap is above α at the first step only.
    for drawn in &mut all {
        let early = drawn.predictions[0];
        drawn.predictions[1..].fill(1);
        drawn.predictions[0] = early;
    }
    kept("one step", broken(&asked, &all, 300, &terms, simple(&all)));
}

#[test]
fn a_gap_on_average_is_kept_below_alpha() {
    let terms = Terms::default();
    let asked = plan(Ask {
        promise: Some(Promise::Marginal),
        ..Ask::default()
    });
    assert_eq!(asked.promise(), Some(Promise::Marginal));
    let all = population(1_000, 101);
    kept(
        "everywhere",
        broken(&asked, &all, 300, &terms, simple(&all)),
    );
    // One set of scores says nothing about the gap; the other says all except for a few.
    let mut told = all;
    for (i, drawn) in told.iter_mut().enumerate() {
        let sure = if i < 95 { 0.1 } else { 0.9 };
        drawn.scores.iter_mut().for_each(|s| *s = (*s + sure) / 2.0);
    }
    kept("told", broken(&asked, &told, 300, &terms, simple(&told)));
}

/// A score that was refined for the promise is also fixed before certifying: whatever it
/// learned, its thresholds are tested on other sequences.
#[test]
fn a_refined_score_keeps_the_gap_on_average() {
    let terms = Terms::default();
    let asked = |delta: f64| {
        Plan::new(Ask {
            alpha: Some(ALPHA),
            delta: Some(delta),
            fit: true,
            score: Some(ScoreSource::Gap(())),
            promise: Some(Promise::Marginal),
            ..Ask::default()
        })
        .unwrap()
    };
    // Scores reveal the gaps of some sequences, and nothing reveals those of a tenth and
    // more. Thresholds lose from far less to more than α, in small steps.
    let mut all = population(1_000, 250);
    for (i, drawn) in all.iter_mut().enumerate() {
        let sure = if i < 170 { 0.2 } else { 1.0 };
        drawn.scores.iter_mut().for_each(|s| *s *= sure);
    }
    // The score was refined: there is one threshold for all steps, found among many.
    let draw = |n: u64| {
        outputs(&simple(&all)(
            &mut Xoshiro256PlusPlus::seed_from_u64(n),
            400,
        ))
    };
    let (fit, others) = (draw(1), draw(2));
    let given = Inputs {
        fit: Some(&fit),
        ..Inputs::one(&others)
    };
    let rule = asked(DELTA).calibrate(given).unwrap().rule;
    let thresholds = rule.thresholds().values();
    assert!(thresholds[0] < 1.0 && thresholds.iter().all(|&v| v == thresholds[0]));
    assert!(rule.trail().len() > 50);
    let broken = |delta: f64| broken(&asked(delta), &all, 400, &terms, simple(&all));
    let found = broken(DELTA);
    println!("refined: {found} of {CALIBRATIONS}");
    kept("refined", found);
    assert!(found > 0, "no threshold was near α");
    caught("refined, at four times δ", broken(4.0 * DELTA));
}

/// Sets a part aside each time, and certifies families that are the same for all data on
/// all traces.
fn broken_when_split(population: &[Drawn], ask: Ask, n: usize) -> u64 {
    let plan = Plan::new(Ask {
        alpha: Some(ALPHA),
        delta: ask.delta.or(Some(DELTA)),
        ..ask
    })
    .unwrap();
    let draw = simple(population);
    broken_by(population, &Held::to(&plan, &Terms::default()), |rng| {
        let all = outputs(&draw(rng, n));
        vec![plan.calibrate(Inputs::one(&all)).unwrap().rule]
    })
}

/// With few traces, the clock and the thresholds of the plain score have most of δ, and the
/// fitting traces help to certify them.
#[test]
fn what_is_the_same_for_all_data_keeps_its_promise_on_all_traces() {
    let mut all = population(1_000, 101);
    for (i, drawn) in all.iter_mut().enumerate() {
        // The scores are high enough, from some step on, for every walk, whatever the gap.
        let sure = i % STEPS;
        for (t, score) in drawn.scores.iter_mut().enumerate() {
            *score = if t < sure {
                *score
            } else {
                0.9 + *score / 10.0
            };
        }
    }
    for (promise, n) in [
        (Promise::Conditional, 200),
        (Promise::Conditional, 450),
        (Promise::Marginal, 200),
    ] {
        let ask = Ask {
            promise: Some(promise),
            ..Ask::default()
        };
        let broken = broken_when_split(&all, ask, n);
        println!("{promise:?}, {n}: {broken} of {CALIBRATIONS}");
        kept(&format!("{promise:?} on {n}"), broken);
    }
    let careless = Ask {
        delta: Some(4.0 * DELTA),
        ..Ask::default()
    };
    caught("at four times δ", broken_when_split(&all, careless, 200));
}

/// The loss by the first step must not reach a tenth, whatever the average.
#[test]
fn a_promise_on_average_is_not_one_by_every_step() {
    let mut all = population(1_000, 60);
    for (i, drawn) in all.iter_mut().enumerate() {
        // The sequences that lose are among the fifth that are sure at once. The others are
        // sure one step later, and would lose as much before.
        drawn.scores = vec![0.9; STEPS];
        if i >= 200 {
            drawn.scores[0] = 0.1;
            drawn.predictions[0] = u32::from(i % 10 >= 3);
        }
    }
    let asked = plan(Ask {
        promise: Some(Promise::Marginal),
        ..Ask::default()
    });
    let terms = Terms::default();
    assert_eq!(broken(&asked, &all, 300, &terms, simple(&all)), 0);
    let by_every_step = Held {
        promise: Promise::Conditional,
        ..Held::to(&asked, &terms)
    };
    caught(
        "judged by every step",
        broken_as(&by_every_step, &asked, &all, 300, simple(&all)),
    );
}

/// More evidence may be looked at only if that was planned.
#[test]
fn looks_that_were_planned_share_delta() {
    let all = population(1_000, 101);
    let terms = Terms::default();
    // So many looks are made, whatever was planned.
    let looking = |made: u64, planned: bool| {
        let looks: Vec<u64> = (1..=made).map(|look| 600 * look / made).collect();
        let looks = if planned { &looks[..] } else { &[] };
        let plan = Plan::new(Ask {
            method: Some(Method::Marginal),
            delta: Some(DELTA),
            looks: looks.to_vec(),
            ..Ask::default()
        })
        .unwrap();
        let one = outputs(&all[..1]);
        let given = Inputs::one(&one).to_certify(ToCertify {
            t_max: STEPS,
            sequences: None,
        });
        let (proposal, _) = plan.propose(given).unwrap();
        broken_by(&all, &Held::to(&plan, &terms), |rng| {
            let batch = |rng: &mut Xoshiro256PlusPlus| {
                let drawn = simple(&all)(rng, 600 / made as usize);
                outputs(&drawn).count(&proposal).unwrap()
            };
            let mut evidence = batch(rng);
            let mut rules = vec![proposal.certify(&evidence).unwrap()];
            for _ in 1..made {
                evidence.add(&batch(rng)).unwrap();
                rules.push(proposal.certify(&evidence).unwrap());
            }
            let looked = rules.iter().filter_map(|rule| Some(rule.looks()?.made));
            assert!(!planned || looked.eq(1..=looks.len()));
            rules
        })
    };
    for made in [2, 4, 8] {
        kept(&format!("{made} planned"), looking(made, true));
        caught(&format!("{made} not planned"), looking(made, false));
    }
}

#[test]
fn few_labels_keep_the_gap_below_alpha() {
    // 22% disagree; in 46% of those the full prediction is right. A random part of all has
    // a label.
    let mut all = population(1_500, 330);
    for drawn in &mut all[152..330] {
        drawn.label = Some(2);
    }
    let terms = Terms::default();
    let asked = plan(Ask::default());
    for labelled in [0.05, 0.33, 0.9] {
        let draw = |rng: &mut Xoshiro256PlusPlus, n: usize| {
            let mut drawn = simple(&all)(rng, n);
            for one in &mut drawn {
                if rng.random::<f64>() > labelled {
                    one.label = None;
                }
            }
            drawn
        };
        let what = format!("{labelled} at random");
        kept(&what, broken(&asked, &all, 600, &terms, draw));
    }
    // Nothing is promised if gaps are labelled less often than other sequences.
    let draw = |rng: &mut Xoshiro256PlusPlus, n: usize| {
        let mut drawn = simple(&all)(rng, n);
        for one in &mut drawn {
            let gap = one.label == Some(1) && one.predictions[0] == 0;
            if rng.random_range(0..3) > 0 || gap && rng.random_range(0..3) > 0 {
                one.label = None;
            }
        }
        drawn
    };
    caught("labels by outcome", broken(&asked, &all, 600, &terms, draw));
}

#[test]
fn given_losses_are_kept_below_alpha_on_average() {
    let terms = Terms {
        loss: Loss::Given,
        ..Terms::default()
    };
    let asked = plan(Ask::of_terms(terms.clone()));
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    type OfSequence = fn(usize, &mut Xoshiro256PlusPlus) -> f32;
    let losses: [(&str, OfSequence); 4] = [
        ("whole", |i, _| if i < 101 { 1.0 } else { 0.0 }),
        ("half", |i, _| if i < 202 { 0.5 } else { 0.0 }),
        ("constant", |_, _| 0.1005),
        ("skewed", |_, rng| {
            (rng.random::<f32>().powi(9) * 1.01).min(1.0)
        }),
    ];
    for (what, loss) in losses {
        let mut all = population(1_000, 0);
        for (i, drawn) in all.iter_mut().enumerate() {
            let mut losses = vec![loss(i, &mut rng); STEPS];
            losses[STEPS - 1] = 0.0;
            drawn.losses = Some(losses);
        }
        kept(what, broken(&asked, &all, 200, &terms, simple(&all)));
    }
}

#[test]
fn every_group_is_kept_below_alpha() {
    // One group is just above α, the others far below.
    let mut all = population(1_000, 26);
    for (i, drawn) in all.iter_mut().enumerate() {
        let group = if !(26..770).contains(&i) {
            "north"
        } else {
            "south"
        };
        drawn.group = Some(group.into());
    }
    let terms = Terms {
        by: Some("site".into()),
        ..Terms::default()
    };
    let asked = plan(Ask::of_terms(terms.clone()));
    kept("by site", broken(&asked, &all, 600, &terms, simple(&all)));
    let ignoring = plan(Ask::default());
    caught(
        "all alike",
        broken(&ignoring, &all, 600, &terms, simple(&all)),
    );
}

#[test]
fn units_that_hang_together_count_as_one() {
    // Each unit of eight is right throughout or wrong throughout.
    let mut all = population(1_600, 168);
    for (i, drawn) in all.iter_mut().enumerate() {
        drawn.unit = Some(format!("u{}", i / 8));
    }
    let terms = Terms {
        unit: Some("patient".into()),
        ..Terms::default()
    };
    // Units are drawn whole, and each draw is a unit of its own.
    let draw = |rng: &mut Xoshiro256PlusPlus, n: usize| {
        let mut drawn = Vec::new();
        for k in 0..n / 8 {
            let unit = rng.random_range(0..200) * 8;
            for one in &all[unit..unit + 8] {
                let unit = Some(format!("d{k}"));
                drawn.push(Drawn {
                    unit,
                    ..one.clone()
                });
            }
        }
        drawn
    };
    let asked = plan(Ask::of_terms(terms.clone()));
    kept("by unit", broken(&asked, &all, 800, &terms, draw));
    let ignoring = plan(Ask::default());
    caught("by sequence", broken(&ignoring, &all, 800, &terms, draw));
}

#[test]
fn a_declared_shift_is_kept_to() {
    // In use, the tenth with most gaps occurs ten times as often as here.
    let mut all = population(1_000, 0);
    for (i, drawn) in all.iter_mut().enumerate() {
        let often = i < 100;
        drawn.weight = Some(if often { 10.0 } else { 1.0 });
        // 0.2 · 100 · 10 of 1,900 are 10.5%.
        drawn.predictions[..STEPS - 1].fill(u32::from(i >= 20));
    }
    let terms = Terms {
        weight: Some(Weight {
            column: "weight".into(),
            bound: 10.0,
        }),
        ..Terms::default()
    };
    // The population as it occurs in use.
    let often = |drawn: &Drawn| drawn.weight.unwrap() as usize;
    let shifted: Vec<Drawn> = all
        .iter()
        .flat_map(|drawn| std::iter::repeat_n(drawn.clone(), often(drawn)))
        .collect();
    let gap = Terms::default();
    let asked = plan(Ask::of_terms(terms));
    kept(
        "weighted",
        broken(&asked, &shifted, 1_500, &gap, simple(&all)),
    );
    let ignoring = plan(Ask::default());
    caught(
        "as drawn",
        broken(&ignoring, &shifted, 1_500, &gap, simple(&all)),
    );
}

/// A test of "the mean is α", by bets on both sides, says little about "the mean is above
/// α": if it is far above, the test rejects that it is α. A public notebook certifies with
/// such a p-value.
#[test]
fn a_two_sided_test_of_the_mean_certifies_what_it_must_not() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(8);
    let mut certified = 0;
    for _ in 0..1_000 {
        let losses = (0..200).map(|_| f64::from(u8::from(rng.random::<f64>() < 0.3)));
        let (mut below, mut above) = (1.0, 1.0);
        for loss in losses {
            below *= 1.0 - 0.6 * (loss - ALPHA);
            above *= 1.0 + 0.6 * (loss - ALPHA);
        }
        let two_sided: f64 = 1.0 / (0.5 * below + 0.5 * above);
        certified += u32::from(two_sided <= DELTA);
    }
    assert!(certified > 900, "{certified}");
    // Our test does not certify a single one of them.
    let terms = Terms {
        loss: Loss::Given,
        ..Terms::default()
    };
    let mut all = population(1_000, 0);
    for (i, drawn) in all.iter_mut().enumerate() {
        let loss = if i < 300 { 1.0 } else { 0.0 };
        drawn.losses = Some(vec![loss, loss, loss, loss, 0.0]);
    }
    let asked = plan(Ask::of_terms(terms.clone()));
    assert_eq!(broken(&asked, &all, 200, &terms, simple(&all)), 0);
}

/// Sequences with higher scores are right more often.
fn calibrated(n: usize, seed: u64) -> Vec<Drawn> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut drawn = |_| {
        let sure: f32 = rng.random();
        let gap = rng.random::<f32>() > 0.7 + 0.5 * sure;
        let mut one = Drawn::new(gap, &mut rng);
        one.scores = (0..STEPS).map(|t| sure * (0.8 + 0.05 * t as f32)).collect();
        one
    };
    (0..n).map(&mut drawn).collect()
}

fn calibrate(ask: Ask, all: &[Drawn]) -> Result<Rule, CalibrateError> {
    let plan = Plan::new(Ask {
        delta: Some(0.05),
        ..ask
    })
    .unwrap();
    let found = plan.calibrate(Inputs::one(&outputs(all)))?;
    Ok(found.rule)
}

#[test]
fn a_promise_without_labels_is_the_promise_with_labels_that_are_the_full_predictions() {
    let mut all = calibrated(1_500, 3);
    let ask = Ask {
        loss: Some(Loss::Disagreement),
        ..Ask::default()
    };
    let labelled = calibrate(Ask::default(), &all).unwrap();
    for drawn in &mut all {
        drawn.label = None;
    }
    let free = calibrate(ask, &all).unwrap();
    assert!(labelled.halts_early());
    assert_eq!(free.thresholds(), labelled.thresholds());
    assert_eq!(free.late_accuracy(), None);
    let trail = |rule: &Rule| -> Vec<f64> { rule.trail().iter().map(|t| t.p_value).collect() };
    assert_eq!(trail(&free), trail(&labelled));
}

#[test]
fn losses_of_0_and_1_are_tested_exactly() {
    let mut all = calibrated(1_500, 4);
    let gap = calibrate(Ask::default(), &all).unwrap();
    for drawn in &mut all {
        let losses = drawn
            .predictions
            .iter()
            .map(|&p| f32::from(u8::from(p != 1)));
        drawn.losses = Some(losses.collect());
    }
    let ask = Ask {
        loss: Some(Loss::Given),
        ..Ask::default()
    };
    let given = calibrate(ask, &all).unwrap();
    assert!(given.halts_early());
    assert_eq!(given.proof(), gap.proof());
    let p_values = |rule: &Rule| -> Vec<f64> {
        let curves = rule.tests_by_family().next().unwrap().1;
        curves.iter().map(|test| test.p_value).collect()
    };
    assert_eq!(p_values(&given), p_values(&gap));
}

#[test]
fn fewer_labels_are_better_than_only_those() {
    let mut all = calibrated(4_000, 5);
    for (i, drawn) in all.iter_mut().enumerate() {
        // Half of the disagreements have the full prediction wrong.
        if drawn.predictions[0] == 0 && i / 10 % 2 == 0 {
            drawn.label = Some(3);
        }
    }
    let few = |drawn: &Drawn, i: usize| i.is_multiple_of(10) && drawn.label.is_some();
    let alone: Vec<Drawn> = (0..all.len())
        .filter(|&i| few(&all[i], i))
        .map(|i| all[i].clone())
        .collect();
    let mut mixed = all.clone();
    for (i, drawn) in mixed.iter_mut().enumerate() {
        if i % 10 > 0 {
            drawn.label = None;
        }
    }
    let t_avg = |rule: Rule| rule.expected().map_or(1.0, |expected| expected.t_avg);
    let gap = || Ask {
        alpha: Some(0.03),
        ..Ask::default()
    };
    let both = t_avg(calibrate(gap(), &mixed).unwrap());
    let alone = t_avg(calibrate(gap(), &alone).unwrap());
    let free = Ask {
        loss: Some(Loss::Disagreement),
        ..gap()
    };
    let free = t_avg(calibrate(free, &mixed).unwrap());
    assert!(both < 0.95 * alone, "{both} {alone}");
    assert!(both < 1.02 * free, "{both} {free}");
}

#[test]
fn fitting_traces_may_lack_the_labels_that_certifying_ones_have() {
    let all = calibrated(4_000, 5);
    let (fit, certify) = all.split_at(1_000);
    let mut unlabelled = fit.to_vec();
    for drawn in &mut unlabelled {
        drawn.label = None;
    }
    let plan = Plan::new(Ask {
        fit: true,
        delta: Some(0.05),
        ..Ask::default()
    });
    let t_avg = |fit: &[Drawn]| {
        let (fit, traces) = (outputs(fit), outputs(certify));
        let given = Inputs {
            fit: Some(&fit),
            ..Inputs::one(&traces)
        };
        let rule = plan.as_ref().unwrap().calibrate(given).unwrap().rule;
        rule.expected().map_or(1.0, |expected| expected.t_avg)
    };
    // Here every disagreement is a gap, so nothing is lost.
    let (with, without) = (t_avg(fit), t_avg(&unlabelled));
    assert!(without < 1.02 * with, "{without} {with}");
}

#[test]
fn rules_minimise_the_cost_that_is_given() {
    let mut all = calibrated(2_000, 6);
    // The last step costs as much as a hundred others.
    for drawn in &mut all {
        drawn.costs = Some(vec![1.0, 1.0, 1.0, 1.0, 100.0]);
    }
    let by_steps = calibrate(Ask::default(), &all).unwrap();
    let ask = |cost| Ask {
        cost: Some(cost),
        ..Ask::default()
    };
    let column = calibrate(ask(Cost::of("tokens")), &all).unwrap();
    let listed = calibrate(ask(Cost::of("1,1,1,1,100")), &all).unwrap();
    assert_eq!(column.thresholds(), listed.thresholds());
    let cost = column.expected().unwrap().cost.unwrap();
    assert!(cost < 100.0, "{cost}");
    assert_eq!(by_steps.expected().unwrap().cost, None);
    let mut evaluator = Evaluator::for_rule(&column);
    let mut checker = Checker::new();
    for (i, drawn) in all.iter().enumerate() {
        let trace = checker.check(drawn.given()).unwrap();
        evaluator.push(Key::new(None, i as u64), &trace).unwrap();
    }
    let found = evaluator.finish().unwrap().cost.unwrap();
    assert_eq!(found.full, 104.0);
    assert!((found.mean - cost).abs() < 10.0, "{} {cost}", found.mean);
}

/// The evaluation of these, read in two halves.
fn evaluated(rule: &Rule, all: &[Drawn]) -> Result<Evaluation, EvaluateError> {
    let mut halves = Vec::new();
    for half in all.chunks(all.len().div_ceil(2)) {
        let (mut evaluator, mut checker) = (Evaluator::for_rule(rule), Checker::new());
        for (i, drawn) in half.iter().enumerate() {
            let trace = checker.check(drawn.given()).unwrap();
            evaluator.push(Key::new(None, i as u64), &trace)?;
        }
        halves.push(evaluator);
    }
    let mut sum = Evaluator::for_rule(rule);
    for half in halves {
        sum.append(half)?;
    }
    sum.finish()
}

/// A single row without the column would let all be judged as if none had it.
#[test]
fn a_column_that_only_some_sequences_have_is_refused() {
    let mut all = calibrated(1_500, 8);
    for (i, drawn) in all.iter_mut().enumerate() {
        drawn.unit = Some(format!("u{}", i / 3));
        drawn.group = Some(if i % 3 == 0 { "south" } else { "north" }.into());
        drawn.weight = Some(1.0);
        drawn.costs = Some(vec![1.0; STEPS]);
    }
    let by_site = Ask {
        by: Some("site".into()),
        ..Ask::default()
    };
    let by_unit = Ask {
        unit: Some("patient".into()),
        ..Ask::default()
    };
    let weighted = Ask {
        weight: Some("w".into()),
        weight_bound: Some(1.0),
        ..Ask::default()
    };
    let costed = Ask {
        cost: Some(Cost::of("tokens")),
        ..Ask::default()
    };
    type Drop = fn(&mut Drawn);
    let columns: [(Ask, &str, Drop); 4] = [
        (by_site, "site", |one| one.group = None),
        (by_unit, "patient", |one| one.unit = None),
        (weighted, "w", |one| one.weight = None),
        (costed, "tokens", |one| one.costs = None),
    ];
    for (ask, column, drop) in columns {
        let rule = calibrate(ask, &all).unwrap();
        assert!(evaluated(&rule, &all).is_ok(), "{column}");
        let mut without = all.clone();
        without.iter_mut().for_each(drop);
        assert!(evaluated(&rule, &without).is_ok(), "{column}");
        let mut one_without = all.clone();
        drop(&mut one_without[5]);
        let expected = EvaluateError::SomeLack {
            column: column.into(),
            without: 1,
            all: 1_500,
        };
        assert_eq!(evaluated(&rule, &one_without), Err(expected));
    }
}

/// A row without a true class belongs to no class. The classes of the others are judged as
/// they would be without it.
#[test]
fn one_missing_label_does_not_hide_a_class_that_loses_much() {
    let mut all = calibrated(3_000, 9);
    for drawn in all.iter_mut().step_by(2) {
        drawn.label = Some(0);
        drawn
            .predictions
            .iter_mut()
            .for_each(|class| *class = 1 - *class);
    }
    let ask = Ask {
        by: Some("label".into()),
        ..Ask::default()
    };
    let rule = calibrate(ask, &all).unwrap();
    assert!(rule.halts_early());
    // Now the early prediction is class 1 nearly always.
    for drawn in &mut all {
        drawn.predictions[..STEPS - 1].fill(1);
    }
    let whole = evaluated(&rule, &all[1..]).unwrap();
    all[0].label = None;
    let found = evaluated(&rule, &all).unwrap();
    assert_eq!(found.by_group.len(), 2);
    assert_eq!(found.by_group, whole.by_group);
    assert!(found.by_group[0].gap > 0.3, "{:?}", found.by_group[0].gap);
}

/// Certifying rounds losses up to whole levels. A measured mean is not rounded, and its
/// interval holds the truth however many losses there are.
#[test]
fn measured_losses_are_not_rounded_up() {
    let with_loss = |loss: f32| {
        let mut all = calibrated(1_500, 10);
        for drawn in &mut all {
            let mut losses = vec![loss; STEPS];
            losses[STEPS - 1] = 0.0;
            drawn.losses = Some(losses);
            drawn.scores.fill(0.9);
        }
        all
    };
    let ask = Ask {
        loss: Some(Loss::Given),
        ..Ask::default()
    };
    let rule = calibrate(ask, &with_loss(0.05)).unwrap();
    assert!(rule.halts_early());
    for loss in [0.0981, 0.099, 0.0999] {
        let found = evaluated(&rule, &with_loss(loss)).unwrap();
        let truth = f64::from(loss);
        for step in found.by_step.iter().filter(|step| step.halted > 0) {
            assert!((step.gap_by.unwrap() - truth).abs() < 1e-9, "{step:?}");
        }
        assert!((found.gap - truth).abs() < 1e-9, "{}", found.gap);
        let (low, high) = found.gap_interval;
        assert!(low < truth && truth < high, "{low} {high}");
    }
    // Units of seven; one sequence of each loses.
    let mut all = calibrated(7 * 2_000, 11);
    for (i, drawn) in all.iter_mut().enumerate() {
        drawn.scores.fill(0.9);
        drawn.unit = Some(format!("u{}", i / 7));
        drawn.predictions[..STEPS - 1].fill(1);
        drawn.predictions[0] = u32::from(i % 7 > 0);
    }
    let ask = Ask {
        unit: Some("patient".into()),
        alpha: Some(0.2),
        ..Ask::default()
    };
    let rule = calibrate(ask, &all).unwrap();
    let found = evaluated(&rule, &all).unwrap();
    let (low, high) = found.gap_interval;
    assert!((found.gap - 1.0 / 7.0).abs() < 1e-9, "{}", found.gap);
    assert!(low < 1.0 / 7.0 && 1.0 / 7.0 < high, "{low} {high}");
    // One unit alone says nothing about how much units differ.
    let one = evaluated(&rule, &all[..7]).unwrap();
    let accuracy = one.accuracy.unwrap();
    let errors = [
        one.gap_se,
        one.t_avg_se,
        accuracy.late_se,
        accuracy.early_se,
    ];
    assert_eq!(errors, [0.5; 4]);
}

#[test]
fn what_cannot_be_promised_is_refused() {
    let refused = |ask: Ask, all: &[Drawn]| calibrate(ask, all).unwrap_err().to_string();
    let mut all = calibrated(300, 7);
    let by = || Ask {
        by: Some("site".into()),
        ..Ask::default()
    };
    assert!(refused(by(), &all).contains("no `site`"));
    for drawn in &mut all {
        drawn.group = Some("one".into());
    }
    assert!(refused(by(), &all).contains("the same value in the column `site`"));
    all[0].group = Some("alone".into());
    let lost = refused(by(), &all);
    assert!(
        lost.contains("\"alone\"") || lost.contains("\"one\""),
        "{lost}"
    );
    for (i, drawn) in all.iter_mut().enumerate() {
        drawn.group = Some(format!("g{i}"));
        drawn.weight = Some(2.0);
    }
    let weight = Ask {
        weight: Some("w".into()),
        weight_bound: Some(1.5),
        ..Ask::default()
    };
    assert!(refused(weight, &all).contains("its weight 2 is above the bound 1.5"));
    for drawn in &mut all {
        drawn.label = None;
    }
    assert!(refused(Ask::default(), &all).contains("the loss disagreement needs none"));
    all[5].label = Some(1);
    let paper = Ask {
        method: Some(Method::Conditional),
        ..Ask::default()
    };
    assert!(refused(paper, &all).contains("not every sequence has a label"));
    let given = Ask {
        loss: Some(Loss::Given),
        ..Ask::default()
    };
    assert!(refused(given, &all).contains("no `losses`"));
}

#[test]
fn every_method_takes_every_loss_and_groups_and_its_rule_is_sound() {
    let mut all = calibrated(5_000, 9);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
    for (i, drawn) in all.iter_mut().enumerate() {
        let gap = drawn.predictions[0] == 0;
        let loss = if gap {
            0.4 + 0.6 * rng.random::<f32>()
        } else {
            0.0
        };
        drawn.losses = Some(vec![loss, loss, loss, loss, 0.0]);
        drawn.group = Some(["a", "b"][i % 2].into());
        drawn.unit = Some(format!("u{}", i / 4));
        drawn.weight = Some(if i / 4 % 3 == 0 { 1.0 } else { 0.5 });
    }
    for method in [Method::Adaptive, Method::Conditional, Method::Marginal] {
        for loss in [Loss::Gap, Loss::Disagreement, Loss::Given] {
            for (by, unit, weight) in [
                (None, None, None),
                (Some("site"), None, None),
                (None, Some("patient"), None),
                (Some("site"), Some("patient"), Some("w")),
            ] {
                let what = format!("{method:?} {loss:?} {by:?} {unit:?} {weight:?}");
                let rule = calibrate(
                    Ask {
                        method: Some(method),
                        alpha: Some(0.2),
                        loss: Some(loss),
                        by: by.map(Into::into),
                        unit: unit.map(Into::into),
                        weight: weight.map(Into::into),
                        weight_bound: weight.map(|_: &str| 1.0),
                        ..Ask::default()
                    },
                    &all,
                );
                let rule = rule.unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(rule.halts_early(), "{what}: {:#?}", rule.trail());
                let stored = serde_json::to_string(&rule).unwrap();
                let back: Rule =
                    serde_json::from_str(&stored).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!(back, rule, "{what}");
            }
        }
    }
}

/// Weights draw units, not sequences: with two weights, a unit could be kept in part.
#[test]
fn weights_take_a_unit_whole_and_a_unit_with_two_weights_is_refused() {
    let mut all = population(2_000, 20);
    for (i, drawn) in all.iter_mut().enumerate() {
        drawn.unit = Some(format!("u{}", i / 4));
        drawn.weight = Some(if i / 4 % 2 == 0 { 1.0 } else { 2.0 });
    }
    // Within one part of the set, and in both of its halves.
    let mut uneven = all.clone();
    uneven[5].weight = Some(2.0);
    uneven[6].weight = Some(1.0);
    let mut cut = all.clone();
    cut[1_999].unit = Some("u0".into());
    for method in [Method::Conditional, Method::Adaptive, Method::Marginal] {
        let ask = || Ask {
            method: Some(method),
            unit: Some("patient".into()),
            weight: Some("mix".into()),
            weight_bound: Some(2.0),
            ..Ask::default()
        };
        let calibrate = |all: &[Drawn]| {
            let plan = Plan::new(ask()).unwrap();
            plan.calibrate(Inputs::one(&outputs(all)))
        };
        let rule = calibrate(&all).unwrap().rule;
        let whole = evaluated(&rule, &all).unwrap().n;
        assert!(
            whole.is_multiple_of(4) && (1_300..1_700).contains(&whole),
            "{whole}"
        );
        for refused in [&uneven, &cut] {
            let said = calibrate(refused).unwrap_err().to_string();
            assert!(said.contains("weights"), "{method:?}: {said}");
            let said = evaluated(&rule, refused).unwrap_err().to_string();
            assert!(said.contains("weights"), "{method:?}: {said}");
        }
    }
}
