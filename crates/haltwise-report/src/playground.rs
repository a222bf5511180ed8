//! The playground: a page that calibrates traces where it is opened, in the look
//! of the reports. This file makes the figures and words; the page itself computes
//! nothing.

use haltwise::Method;
use haltwise::plan::{Kind, OPTIONS, OptionSpec, Section, Word, camel_case, spelt};
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

/// The options that stand above the rest, and how each is shown there.
const FIRST: [&str; 5] = ["method", "alpha", "delta", "score", "seed"];

fn wishes() -> Markup {
    html! {
        h2 { "What you want" }
        form #wishes {
            fieldset {
                legend { "Promise" }
                @for method in Method::VALUES.iter().filter(|m| m.promise().is_some()) {
                    (choice(*method))
                }
            }
            div.sliders {
                label for="alpha" { "Tolerated gap α" output #alpha-value for="alpha" { "10%" } }
                input #alpha type="range" min="0.01" max="0.3" step="0.005" value="0.1" data-option="alpha";
                label for="delta" { "Chance that the promise fails δ" output #delta-value for="delta" { "1%" } }
                input #delta type="range" min="0.005" max="0.2" step="0.005" value="0.01" data-option="delta";
                @for option in OPTIONS.iter().filter(|o| ["score", "seed"].contains(&o.name)) {
                    (field(option))
                }
            }
            details.more {
                summary { "More: on average, by group, units, costs" }
                div.sliders {
                    @for section in [Section::Promise, Section::Rule] {
                        @for option in OPTIONS.iter().filter(|o| o.section == section && !FIRST.contains(&o.name)) {
                            (field(option))
                        }
                    }
                }
            }
        }
    }
}

/// The radio button of a method.
fn choice(method: Method) -> Markup {
    let words = std::iter::zip(Method::VALUES, Method::WORDS);
    let help = words.filter(|(value, _)| **value == method);
    let says: String = help.map(|(_, (_, help))| as_shown(help)).collect();
    let title = method.word();
    html! {
        label.choice {
            input type="radio" name="method" value=(title) checked[method == Method::default()];
            span { b { (title[..1].to_uppercase()) (title[1..]) } span.small { (says) } }
        }
    }
}

/// Help, with options named as their fields are.
fn as_shown(help: &str) -> String {
    spelt(help, title).replace('`', "")
}

/// What the field of an option is called.
fn title(name: &str) -> String {
    name.replace('_', " ")
}

/// The field of an option; empty, it asks for what is usual. The page's script finds all in the
/// attributes: the option, the methods that it goes with, and whether files are read by it.
fn field(option: &OptionSpec) -> Markup {
    let id = camel_case(option.name);
    let note = format!("{id}-note");
    let goes_with = Method::VALUES.iter().filter(|m| option.goes_with(**m));
    let methods: Vec<&str> = goes_with.map(|method| method.word()).collect();
    let methods = methods.join(" ");
    let reads = option.section == Section::Promise;
    let usual = option.usual;
    let input = |kind: &str, step: Option<&str>| {
        html! {
            input id=(id) type=(kind) step=[step] min=[step.map(|_| "0")] placeholder=[usual] autocomplete="off"
                spellcheck="false" aria-describedby=(note) data-option=(id) data-methods=(methods) data-reads[reads];
        }
    };
    html! {
        label for=(id) { (title(option.name)) }
        @match option.kind {
            Kind::Word(words) => {
                select id=(id) aria-describedby=(note) data-option=(id) data-methods=(methods) data-reads[reads] {
                    option value="" { "usual: " (usual.unwrap_or_default()) }
                    @for (word, help) in words {
                        option value=(word) title=(as_shown(help)) { (word) }
                    }
                }
            }
            Kind::Number => { (input("number", Some("any"))) }
            Kind::Count => { (input("number", Some("1"))) }
            Kind::Counts | Kind::Column | Kind::Costs => { (input("text", None)) }
        }
        p id=(note).small.muted { (option.help(title).replace('`', "")) }
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
