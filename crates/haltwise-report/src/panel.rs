//! One panel: a title, two axes, and marks between them.

use crate::format::{fit, text_width};
use crate::palette::series;
use crate::place::{Box2, calmest, place_name};
use crate::scale::{Scale, round_top, step_ticks, ticks};
use crate::svg::{Element, number, path};

/// The size of a panel, in the units of the drawing. Small enough that its
/// text is legible across a phone, so panels are stacked there and set side by
/// side on a desk.
pub(crate) const WIDTH: f64 = 400.0;
pub(crate) const HEIGHT: f64 = 276.0;

const TOP: f64 = 56.0;
const BOTTOM: f64 = 42.0;
const RIGHT: f64 = 14.0;
const TEXT: f64 = 12.0;

/// An axis: what it runs over, where its ticks are, and what it measures.
#[derive(Debug, Clone)]
pub struct Axis {
    /// The lowest and the highest value.
    pub domain: (f64, f64),
    /// Where ticks are, and what stands beside them.
    pub ticks: Vec<(f64, String)>,
    /// What the axis measures.
    pub label: String,
}

impl Axis {
    /// The steps 1 to `t_max`, with half a step on either side.
    pub fn steps(t_max: usize) -> Self {
        let t_max = t_max.max(1);
        Self {
            domain: (0.5, t_max as f64 + 0.5),
            ticks: step_ticks(t_max)
                .into_iter()
                .map(|t| (t as f64, t.to_string()))
                .collect(),
            label: "step t".into(),
        }
    }

    /// Shares from 0 to a round number not below `top`.
    pub fn shares(label: &str, top: f64) -> Self {
        let top = round_top(top, 5).min(1.0);
        let ticks = ticks(top, 5).into_iter();
        Self {
            domain: (0.0, top),
            ticks: ticks.map(|v| (v, crate::format::level(v))).collect(),
            label: label.into(),
        }
    }

    /// Counts from 0 to a round number not below `top`.
    pub fn counts(label: &str, top: u64) -> Self {
        let top = round_top(top.max(4) as f64, 4);
        let ticks = ticks(top, 4).into_iter();
        Self {
            domain: (0.0, top),
            ticks: ticks
                .map(|v| (v, crate::format::count(v.round() as u64)))
                .collect(),
            label: label.into(),
        }
    }
}

/// A mark between the axes, in values. Later marks cover earlier ones.
#[derive(Debug, Clone)]
pub enum Mark {
    /// Between a lower and an upper curve: (x, low, high).
    Band(Vec<(f64, f64, f64)>, String),
    /// A curve; `class` is "line …" or "thin …".
    Line(Vec<(f64, f64)>, String),
    /// A bar from 0 for every (x, y), one unit of x wide.
    Bars(Vec<(f64, f64)>, String),
    /// Dots of a radius in the units of the drawing.
    Dots(Vec<(f64, f64)>, String, f64),
    /// Upright whiskers: (x, low, high).
    Whiskers(Vec<(f64, f64, f64)>, String),
    /// A word above each place.
    Words(Vec<(f64, f64, String)>),
    /// A level across the panel, with its name.
    Level(f64, String),
    /// Hollow signs in the strip above the axis, for values that have no
    /// number.
    Above(Vec<f64>, String),
}

/// What hovering over a panel shows at each place: one heading and one value
/// per row.
#[derive(Debug, Clone, Default)]
pub struct Readout {
    /// The places, in values of the x axis.
    pub x: Vec<f64>,
    /// The heading at each place.
    pub heads: Vec<String>,
    /// The rows below the heading.
    pub rows: Vec<ReadoutRow>,
}

/// One row of a readout.
#[derive(Debug, Clone)]
pub struct ReadoutRow {
    /// What the row says.
    pub label: String,
    /// The series whose colour it has, if any.
    pub series: Option<String>,
    /// The value at each place.
    pub values: Vec<String>,
    /// A dot's place, in values of the y axis.
    pub y: Vec<Option<f64>>,
}

/// A name set beside the curve it belongs to.
#[derive(Debug, Clone)]
pub struct Name {
    name: String,
    series: String,
    curve: Vec<(f64, f64)>,
}

impl Name {
    /// The name of the `i`-th series.
    pub fn new(name: &str, i: usize, curve: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.into(),
            series: series(i),
            curve,
        }
    }
}

/// A panel.
#[derive(Debug, Clone)]
pub struct Panel {
    /// What the panel shows.
    pub title: String,
    /// The same in a sentence, for readers who do not see the drawing.
    pub desc: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The marks between the axes.
    pub marks: Vec<Mark>,
    /// Names beside curves.
    pub names: Vec<Name>,
    /// The name of the strip above the axis, if there is one.
    pub above: Option<String>,
    /// What hovering shows.
    pub readout: Readout,
}

/// The scales of a panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) x: Scale,
    pub(crate) y: Scale,
}

impl Frame {
    fn at(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }

    fn left(&self) -> f64 {
        self.x.range.0
    }

    fn right(&self) -> f64 {
        self.x.range.1
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.y.range.0
    }

    pub(crate) fn top(&self) -> f64 {
        self.y.range.1
    }
}

impl Panel {
    pub(crate) fn frame(&self) -> Frame {
        let mut labels: Vec<&str> = self.y.ticks.iter().map(|(_, l)| &l[..]).collect();
        labels.extend(self.above.as_deref());
        let widest = labels.iter().map(|l| text_width(l, TEXT));
        let left = widest.fold(20.0, f64::max) + 10.0;
        let strip = if self.above.is_some() { 20.0 } else { 0.0 };
        Frame {
            x: Scale {
                domain: self.x.domain,
                range: (left, WIDTH - RIGHT),
            },
            y: Scale {
                domain: self.y.domain,
                range: (HEIGHT - BOTTOM, TOP + strip),
            },
        }
    }

    /// The panel as the content of a drawing. `clip` names the clip path, and
    /// must differ between the panels of one document.
    pub(crate) fn draw(&self, clip: &str) -> Vec<Element> {
        let frame = self.frame();
        let mut drawn = vec![
            text("title", 0.0, 15.0, "start", &fit(&self.title, WIDTH, 14.5)),
            text("label", 0.0, 34.0, "start", &self.y.label),
        ];
        drawn.extend(self.draw_axes(&frame));
        let clipped = self.marks.iter().flat_map(|mark| draw_mark(mark, &frame));
        drawn.push(clip_path(clip, &frame));
        drawn.push(
            Element::new("g")
                .attr("clip-path", format!("url(#{clip})"))
                .children(clipped),
        );
        let (names, taken) = self.draw_levels(&frame);
        drawn.extend(names);
        drawn.extend(self.marks.iter().flat_map(|mark| draw_words(mark, &frame)));
        drawn.extend(self.draw_names(&frame, taken));
        drawn
    }

    fn draw_axes(&self, frame: &Frame) -> Vec<Element> {
        let mut drawn = Vec::new();
        for (value, label) in &self.y.ticks {
            let y = frame.y.at(*value);
            drawn.push(line("grid", frame.left(), y, frame.right(), y));
            drawn.push(text("tick", frame.left() - 7.0, y + 4.0, "end", label));
        }
        if let Some(name) = &self.above {
            drawn.push(text("tick", frame.left() - 7.0, TOP + 8.0, "end", name));
        }
        let bottom = frame.bottom();
        drawn.push(line("axis", frame.left(), bottom, frame.right(), bottom));
        for (value, label) in &self.x.ticks {
            let x = frame.x.at(*value);
            drawn.push(line("axis", x, bottom, x, bottom + 4.0));
            drawn.push(text("tick", x, bottom + 17.0, "middle", label));
        }
        let middle = (frame.left() + frame.right()) / 2.0;
        drawn.push(text("label", middle, HEIGHT - 6.0, "middle", &self.x.label));
        drawn
    }

    /// The names of the levels, each at the end of its line that hides least,
    /// and the boxes they take.
    fn draw_levels(&self, frame: &Frame) -> (Vec<Element>, Vec<Box2>) {
        let curves: Vec<Vec<(f64, f64)>> = self
            .marks
            .iter()
            .filter_map(|mark| match mark {
                Mark::Line(points, _) => Some(points.iter().map(|&p| frame.at(p)).collect()),
                _ => None,
            })
            .collect();
        let (mut drawn, mut taken) = (Vec::new(), Vec::new());
        for mark in &self.marks {
            let Mark::Level(y, name) = mark else { continue };
            let (y, width) = (frame.y.at(*y), name_width(name));
            let boxes = [frame.right() - width, frame.left() + 2.0]
                .map(|x| [y - 18.0, y + 3.0].map(|top| Box2::new(x, top, width, 15.0)));
            let Some(found) = calmest(boxes.as_flattened(), &curves) else {
                continue;
            };
            let (x, y) = found.baseline();
            drawn.push(text("name alpha-name", x, y, "middle", name));
            taken.push(found);
        }
        (drawn, taken)
    }

    fn draw_names(&self, frame: &Frame, mut taken: Vec<Box2>) -> Vec<Element> {
        let named = self.names.iter();
        let mut curves: Vec<Vec<(f64, f64)>> = named
            .map(|named| named.curve.iter().map(|&p| frame.at(p)).collect())
            .collect();
        // Names keep clear of the levels as of any curve.
        for mark in &self.marks {
            if let Mark::Level(y, _) = mark {
                let y = frame.y.at(*y);
                curves.push(vec![(frame.left(), y), (frame.right(), y)]);
            }
        }
        let room = Box2::new(
            frame.left() + 2.0,
            frame.top(),
            frame.right() - frame.left() - 4.0,
            frame.bottom() - frame.top(),
        );
        let mut drawn = Vec::new();
        for (i, Name { name, series, .. }) in self.names.iter().enumerate() {
            let name = fit(name, 165.0, TEXT);
            let width = name_width(&name);
            let Some(found) = place_name(i, width, &curves, &taken, room) else {
                continue;
            };
            let (x, y) = found.baseline();
            drawn.push(text(&format!("name {series}"), x, y, "middle", &name));
            taken.push(found);
        }
        drawn
    }
}

/// The width of a name, which is bold, with room for wider fonts than ours.
fn name_width(name: &str) -> f64 {
    text_width(name, TEXT) * 1.15 + 4.0
}

/// Words lie outside the clip, so that one above a full bar is whole.
fn draw_words(mark: &Mark, frame: &Frame) -> Vec<Element> {
    let Mark::Words(words) = mark else {
        return Vec::new();
    };
    let word = |(x, y, word): &(f64, f64, String)| {
        let (x, y) = frame.at((*x, *y));
        text("value", x, y - 7.0, "middle", word)
    };
    words.iter().map(word).collect()
}

fn clip_path(name: &str, frame: &Frame) -> Element {
    let rect = Element::new("rect")
        .at("x", frame.left() - 3.0)
        .at("y", TOP - 2.0)
        .at("width", frame.right() - frame.left() + 6.0)
        .at("height", frame.bottom() - TOP + 5.0);
    Element::new("clipPath").attr("id", name).child(rect)
}

fn draw_mark(mark: &Mark, frame: &Frame) -> Vec<Element> {
    match mark {
        Mark::Band(points, class) => vec![draw_band(points, class, frame)],
        Mark::Line(points, class) => {
            let points: Vec<_> = points.iter().map(|&p| frame.at(p)).collect();
            vec![shape("path", class).attr("d", path(&points))]
        }
        Mark::Bars(points, class) => points
            .iter()
            .filter(|(_, y)| *y > 0.0)
            .map(|&p| draw_bar(p, class, frame))
            .collect(),
        Mark::Dots(points, class, radius) => points
            .iter()
            .map(|&p| circle(class, frame.at(p), *radius))
            .collect(),
        Mark::Whiskers(points, class) => points
            .iter()
            .map(|&p| draw_whisker(p, class, frame))
            .collect(),
        Mark::Words(_) => Vec::new(),
        Mark::Level(y, _) => {
            let y = frame.y.at(*y);
            vec![line("alpha", frame.left(), y, frame.right(), y)]
        }
        Mark::Above(places, class) => places
            .iter()
            .map(|&x| circle(class, (frame.x.at(x), TOP + 4.0), 2.5))
            .collect(),
    }
}

fn draw_band(points: &[(f64, f64, f64)], class: &str, frame: &Frame) -> Element {
    let high = points.iter().map(|&(x, _, high)| frame.at((x, high)));
    let low = points.iter().rev().map(|&(x, low, _)| frame.at((x, low)));
    let around: Vec<_> = high.chain(low).collect();
    shape("path", class).attr("d", path(&around) + "z")
}

fn draw_bar((x, y): (f64, f64), class: &str, frame: &Frame) -> Element {
    let unit = frame.x.at(1.0) - frame.x.at(0.0);
    // A gap between bars only where there is room to see one.
    let width = if unit > 6.0 { unit * 0.8 } else { unit };
    let top = frame.y.at(y);
    shape("rect", class)
        .at("x", frame.x.at(x) - width / 2.0)
        .at("y", top)
        .at("width", width)
        .at("height", frame.bottom() - top)
}

fn draw_whisker((x, low, high): (f64, f64, f64), class: &str, frame: &Frame) -> Element {
    let (x, low, high) = (frame.x.at(x), frame.y.at(low), frame.y.at(high));
    let (left, right) = (number(x - 2.5), number(x + 2.5));
    let (x, low, high) = (number(x), number(low), number(high));
    shape("path", class).attr(
        "d",
        format!("M{left} {high}H{right}M{x} {high}V{low}M{left} {low}H{right}"),
    )
}

fn shape(name: &'static str, class: &str) -> Element {
    Element::new(name).attr("class", class)
}

fn circle(class: &str, (x, y): (f64, f64), r: f64) -> Element {
    shape("circle", class).at("cx", x).at("cy", y).at("r", r)
}

fn line(class: &str, x1: f64, y1: f64, x2: f64, y2: f64) -> Element {
    shape("line", class)
        .at("x1", x1)
        .at("y1", y1)
        .at("x2", x2)
        .at("y2", y2)
}

pub(crate) fn text(class: &str, x: f64, y: f64, anchor: &str, words: &str) -> Element {
    shape("text", class)
        .at("x", x)
        .at("y", y)
        .attr("text-anchor", anchor)
        .text(words)
}
