//! Pictures, compared with those that were looked at and kept.
//!
//! `UPDATE_GOLDEN=1 cargo test -p haltwise-report --test figures` draws them
//! anew; look at what changed before keeping it.

// A test fails if one of its own steps does.
#![allow(clippy::expect_used)]

mod common;

use common::golden::check;
#[cfg(feature = "png")]
use haltwise_report::Theme;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

#[test]
fn the_figures_of_an_evaluation() {
    let (rule, evaluation) = common::conditional(12, 1500, 1);
    for (name, figure) in haltwise_report::evaluation_figures(&rule, &evaluation) {
        check(FOLDER, &format!("evaluation-{name}"), &figure);
    }
}

#[test]
fn the_figures_of_a_comparison() {
    let rules = common::methods(12, 1500, 1);
    for (name, figure) in haltwise_report::comparison_figures(&rules) {
        check(FOLDER, &format!("comparison-{name}"), &figure);
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
