//! A figure: one or more panels, as an SVG file, a PNG, or part of a page.

use maud::{Markup, PreEscaped, html};
use serde_json::json;

use crate::format::fit;
use crate::palette::{Theme, file_style, fixed_style};
use crate::panel::{HEIGHT, Panel, WIDTH, text};
use crate::svg::{Element, number};

/// The space between and around panels in a file.
const SPACE: f64 = 24.0;

/// The height of the heading above the panels.
const HEADING: f64 = 34.0;

/// A figure that can be written as an SVG or a PNG file.
#[derive(Debug, Clone)]
pub struct Figure {
    /// What the figure shows.
    pub title: String,
    /// Its panels.
    pub panels: Vec<Panel>,
    /// Panels side by side in a file; a page sets as many as have room.
    pub columns: usize,
}

impl Figure {
    /// What the figure shows.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The figure as an SVG file of its own, light or dark as the reader's
    /// screen is.
    pub fn to_svg(&self) -> String {
        self.drawing(&file_style()).to_string()
    }

    /// The figure as an SVG file in one theme.
    pub fn to_svg_in(&self, theme: Theme) -> String {
        self.drawing(&fixed_style(theme)).to_string()
    }

    /// The figure as a PNG, `scale` pixels per unit (a panel is 400 wide; 2 is
    /// good for screens, 4 for print).
    #[cfg(feature = "png")]
    pub fn to_png(&self, theme: Theme, scale: f32) -> Result<Vec<u8>, crate::png::PngError> {
        crate::png::rasterise(&self.to_svg_in(theme), scale)
    }

    fn drawing(&self, style: &str) -> Element {
        let columns = self.columns.clamp(1, self.panels.len().max(1));
        let rows = self.panels.len().div_ceil(columns).max(1);
        // A title that the only panel already has is not said twice.
        let has_own = self.panels.iter().all(|panel| panel.title != self.title);
        let heading = if has_own { HEADING } else { 0.0 };
        let width = SPACE + columns as f64 * (WIDTH + SPACE);
        let height = SPACE + heading + rows as f64 * (HEIGHT + SPACE);
        let desc: Vec<&str> = self.panels.iter().map(|p| &p.desc[..]).collect();
        let mut drawing = root(width, height)
            .attr("xmlns", "http://www.w3.org/2000/svg")
            .at("width", width)
            .at("height", height)
            .attr("role", "img")
            .child(Element::new("title").text(&self.title))
            .child(Element::new("desc").text(desc.join(" ")))
            .child(Element::new("style").text(style))
            .child(
                Element::new("rect")
                    .attr("class", "paper")
                    .at("width", width)
                    .at("height", height),
            );
        if heading > 0.0 {
            let title = fit(&self.title, width - 2.0 * SPACE, 17.0);
            drawing = drawing.child(text("head", SPACE, SPACE + 14.0, "start", &title));
        }
        let places = self.panels.iter().enumerate().map(|(i, panel)| {
            let x = SPACE + (i % columns) as f64 * (WIDTH + SPACE);
            let y = SPACE + heading + (i / columns) as f64 * (HEIGHT + SPACE);
            let moved = format!("translate({} {})", number(x), number(y));
            Element::new("g")
                .attr("transform", moved)
                .children(panel.draw(&format!("clip{}", i + 1)))
        });
        drawing.children(places)
    }

    /// The figure inside a page. `id` must differ between the figures of one
    /// page; panels with the same `link` follow each other's guide.
    pub fn inline(&self, id: &str, link: &str) -> Markup {
        html! {
            @for (i, panel) in self.panels.iter().enumerate() {
                (inline_panel(panel, &format!("{id}-{}", i + 1), link))
            }
        }
    }
}

fn root(width: f64, height: f64) -> Element {
    let size = format!("0 0 {} {}", number(width), number(height));
    Element::new("svg").attr("viewBox", size)
}

fn inline_panel(panel: &Panel, id: &str, link: &str) -> Markup {
    let frame = panel.frame();
    let guide = Element::new("line")
        .attr("class", "guide")
        .at("y1", frame.top())
        .at("y2", frame.bottom());
    // Text of the page's own size stays legible where a panel is narrow.
    let svg = root(WIDTH, HEIGHT)
        .attr("role", "img")
        .attr("aria-labelledby", format!("{id}-title {id}-desc"))
        .child(
            Element::new("title")
                .attr("id", format!("{id}-title"))
                .text(&panel.title),
        )
        .child(
            Element::new("desc")
                .attr("id", format!("{id}-desc"))
                .text(&panel.desc),
        )
        .children(panel.draw(&format!("{id}-clip")))
        .child(Element::new("g").attr("class", "marker").child(guide));
    let keys = format!("{}: arrow keys read the values", panel.title);
    html! {
        figure.plot data-link=(link) {
            (PreEscaped(svg.to_string()))
            @if !panel.readout.x.is_empty() {
                div.hit tabindex="0" role="group" aria-label=(keys) {}
                div.tip role="status" hidden {}
                script type="application/json" { (PreEscaped(readout(panel))) }
            }
        }
    }
}

/// What the page's script needs, as JSON that cannot close its script element.
fn readout(panel: &Panel) -> String {
    let frame = panel.frame();
    let tenth = |v: f64| (v * 10.0).round() / 10.0;
    let shown = &panel.readout;
    let rows: Vec<_> = shown
        .rows
        .iter()
        .map(|row| {
            let y: Vec<_> = row
                .y
                .iter()
                .map(|y| y.map(|y| tenth(frame.y.at(y))))
                .collect();
            json!({"label": row.label, "series": row.series, "values": row.values, "y": y})
        })
        .collect();
    let x: Vec<f64> = shown.x.iter().map(|&x| tenth(frame.x.at(x))).collect();
    json!({"width": WIDTH, "top": tenth(frame.top()), "x": x, "heads": shown.heads, "rows": rows})
        .to_string()
        .replace('<', "\\u003c")
}
