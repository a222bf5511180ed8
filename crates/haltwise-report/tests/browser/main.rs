//! The pages in a real browser: they render, they say nothing on the console,
//! hovering and arrow keys show the right numbers, both colour schemes work,
//! and a phone needs no sideways scrolling.
//!
//! Needs Chromium (`chromium`, `chromium-browser`, `google-chrome`, or the
//! program named by `HALTWISE_CHROMIUM`). If there is none, the test says so
//! and passes, unless `HALTWISE_REQUIRE_CHROMIUM` is set, as it is in CI.

// A test fails if one of its own steps does.
#![allow(clippy::expect_used)]

mod chromium;
#[path = "../common/mod.rs"]
mod common;
mod rendering;

use std::path::PathBuf;

use chromium::{Browser, Tab};
use haltwise::evaluate::Evaluation;
use haltwise_report::{Context, report_comparison, report_evaluation};
use serde_json::{Value, json};

struct Pages {
    folder: tempfile::TempDir,
    evaluation: Evaluation,
}

impl Pages {
    fn write() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let context = Context::new("0").source("traces", "<simulated>");
        let (rule, evaluation) = common::conditional(24, 2000, 1);
        let save = |name: &str, page: String| {
            std::fs::write(folder.path().join(name), page).expect("a page");
        };
        save(
            "evaluation.html",
            report_evaluation(&rule, &evaluation, &context),
        );
        save(
            "comparison.html",
            report_comparison(&common::methods(24, 2000, 1), &context),
        );
        Self { folder, evaluation }
    }

    fn all(&self) -> [PathBuf; 2] {
        ["evaluation.html", "comparison.html"].map(|n| self.path(n))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn the_pages_work_in_chromium() {
    let Some(program) = chromium::find_or_skip("the_pages_work_in_chromium") else {
        return;
    };
    let pages = Pages::write();
    let mut browser = Browser::start(&program);
    let mut tab = browser.tab();
    for page in pages.all() {
        rendering::renders(&mut tab, &page);
    }
    hovering_shows_the_numbers(&mut tab, &pages);
    touching_shows_the_numbers(&mut tab, &pages);
    arrow_keys_show_the_numbers(&mut tab, &pages);
    assert_eq!(tab.complaints(), Vec::<String>::new());
}

/// What the tip of the first figure says, and which guides are shown.
const TIP: &str = "(() => ({
    hidden: document.querySelector('.tip').hidden,
    head: document.querySelector('.tip b')?.textContent,
    values: [...document.querySelectorAll('.tip td:last-child')].map(td => td.textContent),
    guides: [...document.querySelectorAll('.marker.on')].map(marker => {
        const data = JSON.parse(marker.closest('.plot').querySelector('script').textContent);
        return data.heads[data.x.indexOf(+marker.querySelector('.guide').getAttribute('x1'))];
    }),
}))()";

/// The first row of the gap figure's tip at a step.
fn expected(evaluation: &Evaluation, step: usize) -> String {
    let gap = evaluation.by_step[step - 1].gap_by.expect("someone halted");
    format!("{:.1}%", gap * 100.0)
}

/// The steps by which anyone has halted.
fn halted_steps(evaluation: &Evaluation) -> Vec<usize> {
    let steps = evaluation.by_step.iter();
    steps.filter(|s| s.gap_by.is_some()).map(|s| s.t).collect()
}

/// The position of a value of the first figure on the screen.
fn place_of(tab: &mut Tab<'_>, index: usize) -> Value {
    tab.evaluate(&format!(
        "(() => {{
            const figure = document.querySelector('.plot');
            const data = JSON.parse(figure.querySelector('script').textContent);
            figure.scrollIntoView({{block: 'center'}});
            const box = figure.querySelector('svg').getBoundingClientRect();
            return {{
                x: box.left + data.x[{index}] * box.width / data.width,
                y: box.top + box.height / 2,
            }};
        }})()"
    ))
}

fn hovering_shows_the_numbers(tab: &mut Tab<'_>, pages: &Pages) {
    tab.open(&pages.path("evaluation.html"), 1280, "light");
    let step = 20;
    let halted = pages
        .evaluation
        .by_step
        .iter()
        .filter(|s| s.gap_by.is_some());
    let index = halted.take_while(|s| s.t < step).count();
    let place = place_of(tab, index);
    assert_eq!(tab.evaluate(TIP)["hidden"], true);
    tab.move_mouse(&place["x"], &place["y"]);
    let tip = tab.evaluate(TIP);
    assert_eq!(tip["hidden"], false);
    assert_eq!(tip["head"], format!("Step {step}"));
    assert_eq!(tip["values"][0], expected(&pages.evaluation, step));
    let all_four = vec![format!("Step {step}"); 4];
    assert_eq!(
        tip["guides"],
        json!(all_four),
        "the figures follow each other"
    );
    tab.move_mouse(&json!(2), &json!(2));
    assert_eq!(tab.evaluate(TIP)["hidden"], true);
}

fn touching_shows_the_numbers(tab: &mut Tab<'_>, pages: &Pages) {
    tab.open(&pages.path("evaluation.html"), 390, "dark");
    let steps = halted_steps(&pages.evaluation);
    let place = place_of(tab, 1);
    tab.touch(&place["x"], &place["y"]);
    let tip = tab.evaluate(TIP);
    assert_eq!(tip["head"], format!("Step {}", steps[1]));
    assert_eq!(tip["values"][0], expected(&pages.evaluation, steps[1]));
}

fn arrow_keys_show_the_numbers(tab: &mut Tab<'_>, pages: &Pages) {
    tab.open(&pages.path("evaluation.html"), 390, "light");
    tab.press("Tab");
    assert_eq!(tab.evaluate("document.activeElement.className"), "hit");
    let steps = halted_steps(&pages.evaluation);
    for (key, at) in [
        ("End", steps.len() - 1),
        ("ArrowLeft", steps.len() - 2),
        ("Home", 0),
        ("ArrowRight", 1),
    ] {
        tab.press(key);
        let tip = tab.evaluate(TIP);
        assert_eq!(tip["head"], format!("Step {}", steps[at]), "{key}");
        assert_eq!(
            tip["values"][0],
            expected(&pages.evaluation, steps[at]),
            "{key}"
        );
    }
    tab.press("Escape");
    assert_eq!(tab.evaluate(TIP)["hidden"], true);
}
