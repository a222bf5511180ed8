//! The pages as text: well-formed, escaped, self-contained, the same each time.

// A test fails if one of its own steps does.
#![allow(clippy::expect_used)]

mod common;

use common::html::{check, elements};
use haltwise::evaluate::Evaluator;
use haltwise::{Inputs, Method, Plan, evaluate};
use haltwise_report::{Compared, Context, report_comparison, report_evaluation, words};

#[test]
fn an_evaluation_is_one_well_formed_page() {
    let (rule, evaluation) = common::conditional(12, 1500, 1);
    let context = Context::new("1.2.3").source("rule", "rule.json");
    let page = report_evaluation(&rule, &evaluation, &context);
    check(&page);
    assert_eq!(page, report_evaluation(&rule, &evaluation, &context));
    for words in [
        "rule.json",
        "Haltwise 1.2.3",
        "With 99% confidence, stopping early loses a right answer for at most 10%",
        "p-value",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // As on the terminal, word for word.
    for words in [words::promise(&rule), words::certification(&rule)] {
        assert!(page.contains(&words), "{words}");
    }
}

#[test]
fn a_screened_rule_is_said_to_promise_nothing() {
    let screened = common::methods(12, 1500, 1).swap_remove(2);
    let page = report_evaluation(&screened.rule, &screened.evaluation, &Context::new("0"));
    check(&page);
    assert!(page.contains("promises nothing"));
    assert!(!page.contains("confidence, stopping early"));
}

#[test]
fn a_rule_that_never_halts_says_why() {
    let process = common::process(5);
    let rule = common::rule(
        Plan::of(Method::Conditional),
        Inputs::one(&process.draw(20, 1)),
    );
    assert!(!rule.halts_early());
    let evaluation = evaluate(rule.thresholds(), &process.draw(50, 2)).expect("an evaluation");
    let page = report_evaluation(&rule, &evaluation, &Context::new("0"));
    check(&page);
    assert!(page.contains("No saving: every sequence is read to its end."));
    assert!(page.contains("0 rules passed their tests on"));
}

#[test]
fn one_step_and_one_sequence_are_enough() {
    let draw = || common::process(1).draw(1, 3);
    let rule = common::rule(Plan::of(Method::ScreenOnly), Inputs::one(&draw()));
    let evaluation = evaluate(rule.thresholds(), &draw()).expect("an evaluation");
    check(&report_evaluation(&rule, &evaluation, &Context::new("0")));
    let rules = [Compared::new("only", rule, evaluation)];
    check(&report_comparison(&rules, &Context::new("0")));
}

#[test]
fn sequences_longer_than_the_rule_are_on_the_page_to_their_end() {
    let unequal = common::process(4).with_lengths(vec![0.0, 1.0, 0.0, 1.0]);
    let rule = common::rule(
        Plan::of(Method::ScreenOnly),
        Inputs::one(&unequal.draw(100, 3)),
    );
    let mut evaluator = Evaluator::for_rule(&rule);
    evaluator
        .add(&common::process(7).draw(100, 4))
        .expect("it reads on");
    let evaluation = evaluator.finish().expect("an evaluation");
    assert_eq!(evaluation.by_step.len(), 7);
    let page = report_evaluation(&rule, &evaluation, &Context::new("0"));
    check(&page);
    assert!(page.contains("<th scope=\"row\">7</th><td>never</td>"));
    let rules = [Compared::new("only", rule, evaluation)];
    check(&report_comparison(&rules, &Context::new("0")));
}

#[test]
fn names_are_escaped_wherever_they_appear() {
    let bad = "</script><img src=x onerror=alert(1)>\"'&\u{0}";
    let mut rules = common::methods(12, 500, 1);
    for compared in &mut rules {
        compared.name = bad.into();
    }
    let context = Context::new(bad).title(bad).source(bad, bad);
    for page in [
        report_evaluation(&rules[0].rule, &rules[0].evaluation, &context),
        report_comparison(&rules, &context),
    ] {
        let seen = elements(&page);
        assert!(!seen.contains(&"img"));
        assert!(!page.contains("<img"));
    }
}
