//! The figures and the report of an experiment: as stored, well-formed, escaped, and in a browser.
//!
//! `UPDATE_GOLDEN=1 cargo test -p haltwise-paper --test experiment` draws the figures anew; look at
//! what changed before you commit it.

// A test fails if one of its own steps does.
#![allow(clippy::expect_used)]

// It has more than this test needs.
#[allow(dead_code)]
#[path = "../../haltwise-report/tests/browser/chromium.rs"]
mod chromium;
mod common;
#[path = "../../haltwise-report/tests/browser/rendering.rs"]
mod rendering;

use common::report::{golden, html};
use haltwise_paper::report_experiment;
use haltwise_report::Context;

#[test]
fn the_figures_are_those_that_were_stored() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
    let experiment = common::experiment(&[("simulated", 8)], 12, 800);
    for (name, figure) in haltwise_paper::experiment_figures(&experiment) {
        golden::check(folder, &format!("experiment-{name}"), &figure);
    }
}

#[test]
fn the_report_is_one_well_formed_page() {
    let experiment = common::experiment(&[("first", 4), ("second", 9)], 5, 400);
    html::check(&report_experiment(&experiment, &Context::new("0")));
    let empty = haltwise_paper::Experiment {
        datasets: Vec::new(),
        ..experiment
    };
    html::elements(&report_experiment(&empty, &Context::new("0")));
}

#[test]
fn names_are_escaped_wherever_they_appear() {
    let bad = "</script><img src=x onerror=alert(1)>\"'&\u{0}";
    let context = Context::new(bad).title(bad).source(bad, bad);
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
    let page = report_experiment(&experiment, &context);
    assert!(!html::elements(&page).contains(&"img"));
    assert!(!page.contains("<img"));
}

#[test]
fn the_report_works_in_chromium() {
    let Some(program) = chromium::find_or_skip("the_report_works_in_chromium") else {
        return;
    };
    let experiment = common::experiment(&[("first", 8), ("second", 40)], 10, 500);
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("experiment.html");
    let context = Context::new("0").source("traces", "<simulated>");
    std::fs::write(&page, report_experiment(&experiment, &context)).expect("a page");
    let mut browser = chromium::Browser::start(&program);
    let mut tab = browser.tab();
    rendering::renders(&mut tab, &page);
    assert_eq!(tab.complaints(), Vec::<String>::new());
}
