//! The fast paths against the paper's listings, written out plainly over rows
//! of numbers: equal to the bit, on traces full of ties and unequal lengths.
#![allow(clippy::unwrap_used, clippy::expect_used)]

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

/// Scores on the edges of the grid, beside them, and anywhere.
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

fn calibration(grid_step: f64, at_never: AtNever) -> Calibration {
    Calibration {
        alpha: 0.2.try_into().unwrap(),
        delta: 0.1.try_into().unwrap(),
        grid: Grid::new(grid_step).unwrap(),
        at_never,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..Default::default() })]

    #[test]
    fn screening_is_algorithm_1(data in sequences(80), step in prop::sample::select(vec![0.5, 0.05, 0.01])) {
        let c = calibration(step, AtNever::Skip);
        let screening = Screening::new(traces(&data));
        let fast = screen(&screening, c.alpha, c.delta, &c.grid, ScreenBy::Risk);
        prop_assert_eq!(fast.values(), screen_listing(&data, 0.2, &c.grid));
    }

    #[test]
    fn screening_by_p_value_is_algorithm_1_with_the_test_of_algorithm_2(
        data in sequences(200), step in prop::sample::select(vec![0.5, 0.05, 0.01]),
        alpha in prop::sample::select(vec![0.05, 0.2, 0.5, 0.95]),
        delta in prop::sample::select(vec![1e-3, 0.1, 0.5, 0.9]),
    ) {
        let grid = Grid::new(step).unwrap();
        let screening = Screening::new(traces(&data));
        let (a, d) = (Alpha::try_from(alpha).unwrap(), Delta::try_from(delta).unwrap());
        let fast = screen(&screening, a, d, &grid, ScreenBy::PValue);
        let passes = |halted, gaps| binomial_tail(gaps, halted, alpha) <= delta;
        prop_assert_eq!(fast.values(), screen_by(&data, &grid, passes));
    }

    #[test]
    fn conditional_is_algorithm_1_then_2(
        screening in sequences(60), certifying in sequences(60), skip in any::<bool>(),
    ) {
        let c = calibration(0.05, if skip { AtNever::Skip } else { AtNever::Stop });
        let mut eta = screen_listing(&screening, 0.2, &c.grid);
        eta.resize(eta.len().max(t_max(&certifying)), NEVER);
        let rule = c
            .conditional(&Screening::new(traces(&screening)), &Certifying::new(traces(&certifying)))
            .unwrap();
        let listing = certify_listing(&certifying, &eta, 0.2, 0.1, skip);
        prop_assert_eq!(rule.thresholds().values(), listing);
    }

    #[test]
    fn marginal_is_algorithm_a1(data in sequences(80)) {
        let c = calibration(0.05, AtNever::Skip);
        let rule = c.marginal(&Certifying::new(traces(&data))).unwrap();
        let lambda = marginal_listing(&data, 0.2, 0.1, &c.grid);
        prop_assert_eq!(rule.thresholds().values(), vec![lambda; t_max(&data)]);
    }

    #[test]
    fn evidence_counts_what_each_rule_does(
        data in sequences(60),
        rules in prop::collection::vec(prop::collection::vec(prop::option::of(0u8..=20), 6), 1..5),
    ) {
        let rules: Vec<Vec<f32>> = rules.iter()
            .map(|r| r.iter().map(|k| k.map_or(NEVER, |k| f32::from(k) * 0.05)).collect())
            .collect();
        let list = Candidates::list(rules.iter().map(|r| Thresholds::new(r.clone()).unwrap()));
        let flat = Candidates::one_threshold(Grid::new(0.05).unwrap(), 6);
        for candidates in [list, flat] {
            let evidence = Evidence::collect(candidates.clone(), &Certifying::new(traces(&data))).unwrap();
            for c in 0..candidates.len() {
                let rule = candidates.rule(c).unwrap();
                let mut sum = Counts::default();
                for (t, &at) in evidence.halted_at(c).iter().enumerate() {
                    sum += at;
                    prop_assert_eq!((sum.halted, sum.gaps), halted_by(&data, rule.values(), t));
                }
            }
        }
    }

    #[test]
    fn evidence_of_many_parts_is_that_of_each(
        data in sequences(60),
        parts in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..40), 1..4),
    ) {
        let traces = traces(&data);
        let positions = |part: &Vec<prop::sample::Index>| part.iter().map(|i| i.index(data.len())).collect();
        let parts: Vec<Vec<usize>> = parts.iter().map(positions).collect();
        let slices: Vec<&[usize]> = parts.iter().map(|part| &part[..]).collect();
        let candidates = Candidates::one_threshold(Grid::new(0.1).unwrap(), traces.t_max());
        let together = Evidence::collect_parts(&candidates, &traces, &slices).unwrap();
        for (part, evidence) in std::iter::zip(parts, together) {
            let alone = Certifying::new(traces.select(part));
            prop_assert_eq!(evidence, Evidence::collect(candidates.clone(), &alone).unwrap());
        }
    }

    #[test]
    fn any_way_of_cutting_the_data_gives_the_same_rule(
        data in sequences(120), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let c = calibration(0.05, AtNever::Skip);
        let candidates = Candidates::one_threshold(c.grid.clone(), t_max(&data));
        let whole = Evidence::collect(candidates.clone(), &Certifying::new(traces(&data))).unwrap();
        let mut edges: Vec<usize> = cuts.iter().map(|i| i.index(data.len())).collect();
        edges.extend([0, data.len()]);
        edges.sort_unstable();
        let mut parts = edges.windows(2).map(|w| {
            let part = Certifying::new(traces(&data[w[0]..w[1]]));
            // Through its stored form, as it would come from another machine.
            let stored = serde_json::to_string(&Evidence::collect(candidates.clone(), &part).unwrap());
            serde_json::from_str::<Evidence>(&stored.unwrap()).unwrap()
        });
        let mut sum = parts.next().unwrap();
        for part in parts {
            sum.add(&part).unwrap();
        }
        prop_assert_eq!(&sum, &whole);
        let rule = |evidence| c.from_evidence(evidence, None).unwrap();
        prop_assert_eq!(rule(&sum), rule(&whole));
        prop_assert_eq!(rule(&sum), c.marginal(&Certifying::new(traces(&data))).unwrap());
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
        let c = calibration(0.05, AtNever::Skip);
        let (s, t) = (Screening::new(traces(&screening)), Certifying::new(traces(&certifying)));
        for rule in [
            c.conditional(&s, &t).unwrap(), c.marginal(&t).unwrap(), c.screen_only(&s).unwrap(),
        ] {
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
    let c = Calibration::default();
    let on_threads = |n| {
        rayon::ThreadPoolBuilder::new()
            .num_threads(n)
            .build()
            .unwrap()
            .install(|| {
                let (s, t) = (traces(&large()), traces(&large()));
                let rule = c
                    .conditional(&Screening::new(s), &Certifying::new(t))
                    .unwrap();
                let t = Certifying::new(traces(&large()));
                (rule, c.marginal(&t).unwrap())
            })
    };
    let one = on_threads(1);
    assert_eq!(one, on_threads(2));
    assert_eq!(one, on_threads(7));
    // The listings are slow: on a part of it, which still fills two blocks.
    let rule = c
        .conditional(
            &Screening::new(traces(screening)),
            &Certifying::new(traces(certifying)),
        )
        .unwrap();
    let eta = screen_listing(screening, 0.1, &c.grid);
    let listing = certify_listing(certifying, &eta, 0.1, 0.01, true);
    assert_eq!(rule.thresholds().values(), listing);
}
