//! The one corridor from sequences to a rule: the rule is the same however the evidence is
//! gathered, and nothing that was fitted to or screened on can certify.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use haltwise::corridor::*;
use haltwise::plan::*;
use haltwise::rule::*;
use haltwise::score::ScoreSource;
use haltwise::simulate::{DrawnSequence, SyntheticClassifier};
use haltwise::terms::Loss;
use haltwise::traces::*;
use haltwise::*;

/// Made-up sequences, with class probabilities, and with or without ids.
fn outputs(numbers: std::ops::Range<u64>, ids: bool) -> Outputs {
    let synthetic = SyntheticClassifier::new(5, 12, 1);
    let (mut outputs, mut drawn) = (Outputs::new(), DrawnSequence::default());
    for number in numbers {
        synthetic.draw(number, &mut drawn);
        let mut probs = Vec::new();
        for (&class, &score) in std::iter::zip(&drawn.predictions, &drawn.scores) {
            let top = 0.5 + 0.5 * score;
            probs.extend((0..2).map(|k| if k == class { top } else { 1.0 - top }));
        }
        let id = number.to_string();
        let sequence = Sequence {
            id: ids.then_some(&id),
            label: Some(drawn.label),
            predictions: Some(&drawn.predictions),
            scores: Some(&drawn.scores),
            probs: Some((&probs, 2)),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    outputs
}

fn plan(method: Method, score: Option<ScoreSource<()>>) -> Plan {
    let ask = Ask {
        method: Some(method),
        score,
        ..Ask::default()
    };
    Plan::new(ask).unwrap()
}

fn every_plan() -> impl Iterator<Item = Plan> {
    let methods = [Method::Adaptive, Method::Conditional, Method::Marginal];
    let scores = [None, Some(ScoreSource::Margin), Some(ScoreSource::Gap(()))];
    methods
        .into_iter()
        .flat_map(move |method| scores.into_iter().map(move |score| plan(method, score)))
}

fn through_its_file<T: serde::Serialize + serde::de::DeserializeOwned>(thing: &T) -> T {
    serde_json::from_str(&serde_json::to_string(thing).unwrap()).unwrap()
}

#[test]
fn counting_elsewhere_in_parts_is_calibrating_here() {
    let all = outputs(0..2_000, true);
    for plan in every_plan() {
        let rule = plan.calibrate(Inputs::one(&all)).unwrap().rule;
        let (proposal, warnings) = plan.propose(Inputs::one(&all)).unwrap();
        assert!(warnings.is_empty());
        let proposal = through_its_file(&proposal);
        let mut sum: Option<Evidence> = None;
        for part in [0..13, 13..1_200, 1_200..2_000] {
            let part = through_its_file(&outputs(part, true).count(&proposal).unwrap());
            match &mut sum {
                None => sum = Some(part),
                Some(sum) => sum.add(&part).unwrap(),
            }
        }
        assert_eq!(proposal.certify(&sum.unwrap()).unwrap(), rule, "{plan:?}");
        assert!(rule.halts_early(), "{plan:?}");
    }
}

#[test]
fn without_ids_parts_that_are_counted_one_by_one_are_refused() {
    // Positions in a part are not those in the whole: rows that screened would certify.
    let all = outputs(0..2_000, false);
    for plan in [
        plan(Method::Conditional, None),
        plan(Method::Adaptive, None),
    ] {
        let (proposal, _) = plan.propose(Inputs::one(&all)).unwrap();
        let mut sum = outputs(0..1_000, false).count(&proposal).unwrap();
        let refused = proposal.check_part(&sum).unwrap_err().to_string();
        assert!(refused.contains("no ids"), "{refused}");
        sum.add(&outputs(1_000..2_000, false).count(&proposal).unwrap())
            .unwrap();
        // All sequences are there, but those left out are not those that screened.
        let refused = proposal.certify(&sum).unwrap_err();
        assert!(matches!(refused, EvidenceError::Leak { .. }), "{refused}");
        // Another order is also noticed; the same order is not refused.
        let turned = all.select((0..2_000).rev());
        let order = proposal.certify(&turned.count(&proposal).unwrap());
        assert!(order.is_ok(), "a picked sequence keeps the key it had");
        let evidence = all.count(&proposal).unwrap();
        assert!(proposal.certify(&evidence).is_ok());
    }
}

#[test]
fn ids_that_change_between_two_passes_are_noticed() {
    let all = outputs(0..2_000, true);
    let (proposal, _) = plan(Method::Conditional, None)
        .propose(Inputs::one(&all))
        .unwrap();
    // The same sequences under other ids, as a cluster might number them anew.
    let mut renamed = Outputs::new();
    let (synthetic, mut drawn) = (SyntheticClassifier::new(5, 12, 1), DrawnSequence::default());
    let mut checker = Checker::new();
    for number in 0..2_000 {
        synthetic.draw(number, &mut drawn);
        let id = format!("new-{number}");
        let trace = checker
            .check(Sequence {
                id: Some(&id),
                label: Some(drawn.label),
                predictions: Some(&drawn.predictions),
                scores: Some(&drawn.scores),
                ..Sequence::default()
            })
            .unwrap();
        renamed.add(Key::new(Some(&id), 0), &trace).unwrap();
    }
    let evidence = renamed.count(&proposal).unwrap();
    let refused = proposal.certify(&evidence).unwrap_err();
    assert!(matches!(refused, EvidenceError::Leak { .. }), "{refused}");
}

#[test]
fn sequences_in_two_parts_are_refused_or_told() {
    let all = outputs(0..2_000, true);
    let overlapping = outputs(1_900..2_600, true);
    let other = outputs(3_000..3_700, true);
    let nameless = outputs(1_900..2_600, false);
    let ask = |method| Ask {
        method: Some(method),
        fit: method == Method::Adaptive,
        screen: method == Method::Conditional,
        ..Ask::default()
    };
    for method in [Method::Adaptive, Method::Conditional] {
        let plan = Plan::new(ask(method)).unwrap();
        let given = |set| Inputs {
            fit: (method == Method::Adaptive).then_some(set),
            screen: (method == Method::Conditional).then_some(set),
            ..Inputs::one(&all)
        };
        let refused = plan.calibrate(given(&overlapping)).unwrap_err();
        let expected = CalibrateError::Evidence(EvidenceError::Shared(100));
        assert_eq!(refused, expected, "{method:?}");
        let told = plan.calibrate(given(&nameless)).unwrap().warnings;
        assert_eq!(told, [Warning::Alike(100)], "{method:?}");
        let fine = plan.calibrate(given(&other)).unwrap();
        assert_eq!(fine.warnings, []);
        let refused = plan.calibrate(given(&all)).unwrap_err().to_string();
        assert!(refused.contains("voids the guarantee"), "{refused}");
    }
}

/// The sequences of a month, with these ids. A few in a hundred are identical, as votes are
/// when all agree from the first on.
fn month(
    month: u64,
    numbers: std::ops::Range<u64>,
    in_a_hundred: u64,
    id: impl Fn(u64) -> String,
) -> Outputs {
    let mut outputs = Outputs::new();
    for number in numbers {
        let own = ((month * 100_000 + number) as f64 * 0.618_033_988_75).fract() as f32;
        let all_agree = own < in_a_hundred as f32 / 100.0;
        let early = u32::from(!all_agree && own > 0.98);
        let score = if all_agree { 1.0 } else { own };
        let id = id(number);
        let sequence = Sequence {
            id: Some(&id),
            label: Some(0),
            predictions: Some(&[early, 0, 0]),
            scores: Some(&[score, score, 1.0]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    outputs
}

fn looking_at(looks: &[u64]) -> Plan {
    let ask = Ask {
        method: Some(Method::Conditional),
        looks: looks.to_vec(),
        ..Ask::default()
    };
    Plan::new(ask).unwrap()
}

/// The rule of all these parts.
fn certified(proposal: &Proposal, parts: &[Outputs]) -> Result<Rule, EvidenceError> {
    let mut sum: Option<Evidence> = None;
    for part in parts {
        let part = through_its_file(&part.count(proposal).unwrap());
        proposal.check_part(&part)?;
        match &mut sum {
            None => sum = Some(part),
            Some(sum) => sum.add(&part)?,
        }
    }
    proposal.certify(&sum.unwrap())
}

/// A sequence that is repeated under its id counts once, however many are identical.
#[test]
fn a_sequence_that_comes_in_two_parts_is_refused() {
    let named = |number: u64| number.to_string();
    for in_a_hundred in [0, 5, 12, 30] {
        let may = |numbers| month(0, numbers, in_a_hundred, named);
        let all = may(0..1_200);
        let plan = looking_at(&[1_200, 1_300]);
        let (proposal, _) = plan.propose(Inputs::one(&all)).unwrap();
        assert!(certified(&proposal, &[all]).is_ok());
        let fresh = || may(2_000..2_500);
        assert!(certified(&proposal, &[may(0..1_200), fresh()]).is_ok());
        for again in [0..1_200, 0..183] {
            let parts = [may(0..1_200), may(again), fresh()];
            let refused = certified(&proposal, &parts).unwrap_err();
            assert!(matches!(refused, EvidenceError::Twice(_)), "{refused}");
        }
    }
    // The sum of one part with itself, repeatedly, without a split.
    let plan = screening_on_another_set();
    let (screening, certifying) = (outputs(0..1_000, true), outputs(1_000..1_400, true));
    let given = Inputs {
        screen: Some(&screening),
        ..Inputs::one(&certifying)
    };
    let (proposal, _) = plan.propose(given).unwrap();
    let parts: Vec<Outputs> = (0..20).map(|_| outputs(1_000..1_400, true)).collect();
    let refused = certified(&proposal, &parts).unwrap_err();
    assert!(matches!(refused, EvidenceError::Twice(_)), "{refused}");
}

/// Some sequences of different months are identical and have the same number, but they are
/// different sequences.
#[test]
fn months_that_are_numbered_alike_are_not_taken_for_one() {
    let numbered = |m: u64, in_a_hundred| month(m, 0..1_000, in_a_hundred, |i| i.to_string());
    for in_a_hundred in [5, 8, 30] {
        let plan = looking_at(&[1_000, 2_000, 3_000, 4_000, 5_000, 6_000]);
        let may = numbered(0, in_a_hundred);
        let (proposal, _) = plan.propose(Inputs::one(&may)).unwrap();
        for months in 1..=6 {
            let parts: Vec<Outputs> = (0..months).map(|m| numbered(m, in_a_hundred)).collect();
            let rule = certified(&proposal, &parts);
            assert!(rule.is_ok(), "{in_a_hundred}%, {months}: {rule:?}");
        }
        let june = numbered(1, in_a_hundred);
        let given = Inputs {
            screen: Some(&may),
            ..Inputs::one(&june)
        };
        let calibrated = screening_on_another_set().calibrate(given).unwrap();
        assert_eq!(calibrated.warnings, [], "{in_a_hundred}%");
    }
}

fn screening_on_another_set() -> Plan {
    Plan::new(Ask {
        method: Some(Method::Conditional),
        screen: true,
        ..Ask::default()
    })
    .unwrap()
}

/// Sequences that were screened on are reported even if some are identical. Identical
/// sequences are not reported if none of them was screened on.
#[test]
fn sequences_that_come_back_under_new_ids_are_told() {
    for in_a_hundred in [0, 5, 12, 20] {
        let may = |name: &'static str| {
            move |numbers| month(0, numbers, in_a_hundred, move |i| format!("{name}{i}"))
        };
        let plan = looking_at(&[1_200, 1_400]);
        let (proposal, _) = plan.propose(Inputs::one(&may("may")(0..1_200))).unwrap();
        let untouched = may("may")(0..1_200).count(&proposal).unwrap();
        assert_eq!(untouched.alike(), 0, "{in_a_hundred}%");
        let renamed = may("june")(0..1_700).count(&proposal).unwrap();
        assert!(renamed.alike() > 50, "{in_a_hundred}%: {}", renamed.alike());
    }
}

#[test]
fn sets_of_different_classifiers_are_refused_and_shorter_ones_told() {
    let all = outputs(0..500, true);
    let mut scores = Outputs::new();
    for id in 0..200_u32 {
        let sequence = Sequence {
            id: Some(&format!("o{id}")),
            label: Some(0),
            predictions: Some(&[id % 2, 0, 0]),
            scores: Some(&[0.2 + 0.001 * id as f32, 0.4, 0.5]),
            ..Sequence::default()
        };
        scores.push(sequence).unwrap();
    }
    let plan = Plan::new(Ask {
        fit: true,
        ..Ask::default()
    })
    .unwrap();
    let given = Inputs {
        fit: Some(&scores),
        ..Inputs::one(&all)
    };
    let refused = plan.calibrate(given).unwrap_err().to_string();
    assert!(refused.contains("have no class probabilities"), "{refused}");
    assert!(refused.contains("those to certify on 2"), "{refused}");
    let (fit, rest) = (scores.select(0..150), scores.select(150..200));
    let given = Inputs {
        fit: Some(&fit),
        ..Inputs::one(&rest)
    };
    assert!(plan.calibrate(given).unwrap().warnings.is_empty());
}

#[test]
fn a_rule_says_what_lengths_and_classes_it_was_made_from() {
    let rule = plan(Method::Marginal, None)
        .calibrate(Inputs::one(&outputs(0..300, true)))
        .unwrap()
        .rule;
    assert_eq!(rule.lengths(), Some(Lengths::Unequal));
    assert!(rule.reads_on());
    assert_eq!(rule.classes(), Some(2));
    let accuracy = rule.late_accuracy().unwrap();
    assert!((0.8..1.0).contains(&accuracy), "{accuracy}");
}

#[test]
fn a_rule_remembers_some_of_the_sequences_it_was_made_from() {
    let all = outputs(0..2_000, true);
    let rule = plan(Method::Adaptive, None)
        .calibrate(Inputs::one(&all))
        .unwrap()
        .rule;
    assert!(rule.made_from(all.summary()));
    assert!(!rule.made_from(outputs(0..500, true).summary()));
    let remembered = |numbers: std::ops::Range<u64>| {
        let (synthetic, mut drawn) = (SyntheticClassifier::new(5, 12, 1), DrawnSequence::default());
        let mut checker = Checker::new();
        let mut count = 0;
        for number in numbers {
            synthetic.draw(number, &mut drawn);
            let sequence = Sequence {
                label: Some(drawn.label),
                predictions: Some(&drawn.predictions),
                scores: Some(&drawn.scores),
                ..Sequence::default()
            };
            let trace = checker.check(sequence).unwrap();
            count += u32::from(rule.remembers(trace.fingerprint(&mut Vec::new())));
        }
        count
    };
    assert_eq!(remembered(0..2_000) as usize, Rule::REMEMBERED);
    assert!(remembered(0..500) > 3);
    assert_eq!(remembered(2_000..4_000), 0);
}

#[test]
fn shares_of_delta_depend_on_the_plan_and_on_how_many_there_are_and_on_no_more() {
    // Long and short sequences, with gaps and without, by every step and on average.
    let like = [(1..4_u64, true), (5..12, true), (5..12, false)];
    let shares = [(60, 0.62, 0.08), (700, 0.15, 0.4), (2_000, 0.2, 0.75)];
    let cases = [Promise::Conditional, Promise::Marginal]
        .into_iter()
        .flat_map(|promise| shares.map(|case| (promise, case)));
    for ((steps, gaps), (promise, (n, clock, curves))) in
        cases.flat_map(|case| like.clone().map(|like| (like, case)))
    {
        let synthetic = SyntheticClassifier::new(steps.start as usize + 1, steps.end as usize, 3);
        let (mut outputs, mut drawn) = (Outputs::new(), DrawnSequence::default());
        for number in 0..n {
            synthetic.draw(number, &mut drawn);
            let sequence = Sequence {
                id: Some(&number.to_string()),
                label: Some(if gaps { drawn.label } else { 1_000 }),
                predictions: Some(&drawn.predictions),
                scores: Some(&drawn.scores),
                ..Sequence::default()
            };
            outputs.push(sequence).unwrap();
        }
        let ask = Ask {
            promise: Some(promise),
            // Without gaps, no label is a class that is predicted.
            label_check: Some(LabelCheck::Skip),
            ..Ask::default()
        };
        let plan = Plan::new(ask).unwrap();
        let rule = plan.calibrate(Inputs::one(&outputs)).unwrap().rule;
        let share = |kind| {
            let families = rule.families().iter().filter(|f| f.kind == kind);
            families.map(|family| family.share).sum::<f64>()
        };
        for (kind, expected) in [
            (FamilyKind::Clock, clock),
            (FamilyKind::Plain, 1.0 - clock - curves),
            (FamilyKind::Curves, curves),
        ] {
            let share = share(kind);
            assert!((share - expected).abs() < 1e-12, "{kind:?} of {n}: {share}");
        }
    }
}

/// All are sure enough for any threshold at the step where the clock may also strike, but a
/// future sequence may not be.
#[test]
fn of_rules_that_halt_as_early_the_boldest_is_taken() {
    let mut outputs = Outputs::new();
    for id in 0..200 {
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(1),
            predictions: Some(&[0, 1, 1]),
            scores: Some(&[0.95; 3]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let rule = Plan::default()
        .calibrate(Inputs::one(&outputs))
        .unwrap()
        .rule;
    assert_eq!(rule.thresholds().values(), [f32::INFINITY, 0.0, 0.0]);
}

/// Once the first step is paid for, stopping saves nothing, so no right answer is given up
/// for it.
#[test]
fn of_rules_that_cost_as_much_the_one_that_loses_less_is_taken() {
    let mut outputs = Outputs::new();
    for id in 0..400_u32 {
        let sequence = Sequence {
            id: Some(&id.to_string()),
            label: Some(1),
            predictions: Some(&[u32::from(id % 50 > 0), 1, 1]),
            scores: Some(&[0.95; 3]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    let ask = Ask {
        cost: Some(terms::Cost::Steps(vec![1.0, 0.0, 0.0])),
        ..Ask::default()
    };
    let plan = Plan::new(ask).unwrap();
    let rule = plan.calibrate(Inputs::one(&outputs)).unwrap().rule;
    assert_eq!(rule.expected().unwrap().gap, 0.0);
}

#[test]
fn too_few_to_split_and_nothing_to_learn_are_said() {
    let few = outputs(0..1, true);
    let refused = Plan::default().calibrate(Inputs::one(&few)).unwrap_err();
    let expected = "1 trace is too few to split in two: there are no fitting traces";
    assert!(refused.to_string().starts_with(expected), "{refused}");
    let mut sure = Outputs::new();
    for id in 0..50 {
        let sequence = Sequence {
            id: Some(&id.to_string()),
            predictions: Some(&[0, 0]),
            scores: Some(&[0.5, 0.6]),
            ..Sequence::default()
        };
        sure.push(sequence).unwrap();
    }
    let refused = plan(Method::Marginal, Some(ScoreSource::Gap(()))).calibrate(Inputs::one(&sure));
    assert_eq!(refused.unwrap_err(), CalibrateError::NoGap);
}

#[test]
fn a_stored_proposal_that_contradicts_itself_is_refused() {
    let all = outputs(0..800, true);
    let text = |method| {
        let (proposal, _) = plan(method, None).propose(Inputs::one(&all)).unwrap();
        serde_json::to_string(&proposal).unwrap()
    };
    for (method, from, to) in [
        (Method::Marginal, "\"grid_step\":0.01", "\"grid_step\":0.05"),
        (Method::Marginal, "[0.01,12]", "[0.01,0]"),
        (
            Method::Marginal,
            "\"method\":\"marginal\"",
            "\"method\":\"adaptive\"",
        ),
        (
            Method::Conditional,
            "\"seed\":0,\"below\"",
            "\"seed\":0,\"belov\"",
        ),
        (Method::Adaptive, "\"share\":0.3", "\"share\":0.9"),
        (
            Method::Adaptive,
            "\"fit_fraction\":0.3",
            "\"fit_fraction\":1.3",
        ),
    ] {
        let text = text(method);
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert!(
            serde_json::from_str::<Proposal>(&changed).is_err(),
            "{from}"
        );
    }
}

#[test]
fn evidence_for_other_levels_or_candidates_does_not_certify() {
    let all = outputs(0..800, true);
    let proposal = |alpha| {
        let ask = Ask {
            method: Some(Method::Marginal),
            alpha: Some(alpha),
            ..Ask::default()
        };
        let plan = Plan::new(ask).unwrap();
        plan.propose(Inputs::one(&all)).unwrap().0
    };
    let evidence = all.count(&proposal(0.1)).unwrap();
    let refused = proposal(0.2).certify(&evidence);
    assert_eq!(refused, Err(EvidenceError::OtherProposal));
    let half = outputs(0..400, true).count(&proposal(0.1)).unwrap();
    let refused = proposal(0.1).certify(&half);
    let (found, expected) = (400, 800);
    assert_eq!(refused, Err(EvidenceError::Incomplete { found, expected }));
}

/// Sequences with a gap of 30% at step 1; the first `labelled` have labels.
fn with_large_gap(numbers: std::ops::Range<u32>, labelled: u32) -> Outputs {
    let mut outputs = Outputs::new();
    for number in numbers {
        let early = u32::from(number % 10 < 3);
        let id = number.to_string();
        let sequence = Sequence {
            id: Some(&id),
            label: (number < labelled).then_some(0),
            predictions: Some(&[early, 0]),
            scores: Some(&[0.9, 0.9]),
            ..Sequence::default()
        };
        outputs.push(sequence).unwrap();
    }
    outputs
}

/// The gap of a sequence without a label is unknown. If 1,600 of them counted as no gap, a
/// rule that loses 30% would pass.
#[test]
fn a_sequence_without_a_label_is_no_evidence_that_nothing_was_lost() {
    let is_refused = |refused: &dyn std::fmt::Display| {
        let text = refused.to_string();
        assert!(text.contains("no label"), "{text}");
    };
    let first = with_large_gap(0..400, 400);
    for method in [Method::Conditional, Method::Marginal, Method::Adaptive] {
        let plan = plan(method, None);
        let (proposal, _) = plan.propose(Inputs::one(&first)).unwrap();
        let more = with_large_gap(400..2_000, 400);
        is_refused(&more.count(&proposal).unwrap_err());
        // It is not evidence in a file either, whatever program wrote it.
        let labelled = with_large_gap(400..2_000, 2_000);
        let evidence = labelled.count(&proposal).unwrap();
        let mut file = serde_json::to_value(&evidence).unwrap();
        file["unlabelled"] = 1_600.into();
        file["survey"]["unlabelled"] = 1_600.into();
        let forged: Evidence = serde_json::from_value(file).unwrap();
        is_refused(&proposal.check_part(&forged).unwrap_err());
    }
}

/// A sequence that is left out must also have a label, as when the proposal was made: the
/// error names a sequence without one, whatever its role.
#[test]
fn a_sequence_without_a_label_is_refused_though_it_would_be_left_out() {
    let plan = plan(Method::Conditional, None);
    let (proposal, _) = plan
        .propose(Inputs::one(&with_large_gap(0..400, 400)))
        .unwrap();
    let mut refused = 0;
    for number in 400..500 {
        let one = with_large_gap(number..number + 1, 0).count(&proposal);
        refused += usize::from(one.is_err_and(|e| e.to_string().contains("no label")));
    }
    assert_eq!(refused, 100);
}

/// A promise about disagreements needs no label, so no label is required.
#[test]
fn where_no_label_is_needed_none_is_asked_for() {
    let ask = Ask {
        method: Some(Method::Conditional),
        loss: Some(Loss::Disagreement),
        ..Ask::default()
    };
    let plan = Plan::new(ask).unwrap();
    let (proposal, _) = plan
        .propose(Inputs::one(&with_large_gap(0..400, 0)))
        .unwrap();
    let more = with_large_gap(400..2_000, 0).count(&proposal).unwrap();
    assert!(proposal.check_part(&more).is_ok());
}
