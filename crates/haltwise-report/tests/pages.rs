//! The pages as text: well-formed, escaped, self-contained, the same each time.

// What cannot be done here should fail the test.
#![allow(clippy::expect_used)]

mod common;

use haltwise::evaluate::Evaluator;
use haltwise::{Given, Method, Plan, evaluate};
use haltwise_report::{
    Compared, Context, report_comparison, report_evaluation, report_experiment, words,
};

/// Elements that HTML writes without an end.
const VOID: [&str; 2] = ["meta", "link"];

/// Checks that every element is closed in order, and returns the elements.
fn elements(page: &str) -> Vec<&str> {
    let (mut open, mut seen) = (Vec::new(), Vec::new());
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(start) = rest.find('<') {
        let (_, tag) = rest.split_at(start + 1);
        let end = tag.find('>').expect("a tag that ends");
        let (inside, after) = tag.split_at(end);
        rest = &after[1..];
        if let Some(closed) = inside.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "closed in order");
            continue;
        }
        let word = inside.split([' ', '\n', '/']).next().expect("a name");
        assert!(word.chars().all(|c| c.is_ascii_alphanumeric()), "{word}");
        seen.push(word);
        if inside.ends_with('/') || VOID.contains(&word) {
            continue;
        }
        open.push(word);
        if word == "script" || word == "style" {
            let close = format!("</{word}>");
            rest = &rest[rest.find(&close).expect("an end")..];
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    seen
}

fn check(page: &str) {
    let seen = elements(page);
    assert_eq!(seen.iter().filter(|&&e| e == "h1").count(), 1);
    assert!(seen.contains(&"svg"));
    let ids: Vec<&str> = page.split(" id=\"").skip(1).collect();
    let mut ids: Vec<&str> = ids.iter().filter_map(|s| s.split('"').next()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "every id is used once");
    for fetched in ["src=", "@import", "url(http", "url(//", "href=\"http"] {
        assert!(!page.contains(fetched), "{fetched}");
    }
}

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
        Given::one(&process.draw(20, 1)),
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
    let rule = common::rule(Plan::of(Method::ScreenOnly), Given::one(&draw()));
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
        Given::one(&unequal.draw(100, 3)),
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
    let context = Context::new(bad).title(bad).source(bad, bad).written(bad);
    let mut experiment = common::experiment(&[("a", 4), ("a", 4)], 3, 300);
    for dataset in &mut experiment.datasets {
        dataset.name = bad.into();
        dataset.note = Some(bad.into());
        for method in &mut dataset.methods {
            method.name = bad.into();
        }
        for curve in &mut dataset.sweep {
            curve.method = bad.into();
        }
    }
    for page in [
        report_evaluation(&rules[0].rule, &rules[0].evaluation, &context),
        report_comparison(&rules, &context),
        report_experiment(&experiment, &context),
    ] {
        let seen = elements(&page);
        assert!(!seen.contains(&"img"));
        assert!(!page.contains("<img"));
    }
}

#[test]
fn an_experiment_is_one_well_formed_page() {
    let experiment = common::experiment(&[("first", 4), ("second", 9)], 5, 400);
    let page = report_experiment(&experiment, &Context::new("0"));
    check(&page);
    let empty = haltwise_report::Experiment {
        datasets: Vec::new(),
        ..experiment
    };
    elements(&report_experiment(&empty, &Context::new("0")));
}
