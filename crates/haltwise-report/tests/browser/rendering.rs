//! How a page looks in the browser.

use std::path::Path;

use super::chromium::Tab;

/// The page renders on a desk and on a phone, light and dark.
pub(crate) fn renders(tab: &mut Tab<'_>, page: &Path) {
    for (width, scheme) in [
        (1280, "light"),
        (1280, "dark"),
        (390, "light"),
        (390, "dark"),
    ] {
        renders_at(tab, page, width, scheme);
    }
}

/// The page fits its width, and every figure has a size and something in it.
fn renders_at(tab: &mut Tab<'_>, page: &Path, width: u32, scheme: &str) {
    tab.open(page, width, scheme);
    let found = tab.evaluate(
        "(() => ({
            overflow: document.documentElement.scrollWidth - innerWidth,
            paper: getComputedStyle(document.body).backgroundColor,
            figures: [...document.querySelectorAll('.plot svg')].map(svg => {
                const box = svg.getBoundingClientRect();
                const text = svg.querySelector('.tick').getBoundingClientRect();
                const marks = svg.querySelectorAll('path,rect,circle').length;
                return {width: box.width, height: box.height, marks, text: text.height};
            }),
        }))()",
    );
    let place = format!("{} at {width}, {scheme}", page.display());
    assert_eq!(found["overflow"], 0, "no sideways scrolling: {place}");
    let paper = if scheme == "dark" {
        "rgb(21, 24, 29)"
    } else {
        "rgb(255, 255, 255)"
    };
    assert_eq!(found["paper"], paper, "{place}");
    let figures = found["figures"].as_array().expect("figures");
    assert!(figures.len() >= 4, "{place}");
    for figure in figures {
        assert!(
            figure["width"].as_f64().expect("a width") > 300.0,
            "{place}"
        );
        assert!(
            figure["height"].as_f64().expect("a height") > 200.0,
            "{place}"
        );
        assert!(
            figure["text"].as_f64().expect("a height") > 9.0,
            "legible: {place}"
        );
        assert!(figure["marks"].as_u64().expect("a count") > 1, "{place}");
    }
}
