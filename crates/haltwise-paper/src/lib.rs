#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod classifier;
pub mod datasets;
mod experiment;
mod reproduce;

pub use experiment::{
    Cell, DatasetResults, Experiment, HaltedBy, MethodResults, Rate, ResultsTable, SplitResult,
    SweepCurve, SweepPoint, TableRow, Violations, ablation_figure, experiment_figures,
    report_experiment, splits_figure, sweep_figure,
};
pub use reproduce::{Event, Finished, Listener, Options, named_file, reproduce};
