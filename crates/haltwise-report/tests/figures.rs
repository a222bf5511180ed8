//! Pictures, compared with those that were looked at and kept.
//!
//! `UPDATE_GOLDEN=1 cargo test -p haltwise-report --test figures` draws them
//! anew; look at what changed before keeping it.

// What cannot be done here should fail the test.
#![allow(clippy::expect_used)]

mod common;

use std::path::Path;

use haltwise_report::{Figure, Theme};

fn check(name: &str, figure: &Figure) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.svg"));
    let drawn = figure.to_svg_in(Theme::Light);
    roxmltree::Document::parse(&drawn).expect("the figure is well-formed");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &drawn).expect("the golden file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(drawn.lines()).position(|(a, b)| a != b);
    assert!(
        kept == drawn,
        "{name}.svg is not the picture that was kept (first differing line: {differs:?}); \
         if it should change, set UPDATE_GOLDEN=1, look at it, and keep it"
    );
}

#[test]
fn the_figures_of_an_evaluation() {
    let (rule, evaluation) = common::conditional(12, 1500, 1);
    for (name, figure) in haltwise_report::evaluation_figures(&rule, &evaluation) {
        check(&format!("evaluation-{name}"), &figure);
    }
}

#[test]
fn the_figures_of_a_comparison() {
    let rules = common::methods(12, 1500, 1);
    for (name, figure) in haltwise_report::comparison_figures(&rules) {
        check(&format!("comparison-{name}"), &figure);
    }
}

#[test]
fn the_figures_of_an_experiment() {
    let experiment = common::experiment(&[("simulated", 8)], 12, 800);
    for (name, figure) in haltwise_report::experiment_figures(&experiment) {
        check(&format!("experiment-{name}"), &figure);
    }
}

#[cfg(feature = "png")]
#[test]
fn a_picture_has_its_pixels_and_its_text() {
    let (rule, evaluation) = common::conditional(12, 1500, 1);
    let figure = haltwise_report::gap_figure(&rule, &evaluation);
    for theme in [Theme::Light, Theme::Dark] {
        let once = figure.to_png(theme, 1.0).expect("a picture");
        assert_eq!(once, figure.to_png(theme, 1.0).expect("the same picture"));
        assert_eq!(&once[1..4], b"PNG");
        let width = u32::from_be_bytes(once[16..20].try_into().expect("four bytes"));
        assert_eq!(width, 448);
    }
    for scale in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e6] {
        assert!(figure.to_png(Theme::Light, scale).is_err());
    }
}
