//! The fast paths against the paper's listings, written out plainly over rows of numbers.
//! Results are equal bit for bit, on traces full of ties and unequal lengths.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::corridor::*;
use haltwise::evaluate::*;
use haltwise::plan::*;
use haltwise::rule::*;
use haltwise::score::ScoreSource;
use haltwise::stats::*;
use haltwise::traces::*;
use haltwise::*;
use proptest::prelude::*;

const NEVER: f32 = f32::INFINITY;

/// One sequence: its scores, and whether each prediction was right.
#[derive(Debug, Clone)]
struct Sequence {
    scores: Vec<f32>,
    right: Vec<bool>,
}

impl Sequence {
    /// τ: the first step whose score reaches its threshold, or the last.
    fn halt(&self, rule: &[f32]) -> usize {
        let last = self.scores.len() - 1;
        (0..last)
            .find(|&t| self.scores[t] >= rule[t])
            .unwrap_or(last)
    }

    fn gap(&self, t: usize) -> bool {
        self.right[self.right.len() - 1] && !self.right[t]
    }
}

/// |I| and the number of gaps among I = {i : τ(i) ≤ t}.
fn halted_by(sequences: &[Sequence], rule: &[f32], t: usize) -> (u64, u64) {
    let halts = sequences.iter().map(|s| (s, s.halt(rule)));
    let halted: Vec<_> = halts.filter(|&(_, halt)| halt <= t).collect();
    let gaps = halted.iter().filter(|(s, halt)| s.gap(*halt)).count();
    (halted.len() as u64, gaps as u64)
}

fn t_max(sequences: &[Sequence]) -> usize {
    sequences.iter().map(|s| s.scores.len()).max().unwrap_or(0)
}

/// Algorithm 1, line by line; `good` judges the number halted and their gaps.
fn screen_by(sequences: &[Sequence], grid: &Grid, good: impl Fn(u64, u64) -> bool) -> Vec<f32> {
    let mut eta_hat = vec![NEVER; t_max(sequences)];
    for t in 0..eta_hat.len() {
        let mut eta = eta_hat.clone();
        for &xi in grid.thresholds() {
            eta[t] = xi;
            let (halted, gaps) = halted_by(sequences, &eta, t);
            if halted == 0 {
                break;
            }
            if good(halted, gaps) {
                eta_hat[t] = xi;
                break;
            }
        }
    }
    eta_hat
}

/// Judged by the empirical risk, as the paper's listing does.
fn screen_listing(sequences: &[Sequence], alpha: f64, grid: &Grid) -> Vec<f32> {
    screen_by(sequences, grid, |halted, gaps| {
        gaps as f64 / halted as f64 <= alpha
    })
}

/// Algorithm 2, line by line; `skip` passes over steps that are never.
fn certify_listing(
    sequences: &[Sequence],
    eta: &[f32],
    alpha: f64,
    delta: f64,
    skip: bool,
) -> Vec<f32> {
    let mut lambda_hat = vec![NEVER; eta.len()];
    'walk: for t in (0..eta.len()).rev() {
        if skip && eta[t] == NEVER {
            continue;
        }
        let mut lambda = lambda_hat.clone();
        lambda[t] = eta[t];
        for t_prime in t..eta.len() {
            let (halted, gaps) = halted_by(sequences, &lambda, t_prime);
            if halted == 0 || binomial_tail(gaps, halted, alpha) > delta {
                break 'walk;
            }
        }
        lambda_hat = lambda;
    }
    lambda_hat
}

/// Algorithm A.1, line by line.
fn marginal_listing(sequences: &[Sequence], alpha: f64, delta: f64, grid: &Grid) -> f32 {
    let t_max = t_max(sequences);
    let mut lambda_hat = NEVER;
    for &lambda in grid.thresholds().iter().rev() {
        let (n, gaps) = halted_by(sequences, &vec![lambda; t_max], t_max);
        if binomial_tail(gaps, n, alpha) > delta {
            break;
        }
        lambda_hat = lambda;
    }
    lambda_hat
}

fn traces(sequences: &[Sequence]) -> Traces {
    let mut builder = Traces::builder();
    for s in sequences {
        builder.push(None, &true, &s.right, &s.scores).unwrap();
    }
    builder.finish()
}

/// Scores on the edges of the grid, close to them, and anywhere.
fn score() -> impl Strategy<Value = f32> {
    prop_oneof![
        3 => (0u8..=20).prop_map(|k| f32::from(k) * 0.05),
        1 => (0u8..=20).prop_map(|k| (f32::from(k) * 0.05).next_down().clamp(0.0, 1.0)),
        1 => 0.0f32..=1.0,
    ]
}

fn sequence(max_steps: usize) -> impl Strategy<Value = Sequence> {
    // Early predictions are right more often when the score is high.
    prop::collection::vec((score(), 0.0f32..1.0), 1..=max_steps).prop_map(|steps| Sequence {
        scores: steps.iter().map(|s| s.0).collect(),
        right: steps.iter().map(|&(s, u)| u < 0.8 + 0.2 * s).collect(),
    })
}

fn sequences(max: usize) -> impl Strategy<Value = Vec<Sequence>> {
    (1usize..=6).prop_flat_map(move |steps| prop::collection::vec(sequence(steps), 1..=max))
}

/// A plan at α = 0.2, δ = 0.1.
fn plan(method: Method, grid_step: f64) -> Plan {
    Plan::new(Ask {
        method: Some(method),
        alpha: Some(0.2),
        delta: Some(0.1),
        grid_step: Some(grid_step),
        screen: method == Method::Conditional,
        ..Ask::default()
    })
    .unwrap()
}

/// The rule of the conditional method; `None` if both sets are the same by chance, which is
/// refused.
fn conditional(plan: &Plan, screening: &[Sequence], certifying: &[Sequence]) -> Option<Rule> {
    let (s, t) = (traces(screening), traces(certifying));
    match plan.calibrate(Inputs::one(&t).screen(&s)) {
        Err(CalibrateError::Evidence(EvidenceError::Same)) => None,
        found => Some(found.unwrap().rule),
    }
}

/// The rule of a method that needs one set.
fn rule_of(plan: &Plan, data: &[Sequence]) -> Rule {
    plan.calibrate(Inputs::one(&traces(data))).unwrap().rule
}

/// The same sequences for the method `adaptive`.
fn outputs(sequences: &[Sequence], from: usize) -> Outputs {
    let mut outputs = Outputs::new();
    for (i, s) in sequences.iter().enumerate() {
        let predictions: Vec<u32> = s.right.iter().map(|&right| u32::from(right)).collect();
        let sequence = haltwise::Sequence {
            id: Some(&(from + i).to_string()),
            label: Some(1),
            predictions: Some(&predictions),
            scores: Some(&s.scores),
            probs: None,
            ..haltwise::Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    outputs
}

/// Whether the evidence for a proposal agrees with what its rules do to sequences by each
/// step.
fn counts_agree(proposal: &Proposal, evidence: &Evidence, scored: &[Sequence]) -> bool {
    let [halted, gaps] = evidence.counts();
    let rows = std::iter::zip(halted, gaps);
    std::iter::zip(proposal.thresholds(), rows).all(|(rule, (halted, gaps))| {
        let (mut sum, mut with_gap) = (0, 0);
        (0..rule.t_max()).all(|t| {
            sum += halted[t];
            with_gap += gaps[t];
            (sum, with_gap) == halted_by(scored, rule.values(), t)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn screening_is_algorithm_1(data in sequences(80), step in prop::sample::select(vec![0.5, 0.05, 0.01])) {
        let plan = plan(Method::ScreenOnly, step);
        let rule = rule_of(&plan, &data);
        prop_assert_eq!(rule.thresholds().values(), screen_listing(&data, 0.2, plan.grid()));
    }

    #[test]
    fn screening_by_p_value_is_algorithm_1_with_the_test_of_algorithm_2(
        data in sequences(200), step in prop::sample::select(vec![0.5, 0.05, 0.01]),
        alpha in prop::sample::select(vec![0.05, 0.2, 0.5, 0.95]),
        delta in prop::sample::select(vec![1e-3, 0.1, 0.5, 0.9]),
    ) {
        let plan = Plan::new(Ask {
            method: Some(Method::ScreenOnly),
            alpha: Some(alpha),
            delta: Some(delta),
            grid_step: Some(step),
            screen_by: Some(ScreenBy::PValue),
            ..Ask::default()
        })
        .unwrap();
        let fast = rule_of(&plan, &data);
        let passes = |halted, gaps| binomial_tail(gaps, halted, alpha) <= delta;
        prop_assert_eq!(fast.thresholds().values(), screen_by(&data, plan.grid(), passes));
    }

    #[test]
    fn conditional_is_algorithm_1_then_2(
        screening in sequences(60), certifying in sequences(60), skip in any::<bool>(),
    ) {
        let at_never = if skip { AtNever::Skip } else { AtNever::Stop };
        let plan = plan(Method::Conditional, 0.05).walking(at_never).unwrap();
        let mut eta = screen_listing(&screening, 0.2, plan.grid());
        eta.resize(eta.len().max(t_max(&certifying)), NEVER);
        let listing = certify_listing(&certifying, &eta, 0.2, 0.1, skip);
        if let Some(rule) = conditional(&plan, &screening, &certifying) {
            prop_assert_eq!(rule.thresholds().values(), listing);
        }
    }

    #[test]
    fn marginal_is_algorithm_a1(data in sequences(80)) {
        let plan = plan(Method::Marginal, 0.05);
        let rule = rule_of(&plan, &data);
        let lambda = marginal_listing(&data, 0.2, 0.1, plan.grid());
        prop_assert_eq!(rule.thresholds().values(), vec![lambda; t_max(&data)]);
    }

    #[test]
    fn evidence_counts_what_each_rule_does(screening in sequences(60), data in sequences(60)) {
        let (screening_set, certifying) = (traces(&screening), traces(&data));
        let marginal = plan(Method::Marginal, 0.05);
        let (proposal, _) = marginal.propose(Inputs::one(&certifying)).unwrap();
        prop_assert!(counts_agree(&proposal, &certifying.count(&proposal).unwrap(), &data));
        let conditional = plan(Method::Conditional, 0.05);
        let given = Inputs::one(&certifying).screen(&screening_set);
        let (proposal, _) = conditional.propose(given).unwrap();
        prop_assert!(counts_agree(&proposal, &certifying.count(&proposal).unwrap(), &data));
        let adaptive = Plan::new(Ask { score: Some(ScoreSource::Confidence), fit: true, ..Ask::default() });
        let (fitting, certifying) = (outputs(&screening, 0), outputs(&data, screening.len()));
        let given = Inputs::one(&certifying).fit(&fitting);
        let (proposal, _) = adaptive.unwrap().propose(given).unwrap();
        prop_assert!(counts_agree(&proposal, &certifying.count(&proposal).unwrap(), &data));
    }

    #[test]
    fn evidence_of_many_parts_is_that_of_each(
        data in sequences(60),
        parts in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..40), 1..4),
    ) {
        let traces = traces(&data);
        let positions = |part: &Vec<prop::sample::Index>| part.iter().map(|i| i.index(data.len())).collect();
        let parts: Vec<Vec<usize>> = parts.iter().map(positions).collect();
        let slices: Vec<&[usize]> = parts.iter().map(|part| &part[..]).collect();
        // Parts are not the whole set that a proposal would expect to see.
        let given = Inputs::one(&traces).to_certify(ToCertify::default());
        let (proposal, _) = plan(Method::Marginal, 0.1).propose(given).unwrap();
        let scored = proposal.scored(&outputs(&data, 0)).unwrap();
        let together = proposal.count_parts(&scored, &slices).unwrap();
        for (part, evidence) in std::iter::zip(parts, together) {
            let alone = traces.select(part).count(&proposal).unwrap();
            prop_assert_eq!(evidence.counts(), alone.counts());
            prop_assert_eq!(
                proposal.certify(&evidence).unwrap().thresholds().clone(),
                proposal.certify(&alone).unwrap().thresholds().clone()
            );
        }
    }

    #[test]
    fn any_way_of_cutting_the_data_gives_the_same_rule(
        data in sequences(120), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let plan = plan(Method::Marginal, 0.05);
        let whole = outputs(&data, 0);
        let (proposal, _) = plan.propose(Inputs::one(&whole)).unwrap();
        let counted = whole.count(&proposal).unwrap();
        let mut edges: Vec<usize> = cuts.iter().map(|i| i.index(data.len())).collect();
        edges.extend([0, data.len()]);
        edges.sort_unstable();
        let mut parts = edges.windows(2).map(|w| {
            let part = outputs(&data[w[0]..w[1]], w[0]);
            // Through its stored form, as it would come from another machine.
            let stored = serde_json::to_string(&part.count(&proposal).unwrap());
            serde_json::from_str::<Evidence>(&stored.unwrap()).unwrap()
        });
        let mut sum = parts.next().unwrap();
        for part in parts {
            sum.add(&part).unwrap();
        }
        prop_assert_eq!(&sum, &counted);
        let rule = proposal.certify(&sum).unwrap();
        prop_assert_eq!(&rule, &proposal.certify(&counted).unwrap());
        prop_assert_eq!(rule, plan.calibrate(Inputs::one(&whole)).unwrap().rule);
    }

    #[test]
    fn a_stream_halts_where_the_evaluation_says(
        data in sequences(30), rule in prop::collection::vec(prop::option::of(0u8..=20), 6),
    ) {
        let values: Vec<Option<f32>> =
            rule.iter().map(|k| k.map(|k| f32::from(k) * 0.05)).collect();
        let thresholds = Thresholds::try_from(values).unwrap();
        let steps = halt_steps(&thresholds, &traces(&data)).unwrap();
        for (s, step) in std::iter::zip(&data, steps) {
            prop_assert_eq!(s.halt(thresholds.values()) + 1, step as usize);
        }
    }

    #[test]
    fn a_lower_threshold_never_halts_later(
        data in sequences(30), rule in prop::collection::vec(0u8..=20, 6),
        t in 0usize..6, lower in 0u8..=20,
    ) {
        let mut values: Vec<f32> = rule.iter().map(|&k| f32::from(k) * 0.05).collect();
        let before = halt_steps(&Thresholds::new(values.clone()).unwrap(), &traces(&data)).unwrap();
        values[t] = values[t].min(f32::from(lower) * 0.05);
        let after = halt_steps(&Thresholds::new(values).unwrap(), &traces(&data)).unwrap();
        prop_assert!(std::iter::zip(before, after).all(|(b, a)| a <= b));
    }

    #[test]
    fn a_stored_rule_reads_back_equal(screening in sequences(60), certifying in sequences(60)) {
        let rules = [
            conditional(&plan(Method::Conditional, 0.05), &screening, &certifying),
            Some(rule_of(&plan(Method::Marginal, 0.05), &certifying)),
            Some(rule_of(&plan(Method::ScreenOnly, 0.05), &screening)),
        ];
        for rule in rules.into_iter().flatten() {
            let text = serde_json::to_string(&rule).unwrap();
            prop_assert_eq!(serde_json::from_str::<Rule>(&text).unwrap(), rule);
        }
    }
}

/// Several blocks, one of them cut short by a sequence far longer than the rest.
fn large() -> Vec<Sequence> {
    let process = &simulate::Process::hard_cases(Alpha::default())[4];
    let drawn = process.draw(9_000, 5);
    let mut data: Vec<Sequence> = (0..drawn.len())
        .map(|i| Sequence {
            scores: drawn.scores(i).unwrap(),
            right: drawn.correct(i).unwrap(),
        })
        .collect();
    data.insert(
        600,
        Sequence {
            scores: (0..3_000).map(|t| (t % 100) as f32 / 200.0).collect(),
            right: (0..3_000).map(|t| t % 3 == 0 || t > 2_900).collect(),
        },
    );
    data
}

#[test]
fn large_sets_keep_their_order_and_every_step() {
    let data = large();
    let set = traces(&data);
    assert_eq!((set.len(), set.t_max()), (9_001, 3_000));
    for (i, s) in data.iter().enumerate() {
        assert_eq!(set.scores(i).unwrap(), s.scores);
        assert_eq!(set.correct(i).unwrap(), s.right);
    }
    assert_eq!(set.scores(9_001), None);
    assert!(set.lengths().eq(data.iter().map(|s| s.scores.len())));
}

#[test]
fn large_sets_give_the_same_rule_at_any_thread_count_as_the_listings() {
    let mut data = large();
    data.truncate(5_000);
    data.remove(600);
    let (screening, certifying) = data.split_at(4_500 / 2);
    let two = Plan::new(Ask {
        method: Some(Method::Conditional),
        screen: true,
        ..Ask::default()
    });
    let (two, one) = (two.unwrap(), Plan::of(Method::Marginal));
    let on_threads = |n| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build()
            .unwrap()
            .install(|| {
                let all = large();
                let (s, t) = (traces(&all[1..]), traces(&all));
                let conditional = two.calibrate(Inputs::one(&t).screen(&s)).unwrap();
                let marginal = one.calibrate(Inputs::one(&t)).unwrap();
                (conditional.rule, marginal.rule)
            })
    };
    let alone = on_threads(1);
    assert_eq!(alone, on_threads(2));
    assert_eq!(alone, on_threads(7));
    // The listings are slow, so they run on a part of it, which still fills two blocks.
    let rule = conditional(&two, screening, certifying).unwrap();
    let eta = screen_listing(screening, 0.1, two.grid());
    let listing = certify_listing(certifying, &eta, 0.1, 0.01, true);
    assert_eq!(rule.thresholds().values(), listing);
}
