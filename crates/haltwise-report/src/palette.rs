//! Colours, as classes: the drawing says what a thing is, a style sheet says
//! how it looks, and the same drawing serves both themes, the page and the
//! PNG.
//!
//! The series colours are Okabe and Ito's, told apart by people with any kind
//! of colour vision, darkened or lightened until each has a contrast of 4.5:1
//! or more with its background. Curves that share a panel also differ in
//! their dashes.

/// How many series have a look of their own; more start over.
pub(crate) const SERIES: usize = 6;

/// The look of the `i`-th series.
pub fn series(i: usize) -> String {
    format!("s{}", i % SERIES + 1)
}

/// The look of the `i`-th of several curves, which differ in their dashes too.
pub fn dashed(i: usize) -> String {
    format!("line {} d{}", series(i), i % SERIES + 1)
}

/// Light or dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Theme {
    /// Dark ink on white.
    #[default]
    Light,
    /// Light ink on near-black.
    Dark,
}

/// The names of the colours, and their values on light and on dark.
pub(crate) const COLOURS: [(&str, &str, &str); 12] = [
    ("paper", "#ffffff", "#15181d"),
    ("raised", "#f5f7f9", "#1d2229"),
    ("ink", "#1b2026", "#e8ebef"),
    ("muted", "#5b6570", "#a0a9b4"),
    ("rule", "#d9dee4", "#343b45"),
    ("grid", "#e9edf1", "#272d35"),
    ("s1", "#0072b2", "#56b4e9"),
    ("s2", "#b84a08", "#ff8f55"),
    ("s3", "#00805d", "#2ec899"),
    ("s4", "#a8508a", "#e59acb"),
    ("s5", "#8f6400", "#f0b840"),
    ("s6", "#5b6570", "#b4bcc6"),
];

const DASHES: [&str; SERIES] = ["none", "7 3", "2 3", "9 3 2 3", "4 2", "1 2"];

/// The rules for a figure that stands alone; `colour` gives each name its value.
fn rules(colour: impl Fn(&str) -> String) -> String {
    let mut css = format!(
        "svg{{font-family:Inter,system-ui,-apple-system,'Segoe UI',Roboto,sans-serif}}\n\
         .paper{{fill:{paper}}}\n\
         .title{{fill:{ink};font-size:14px;font-weight:600}}\n\
         .head{{fill:{ink};font-size:17px;font-weight:600}}\n\
         .label{{fill:{muted};font-size:12px}}\n\
         .tick{{fill:{muted};font-size:12px}}\n\
         .name{{font-size:12px;font-weight:600;stroke:{paper};stroke-width:4px;stroke-linejoin:round;paint-order:stroke}}\n\
         .value{{fill:{ink};font-size:12px;font-weight:600}}\n\
         .grid{{stroke:{grid};stroke-width:1}}\n\
         .axis{{stroke:{muted};stroke-width:1}}\n\
         .alpha{{stroke:{ink};stroke-width:1.25;stroke-dasharray:5 3}}\n\
         .alpha-name{{fill:{ink}}}\n\
         .whisker{{stroke:{ink};stroke-width:1.25;fill:none}}\n\
         .line{{fill:none;stroke-width:2.25;stroke-linejoin:round;stroke-linecap:round}}\n\
         .thin{{fill:none;stroke-width:.7;stroke-linejoin:round;stroke-opacity:.4}}\n\
         .band{{stroke:none;fill-opacity:.18}}\n\
         .bar{{stroke:none}}\n\
         .never{{fill:none;stroke-width:1.25}}\n",
        paper = colour("paper"),
        ink = colour("ink"),
        muted = colour("muted"),
        grid = colour("grid"),
    );
    for (i, dash) in DASHES.iter().enumerate() {
        let name = series(i);
        let value = colour(&name);
        css += &format!(
            ".line.{name},.thin.{name},.whisker.{name},.never.{name}{{stroke:{value}}}\n\
             .band.{name},.bar.{name},.dot.{name},.name.{name}{{fill:{value}}}\n\
             .line.d{number}{{stroke-dasharray:{dash}}}\n",
            number = i + 1,
        );
    }
    css
}

/// The style of a figure inside the page, in the page's variables.
pub(crate) fn inline_style() -> String {
    rules(|name| format!("var(--{name})"))
}

/// The style of a picture in one theme.
pub(crate) fn fixed_style(theme: Theme) -> String {
    rules(|name| value(name, theme).into())
}

/// The style of an SVG file: light, or dark where the reader's screen is.
pub(crate) fn file_style() -> String {
    format!(
        "{}@media screen and (prefers-color-scheme:dark){{\n{}}}\n",
        fixed_style(Theme::Light),
        fixed_style(Theme::Dark)
    )
}

/// The page's variables in one theme.
pub(crate) fn variables(theme: Theme) -> String {
    COLOURS
        .iter()
        .map(|(name, ..)| format!("--{name}:{};", value(name, theme)))
        .collect()
}

fn value(name: &str, theme: Theme) -> &'static str {
    let found = COLOURS.iter().find(|(known, ..)| *known == name);
    match (found, theme) {
        (Some((_, light, _)), Theme::Light) => light,
        (Some((.., dark)), Theme::Dark) => dark,
        (None, _) => "currentColor",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The relative luminance of WCAG 2.
    fn luminance(hex: &str) -> f64 {
        let channel = |i: usize| {
            let value = f64::from(u8::from_str_radix(&hex[i..i + 2], 16).unwrap()) / 255.0;
            if value <= 0.04045 {
                value / 12.92
            } else {
                ((value + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn text_and_lines_stand_out_in_both_themes() {
        for theme in [Theme::Light, Theme::Dark] {
            for ground in ["paper", "raised"] {
                let against = |name| contrast(value(name, theme), value(ground, theme));
                for text in ["ink", "muted", "s1", "s2", "s3", "s4", "s5", "s6"] {
                    let found = against(text);
                    assert!(found >= 4.5, "{text} on {ground}, {theme:?}: {found:.2}");
                }
            }
        }
    }
}
