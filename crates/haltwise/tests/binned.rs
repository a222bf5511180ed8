//! Binned traces, and traces that come in parts, give exactly the same results as all of
//! them at once and unbinned.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::corridor::*;
use haltwise::evaluate::*;
use haltwise::plan::*;
use haltwise::rule::*;
use haltwise::simulate::{DrawnSequence, SyntheticClassifier};
use haltwise::traces::*;
use haltwise::*;
use proptest::prelude::*;

/// A set of sequences of unequal length, some of their scores on the grid.
fn sequences(n: u64, seed: u64, grid: &Grid) -> Vec<DrawnSequence> {
    let synthetic = SyntheticClassifier::new(1, 40, seed);
    let draw = |number| {
        let mut sequence = DrawnSequence::default();
        synthetic.draw(number, &mut sequence);
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

fn given<'a>(id: &'a str, s: &'a DrawnSequence) -> Sequence<'a> {
    Sequence {
        id: Some(id),
        label: Some(s.label),
        predictions: Some(&s.predictions),
        scores: Some(&s.scores),
        probs: None,
        ..Sequence::default()
    }
}

fn exact(sequences: &[DrawnSequence]) -> Traces {
    let mut builder = Traces::builder();
    for (number, s) in sequences.iter().enumerate() {
        let id = number.to_string();
        builder
            .push(Some(&id), &s.label, &s.predictions, &s.scores)
            .unwrap();
    }
    builder.finish()
}

/// The same sequences in pieces with a state each, as files are read.
struct Pieces<'a> {
    sequences: &'a [DrawnSequence],
    size: usize,
}

impl Fold for Pieces<'_> {
    type Error = CalibrateError;

    fn refuse(&self, error: CalibrateError) -> CalibrateError {
        error
    }

    fn fold<S: Send>(
        &self,
        start: impl Fn() -> S + Sync,
        visit: impl Fn(&mut S, Key, &Trace<'_>) -> Result<(), CalibrateError> + Sync,
    ) -> Result<Vec<S>, CalibrateError> {
        let mut number = 0_u64;
        let mut states = Vec::new();
        for piece in self.sequences.chunks(self.size) {
            let (mut state, mut checker) = (start(), Checker::new());
            for s in piece {
                let id = number.to_string();
                let trace = checker.check(given(&id, s))?;
                visit(&mut state, Key::new(Some(&id), number), &trace)?;
                number += 1;
            }
            states.push(state);
        }
        Ok(states)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn binned_traces_give_the_very_same_rules(
        n in 1u64..600, seed in any::<u64>(), cut in 1usize..5,
        // 255 thresholds fit a byte; with 256, scores stay unbinned.
        step in prop::sample::select(vec![1.0, 0.05, 0.01, 1.0 / 254.0, 1.0 / 255.0]),
        alpha in 0.02f64..0.3,
    ) {
        let grid = Grid::new(step).unwrap();
        let data = sequences(n, seed, &grid);
        let size = data.len().div_ceil(cut);
        let ask = |method| Ask {
            method: Some(method),
            alpha: Some(alpha),
            delta: Some(0.1),
            grid_step: Some(step),
            ..Ask::default()
        };
        let pieces = Pieces { sequences: &data, size };
        let found = |ask: Ask| Plan::new(ask).unwrap().calibrate(Inputs::one(&pieces));
        let exact = exact(&data);
        // Evidence that is proposed, counted and certified separately is of the scores
        // themselves.
        let counted = |plan: Plan| {
            let (proposal, _) = plan.propose(Inputs::one(&exact))?;
            let evidence = exact.count(&proposal)?;
            Ok::<_, CalibrateError>(proposal.certify(&evidence)?)
        };
        let conditional = Ask {
            screen_fraction: Some(0.4),
            seed: Some(seed),
            ..ask(Method::Conditional)
        };
        let plan = Plan::new(conditional.clone()).unwrap();
        match (found(conditional), counted(plan)) {
            (Ok(split), Ok(rule)) => {
                prop_assert_eq!(split.rule.thresholds(), rule.thresholds());
                prop_assert_eq!(split.rule.trail(), rule.trail());
                prop_assert_eq!(split.rule.certified_on(), rule.certified_on());
                prop_assert_eq!(split.rule.screened_on(), rule.screened_on());
            }
            // There are too few sequences to split in two.
            (split, rule) => prop_assert!(split.is_err() && rule.is_err(), "{split:?} {rule:?}"),
        }
        let rule = counted(Plan::new(ask(Method::Marginal)).unwrap()).unwrap();
        let found_marginal = found(ask(Method::Marginal)).unwrap().rule;
        prop_assert_eq!(found_marginal.trail(), rule.trail());
        let plan = Plan::new(ask(Method::ScreenOnly)).unwrap();
        let rule = plan.calibrate(Inputs::one(&exact)).unwrap().rule;
        let screened = found(ask(Method::ScreenOnly)).unwrap().rule;
        prop_assert_eq!(screened.thresholds(), rule.thresholds());
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
            parts.append(later).unwrap();
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
    let mut builder = Traces::builder().binned(Grid::new(0.05).unwrap());
    builder.push(None, &1, &[0, 1], &[0.3, 0.8]).unwrap();
    let traces = builder.finish();
    let off = Thresholds::new(vec![0.33; 2]).unwrap();
    let refused = evaluate(&off, &traces);
    assert_eq!(refused, Err(EvaluateError::OffGrid(0.33)));
    let refused = Plan::of(Method::Marginal).calibrate(Inputs::one(&traces));
    assert_eq!(refused.unwrap_err(), EvidenceError::OffGrid.into());
}
