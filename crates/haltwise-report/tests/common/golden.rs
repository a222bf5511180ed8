//! Pictures beside those that were looked at and stored.

use std::path::Path;

use haltwise_report::{Figure, Theme};

/// Compares a figure with the stored one of this name in the folder.
pub(crate) fn check(folder: &str, name: &str, figure: &Figure) {
    let path = Path::new(folder).join(format!("{name}.svg"));
    let drawn = figure.to_svg_in(Theme::Light);
    roxmltree::Document::parse(&drawn).expect("the figure is well-formed");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &drawn).expect("the golden file can be written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = stored.lines().zip(drawn.lines()).position(|(a, b)| a != b);
    assert!(
        stored == drawn,
        "{name}.svg is not the stored picture (first differing line: {differs:?}); if it should \
         change, set UPDATE_GOLDEN=1, look at it, and commit it"
    );
}
