#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod chance;
mod comparison;
mod evaluation;
mod experiment;
mod figure;
pub mod format;
mod page;
mod palette;
mod panel;
mod place;
#[cfg(feature = "png")]
mod png;
mod scale;
mod svg;
pub mod words;

pub use comparison::{Compared, comparison_figures, report_comparison};
pub use evaluation::{
    Judgement, Standing, accuracy_figure, evaluation_figures, gap_figure, halt_histogram,
    halting_figure, judge, report_evaluation, thresholds_figure,
};
pub use experiment::{
    Cell, DatasetResults, Experiment, HaltedBy, MethodResults, PAPER, PaperRow, Rate, ResultsTable,
    SplitResult, SweepCurve, SweepPoint, TableRow, Violations, ablation_figure, experiment_figures,
    report_experiment, splits_figure, sweep_figure,
};
pub use figure::Figure;
pub use page::Context;
pub use palette::Theme;
#[cfg(feature = "png")]
pub use png::PngError;
