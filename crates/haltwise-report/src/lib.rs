#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod chance;
mod comparison;
mod evaluation;
mod figure;
mod forecast;
pub mod format;
mod page;
mod palette;
mod panel;
mod place;
mod playground;
#[cfg(feature = "png")]
mod png;
mod scale;
mod svg;
pub mod words;

pub use comparison::{Compared, comparison_figures, report_comparison};
pub use evaluation::{
    Judgement, Standing, accuracy_figure, evaluation_figures, gap_figure, groups_figure,
    halt_histogram, halting_figure, judge, report_evaluation, thresholds_figure,
};
pub use figure::Figure;
pub use forecast::{PlanForecast, forecast_figure, sentence as forecast_sentence};
pub use page::Context;
pub use palette::Theme;
pub use playground::{playground_page, playground_results};
#[cfg(feature = "png")]
pub use png::PngError;

/// What figures and pages are made of, for crates that draw their own.
pub mod draw {
    pub use crate::evaluation::{alpha_name, readout, row, single};
    pub use crate::page::page;
    pub use crate::palette::{dashed, series};
    pub use crate::panel::{Axis, Mark, Name, Panel, Readout, ReadoutRow};
}
