#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chance;
mod comparison;
mod evaluation;
mod experiment;
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
pub use experiment::{
    Cell, DatasetResults, Experiment, HaltedBy, MethodResults, PAPER, PaperRow, Rate, ResultsTable,
    SplitResult, SweepCurve, SweepPoint, TableRow, Violations, ablation_figure, experiment_figures,
    report_experiment, splits_figure, sweep_figure,
};
pub use figure::Figure;
pub use forecast::{Foretold, forecast_figure, sentence as forecast_sentence};
pub use page::Context;
pub use palette::Theme;
pub use playground::{playground_page, playground_results};
#[cfg(feature = "png")]
pub use png::PngError;
