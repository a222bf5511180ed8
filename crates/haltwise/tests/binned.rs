//! Binned traces and traces that come in parts: the same results, to the bit,
//! as all of them at once and unbinned.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::simulate::{Walk, Walked};
use haltwise::*;
use proptest::prelude::*;

fn push(builder: &mut TracesBuilder, number: u64, s: &Walked) {
    let id = number.to_string();
    let key = Key::new(Some(&id), number);
    builder
        .push_with_key(key, &s.label, &s.predictions, &s.scores)
        .unwrap();
}

/// A set of sequences of unequal length, some of their scores on the grid.
fn sequences(n: u64, seed: u64, grid: &Grid) -> Vec<Walked> {
    let walk = Walk::new(1, 40, seed);
    let draw = |number| {
        let mut sequence = Walked::default();
        walk.draw(number, &mut sequence);
        for (t, score) in sequence.scores.iter_mut().enumerate() {
            let near = (*score * (grid.thresholds().len() - 1) as f32) as usize;
            match (number as usize + t) % 4 {
                0 => *score = grid.thresholds()[near],
                1 => *score = grid.thresholds()[near].next_down().max(0.0),
                _ => {}
            }
        }
        sequence
    };
    (0..n).map(draw).collect()
}

fn exact(sequences: &[Walked]) -> Traces {
    let mut builder = Traces::builder();
    for (number, s) in (0..).zip(sequences) {
        push(&mut builder, number, s);
    }
    builder.finish()
}

/// The same split while reading, into binned parts, in `cut` pieces.
fn binned(sequences: &[Walked], grid: &Grid, split: SetAside, cut: usize) -> (Traces, Traces) {
    let builder = || Traces::builder().binned(grid.clone());
    let (mut screening, mut certifying) = (builder(), builder());
    let size = sequences.len().div_ceil(cut).max(1);
    for (piece, part) in (0..).zip(sequences.chunks(size)) {
        let (mut s, mut c) = (builder(), builder());
        for (i, sequence) in (0..).zip(part) {
            let number = piece * size as u64 + i;
            let key = Key::new(Some(&number.to_string()), number);
            let part = if split.has(key) { &mut s } else { &mut c };
            push(part, number, sequence);
        }
        screening.absorb(s).unwrap();
        certifying.absorb(c).unwrap();
    }
    (screening.finish(), certifying.finish())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn binned_traces_give_the_very_same_rules(
        n in 1u64..600, seed in any::<u64>(), cut in 1usize..5,
        // 255 thresholds fit a byte, 256 are kept unbinned.
        step in prop::sample::select(vec![1.0, 0.05, 0.01, 1.0 / 254.0, 1.0 / 255.0]),
        alpha in 0.02f64..0.3,
    ) {
        let grid = Grid::new(step).unwrap();
        let c = Calibration {
            alpha: alpha.try_into().unwrap(),
            delta: 0.1.try_into().unwrap(),
            grid: grid.clone(),
            at_never: AtNever::Skip,
        };
        let data = sequences(n, seed, &grid);
        let split = SetAside::share(0.4, seed);
        let (screening, certifying) = exact(&data).split(0.4, seed);
        let (s, t) = binned(&data, &grid, split, cut);
        prop_assert_eq!(s.grid().is_some(), step > 1.0 / 255.0);
        let (s, t) = (Screening::new(s), Certifying::new(t));
        prop_assert_eq!(c.conditional(&s, &t), c.conditional(&screening, &certifying));
        prop_assert_eq!(c.marginal(&t), c.marginal(&certifying));
        prop_assert_eq!(c.screen_only(&s), c.screen_only(&screening));
    }

    #[test]
    fn evaluating_in_parts_is_evaluating_at_once(
        n in 1u64..300, seed in any::<u64>(), cut in 1usize..5,
    ) {
        let grid = Grid::default();
        let data = sequences(n, seed, &grid);
        let rule = Thresholds::new(vec![0.9; 40]).unwrap();
        let whole = evaluate(&rule, &exact(&data)).unwrap();
        let mut parts = Evaluator::new(rule.clone());
        for part in data.chunks(data.len().div_ceil(cut)) {
            let mut later = Evaluator::new(rule.clone());
            later.add(&exact(part)).unwrap();
            parts.append(later);
        }
        prop_assert_eq!(parts.finish().unwrap(), whole);
    }
}

#[test]
fn binned_traces_say_what_their_scores_reach() {
    let grid = Grid::new(0.25).unwrap();
    let mut builder = Traces::builder().binned(grid.clone());
    let scores = [0.0, 0.24, 0.25, 0.8, 1.0];
    builder.push(None, &1, &[0, 1, 1, 1, 1], &scores).unwrap();
    let traces = builder.finish();
    assert_eq!(traces.scores(0).unwrap(), [0.0, 0.0, 0.25, 0.75, 1.0]);
    assert_eq!(traces.correct(0).unwrap()[..2], [false, true]);
}

#[test]
fn thresholds_off_the_grid_are_refused() {
    let data = sequences(10, 1, &Grid::default());
    let grid = Grid::new(0.05).unwrap();
    let all = SetAside::share(0.0, 0);
    let (_, certifying) = binned(&data, &grid, all, 1);
    let certifying = Certifying::new(certifying);
    let other = Candidates::one_threshold(Grid::default(), 40);
    let refused = Evidence::collect(other, &certifying);
    assert_eq!(refused, Err(EvidenceError::OffGrid));
    let off = Thresholds::new(vec![0.33; 40]).unwrap();
    let refused = evaluate(&off, certifying.traces());
    assert_eq!(refused, Err(EvaluateError::OffGrid(0.33)));
}

#[test]
fn parts_of_different_kinds_are_not_joined() {
    let mut exact = Traces::builder();
    let binned = Traces::builder().binned(Grid::default());
    assert_eq!(exact.absorb(binned), Err(TraceError::OtherKind));
}
