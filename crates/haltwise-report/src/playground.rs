//! The playground: a page that calibrates traces where it is opened, in the look
//! of the reports. What it shows of rules is made here; the page itself computes
//! nothing.

use maud::{DOCTYPE, Markup, html};

use crate::comparison::{Compared, comparison_figures, summary};
use crate::evaluation::{gap_figure, halting_figure, thresholds_figure, tiles, verdict};

/// The files that the page needs beside it, by name: its style, and the script
/// that reads values off figures.
pub fn playground_page(version: &str) -> Vec<(&'static str, String)> {
    vec![
        ("index.html", page(version).into_string()),
        ("style.css", crate::page::style()),
        ("figures.js", crate::page::SCRIPT.into()),
    ]
}

/// What the page shows of rules that were evaluated on the same traces: of the
/// chosen one, counted from 0, and then of all. `flattered`: whether a rule was
/// made from some of these traces.
pub fn playground_results(rules: &[Compared], chosen: usize, flattered: bool) -> String {
    let Some(Compared {
        rule, evaluation, ..
    }) = rules.get(chosen)
    else {
        return String::new();
    };
    let plots = |figures: Vec<(&'static str, crate::Figure)>, link: &str| {
        html! { @for (name, figure) in figures { (figure.inline(&format!("{link}-{name}"), link)) } }
    };
    let own = vec![
        ("gap", gap_figure(rule, evaluation)),
        ("halting", halting_figure(evaluation)),
        ("thresholds", thresholds_figure(rule)),
    ];
    html! {
        (verdict(rule, evaluation))
        @if flattered {
            p.note {
                "The rule was made from some of these very traces, so what is measured flatters it; \
                 what is promised holds all the same. Open other traces to measure on."
            }
        }
        (tiles(rule, evaluation))
        h3 { "Step by step" }
        div.plots { (plots(own, "own")) }
        @if rules.len() > 1 {
            h3 { "Beside the other methods" }
            (summary(rules))
            div.plots { (plots(comparison_figures(rules), "all")) }
        }
    }
    .into_string()
}

fn page(version: &str) -> Markup {
    // Nothing is fetched from elsewhere, and nothing can be sent anywhere.
    let policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; \
                  style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; \
                  form-action 'none'; base-uri 'none'";
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="description" content="See what early stopping would do to your traces";
                title { "Playground · Haltwise" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href="style.css";
                link rel="stylesheet" href="playground.css";
                script src="figures.js" defer {}
                script type="module" src="playground.js" {}
            }
            body {
                header.top {
                    p.brand { "Haltwise" }
                    h1 { "When may it stop reading?" }
                    p.sources {
                        "Give what your classifier said, step by step, and see where it could have \
                         stopped, with a promise of what that costs. "
                        strong { "Your files never leave this page: " }
                        "all is computed in your browser, and nothing is sent anywhere."
                    }
                }
                main {
                    (files())
                    (wishes())
                    p #status.note role="status" aria-live="polite" { "Loading…" }
                    progress #progress max="1" value="0" hidden aria-label="Progress" {}
                    p #problem.verdict.warn role="alert" hidden {}
                    section #results aria-label="Results" {}
                    p #downloads hidden {
                        button #rule type="button" { "Download rule.json" } " "
                        button #report type="button" { "Download the report" }
                    }
                    (player())
                }
                footer {
                    "Haltwise " (version) ". The rule file is the one that "
                    code { "haltwise calibrate" } " writes, byte for byte. Steps are counted from 1."
                }
            }
        }
    }
}

fn files() -> Markup {
    html! {
        h2 { "Traces" }
        div.files {
            label #drop.drop for="traces" {
                b { "Drop traces here, or choose a file" }
                span.small { "NPZ, CSV, JSONL or Parquet; the rule is made from them" }
                input #traces type="file" accept=".npz,.csv,.jsonl,.ndjson,.parquet,.arrow,.feather";
            }
            label #drop-test.drop for="test" {
                b { "Other traces to measure on" }
                span.small { "if you have some; else those above" }
                input #test type="file" accept=".npz,.csv,.jsonl,.ndjson,.parquet,.arrow,.feather";
            }
        }
        p {
            button #try type="button" { "Try it on PenDigits" } " "
            span #opened.muted {}
        }
    }
}

fn wishes() -> Markup {
    let method = |value: &str, title: &str, says: &str, checked: bool| {
        html! {
            label.choice {
                input type="radio" name="method" value=(value) checked[checked];
                span { b { (title) } span.small { (says) } }
            }
        }
    };
    html! {
        h2 { "What you want" }
        form #wishes {
            fieldset {
                legend { "Promise" }
                (method("adaptive", "Adaptive", "a learned score; holds among those halted by any step", true))
                (method("conditional", "Conditional", "the paper's; holds among those halted by any step", false))
                (method("marginal", "Marginal", "the paper's; holds on average", false))
            }
            div.sliders {
                label for="alpha" { "Tolerated gap α" output #alpha-value for="alpha" { "10%" } }
                input #alpha type="range" min="0.01" max="0.3" step="0.005" value="0.1";
                label for="delta" { "Chance that the promise fails δ" output #delta-value for="delta" { "1%" } }
                input #delta type="range" min="0.005" max="0.2" step="0.005" value="0.01";
                label for="score" { "Score" }
                select #score {
                    option value="" { "as the method likes" }
                    option value="confidence" { "the one in the traces" }
                    option value="max-probability" { "largest probability" }
                    option value="margin" { "margin of the two largest" }
                    option value="gap" { "learned" }
                }
                label for="seed" { "Seed of the split" }
                input #seed type="number" min="0" step="1" value="0";
            }
            (more())
        }
    }
}

/// What most people need not ask for.
fn more() -> Markup {
    let field = |id: &str, title: &str, says: &str| {
        let note = format!("{id}-note");
        html! {
            label for=(id) { (title) }
            input id=(id) type="text" autocomplete="off" spellcheck="false" aria-describedby=(note);
            p id=(note).small.muted { (says) }
        }
    };
    html! {
        details.more {
            summary { "More: on average, by group, units, costs" }
            div.sliders {
                label for="promise" { "Among whom, for the adaptive method" }
                select #promise {
                    option value="" { "those halted by any step" }
                    option value="average" { "all, on average" }
                }
                (field("by", "A promise for each group", "the column that names a sequence's group, or label"))
                (field("unit", "What was drawn independently", "the column that names a sequence's patient, document, …"))
                (field("cost", "What a step costs", "a column of costs, or costs such as 1,1,4: the last one also for later steps"))
            }
        }
    }
}

fn player() -> Markup {
    html! {
        section #player hidden aria-labelledby="player-title" {
            h2 #player-title { "One stroke, and where each rule stops" }
            div.player {
                div {
                    svg #stroke viewBox="-5 -5 110 110" role="img" aria-label="The stroke so far" {}
                    div.controls {
                        button #play type="button" { "Play" }
                        label.small for="step" { "Step " output #step-value for="step" {} }
                        input #step type="range" min="1" max="8" step="1" value="8";
                        label.small for="which" { "Stroke" }
                        input #which type="number" min="1" step="1" value="1";
                    }
                }
                div.scroll {
                    table {
                        caption.small { "What each rule has decided by this step" }
                        thead { tr { th.text scope="col" { "rule" } th scope="col" { "stops at" } th scope="col" { "says" } th scope="col" { "now" } } }
                        tbody #decisions {}
                    }
                    p #said.small.muted aria-live="polite" {}
                }
            }
        }
    }
}
