//! The page that every report is: one file, nothing fetched.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::palette::{Theme, inline_style, variables};

const STYLE: &str = include_str!("assets/page.css");
pub(crate) const SCRIPT: &str = include_str!("assets/page.js");

/// A report's title, its sources, and the version that wrote it.
///
/// Nothing here is looked up, so the same input gives the same bytes.
#[derive(Debug, Clone, Default)]
pub struct Context {
    title: Option<String>,
    sources: Vec<(String, String)>,
    version: String,
}

impl Context {
    /// A report written by this version of Haltwise.
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            ..Self::default()
        }
    }

    /// A title in place of the report's own.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }

    /// A source file of the report: its kind and its name.
    pub fn source(mut self, what: impl Into<String>, name: impl Into<String>) -> Self {
        self.sources.push((what.into(), name.into()));
        self
    }
}

/// The style of all pages.
pub(crate) fn style() -> String {
    format!(
        ":root{{color-scheme:light dark;{}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root{{{}}}}}\n{STYLE}{}",
        variables(Theme::Light),
        variables(Theme::Dark),
        // The page's text has its own font; figures follow it.
        inline_style().replacen("svg{", ".plot text{", 1),
    )
}

/// A whole page around its body.
pub fn page(context: &Context, title: &str, body: &Markup) -> String {
    let title = context.title.as_deref().unwrap_or(title);
    let style = style();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content=(format!("haltwise {}", context.version));
                title { (title) " · Haltwise" }
                // An icon of its own keeps browsers from asking for one.
                link rel="icon" href="data:,";
                style { (PreEscaped(style)) }
            }
            body {
                header.top {
                    p.brand { "Haltwise" }
                    h1 { (title) }
                    (sources(context))
                }
                main { (body) }
                (footer(context))
                script { (PreEscaped(SCRIPT)) }
            }
        }
    }
    .into_string()
}

fn sources(context: &Context) -> Markup {
    html! {
        @if !context.sources.is_empty() {
            p.sources {
                @for (i, (what, name)) in context.sources.iter().enumerate() {
                    @if i > 0 { " · " }
                    (what) " " b { (name) }
                }
            }
        }
    }
}

fn footer(context: &Context) -> Markup {
    html! {
        footer {
            "Written by Haltwise " (context.version)
            ". Steps are counted from 1. Intervals are exact (Clopper–Pearson) at 95%."
        }
    }
}
